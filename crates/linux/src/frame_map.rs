//! A kernel's own description of every frame at one moment: /proc/kpageflags and /proc/kpagecount as runs of equal frames, with
//! the texts that count free blocks and per-CPU lists at the same moment.
//!
//! Reading must not move what is read: everything is opened, and read once into the very buffers that the record is kept in,
//! before the pass that counts. That pass allocates nothing, here or in the kernel.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

/// Bits of /proc/kpageflags (include/uapi/linux/kernel-page-flags.h, v6.1).
pub mod kpf {
    /// Used since reclaim looked at it.
    pub const REFERENCED: u64 = 1 << 2;
    /// The page's contents are the same as its backing's.
    pub const UPTODATE: u64 = 1 << 3;
    /// They are newer.
    pub const DIRTY: u64 = 1 << 4;
    /// On an LRU list.
    pub const LRU: u64 = 1 << 5;
    /// On, or meant for, an active one.
    pub const ACTIVE: u64 = 1 << 6;
    /// A slab of kernel objects.
    pub const SLAB: u64 = 1 << 7;
    /// In a free block of the buddy allocator: each frame of it since 4.6, before only the first.
    pub const BUDDY: u64 = 1 << 10;
    /// Mapped by a process.
    pub const MMAP: u64 = 1 << 11;
    /// Anonymous memory.
    pub const ANON: u64 = 1 << 12;
    /// Anonymous memory or shmem (`PG_swapbacked`).
    pub const SWAPBACKED: u64 = 1 << 14;
    /// Bits that a frame has only while somebody uses it: locked, error, writeback, huge, and private ones.
    pub const MARKS: u64 = 1 | 1 << 1 | 1 << 8 | 1 << 17 | 1 << 35 | 1 << 36 | 1 << 37;
    /// First frame of a compound page.
    pub const COMPOUND_HEAD: u64 = 1 << 15;
    /// Another frame of a compound page than its first.
    pub const COMPOUND_TAIL: u64 = 1 << 16;
    /// Cannot be reclaimed.
    pub const UNEVICTABLE: u64 = 1 << 18;
    /// There is no memory.
    pub const NOPAGE: u64 = 1 << 20;
    /// Part of a transparent huge page.
    pub const THP: u64 = 1 << 22;
    /// Taken out of use by a balloon or by hotplug (5.1 and later).
    pub const OFFLINE: u64 = 1 << 23;
    /// The zero page, or the huge one.
    pub const ZERO_PAGE: u64 = 1 << 24;
    /// A page table of a process (4.18 and later).
    pub const PGTABLE: u64 = 1 << 26;
    /// Not the buddy allocator's (of the bits that are "for kernel hackers").
    pub const RESERVED: u64 = 1 << 32;
}

/// Texts that belong to a record, by their keys in a capture.
pub const TEXTS: [&str; 3] = ["buddyinfo", "pagetypeinfo", "zoneinfo"];

/// Frames that are asked about at a time.
const CHUNK: usize = 1 << 15;
/// Passes until memory stands still for one.
const PASSES_MAX: u32 = 8;

/// Frames in a row of which the kernel says the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How many.
    pub frames: u64,
    /// Bits of [`kpf`].
    pub flags: u64,
    /// How often each is mapped (/proc/kpagecount).
    pub count: u64,
}

/// A record, as it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The runs from frame 0 on, as [`encode`] writes them.
    #[serde(with = "packed")]
    pub runs: Vec<u8>,
    /// The texts of [`TEXTS`].
    pub texts: BTreeMap<String, String>,
    /// Free blocks were the same before and after the pass.
    pub stood_still: bool,
}

/// Bytes as a string of a record: compressed, each byte as two digits.
mod packed {
    use super::{Deserialize, Deserializer, Read, Serializer, Write, de, ser};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        let packed = encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(ser::Error::custom)?;
        serializer.serialize_str(&packed.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let digits = String::deserialize(deserializer)?;
        let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or("?"));
        let packed = pairs.map(|pair| u8::from_str_radix(pair, 16)).collect::<Result<Vec<u8>, _>>();
        let mut bytes = Vec::new();
        flate2::read::ZlibDecoder::new(packed.map_err(de::Error::custom)?.as_slice())
            .read_to_end(&mut bytes)
            .map_err(de::Error::custom)?;
        Ok(bytes)
    }
}

/// Why frames cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}", path.display())]
pub struct RecordError {
    path: PathBuf,
    source: io::Error,
}

/// Reads a file again and again into the same buffer.
struct Reread {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    len: usize,
}

impl Reread {
    fn open(path: PathBuf, capacity: usize) -> Result<Self, RecordError> {
        let file = File::open(&path).map_err(|source| RecordError { path: path.clone(), source })?;
        // Not zero: a page of zeros would be the zero page until it is written to.
        Ok(Self { path, file, buffer: vec![1; capacity], len: 0 })
    }

    fn error(&self, source: io::Error) -> RecordError {
        RecordError { path: self.path.clone(), source }
    }

    /// The whole text. Grows only when the file did.
    fn all(&mut self) -> Result<(), RecordError> {
        self.len = 0;
        loop {
            if self.len == self.buffer.len() {
                self.buffer.resize(2 * self.len, 1);
            }
            let read = self.file.read_at(&mut self.buffer[self.len..], self.len as u64);
            match read.map_err(|source| self.error(source))? {
                0 => return Ok(()),
                more => self.len += more,
            }
        }
    }

    /// The words of frames from `first` on, as many as there are up to a chunk.
    fn words(&mut self, first: u64) -> Result<usize, RecordError> {
        // The kernel refuses what lies beyond the last frame of some machines instead of ending there.
        let read = match self.file.read_at(&mut self.buffer, first * 8) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && first > 0 => 0,
            read => read.map_err(|source| self.error(source))?,
        };
        self.len = read / 8 * 8;
        Ok(read / 8)
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.buffer[at * 8..][..8].try_into().expect("eight bytes"))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.buffer[..self.len]).into_owned()
    }
}

/// Open files and the buffers for a record.
pub struct Recorder {
    flags: Reread,
    counts: Reread,
    texts: Vec<Reread>,
    /// /proc/buddyinfo before the pass.
    before: Vec<u8>,
    runs: Vec<u8>,
}

impl Recorder {
    /// Opens everything and makes one pass, so that the next finds all buffers there. Needs root.
    pub fn open() -> Result<Self, RecordError> {
        let proc = Path::new("/proc");
        let texts = TEXTS.map(|name| Reread::open(proc.join(name), 1 << 16)).into_iter().collect::<Result<_, _>>()?;
        let mut recorder = Self {
            flags: Reread::open(proc.join("kpageflags"), CHUNK * 8)?,
            counts: Reread::open(proc.join("kpagecount"), CHUNK * 8)?,
            texts,
            before: vec![1; 1 << 16],
            runs: Vec::new(),
        };
        recorder.pass()?;
        // Room for another half: what is appended later must not make it grow. Written, so that it is there.
        let len = recorder.runs.len();
        recorder.runs.resize(len + len / 2, 1);
        Ok(recorder)
    }

    /// Records every frame. Again when something moved meanwhile, some times.
    pub fn record(&mut self) -> Result<bool, RecordError> {
        for _ in 0..PASSES_MAX {
            if self.pass()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// One pass; says whether free blocks were the same before and after it.
    fn pass(&mut self) -> Result<bool, RecordError> {
        self.texts[0].all()?;
        self.before.clear();
        self.before.extend_from_slice(&self.texts[0].buffer[..self.texts[0].len]);
        self.frames()?;
        for text in &mut self.texts {
            text.all()?;
        }
        Ok(self.before == self.texts[0].buffer[..self.texts[0].len])
    }

    fn frames(&mut self) -> Result<(), RecordError> {
        self.runs.clear();
        let (mut first, mut run) = (0, Run { frames: 0, flags: 0, count: 0 });
        loop {
            let frames = self.flags.words(first)?;
            let counted = self.counts.words(first)?;
            for at in 0..frames {
                let (flags, count) = (self.flags.word(at), if at < counted { self.counts.word(at) } else { 0 });
                if (flags, count) != (run.flags, run.count) {
                    put(&mut self.runs, run);
                    run = Run { frames: 0, flags, count };
                }
                run.frames += 1;
            }
            first += frames as u64;
            if frames < CHUNK {
                put(&mut self.runs, run);
                return Ok(());
            }
        }
    }

    /// A copy of the last record.
    pub fn recorded(&self, stood_still: bool) -> Recorded {
        let texts = TEXTS.iter().zip(&self.texts).map(|(name, text)| ((*name).to_owned(), text.text())).collect();
        Recorded { runs: self.runs.clone(), texts, stood_still }
    }
}

/// Appends a run: its length, flags and count, each with seven bits to a byte, the lowest first. Nothing for an empty one.
fn put(out: &mut Vec<u8>, run: Run) {
    if run.frames == 0 {
        return;
    }
    for mut number in [run.frames, run.flags, run.count] {
        while number >= 0x80 {
            out.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        out.push(number.to_le_bytes()[0]);
    }
}

/// Runs as bytes.
pub fn encode(runs: &[Run]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for run in runs {
        put(&mut bytes, *run);
    }
    bytes
}

/// Bytes are no runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRuns {
    /// Where the run starts that is none.
    pub offset: usize,
    /// The mistake in the map.
    pub what: &'static str,
}

/// The runs of some bytes: at most `most` frames, none of them empty.
pub fn decode(bytes: &[u8], most: u64) -> Result<Vec<Run>, BadRuns> {
    let (mut runs, mut offset, mut total) = (Vec::new(), 0, 0_u64);
    while offset < bytes.len() {
        let bad = |what| BadRuns { offset, what };
        let mut rest = &bytes[offset..];
        let mut number = || {
            let len = rest.iter().take(10).position(|byte| byte & 0x80 == 0).ok_or(bad("a number without an end"))?;
            let (digits, after) = rest.split_at(len + 1);
            rest = after;
            let add = |sum: u64, digit: &u8| sum.checked_mul(0x80)?.checked_add(u64::from(digit & 0x7f));
            digits.iter().rev().try_fold(0, add).ok_or(bad("a number of more than 64 bits"))
        };
        let run = Run { frames: number()?, flags: number()?, count: number()? };
        total = total.saturating_add(run.frames);
        if run.frames == 0 {
            return Err(bad("a run of no frames"));
        }
        if total > most {
            return Err(bad("more frames than a machine has"));
        }
        offset = bytes.len() - rest.len();
        runs.push(run);
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marsaglia's xorshift64.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn runs_come_back_as_they_were() {
        let mut state = 7;
        for _ in 0..200 {
            let mut number = || random(&mut state) >> (random(&mut state) % 64);
            let runs: Vec<Run> =
                (0..50).map(|_| Run { frames: 1 + (number() >> 8), flags: number(), count: number() }).collect();
            let total = runs.iter().fold(0_u64, |sum, run| sum.saturating_add(run.frames));
            assert_eq!(decode(&encode(&runs), total).as_ref(), Ok(&runs));
            assert_eq!(decode(&encode(&runs), total - 1).unwrap_err().what, "more frames than a machine has");
        }
    }

    #[test]
    fn what_is_no_run_is_refused_where_it_stands() {
        let first = encode(&[Run { frames: 300, flags: kpf::RESERVED, count: 0 }]);
        let refused = |tail: &[u8]| decode(&[&first, tail].concat(), 1 << 20).unwrap_err();
        let bad = |what| BadRuns { offset: first.len(), what };
        assert_eq!(refused(&[0x81]), bad("a number without an end"));
        assert_eq!(refused(&[1, 1]), bad("a number without an end"));
        assert_eq!(refused(&[0, 1, 1]), bad("a run of no frames"));
        assert_eq!(refused(&[[0xff; 9].as_slice(), &[2, 1, 1]].concat()), bad("a number of more than 64 bits"));
        assert_eq!(decode(&first, 300).unwrap().len(), 1);
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut state = 99;
        let mut accepted = 0;
        for _ in 0..20_000 {
            let len = random(&mut state) % 40;
            let bytes: Vec<u8> =
                (0..len).map(|_| random(&mut state).to_le_bytes()[0] >> (random(&mut state) % 8)).collect();
            accepted += usize::from(decode(&bytes, u64::MAX).is_ok());
        }
        assert!(accepted > 100, "the bytes are too damaged to show anything: {accepted}");
    }

    #[test]
    fn this_machine_can_be_recorded_by_root() {
        let mut recorder = match Recorder::open() {
            Ok(recorder) => recorder,
            Err(error) if matches!(error.source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound) => {
                eprintln!("skipped: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let stood_still = recorder.record().unwrap();
        let frames = recorder.recorded(stood_still);
        let runs = decode(&frames.runs, u64::MAX).unwrap();
        assert!(runs.iter().any(|run| run.flags & kpf::BUDDY != 0), "some memory is free");
        assert!(frames.texts["pagetypeinfo"].contains("Number of blocks type"));
    }
}
