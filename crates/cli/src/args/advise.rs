//! Arguments of `advise`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use lab::advise::{Goal, Wanted};

use super::{format::ProgressArg, why::WhyFormat};

/// Say what to set on a machine at work, from copies of its /proc: at most three settings, or none
///
/// The folder has two captures of /proc/vmstat, some minutes apart while the machine does what it is slow at, and the files that
/// `machine import` reads. From how far counters moved follows a demand for memory; of a few services with that demand
/// (profiles) the one is taken whose counters are nearest to the machine's. It runs with other values of the settings that may
/// help. What is best with some seeds is confirmed with others.
///
/// Before any advice the profile's counters are printed beside the machine's. Where fewer than half are within their class,
/// there is no advice. "Nothing helps" is an answer.
#[derive(Debug, Args)]
#[command(after_help = goals())]
pub(crate) struct Advise {
    /// A folder with vmstat.before, vmstat.after, uptime.before, uptime.after (or before/ and after/ with these) and zoneinfo
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    from: PathBuf,
    /// The quantity that is to get better, as listed below
    #[arg(long, value_name = "GOAL", default_value = "p99")]
    goal: Goal,
    /// Name or path of the machine, where the folder has no zoneinfo (`pagelab machine import`)
    #[arg(long)]
    machine: Option<String>,
    /// Seconds between the two captures, where the folder has no uptime
    #[arg(long, value_name = "N", value_parser = seconds)]
    seconds: Option<f64>,
    /// Cells at a time [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    workers: Option<u16>,
    /// Where profiles, the machine and all results go; the same command again goes on there [default: results/advise-...]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output: Option<PathBuf>,
    /// How to tell progress on stderr
    #[arg(long, value_enum, default_value_t)]
    pub(crate) progress: ProgressArg,
    /// How to print it
    #[arg(long, value_enum, default_value_t = WhyFormat::Text)]
    pub(crate) format: WhyFormat,
}

/// The goals, and examples.
fn goals() -> String {
    let goals: String = Goal::ALL.iter().map(|(_, name, about)| format!("  {name:<6} {about}\n")).collect();
    format!(
        "Goals:\n{goals}
Examples:
  pagelab advise --from captures/ --goal p99
  pagelab advise --from captures/ --machine host.toml --seconds 300 --goal cpu

On the machine:
  mkdir captures; cd captures
  cat /proc/vmstat > vmstat.before; cat /proc/uptime > uptime.before
  (some minutes later) cat /proc/vmstat > vmstat.after; cat /proc/uptime > uptime.after
  cp /proc/zoneinfo /proc/meminfo /proc/version /proc/swaps .; sysctl -a > sysctl; numactl -H > numactl
  mkdir transparent_hugepage; cp /sys/kernel/mm/transparent_hugepage/* transparent_hugepage

Exit status: 0 advice, or that nothing helps; 1 no advice, as no profile is like the machine; 2 wrong input, 130 interrupted."
    )
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (1.0..=31_536_000.0).contains(seconds));
    seconds.ok_or_else(|| "expected seconds from 1 to 31536000".to_owned())
}

impl Advise {
    /// The advice in the laboratory's words.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            from: self.from.clone(),
            goal: self.goal,
            machine: self.machine.clone(),
            seconds: self.seconds,
            workers: self.workers.map(usize::from),
            out: self.output.clone().unwrap_or_else(|| lab::advise::directory(&self.from)),
        }
    }
}
