//! Statistics and composition on made-up samples, and one short probe of the machine that the tests run on.

use std::collections::BTreeSet;

use linux::{
    probe::{FEW_PAGES, MANY_PAGES, Raw, Samples},
    setting,
};

use super::*;
use crate::source::Source;

struct Silent;

impl Progress for Silent {
    fn step(&mut self, _: usize, _: usize, _: &str) {}
    fn note(&mut self, _: &str) {}
}

const MACHINE: &str = "about = ''\n[[node]]\nid = 0\nmemory = '1GiB'\ncpus = '0'\n";

fn read(text: &str) -> Machine {
    Machine::from_source(&Source::from_text("machines/here.toml", text), &setting::names()).unwrap()
}

fn recipe(name: &str) -> &'static Recipe {
    RECIPES.iter().find(|recipe| recipe.name == name).unwrap()
}

/// Rounds in which what `name` needs is there: the first thing as given, all others 0.
fn rounds(name: &str, first: &[i64]) -> Rounds {
    let round = |ps: &i64| {
        let mut samples = Samples::default();
        recipe(name).needs.iter().for_each(|raw| samples.set(*raw, 0));
        samples.set(recipe(name).needs[0], *ps);
        samples
    };
    Rounds { samples: first.iter().map(round).collect(), absent: Vec::new() }
}

#[test]
fn every_operation_has_a_recipe_and_names_are_unique() {
    let names: BTreeSet<_> = RECIPES.iter().map(|recipe| recipe.name).collect();
    assert_eq!(names.len(), RECIPES.len());
    // Of two CPUs one interrupts the other: what each further one adds does not show. What waking takes from the waker is
    // not measured yet. Nobody makes memory short, and swaps or compacts, on a machine that is being measured.
    // What files take depends on their file system and disk. What a host does
    // for its guest is timed by neither: the one that is measured has no guest, or sees no host.
    let host = [Work::HostExit, Work::HostReport, Work::HostDiscard];
    let reads = [Work::FileRead, Work::FileGet];
    let files =
        [Work::FileWrite, Work::FileCopy, Work::FileOperation, Work::FileWriteback, Work::FileWritepage, Work::DiskIo];
    let compact = [Work::ScanFrame, Work::ScanBlock, Work::FarFrame, Work::MigrateFolio];
    let short = [Work::AllocSlow, Work::FolioScan, Work::RmapWalk, Work::SwapIo, Work::TailRead];
    let without = [Work::IpiTarget, Work::WakeOther]
        .into_iter()
        .chain(short)
        .chain(compact)
        .chain(reads)
        .chain(files)
        .chain(host);
    let without: Vec<_> = without.collect();
    for work in Work::ALL.iter().filter(|work| !without.contains(work)) {
        assert!(names.contains(work.name()), "{} cannot be measured", work.name());
    }
}

#[test]
fn a_price_is_the_median_and_its_range_the_middle_80_percent() {
    // Shuffled, and with one round in which something else ran.
    let row =
        row(recipe("system_call"), &rounds("system_call", &[107, 103, 101, 9_000, 102, 104, 105, 106, 100, 99, 98]))
            .unwrap();
    assert_eq!((row.takes, row.range), (Picos(103), Range { low: Picos(99), high: Picos(107) }));
    assert_eq!(row.spread_percent(), 7);
    assert_eq!(row.work, Some(Work::SystemCall));
}

#[test]
fn what_cannot_be_a_price_is_none() {
    let why = |first: &[i64]| row(recipe("system_call"), &rounds("system_call", first)).unwrap_err();
    assert_eq!(why(&[5; 4]), "4 rounds, which is too few");
    assert_eq!(why(&[-5, -4, -3, -2, 9]), "lost in the noise: -3 ps from -5 to -2");
    assert_eq!(why(&[0; 5]), "lost in the noise: 0 ps from 0 to 0");
    assert!(why(&[100_000_001; 5]).ends_with("is more than any primitive operation takes"));
    assert_eq!(row(recipe("system_call"), &rounds("system_call", &[-3, -2, 1, 2, 3])).unwrap().range.low, Picos(0));
}

#[test]
fn parts_that_are_subtracted_come_from_the_same_round() {
    let mut rounds = Rounds::default();
    for slow in [0, 0, 500, 70_000, 0, 123] {
        let mut samples = Samples::default();
        // A round slower in the part that is taken off, and in what it is taken off from.
        for (raw, ps) in [(Raw::Switch, 1_300_000), (Raw::SystemCall, 120_000)] {
            samples.set(raw, ps + slow);
        }
        rounds.samples.push(samples);
    }
    let switch = row(recipe("context_switch"), &rounds).unwrap();
    assert_eq!((switch.takes, switch.spread_percent()), (Picos(1_180_000), 0));
}

#[test]
fn a_pipe_gives_the_price_of_a_page() {
    // A byte costs 200 to write and 180 to read, a packet 60 more in all, its page 90 to take and 70 to give back; a page
    // that is not charged 20 each.
    let mut samples = Samples::default();
    for (raw, ps) in [
        (Raw::ByteWrite, 200),
        (Raw::ByteRead, 180),
        (Raw::PacketPair, 440),
        (Raw::PacketWrite, 200 + 30 + 90),
        (Raw::PacketRead, 180 + 30 + 70),
        (Raw::EnvironRead, 340),
        (Raw::CmdlineRead, 300),
        (Raw::Fallocate, 1000),
        (Raw::Truncate, 500),
    ] {
        samples.set(raw, ps);
    }
    let value = |name| recipe(name).value(&samples);
    assert_eq!((value("alloc_fast"), value("free_fast"), value("uncharge")), (Some(90), Some(20), Some(50)));
    assert_eq!((value("new_folio"), value("drop_folio")), (Some(910), Some(480)));
    assert_eq!(value("trap"), None, "what was not timed is no price");
}

#[test]
fn a_file_page_is_counted_by_its_time_beyond_the_zero_page() {
    // An entry costs 57 to change and 1 to read, and a fault that maps the zero page 640. Taking that away costs 45, and a
    // page that is counted 125. That a page is locked takes 40 to forget, and 140 more if it changes its list.
    let few = 40_000;
    let mut samples = Samples::default();
    for (raw, ps) in [
        (Raw::ProtectFew, few),
        (Raw::ProtectMany, few + 58 * (MANY_PAGES - FEW_PAGES)),
        (Raw::ScanFew, 700),
        (Raw::ScanMany, 700 + MANY_PAGES - FEW_PAGES),
        (Raw::ZeroFault, 640),
        (Raw::ZeroForget, 45),
        (Raw::UnmapAbsent, 9_000),
        (Raw::UnmapPresent, 9_000 + 125 * MANY_PAGES),
        (Raw::Unlock, 180),
        (Raw::UnlockShared, 40),
    ] {
        samples.set(raw, ps);
    }
    let value = |name| recipe(name).value(&samples).unwrap();
    assert_eq!((value("pte_write"), value("pte_scan"), value("trap")), (57, 1, 640 - 57));
    assert_eq!((value("unmap"), value("rmap"), value("lru_move")), (125, 80, 70));
}

#[test]
fn what_is_absent_is_skipped_with_its_reason_and_stays_generic() {
    let mut rounds = rounds("system_call", &[100; 6]);
    rounds.absent = vec![(Raw::MembarrierPaired, "one CPU only".to_owned()), (Raw::ZeroFault, "no".to_owned())];
    let calibration = Calibration::new(read(MACHINE), &rounds);
    let priced: Vec<_> = calibration.machine.prices.iter().map(|price| price.work.name()).collect();
    assert_eq!(priced, ["system_call"]);
    let table = calibration.table();
    assert!(table.contains("\nipi             skipped: one CPU only\n"), "{table}");
    assert!(table.contains("\ntrap            skipped: no\n"), "{table}");
    assert!(table.contains("\ncopy_frame      skipped: 0 rounds, which is too few\n"), "{table}");
    let [missing] = calibration.warnings().try_into().unwrap();
    assert!(missing.starts_with("not measured, so generic: user_touch, user_fill, trap, "), "{missing}");
    assert_eq!(missing.split(", ").count(), memory::cost::Work::ALL.len(), "all but one, and a few words: {missing}");
}

#[test]
fn wide_spreads_are_named() {
    let narrow = Calibration::new(
        read(MACHINE),
        &rounds("system_call", &[100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110]),
    );
    assert!(!narrow.warnings().iter().any(|warning| warning.contains("spread")), "{:?}", narrow.warnings());
    let wide = Calibration::new(
        read(MACHINE),
        &rounds("system_call", &[100, 101, 102, 103, 104, 105, 120, 130, 140, 150, 160]),
    );
    let warning = &wide.warnings()[0];
    assert_eq!(warning, "the spread is over 20 % (is the machine busy?): system_call");
}

#[test]
fn the_file_reads_back_and_says_what_was_done() {
    let mut both = rounds("system_call", &[100; 6]);
    both.samples.iter_mut().for_each(|samples| samples.set(Raw::ClearHot, 31_250));
    let calibration = Calibration::new(read(MACHINE), &both);
    let text = calibration.machine.to_toml();
    assert!(text.contains(
        "system_call = { ns = 0.1, low = 0.1, high = 0.1, source = \"measured: getuid (median of 6 rounds)\" }\n"
    ));
    assert!(
        text.contains("[measured]\nclear_frame_hot = { ns = 31.25, low = 31.25, high = 31.25, source = \"measured: "),
        "{text}"
    );
    assert_eq!(read(&text), Machine { name: "here".to_owned(), ..calibration.machine });
}

#[test]
fn files_are_not_overwritten_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("here.toml");
    let why = |path: &Path, force| check_output(path, force).unwrap_err().to_string();
    check_output(&file, false).unwrap();
    std::fs::write(&file, "mine").unwrap();
    assert!(why(&file, false).ends_with("here.toml: exists already; --force replaces it"));
    check_output(&file, true).unwrap();
    assert!(why(dir.path(), true).contains("found a directory"));
    assert!(why(&dir.path().join("no/such.toml"), true).contains("in a directory that exists"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn a_short_probe_of_this_machine_is_plausible() {
    let calibration = calibrate("here", 10, &AtomicBool::new(false), &mut Silent).unwrap();
    let machine = &calibration.machine;
    assert_eq!(&read(&machine.to_toml()), machine);
    let of = |name: &str| calibration.rows.iter().find(|row| row.name == name).map(|row| row.takes);
    // Wide bounds: from what light and a register can do to what any machine of today takes under load.
    for (name, low, high) in [
        ("system_call", Picos::from_nanos(10), Picos::from_micros(20)),
        ("clear_frame", Picos::from_nanos(10), Picos::from_micros(20)),
        ("clear_frame_hot", Picos::from_nanos(5), Picos::from_micros(10)),
        ("copy_frame", Picos::from_nanos(20), Picos::from_micros(40)),
        ("lock_pair", Picos(100), Picos::from_micros(1)),
        ("list_move", Picos(100), Picos::from_micros(10)),
        ("vma_update", Picos::from_nanos(20), Picos::from_micros(90)),
        ("pte_scan", Picos(10), Picos::from_micros(1)),
    ] {
        let takes = of(name).unwrap_or_else(|| panic!("{name} is missing: {:?}", calibration.skipped));
        assert!((low..high).contains(&takes), "{name}: {takes}");
    }
    assert!(of("clear_frame_hot") < of("clear_frame"), "caches are faster than memory:\n{}", calibration.table());
    assert!(machine.about.contains("prices measured 2"), "{}", machine.about);
    assert!(
        machine.prices.iter().all(|price| price.range.is_some_and(|r| r.low <= price.takes && price.takes <= r.high))
    );
}

#[test]
fn who_interrupts_gets_nothing() {
    let interrupted = calibrate("here", 600, &AtomicBool::new(true), &mut Silent);
    assert!(matches!(interrupted, Err(RunError::InterruptedEarly)));
}

#[test]
fn however_little_time_there_is_there_are_enough_rounds() {
    let setting = super::setting(&live().unwrap());
    let rounds = probe_here(setting, 0, &AtomicBool::new(false), &mut Silent).unwrap();
    assert_eq!(rounds.samples.len(), ROUNDS_MIN);
}
