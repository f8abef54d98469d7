//! Where memory stood: every frame of a kernel at one moment, as a file.
//!
//! A state file is a line `pagelab state 1`, a line with the BLAKE3 of what follows before it was compressed, and a zlib
//! stream of: the length of a JSON text as eight bytes, lowest first; the text, with the kernel's files at that moment
//! (`texts`, by their keys in a capture) and whether memory stood still while it was read; and the runs of frames, as
//! [`linux::frame_map::encode`] writes them. What it says is the kernel's; what it leaves open is drawn from a run's seed.

mod map;
mod picture;
mod recipe;

use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, read::ZlibDecoder, write::ZlibEncoder};
use linux::{
    frame_map::{self, Recorded, Recorder, Run},
    procfs::{Capture, Snapshot},
};
use report::brief;
use serde::{Deserialize, Serialize};
use units::Pfn;

pub use workloads::recipe::{Recipe, Share};

pub use self::recipe::{Found, Made, RecipeStart, make, recipe};
pub(crate) use self::{
    picture::Picture,
    recipe::{in_cell, in_words, room_for_state},
};
use crate::{
    experiment::{FRESH, KERNEL},
    import::import,
    machine::Machine,
    source::{Source, check_name, unknown},
    usage::UsageError,
};

/// The first line of a state file.
const MAGIC: &str = "pagelab state 1\n";
/// A frame number has 32 bits, and the last one is none.
const FRAMES_MAX: u64 = u32::MAX as u64;
/// More than the frames of any machine take.
const UNPACKED_MAX: u64 = 1 << 30;
/// Digits of a hash.
const DIGITS: usize = 64;

/// In the details of a simulated cell: where its memory stood.
pub(crate) const DETAIL: &str = "state";

/// A state that starts a run: its name in results, and its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateFile {
    /// Where it is.
    pub path: PathBuf,
    /// The hash of what it says.
    pub hash: String,
}

/// The meaning of the words after `--state`.
#[derive(Clone, Debug)]
pub enum Named {
    /// All memory is free.
    Fresh,
    /// As a guest's kernel had it.
    Kernel,
    /// A state file.
    File(PathBuf, State),
    /// A recipe.
    Recipe(RecipeStart),
}

impl Named {
    /// A name, a recipe in words, or a file: of a state, or of a recipe.
    pub fn from_words(words: &str) -> Result<Self, UsageError> {
        match words {
            FRESH => return Ok(Self::Fresh),
            KERNEL => return Ok(Self::Kernel),
            _ => {}
        }
        if let Some(recipe) = RecipeStart::from_words(words) {
            return recipe.map(Self::Recipe).map_err(|problem| UsageError::new(format!("state {words}: {problem}")));
        }
        let path = Path::new(words);
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        check_name("state", &name, &[]).map_err(UsageError::new)?;
        if path.extension().is_some_and(|suffix| suffix == recipe::SUFFIX) {
            let source = Source::read(path)?;
            return Ok(Self::Recipe(RecipeStart::from_source(path, &source)?));
        }
        if !path.exists() && !words.contains(['/', '.']) {
            let recipes = workloads::recipe::RECIPES.iter().map(|recipe| recipe.name);
            let names: Vec<_> = [FRESH, KERNEL].into_iter().chain(recipes).collect();
            let name = words.split(',').next().unwrap_or(words);
            return Err(UsageError::new(unknown("state", name, &names)));
        }
        Ok(Self::File(path.to_owned(), State::load(path)?))
    }
}

/// Every frame of a kernel at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The kernel's files; those that count frames are of the same moment.
    pub capture: Capture,
    /// Free blocks were the same before and after frames were read.
    pub stood_still: bool,
    /// The frames from 0 on.
    pub runs: Vec<Run>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    stood_still: bool,
    texts: Capture,
}

/// Why a file is no state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: byte {offset}{of}: {what}", of = if *.unpacked { " of what is compressed" } else { "" })]
pub struct StateError {
    file: String,
    offset: u64,
    unpacked: bool,
    what: String,
}

impl From<StateError> for UsageError {
    fn from(error: StateError) -> Self {
        Self::new(error.to_string())
    }
}

impl State {
    /// The state recorded of a kernel whose other files are in `capture`.
    pub fn new(capture: &Capture, recorded: Recorded) -> Result<Self, String> {
        let mut capture = capture.clone();
        capture.texts.extend(recorded.texts);
        let bad = |bad: frame_map::BadRuns| format!("byte {} of the recorded frames: {}", bad.offset, bad.what);
        let runs = frame_map::decode(&recorded.runs, FRAMES_MAX).map_err(bad)?;
        let state = Self { capture, stood_still: recorded.stood_still, runs };
        state.snapshot()?;
        Ok(state)
    }

    /// That of this machine, now. Needs root.
    pub fn live() -> Result<Self, String> {
        let capture = Capture::live().map_err(|error| error.to_string())?;
        let mut recorder = Recorder::open().map_err(|error| error.to_string())?;
        let stood_still = recorder.record().map_err(|error| error.to_string())?;
        Self::new(&capture, recorder.recorded(stood_still))
    }

    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, UsageError> {
        let bytes = fs::read(path).map_err(|error| UsageError::in_file(path.display(), error))?;
        Ok(Self::from_bytes(&path.display().to_string(), &bytes)?)
    }

    /// Whether a file begins as states do.
    pub fn is_one(path: &Path) -> bool {
        let mut start = [0; MAGIC.len()];
        let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
        read.is_ok() && start == MAGIC.as_bytes()
    }

    /// The state in a file.
    pub fn from_bytes(file: &str, bytes: &[u8]) -> Result<Self, StateError> {
        let bad = |offset: usize, unpacked, what: String| StateError {
            file: file.to_owned(),
            offset: offset as u64,
            unpacked,
            what,
        };
        let rest = bytes.strip_prefix(MAGIC.as_bytes());
        let rest = rest.ok_or_else(|| bad(0, false, format!("expected \"{}\"", MAGIC.trim_end())))?;
        let digits = rest.get(..DIGITS).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.filter(|_| rest.get(DIGITS) == Some(&b'\n'));
        let digits = digits.ok_or_else(|| bad(MAGIC.len(), false, format!("expected a hash of {DIGITS} digits")))?;
        let start = MAGIC.len() + DIGITS + 1;
        let mut decoder = ZlibDecoder::new(&bytes[start..]);
        let mut unpacked = Vec::new();
        let read = decoder.by_ref().take(UNPACKED_MAX).read_to_end(&mut unpacked);
        if let Err(error) = read {
            let at = start + usize::try_from(decoder.total_in()).unwrap_or(0);
            return Err(bad(at, false, format!("the compressed part is damaged or cut off: {error}")));
        }
        let hash = blake3::hash(&unpacked).to_hex();
        if hash.as_bytes() != digits {
            let what = format!("expected the hash of what follows, {hash}, found {}", String::from_utf8_lossy(digits));
            return Err(bad(MAGIC.len(), false, what));
        }
        let length = unpacked.get(..8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        let end = length.and_then(|length| usize::try_from(length).ok()?.checked_add(8));
        let text = end.and_then(|end| unpacked.get(8..end));
        let text = text.ok_or_else(|| bad(0, true, "expected a length that fits".to_owned()))?;
        let head: Head = serde_json::from_slice(text).map_err(|error| bad(8, true, brief(error)))?;
        let runs_at = 8 + text.len();
        let runs = frame_map::decode(&unpacked[runs_at..], FRAMES_MAX);
        let runs = runs.map_err(|error| bad(runs_at + error.offset, true, error.what.to_owned()))?;
        let state = Self { capture: head.texts, stood_still: head.stood_still, runs };
        state.snapshot().map_err(|problem| bad(8, true, problem))?;
        Ok(state)
    }

    /// The state as a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let payload = self.payload();
        let mut bytes = format!("{MAGIC}{}\n", blake3::hash(&payload).to_hex()).into_bytes();
        let mut encoder = ZlibEncoder::new(&mut bytes, Compression::best());
        encoder.write_all(&payload).and_then(|()| encoder.finish().map(drop)).expect("memory can be written to");
        bytes
    }

    /// The hash of what it says, the same however it is compressed.
    pub fn hash(&self) -> String {
        blake3::hash(&self.payload()).to_hex().to_string()
    }

    fn payload(&self) -> Vec<u8> {
        let head = Head { stood_still: self.stood_still, texts: self.capture.clone() };
        let text = serde_json::to_vec(&head).expect("texts serialise");
        let mut payload = (text.len() as u64).to_le_bytes().to_vec();
        payload.extend(text);
        payload.extend(frame_map::encode(&self.runs));
        payload
    }

    /// The snapshot in the kernel's files.
    pub fn snapshot(&self) -> Result<Snapshot, String> {
        Snapshot::parse(&self.capture).map_err(brief)
    }

    /// The machine of the kernel.
    pub fn machine(&self, name: &str) -> Machine {
        import(&self.snapshot().expect("checked when it was read"), name)
    }

    /// The number of frames.
    pub fn frames(&self) -> u64 {
        self.runs.iter().map(|run| run.frames).sum()
    }

    /// A machine whose memory was as this says is as large as `machine`.
    pub fn check_machine(&self, machine: &rules::machine::MachineSpec) -> Result<(), String> {
        let own = crate::simulated::spec(&self.machine("state"))?;
        let zones = |machine: &rules::machine::MachineSpec| {
            let zones = machine.nodes.iter().flat_map(|node| node.zones.iter().map(|zone| (node.id, *zone)));
            zones.filter(|(_, zone)| zone.managed.0 > 0).collect::<Vec<_>>()
        };
        let cpus = |machine: &rules::machine::MachineSpec| {
            machine.nodes.iter().map(|node| node.cpus.len()).collect::<Vec<_>>()
        };
        if zones(&own) != zones(machine) {
            return Err("its zones are not those of the machine".to_owned());
        }
        if cpus(&own) != cpus(machine) {
            return Err(format!("it is of a machine with CPUs {:?} by node, not {:?}", cpus(&own), cpus(machine)));
        }
        let end = machine.end();
        if self.frames() < u64::from(end.0) {
            return Err(format!("it ends with frame {}, the machine with frame {}", self.frames(), Pfn(end.0)));
        }
        Ok(())
    }
}

/// The contents of a file, for people: of a state, or of a recipe.
pub fn text(path: &Path) -> Result<String, UsageError> {
    if path.extension().is_some_and(|suffix| suffix == recipe::SUFFIX) {
        let start = RecipeStart::from_source(path, &Source::read(path)?)?;
        let made = start.made.iter().map(|made| {
            let Made { machine, variant, seed, checksum } = made;
            format!("{checksum}\n  on {machine}, {variant}, seed {seed}\n")
        });
        return Ok(format!("recipe {}\n{}", start.recipe, made.collect::<String>()));
    }
    let state = State::load(path)?;
    let snapshot = state.snapshot().map_err(UsageError::new)?;
    let still = if state.stood_still { "stood still" } else { "moved" };
    let mut text = format!(
        "state {}\nLinux {}, {} frames in {} runs; memory {still} while it was read\n",
        state.hash(),
        snapshot.version.text,
        state.frames(),
        state.runs.len()
    );
    for (name, frames) in state.kinds() {
        text += &format!("{frames:>12} {name}\n");
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
