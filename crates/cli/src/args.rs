//! The command line.

mod advise;
mod cells;
mod claims;
mod compare;
mod export;
mod fork;
mod format;
mod groups;
mod list;
mod machine;
mod map;
mod pack;
mod page;
mod shell;
mod state;
mod sweep;
mod trust;
mod why;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use lab::{
    calibrate::{DEFAULT_SECONDS, Wanted},
    plan::{AcceleratorChoice, Every, Request, Seeds, TIMEOUT_S, TIMEOUT_S_MAX},
    show::{Causes, Print},
    usage::UsageError,
};
use linux::qemu::Accelerator;
use report::Target;
use units::Bytes;

pub(crate) use self::{
    advise::Advise,
    cells::{Cells, Collect},
    claims::{Claims, Score},
    compare::{Compare, Ladder, Noise},
    export::{Export, Tool},
    fork::Fork,
    format::{AsColumns, FormatArg, ProgressArg, ShowFormatArg},
    list::{List, Listed},
    machine::{Import, Machine},
    map::Map,
    pack::Pack,
    page::{Report, of_run},
    shell::{Completions, Man, Shell},
    state::{Make, State},
    sweep::Sweep,
    trust::Trust,
    why::{Why, WhyFormat},
};

/// A laboratory for the kernel's memory management: the benchmarks that kernel developers trust, in a simulator (sim), on
/// kernels booted under QEMU (vm) and on the kernel of this machine (host), side by side.
///
/// A patch can be tried on sim before there is a kernel with it. Rules of your own are a file of a few lines, for --variant;
/// a rule that does not exist yet is some lines of Rust. docs/your-first-patch.md tries one, from the idea to the table.
#[derive(Debug, Parser)]
#[command(
    name = "pagelab",
    version = version(),
    help_template = groups::template(),
    before_help = "\
Start with:  pagelab run large-vm-4.18
It simulates a kernel of 2018 without and with a patch, and takes ten seconds.",
    after_help = "\
Examples:
  pagelab run large-vm-4.18
  pagelab run thpscale-4.1 --seeds 8
  pagelab run thpscale --variant v6.1 --variant ./my.toml
  pagelab run fault-storm --target host --target sim
  pagelab list experiments"
)]
pub(crate) struct Pagelab {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The version, and which program exactly: results of the same hash have the same bytes.
fn version() -> String {
    let [commit, program] = [lab::provenance::COMMIT, lab::provenance::PROGRAM_HASH];
    format!("{} (commit {commit}, program {program})", env!("CARGO_PKG_VERSION"))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    // A command without a comment here has its help text where its arguments are declared.
    Run(Run),
    /// Print the tables of a result again, without running anything
    #[command(after_help = "\
Examples:
  pagelab show results/mine
  pagelab show results/mine --causes
  pagelab show results/mine --series
  pagelab show results/mine --series=node0/nr_free_pages,compact_stall --format csv > mine.csv
  pagelab show results/mine --stalls 10 --seeds 1-1
  pagelab show results/mine --format csv > mine.csv
  pagelab show results/mine --format columns > mine.json
  pagelab show results/mine --seeds 7-7")]
    Show {
        /// A result directory, or numbers measured elsewhere (docs/mmtests.md)
        #[arg(value_hint = ValueHint::DirPath)]
        result: PathBuf,
        /// Only what was run with seeds 1 to N, or with those from A to B: single runs, or one half beside the other
        #[arg(long, value_name = "N|A-B")]
        seeds: Option<Seeds>,
        /// Also where the time of each simulated run went, by cause; a result without such a run is refused
        #[arg(long)]
        causes: bool,
        /// Instead of the tables the time series of runs with --sample: the columns of these names (any that --format csv
        /// shows), or a digest of the machine: free memory, pageblocks wholly free, huge pages, pageblocks by type, and since
        /// the row before faults, entries into direct reclaim and direct compaction, and pages swapped out. `--format csv` has
        /// a line for each value
        #[arg(long, value_name = "NAME,...", num_args = 0..=1, require_equals = true, value_delimiter = ',',
              conflicts_with = "causes")]
        series: Option<Vec<String>>,
        /// Instead of the tables the N longest operations of each simulated run that left the allocator's fast path or slept,
        /// with where their time went, and how many there were of each kind. Results hold the 1,024 longest
        /// of each kind and order
        #[arg(long, value_name = "N", conflicts_with_all = ["causes", "series"],
              value_parser = clap::value_parser!(u16).range(1..=4096))]
        stalls: Option<u16>,
        /// How to print it. The lines of csv are experiment,metric,case,kernel,value,low,high,seed: one value in a line, of all
        /// seeds (seed is empty), then of each
        #[arg(long, value_enum, default_value_t = ShowFormatArg::Text)]
        format: ShowFormatArg,
        #[command(flatten)]
        look: Look,
    },
    Report(Report),
    Map(Map),
    Why(Why),
    Fork(Fork),
    Pack(Pack),
    Compare(Compare),
    Noise(Noise),
    Ladder(Ladder),
    Sweep(Sweep),
    Advise(Advise),
    Cells(Cells),
    /// Work on cells that another machine wants done: lines of `pagelab cells` on stdin, a line of result for each on stdout
    #[command(after_help = "\
Examples:
  head -1 cells.jsonl | pagelab worker
  parallel --pipe -N1 pagelab worker < cells.jsonl > back.jsonl

A line of another program is refused. A cell that fails has no line, and the others go on.
Exit status: 0 all lines are done, 1 a cell failed, 2 a line that is none or of another program, 130 interrupted.")]
    Worker,
    Collect(Collect),
    Claims(Claims),
    Score(Score),
    Export(Export),
    Trust(Trust),
    Calibrate(Calibrate),
    /// Machines as files
    #[command(subcommand, after_help = "Examples:\n  pagelab machine import -o machines/here.toml")]
    Machine(Machine),
    /// States of memory: every frame of a kernel at one moment as a file, or a recipe that leads to one
    #[command(subcommand)]
    State(State),
    List(List),
    Completions(Completions),
    Man(Man),
    /// (inside) Work on one cell: an order on stdin, a line on stdout
    #[command(hide = true, name = linux::worker::CELL_COMMAND)]
    Cell,
    /// (inside) Be one task of a workload
    #[command(hide = true, name = linux::process::TASK_COMMAND)]
    Task {
        /// Which entry
        entry: String,
    },
    /// (inside) Take samples until stdin closes
    #[command(hide = true, name = linux::sampler::SAMPLER_COMMAND)]
    Sampler {
        /// Picoseconds between two
        every_ps: u64,
    },
    /// (inside) Put back what was changed when stdin closes
    #[command(hide = true, name = linux::guard::GUARD_COMMAND)]
    Guard,
}

/// Run an experiment and print its tables.
///
/// Without --target, it runs where its experiment says: in the simulator (sim); of many also in a guest (vm), where QEMU and a
/// kernel image are there; and of a few, such as fault-storm, on this machine's own kernel (host) too, which the first line says
/// then. A target that cannot be had is reported as skipped. One that is asked for by name must be there.
///
/// Options of the simulator mean --target sim: --machine, --variant, --column, --state, and a setting that this machine's kernel
/// cannot have. Options of guests mean --target vm: --kernel, --accel, --replayable. With any of them, this machine's own
/// kernel is left alone unless --target host is said.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab run fault-storm
  pagelab run fault-storm --target vm --kernel ./bzImage --kernel 6.1 --machine two-node-2g --format csv
  pagelab run fault-storm --target vm --replayable --seeds 3
  pagelab run thpscale --target vm --target sim --state kernel --replayable 2,3,4,5,6 --seeds 8
  pagelab run fault-storm --set tasks=1,2 --set page=huge --set vm.min_free_kbytes=131072
  pagelab run fault-storm --target sim --machine two-node-2g --variant v6.1 --causes
  pagelab run guest-footprint --target vm --target sim --set trace=free,build,mine.csv
  pagelab run thpscale-4.1 --seeds 8 --sample 100ms --map --report report.html
  pagelab run bug.case

Results: one line per cell in DIR/result.jsonl, written when the cell is done. `-o DIR` on an unfinished result of the
same run goes on from there; `pagelab show DIR` prints its tables again. Lines have checksums: what was altered since is
named and refused, and the same run with `-o DIR` works on that again.
Exit status: 0 done, 1 a cell failed, 2 wrong input or a target that cannot be had, 130 interrupted.")]
pub(crate) struct Run {
    #[arg(help = "Name or path of an experiment (`list experiments`), a service (`list workloads`) or a case file",
          long_help = experiments())]
    pub(crate) experiment: String,
    /// Where to run; may be given several times [default: as other options mean, else those of the experiment that can be had]
    #[arg(long, value_enum)]
    target: Vec<TargetArg>,
    /// Kernel for target vm: a version in the cache (`cargo xtask kernel 6.1` puts one there) or the path of a bzImage;
    /// may be given several times, the first is the baseline
    #[arg(long)]
    kernel: Vec<String>,
    /// Machine for targets sim and vm: a name or path (`pagelab list machines`) [default: the experiment's]
    #[arg(long)]
    machine: Option<String>,
    /// Variant for target sim alone: a name or path (`pagelab list variants`), with `+1,3` behind it for patches of its file; any
    /// release from v3.9 on, which has the newest rules not newer; or `host`, those of this kernel; may be given several times
    #[arg(long)]
    variant: Vec<String>,
    /// Of an experiment that names its own columns for target sim, only this one; may be given several times
    #[arg(long, value_name = "KERNEL", conflicts_with = "variant")]
    column: Vec<String>,
    /// A kernel setting (`pagelab list settings`) or a parameter of the workload (`pagelab list workloads`); several values go
    /// with commas: each value of a setting is a column of its own, each of a parameter a row. On the host a setting is put
    /// back at the end, whatever the end is
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Repeat everything with seeds 1 to N, or with those from A to B
    #[arg(long, value_name = "N|A-B", default_value = "1")]
    seeds: Seeds,
    /// Memory that a workload may use on the host, such as 2GiB [default: a quarter of MemAvailable]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Let workloads drop the caches of this machine where they mean to (all of its users notice). In guests they always do
    #[arg(long)]
    drop_caches: bool,
    /// Where memory stands when a simulated workload starts: `fresh` (all free), `kernel` (every frame as the guest's kernel
    /// had it before the same cell; guests record it), or for target sim alone a state file, a recipe file or a recipe such
    /// as metadata+anon,unmovable=7%,blocks=34% (`pagelab state make --help`) [default: the experiment's]
    #[arg(long, value_name = "fresh|kernel|FILE|RECIPE")]
    state: Option<String>,
    /// What runs a guest's instructions
    #[arg(long, value_enum, default_value_t = AccelArg::Auto, conflicts_with = "replayable")]
    accel: AccelArg,
    /// Guests with one CPU and time counted in instructions, each taking 2^SHIFT ns: the same run gives the same bytes. Of
    /// several shifts (with commas) seed 1 takes the first, seed 2 the second and so on, over and over: with seeds, other runs
    /// of the same thing
    #[arg(long, value_name = "SHIFT", num_args = 0..=1, default_missing_value = "4", value_delimiter = ',',
          value_parser = clap::value_parser!(u8).range(0..=10))]
    replayable: Option<Vec<u8>>,
    /// Seconds that a guest's boot or one cell may take
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_S,
          value_parser = clap::value_parser!(u64).range(1..=TIMEOUT_S_MAX))]
    timeout: u64,
    /// Simulated cells at a time [default: one per CPU]. Results and their order do not depend on it; cells on real
    /// kernels run one at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    workers: Option<u16>,
    #[command(flatten)]
    watch: Watch,
    /// Also print where the time of each simulated run went, by cause, with a CPU and waiting without one: all tasks and
    /// kernel threads from start to end, warm-up included. Results always hold it: `pagelab show --causes` prints it later
    #[arg(long)]
    pub(crate) causes: bool,
    /// Result directory [default: results/EXPERIMENT-DATE-TIME]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output: Option<PathBuf>,
    /// When the run is over, also write its result as one page of HTML, as `pagelab report RESULT -o FILE` does; a file that is
    /// there is replaced. Maps and lines over time are on it with --sample TIME --map
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
    /// Of a file of processes and phases, print in words what it does, with its amounts on this machine, and run nothing
    #[arg(long)]
    pub(crate) explain: bool,
    /// How to print the tables. The lines of csv are experiment,metric,case,kernel,value,low,high,seed: one value in a line, of
    /// all seeds (seed is empty), then of each
    #[arg(long, value_enum, default_value_t = FormatArg::Text)]
    pub(crate) format: FormatArg,
    /// How to tell progress on stderr
    #[arg(long, value_enum, default_value_t, conflicts_with = "quiet")]
    pub(crate) progress: ProgressArg,
    #[command(flatten)]
    pub(crate) look: Look,
}

/// What an experiment is, and what each one takes.
fn experiments() -> String {
    let name = "Name or path of an experiment (`pagelab list experiments`), of a service, which is a file of processes and \
                phases (`pagelab list workloads`, docs/services.md), or a case that somebody packed (`pagelab pack`)";
    match crate::list::costs().as_str() {
        "" => name.to_owned(),
        costs => format!("{name}. CPU time of one seed on sim, as measured: {costs}"),
    }
}

/// Events, samples and maps that are written down beside the numbers.
#[derive(Clone, Copy, Debug, Args)]
struct Watch {
    /// Write the trace events of each simulated cell (mm_page_alloc_extfrag) to trace-*.txt in the result directory (what
    /// guest-footprint holds when is --set trace=FILE)
    #[arg(long)]
    trace: bool,
    /// Take a sample of what the kernel counts and holds every so often, such as 100ms, 1s or 5min: of virtual time in the
    /// simulator, by the clock on real kernels, by a process of its own there. Counters by node where they are kept so, free
    /// blocks by zone and order, pageblocks by type, those wholly free, huge pages; one sample at the start and one at the end
    /// in any case. `pagelab show --series` prints it. It is part of what makes two runs the same
    #[arg(long, value_name = "TIME")]
    sample: Option<Every>,
    /// With each sample of a simulated cell also the map of its physical memory: of every pageblock its type, how much of it is
    /// in use, whether a huge page or pages of another mobility are in it, and whether its host knows that it is free. Each map
    /// is a file in DIR/files; `pagelab map DIR` and `pagelab report DIR` show it
    #[arg(long, requires = "sample")]
    map: bool,
}

/// How much is printed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Look {
    /// Every row as mmtests prints it, with all digits, and where all numbers come from. Without it a table fits 80 columns:
    /// means with the range of runs, changes, and published values beside ours
    #[arg(long)]
    full: bool,
    /// Nothing but the tables: no header, no progress, no notes; but a line where this machine's own kernel is used unnamed
    #[arg(long)]
    pub(crate) quiet: bool,
}

impl Look {
    /// The same in the laboratory's words.
    pub(crate) fn of(self, format: FormatArg, causes: Causes) -> Print {
        Print { format: format.into(), causes, full: self.full, quiet: self.quiet }
    }
}

/// Measure what primitive operations take on this machine, and write its machine file with them.
///
/// Times small parts of the kernel and the machine (clearing and copying memory, entering the kernel, page-table entries,
/// list moves, interrupts, context switches) for some seconds, from user space and without privileges. The simulator composes
/// a page fault of them; no price comes from a benchmark that it is then compared with. Nothing on this machine is changed,
/// and at most 512 MiB or a quarter of the available memory are used.
///
/// The file is what `pagelab machine import` writes plus [prices], each with its median, low, high and what was measured. On a
/// busy machine spreads are wide, and a warning says whose.
///
/// With --kernel the same is done inside a guest that boots that kernel, in the time of the guest; with --replayable a price is a
/// count of instructions, the same on every machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pagelab calibrate -o machines/here.toml
  pagelab run fault-storm --target sim --machine machines/here.toml
  pagelab calibrate --kernel 6.1 --machine one-cpu-512m --replayable 2 -o guest.toml

A price that cannot be measured here (with one CPU: interrupts between CPUs) is listed as skipped, with the reason; runs then
use the generic one.
Exit status: 0 done, 1 it failed, 2 wrong input (such as a file that exists already), 130 interrupted: nothing is written.")]
pub(crate) struct Calibrate {
    /// Where to write the machine file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// What to call the machine
    #[arg(long, default_value = "here")]
    pub(crate) name: String,
    /// How long to measure
    #[arg(long, value_name = "S", default_value_t = DEFAULT_SECONDS, value_parser = clap::value_parser!(u16).range(1..=600))]
    pub(crate) seconds: u16,
    /// Measure in a guest with this kernel: a release in the cache (`pagelab list kernels`) or the path of an image
    #[arg(long)]
    kernel: Option<String>,
    /// The guest's machine: a name or path (`pagelab list machines`)
    #[arg(long, requires = "kernel", default_value = "one-node-512m")]
    machine: String,
    /// The guest has one CPU and counts time in instructions, each of which takes 2^SHIFT ns
    #[arg(long, value_name = "SHIFT", requires = "kernel", num_args = 0..=1, default_missing_value = "4",
          value_parser = clap::value_parser!(u8).range(0..=10))]
    replayable: Option<u8>,
}

impl Calibrate {
    /// The guest that is to be measured, if it is one.
    pub(crate) fn guest(&self) -> Option<Wanted> {
        let accelerator = self.replayable.map(|shift| Accelerator::Replayable { shift });
        let of = |kernel: &String| Wanted { kernel: kernel.clone(), machine: self.machine.clone(), accelerator };
        self.kernel.as_ref().map(of)
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TargetArg {
    /// The kernel of this machine
    Host,
    /// A kernel booted under QEMU
    Vm,
    /// The simulator; beside a real target, its twin on the same machine
    Sim,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum AccelArg {
    /// KVM where it boots the kernel, else translation
    Auto,
    /// The host's processor
    Kvm,
    /// QEMU's translation: counters are trustworthy, times are not
    Tcg,
}

impl Run {
    /// What the user asks for, in the laboratory's words.
    /// The file of a case, if that is what shall run.
    ///
    /// # Errors
    /// Options that would make another run of it.
    pub(crate) fn case(&self) -> Result<Option<&Path>, UsageError> {
        let file = Path::new(&self.experiment);
        if file.extension().is_none_or(|extension| extension != lab::pack::SUFFIX) {
            return Ok(None);
        }
        let given = Request { out: None, workers: None, causes: false, ..self.request() };
        let plain = Pagelab::parse_from(["pagelab", "run", &self.experiment]).command;
        let Command::Run(plain) = plain else { unreachable!("it says run") };
        if given == plain.request() {
            return Ok(Some(file));
        }
        let problem = "a case says itself what is run; expected of options that change a run only -o and --workers";
        Err(UsageError::in_file(file.display(), problem))
    }

    pub(crate) fn request(&self) -> Request {
        let target = |target: &TargetArg| match target {
            TargetArg::Host => Target::Host,
            TargetArg::Vm => Target::Vm,
            TargetArg::Sim => Target::Sim,
        };
        let accelerator = match (&self.replayable, self.accel) {
            (Some(shifts), _) => {
                AcceleratorChoice::InTurn(shifts.iter().map(|&shift| Accelerator::Replayable { shift }).collect())
            }
            (None, AccelArg::Auto) => AcceleratorChoice::Auto,
            (None, AccelArg::Kvm) => AcceleratorChoice::InTurn(vec![Accelerator::Kvm]),
            (None, AccelArg::Tcg) => AcceleratorChoice::InTurn(vec![Accelerator::Tcg]),
        };
        Request {
            experiment: self.experiment.clone(),
            targets: self.target.iter().map(target).collect(),
            kernels: self.kernel.clone(),
            machine: self.machine.clone(),
            variants: self.variant.clone(),
            columns: self.column.clone(),
            sets: self.set.clone(),
            seeds: self.seeds,
            state: self.state.clone(),
            memory: self.memory,
            drop_caches: self.drop_caches,
            accelerator,
            timeout_s: self.timeout,
            workers: self.workers.map(usize::from),
            trace: self.watch.trace,
            sample: self.watch.sample,
            axes: Vec::new(),
            map: self.watch.map,
            causes: self.causes,
            out: self.output.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
