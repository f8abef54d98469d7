//! Results as read: what `--format json` prints, and the lines of a result file.

use std::{collections::BTreeSet, fs, path::Path};

use lab::arithmetic::{Phase, ZoneComparison};
use report::{Cell, RESULT_FILE, Record, Skipped, System, Target};
use serde_json::Value;

/// What `--format json` prints, as far as tests look at it.
pub(crate) struct Document {
    pub(crate) cells: Vec<Cell>,
    pub(crate) systems: Vec<System>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) zones: Vec<(Target, ZoneComparison)>,
    /// Why there are no zones.
    pub(crate) problems: Vec<String>,
    pub(crate) missing: u64,
}

impl Document {
    pub(crate) fn parse(text: &str) -> Self {
        let mut whole: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"));
        let mut zones = Vec::new();
        let mut problems = Vec::new();
        for table in whole["zones"].as_array().expect("a list of zone tables") {
            let target: Target = read(table["target"].clone());
            let comparisons: Vec<ZoneComparison> = read(table["comparisons"].clone());
            zones.extend(comparisons.into_iter().map(|comparison| (target, comparison)));
            problems.extend(read::<Vec<String>>(table["problems"].clone()));
        }
        Self {
            cells: read(whole["cells"].take()),
            systems: read(whole["systems"].take()),
            skipped: read(whole["skipped"].take()),
            zones,
            problems,
            missing: whole["missing"].as_u64().expect("how many cells are missing"),
        }
    }

    /// The one comparison of a target and moment.
    pub(crate) fn zones_of(&self, target: Target, phase: Phase) -> &ZoneComparison {
        let wanted = |(of, zones): &&(Target, ZoneComparison)| (*of, zones.phase) == (target, phase);
        let found: Vec<_> = self.zones.iter().filter(wanted).map(|(_, zones)| zones).collect();
        assert_eq!(found.len(), 1, "comparisons of {target} {phase:?}; problems: {:?}", self.problems);
        found[0]
    }
}

fn read<T: for<'de> serde::Deserialize<'de>>(value: Value) -> T {
    serde_json::from_value(value).expect("what was written can be read")
}

/// The records of the result in `directory`. Every line must be whole, and no cell may be there twice.
pub(crate) fn whole_records(directory: &Path) -> Vec<Record> {
    let path = directory.join(RESULT_FILE);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(text.is_empty() || text.ends_with('\n'), "{}: the last line is torn:\n{text}", path.display());
    let record = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
    let records: Vec<Record> = text.lines().map(record).collect();
    let cells = report::cells(records.clone());
    let keys: BTreeSet<_> = cells.iter().map(|cell| &cell.key).collect();
    assert_eq!(keys.len(), cells.len(), "{}: a cell is there twice", path.display());
    records
}

/// Makes a result one of a program that wrote no checksums, so that a test may change a line of it.
pub(crate) fn forget_checksums(directory: &Path) {
    let identity = directory.join("run.json");
    let mut keys: Value = serde_json::from_slice(&fs::read(&identity).expect("run.json")).expect("JSON");
    for key in ["lines", "checksum"] {
        keys.as_object_mut().expect("an object").remove(key).expect("a finished run has it");
    }
    fs::write(&identity, keys.to_string()).expect("run.json");
    let result = directory.join(RESULT_FILE);
    let text = fs::read_to_string(&result).expect("a result");
    let lines = text.lines().map(|line| line.rsplit_once(",\"checksum\":").expect("a line has a checksum").0);
    fs::write(&result, lines.map(|line| format!("{line}}}\n")).collect::<String>()).expect("a result");
}

/// Column, case, seed and run hash of each cell of a result, in order.
pub(crate) fn run_hashes(directory: &Path) -> Vec<String> {
    let of = |record| match record {
        Record::Cell(cell) => {
            let hash = cell.measured.detail["run_hash"].as_str().expect("each simulated cell has one").to_owned();
            Some(format!("{} {} {} {hash}", cell.key.kernel, cell.key.case, cell.key.seed))
        }
        _ => None,
    };
    let mut hashes: Vec<_> = whole_records(directory).into_iter().filter_map(of).collect();
    hashes.sort_unstable();
    hashes
}
