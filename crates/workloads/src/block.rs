//! The timed fault of one 2 MiB block, as thpscale and its kin take it, and sizes in parts of the machine's memory.

use std::str::FromStr;

use os::{Advice, MapSpec, Os, VmRange};
use serde::{Deserialize, Serialize};
use units::{Bytes, Errno, Picos, Time};

use crate::{
    ParamError, ParamInfo, TaskOutcome,
    params::{misfit, value},
};

/// One block of 2 MiB, from its first store to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Whether the first store brought a huge page.
    pub huge: bool,
    /// When the first store began.
    pub start: Time,
    /// The time of one fault and 2 MiB of stores; of a block of base pages, of 512 faults.
    pub latency: Picos,
}

/// Base pages of a block.
const BASE_PER_HUGE: u64 = Bytes::HUGE_PAGE.0 / Bytes::PAGE.0;
/// The page that is asked about after the first store; nothing has touched it.
const PROBED: Bytes = Bytes::kib(256);

/// Faults the first page, asks whether another one came along, then writes all of the block.
async fn fault<O: Os>(os: &O, block: VmRange) -> Result<Block, Errno> {
    let start = os.now();
    os.store(block.part(Bytes(0), Bytes::PAGE), Bytes::PAGE).await?;
    let resident = os.mincore(block.part(PROBED, Bytes::PAGE)).await?;
    os.fill(block).await?;
    Ok(Block { huge: resident[0], start, latency: os.now().since(start) })
}

/// Faults `count` blocks in the order of their addresses, from the first 2 MiB boundary of a fresh mapping on.
pub(crate) async fn fault_blocks<O: Os>(
    os: &O,
    mapping: VmRange,
    count: u64,
    outcome: &mut TaskOutcome,
) -> Result<(), Errno> {
    let range = mapping.aligned_part(Bytes::HUGE_PAGE, Bytes::HUGE_PAGE * count);
    for at in 0..count {
        fault_block(os, range, at, outcome).await?;
    }
    Ok(())
}

/// Faults block `at` of a range that begins on a boundary of 2 MiB.
pub(crate) async fn fault_block<O: Os>(
    os: &O,
    range: VmRange,
    at: u64,
    outcome: &mut TaskOutcome,
) -> Result<(), Errno> {
    let block = fault(os, range.part(Bytes::HUGE_PAGE * at, Bytes::HUGE_PAGE)).await?;
    outcome.faults += if block.huge { 1 } else { BASE_PER_HUGE };
    outcome.huge_faults += u64::from(block.huge);
    outcome.stores += BASE_PER_HUGE;
    outcome.blocks.push(block);
    Ok(())
}

/// Maps fresh memory for blocks of `len` bytes in sum, with room to align the blocks; the memory is advised or left to
/// the default.
pub(crate) async fn map_blocks<O: Os>(os: &O, len: Bytes, advised: bool) -> Result<VmRange, Errno> {
    let mapping = os.mmap(len + Bytes::HUGE_PAGE, MapSpec::Anonymous).await?;
    if advised {
        os.madvise(mapping, Advice::HugePage).await?;
    }
    Ok(mapping)
}

pub(crate) const ADVISE: ParamInfo = ParamInfo {
    name: "advise",
    expects: "\"no\" or \"yes\"",
    default: "no",
    about: "MADV_HUGEPAGE on the memory whose faults are timed",
};

pub(crate) fn parse_advise(text: &str) -> Result<bool, ParamError> {
    value::<String>(&ADVISE, text, |word| word == "no" || word == "yes").map(|word| word == "yes")
}

pub(crate) const FILE: ParamInfo = ParamInfo {
    name: "file",
    expects: "a multiple of 4KiB from \"4KiB\" to \"1GiB\"",
    default: "64KiB",
    about: "size of each file",
};

pub(crate) fn parse_file(text: &str) -> Result<Bytes, ParamError> {
    value(&FILE, text, |file: &Bytes| {
        file.0.is_multiple_of(Bytes::PAGE.0) && (Bytes::PAGE..=Bytes::gib(1)).contains(file)
    })
}

/// Why a number of tasks cannot share files of a total size: each task has to have at least one file.
pub(crate) fn few_files((tasks, found): (&ParamInfo, u32), file: Bytes, total: Bytes) -> String {
    let (files, total) = (total.0 / file.0, Bytes::mib(total.as_mib()));
    if files == 0 {
        return misfit(&FILE, &format!("at most {total} (total)"), file);
    }
    misfit(tasks, &format!("at most {files}, as {total} (total) are so many files of {file} (file)"), found)
}

/// A size in bytes, or in per cent of the memory of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Size {
    /// A number of bytes.
    Bytes(Bytes),
    /// A number of hundredths of [`Os::memory`].
    Percent(u64),
}

/// Values that a parameter of this kind takes.
pub(crate) const SIZE_EXPECTS: &str =
    "a size from \"4MiB\" to \"1TiB\", or a part of the memory from \"1%\" to \"1000%\"";

impl Size {
    /// The size in bytes, in a run with `memory` bytes.
    pub fn of(self, memory: Bytes) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            // In two parts, as the product may not fit.
            Self::Percent(percent) => Bytes(memory.0 / 100 * percent + memory.0 % 100 * percent / 100),
        }
    }

    pub(crate) fn parse(info: &ParamInfo, text: &str) -> Result<Self, ParamError> {
        value(info, text, |size: &Self| match size {
            Self::Bytes(bytes) => (Bytes::mib(4)..=Bytes::gib(1024)).contains(bytes),
            Self::Percent(percent) => (1..=1000).contains(percent),
        })
    }
}

impl FromStr for Size {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.strip_suffix('%') {
            Some(percent) => percent.trim().parse().map(Self::Percent).map_err(drop),
            None => text.parse().map(Self::Bytes).map_err(drop),
        }
    }
}

/// The whole blocks in a number of bytes.
pub(crate) fn blocks(bytes: Bytes) -> u64 {
    bytes.0 / Bytes::HUGE_PAGE.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_parts() {
        assert_eq!("80%".parse::<Size>().map(|size| size.of(Bytes(1010))), Ok(Bytes(808)));
        assert_eq!(Size::Percent(1000).of(Bytes::gib(1 << 22)).0, (1 << 52) * 10);
        assert_eq!("6MiB".parse::<Size>().map(|size| blocks(size.of(Bytes(0)))), Ok(3));
        assert!(Size::parse(&ADVISE, "0%").is_err() && Size::parse(&ADVISE, "1MiB").is_err());
        assert!("many".parse::<Size>().is_err());
    }
}
