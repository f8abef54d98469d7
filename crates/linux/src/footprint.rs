//! The memory of a guest on this host, over time: what is resident of the mappings that are QEMU's `memory-backend-ram`.
//!
//! Each backend is one private anonymous mapping of its very size; /proc/PID/smaps says how much of it is there (`Rss`: pages
//! that are swapped out are not) and how much in huge pages (`AnonHugePages`). QEMU's own memory, such as what it has
//! translated, is in other mappings. (Documentation/filesystems/proc.rst, v6.1.)

use std::fs;

use units::{Bytes, Frames, Picos};

use crate::host::monotonic_ns;

/// More samples than this are not taken.
const SAMPLES_MAX: usize = 65_536;

/// Resident memory at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The host's monotonic clock, in nanoseconds.
    pub at_ns: u64,
    /// Resident frames.
    pub resident: Frames,
    /// Resident frames in huge pages.
    pub huge: Frames,
}

/// Samples of one boot, from its first operation on.
#[derive(Clone, Debug)]
pub struct Footprint {
    every_ns: u64,
    next_ns: u64,
    samples: Vec<Sample>,
    problem: Option<String>,
}

impl Footprint {
    /// Samples so far apart.
    pub fn every(every: Picos) -> Self {
        Self { every_ns: every.as_nanos().max(1), next_ns: 0, samples: Vec::new(), problem: None }
    }

    /// The samples so far, or why there are none.
    pub fn samples(&self) -> Result<&[Sample], String> {
        match (&self.problem, self.samples.is_empty()) {
            (Some(problem), _) => Err(problem.clone()),
            (None, true) => Err("no sample was taken".to_owned()),
            (None, false) => Ok(&self.samples),
        }
    }

    /// Takes a sample of the process `pid` when it is time for one; its backends have these sizes.
    pub(crate) fn look(&mut self, pid: u32, backends: &[Bytes]) {
        let at_ns = monotonic_ns();
        if at_ns < self.next_ns || self.problem.is_some() || self.samples.len() == SAMPLES_MAX {
            return;
        }
        // An instant that was missed is left out.
        self.next_ns = (at_ns / self.every_ns + 1) * self.every_ns;
        let file = format!("/proc/{pid}/smaps");
        let found = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"));
        match found.and_then(|text| resident(&text, backends)) {
            Ok((resident, huge)) => self.samples.push(Sample { at_ns, resident, huge }),
            // QEMU has ended meanwhile.
            Err(_) if !self.samples.is_empty() => {}
            Err(problem) => self.problem = Some(problem),
        }
    }
}

/// Resident frames of the private anonymous mappings of these sizes, and the part of these frames in huge pages.
fn resident(smaps: &str, backends: &[Bytes]) -> Result<(Frames, Frames), String> {
    let mut wanted = backends.to_vec();
    let (mut inside, mut resident, mut huge) = (false, Bytes(0), Bytes(0));
    for line in smaps.lines() {
        if let Some((size, is_anonymous)) = mapping(line) {
            let place = wanted.iter().position(|wanted| is_anonymous && *wanted == size);
            inside = place.map(|place| wanted.swap_remove(place)).is_some();
        } else if inside {
            resident += field(line, "Rss:");
            huge += field(line, "AnonHugePages:");
        }
    }
    if wanted.is_empty() {
        return Ok((resident.frames(), huge.frames()));
    }
    let sizes: Vec<_> = wanted.iter().map(Bytes::to_string).collect();
    Err(format!("QEMU has no anonymous mapping of {}", sizes.join(", ")))
}

/// Of a line that begins a mapping its size, and whether it is private, writable and of no file.
fn mapping(line: &str) -> Option<(Bytes, bool)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    let [mode, _offset, _device, inode] = [(); 4].map(|()| words.next().unwrap_or_default());
    let is_anonymous = mode == "rw-p" && inode == "0" && words.next().is_none_or(|name| name.starts_with("[anon"));
    Some((Bytes(end.saturating_sub(start)), is_anonymous))
}

fn field(line: &str, name: &str) -> Bytes {
    let value = line.strip_prefix(name).and_then(|rest| rest.trim().strip_suffix(" kB"));
    let kib: Option<u64> = value.and_then(|value| value.trim().parse().ok());
    Bytes(kib.unwrap_or(0).saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::fuzz::{Xorshift, damage};

    const SMAPS: &str = "\
55d0c8a00000-55d0c9200000 r--p 00000000 fe:01 1337 /usr/bin/qemu-system-x86_64
Size:               8192 kB
Rss:                4096 kB
7f0000000000-7f0040000000 rw-p 00000000 00:00 0
Size:            1048576 kB
Rss:              204800 kB
Pss:              204800 kB
AnonHugePages:    196608 kB
7f0040000000-7f0040001000 ---p 00000000 00:00 0
Rss:                   0 kB
7f0041000000-7f0081000000 rw-p 00000000 00:01 77 /dev/zero (deleted)
Rss:             1000000 kB
7f1000000000-7f1040000000 rwxp 00000000 00:00 0
Rss:                5000 kB
";

    #[test]
    fn a_backend_is_the_anonymous_mapping_of_its_size() {
        assert_eq!(resident(SMAPS, &[Bytes::gib(1)]), Ok((Bytes::mib(200).frames(), Bytes::mib(192).frames())));
        let problem = resident(SMAPS, &[Bytes::gib(1), Bytes::gib(1)]).unwrap_err();
        assert_eq!(problem, "QEMU has no anonymous mapping of 1GiB");
    }

    #[test]
    fn damaged_texts_are_read_or_refused() {
        let mut random = Xorshift::new();
        for _ in 0..5000 {
            let _ = resident(&damage(SMAPS, &mut random), &[Bytes::gib(1)]);
        }
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let size = Bytes(Bytes::mib(48).0 + Bytes::PAGE.0);
        let range = crate::memory::map_anonymous(size).unwrap();
        let pid = std::process::id();
        // A neighbour may have become one mapping with it; then there is nothing to see, and that is said.
        let mut footprint = Footprint::every(Picos::from_micros(1));
        footprint.look(pid, &[size]);
        if let Ok([before]) = footprint.samples().map(<[Sample]>::to_vec).as_deref() {
            crate::memory::store(range, Bytes::PAGE);
            footprint.look(pid, &[size]);
            let after = *footprint.samples().unwrap().last().unwrap();
            assert_eq!((before.resident, after.resident), (Frames(0), size.frames()));
            assert!(after.at_ns > before.at_ns && after.huge <= after.resident);
        } else {
            assert!(footprint.samples().unwrap_err().starts_with("QEMU has no anonymous mapping of"));
        }
        crate::memory::unmap(range).unwrap();
    }
}
