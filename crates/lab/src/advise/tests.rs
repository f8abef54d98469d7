//! Captures that are made up, demands that follow from them, and files that are read back.

use std::{fs, path::Path};

use tempfile::TempDir;
use units::Bytes;

use super::{
    choices::choices,
    demand::Demand,
    files,
    files::Observed,
    profile::{Profile, Shape},
};
use crate::{experiment::Experiment, machine::Machine};

const BEFORE: &str = "nr_free_pages 20000\nnr_inactive_anon 100000\nnr_active_anon 0\nnr_file_pages 300000\n\
    nr_anon_transparent_hugepages 100\npgalloc_dma32 1000\npgalloc_normal 5000\npgfault 1000\npgpgin 400\npgpgout 0\n\
    thp_fault_alloc 10\npgscan_direct 7\nzswpout 3\n";
const AFTER: &str = "nr_free_pages 10000\nnr_inactive_anon 120000\nnr_active_anon 1000\nnr_file_pages 280000\n\
    nr_anon_transparent_hugepages 150\npgalloc_dma32 301000\npgalloc_normal 505000\npgfault 201110\npgpgin 400400\npgpgout 0\n\
    thp_fault_alloc 110\npgscan_direct 5007\nzswpout 5003\n";

fn folder(before: &str, after: &str) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    write("vmstat.before", before);
    write("vmstat.after", after);
    write("uptime.before", "1000.00 0.00\n");
    write("uptime.after", "1010.00 0.00\n");
    folder
}

fn read(folder: &Path) -> Observed {
    files::read(folder, Some("one-node-8g"), None).unwrap()
}

#[test]
fn demand_follows_from_counters() {
    let folder = folder(BEFORE, AFTER);
    let observed = read(folder.path());
    assert_eq!((observed.seconds, observed.moved["pgfault"]), (10.0, 200_110));
    let demand = Demand::of(&observed);
    assert_eq!(demand.window, 10);
    assert_eq!(demand.anonymous, 100_000 * 4096, "the lesser of both");
    assert_eq!(demand.grown, 0, "82 MiB of 8 GiB");
    // 200,010 base pages and 100 huge pages in ten seconds.
    assert_eq!(demand.taken, (200_010 + 51_200) * 4096 / 10);
    assert!((0.20..0.21).contains(&demand.huge), "{}", demand.huge);
    // Of 800,000 pages, those are left that no fault took; 400,000 KiB are from the disk.
    assert_eq!(demand.reads, (800_000 - 251_210) * 4096 / 10);
    assert_eq!((demand.writes, demand.swapped), (0, 0));
    assert!(demand.came_late, "150 huge pages of 195");
    assert!(observed.not_modelled[0].contains("zswpout (+5000)"), "{:?}", observed.not_modelled);
}

#[test]
fn captures_may_be_in_any_order_and_in_folders() {
    let folder = TempDir::new().expect("a folder");
    for (name, text, uptime) in [("a", AFTER, "20.5 1\n"), ("b", BEFORE, "10.5 1\n")] {
        let place = folder.path().join(name).join("proc");
        fs::create_dir_all(&place).expect("a folder");
        fs::write(place.join("vmstat"), text).expect("written");
        fs::write(place.join("uptime"), uptime).expect("written");
    }
    let observed = read(folder.path());
    assert_eq!((observed.seconds, observed.levels[1]["nr_free_pages"]), (10.0, 10_000));
}

#[test]
fn what_is_missing_is_one_message() {
    let complete = folder(BEFORE, AFTER);
    let error = |folder: &TempDir, seconds| {
        let error = files::read(folder.path(), Some("one-node-8g"), seconds).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    let remove = |name: &str| fs::remove_file(complete.path().join(name)).expect("removed");
    remove("uptime.after");
    assert!(error(&complete, None).contains("--seconds"));
    assert!(files::read(complete.path(), Some("one-node-8g"), Some(5.0)).is_ok());
    assert!(files::read(complete.path(), None, Some(5.0)).unwrap_err().to_string().contains("--machine"));
    remove("vmstat.after");
    assert!(error(&complete, None).contains("expected two captures of /proc/vmstat"));
    let same = folder(BEFORE, BEFORE);
    fs::write(same.path().join("uptime.after"), "1000.10 0\n").expect("written");
    assert!(error(&same, None).contains("expected at least 1 s"));
    let other_boot = folder(&BEFORE.replace("pgfault 1000", "pgfault 900000"), AFTER);
    assert!(error(&other_boot, None).contains("the machine was booted between them"));
}

/// Demands of nothing, of little and of all that there could be.
fn demands() -> Vec<Demand> {
    let (none, all) = (folder(BEFORE, BEFORE), folder(BEFORE, AFTER));
    let [none, some] = [none, all].map(|folder| Demand::of(&read(folder.path())));
    let huge = Demand {
        anonymous: Bytes::gib(7).0,
        grown: Bytes::gib(3).0,
        swapped: Bytes::gib(2).0,
        returns: true,
        taken: Bytes::gib(40).0,
        reads: Bytes::gib(40).0,
        writes: Bytes::gib(1).0,
        refaults: 1.0,
        came_late: false,
        advice: Some("huge"),
        ..some.clone()
    };
    vec![none, some, huge]
}

#[test]
fn every_profile_is_a_service() {
    let folder = TempDir::new().expect("a folder");
    for (number, demand) in demands().iter().enumerate() {
        let shapes = Profile::ALL.into_iter().map(Shape::of).flat_map(|shape| [vec![shape], shape.others()].concat());
        for shape in shapes {
            let file = folder.path().join(format!("{}-{number}.toml", shape.name()));
            let text = shape.to_toml(demand, "6.1", 4);
            fs::write(&file, &text).expect("written");
            let experiment = Experiment::load(file.to_str().expect("UTF-8"));
            assert!(experiment.is_ok(), "{text}\n{}", experiment.unwrap_err());
        }
    }
}

#[test]
fn choices_are_values_that_are_not_there_yet() {
    let demand = &demands()[2];
    let machine = Machine::load("two-node-2g", &linux::setting::names()).unwrap();
    let now = |name: &str| {
        let of_machine = machine.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        of_machine.or_else(|| (name == "vm.min_free_kbytes").then(|| "10000".to_owned()))
    };
    let all = choices((6, 1), 2, demand, now);
    assert!(all.iter().all(|choice| choice.now.as_ref() != Some(&choice.value)), "{all:?}");
    let has = |name: &str| all.iter().filter(|choice| choice.name == name).count();
    assert_eq!((has("vm.min_free_kbytes"), has("kernel.numa_balancing")), (3, 2));
    let old = choices((4, 4), 1, demand, now);
    assert!(old.iter().all(|choice| !choice.name.contains("boost") && choice.value != "defer"), "{old:?}");
}
