//! CPU lists as the kernel writes them: `0-1,4` (Documentation/admin-guide/cputopology.rst).

use linux::procfs;
use units::CpuId;

/// The CPUs of a list; none for an empty one. The error says what was expected.
pub(crate) fn parse(text: &str) -> Result<Vec<CpuId>, String> {
    let expected = |_| format!("expected CPUs in ascending order such as \"0-1,4\", found {text:?}");
    procfs::list::cpus("cpus", text).map_err(expected)
}

/// The list of these CPUs, which are in ascending order.
pub(super) fn print(cpus: &[CpuId]) -> String {
    let runs = cpus.chunk_by(|before, after| before.0 + 1 == after.0);
    let print = |run: &[CpuId]| match run {
        [cpu] => cpu.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    };
    runs.map(print).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_round_trip() {
        for (list, cpus) in [("", vec![]), ("0", vec![0]), ("0-1,4", vec![0, 1, 4]), ("2,4,6-8", vec![2, 4, 6, 7, 8])] {
            let cpus: Vec<_> = cpus.into_iter().map(CpuId).collect();
            assert_eq!(parse(list).as_ref(), Ok(&cpus));
            assert_eq!(print(&cpus), list);
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for list in [",", "0,", "1-0", "0-", "-1", "a", "0 1", "0-1-2", "0,0", "1,0", "0-4000000000"] {
            let error = parse(list).expect_err(list);
            assert_eq!(error, format!("expected CPUs in ascending order such as \"0-1,4\", found {list:?}"));
        }
    }
}
