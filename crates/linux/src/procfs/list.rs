//! Short texts of one line: lists of CPUs, distances, numbers, and bracketed choices.

use units::CpuId;

use super::{ProcError, lines::Line};

/// More CPUs than any Linux is built for; a list that names more is damaged. (NR_CPUS is at most 8192 on x86-64, v6.1.)
const CPUS_MAX: u32 = 1 << 16;

/// A CPU list such as "0-1,4", as `%*pbl` prints it; empty for a node without CPUs.
pub fn cpus(file: &str, text: &str) -> Result<Vec<CpuId>, ProcError> {
    let line = Line::only(file, text);
    let mut cpus = Vec::new();
    if line.text.is_empty() {
        return Ok(cpus);
    }
    for range in line.text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (line.small(first, "a CPU")?, line.small(last, "a CPU")?);
        let ascending = cpus.last().is_none_or(|CpuId(before)| *before < first);
        if !ascending || first > last || last >= CPUS_MAX {
            return Err(line.wrong_at("ascending CPUs", range));
        }
        cpus.extend((first..=last).map(CpuId));
    }
    Ok(cpus)
}

/// Distances from one node to every online node, in tenths of the distance to itself
/// (/sys/devices/system/node/nodeN/distance).
pub fn distances(file: &str, text: &str) -> Result<Vec<u32>, ProcError> {
    let line = Line::only(file, text);
    let distances = line.text.split_whitespace().map(|word| line.small(word, "a distance"));
    let distances = distances.collect::<Result<Vec<_>, _>>()?;
    if distances.is_empty() { Err(line.wrong("distances")) } else { Ok(distances) }
}

/// The chosen word of a text such as "always \[madvise\] never".
pub fn choice<'a>(file: &'a str, text: &'a str) -> Result<&'a str, ProcError> {
    let line = Line::only(file, text);
    let bracketed = |word: &'a str| word.strip_prefix('[')?.strip_suffix(']').filter(|word| !word.is_empty());
    let mut chosen = line.text.split_whitespace().filter_map(bracketed);
    match (chosen.next(), chosen.next()) {
        (Some(word), None) => Ok(word),
        _ => Err(line.wrong("one word in brackets")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        let of = |text| cpus("node/node0/cpulist", text).map(|cpus| cpus.into_iter().map(|cpu| cpu.0).collect());
        let parsed: Vec<Vec<u32>> = ["0-1,4\n", "", "\n", "7"].into_iter().map(|text| of(text).unwrap()).collect();
        assert_eq!(parsed, [vec![0, 1, 4], vec![], vec![], vec![7]]);
        for text in ["0-", "-1", "1-0", "0,0", "0-4294967295", "0;1", "0, 1", "99999999999"] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.starts_with("node/node0/cpulist, line 1: expected a"), "{error}");
        }
    }

    #[test]
    fn distances_of_a_node() {
        assert_eq!(distances("d", "10 20\n").unwrap(), [10, 20]);
        assert!(distances("d", "10 x").is_err());
        assert!(distances("d", "\n").is_err());
    }

    #[test]
    fn the_bracketed_choice() {
        assert_eq!(choice("t", "always [madvise] never\n").unwrap(), "madvise");
        for text in ["", "always madvise never", "[always] [never]", "always [madv", "[]"] {
            assert!(choice("t", text).is_err(), "{text}");
        }
    }
}
