//! Two results, cell by cell: what a rerun must repeat, field by field.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

/// What was measured, by the key of the cell.
pub(super) type Cells = BTreeMap<String, Value>;

/// How a cell of this tree is to that of the base.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// Everything that the base has is the same here.
    None {
        /// Fields that the base has not.
        new: Vec<String>,
    },
    /// These fields are not.
    In(Vec<String>),
}

/// The cells of a result file. The program's hash is no part of a key: it differs.
pub(super) fn cells(lines: &str) -> Result<Cells> {
    let mut cells = Cells::new();
    for line in lines.lines() {
        let mut record: Value = serde_json::from_str(line).context("a line of a result")?;
        if record["record"] != "cell" {
            continue;
        }
        let key = &record["key"];
        let text = |name: &str| key[name].as_str().unwrap_or_default().to_owned();
        let group = text("group");
        let of_group = if group.is_empty() { group } else { format!("{group} ") };
        let name = format!("{of_group}{} {} seed {}", text("kernel"), text("case"), key["seed"]);
        let mut measured = record["measured"].take();
        // Rules as text: they have other names when one becomes several, and do the same.
        if let Some(detail) = measured["detail"].as_object_mut() {
            detail.remove("variant");
        }
        cells.insert(name, measured);
    }
    Ok(cells)
}

/// Every cell of either side.
pub(super) fn compare(before: &Cells, after: &Cells) -> Vec<(String, Difference)> {
    let gone = |cell: &String| Difference::In(vec![format!("{cell} is gone")]);
    let mut found = Vec::new();
    for (cell, old) in before {
        let difference = after.get(cell).map_or_else(|| gone(cell), |new| of(old, new));
        found.push((cell.clone(), difference));
    }
    let added = after.keys().filter(|cell| !before.contains_key(*cell));
    found.extend(added.map(|cell| (cell.clone(), Difference::In(vec!["the base has no such cell".to_owned()]))));
    found
}

fn of(old: &Value, new: &Value) -> Difference {
    let (mut differ, mut added) = (Vec::new(), Vec::new());
    walk("", old, new, &mut differ, &mut added);
    if differ.is_empty() { Difference::None { new: added } } else { Difference::In(differ) }
}

/// Objects are compared by their fields, all else whole.
fn walk(path: &str, old: &Value, new: &Value, differ: &mut Vec<String>, added: &mut Vec<String>) {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        if old != new {
            differ.push(path.to_owned());
        }
        return;
    };
    let missing = |of: &Map<String, Value>, key: &String| !of.contains_key(key);
    for (key, value) in old {
        let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match new.get(key) {
            Some(other) => walk(&inner, value, other, differ, added),
            None => differ.push(format!("{inner} is gone")),
        }
    }
    // A counter that was 0 everywhere is no new field: maps of the result leave it out.
    added.extend(new.keys().filter(|key| missing(old, key)).map(|key| format!("{path}.{key}")));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(case: &str, measured: &Value) -> String {
        let key = json!({"kernel": "v6.1", "case": case, "seed": 1, "program": "another in each tree"});
        json!({"record": "cell", "key": key, "measured": measured, "run": {"date": "another"}}).to_string()
    }

    #[test]
    fn a_field_that_is_new_is_no_difference() {
        let before = cells(&line("a", &json!({"metrics": [1.5], "detail": {"run_hash": "ab"}}))).unwrap();
        let after = cells(&line("a", &json!({"metrics": [1.5], "detail": {"run_hash": "ab", "log": 3}}))).unwrap();
        let new = vec!["detail.log".to_owned()];
        assert_eq!(compare(&before, &after), [("v6.1 a seed 1".to_owned(), Difference::None { new })]);
        let lost = vec!["detail.log is gone".to_owned()];
        assert_eq!(compare(&after, &before), [("v6.1 a seed 1".to_owned(), Difference::In(lost))]);
    }

    #[test]
    fn each_field_that_differs_is_named() {
        let before = json!({"metrics": [1.5], "counters": {"pgfault": 3, "pgfree": 4}});
        let after = json!({"metrics": [1.25], "counters": {"pgfault": 2, "pgfree": 4}});
        assert_eq!(of(&before, &after), Difference::In(vec!["counters.pgfault".to_owned(), "metrics".to_owned()]));
    }

    #[test]
    fn a_cell_that_is_gone_or_new_differs() {
        let (one, other) = (cells(&line("a", &json!({}))).unwrap(), cells(&line("b", &json!({}))).unwrap());
        assert!(compare(&one, &other).iter().all(|(_, difference)| matches!(difference, Difference::In(_))));
        assert_eq!(compare(&one, &other).len(), 2);
    }
}
