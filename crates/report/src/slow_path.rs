//! The log of slow-path operations of a simulated run: each stretch of an operation that the allocator's fast path could not
//! serve or that slept, and each stretch of work of a kernel thread.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The log: the longest operations in detail, and totals over all operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowPath {
    /// Number and time of all operations by kind.
    pub totals: BTreeMap<String, Total>,
    /// Names of the kinds that [`Entry::what`] refers to.
    pub what: Vec<String>,
    /// Names of the causes that [`Entry::parts`] refers to.
    pub causes: Vec<String>,
    /// The longest operations, ordered by start. Among operations of equal length, the earlier end is kept.
    pub entries: Vec<Entry>,
}

/// Number and summed time of the operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// Number of operations.
    pub count: u64,
    /// Summed time, in picoseconds.
    pub ps: u64,
}

/// One operation; in a result line, an array of its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct Entry {
    /// When the operation left the fast path, in picoseconds since the start of the run; for a kernel thread, when it began
    /// to work.
    pub start_ps: u64,
    /// The number of the task, in the order in which tasks were made.
    pub task: u32,
    /// The CPU that the task was on at the start.
    pub cpu: u32,
    /// The kind of operation, as an index of [`SlowPath::what`].
    pub what: u32,
    /// The virtual page number of a fault.
    pub vpn: Option<u64>,
    /// The order of the requested block, if memory was requested.
    pub order: Option<u8>,
    /// Time by cause: index of [`SlowPath::causes`], and picoseconds. The parts add up to the whole time.
    pub parts: Vec<(u32, u64)>,
}

/// The fields of an [`Entry`], in order.
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
    /// The whole time of the operation, in picoseconds.
    pub fn ps(&self) -> u64 {
        self.parts.iter().fold(0, |sum, (_, ps)| sum.saturating_add(*ps))
    }
}

impl SlowPath {
    /// Number of all operations, whether or not they were kept.
    pub fn count(&self) -> u64 {
        self.totals.values().fold(0, |sum, total| sum.saturating_add(total.count))
    }

    /// The name of an entry's kind; a question mark if the name is missing.
    pub fn name<'a>(&'a self, entry: &Entry) -> &'a str {
        self.what.get(entry.what as usize).map_or("?", String::as_str)
    }

    /// The entry's time by cause, the longest first.
    pub fn parts<'a>(&'a self, entry: &Entry) -> Vec<(&'a str, u64)> {
        let name = |cause: u32| self.causes.get(cause as usize).map_or("?", String::as_str);
        let mut parts: Vec<_> = entry.parts.iter().map(|(cause, ps)| (name(*cause), *ps)).collect();
        // Equal times stay in the order of their causes.
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
