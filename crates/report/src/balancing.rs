//! Table rows computed from the counters of automatic NUMA balancing: its cost by mmtests' formula, and hint faults per marked
//! entry.

use std::collections::BTreeMap;

/// The cost of NUMA balancing in millions of machine words touched: for each updated entry, hint fault and migrated page.
/// mmtests' formula leaves out the copy of a page, though it names it (gormanm/mmtests, vmstat monitor, read for behaviour).
pub(crate) fn cost(get: impl Fn(&str) -> f64) -> f64 {
    let words = 7.0 * get("numa_pte_updates") + 5000.0 * get("numa_hint_faults") + 19.0 * get("numa_pages_migrated");
    words / 1e6
}

/// Hint faults per page table entry that the scan marked; none where nothing was marked. Kernels that count huge entries apart
/// (`numa_huge_pte_updates`, 3.13) say how many marks there were. For other kernels 512 updates are taken as one mark of a
/// huge page, so a kernel that marks base pages shows up to 512.
pub(crate) fn faults_per_mark(get: impl Fn(&str) -> f64) -> Option<f64> {
    let (updates, huge) = (get("numa_pte_updates"), get("numa_huge_pte_updates"));
    let marks = if huge > 0.0 { updates - 511.0 * huge } else { updates / 512.0 };
    (marks > 0.0).then(|| get("numa_hint_faults") / marks)
}

/// Computes the value of a row from counters, if the counters it needs are there.
type Derived = fn(&BTreeMap<String, i64>) -> Option<f64>;

/// Rows computed from counters: their names, units and formulas.
pub(crate) const DERIVED: [(&str, &str, Derived); 2] = [
    ("numa_cost_million_words", "million words", |counters| {
        counters.contains_key("numa_pte_updates").then(|| cost(|name| of(counters, name)))
    }),
    ("numa_hint_faults_per_mark", "faults per mark", |counters| faults_per_mark(|name| of(counters, name))),
];

fn of(counters: &BTreeMap<String, i64>, name: &str) -> f64 {
    counters.get(name).map_or(0.0, |moved| *moved as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_and_faults_follow_from_counts() {
        let counters = |of: &[(&str, i64)]| of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let of_3_9 = counters(&[("numa_pte_updates", 5120), ("numa_hint_faults", 22), ("numa_pages_migrated", 512)]);
        let [cost, per_mark] = DERIVED.map(|(_, _, value)| value(&of_3_9).unwrap());
        assert!((cost - (7.0 * 5120.0 + 5000.0 * 22.0 + 19.0 * 512.0) / 1e6).abs() < 1e-12);
        assert!((per_mark - 2.2).abs() < 1e-12, "22 faults at ten huge pages");
        // Two huge pages and a hundred base pages.
        let newer = counters(&[("numa_pte_updates", 1124), ("numa_huge_pte_updates", 2), ("numa_hint_faults", 51)]);
        assert!((DERIVED[1].2(&newer).unwrap() - 0.5).abs() < 1e-12);
        let [cost, per_mark] = DERIVED.map(|(_, _, value)| value(&counters(&[("numa_pte_updates", 0)])));
        assert_eq!((cost, per_mark), (Some(0.0), None), "no work, and no mark to divide by");
    }
}
