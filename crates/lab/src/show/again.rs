//! The run of a result once more, with what the result lacks.

use std::path::Path;

use report::Target;
use units::Picos;

use super::shown::Shown;
use crate::suggest::{Again, beside};

impl Shown {
    /// The command that takes samples in a run like this one; none where it is not known what was asked for.
    pub(super) fn sampled_again(&self, directory: &Path) -> Option<String> {
        Some(self.again()?.sampled(self.length()).into(&beside(directory, "sampled")))
    }

    /// The command that records maps of memory in a run like this one; none where no cell can have one.
    pub(super) fn mapped_again(&self, directory: &Path) -> Option<String> {
        self.can_have_maps().then_some(())?;
        Some(self.again()?.mapped(self.length()).into(&beside(directory, "mapped")))
    }

    /// Whether its cells can have maps of memory: simulated ones of one kernel.
    pub(super) fn can_have_maps(&self) -> bool {
        let is_simulated = self.cells.iter().any(|cell| cell.key.target == Target::Sim);
        is_simulated && self.cells.iter().all(|cell| cell.key.workload != workloads::guests::INFO.name)
    }

    /// How samples are taken, at the end of a message.
    pub(crate) fn sampling(&self, directory: &Path) -> String {
        let how = |command| format!("this takes samples: {command}");
        self.sampled_again(directory).map_or_else(|| "a run with --sample TIME takes samples".to_owned(), how)
    }

    /// How maps are recorded, at the end of a message.
    pub(super) fn mapping(&self, directory: &Path) -> String {
        let how = |command| format!("this records one: {command}");
        let in_words = "simulated cells of one kernel have one with --sample TIME --map".to_owned();
        self.mapped_again(directory).map_or(in_words, how)
    }

    /// Name or path of its experiment, as the user gave it where that is known.
    pub(super) fn asked_experiment(&self) -> &str {
        self.again.as_ref().map_or(&self.experiment, |again| &again.asked.experiment)
    }

    /// The run once more, where it is known what was asked for.
    pub(super) fn again(&self) -> Option<Again> {
        self.again.clone()
    }

    /// The longest of its cells.
    fn length(&self) -> Picos {
        let lengths = self.cells.iter().filter_map(|cell| Some(Picos(cell.measured.duration?.elapsed_ps)));
        lengths.max().unwrap_or_default()
    }
}
