//! Linux: none; files beside a map that knows what each page must hold, in random order.

use std::collections::BTreeMap;

use rules::variant::patched;

use super::*;
use crate::soak;

/// Contents written to the pages of a file, the last of which they must hold; where the disk fails, any of them or nothing, but
/// never another file's.
#[derive(Default)]
struct Model {
    pages: BTreeMap<u64, Vec<u64>>,
    fails: bool,
}

impl Model {
    fn wrote(&mut self, page: u64, content: u64) {
        self.pages.entry(page).or_default().push(content);
    }

    fn may_hold(&self, page: u64, found: Option<u64>) -> bool {
        let written = self.pages.get(&page).map_or(&[][..], Vec::as_slice);
        match found {
            None => self.fails,
            Some(found) if self.fails => [0, TORN].contains(&found) || written.contains(&found),
            Some(found) => found == written.last().copied().unwrap_or(0),
        }
    }
}

/// Each kernel with each boost factor.
const SEEDS: u64 = 15;
/// Kernels whose rules about marks and slab differ.
const VARIANTS: [(&str, &[u32]); 5] =
    [("v6.1", &[]), ("v5.9", &[]), ("v5.0", &[]), ("v4.20", &[]), ("v4.20-rc3", &[1, 2, 3, 4, 5])];
/// `vm.watermark_boost_factor`, each for as many seeds as there are kernels.
const BOOSTS: [u32; 3] = [15_000, 150_000, 0];
/// Small files that there are at a time, and blocks of those who cannot wait.
const SMALL: usize = 40;
const ATOMIC: usize = 24;

/// Sums of events, and of cases that no event counts.
#[derive(Default)]
struct Sum {
    counters: Counters,
    reached: BTreeMap<&'static str, u64>,
}

impl Sum {
    fn reach(&mut self, what: &'static str, count: u64) {
        *self.reached.entry(what).or_insert(0) += count;
    }

    fn add(&mut self, other: Self) {
        for (event, count) in other.counters.iter() {
            self.counters.count(event, count);
        }
        for (what, count) in other.reached {
            self.reach(what, count);
        }
    }
}

/// Beside the large files: small ones, which are made, closed and forgotten; and those who cannot wait for memory.
#[derive(Default)]
struct Beside {
    small: Vec<(u64, Model)>,
    names: u64,
    atomic: Vec<(Pfn, Order)>,
    /// Inodes that nobody uses, buffers, and blocks of ext4 in memory, after the last turn.
    idle: [u64; 3],
    sum: Sum,
}

impl Beside {
    /// A few files are made, of one page each, as whoever unpacks an archive does; the oldest go.
    fn make_small(&mut self, lab: &mut Lab, fails: bool) {
        for _ in 0..=lab.draw(12) {
            let name = self.names;
            self.names += 1;
            let file = lab.create(&format!("d/{name}"));
            let mut model = Model { fails, ..Model::default() };
            lab.write(file, 0).unwrap();
            model.wrote(0, lab.content(file, 0));
            lab.call(FileRequest::Close(file)).unwrap();
            self.small.push((name, model));
        }
        while self.small.len() > SMALL {
            let (name, _) = self.small.remove(0);
            lab.call(FileRequest::Unlink(format!("d/{name}"))).unwrap();
        }
    }

    /// One of them is opened again, wherever its inode and its page are by now.
    fn read_small(&mut self, lab: &mut Lab) {
        let which = usize::try_from(lab.draw(self.small.len().max(1) as u64)).unwrap();
        let Some((name, model)) = self.small.get(which) else { return };
        match lab.call(FileRequest::Open(format!("d/{name}"))) {
            Ok(FileAnswer::Opened(file)) => {
                let found = lab.read(file, 0);
                assert!(model.may_hold(0, found), "small file {name}: {found:?}");
                lab.call(FileRequest::Close(file)).unwrap();
            }
            // Its inode could not be read.
            Err(Errno::IO) if model.fails => {}
            other => panic!("{other:?}"),
        }
    }

    /// Takes a few blocks as an interrupt does, which cannot wait, or gives some back.
    fn interrupt(&mut self, lab: &mut Lab) {
        let gives = self.atomic.len() >= ATOMIC || lab.draw(2) == 0;
        for _ in 0..=lab.draw(6) {
            let order = Order(u8::try_from(lab.draw(3)).unwrap());
            let is_boosted = lab.mm.memory.zones()[0].boost > 0;
            let mut cx = Cx::new(CpuId(0), lab.now, &lab.prices, &mut lab.counters);
            if !gives {
                let got = lab.mm.memory.alloc(&mut cx, &AllocRequest::gfp_atomic(NodeId(0)).of_order(order));
                self.atomic.extend(got.map(|block| (block, order)));
                self.sum.reach("who cannot wait is served under a boost", u64::from(got.is_ok() && is_boosted));
            } else if let Some((block, order)) = self.atomic.pop() {
                lab.mm.memory.free(&mut cx, block, order);
            }
        }
        lab.run_daemons();
    }

    /// After a turn, in which nobody has opened or closed anything: what is gone was reclaimed.
    fn look(&mut self, lab: &Lab, counts: bool) {
        let blocks = lab.mm.cache.pages().filter(|(id, ..)| lab.mm.cache.ext4.is_own(*id)).count() as u64;
        let idle = [lab.mm.count_idle_inodes(NodeId(0)), lab.mm.count_buffers(NodeId(0)), blocks];
        if counts {
            self.sum.reach("inodes are reclaimed", self.idle[0].saturating_sub(idle[0]));
            self.sum.reach("buffers are reclaimed", self.idle[1].saturating_sub(idle[1]));
            self.sum.reach("blocks of ext4 are reclaimed", self.idle[2].saturating_sub(idle[2]));
        }
        self.idle = idle;
        self.sum.reach("marks are raised", u64::from(lab.mm.memory.zones()[0].boost > 0));
        self.sum.reach("bios are on their way", lab.mm.cache.bios.iter().flatten().count() as u64);
    }
}

/// Random operations on a disk where every `fail_every`-th request fails, if any does.
fn random(seed: u64, (frames, fail_every): (u32, u32), turns: u64, walks: u64) -> Sum {
    let at = |of: usize, n: u64| usize::try_from(n).unwrap() % of;
    let (kernel, patches) = VARIANTS[at(VARIANTS.len(), seed)];
    let mut rules = if patches.is_empty() { *named(kernel) } else { patched(kernel, patches) };
    rules.inode_shrink = [InodeShrink::WithoutPages, InodeShrink::TakesPages, InodeShrink::KeepsMany][at(3, seed)];
    let boost_factor = BOOSTS[at(BOOSTS.len(), seed / VARIANTS.len() as u64)];
    let mut lab = Lab::with(frames, seed, walks, (rules, boost_factor));
    lab.mm.cache.fail_disk(fail_every);
    let fails = fail_every > 0;
    let mut files: Vec<(u32, u64, Model)> = Vec::new();
    let mut names = 0;
    let mut beside = Beside::default();
    for _ in 0..turns {
        let is_quiet = lab.draw(3) > 0;
        match lab.draw(8) {
            _ if is_quiet => {}
            0 | 1 => beside.make_small(&mut lab, fails),
            2..5 => beside.read_small(&mut lab),
            _ => beside.interrupt(&mut lab),
        }
        beside.look(&lab, false);
        let reclaims = turn(&mut lab, &mut files, &mut names, fails);
        beside.look(&lab, reclaims);
    }
    beside.sum.reach("a request stalls", lab.stalls[0]);
    beside.sum.reach("a stall ends with a pass", lab.stalls[1]);
    beside.sum.counters = lab.counters;
    beside.sum
}

/// Something is done with one of the large files; says whether it is something that frees only what is reclaimed.
fn turn(lab: &mut Lab, files: &mut Vec<(u32, u64, Model)>, names: &mut u64, fails: bool) -> bool {
    if files.len() < 3 {
        let file = lab.create(&format!("file {names}"));
        files.push((file, *names, Model { fails, ..Model::default() }));
        *names += 1;
    }
    let which = usize::try_from(lab.draw(files.len() as u64)).unwrap();
    let (file, name, len) =
        (files[which].0, files[which].1, files[which].2.pages.keys().next_back().map_or(0, |last| last + 1));
    let any = lab.draw(len.max(1));
    let deed = lab.draw(100);
    match deed {
        0..50 => {
            let start = if lab.draw(3) == 0 { any } else { len };
            for page in start..(start + lab.draw(40)).min(2000) {
                lab.write(file, page).unwrap();
                let content = lab.content(file, page);
                files[which].2.wrote(page, content);
            }
        }
        50..80 if len > 0 => {
            let is_call = lab.draw(2) == 0;
            for page in any..(any + lab.draw(40)).min(len) {
                let found = if is_call { lab.read(file, page) } else { lab.touch(file, page, Access::Read, true) };
                assert!(files[which].2.may_hold(page, found), "page {page} of file {name}: {found:?}");
            }
        }
        80..86 if len > 0 => {
            let found = lab.touch(file, any, Access::Write, true);
            assert!(files[which].2.may_hold(any, found), "page {any} of file {name}: {found:?}");
            if found.is_some() {
                let tags = lab.mm.cache.balancing.tags;
                files[which].2.wrote(any, tags);
            }
        }
        86..90 if len > 0 => {
            // The copy is thrown away, and the file keeps what it had.
            lab.touch(file, any, Access::Write, false);
        }
        90..92 => assert!(lab.call(FileRequest::Sync(file)).is_ok() || fails),
        92 => drop(lab.call(FileRequest::DropCaches).unwrap()),
        93..96 => drop(lab.run(Block(5))),
        96..98 => {
            lab.call(FileRequest::Truncate(file, Bytes::PAGE * any)).unwrap();
            files[which].2.pages.split_off(&any);
        }
        98 if lab.draw(2) == 0 => files[which].0 = lab.leave_for_a_while(file, name),
        98 => {
            lab.call(FileRequest::Unlink(format!("file {name}"))).unwrap();
            lab.call(FileRequest::Close(file)).unwrap();
            files.swap_remove(which);
        }
        _ => match lab.draw(2) {
            0 => drop(lab.call(FileRequest::AdviseRandom(file)).unwrap()),
            _ => drop(lab.call(FileRequest::SyncAll).unwrap()),
        },
    }
    deed < 80
}

/// Sums over all seeds, on a disk that fails as said.
fn of_all_seeds(fail_every: u32) -> Sum {
    let mut sum = Sum::default();
    for seed in 0..SEEDS * soak::times() {
        let one = std::panic::catch_unwind(|| random(seed, (768, fail_every), 300, 19));
        sum.add(one.unwrap_or_else(|panic| {
            println!("random({seed}, (768, {fail_every}), 300, 19) has failed");
            std::panic::resume_unwind(panic)
        }));
    }
    sum
}

#[test]
fn contents_survive_reclaim_writing_reading_migration_and_truncation() {
    let sum = of_all_seeds(0);
    // It was hard enough.
    for event in [
        Event::PgstealFile,
        Event::NrWritten,
        Event::Pgpgin,
        Event::Pgmajfault,
        Event::WorkingsetRefaultFile,
        Event::PgmigrateSuccess,
        Event::PgmigrateFail,
        Event::Pgrotated,
        Event::Pgactivate,
        Event::SlabsScanned,
        Event::DropSlab,
        Event::SimExtfragFragmenting,
    ] {
        assert!(sum.counters.get(event) > 0, "{}", event.name());
    }
    for what in [
        "inodes are reclaimed",
        "buffers are reclaimed",
        "blocks of ext4 are reclaimed",
        "bios are on their way",
        "marks are raised",
        "who cannot wait is served under a boost",
    ] {
        assert!(sum.reached.get(what).is_some_and(|count| *count >= 5), "{what}: {:?}", sum.reached);
    }
}

#[test]
fn files_survive_a_disk_that_fails() {
    let sum = of_all_seeds(7);
    for event in [Event::PgstealFile, Event::NrWritten, Event::Pgpgin, Event::Pgmajfault] {
        assert!(sum.counters.get(event) > 0, "{}", event.name());
    }
}

#[test]
fn everything_holds_after_every_step() {
    drop(random(77, (1024, 0), 60, 1));
}
