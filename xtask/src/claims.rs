//! `cargo xtask claims`: the claims of the five series as they are kept at a landing, beside the verdicts of the last one.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;
use clap::Args;
use lab::usage::UsageError;
use serde_json::Value;

use crate::{base::PAGELAB, costs::of_children};

/// Each series, with the seeds that a landing runs it with: eight, or fewer where eight would take hours.
const SERIES: [(&str, u32); 5] = [("s0", 8), ("s2", 8), ("s4", 8), ("s3", 3), ("s1", 1)];
/// A line for each claim: its name, its verdict, and the seeds of the runs that say so.
const RECORD: &str = "docs/verdicts.txt";

const HOLDS: &str = "holds";

/// Which series.
#[derive(Args)]
pub(crate) struct Options {
    /// Only these series, such as s0
    series: Vec<String>,
    /// Write the verdicts down as those to compare with
    #[arg(long)]
    bless: bool,
}

/// Verdicts by claim, with the number of seeds.
type Verdicts = BTreeMap<String, (String, u32)>;

/// The verdict of a run on a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    verdict: String,
    is_identity: bool,
}

/// Runs the series, one line each; returns how many claims fail that held before.
pub(crate) fn run(workspace: &Metadata, options: &Options) -> Result<usize> {
    for name in &options.series {
        if !SERIES.iter().any(|(series, _)| series == name) {
            let known = SERIES.map(|(series, _)| series).join(", ");
            return Err(UsageError::new(format!("no series {name:?}; expected one of {known}")).into());
        }
    }
    let path = workspace.workspace_root.as_std_path().join(RECORD);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut record = read(&text)?;
    // Results stay there, so that a run that was stopped goes on.
    let room = workspace.target_directory.as_std_path().join("claims");
    fs::create_dir_all(&room).with_context(|| room.display().to_string())?;
    let program = PAGELAB.of_this_tree(workspace, &room)?;
    let mut lost = 0;
    for (series, seeds) in SERIES {
        if !options.series.is_empty() && !options.series.iter().any(|name| name == series) {
            continue;
        }
        let before = of_children()?;
        let found = judge(&program, &room, (series, seeds))?;
        let (line, fallen) = compare(series, &found, &record);
        println!("{line}; {:.0} s of CPU", of_children()? - before);
        lost += fallen;
        if options.bless {
            record.retain(|claim, _| series_of(claim) != series);
            record.extend(found.into_iter().map(|(claim, found)| (claim, (found.verdict, seeds))));
        }
    }
    if options.bless {
        fs::write(&path, write(&record)).with_context(|| path.display().to_string())?;
    }
    Ok(lost)
}

/// The verdict on each claim and identity of a series.
fn judge(program: &Path, room: &Path, (series, seeds): (&str, u32)) -> Result<BTreeMap<String, Found>> {
    let mut command = Command::new(program);
    command.current_dir(room).args(["claims", series, "--seeds", &seeds.to_string(), "--format", "json"]);
    let output =
        command.stderr(std::process::Stdio::inherit()).output().with_context(|| program.display().to_string())?;
    let printed = String::from_utf8_lossy(&output.stdout);
    verdicts(&printed).with_context(|| format!("claims {series} ended with {}", output.status))
}

fn verdicts(printed: &str) -> Result<BTreeMap<String, Found>> {
    let judged: Value = serde_json::from_str(printed).context("no JSON on its standard output")?;
    let claims = judged[0]["claims"].as_array().context("no claims in it")?;
    let all = claims.iter().map(|claim| {
        let found = Found { verdict: claim["verdict"].as_str()?.to_owned(), is_identity: claim["identity"].as_bool()? };
        Some((claim["id"].as_str()?.to_owned(), found))
    });
    all.collect::<Option<_>>().context("a claim has an id, a verdict, and is an identity or not")
}

/// A line on a series, and how many of its claims fail that held before.
fn compare(series: &str, found: &BTreeMap<String, Found>, record: &Verdicts) -> (String, usize) {
    let count = |identities: bool| {
        let those: Vec<&Found> = found.values().filter(|found| found.is_identity == identities).collect();
        format!("{} of {}", those.iter().filter(|found| found.verdict == HOLDS).count(), those.len())
    };
    let held = |claim: &String| record.get(claim).is_some_and(|(verdict, _)| verdict == HOLDS);
    let names = |is_meant: &dyn Fn(&String, bool) -> bool| -> Vec<&str> {
        let those = found.iter().filter(|(claim, found)| is_meant(claim, found.verdict == HOLDS));
        those.map(|(claim, _)| claim.as_str()).collect()
    };
    let lost = names(&|claim, holds| !holds && held(claim));
    let gained = names(&|claim, holds| holds && !held(claim));
    let mut line = format!("{series}: {} claims, {} identities", count(false), count(true));
    for (word, claims) in [("lost", &lost), ("gained", &gained)] {
        if !claims.is_empty() {
            line += &format!("; {word}: {}", claims.join(", "));
        }
    }
    if lost.is_empty() && gained.is_empty() {
        line += ", as before";
    }
    (line, lost.len())
}

fn series_of(claim: &str) -> &str {
    claim.split_once('-').map_or(claim, |(series, _)| series)
}

fn read(text: &str) -> Result<Verdicts> {
    let mut record = Verdicts::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#') && !line.is_empty()) {
        let [claim, verdict, seeds] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            bail!("{RECORD}:{number}: {line:?}; expected a claim, its verdict, and a number of seeds");
        };
        let seeds = seeds.parse().with_context(|| format!("{RECORD}:{number}: {seeds:?} is no number of seeds"))?;
        let is_new = record.insert(claim.to_owned(), (verdict.to_owned(), seeds)).is_none();
        ensure!(is_new, "{RECORD}:{number}: {claim} is there twice");
    }
    Ok(record)
}

fn write(record: &Verdicts) -> String {
    let head =
        "# The verdict on each claim at the last landing, and the number of seeds: by `cargo xtask claims --bless`.\n";
    let lines = record.iter().map(|(claim, (verdict, seeds))| format!("{claim} {verdict} {seeds}\n"));
    std::iter::once(head.to_owned()).chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_falls_is_named_and_counted() {
        let record = read("# head\ns0-1 holds 8\ns0-2 fails 8\ns0-i1 holds 8\n").unwrap();
        assert_eq!(read(&write(&record)).unwrap(), record);
        let of = |verdicts: [&str; 3]| {
            let found = ["s0-1", "s0-2", "s0-i1"].into_iter().zip(verdicts).map(|(claim, verdict)| {
                (claim.to_owned(), Found { verdict: verdict.to_owned(), is_identity: claim == "s0-i1" })
            });
            let found = found.collect();
            compare("s0", &found, &record)
        };
        assert_eq!(of(["holds", "fails", "holds"]), ("s0: 1 of 2 claims, 1 of 1 identities, as before".to_owned(), 0));
        let (line, lost) = of(["fails", "holds", "fails"]);
        assert_eq!((line.as_str(), lost), ("s0: 1 of 2 claims, 0 of 1 identities; lost: s0-1, s0-i1; gained: s0-2", 2));
    }

    #[test]
    fn verdicts_are_read_and_a_bad_record_says_where() {
        let claim =
            |id: &str, verdict: &str, is: bool| serde_json::json!({ "id": id, "verdict": verdict, "identity": is });
        let claims = [claim("s3-1", "holds", false), claim("s3-i1", "fails", true)];
        let found = verdicts(&serde_json::json!([{ "series": "s3", "claims": claims }]).to_string()).unwrap();
        let said: Vec<_> = found.iter().map(|(id, of)| format!("{id} {} {}", of.verdict, of.is_identity)).collect();
        assert_eq!(said, ["s3-1 holds false", "s3-i1 fails true"]);
        assert!(verdicts("").is_err() && verdicts("[]").is_err());
        for (text, says) in [("s0-1 holds\n", ":1: "), ("s0-1 holds 8\ns0-1 holds 8\n", ":2: s0-1 is there twice")] {
            assert!(read(text).unwrap_err().to_string().contains(says));
        }
    }
}
