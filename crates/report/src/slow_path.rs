//! The log of slow-path operations of a simulated run: each stretch of an operation that the allocator's fast path could not
//! serve or that slept, and each stretch of work of a kernel thread.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The log: the longest operations, and all of them in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowPath {
    /// All there were, by what they were.
    pub totals: BTreeMap<String, Total>,
    /// What [`Entry::what`] refers to.
    pub what: Vec<String>,
    /// What [`Entry::parts`] refer to.
    pub causes: Vec<String>,
    /// The longest of them (of equal ones, those that ended first), by start.
    pub entries: Vec<Entry>,
}

/// How many there were of a kind, and how long they took together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// How many.
    pub count: u64,
    /// Their time, in picoseconds.
    pub ps: u64,
}

/// One operation; in a result line, an array of its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct Entry {
    /// When it left the fast path, in picoseconds since the start of the run; of a kernel thread, when it began to work.
    pub start_ps: u64,
    /// The number of the task, in the order in which tasks were made.
    pub task: u32,
    /// The CPU that it was on then.
    pub cpu: u32,
    /// What it was, as a position in [`SlowPath::what`].
    pub what: u32,
    /// The page of a fault, by number.
    pub vpn: Option<u64>,
    /// The order that was asked for, where memory was.
    pub order: Option<u8>,
    /// Where its time went: positions in [`SlowPath::causes`], and picoseconds. The parts are all of it.
    pub parts: Vec<(u32, u64)>,
}

/// An entry in the order of its fields.
#[derive(Serialize, Deserialize)]
struct Row(u64, u32, u32, u32, Option<u64>, Option<u8>, Vec<(u32, u64)>);

impl From<Row> for Entry {
    fn from(Row(start_ps, task, cpu, what, vpn, order, parts): Row) -> Self {
        Self { start_ps, task, cpu, what, vpn, order, parts }
    }
}

impl From<Entry> for Row {
    fn from(Entry { start_ps, task, cpu, what, vpn, order, parts }: Entry) -> Self {
        Self(start_ps, task, cpu, what, vpn, order, parts)
    }
}

impl Entry {
    /// How long it took, in picoseconds.
    pub fn ps(&self) -> u64 {
        self.parts.iter().fold(0, |sum, (_, ps)| sum.saturating_add(*ps))
    }
}

impl SlowPath {
    /// All operations that there were, kept or not.
    pub fn count(&self) -> u64 {
        self.totals.values().fold(0, |sum, total| sum.saturating_add(total.count))
    }

    /// What an entry was, in words; a name that is missing is a question mark.
    pub fn name<'a>(&'a self, entry: &Entry) -> &'a str {
        self.what.get(entry.what as usize).map_or("?", String::as_str)
    }

    /// Where the time of an entry went, the most first.
    pub fn parts<'a>(&'a self, entry: &Entry) -> Vec<(&'a str, u64)> {
        let name = |cause: u32| self.causes.get(cause as usize).map_or("?", String::as_str);
        let mut parts: Vec<_> = entry.parts.iter().map(|(cause, ps)| (name(*cause), *ps)).collect();
        // Equal ones stay in the order of their causes.
        parts.sort_by_key(|(_, ps)| std::cmp::Reverse(*ps));
        parts
    }

    /// The longest entries, the longest first.
    pub fn longest(&self, count: usize) -> Vec<&Entry> {
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.ps()));
        entries.truncate(count);
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> SlowPath {
        let entry = |start_ps, parts: &[(u32, u64)]| Entry {
            start_ps,
            task: 3,
            cpu: 1,
            what: 0,
            vpn: Some(512),
            order: Some(9),
            parts: parts.to_vec(),
        };
        SlowPath {
            totals: [("fault".to_owned(), Total { count: 9, ps: 70 })].into(),
            what: vec!["fault".to_owned()],
            causes: vec!["copy".to_owned(), "migrate".to_owned()],
            entries: vec![entry(5, &[(0, 3), (1, 4)]), entry(9, &[(1, 30)])],
        }
    }

    #[test]
    fn an_entry_is_an_array_in_a_line() {
        let json = serde_json::to_string(&log()).unwrap();
        assert!(json.ends_with(r#""entries":[[5,3,1,0,512,9,[[0,3],[1,4]]],[9,3,1,0,512,9,[[1,30]]]]}"#), "{json}");
        assert_eq!(serde_json::from_str::<SlowPath>(&json).unwrap(), log());
    }

    #[test]
    fn the_longest_come_first_and_so_do_their_causes() {
        let log = log();
        assert_eq!(log.count(), 9);
        let longest = log.longest(7);
        assert_eq!(longest.iter().map(|entry| entry.ps()).collect::<Vec<_>>(), [30, 7]);
        assert_eq!(log.longest(1).len(), 1);
        assert_eq!(log.parts(longest[1]), [("migrate", 4), ("copy", 3)]);
        assert_eq!(log.name(longest[0]), "fault");
    }
}
