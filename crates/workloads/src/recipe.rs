//! States of memory that operations bring about: a prefix that runs before a workload.
//!
//! A recipe names what is done, and says what memory is to be like afterwards: how many of its frames are in unmovable use, and
//! over how many pageblocks these are scattered. What a kernel makes of the operations decides whether that is reached.

use std::{fmt, str::FromStr};

use os::{Advice, MapSpec, Os, VmRange};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use serde::{Deserialize, Serialize};
use units::{BlockCensus, Bytes, Errno, Picos};

use crate::{
    block::map_blocks,
    draw::{below, seed_of},
};

/// The entry of a recipe in `pagelab list`.
#[derive(Clone, Copy, Debug)]
pub struct RecipeInfo {
    /// The recipe's name.
    pub name: &'static str,
    /// One line on what it does.
    pub about: &'static str,
}

/// Every recipe there is.
pub const RECIPES: &[RecipeInfo] = &[RecipeInfo {
    name: "metadata+anon",
    about: "files are made while anonymous memory fills the machine but for holes, and stay open; then that memory is freed",
}];

/// A part of memory, in ten-thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub u64);

impl Share {
    /// All of it.
    pub const ALL: Self = Self(10_000);

    /// That part of something.
    pub fn of(self, whole: u64) -> u64 {
        whole * self.0 / Self::ALL.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, part) if part % 10 == 0 => write!(f, "{whole}.{}%", part / 10),
            (whole, part) => write!(f, "{whole}.{part:02}%"),
        }
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("expected a part of memory such as \"7%\" or \"7.5%\", found {text:?}");
        let digits = text.strip_suffix('%').ok_or_else(bad)?;
        let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
        let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !are_digits(whole) || !are_digits(part) || whole.len() > 3 || part.len() > 2 {
            return Err(bad());
        }
        let number = |text: &str| text.parse::<u64>().map_err(|_| bad());
        let part = number(part)? * if part.len() == 1 { 10 } else { 1 };
        Some(Self(number(whole)? * 100 + part)).filter(|share| *share <= Self::ALL).ok_or_else(bad)
    }
}

/// A recipe with what memory is to be like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// One of [`RECIPES`].
    name: String,
    unmovable: u64,
    blocks: u64,
}

impl Recipe {
    /// The part of frames in unmovable use where the user does not say.
    pub const UNMOVABLE: Share = Share(700);
    /// The part of pageblocks with such frames where the user does not say.
    pub const BLOCKS: Share = Share(3400);

    /// A recipe of a name that is known, whose two parts fit each other.
    pub fn new(name: &str, unmovable: Share, blocks: Share) -> Result<Self, String> {
        const PER_BLOCK: u64 = Bytes::HUGE_PAGE.0 / Bytes::PAGE.0;
        const MOST: Share = Share(5000);
        if !RECIPES.iter().any(|known| known.name == name) {
            return Err(format!("unknown recipe {name:?}"));
        }
        if unmovable == Share(0) || unmovable > MOST {
            return Err(format!("unmovable: expected more than 0% and at most {MOST}, found {unmovable}"));
        }
        if blocks < unmovable {
            return Err(format!(
                "blocks: {unmovable} of the frames need at least {unmovable} of the pageblocks, found {blocks}"
            ));
        }
        let most = Share((unmovable.0 * PER_BLOCK).min(Share::ALL.0));
        if blocks > most {
            return Err(format!(
                "blocks: with a frame in each, {unmovable} of the frames are in {most} of the pageblocks, found {blocks}"
            ));
        }
        Ok(Self { name: name.to_owned(), unmovable: unmovable.0, blocks: blocks.0 })
    }

    /// The recipe's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Frames in unmovable use among all frames.
    pub fn unmovable(&self) -> Share {
        Share(self.unmovable)
    }

    /// Pageblocks with such frames among all pageblocks.
    pub fn blocks(&self) -> Share {
        Share(self.blocks)
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} in {}", self.name, self.unmovable(), self.blocks())
    }
}

/// Why memory is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecipeError {
    /// A system call failed.
    Call(Errno),
    /// All was done, and this is how near it came.
    Missed(Recipe, BlockCensus),
}

impl From<Errno> for RecipeError {
    fn from(errno: Errno) -> Self {
        Self::Call(errno)
    }
}

impl fmt::Display for RecipeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(Errno::NOSYS) => write!(f, "the target cannot say which frames are in unmovable use (ENOSYS)"),
            Self::Call(errno) => write!(f, "an operation failed: {errno}"),
            Self::Missed(recipe, census) => {
                let (unmovable, blocks) = (Share(census.unmovable_share()), Share(census.scattered_share()));
                write!(f, "{recipe} of the pageblocks cannot be reached here: it came to {unmovable} in {blocks}")
            }
        }
    }
}

impl std::error::Error for RecipeError {}

/// A result may be off by one part in ten of what was asked for.
const TOLERANCE: u64 = 10;
/// Rounds in which unmovable memory grows to what was asked for; after each the rest is divided anew.
const ROUNDS: u64 = 48;
/// Free pageblocks that huge pages take in a round.
const BLOCKS_TAKEN: u64 = 64;
/// Base pages of a chunk.
const PAGES: u64 = Bytes::HUGE_PAGE.0 / Bytes::PAGE.0;
/// Free memory is kept in holes of 4 pages, one in each stretch of 16 pages, so that no larger block is free.
const KEPT_HOLE: u64 = 4;
const KEPT_STRETCH: usize = 16;
/// Pages that are freed at a time in a chunk that has a hole.
const MORE: u64 = 32;

/// A stretch of anonymous memory, and how many of its first pages were freed.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    range: VmRange,
    freed: u64,
}

impl Chunk {
    /// Frees up to `pages` more pages of the range; returns how many it freed.
    async fn free<O: Os>(&mut self, os: &O, pages: u64) -> Result<u64, Errno> {
        let pages = pages.min(self.range.pages(Bytes::PAGE) - self.freed);
        if pages > 0 {
            let part = self.range.part(Bytes::PAGE * self.freed, Bytes::PAGE * pages);
            os.madvise(part, Advice::DontNeed).await?;
            self.freed += pages;
        }
        Ok(pages)
    }
}

impl Recipe {
    /// Brings memory about that is as the recipe says, and says what it is like. What cannot be moved stays for the rest of the
    /// run.
    pub async fn run<O: Os>(&self, os: &O, seed: u64) -> Result<BlockCensus, RecipeError> {
        let before = os.block_census().await?;
        let (frames, blocks) = (self.unmovable().of(before.frames), self.blocks().of(before.blocks));
        let goal = Goal { frames, blocks, chunk: chunk_for(frames, blocks) };
        if goal.frames < before.unmovable || goal.blocks < before.with_unmovable {
            return Err(RecipeError::Missed(self.clone(), before));
        }
        let mut filled = Filled::new(os, seed, Bytes::HUGE_PAGE * goal.chunk).await?;
        let (mut files, mut chunks) = (Files::default(), 0);
        for left in (1..=ROUNDS).rev() {
            let census = os.block_census().await?;
            files.learn(in_use(&census).saturating_sub(in_use(&before)));
            let gained = census.with_unmovable.saturating_sub(before.with_unmovable);
            let Some(round) = goal.round(&census, left, (gained, chunks)) else { break };
            // Compaction may have made some meanwhile, and what is unmovable would lie in these together.
            filled.take_blocks(os, BLOCKS_TAKEN, true).await?;
            if filled.replace(os, round, &mut files).await? == 0 {
                break;
            }
            chunks += round.chunks;
        }
        filled.free(os).await?;
        os.sync().await?;
        // Kernel threads come to rest.
        os.sleep(Picos::from_secs(2)).await;
        let census = os.block_census().await?;
        let is_near = |found: u64, goal: u64| found.abs_diff(goal) * TOLERANCE <= goal;
        if is_near(census.unmovable, goal.frames) && is_near(census.with_unmovable, goal.blocks) {
            Ok(census)
        } else {
            Err(RecipeError::Missed(self.clone(), census))
        }
    }
}

/// The goal of a recipe, in frames and in pageblocks.
#[derive(Clone, Copy, Debug)]
struct Goal {
    frames: u64,
    blocks: u64,
    /// Pageblocks' worth of a chunk.
    chunk: u64,
}

/// A chunk does not begin where a pageblock does, so that one of 2 MiB fills none: where they are to be fuller, it is longer.
fn chunk_for(frames: u64, blocks: u64) -> u64 {
    match frames * 100 / (blocks * PAGES).max(1) {
        0..40 => 1,
        40..75 => 4,
        _ => 16,
    }
}

/// Memory that one round frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Round {
    /// Chunks that nothing was freed of yet.
    chunks: u64,
    /// Pages of each of those.
    pages: u64,
    /// Pages of chunks that some were freed of before.
    more: u64,
}

impl Goal {
    /// The number of chunks to free when `left` rounds remain; none if there is enough unmovable memory. So far `chunks` freed
    /// chunks have led to `gained` pageblocks: a hole may lie in two pageblocks.
    fn round(&self, census: &BlockCensus, left: u64, (gained, chunks): (u64, u64)) -> Option<Round> {
        let frames = self.frames.checked_sub(in_use(census)).filter(|frames| *frames > 0)?;
        let blocks = self.blocks.saturating_sub(census.with_unmovable);
        let now = frames.div_ceil(left);
        // Chunks for all pageblocks that are left: as many to a pageblock as so far, within reason.
        let expected = blocks.div_ceil(self.chunk);
        let all = (blocks * chunks.max(1) / gained.max(1)).clamp(expected / 2, 2 * expected);
        let all = if chunks == 0 { expected } else { all };
        let pages = (frames / all.max(1)).clamp(1, PAGES * self.chunk);
        let chunks = all.div_ceil(left);
        Some(Round { chunks, pages, more: now.saturating_sub(chunks * pages) })
    }
}

/// Memory that is full of anonymous pages, but for holes.
struct Filled {
    mappings: Vec<VmRange>,
    /// Chunks that nothing was freed of, in a drawn order.
    whole: Vec<Chunk>,
    /// Those that have a hole, and whose turn it is.
    punched: Vec<Chunk>,
    turn: usize,
}

impl Filled {
    /// Fills memory until kswapd is woken, then sees to it that what is free lies in small holes: it frees as much again in
    /// those, and lets huge pages take what lies together. No more is free than is kept free anyway, or compaction would be at
    /// work.
    async fn new<O: Os>(os: &O, seed: u64, chunk: Bytes) -> Result<Self, Errno> {
        let runs = counter(os, "pageoutrun").await?;
        let range = os.mmap(os.memory() + Bytes::HUGE_PAGE, MapSpec::Anonymous).await?;
        os.madvise(range, Advice::NoHugePage).await?;
        let len = Bytes(os.memory().0 / chunk.0 * chunk.0);
        let aligned = range.aligned_part(Bytes::HUGE_PAGE, len);
        let mut whole = Vec::new();
        for at in 0..len.0 / Bytes::HUGE_PAGE.0 {
            let start = Bytes::HUGE_PAGE * at;
            os.store(aligned.part(start, Bytes::HUGE_PAGE), Bytes::PAGE).await?;
            let end = Bytes(start.0 + Bytes::HUGE_PAGE.0);
            if end.0.is_multiple_of(chunk.0) {
                whole.push(Chunk { range: aligned.part(Bytes(end.0 - chunk.0), chunk), freed: 0 });
            }
            if counter(os, "pageoutrun").await? != runs {
                break;
            }
        }
        let mut random = ChaCha8Rng::seed_from_u64(seed_of(seed, 0));
        for left in (1..=whole.len()).rev() {
            whole.swap(left - 1, below(&mut random, left));
        }
        let free = counter(os, "nr_free_pages").await?;
        let mut filled = Self { mappings: vec![range], whole, punched: Vec::new(), turn: 0 };
        // Some of what is freed stays on the lists of a CPU.
        let enough = filled.whole.len() / 2;
        while filled.whole.len() > enough && counter(os, "nr_free_pages").await? < 2 * free {
            filled.sift(os).await?;
        }
        filled.take_blocks(os, 2 * free / PAGES, false).await?;
        Ok(filled)
    }

    /// Frees small holes all over a chunk.
    async fn sift<O: Os>(&mut self, os: &O) -> Result<(), Errno> {
        let Some(chunk) = self.whole.pop() else { return Ok(()) };
        for at in (0..chunk.range.pages(Bytes::PAGE)).step_by(KEPT_STRETCH) {
            os.madvise(chunk.range.part(Bytes::PAGE * at, Bytes::PAGE * KEPT_HOLE), Advice::DontNeed).await?;
        }
        Ok(())
    }

    /// Huge pages take whole free pageblocks, as many as there are, but at most `most`. Small holes may make up for missing
    /// pageblocks.
    async fn take_blocks<O: Os>(&mut self, os: &O, most: u64, makes_up: bool) -> Result<(), Errno> {
        for _ in 0..most {
            let range = map_blocks(os, Bytes::HUGE_PAGE, false).await?;
            let block = range.aligned_part(Bytes::HUGE_PAGE, Bytes::HUGE_PAGE);
            os.store(block.part(Bytes(0), Bytes::PAGE), Bytes::PAGE).await?;
            let is_huge = os.mincore(block.part(Bytes::PAGE, Bytes::PAGE)).await?;
            if !is_huge[0] {
                return os.munmap(range).await;
            }
            self.mappings.push(range);
            let pages = self.whole.last().map_or(PAGES, |chunk| chunk.range.pages(Bytes::PAGE));
            for _ in 0..if makes_up { (PAGES * KEPT_STRETCH as u64 / KEPT_HOLE).div_ceil(pages) } else { 0 } {
                self.sift(os).await?;
            }
        }
        Ok(())
    }

    /// Frees what a round says, and makes files in its place, hole by hole; how many pages.
    async fn replace<O: Os>(&mut self, os: &O, round: Round, files: &mut Files) -> Result<u64, Errno> {
        let (mut freed, mut more) = (0, round.more);
        for left in (1..=round.chunks).rev() {
            let Some(mut chunk) = self.whole.pop() else {
                more += left * round.pages;
                break;
            };
            let pages = chunk.free(os, round.pages).await?;
            files.make(os, pages).await?;
            freed += pages;
            self.punched.push(chunk);
        }
        let mut without = 0;
        // Bound: the chunks that have pages left, a hole of each at a time.
        while more > 0 && without < self.punched.len() {
            let at = self.turn % self.punched.len();
            self.turn += 1;
            let pages = self.punched[at].free(os, more.min(MORE)).await?;
            files.make(os, pages).await?;
            without = if pages == 0 { without + 1 } else { 0 };
            more -= pages;
            freed += pages;
        }
        Ok(freed)
    }

    async fn free<O: Os>(self, os: &O) -> Result<(), Errno> {
        for range in self.mappings {
            os.munmap(range).await?;
        }
        Ok(())
    }
}

/// Frames in unmovable use that stay: page tables go with the memory that they map.
fn in_use(census: &BlockCensus) -> u64 {
    census.unmovable - census.page_tables
}

/// Files that were made and stay open, and how many frames they take.
#[derive(Clone, Copy, Debug)]
struct Files {
    made: u64,
    /// Files for each 1024 frames.
    rate: u64,
    /// 1024ths of a file that are to be made yet.
    owed: u64,
}

impl Default for Files {
    /// Two to a frame, to begin with: inode, dentry and open file are about 2 KiB.
    fn default() -> Self {
        Self { made: 0, rate: 2048, owed: 0 }
    }
}

impl Files {
    /// Learns the number of files per frame: all files that were made take `frames` frames.
    fn learn(&mut self, frames: u64) {
        if self.made > 0 {
            self.rate = (1024 * self.made / frames.max(1)).clamp(64, 65_536);
        }
    }

    /// Makes files that take `frames` frames.
    async fn make<O: Os>(&mut self, os: &O, frames: u64) -> Result<(), Errno> {
        self.owed += frames * self.rate;
        while self.owed >= 1024 {
            self.owed -= 1024;
            os.create(&format!("state/{}", self.made)).await?;
            self.made += 1;
        }
        Ok(())
    }
}

/// The value of /proc/vmstat under a name.
async fn counter<O: Os>(os: &O, name: &str) -> Result<u64, Errno> {
    os.vmstat().await?.0.get(name).copied().ok_or(Errno::NOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_with_two_digits_behind_the_point() {
        for (text, share) in [("7%", 700), ("7.5%", 750), ("0.05%", 5), ("100%", 10_000)] {
            assert_eq!(text.parse(), Ok(Share(share)));
            assert_eq!(Share(share).to_string(), text);
        }
        for text in ["7", "%", "7.%", ".5%", "7.555%", "101%", "-1%", "+7%", "1e1%", ""] {
            assert!(text.parse::<Share>().unwrap_err().starts_with("expected a part of memory"), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let new = |name, unmovable, blocks| Recipe::new(name, Share(unmovable), Share(blocks));
        assert_eq!(new("metadata+anon", 700, 3400).unwrap().to_string(), "metadata+anon 7% in 34%");
        assert_eq!(new("metadata", 700, 3400).unwrap_err(), "unknown recipe \"metadata\"");
        assert!(new("metadata+anon", 0, 3400).unwrap_err().starts_with("unmovable: expected more than 0%"));
        assert!(new("metadata+anon", 5001, 9000).unwrap_err().starts_with("unmovable: expected more than 0%"));
        assert!(
            new("metadata+anon", 700, 699).unwrap_err().contains("need at least 7% of the pageblocks, found 6.99%")
        );
        assert!(
            new("metadata+anon", 1, 513).unwrap_err().contains("0.01% of the frames are in 5.12% of the pageblocks")
        );
    }

    #[test]
    fn a_round_divides_what_is_left() {
        let goal = Goal { frames: 1000, blocks: 10, chunk: 1 };
        let census = |unmovable, with_unmovable| BlockCensus { unmovable, with_unmovable, ..BlockCensus::default() };
        assert_eq!(goal.round(&census(0, 0), 2, (0, 0)), Some(Round { chunks: 5, pages: 100, more: 0 }));
        // A chunk has led to two pageblocks: half as many chunks with twice as large holes.
        assert_eq!(goal.round(&census(200, 2), 2, (2, 1)), Some(Round { chunks: 2, pages: 200, more: 0 }));
        assert_eq!(goal.round(&census(900, 10), 2, (10, 10)), Some(Round { chunks: 0, pages: 100, more: 50 }));
        assert_eq!(goal.round(&census(1000, 3), 2, (3, 3)), None);
        let with_tables = BlockCensus { page_tables: 100, ..census(1000, 9) };
        assert_eq!(goal.round(&with_tables, 1, (9, 9)), Some(Round { chunks: 1, pages: 100, more: 0 }));
    }
}
