//! Arguments of `machine`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

#[derive(Debug, Subcommand)]
pub(crate) enum Machine {
    /// Write the machine file of this machine, or of another whose files, pastes or OOM report there are
    Import(Import),
    /// Print the file of a machine, to start one's own from
    #[command(after_help = "Example:\n  pagelab machine show two-node-2g > my-machine.toml")]
    Show {
        /// Name or path of a machine (`pagelab list machines`)
        machine: String,
    },
}

/// Write the machine file of this machine, or of another whose files, pastes or OOM report there are
///
/// Needed are zoneinfo and the kernel's release, and of a machine with several nodes the CPUs of each; meminfo, settings and
/// distances are taken where they are. Pasted texts may be indented, quoted, wrapped, below a prompt or between code fences, and
/// several files may be in one text. All that is missing is named at once. Machines that are not modelled are refused: 32-bit
/// kernels (HighMem), kernels before 3.9, pages other than 4 KiB.
///
/// An OOM report (Mem-Info, from dmesg, journalctl, syslog or a mail) gives zones, marks and free blocks; what it does not say is
/// assumed, and said on stderr. The file ends with its marks beside those that we compute.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab machine import -o machines/here.toml
  pagelab machine import --from copy/ --name laptop -o machines/laptop.toml
  pagelab machine import --from sosreport-host-2024/ -o machines/host.toml
  pagelab machine import --from oom.txt --kernel 6.1 -o machines/killed.toml
  pagelab machine import --from - < paste.txt

Exit status: 0 written, 2 wrong input, something is missing, or a machine that is not modelled.")]
pub(crate) struct Import {
    /// A directory with copies of /proc and /sys files (zoneinfo, meminfo, version, sys/vm/*, node/*/*), or a root with proc/
    /// and sys/ in it, such as a sosreport; a file with pasted texts or an OOM report, or - for stdin [default: this machine]
    #[arg(long, value_name = "DIR|FILE|-", value_hint = ValueHint::AnyPath)]
    pub(crate) from: Option<PathBuf>,
    /// The machine's name
    #[arg(long, default_value = "here")]
    pub(crate) name: String,
    /// The kernel's release, where no file has it
    #[arg(long, value_name = "RELEASE", requires = "from")]
    pub(crate) kernel: Option<String>,
    /// Where to write it [default: stdout]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}
