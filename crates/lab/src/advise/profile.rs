//! Pressure profiles: services whose demand is a machine's, and which differ in how it comes.

use serde::Serialize;
use units::Bytes;

use super::demand::{Demand, bytes_of};

/// Seconds between two bursts, and memory that is kept in per cent of what was seen: what is tried first, and then.
const EVERY: u64 = 4;
const KEPT: u64 = 100;
const ALSO_EVERY: [u64; 3] = [2, EVERY, 8];
const ALSO_KEPT: [u64; 3] = [KEPT, 110, 120];
/// A program's memory.
const PROGRAM: Bytes = Bytes::mib(48);
/// Accesses each second to memory that is kept: enough that its pages stay young.
const ACCESSES: u64 = 2000;

/// The way in which demand comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Profile {
    /// Memory is given back and taken anew all the time, and files are read once.
    Steady,
    /// As `Steady`, but files are read again and again, more of them than fit.
    Reread,
    /// Memory is taken in bursts and given back a second later.
    Bursts,
    /// Processes start, take memory and end.
    Programs,
    /// A service grows at a steady rate.
    Grows,
    /// A service starts, and takes its memory as fast as it gets it.
    Starts,
}

impl Profile {
    /// Each of them, in the order in which they are tried.
    pub(super) const ALL: [Self; 6] =
        [Self::Steady, Self::Reread, Self::Bursts, Self::Programs, Self::Grows, Self::Starts];

    /// The profile's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Reread => "reread",
            Self::Bursts => "bursts",
            Self::Programs => "programs",
            Self::Grows => "grows",
            Self::Starts => "starts",
        }
    }

    /// The profile in a sentence.
    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Steady => "memory is given back and taken anew all the time; files are read once",
            Self::Reread => "memory is given back and taken anew all the time; files are read again and again",
            Self::Bursts => "memory is taken in bursts and given back a second later; files are read once",
            Self::Programs => "programs start, take memory and end; files are read once",
            Self::Grows => "a service grows at a steady rate; files are read once",
            Self::Starts => "a service takes its memory as fast as it gets it; files are read once",
        }
    }

    /// The phase whose operations take memory, as latencies of it are called.
    pub(super) fn taking(self, demand: &Demand) -> &'static str {
        match self {
            Self::Steady | Self::Reread if demand.taken == 0 => "serve",
            Self::Steady | Self::Reread => "serve-churn",
            Self::Bursts => "burst",
            Self::Programs => "program",
            Self::Grows | Self::Starts => "grow",
        }
    }

    /// Does the profile say anything that others do not, of this demand?
    pub(super) fn is_of(self, demand: &Demand) -> bool {
        match self {
            Self::Steady => true,
            Self::Reread => demand.reads > 0,
            Self::Bursts | Self::Programs => demand.taken > 0,
            Self::Grows | Self::Starts => demand.grown > 0,
        }
    }
}

/// A profile with what counters do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Shape {
    /// The profile.
    pub(super) profile: Profile,
    /// Seconds between two bursts.
    every: u64,
    /// Memory that is kept, in per cent of what was seen: not all of what is in use is on the lists that are counted.
    kept: u64,
}

impl Shape {
    /// The profile as it is tried first.
    pub(super) fn of(profile: Profile) -> Self {
        Self { profile, every: EVERY, kept: KEPT }
    }

    /// This profile with other values of what counters do not tell.
    pub(super) fn others(self) -> Vec<Self> {
        let every: &[u64] = if self.profile == Profile::Bursts { &ALSO_EVERY } else { &[EVERY] };
        let all = every.iter().flat_map(|every| ALSO_KEPT.map(|kept| Self { every: *every, kept, ..self }));
        all.filter(|shape| *shape != self).collect()
    }

    /// A name for files.
    pub(super) fn name(self) -> String {
        let every = if self.every == EVERY { String::new() } else { format!("-{}s", self.every) };
        let kept = if self.kept == KEPT { String::new() } else { format!("-{}", self.kept) };
        format!("{}{every}{kept}", self.profile.name())
    }

    /// The profile as a service's file, for a kernel and a number of threads.
    pub(super) fn to_toml(self, demand: &Demand, kernel: &str, threads: usize) -> String {
        let mut file = format!(
            "# Demand of a machine at work, by its own counters: {}.\nabout = \"advise: {}\"\nkernel = \"{kernel}\"\n",
            self.profile.about(),
            self.name()
        );
        let seconds = demand.window;
        let burst = if self.profile == Profile::Bursts { self.burst(demand) } else { 0 };
        let grown = if matches!(self.profile, Profile::Grows | Profile::Starts) { demand.grown } else { 0 };
        let seen = (demand.anonymous + demand.swapped).saturating_sub(grown).max(32 << 20);
        let kept = seen / 100 * self.kept;
        // The page cache is full before memory comes, or fills what memory leaves.
        let (first, service_after, files_after) = if demand.came_late {
            ("service.fill", Some("files.cache"), None)
        } else {
            ("files.cache", None, Some("service.fill"))
        };
        file += &process("service", threads, service_after);
        file += &demand.advice.map_or_else(String::new, |advice| format!("thp = \"{advice}\"\n"));
        file += &phase("fill", "allocate", &format!("size = \"{}\"\n", mib(kept)));
        let churn = match self.profile {
            Profile::Steady | Profile::Reread if demand.taken > 0 => {
                format!("churn = \"{}/s\"\n", part(demand.taken, kept))
            }
            _ => String::new(),
        };
        let serve = format!(
            "after = \"{first}\"\nfor = \"{seconds}s\"\npattern = \"{}\"\nwrites = \"50%\"\nrate = \"{ACCESSES}/s\"\n{churn}",
            if demand.returns { "uniform" } else { "zipf 0.99" }
        );
        file += &phase("serve", "access", &serve);
        if burst > 0 {
            let keys = format!("size = \"{}\"\nhold = \"1s\"\nevery = \"{}s\"\n", mib(burst), self.every);
            file += &phase("burst", "allocate", &keys);
        }
        if grown > 0 {
            file += &process("grower", threads, Some(first));
            file += &demand.advice.map_or_else(String::new, |advice| format!("thp = \"{advice}\"\n"));
            let rate = if self.profile == Profile::Grows {
                format!("rate = \"{}/s\"\n", mib(grown / seconds))
            } else {
                String::new()
            };
            file += &phase("grow", "allocate", &format!("size = \"{}\"\n{rate}", mib(grown)));
            if self.profile == Profile::Starts {
                file += &phase("hold", "sleep", &format!("for = \"{seconds}s\"\n"));
            }
        }
        file += &self.files(demand, first, files_after);
        if self.profile == Profile::Programs {
            file += &process("programs", threads, Some(first));
            let each = (demand.taken * 1000 / PROGRAM.0).max(100);
            let rate = format!("{}.{:03}/s", each / 1000, each % 1000);
            let keys = format!("for = \"{seconds}s\"\nrate = \"{rate}\"\nsize = \"{PROGRAM}\"\ncpu = \"20ms\"\n");
            file += &phase("program", "exec", &keys);
        }
        let mut shown = vec!["serve"];
        shown.extend((burst > 0).then_some("burst"));
        shown.extend((grown > 0).then_some("grow"));
        shown.extend((self.profile == Profile::Programs).then_some("program"));
        shown.extend((demand.reads > 0).then_some("scan"));
        shown.extend((demand.writes > 0).then_some("append"));
        file + &format!("\n[measure]\nlatency = {shown:?}\nfrom = \"{first}\"\n")
    }

    /// The processes that read and write files, from the end of `first` on, when memory is full.
    fn files(self, demand: &Demand, first: &str, begins: Option<&str>) -> String {
        let mut file = process("files", 1, begins);
        let seconds = demand.window;
        let [before, after] = demand.caches;
        let cache = match self.profile {
            _ if demand.came_late => demand.memory * 19 / 20,
            Profile::Grows | Profile::Starts => before.max(1 << 20),
            _ => after.max(1 << 20),
        };
        file += &phase("cache", "read", &format!("size = \"{}\"\n", mib(cache)));
        if demand.reads > 0 {
            let kept = if self.profile == Profile::Reread {
                // As much more than fits as makes the share of pages that come back.
                let fits = 1.0 - demand.refaults.clamp(0.1, 0.9);
                let size = bytes_of(after.max(1 << 20) as f64 / fits);
                format!("file = \"{}\"\nrandom = true\n", mib(size))
            } else {
                String::new()
            };
            let keys = format!(
                "after = \"{first}\"\nfor = \"{seconds}s\"\nsize = \"{}\"\nrate = \"{}/s\"\n{kept}",
                mib(demand.reads * seconds * 2),
                mib(demand.reads)
            );
            file += &phase("scan", "read", &keys);
        }
        if demand.writes > 0 {
            file += &process("log", 1, Some(first));
            let keys = format!("size = \"{}\"\nrate = \"{}/s\"\n", mib(demand.writes * seconds), mib(demand.writes));
            file += &phase("append", "write", &keys);
        }
        file
    }

    /// The size of a burst: what is taken between two, as far as it fits beside what is kept.
    fn burst(self, demand: &Demand) -> u64 {
        (demand.taken * self.every).min(demand.memory / 2)
    }
}

fn process(name: &str, threads: usize, after: Option<&str>) -> String {
    let after = after.map_or_else(String::new, |after| format!("after = \"{after}\"\n"));
    format!("\n[[process]]\nname = \"{name}\"\nthreads = {threads}\n{after}")
}

fn phase(name: &str, operation: &str, keys: &str) -> String {
    format!("\n[[process.phase]]\nname = \"{name}\"\ndo = \"{operation}\"\n{keys}")
}

/// Bytes as a size of whole KiB, in MiB where that is near enough.
fn mib(bytes: u64) -> String {
    let kib = bytes.div_ceil(4096).max(1) * 4;
    if kib < 64 << 10 { format!("{kib}KiB") } else { format!("{}MiB", kib.div_ceil(1024)) }
}

/// A part in per cent, from 0.01 to 100.
fn part(part: u64, whole: u64) -> String {
    let hundredths = (u128::from(part) * 10_000 / u128::from(whole.max(1))).clamp(1, 10_000);
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}
