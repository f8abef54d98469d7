//! Reads a published series from its files. Every mistake is one message with the file and the line.

use std::{collections::BTreeMap, path::Path};

use serde::de::DeserializeOwned;

use super::{
    Printed, Published, PublishedError, PublishedSource,
    claim::Claims,
    rows::{Picked, Rows},
};
use crate::{better::Better, names::brief};

/// The columns of a table of published values, in this order.
const COLUMNS: [&str; 6] = ["experiment", "metric", "case", "kernel", "value", "better"];

impl Published {
    /// Reads a series from its files (each a path for messages, and the text): `source.toml`, `rows.toml`,
    /// `claims.toml`, and tables as CSV, in the order of their values. Other files are ignored.
    pub fn parse(name: &str, files: &[(String, String)]) -> Result<Self, PublishedError> {
        let mut printed = Vec::new();
        let is_table = |file: &str| Path::new(file).extension().is_some_and(|extension| extension == "csv");
        for (file, text) in files.iter().filter(|(file, _)| is_table(file)) {
            printed.extend(table(file, text)?);
        }
        let mut places = BTreeMap::new();
        for (place, value) in printed.iter().enumerate() {
            if places.insert(value.place().map(str::to_owned), place).is_some() {
                let message = format!("two values of {}", value.place().join(" "));
                return Err(PublishedError { file: format!("published/{name}"), line: None, message });
            }
        }
        let (_, source): (_, PublishedSource) = toml_file(name, files, "source.toml")?;
        let reasons = source.page.clone().unwrap_or_else(|| format!("published/{name}/rows.toml"));
        let (file, rows) = toml_file(name, files, "rows.toml")?;
        pick_something(file, &rows, &printed)?;
        let (file, claims): (_, Claims) = toml_file(name, files, "claims.toml")?;
        if let Some(message) = claims.problem() {
            return Err(PublishedError { file: file.to_owned(), line: None, message });
        }
        let (name, claims_file, claims) = (name.to_owned(), file.to_owned(), claims.claims);
        let published = Self { name, source, reasons, printed, places, rows, claims, claims_file };
        published.check_columns()?;
        Ok(published)
    }
}

/// Rejects entries of `rows.toml` that match no row: a misspelt name would otherwise go unseen.
fn pick_something(file: &str, rows: &Rows, printed: &[Printed]) -> Result<(), PublishedError> {
    let kinds = [
        ("unscored", &rows.unscored),
        ("fitted", &rows.fitted),
        ("no_sample", &rows.no_sample),
        ("wrong", &rows.wrong),
    ];
    for (kind, picked) in kinds {
        let idle = |picked: &Picked| !printed.iter().any(|value| picked.has(value.place()));
        if let Some(place) = picked.iter().position(idle) {
            let message = format!("[[{kind}]] number {} picks no value of the tables", place + 1);
            return Err(PublishedError { file: file.to_owned(), line: None, message });
        }
    }
    Ok(())
}

/// Parses the file of this name; its content, if the file exists.
fn toml_file<'a, T: DeserializeOwned>(
    name: &str,
    files: &'a [(String, String)],
    wanted: &str,
) -> Result<(&'a str, T), PublishedError> {
    let found = files.iter().find(|(file, _)| file.rsplit('/').next() == Some(wanted));
    let Some((file, text)) = found else {
        let file = format!("published/{name}/{wanted}");
        return Err(PublishedError { file, line: None, message: "missing".to_owned() });
    };
    let read = toml::from_str(text).map_err(|error| {
        let start = error.span().map(|span| span.start);
        let line = start.map(|start| text.bytes().take(start).filter(|&byte| byte == b'\n').count() + 1);
        let message = brief(error.message().trim_end().replace('\n', "; "));
        PublishedError { file: file.clone(), line, message }
    })?;
    Ok((file, read))
}

/// The values of one table of the series.
fn table(file: &str, text: &str) -> Result<Vec<Printed>, PublishedError> {
    let error = |line: Option<u64>, message: String| PublishedError {
        file: file.to_owned(),
        line: line.and_then(|line| usize::try_from(line).ok()),
        message,
    };
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(|broken| error(Some(1), brief(broken)))?;
    if header.iter().ne(COLUMNS) {
        let found = header.iter().collect::<Vec<_>>().join(",");
        return Err(error(Some(1), format!("expected the columns {}, found {}", COLUMNS.join(","), brief(found))));
    }
    let mut printed = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|broken| {
            let line = broken.position().map(csv::Position::line);
            error(line, brief(broken))
        })?;
        let line = record.position().map(csv::Position::line);
        let field = |at: usize| record[at].to_owned();
        let number: f64 = record[4].parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| {
            error(line, format!("value: expected a number, found {}", brief(format_args!("{:?}", &record[4]))))
        })?;
        let better = match &record[5] {
            "lower" => Better::Lower,
            "higher" => Better::Higher,
            "none" => Better::None,
            found => {
                let found = brief(format_args!("{found:?}"));
                return Err(error(line, format!("better: expected lower, higher or none, found {found}")));
            }
        };
        let [experiment, metric, case, kernel, digits] = [0, 1, 2, 3, 4].map(field);
        printed.push(Printed { experiment, metric, case, kernel, digits, number, better });
    }
    Ok(printed)
}
