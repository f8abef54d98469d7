//! A table of a mail, and the runs that the tables of a mail have in common.

use report::{Better, Metric};

use crate::mmtests::{found::Found, logs::Numbers, sysstate::Around};

/// Names of tests whose numbers are the rows of a mail, or of LKP.
pub(super) const LKP: &str = "lkp";
pub(super) const TABLE: &str = "table";
pub(in crate::mmtests) const TESTS: [&str; 2] = [LKP, TABLE];

pub(super) fn found(run: &str, test: &str, runs: Vec<Vec<Metric>>) -> Found {
    let numbers = Some(vec![Numbers { group: None, runs }]);
    Found { run: run.to_owned(), test: test.to_owned(), is_pair: false, numbers, around: Around::default() }
}

/// A table of a mail, with a column for each run.
pub(super) struct Sheet {
    pub(super) title: Option<String>,
    pub(super) names: Vec<String>,
    pub(super) columns: Vec<Vec<Metric>>,
}

impl Sheet {
    /// Has the table a row of this name?
    pub(super) fn has(&self, name: &str, part: &str) -> bool {
        let rows = self.columns.first();
        rows.is_some_and(|rows| rows.iter().any(|row| row.name == name && row.part.as_deref() == Some(part)))
    }
}

/// The runs of all tables. Several tables are told apart by their titles.
pub(super) fn found_in(test: &str, sheets: Vec<Sheet>) -> Vec<Found> {
    let mut runs: Vec<(String, Vec<Numbers>)> = Vec::new();
    let mut titles: Vec<String> = Vec::new();
    let are_several = sheets.len() > 1;
    for Sheet { title, names, columns } in sheets {
        titles.push(new_name(&titles, title.unwrap_or_else(|| TABLE.to_owned())));
        let group = titles.last().filter(|_| are_several).cloned();
        let mut heads: Vec<String> = Vec::new();
        for (name, column) in names.into_iter().zip(columns) {
            let name = new_name(&heads, name);
            heads.push(name.clone());
            let numbers = Numbers { group: group.clone(), runs: vec![column] };
            match runs.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => all.push(numbers),
                None => runs.push((name, vec![numbers])),
            }
        }
    }
    let found = |(run, numbers)| Found {
        run,
        test: test.to_owned(),
        is_pair: false,
        numbers: Some(numbers),
        around: Around::default(),
    };
    runs.into_iter().map(found).collect()
}

/// The name, with a number behind it if it is known already.
fn new_name(known: &[String], name: String) -> String {
    let numbered = |number: usize| if number == 1 { name.clone() } else { format!("{name} ({number})") };
    (1..=known.len() + 1).map(numbered).find(|name| !known.contains(name)).unwrap_or(name)
}

/// A row: `name` is the table that it stands in, `part` what it is called there.
pub(super) fn metric(name: &str, part: &str, better: Better, sample: f64) -> Metric {
    let (name, part, unit) = (name.to_owned(), Some(part.to_owned()), "as printed".to_owned());
    Metric { name, class: None, part, unit, better, samples: vec![sample] }
}

/// A number as mails have it: `1.2e+08`, `950000`.
pub(super) fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}
