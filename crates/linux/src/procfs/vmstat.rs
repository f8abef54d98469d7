//! /proc/vmstat: a counter's name and its value, a line each.

use std::collections::BTreeMap;

use super::{ProcError, lines::Cursor};

/// Every counter by the kernel's name; the unit is the counter's own.
pub fn parse(text: &str) -> Result<BTreeMap<String, u64>, ProcError> {
    let mut counters = BTreeMap::new();
    for line in Cursor::new("vmstat", text)? {
        // 4.17 to 4.19 have a counter whose name is empty (NR_INDIRECTLY_RECLAIMABLE_BYTES, mm/vmstat.c, v4.19).
        if line.text.trim().parse::<u64>().is_ok() {
            continue;
        }
        let (name, value) = line.text.split_once(' ').ok_or_else(|| line.wrong("a name and a number"))?;
        if counters.insert(name.to_owned(), line.number(value, name)?).is_some() {
            return Err(line.wrong_at("a new name", name));
        }
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_need_not_be_known() {
        let counters = parse("nr_free_pages 491632\nsome_new_counter 7\n").unwrap();
        assert_eq!(counters["nr_free_pages"], 491_632);
        assert_eq!(counters["some_new_counter"], 7);
    }

    #[test]
    fn damaged_lines_are_errors() {
        for (text, error) in [
            ("pgfault 1\npgmajfault\n", "vmstat, line 2: expected a name and a number, found \"pgmajfault\""),
            ("pgfault 1\npgmajfault 12", "vmstat, line 2: expected a line that ends, found \"pgmajfault 12\""),
            ("pgfault -1\n", "vmstat, line 1: expected pgfault, a number, found \"-1\""),
            ("pgfault 1\npgfault 2\n", "vmstat, line 2: expected a new name, found \"pgfault\""),
            ("", "vmstat, line 1: expected a line that ends, found nothing"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), error);
        }
    }
}
