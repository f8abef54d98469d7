//! The map of physical memory of a result, of this kernel or of a state file.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    str::FromStr,
};

use report::{
    Cell,
    map::{BlockMap, Caption, FOLDER, map_text},
};
use units::{Bytes, Picos, Time};

use super::{counts, shown::read};
use crate::{mmtests, over_time, source::unknown, state::State, suggest::command, usage::UsageError};

/// An instant of a run, from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At(Picos);

const UNITS: [(&str, f64); 4] = [("ms", 1e9), ("s", 1e12), ("min", 60e12), ("h", 3600e12)];

impl FromStr for At {
    type Err = String;

    /// A number, which may have a part behind a point, and its unit.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = UNITS.into_iter().find(|(name, _)| *name == unit).map(|(_, unit)| unit);
        let ps = number.parse::<f64>().ok().zip(unit).map(|(number, unit)| number * unit);
        // Half of what 64 bits hold: more than a hundred days.
        let ps = ps.filter(|ps| (0.0..=9e18).contains(ps));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in the range of both")]
        let at = ps.map(|ps| Self(Picos(ps.round() as u64)));
        at.ok_or_else(|| "expected an instant such as 12.3s, 450ms, 5min or 1h".to_owned())
    }
}

impl At {
    /// In picoseconds.
    pub(crate) fn ps(self) -> u64 {
        self.0.0
    }

    /// In microseconds.
    pub(crate) fn us(self) -> u64 {
        self.0.as_nanos() / 1000
    }
}

/// A map that a user asks for.
#[derive(Clone, Debug)]
pub struct MapWanted {
    /// A result directory, /proc, a state file, or a file with counts of free memory.
    pub source: PathBuf,
    /// Further files with counts.
    pub beside: Vec<PathBuf>,
    /// The instant; else the end.
    pub at: Option<At>,
    /// The column, by its kernel or label; else the first that has a map.
    pub kernel: Option<String>,
    /// The case; else the first that has a map.
    pub case: Option<String>,
    /// The seed; else the first that has a map.
    pub seed: Option<u64>,
    /// Whether types have colours.
    pub has_colours: bool,
}

/// Prints the map at one instant.
///
/// # Errors
/// A source that is none, a result without maps, a column, case or seed that it lacks.
pub fn map(wanted: &MapWanted) -> Result<String, UsageError> {
    let source = &wanted.source;
    if source == Path::new("/proc") {
        refuse_selection(wanted)?;
        let state = State::live().map_err(|problem| {
            UsageError::new(format!(
                "map /proc: {problem}; it takes root, and a kernel with CONFIG_PROC_PAGE_MONITOR ({} there, {} here)",
                command(["state", "make", "-o", "there.state"]),
                command(["map", "there.state"])
            ))
        })?;
        return of_state("this kernel", &state, wanted);
    }
    if !wanted.beside.is_empty() || (!mmtests::is_ours(source) && !State::is_one(source)) {
        let files: Vec<PathBuf> = [source].into_iter().chain(&wanted.beside).cloned().collect();
        let found = counts::counts(&files);
        // A directory may be a result of another kind, which says more.
        let found = if source.is_dir() && wanted.beside.is_empty() { found.unwrap_or(None) } else { found? };
        if let Some(found) = found {
            refuse_selection(wanted)?;
            return counts::map(&source.display().to_string(), &found, wanted.has_colours);
        }
        if !wanted.beside.is_empty() {
            let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            let expected = "expected buddyinfo, pagetypeinfo or an OOM report where several files are named";
            return Err(UsageError::new(format!("{}: {expected}, found none", names.join(", "))));
        }
    }
    if source.is_file() {
        refuse_selection(wanted)?;
        if !State::is_one(source) {
            return Err(UsageError::in_file(
                source.display(),
                "expected a state, buddyinfo, pagetypeinfo or an OOM report with the sizes of zones, found another file",
            ));
        }
        return of_state(&source.display().to_string(), &State::load(source)?, wanted);
    }
    let mut shown = read(source, None)?;
    report::name_cases(&mut shown.cells);
    if shown.cells.iter().all(|cell| cell.map.is_none()) {
        return Err(UsageError::new(format!(
            "nothing in {} has a map of memory; {}",
            source.display(),
            shown.mapping(source)
        )));
    }
    let cell = choose(&shown.cells, wanted)?;
    let map = load(source, cell)?;
    let end = map.head.at_us.last().copied().unwrap_or(0);
    let sample = wanted.at.map_or(map.len().saturating_sub(1), |at| map.at(at.us()));
    if let Some(late) = wanted.at.filter(|at| at.us() > end) {
        return Err(UsageError::new(format!(
            "--at {}: {} on {} with seed {} ends at {}",
            seconds(late.us()),
            cell.key.case,
            cell.key.column().label(),
            cell.key.seed,
            seconds(end)
        )));
    }
    let head = vec![
        format!("{}: {} on {}, seed {}", cell.key.experiment, cell.key.case, cell.key.column().label(), cell.key.seed),
        format!("at {} of {}, sample {} of {}", seconds(map.head.at_us[sample]), seconds(end), sample + 1, map.len()),
    ];
    let caption = Caption { head, foot: others(&shown.cells, cell), has_colours: wanted.has_colours };
    Ok(map_text(&map, sample, cell.series.as_ref(), &caption))
}

/// Microseconds as seconds.
pub(crate) fn seconds(us: u64) -> String {
    format!("{:.3} s", us as f64 / 1e6)
}

/// A kernel's memory at one moment is of one instant and column.
fn refuse_selection(wanted: &MapWanted) -> Result<(), UsageError> {
    let asked = [
        ("--at", wanted.at.is_some()),
        ("--kernel", wanted.kernel.is_some()),
        ("--case", wanted.case.is_some()),
        ("--seed", wanted.seed.is_some()),
    ];
    match asked.iter().find(|(_, is_asked)| *is_asked) {
        Some((name, _)) => {
            Err(UsageError::new(format!("{name} is for results; {} is of one moment", wanted.source.display())))
        }
        None => Ok(()),
    }
}

/// Memory as a kernel had it, taken over by the memory manager, which puts types where they fit best.
fn of_state(name: &str, state: &State, wanted: &MapWanted) -> Result<String, UsageError> {
    let problem = |problem: String| UsageError::new(format!("{name}: {problem}"));
    let machine = state.machine("here");
    let release = state.snapshot().map_err(problem)?.version.text;
    let rules = crate::variant::for_release(&release).map_err(problem)?.rules;
    let config = crate::simulated::config(&machine, &rules, Bytes(0), 1).map_err(problem)?;
    let frames = state.frame_map(config.machine.end()).map_err(problem)?;
    let map = over_time::map(&sim::map_of_state(&config, &frames), &[Time(0)]);
    let still = if state.stood_still { "" } else { "; memory moved while it was read" };
    let head = vec![format!("{name}: Linux {release}{still}")];
    let foot = vec!["types of single pageblocks are where they fit best; their numbers are the kernel's".to_owned()];
    Ok(map_text(&map, 0, None, &Caption { head, foot, has_colours: wanted.has_colours }))
}

/// The cell of a result whose map is wanted.
fn choose<'a>(cells: &'a [Cell], wanted: &MapWanted) -> Result<&'a Cell, UsageError> {
    let place = wanted.source.display();
    let with: Vec<&Cell> = cells.iter().filter(|cell| cell.map.is_some()).collect();
    let first = with.first().expect("some cell has a map");
    let column = match &wanted.kernel {
        None => first.key.column(),
        Some(name) => {
            let columns: BTreeSet<_> = with.iter().map(|cell| cell.key.column()).collect();
            let labels: Vec<String> = columns.iter().map(report::Column::label).collect();
            let known: Vec<&str> = labels.iter().map(String::as_str).collect();
            let found = columns.iter().find(|column| column.label() == *name || column.kernel == *name);
            found.ok_or_else(|| UsageError::of_key("--kernel", unknown("column", name, &known)))?.clone()
        }
    };
    let of_column: Vec<&&Cell> = with.iter().filter(|cell| cell.key.column() == column).collect();
    let case = wanted.case.as_ref().unwrap_or(&of_column[0].key.case);
    let of_case: Vec<&&&Cell> = of_column.iter().filter(|cell| cell.key.case == *case).collect();
    if of_case.is_empty() {
        let known: Vec<&str> = of_column.iter().map(|cell| cell.key.case.as_str()).collect();
        return Err(UsageError::of_key("--case", unknown("case", case, &known)));
    }
    let found = of_case.iter().find(|cell| wanted.seed.is_none_or(|seed| cell.key.seed == seed));
    found.map(|cell| **cell as &Cell).ok_or_else(|| {
        let seeds: Vec<String> = of_case.iter().map(|cell| cell.key.seed.to_string()).collect();
        UsageError::of_key("--seed", format!("{place} has maps of {case} with seeds {}", seeds.join(", ")))
    })
}

/// The map of a cell of a result.
///
/// # Errors
/// No such file, or one that is not what its name says.
pub(crate) fn load(directory: &Path, cell: &Cell) -> Result<BlockMap, UsageError> {
    let name = cell.map.as_ref().expect("the cell was chosen for its map");
    let is_hash = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hash {
        let key = &cell.key;
        return Err(UsageError::in_file(directory.display(), format!("map of {}: {name:?} is no hash", key.case)));
    }
    let path = directory.join(FOLDER).join(name);
    let problem = |problem: String| UsageError::in_file(path.display(), problem);
    let bytes = std::fs::read(&path).map_err(|error| problem(error.to_string()))?;
    if blake3::hash(&bytes).to_hex().as_str() != name {
        return Err(problem("its content is not that of its name: it is damaged".to_owned()));
    }
    let map = BlockMap::from_bytes(&bytes).map_err(|error| problem(error.to_string()))?;
    if map.is_empty() || cell.series.as_ref().is_some_and(|series| series.rows.len() != map.len()) {
        return Err(problem("its samples are not those of the cell's series".to_owned()));
    }
    Ok(map)
}

/// A line that says what else has a map.
fn others(cells: &[Cell], shown: &Cell) -> Vec<String> {
    let with = || cells.iter().filter(|cell| cell.map.is_some()).map(|cell| &cell.key);
    let kernels: BTreeSet<_> = with().map(|key| &key.kernel).filter(|kernel| **kernel != shown.key.kernel).collect();
    let cases: BTreeSet<_> = with().map(|key| &key.case).filter(|case| **case != shown.key.case).collect();
    let seeds: BTreeSet<_> = with().map(|key| key.seed).filter(|seed| *seed != shown.key.seed).collect();
    let list =
        |before: &str, items: Vec<String>| (!items.is_empty()).then(|| report::short::text::list(before, &items, 70));
    let words: Vec<String> = [
        list("--kernel ", kernels.into_iter().cloned().collect()),
        list("--case ", cases.into_iter().cloned().collect()),
        list("--seed ", seeds.into_iter().map(|seed| seed.to_string()).collect()),
    ]
    .into_iter()
    .flatten()
    .collect();
    if words.is_empty() { Vec::new() } else { vec![format!("also: {}", words.join("; "))] }
}
