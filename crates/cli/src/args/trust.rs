//! `pagelab trust`.

use clap::Args;

/// Say what an experiment's numbers are worth
///
/// What behind its simulated numbers is fitted, measured, assumed or not checked, and what is known to be off: each a count and
/// the worst example, on one screen. Nothing is run.
///
/// Fitted is what was chosen so that a row of a published table comes out; measured, what somebody timed or looked up; assumed,
/// what nobody did. A rule is not checked when nobody read it in the source of the kernel whose rule it is. Table values are
/// those of the published table. A counter is off when it is farther from a real kernel's than its class allows
/// (docs/fidelity.md): in cells of the fixed list, and in the newest cells drawn at random, beside what a kernel comes to
/// against its own other boots.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab trust thpscale-4.1
  pagelab trust fault-storm")]
pub(crate) struct Trust {
    /// Name or path of an experiment (`pagelab list experiments`)
    pub(crate) experiment: String,
}
