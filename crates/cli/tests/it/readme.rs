//! Pages that show what a command prints: the README its first one, docs/thpscale-4.1.md the series of 2015. A recorded result of
//! each command is in docs, and shown again here.
//!
//! Only the cells are taken as recorded. Prices, rules and titles are those that the program of today would record, so that no
//! line before the tables can become stale. `PAGELAB_BLESS=1 cargo test --release -p cli --test it readme` runs the commands,
//! which takes minutes, records the results anew and writes them into the pages; with the name of an experiment in place of 1,
//! of its command alone. `PAGELAB_BLESS=recorded` writes into them what the recorded cells print now: that is for changes of
//! words and prices. Of a recorded cell only means are kept: the pages show nothing else. That the simulator still does the same
//! is asked below of the README's cheap cells, and in `series.rs` of some of the series.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use lab::{
    plan::{AcceleratorChoice, Plan, Request, Seeds},
    run::IDENTITY_FILE,
};
use report::{Record, seal::checksum};
use serde_json::Value;

use crate::support::document::{run_hashes, whole_records};

/// Asks to write pages, and to record anew.
const BLESS: &str = "PAGELAB_BLESS";
/// The value of the variable that asks to write pages from what is recorded.
const FROM_RECORDED: &str = "recorded";
/// The value of the variable that asks to run every command.
const ALL: &str = "1";
/// The text before a command's arguments; a page's first such line is its command.
const BEFORE: &str = "    pagelab run ";
const BEGIN: &str = "<!-- printed by the command above: crates/cli/tests/it/readme.rs says how to write it anew -->\n";
const END: &str = "<!-- end of what is printed -->\n";
/// The page that explains what is not as published.
const WHY: &str = "[s0-khugepaged](series/s0-khugepaged.md#what-does-not-come-out-and-why-we-think-so)";

/// A page with a command and what it prints.
struct Shown {
    page: &'static str,
    /// The folder of the recorded result.
    folder: &'static str,
    /// Words in the titles of the tables that are shown: of each title the first table.
    titles: &'static [&'static str],
    /// Published values stand beside ours.
    is_published: bool,
}

const FIRST: Shown = Shown {
    page: "README.md",
    folder: "docs/first-run",
    titles: &[" seconds, s,", " counter, times"],
    is_published: false,
};
const SERIES: Shown = Shown {
    page: "docs/thpscale-4.1.md",
    folder: "docs/readme",
    titles: &["Fault Latencies", "Percentage Faults Huge"],
    is_published: true,
};
const SHOWN: [Shown; 2] = [FIRST, SERIES];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn readme() -> String {
    FIRST.text()
}

fn pagelab(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagelab"));
    let output = command.args(arguments).current_dir(root()).env_remove("COLUMNS").output().expect("it starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

impl Shown {
    fn text(&self) -> String {
        fs::read_to_string(root().join(self.page)).expect(self.page)
    }

    fn recorded(&self) -> PathBuf {
        root().join(self.folder)
    }

    /// The words behind `pagelab run` of the page's command.
    fn arguments(&self) -> Vec<String> {
        let text = self.text();
        let line = text.lines().find_map(|line| line.strip_prefix(BEFORE)).expect("the page has a command");
        let command = line.split('#').next().expect("there is a first part");
        command.split_whitespace().map(str::to_owned).collect()
    }

    /// Experiment and number of seeds of the command.
    fn command(&self) -> (String, u64) {
        match self.arguments().as_slice() {
            [experiment] => (experiment.clone(), 1),
            [experiment, option, seeds] if option == "--seeds" => {
                (experiment.clone(), seeds.parse().expect("a number"))
            }
            other => panic!("{}: {other:?}", self.page),
        }
    }

    /// The command as a request.
    fn request(&self) -> Request {
        let (experiment, seeds) = self.command();
        Request {
            experiment,
            targets: Vec::new(),
            kernels: Vec::new(),
            machine: None,
            variants: Vec::new(),
            columns: Vec::new(),
            sets: Vec::new(),
            seeds: Seeds::up_to(seeds),
            drop_caches: false,
            memory: None,
            state: None,
            accelerator: AcceleratorChoice::Auto,
            timeout_s: 1,
            workers: None,
            trace: false,
            sample: None,
            axes: Vec::new(),
            map: false,
            causes: false,
            out: None,
        }
    }

    /// The recorded cells with `run.json` as the program of today would write it, in a directory of their own.
    fn recorded_today(&self) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        fs::copy(self.recorded().join("result.jsonl"), directory.path().join("result.jsonl")).expect("result.jsonl");
        fs::write(directory.path().join(IDENTITY_FILE), self.identity_today()).expect("run.json");
        directory
    }

    /// `run.json` of the command as it would be written today, but for the hash of the program that made the recorded cells.
    fn identity_today(&self) -> String {
        let text = fs::read_to_string(self.recorded().join(IDENTITY_FILE)).expect("run.json");
        let before: Value = serde_json::from_str(&text).expect("JSON");
        let plan = Plan::new(&self.request(), |_| panic!("only the simulator runs")).expect("a plan");
        let mut today = serde_json::to_value(plan.identity()).expect("JSON");
        today["program"] = before["program"].clone();
        for key in today["keys"].as_array_mut().into_iter().flatten() {
            key["program"] = before["program"].clone();
        }
        assert_eq!(today["keys"], before["keys"], "{} has other cells than were recorded: {BLESS}=1", self.page);
        serde_json::to_string_pretty(&today).expect("JSON") + "\n"
    }

    /// The part of what is printed that the page shows, as Markdown: head, tables and legend, `[...]` where something is left
    /// out; below the tables how often they go another way than the published one.
    fn excerpt(&self, text: &str) -> String {
        let mut titles = self.titles.to_vec();
        let (mut shown, mut tables): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        for (at, part) in text.trim_end().split("\n\n").enumerate() {
            let first = part.lines().next().unwrap_or_default();
            let title = titles.iter().position(|title| first.contains(title));
            if let Some(title) = title {
                titles.remove(title);
                tables.push(part);
            }
            match shown.last() {
                _ if at == 0 || title.is_some() || part.starts_with("low-high: ") => shown.push(part),
                Some(&"[...]") => {}
                _ => shown.push("[...]"),
            }
        }
        assert!(titles.is_empty(), "no table {titles:?} in {text}");
        let lines = shown.join("\n\n");
        assert!(lines.lines().all(|line| line.chars().count() <= 80), "{lines}");
        let indented = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") };
        let block: String = lines.lines().map(indented).collect();
        let below = if self.is_published { against_published(&tables) } else { String::new() };
        format!("\n{block}\n{below}")
    }

    /// Runs the command, and records its result.
    fn bless(&self) {
        let whole = Path::new(env!("CARGO_TARGET_TMPDIR")).join(self.folder.replace('/', "-"));
        let path = whole.to_str().expect("UTF-8");
        if whole.exists() {
            fs::remove_dir_all(&whole).expect("what an older program has left there");
        }
        let arguments = self.arguments();
        let arguments = ["run"].into_iter().chain(arguments.iter().map(String::as_str)).chain(["-o", path]);
        pagelab(&arguments.collect::<Vec<_>>());
        reduce(&whole, &self.recorded());
        let block = self.excerpt(&pagelab(&["show", self.recorded().to_str().expect("UTF-8")]));
        // Columns may be wider there, for rows that the page leaves out.
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&block), words(&self.excerpt(&pagelab(&["show", path]))), "too little is kept of the cells");
    }

    /// The page's block, from the recorded cells, with the hash of their runs.
    fn block(&self) -> String {
        let printed = self.excerpt(&pagelab(&["show", self.recorded_today().path().to_str().expect("UTF-8")]));
        let hashes = run_hashes(&self.recorded());
        let (count, together) = (hashes.len(), checksum(hashes.join("\n").as_bytes()));
        format!("{printed}<!-- run hash of these {count} cells together: {together} -->\n")
    }

    /// Writes into the page what the recorded cells print, and beside them what the program of today says of them.
    fn write(&self) {
        fs::write(self.recorded().join(IDENTITY_FILE), self.identity_today()).expect("run.json");
        let block = self.block();
        let text = self.text();
        let (before, rest) = text.split_once(BEGIN).expect("the page has the mark");
        let (_, after) = rest.split_once(END).expect("the page has the second mark");
        fs::write(root().join(self.page), format!("{before}{BEGIN}{block}{END}{after}")).expect(self.page);
    }
}

/// In how many rows the simulated change has the opposite sign of the published one: those that are shown.
fn against_published(tables: &[&str]) -> String {
    let changes = |line: &str| -> Vec<i64> {
        let changes = line.split_whitespace().filter_map(|word| word.strip_suffix('%'));
        changes.map(|change| change.parse().expect("a change in whole per cent")).collect()
    };
    let rows: Vec<(Vec<i64>, bool)> = tables
        .iter()
        .flat_map(|table| table.lines().skip(1).map(|line| (changes(line), line.contains('*'))))
        .filter(|(changes, _)| !changes.is_empty())
        .collect();
    let opposite: Vec<bool> = rows
        .iter()
        .filter_map(|(changes, has_star)| {
            let [ours, theirs] = changes.as_slice() else { panic!("a row has two changes: {changes:?}") };
            (ours * theirs < 0).then_some(*has_star)
        })
        .collect();
    let stars = opposite.iter().filter(|has_star| **has_star).count();
    format!(
        "In {} of these {} rows the simulated change has the opposite sign of the published one \
         ({stars} of the {} have a `*`).\n{WHY} says what does not come out.\n\n",
        opposite.len(),
        rows.len(),
        opposite.len()
    )
}

/// A result with the mean of each metric in place of its samples, and without logs.
fn reduce(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    let identity = fs::read_to_string(from.join("run.json")).expect("run.json");
    let mut identity: Value = serde_json::from_str(&identity).expect("JSON");
    // What is reduced is not what was written: as of a program without checksums.
    for key in ["lines", "checksum"] {
        identity.as_object_mut().expect("an object").remove(key);
    }
    fs::write(to.join("run.json"), identity.to_string()).expect("run.json");
    let text = fs::read_to_string(from.join("result.jsonl")).expect("a result");
    let lines = text.lines().map(|line| {
        let mut record: Value = serde_json::from_str(line).expect("JSON");
        let Some(fields) = record.as_object_mut() else { panic!("a record is an object") };
        fields.remove("slow_path");
        fields.remove("checksum");
        if let Some(measured) = fields.get_mut("measured") {
            measured["detail"]["tasks"] = Value::Null;
            for metric in measured["metrics"].as_array_mut().into_iter().flatten() {
                let samples: Vec<f64> =
                    metric["samples"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
                if samples.len() > 1 {
                    metric["samples"] = Value::from(vec![samples.iter().sum::<f64>() / samples.len() as f64]);
                }
            }
        }
        record.to_string() + "\n"
    });
    fs::write(to.join("result.jsonl"), lines.collect::<String>()).expect("the reduced result");
}

#[test]
fn pages_show_what_their_commands_print() {
    for shown in SHOWN {
        if let Ok(how) = std::env::var(BLESS) {
            if how == ALL || how == shown.command().0 {
                shown.bless();
            } else {
                assert!(how == FROM_RECORDED || SHOWN.iter().any(|shown| how == shown.command().0), "{BLESS}={how}");
            }
            shown.write();
        }
        let text = shown.text();
        let block = text.split_once(BEGIN).and_then(|(_, rest)| Some(rest.split_once(END)?.0)).expect("both marks");
        assert_eq!(block, shown.block(), "{}", shown.page);
    }
}

/// The recorded cells are the cells of the command: its experiment, and each of its seeds.
#[test]
fn what_was_recorded_is_the_command() {
    for shown in SHOWN {
        let (experiment, seeds) = shown.command();
        let mut found: Vec<u64> = Vec::new();
        for record in whole_records(&shown.recorded()) {
            if let Record::Cell(cell) = record {
                assert_eq!(cell.key.experiment, experiment, "{}", shown.page);
                found.push(cell.key.seed);
            }
        }
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, (1..=seeds).collect::<Vec<_>>(), "{}", shown.page);
    }
}

/// The cheap cells of the README, run again: the cells of the patched kernel.
#[test]
fn the_simulator_does_what_the_readme_shows() {
    let room = tempfile::tempdir().expect("a directory");
    let result = room.path().join("result");
    let column = "4.18+patch";
    pagelab(&["run", &FIRST.command().0, "--column", column, "-o", result.to_str().expect("UTF-8")]);
    let mut recorded = run_hashes(&FIRST.recorded());
    recorded.retain(|line| line.starts_with(column));
    assert_eq!(recorded.len(), 2, "{recorded:?}");
    assert_eq!(run_hashes(&result), recorded, "the simulator does something else now: {BLESS}=1");
}

/// The README and docs/fidelity.md have the numbers of the newest draw.
#[test]
fn pages_say_what_the_newest_draw_says() {
    let text = fs::read_to_string(root().join("docs/fidelity-draw.json")).expect("a draw");
    let drawn: Value = serde_json::from_str(&text).expect("JSON");
    let tally = |value: &Value| {
        let number = |key: &str| value[key].as_u64().expect("a number");
        let (within, compared) = (number("within"), number("compared"));
        (within, compared, (100.0 * within as f64 / compared as f64).round())
    };
    let ((within, compared, share), (_, _, ceiling)) = (tally(&drawn["comparison"]["total"]), tally(&drawn["ceiling"]));
    let readme = readme();
    let said = format!("Of {compared} counters in cells drawn at random, {within} ({share} %) are");
    assert!(readme.contains(&said) && readme.contains(&format!(" comes to {ceiling} %.")), "{said}, {ceiling} %");
    let page = fs::read_to_string(root().join("docs/fidelity.md")).expect("the page");
    let of = |value: &Value| {
        let (within, compared, share) = tally(value);
        format!("{within} of {compared} ({share} %)")
    };
    assert!(page.contains(&format!("**{within} of {compared} counters ({share} %)")), "{page}");
    assert!(page.contains(&of(&drawn["ceiling"])), "{page}");
    for (name, scores) in drawn["experiments"].as_object().expect("experiments") {
        let row = format!("| {name} | {} | {} |\n", of(&scores["ours"]), of(&scores["ceiling"]));
        assert!(page.contains(&row), "docs/fidelity.md has no row {row}");
    }
}

/// The README's table has as many claims and identities as each series has; the claims of s0 are judged here.
#[test]
fn the_readme_counts_all_claims() {
    let readme = readme();
    for series in ["s0", "s1", "s2", "s3", "s4"] {
        let row = readme.lines().find(|line| line.starts_with(&format!("| {series}, "))).expect(series);
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let of = |column: &str| column.split_once(" of ").map_or(0, |(_, all)| all.parse().expect("a number"));
        let claims = root().join("published").join(series).join("claims.toml");
        let claims = fs::read_to_string(claims).expect("claims");
        let all = claims.lines().filter(|line| *line == "[[claim]]").count();
        assert_eq!(of(columns[2]) + of(columns[3]), all, "{row}");
        if series == "s0" {
            let recorded = SERIES.recorded_today();
            let mut command = Command::new(env!("CARGO_BIN_EXE_pagelab"));
            let output = command.args(["claims", "--result"]).arg(recorded.path()).output().expect("it starts");
            let judged = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
            let said = format!("s0: {} claims hold, {} identities", columns[2], columns[3]);
            assert!(judged.contains(&said), "{said}: {judged}");
        }
    }
}

/// The variant file that the README shows: the lines between two indented blocks.
#[test]
fn the_readmes_variant_can_be_run() {
    let readme = readme();
    let (_, rest) = readme.split_once("(`my.toml`):\n\n").expect("a variant file");
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let text: String =
        lines.take_while(|line| !line.contains("pagelab run")).map(|line| format!("{}\n", line.trim_start())).collect();
    let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a file");
    fs::write(file.path(), text).expect("a variant");
    let variant = lab::variant::load(file.path().to_str().expect("UTF-8")).expect("it can be read");
    assert_eq!((variant.parent.as_deref(), variant.diff.len()), (Some("v6.1"), 3));
}

#[test]
fn rows_that_go_another_way_are_counted() {
    let table = "title -9%\n  without with\nfault-1 10 f 10 12 +20% 10-14 * 8 -20%\nfault-2 10 10 9 -10% 8-9 9 -10%\n\
                 fault-3 10 10 11 +10% 11-12 9 -9%\nfault-4 10 10 10 0% = 9 -9%";
    let text = against_published(&[table]);
    assert!(text.starts_with("In 2 of these 4 rows ") && text.contains("(1 of the 2 have a `*`)"), "{text}");
}

#[test]
fn what_is_explained_is_there() {
    let page = fs::read_to_string(root().join("docs/series/s0-khugepaged.md")).expect("the page");
    assert!(page.contains("\n## What does not come out, and why we think so\n"), "docs/thpscale-4.1.md links to it");
    let published = lab::published::load("s0").expect("a series");
    assert_eq!(published.reasons(), "docs/series/s0-khugepaged.md", "the legend names it");
}

#[test]
fn the_readme_is_short_and_begins_with_an_answer() {
    let readme = readme();
    assert!(readme.lines().count() <= 120, "{} lines", readme.lines().count());
    let at = |text: &str| readme.lines().position(|line| line.contains(text)).expect(text);
    assert!(at("](docs/gallery/") < at(BEFORE) && at(BEFORE) < at(END.trim_end()), "picture, command, output");
    assert!(at(END.trim_end()) < 40, "the first screen is {} lines", at(END.trim_end()) + 1);
}
