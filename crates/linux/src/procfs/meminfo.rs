//! /proc/meminfo: a name and a size, a line each.

use std::collections::BTreeMap;

use super::{ProcError, lines::Cursor};

/// Every line by the kernel's name: KiB where the kernel prints "kB", else a count (HugePages_Total and the like).
pub fn parse(text: &str) -> Result<BTreeMap<String, u64>, ProcError> {
    let mut sizes = BTreeMap::new();
    for line in Cursor::new("meminfo", text)? {
        let form = || line.wrong("\"NAME: NUMBER kB\"");
        let (name, value) = line.text.split_once(':').ok_or_else(form)?;
        let mut words = value.split_whitespace();
        let value = line.number(words.next().ok_or_else(form)?, name)?;
        if !matches!((words.next(), words.next()), (None | Some("kB"), None)) {
            return Err(form());
        }
        sizes.insert(name.to_owned(), value);
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts() {
        let sizes =
            parse("MemTotal:        2028084 kB\nActive(anon):       1760 kB\nHugePages_Free:        3\n").unwrap();
        assert_eq!((sizes["MemTotal"], sizes["Active(anon)"], sizes["HugePages_Free"]), (2_028_084, 1760, 3));
        for text in ["MemTotal 1 kB\n", "MemTotal:\n", "MemTotal: 1 MB\n", "MemTotal: 1 kB 2\n", "MemTotal: 1 k"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
