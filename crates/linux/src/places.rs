//! Memory of this process by node and page size: move_pages(2) says the nodes; /proc/self/smaps whether there are huge pages at
//! all, and where some are huge and others not, /proc/self/pagemap and /proc/kpageflags say of each, to root.

use std::{collections::BTreeMap, fs::File, os::unix::fs::FileExt};

use os::{Placed, VmRange};
use units::{Bytes, Errno, NodeId};

use crate::{frame_map::kpf, memory, numa};

/// Memory that one call asks the kernel about.
const PIECE: Bytes = Bytes::mib(64);
const BASE_PER_HUGE: usize = (Bytes::HUGE_PAGE.0 / Bytes::PAGE.0) as usize;
/// The frame number in an entry of /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst, v6.1); zero for those who may
/// not see it.
const FRAME: u64 = (1 << 55) - 1;

/// Memory of an anonymous range by node and page size.
///
/// # Errors
/// `ENOSYS` where the kernel has no nodes to speak of, or does not show which pages are huge.
pub(crate) fn places(range: VmRange) -> Result<Vec<Placed>, Errno> {
    let huge = Mapped::of(range)?.huge;
    let mut sums: BTreeMap<(NodeId, bool), u64> = BTreeMap::new();
    let mut sizes = if huge == Bytes(0) { None } else { Some(PageSizes::open()?) };
    for at in (0..range.len.0).step_by(usize::try_from(PIECE.0).expect("it is small")) {
        let piece = range.part(Bytes(at), PIECE.min(Bytes(range.len.0 - at)));
        let nodes = nodes_of(piece)?;
        let is_huge = match &mut sizes {
            None => vec![false; nodes.len()],
            Some(sizes) => sizes.of(piece, nodes.len())?,
        };
        for (node, is_huge) in nodes.into_iter().zip(is_huge).filter_map(|(node, is_huge)| Some((node?, is_huge))) {
            *sums.entry((node, is_huge)).or_default() += Bytes::PAGE.0;
        }
    }
    // Huge pages whose rights automatic balancing took away are in no line of smaps, and base pages are all the same.
    let mapped = Mapped::of(range)?;
    let without_rights = Bytes(sums.values().sum::<u64>().saturating_sub(mapped.resident.0));
    limit(&mut sums, mapped.huge + without_rights);
    Ok(sums.into_iter().map(|((node, is_huge), size)| Placed { node, is_huge, size: Bytes(size) }).collect())
}

/// Counts no more as huge than what is mapped so. Pages of a huge page that is mapped page by page, as after a write behind
/// fork(2), have its flag too; on which node such a page is, of several, is not known then.
fn limit(sums: &mut BTreeMap<(NodeId, bool), u64>, mapped: Bytes) {
    let found: u64 = sums.iter().filter(|((_, is_huge), _)| *is_huge).map(|(_, size)| size).sum();
    let mut excess = found.saturating_sub(mapped.0);
    let nodes: Vec<NodeId> = sums.keys().filter(|(_, is_huge)| *is_huge).map(|(node, _)| *node).collect();
    for node in nodes {
        let size = sums[&(node, true)];
        let moved = size.min(excess);
        excess -= moved;
        *sums.entry((node, false)).or_default() += moved;
        sums.insert((node, true), size - moved);
    }
    sums.retain(|_, size| *size > 0);
}

/// The node of each page that is there. Automatic balancing takes away rights of pages now and then, 256 MiB at a time, to see
/// who uses them, and move_pages(2) does not see those: they are read first, which gives the rights back.
fn nodes_of(range: VmRange) -> Result<Vec<Option<NodeId>>, Errno> {
    let nodes = numa::node_of(range)?;
    if nodes.iter().all(Option::is_some) {
        return Ok(nodes);
    }
    let resident = memory::resident(range)?;
    for (at, _) in nodes.iter().zip(resident).enumerate().filter(|(_, (node, is_there))| node.is_none() && *is_there) {
        memory::load(range.part(Bytes::PAGE * at as u64, Bytes::PAGE), Bytes::PAGE);
    }
    numa::node_of(range)
}

/// Memory by /proc/PID/smaps, of all mappings that share addresses with a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mapped {
    /// `Rss`.
    resident: Bytes,
    /// `AnonHugePages`.
    huge: Bytes,
}

impl Mapped {
    fn of(range: VmRange) -> Result<Self, Errno> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").map_err(|_| Errno::NOSYS)?;
        Ok(Self::in_text(&smaps, range))
    }

    fn in_text(smaps: &str, range: VmRange) -> Self {
        let end = range.start.0 + range.len.0;
        let (mut is_inside, mut sum) = (false, Self::default());
        let bytes = |size: &str| {
            Bytes::kib(size.trim().strip_suffix("kB").and_then(|kib| kib.trim().parse().ok()).unwrap_or(0))
        };
        for line in smaps.lines() {
            if let Some((start, stop)) = addresses(line) {
                is_inside = start < end && range.start.0 < stop;
            } else if let Some(size) = line.strip_prefix("AnonHugePages:").filter(|_| is_inside) {
                sum.huge += bytes(size);
            } else if let Some(size) = line.strip_prefix("Rss:").filter(|_| is_inside) {
                sum.resident += bytes(size);
            }
        }
        sum
    }
}

/// The addresses that the head of a mapping begins with.
fn addresses(line: &str) -> Option<(u64, u64)> {
    let (start, stop) = line.split_once(' ')?.0.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(stop, 16).ok()?))
}

/// Which pages are part of a huge one.
struct PageSizes {
    pagemap: File,
    flags: File,
}

impl PageSizes {
    fn open() -> Result<Self, Errno> {
        let open = |path| File::open(path).map_err(|_| Errno::NOSYS);
        Ok(Self { pagemap: open("/proc/self/pagemap")?, flags: open("/proc/kpageflags")? })
    }

    /// Asks about `pages` pages from the start of a range on. For a huge page one answer stands, which the first base page
    /// gives.
    fn of(&mut self, range: VmRange, pages: usize) -> Result<Vec<bool>, Errno> {
        let first = range.start.0 / Bytes::PAGE.0;
        let mut entries = vec![0; pages * 8];
        self.pagemap.read_exact_at(&mut entries, first * 8).map_err(|_| Errno::NOSYS)?;
        let frame = |at: usize| word(&entries[at * 8..]) & FRAME;
        let mut is_huge = vec![false; pages];
        let mut at = 0;
        // Bound: each turn passes a page at least.
        while at < pages {
            let of_block = usize::try_from(first).map_err(|_| Errno::INVAL)? + at;
            let passes = (BASE_PER_HUGE - of_block % BASE_PER_HUGE).min(pages - at);
            if frame(at) != 0 && self.is_part_of_huge(frame(at))? {
                is_huge[at..at + passes].fill(true);
                at += passes;
            } else if word(&entries[at * 8..]) >> 63 == 1 && frame(at) == 0 {
                // The page is there, and this process may not see where.
                return Err(Errno::NOSYS);
            } else {
                at += 1;
            }
        }
        Ok(is_huge)
    }

    fn is_part_of_huge(&self, frame: u64) -> Result<bool, Errno> {
        let mut flags = [0; 8];
        self.flags.read_exact_at(&mut flags, frame * 8).map_err(|_| Errno::NOSYS)?;
        Ok(word(&flags) & kpf::THP != 0)
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes[..8].try_into().expect("a word has eight bytes"))
}

#[cfg(test)]
mod tests {
    use units::VirtAddr;

    use super::*;

    #[test]
    fn huge_pages_are_those_of_the_mapping() {
        let smaps = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nSize:               4096 kB\n\
                     Rss:                3072 kB\nAnonHugePages:      2048 kB\n7f0000400000-7f0000600000 rw-p 00000000 00:00 0 \n\
                     AnonHugePages:         0 kB\n";
        let part = |start, len| VmRange { start: VirtAddr(start), len: Bytes(len) };
        let both = Mapped { resident: Bytes::mib(3), huge: Bytes::mib(2) };
        assert_eq!(Mapped::in_text(smaps, part(0x7f00_0000_0000, 0x1000)), both);
        assert_eq!(Mapped::in_text(smaps, part(0x7f00_0040_0000, 0x20_0000)), Mapped::default());
    }

    #[test]
    fn no_more_is_huge_than_is_mapped_so() {
        let near = NodeId(0);
        let sums = |base: u64, huge: u64| {
            let all = [((near, false), Bytes::mib(base).0), ((near, true), Bytes::mib(huge).0)];
            all.into_iter().filter(|(_, size)| *size > 0).collect::<BTreeMap<_, _>>()
        };
        for (mapped, expected) in [(8, sums(1, 8)), (2, sums(7, 2)), (0, sums(9, 0))] {
            let mut found = sums(1, 8);
            limit(&mut found, Bytes::mib(mapped));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn what_is_there_is_on_some_node() {
        let range = memory::map_anonymous(Bytes::mib(4)).unwrap();
        memory::advise(range, os::Advice::NoHugePage).unwrap();
        memory::store(range.part(Bytes(0), Bytes::mib(1)), Bytes::PAGE);
        match places(range) {
            Ok(places) => {
                assert!(places.iter().all(|place| !place.is_huge), "{places:?}");
                assert_eq!(places.iter().map(|place| place.size).sum::<Bytes>(), Bytes::mib(1));
            }
            Err(refused) => println!("skipped: places of pages: {refused}"),
        }
        memory::unmap(range).unwrap();
    }
}
