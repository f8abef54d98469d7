//! Traces: what is held when, built in or a user's own. Two texts: the file of a user, and one line that cells carry as a
//! parameter, so that guests and worker processes need no file and another trace is another run.

use std::fmt;

use units::{Bytes, Picos};

/// The memory that is held from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Since the start of the run, to the millisecond.
    pub at: Picos,
    /// Anonymous memory.
    pub anonymous: Bytes,
    /// Files in the page cache.
    pub file: Bytes,
    /// The line of the file that says so; 0 where it is built in.
    pub line: u32,
}

/// Memory and files held over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    name: String,
    phases: Vec<Phase>,
}

/// A mistake in a trace, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The line, from 1.
    pub line: u32,
    /// The mistake.
    pub problem: String,
}

/// Columns of a trace, in any order.
const COLUMNS: [&str; 3] = ["seconds", "anonymous", "file"];
/// A week.
const SECONDS_MAX: u64 = 7 * 24 * 3600;
/// Longer ones are no trace of a person.
const PHASES_MAX: usize = 4096;
/// More than there is.
const SIZE_MAX: Bytes = Bytes::gib(1 << 20);

const MILLI: Picos = Picos::from_micros(1000);

/// Seconds, and shares of the size in per cent. Sums are at most 100.
type BuiltIn = &'static [(u64, u64, u64)];

/// All is touched, and freed at once; then the guest is idle.
const FREE: BuiltIn = &[(0, 100, 0), (10, 0, 0), (50, 0, 0)];
/// Compilers and linkers come and go while objects pile up; then nothing happens, and half of the objects are removed.
const BUILD: BuiltIn = &[
    (0, 10, 2),
    (5, 40, 5),
    (10, 25, 8),
    (15, 50, 12),
    (20, 30, 16),
    (25, 55, 20),
    (30, 35, 25),
    (35, 70, 30),
    (40, 20, 32),
    (45, 60, 35),
    (50, 5, 35),
    (90, 5, 18),
    (130, 5, 18),
];
const BUILT_IN: [(&str, BuiltIn); 2] = [("free", FREE), ("build", BUILD)];

impl Trace {
    /// The trace `free`.
    pub(crate) fn free() -> Self {
        Self::built_in("free").expect("it is built in")
    }

    /// A trace of this name.
    pub fn built_in(name: &str) -> Option<Self> {
        let (name, rows) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        let phase = |&(seconds, anonymous, file): &(u64, u64, u64)| Phase {
            at: Picos::from_secs(seconds),
            anonymous: Bytes(anonymous),
            file: Bytes(file),
            line: 0,
        };
        Some(Self { name: (*name).to_owned(), phases: rows.iter().map(phase).collect() })
    }

    /// The names of those.
    pub fn names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }

    /// The trace's name, or that of its file without the extension.
    pub fn name(&self) -> &str {
        self.name.rsplit_once('.').map_or(self.name.as_str(), |(stem, _)| stem)
    }

    /// Where a phase is said, for messages.
    pub(crate) fn place(&self, phase: &Phase) -> String {
        if phase.line == 0 { format!("trace {}", self.name) } else { format!("{}:{}", self.name, phase.line) }
    }

    /// Whether its sizes are shares: it has to be scaled.
    pub(crate) fn is_relative(&self) -> bool {
        self.phases.iter().all(|phase| phase.line == 0)
    }

    /// The phases, earliest first.
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// The phases when the most that is held at once is `size`.
    pub(crate) fn scaled_to(&self, size: Bytes) -> Vec<Phase> {
        let most = self.phases.iter().map(|phase| phase.anonymous.0 + phase.file.0).max().unwrap_or(0);
        let part = |of: Bytes| {
            let scaled = u128::from(of.0) * u128::from(size.0) / u128::from(most.max(1));
            Bytes(u64::try_from(scaled).expect("a part of a size"))
        };
        let scale = |phase: &Phase| Phase { anonymous: part(phase.anonymous), file: part(phase.file), ..*phase };
        self.phases.iter().map(scale).collect()
    }

    /// A user's file: the first line names the columns, each other is a phase. Blank lines and those that begin with `#` are
    /// left out. Sizes are bytes, or written as `700MiB`.
    pub fn from_csv(file: &str, text: &str) -> Result<Self, TraceError> {
        let lines = (1_u32..).zip(text.lines()).map(|(line, text)| (line, text.trim()));
        let mut lines = lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#'));
        let expected = format!("expected {}", COLUMNS.join(","));
        let (line, head) =
            lines.next().ok_or_else(|| TraceError { line: 1, problem: format!("the trace is empty; {expected}") })?;
        let columns =
            columns(head).map_err(|problem| TraceError { line, problem: format!("{problem}; {expected}") })?;
        let mut trace = Self { name: without_blanks(file), phases: Vec::new() };
        for (line, text) in lines {
            let phase = phase(columns, text).and_then(|phase| trace.push(Phase { line, ..phase }));
            phase.map_err(|problem| TraceError { line, problem })?;
        }
        if trace.phases.len() < 2 {
            let problem = "expected at least two phases: the run ends with the last".to_owned();
            return Err(TraceError { line, problem });
        }
        Ok(trace)
    }

    fn push(&mut self, phase: Phase) -> Result<(), String> {
        match self.phases.last() {
            Some(last) if phase.at <= last.at => {
                Err(format!("seconds: expected more than {}, found {}", seconds(last.at), seconds(phase.at)))
            }
            _ if self.phases.len() == PHASES_MAX => Err(format!("expected at most {PHASES_MAX} phases")),
            _ => {
                self.phases.push(phase);
                Ok(())
            }
        }
    }

    /// Reads the output of [`Self::to_string`], or the name of a built-in trace.
    pub fn from_param(text: &str) -> Option<Self> {
        if let Some(built_in) = Self::built_in(text) {
            return Some(built_in);
        }
        let mut words = text.split(' ');
        let mut trace = Self { name: words.next().filter(|name| !name.is_empty())?.to_owned(), phases: Vec::new() };
        for word in words {
            let (line, rest) = word.split_once(':')?;
            let line = line.parse().ok().filter(|line| *line > 0)?;
            let fields: Vec<&str> = rest.split('/').collect();
            let [at, anonymous, file] = fields[..] else { return None };
            let phase = Phase { at: time(at).ok()?, anonymous: size(anonymous).ok()?, file: size(file).ok()?, line };
            trace.push(phase).ok()?;
        }
        (trace.phases.len() >= 2).then_some(trace)
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let own = self.phases.iter().filter(|phase| phase.line > 0);
        own.into_iter()
            .try_for_each(|phase| write!(f, " {}:{}/{}/{}", phase.line, seconds(phase.at), phase.anonymous, phase.file))
    }
}

/// Words of a parameter are told apart by blanks.
fn without_blanks(file: &str) -> String {
    let stem = file.rsplit('/').next().unwrap_or(file);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-+".contains(c) { c } else { '-' };
    let name: String = stem.chars().map(plain).collect();
    if Trace::names().contains(&name.as_str()) || name.is_empty() { format!("{name}.csv") } else { name }
}

/// Where each of [`COLUMNS`] is.
fn columns(head: &str) -> Result<[usize; 3], String> {
    let names: Vec<&str> = head.split(',').map(str::trim).collect();
    if let Some(unknown) = names.iter().find(|name| !COLUMNS.contains(name)) {
        return Err(format!("unknown column {unknown:?}"));
    }
    let place = |column: &str| {
        let mut places = (0..names.len()).filter(|place| names[*place] == column);
        match (places.next(), places.next()) {
            (Some(place), None) => Ok(place),
            (Some(_), Some(_)) => Err(format!("column {column:?} is there twice")),
            (None, _) => Err(format!("no column {column:?}")),
        }
    };
    let [one, two, three] = COLUMNS;
    Ok([place(one)?, place(two)?, place(three)?])
}

fn phase(columns: [usize; 3], text: &str) -> Result<Phase, String> {
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    if fields.len() != COLUMNS.len() {
        return Err(format!("expected {} values, found {}", COLUMNS.len(), fields.len()));
    }
    let [at, anonymous, file] = columns.map(|column| fields[column]);
    let named = |name: &'static str| move |problem: String| format!("{name}: {problem}");
    Ok(Phase {
        at: time(at).map_err(named("seconds"))?,
        anonymous: size(anonymous).map_err(named("anonymous"))?,
        file: size(file).map_err(named("file"))?,
        line: 0,
    })
}

/// Seconds with at most three digits behind the point.
fn time(text: &str) -> Result<Picos, String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let read = || {
        let whole: u64 = Some(whole).filter(|whole| is_number(whole))?.parse().ok()?;
        let part: u64 = format!("{part:0<3}").parse().ok().filter(|_| is_number(part) && part.len() <= 3)?;
        (whole <= SECONDS_MAX).then(|| Picos(MILLI.0 * (whole * 1000 + part)))
    };
    read().ok_or_else(|| format!("expected a number from 0 to {SECONDS_MAX} such as 12 or 0.250, found {text:?}"))
}

fn seconds(at: Picos) -> String {
    let millis = at.0 / MILLI.0;
    if millis.is_multiple_of(1000) {
        format!("{}", millis / 1000)
    } else {
        format!("{}.{:03}", millis / 1000, millis % 1000)
    }
}

fn size(text: &str) -> Result<Bytes, String> {
    let bytes = text.parse::<u64>().map(Bytes).ok().or_else(|| text.parse().ok());
    let bytes = bytes.filter(|bytes| *bytes <= SIZE_MAX);
    bytes.ok_or_else(|| format!("expected bytes, or a size such as \"700MiB\", found {text:?}"))
}

#[cfg(test)]
mod tests {
    use rand_chacha::{
        ChaCha8Rng,
        rand_core::{Rng, SeedableRng},
    };

    use super::*;

    const GOOD: &str = "# of a build\nseconds, file, anonymous\n\n0,0,1048576\n0.5,4MiB,512MiB\n  12 , 8MiB , 0\n";

    #[test]
    fn a_file_becomes_phases_and_comes_back_from_a_parameter() {
        let trace = Trace::from_csv("a/my build,1.csv", GOOD).unwrap();
        assert_eq!(trace.name(), "my-build-1");
        let phase = |millis, anonymous, file, line| Phase { at: Picos(MILLI.0 * millis), anonymous, file, line };
        let phases = [
            phase(0, Bytes::mib(1), Bytes(0), 4),
            phase(500, Bytes::mib(512), Bytes::mib(4), 5),
            phase(12_000, Bytes(0), Bytes::mib(8), 6),
        ];
        assert_eq!(trace.phases(), phases);
        let text = trace.to_string();
        assert!(!text.contains(','), "values of --set are told apart by commas: {text}");
        assert_eq!(Trace::from_param(&text), Some(trace));
        for name in Trace::names() {
            assert_eq!(Trace::from_param(name).unwrap().to_string(), name);
        }
    }

    #[test]
    fn every_mistake_has_its_line() {
        let cases = [
            ("", 1, "the trace is empty; expected seconds,anonymous,file"),
            ("\n# nothing\n", 1, "the trace is empty; expected seconds,anonymous,file"),
            ("seconds,anon,file\n", 1, "unknown column \"anon\"; expected seconds,anonymous,file"),
            ("\nseconds,file\n", 2, "no column \"anonymous\"; expected seconds,anonymous,file"),
            ("seconds,file,file,anonymous\n", 1, "column \"file\" is there twice; expected seconds,anonymous,file"),
            ("seconds,anonymous,file\n0,0,0\n", 1, "expected at least two phases: the run ends with the last"),
            ("seconds,anonymous,file\n0,0\n", 2, "expected 3 values, found 2"),
            ("seconds,anonymous,file\n3,0,0\n2.5,0,0\n", 3, "seconds: expected more than 3, found 2.500"),
            ("seconds,anonymous,file\n3,0,0\n3,0,0\n", 3, "seconds: expected more than 3, found 3"),
            (
                "seconds,anonymous,file\n0,much,0\n",
                2,
                "anonymous: expected bytes, or a size such as \"700MiB\", found \"much\"",
            ),
            ("seconds,anonymous,file\n0,0,-1\n", 2, "file: expected bytes, or a size such as \"700MiB\", found \"-1\""),
            (
                "seconds,anonymous,file\n1e3,0,0\n",
                2,
                "seconds: expected a number from 0 to 604800 such as 12 or 0.250, found \"1e3\"",
            ),
        ];
        for (text, line, problem) in cases {
            let expected = TraceError { line, problem: problem.to_owned() };
            assert_eq!(Trace::from_csv("x.csv", text), Err(expected), "{text:?}");
        }
    }

    /// No text, however damaged, makes it panic, and what it takes comes back as it was.
    #[test]
    fn damaged_traces_are_refused_or_are_traces() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut taken = 0;
        for _ in 0..20_000 {
            let mut bytes = GOOD.as_bytes().to_vec();
            for _ in 0..=random.next_u32() % 3 {
                let at = random.next_u32() as usize % bytes.len().max(1);
                let byte = b"0,.:/\n# Mi-9\xff"[random.next_u32() as usize % 13];
                match random.next_u32() % 4 {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at.min(bytes.len()), byte),
                    2 => drop(bytes.splice(at.min(bytes.len())..at.min(bytes.len()), *b"18446744073709551615")),
                    _ if at < bytes.len() => bytes[at] = byte,
                    _ => {}
                }
            }
            let text = String::from_utf8_lossy(&bytes);
            let _ = Trace::from_param(&text);
            if let Ok(trace) = Trace::from_csv("x.csv", &text) {
                assert_eq!(Trace::from_param(&trace.to_string()).as_ref(), Some(&trace), "{text:?}");
                assert!(
                    trace.scaled_to(Bytes::gib(1)).iter().all(|phase| phase.anonymous + phase.file <= Bytes::gib(1))
                );
                taken += 1;
            }
        }
        assert!(taken > 1000 && taken < 19_000, "{taken} of 20000");
    }
}
