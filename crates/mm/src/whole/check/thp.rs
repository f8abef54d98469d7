//! Linux: none; no kernel checks its records of huge pages.
//! Differs: checks that states which the rules exclude do not occur.

use super::{Broken, Walk, ensure};

impl Walk<'_> {
    /// Checks that nodes known to lack huge pages, and the page that khugepaged keeps, are as the rules allow.
    pub(super) fn huge_pages(&self) -> Result<(), Broken> {
        let rules = self.mm.memory.variant();
        for tries in self.mm.raw_huge_tries() {
            let is_noted = rules.khugepaged_checks_nodes || rules.thp_faults_gated || rules.thp_faults_request;
            ensure(is_noted, None, || {
                "a node is noted as one without huge pages, but nobody would note it".to_owned()
            })?;
            ensure(!rules.thp_faults_gated || tries == 0, None, || {
                format!("{tries} faults have tried for a huge page where none is known to be")
            })?;
        }
        let held = self.mm.khugepaged.raw_held();
        ensure(held.is_none() || rules.khugepaged_keeps_page, held, || {
            "khugepaged keeps it, and never would".to_owned()
        })
    }
}
