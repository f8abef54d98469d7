//! `cargo xtask advise`: whether advice for machines whose best setting is known contains that setting.
//!
//! Each file of xtask/advise/ is a service on a machine. It runs, and two moments of the run are written down as a machine's
//! captures of /proc/vmstat. `pagelab advise` sees those alone. The best setting is found by running the service itself, with
//! other seeds, with every value that the advice tried.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Metadata;
use serde_json::Value;

use crate::base::PAGELAB;

/// Seeds with which the best setting is found: no others use them.
const SEEDS: &str = "201-204";
/// Per cent by which the best setting has to be better, so that something helps.
const MATERIAL: f64 = 5.0;
/// Settings whose gain is this near to the best one's, in per cent of the row, are as good.
const AS_GOOD: f64 = 5.0;

/// A service, and the moments of its captures.
struct Case {
    name: String,
    file: PathBuf,
    machine: PathBuf,
    /// Seconds of the captures.
    moments: [f64; 2],
    /// The class and the part of the row that is to get better.
    row: [String; 2],
}

/// Runs all cases, a line each; returns how many miss.
pub(crate) fn run(workspace: &Metadata, only: &[String]) -> Result<usize> {
    let folder = workspace.workspace_root.as_std_path().join("xtask/advise");
    let room = workspace.target_directory.as_std_path().join("advise");
    fs::create_dir_all(&room).with_context(|| room.display().to_string())?;
    let program = PAGELAB.of_this_tree(workspace, &room)?;
    let mut missed = 0;
    for case in cases(&folder)? {
        if only.is_empty() || only.contains(&case.name) {
            let place = room.join(&case.name);
            // Results of another program say nothing.
            if place.exists() {
                fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
            }
            let (line, is_right) = judged(&program, &case, &place).with_context(|| case.name.clone())?;
            println!("{line}");
            missed += usize::from(!is_right);
        }
    }
    Ok(missed)
}

/// The cases, by name. Each file begins with `# captures FROM-TO, row CLASS/PART`, and its machine lies beside it.
fn cases(folder: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let file = entry?.path();
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if file.extension().is_none_or(|suffix| suffix != "toml") || name.ends_with("-machine") {
            continue;
        }
        let text = fs::read_to_string(&file)?;
        let head = text.lines().next().unwrap_or_default();
        let said = head.strip_prefix("# captures ").and_then(|rest| rest.split_once(", row "));
        let (moments, row) =
            said.with_context(|| format!("{}: expected # captures FROM-TO, row ROW", file.display()))?;
        let (from, to) = moments.split_once('-').context("expected FROM-TO")?;
        let (class, part) = row.split_once('/').context("expected CLASS/PART")?;
        cases.push(Case {
            machine: folder.join(format!("{name}-machine.toml")),
            moments: [from.parse()?, to.parse()?],
            row: [class.to_owned(), part.to_owned()],
            name,
            file,
        });
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(cases)
}

/// The line of a case, and whether the advice is right.
fn judged(program: &Path, case: &Case, place: &Path) -> Result<(String, bool)> {
    captures(program, case, place)?;
    let advice = place.join("advice");
    let output = Command::new(program)
        .args(["advise", "--format", "json", "--progress", "json", "--from"])
        .arg(place.join("captures"))
        .arg("--machine")
        .arg(&case.machine)
        .arg("-o")
        .arg(&advice)
        .output()?;
    ensure!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout)?;
    let named = named(&said);
    let truth = truth(program, case, place, &said)?;
    let best = truth.first().filter(|(_, gain)| *gain >= MATERIAL);
    let (is_right, best) = match best {
        None => (named.is_empty(), "nothing".to_owned()),
        Some((setting, gain)) => {
            let as_good = truth.iter().filter(|(_, other)| *other >= gain - AS_GOOD);
            let is_named = as_good.clone().any(|(setting, _)| named.contains(setting));
            (is_named, format!("{setting} ({gain:.0} % better)"))
        }
    };
    let said_of = format!(
        "profile {}, {} % of counters",
        said["profile"]["profile"].as_str().unwrap_or("?"),
        whole(&said["replay"]["share"])
    );
    let verdict = if is_right { "right" } else { "WRONG" };
    let named = if named.is_empty() { "nothing".to_owned() } else { named.join(", ") };
    Ok((format!("{:<12} {verdict}  best {best}; named {named}; {said_of}", case.name), is_right))
}

fn whole(number: &Value) -> String {
    format!("{:.0}", number.as_f64().unwrap_or(0.0))
}

/// Runs the service once, and writes two moments of it as captures.
fn captures(program: &Path, case: &Case, place: &Path) -> Result<()> {
    let result = place.join("run");
    service(program, case, &["--sample", "1s", "--seeds", "1"], &result)?;
    let records = records(&result)?;
    let series = records.iter().map(|record| &record["series"]).find(|series| series.is_object());
    let series = series.context("the run has no samples")?;
    let folder = place.join("captures");
    fs::create_dir_all(&folder)?;
    for (name, at) in ["before", "after"].into_iter().zip(case.moments) {
        let (seconds, values) = moment(series, at)?;
        let free = values.get("nr_free_pages").context("no free memory in the samples")?;
        let others = values.iter().filter(|(name, _)| *name != "nr_free_pages");
        let lines: String = others.map(|(name, value)| format!("{name} {value}\n")).collect();
        fs::write(folder.join(format!("vmstat.{name}")), format!("nr_free_pages {free}\n{lines}"))?;
        fs::write(folder.join(format!("uptime.{name}")), format!("{seconds:.2} 0.00\n"))?;
    }
    Ok(())
}

/// Counters and gauges at the first sample not before a moment, summed over nodes, as /proc/vmstat has them.
fn moment(series: &Value, at: f64) -> Result<(f64, BTreeMap<String, i64>)> {
    let columns: Vec<&str> = list(&series["columns"])?.iter().filter_map(Value::as_str).collect();
    let mut sums = vec![0; columns.len()];
    let mut micros = 0;
    for row in list(&series["rows"])? {
        let row: Vec<i64> = list(row)?.iter().filter_map(Value::as_i64).collect();
        let Some((elapsed, moved)) = row.split_first() else { continue };
        micros += elapsed;
        // Rows leave out what did not move at their end.
        for (sum, moved) in sums.iter_mut().zip(moved) {
            *sum += moved;
        }
        if micros as f64 / 1e6 >= at {
            break;
        }
    }
    let still = series["still"].as_object().context("no values that stood still")?;
    let still = still.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_i64()?)));
    let mut values = BTreeMap::new();
    for (name, value) in columns.into_iter().zip(sums).chain(still).filter(|(name, _)| !name.starts_with("sim_")) {
        let parts: Vec<&str> = name.split('/').collect();
        if let [name] | [_, name] = parts[..] {
            *values.entry(name.to_owned()).or_insert(0) += value;
        }
    }
    Ok((micros as f64 / 1e6, values))
}

fn list(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().context("expected a list")
}

/// The records of a result.
fn records(result: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(result.join("result.jsonl"))?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// Runs the service into a result directory.
fn service(program: &Path, case: &Case, options: &[&str], result: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command.arg("run").arg(&case.file).arg("--machine").arg(&case.machine).arg("--quiet");
    let output = command.args(options).arg("-o").arg(result).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The settings that the advice names, with their values.
fn named(said: &Value) -> Vec<String> {
    let confirmed = said["named"].as_array().into_iter().flatten();
    confirmed.filter_map(|choice| Some(format!("{}={}", choice["name"].as_str()?, choice["value"].as_str()?))).collect()
}

/// Each setting that was tried, with the per cent by which the service itself gets better, the best first.
fn truth(program: &Path, case: &Case, place: &Path, said: &Value) -> Result<Vec<(String, f64)>> {
    let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for choice in said["screened"].as_array().into_iter().flatten().map(|screened| &screened["choice"]) {
        if let (Some(name), Some(value)) = (choice["name"].as_str(), choice["value"].as_str()) {
            by_name.entry(name).or_default().push(value);
        }
    }
    let without = place.join("truth");
    service(program, case, &["--seeds", SEEDS], &without)?;
    let without = values(&without, case)?;
    let mut truth = Vec::new();
    for (name, tried) in by_name {
        let result = place.join(format!("truth-{}", name.replace('/', "-")));
        service(program, case, &["--seeds", SEEDS, "--set", &format!("{name}={}", tried.join(","))], &result)?;
        let with = values(&result, case)?;
        for value in tried {
            let logs = with.iter().filter(|of| of.params.get(name).is_some_and(|own| own == value)).filter_map(|of| {
                let old = without.iter().find(|old| old.seed == of.seed)?;
                Some(100.0 * (1.0 - of.value / old.value))
            });
            let logs: Vec<f64> = logs.collect();
            truth.push((format!("{name}={value}"), logs.iter().sum::<f64>() / logs.len().max(1) as f64));
        }
    }
    truth.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(truth)
}

/// The row of a run.
struct Of {
    seed: u64,
    params: BTreeMap<String, String>,
    value: f64,
}

fn values(result: &Path, case: &Case) -> Result<Vec<Of>> {
    let mut all = Vec::new();
    for record in records(result)? {
        let metrics = record["measured"]["metrics"].as_array();
        let is_it = |metric: &&Value| {
            metric["name"] == "latency_us" && metric["class"] == *case.row[0] && metric["part"] == *case.row[1]
        };
        let Some(metric) = metrics.into_iter().flatten().find(is_it) else { continue };
        all.push(Of {
            seed: record["key"]["seed"].as_u64().context("a seed")?,
            params: serde_json::from_value(record["key"]["params"].clone())?,
            value: metric["samples"][0].as_f64().context("a value")?,
        });
    }
    ensure!(!all.is_empty(), "{}: no row {}", result.display(), case.row.join("/"));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_sums_nodes_and_leaves_zones_and_what_no_kernel_has_out() {
        let series = serde_json::json!({
            "columns": ["node0/nr_free_pages", "pgfault", "sim_steps"],
            "still": { "node1/nr_free_pages": 5, "node0/DMA/free/0": 1 },
            "rows": [[0, 9, 0, 1], [1_000_000, -2, 40, 1], [500_000, -3]],
        });
        let expected =
            |free, faults| BTreeMap::from([("nr_free_pages".to_owned(), free), ("pgfault".to_owned(), faults)]);
        assert_eq!(moment(&series, 0.4).unwrap(), (1.0, expected(12, 40)));
        assert_eq!(moment(&series, 9.0).unwrap(), (1.5, expected(9, 40)), "the last one");
        assert!(moment(&Value::Null, 0.0).is_err());
    }
}
