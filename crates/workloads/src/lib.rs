//! The benchmarks: each an `async fn` over [`Os`], which sees neither the simulator nor Linux.
//!
//! A workload has named parameters with text values ([`Workload::parse`] turns them into a typed form and refuses what
//! makes no sense), says how much memory it needs, and returns an [`Outcome`] of integers.

pub mod aged_fault;
pub mod autonumabench;
mod block;
pub mod conditions;
mod draw;
pub mod fault_storm;
pub mod fork_storm;
pub mod fragmented_fault;
pub mod guest_footprint;
pub mod guests;
pub mod llfree_frag;
mod meet;
mod member;
mod model;
pub mod numa_access;
pub mod numa_probe;
mod outcome;
mod params;
pub mod recipe;
pub mod service;
pub mod slab_churn;
pub mod small_files;
pub mod thpfioscale;
pub mod thpscale;
pub mod thpscale_2015;
pub mod vm_larger_than_a_node;
pub mod warehouses;
pub mod week;
pub mod will_it_scale;

pub use block::{Block, Size};
pub use conditions::{Conditions, Policy};
use fault_storm::Backing;
pub use meet::TaskError;
pub use member::{Latencies, MemberOutcome, PhaseOutcome};
pub use model::Model;
use os::{Died, NumaNode, Os, Wire};
pub use outcome::{Iteration, Outcome, TaskOutcome, Unable, Unmapping};
pub use params::{ParamError, ParamInfo};
use thpscale::Program;
use units::{Bytes, Errno};

/// A workload together with its parameters, ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// will-it-scale's page_fault1, page_fault2 and page_fault3 as a fixed amount of work.
    FaultStorm(fault_storm::Params),
    /// fork, and the faults on both sides of it.
    ForkStorm(fork_storm::Params),
    /// Huge page faults among holes of 1 MiB.
    Thpscale(thpscale::Params),
    /// As `Thpscale`, one thread count after the other.
    Thpscale2015(thpscale_2015::Params),
    /// Huge page faults among holes of single pages.
    AgedFault(aged_fault::Params),
    /// Huge page faults while many small files are written.
    SmallFiles(small_files::Params),
    /// Huge page faults in aged memory while the smallest files are written.
    SlabChurn(slab_churn::Params),
    /// Huge page faults while many small files are read that were written badly.
    Thpfioscale(thpfioscale::Params),
    /// Accesses to memory of each node from each node.
    NumaAccess(numa_access::Params),
    /// One task and its memory on a busy machine.
    NumaProbe(numa_probe::Params),
    /// Programs whose threads and memory begin on the wrong nodes.
    Autonumabench(autonumabench::Params),
    /// Java virtual machines with a thread for each warehouse.
    Warehouses(warehouses::Params),
    /// Huge page faults between hours of mixed work.
    Week(week::Params),
    /// Guests of one host that need its memory in turns.
    Guests(guests::Params),
    /// will-it-scale's page_fault1 and page_fault2 for a time.
    WillItScale(will_it_scale::Params),
    /// Memory that comes and goes as a trace says.
    GuestFootprint(guest_footprint::Params),
    /// The memory of a virtual machine, which may be more than a node has.
    VmLargerThanANode(vm_larger_than_a_node::Params),
    /// Faults while memory is free in small holes.
    FragmentedFault(fragmented_fault::Params),
    /// Random frames that a kernel module replaces.
    LlfreeFrag(llfree_frag::Params),
    /// Processes and phases as a file says.
    Service(service::Service),
}

/// The entry of a workload in `pagelab list workloads`.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadInfo {
    /// The workload's name on the command line.
    pub name: &'static str,
    /// One line on what it does.
    pub about: &'static str,
    /// Whether it maps memory of the machine, so that its policy can be set and caches be dropped before it. Guests have
    /// machines of their own, and a kernel module maps nothing.
    pub maps_memory: bool,
    /// The workload's parameters.
    pub params: &'static [ParamInfo],
}

/// Every workload there is.
pub const WORKLOADS: &[WorkloadInfo] = &[
    fault_storm::INFO,
    fault_storm::PAGE_FAULT2,
    fault_storm::PAGE_FAULT3,
    fork_storm::INFO,
    thpscale::THPSCALE,
    thpscale::THPCOMPACT,
    thpscale_2015::INFO,
    aged_fault::INFO,
    small_files::INFO,
    slab_churn::INFO,
    thpfioscale::INFO,
    numa_access::INFO,
    numa_probe::INFO,
    autonumabench::INFO,
    warehouses::INFO,
    week::INFO,
    guests::INFO,
    will_it_scale::INFO,
    guest_footprint::INFO,
    vm_larger_than_a_node::INFO,
    fragmented_fault::INFO,
    llfree_frag::INFO,
    service::INFO,
];

/// Why a workload gave no result.
#[derive(Debug, PartialEq, Eq)]
pub enum WorkloadError {
    /// A system call failed; the text says which.
    Call(&'static str, Errno),
    /// The parameters do not fit the machine; the text says which.
    Misfit(String),
    /// The target cannot do what the parameters ask for; the text says which.
    Refused(String),
    /// One of its tasks died.
    Died(Died),
}

impl std::fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(call, errno) => write!(f, "{call} failed: {errno}"),
            Self::Misfit(problem) | Self::Refused(problem) => f.write_str(problem),
            Self::Died(died) => died.fmt(f),
        }
    }
}

impl std::error::Error for WorkloadError {}

impl From<Died> for WorkloadError {
    fn from(died: Died) -> Self {
        Self::Died(died)
    }
}

/// Names the call that failed.
pub(crate) trait During<T> {
    fn during(self, call: &'static str) -> Result<T, WorkloadError>;
}

impl<T> During<T> for Result<T, Errno> {
    fn during(self, call: &'static str) -> Result<T, WorkloadError> {
        self.map_err(|errno| WorkloadError::Call(call, errno))
    }
}

impl Workload {
    /// The workload `name` with parameters given as text; those not given take their defaults. [`Conditions`], which go before
    /// it, are checked.
    pub fn parse<'a>(name: &str, params: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let shared = conditions::shared_params(name);
        let is_shared = |(name, _): &(&str, &str)| shared.iter().any(|param| param.name == *name);
        let (conditions, params): (Vec<_>, Vec<_>) = params.into_iter().partition(is_shared);
        Conditions::parse(&shared, conditions)?;
        match name {
            "fault-storm" => fault_storm::Params::parse(Backing::Anonymous, params).map(Self::FaultStorm),
            "page-fault2" => fault_storm::Params::parse(Backing::PrivateFile, params).map(Self::FaultStorm),
            "page-fault3" => fault_storm::Params::parse(Backing::SharedFile, params).map(Self::FaultStorm),
            "fork-storm" => fork_storm::Params::parse(params).map(Self::ForkStorm),
            "thpscale" => thpscale::Params::parse(Program::Thpscale, params).map(Self::Thpscale),
            "thpcompact" => thpscale::Params::parse(Program::Thpcompact, params).map(Self::Thpscale),
            "thpscale-2015" => thpscale_2015::Params::parse(params).map(Self::Thpscale2015),
            "aged-fault" => aged_fault::Params::parse(params).map(Self::AgedFault),
            "small-files" => small_files::Params::parse(params).map(Self::SmallFiles),
            "slab-churn" => slab_churn::Params::parse(params).map(Self::SlabChurn),
            "thpfioscale" => thpfioscale::Params::parse(params).map(Self::Thpfioscale),
            "week" => week::Params::parse(params).map(Self::Week),
            "guests" => guests::Params::parse(params).map(Self::Guests),
            "will-it-scale" => will_it_scale::Params::parse(params).map(Self::WillItScale),
            "guest-footprint" => guest_footprint::Params::parse(params).map(Self::GuestFootprint),
            "vm-larger-than-a-node" => vm_larger_than_a_node::Params::parse(params).map(Self::VmLargerThanANode),
            "fragmented-fault" => fragmented_fault::Params::parse(params).map(Self::FragmentedFault),
            "service" => service::Service::parse(params).map(Self::Service),
            "llfree-frag" => llfree_frag::Params::parse(params).map(Self::LlfreeFrag),
            "autonumabench" => autonumabench::Params::parse(params).map(Self::Autonumabench),
            "numa-probe" => numa_probe::Params::parse(params).map(Self::NumaProbe),
            "warehouses" => warehouses::Params::parse(params).map(Self::Warehouses),
            "numa-access" => numa_access::Params::parse(params).map(Self::NumaAccess),
            _ => Err(ParamError::UnknownWorkload(name.to_owned())),
        }
    }

    /// The most memory that the workload has mapped and touched at one time, all tasks together, on a run with `total`.
    pub fn memory(&self, total: Bytes) -> Bytes {
        match self {
            Self::FaultStorm(params) => params.memory(),
            Self::ForkStorm(params) => params.memory(),
            Self::Thpscale(params) => params.memory(total),
            Self::Thpscale2015(params) => params.memory(total),
            Self::AgedFault(params) => params.memory(total),
            Self::SmallFiles(params) => params.memory(total),
            Self::SlabChurn(params) => params.memory(total),
            Self::Thpfioscale(params) => params.memory(total),
            Self::NumaAccess(params) => params.memory(),
            Self::NumaProbe(params) => params.memory(),
            Self::Autonumabench(params) => params.memory(total),
            Self::Warehouses(params) => params.memory(total),
            Self::Week(params) => params.memory(total),
            Self::Guests(params) => params.memory * u64::from(params.guests),
            Self::WillItScale(params) => params.memory(total),
            Self::GuestFootprint(params) => params.memory(total),
            Self::VmLargerThanANode(params) => params.memory(total),
            Self::FragmentedFault(params) => params.memory(total),
            Self::Service(service) => service.memory(total),
            // A module has its memory, and no process.
            Self::LlfreeFrag(_) => Bytes(0),
        }
    }

    /// The most memory that it has mapped at one time, touched or not, where it knows that this is more than
    /// [`memory`](Self::memory).
    pub fn mapped(&self, total: Bytes) -> Bytes {
        match self {
            Self::FragmentedFault(params) => params.mapped(total),
            Self::Warehouses(params) => params.mapped(total),
            _ => self.memory(total),
        }
    }

    /// How large its files become together, on a run with `total` memory.
    pub fn files(&self, total: Bytes) -> Bytes {
        match self {
            Self::FaultStorm(params) => params.files(),
            Self::ForkStorm(_)
            | Self::NumaAccess(_)
            | Self::NumaProbe(_)
            | Self::Autonumabench(_)
            | Self::Warehouses(_)
            | Self::Guests(_)
            | Self::VmLargerThanANode(_)
            | Self::FragmentedFault(_)
            | Self::LlfreeFrag(_) => Bytes(0),
            Self::Thpscale(params) => params.files(total),
            Self::Thpscale2015(params) => params.files(total),
            Self::AgedFault(params) => params.files(total),
            Self::SmallFiles(params) => params.files(total),
            Self::SlabChurn(params) => params.files(total),
            Self::Thpfioscale(params) => params.files(total),
            Self::Week(params) => params.files(total),
            Self::WillItScale(params) => params.files(),
            Self::GuestFootprint(params) => params.files(total),
            Self::Service(service) => service.files(total),
        }
    }

    /// Why the workload cannot run with this memory and these CPUs of a node, if it cannot: which parameter is wrong, and what
    /// is allowed.
    pub fn misfit(&self, memory: Bytes, cpus: u32) -> Option<String> {
        match self {
            Self::Thpfioscale(params) => params.misfit(memory, cpus),
            Self::SlabChurn(params) => params.misfit(memory),
            Self::WillItScale(params) => params.misfit(memory),
            Self::GuestFootprint(params) => params.misfit(memory),
            Self::VmLargerThanANode(params) => params.misfit(memory),
            Self::FragmentedFault(params) => params.misfit(memory),
            _ => None,
        }
    }

    /// Why it cannot run on these nodes, if it cannot.
    pub fn misfit_of_nodes(&self, nodes: &[NumaNode]) -> Option<String> {
        match self {
            Self::VmLargerThanANode(params) => params.cpus.misfit(nodes),
            Self::FragmentedFault(params) => params.cpus.misfit(nodes),
            Self::Autonumabench(params) => params.misfit(nodes),
            Self::NumaProbe(params) => params.misfit(nodes),
            Self::Service(service) => service.misfit(nodes),
            _ => None,
        }
    }

    /// For messages, the parameters with which the workload would fit into this memory, if there is more to change than its
    /// size.
    pub fn fitting(&self, memory: Bytes) -> Option<String> {
        match self {
            Self::Guests(params) => Some(params.fitting(memory)),
            _ => None,
        }
    }

    /// The most files that it has open at the same time, on a run with `total` memory, where these are many.
    pub fn open_files(&self, total: Bytes) -> u64 {
        match self {
            Self::Thpfioscale(params) => params.open_files(total),
            _ => 0,
        }
    }

    /// Whether it means to fill memory, or may, so that the kernel has to reclaim and to compact.
    pub fn presses(&self) -> bool {
        match self {
            Self::FaultStorm(_)
            | Self::ForkStorm(_)
            | Self::NumaAccess(_)
            | Self::NumaProbe(_)
            | Self::Warehouses(_)
            | Self::Autonumabench(_)
            | Self::LlfreeFrag(_) => false,
            Self::Thpscale(_)
            | Self::Thpscale2015(_)
            | Self::AgedFault(_)
            | Self::SmallFiles(_)
            | Self::SlabChurn(_)
            | Self::Week(_)
            | Self::Guests(_)
            | Self::WillItScale(_)
            | Self::GuestFootprint(_)
            | Self::VmLargerThanANode(_)
            | Self::FragmentedFault(_)
            | Self::Service(_)
            | Self::Thpfioscale(_) => true,
        }
    }

    /// Whether its tasks know how many faults they take. What is reclaimed faults again; how often, nobody knows beforehand.
    pub fn knows_its_faults(&self) -> bool {
        match self {
            Self::WillItScale(params) => params.faults_follow(),
            Self::NumaAccess(params) => params.knows_its_faults(),
            // How often hinting faults come, only the kernel knows.
            Self::Autonumabench(_) | Self::NumaProbe(_) | Self::Warehouses(_) => false,
            _ => !self.presses(),
        }
    }

    /// The subject of each set of tables, where the workload makes several sets.
    pub fn tables(&self) -> Option<String> {
        match self {
            Self::WillItScale(params) => Some(params.tables().to_owned()),
            Self::Warehouses(params) => Some(params.case()),
            _ => None,
        }
    }

    /// A short name of this case inside its workload, for table rows: `huge-threads-2`.
    pub fn case(&self) -> String {
        match self {
            Self::FaultStorm(params) => params.case(),
            Self::ForkStorm(params) => params.case(),
            Self::Thpscale(params) => params.case(),
            Self::Thpscale2015(params) => params.case(),
            Self::AgedFault(params) => params.case(),
            Self::SmallFiles(params) => params.case(),
            Self::SlabChurn(params) => params.case(),
            Self::Thpfioscale(params) => params.case(),
            Self::NumaAccess(params) => params.case(),
            Self::NumaProbe(params) => params.case(),
            Self::Autonumabench(params) => params.case(),
            Self::Warehouses(params) => params.case(),
            Self::Week(params) => params.case(),
            Self::Guests(params) => params.case(),
            Self::WillItScale(params) => params.case(),
            Self::GuestFootprint(params) => params.case(),
            Self::VmLargerThanANode(params) => params.case(),
            Self::FragmentedFault(params) => params.case(),
            Self::LlfreeFrag(params) => params.case(),
            Self::Service(service) => service.name.clone(),
        }
    }

    /// Whether the result may be compared: work bounded by time instead of by count is not.
    pub fn scored(&self) -> bool {
        match self {
            Self::FaultStorm(params) => params.duration.is_none(),
            Self::WillItScale(_) | Self::Warehouses(_) => false,
            Self::Service(service) => service.is_fixed(),
            Self::ForkStorm(_)
            | Self::Thpscale(_)
            | Self::Thpscale2015(_)
            | Self::AgedFault(_)
            | Self::SmallFiles(_)
            | Self::SlabChurn(_)
            | Self::Thpfioscale(_)
            | Self::Week(_)
            | Self::Guests(_)
            | Self::GuestFootprint(_)
            | Self::VmLargerThanANode(_)
            | Self::FragmentedFault(_)
            | Self::LlfreeFrag(_)
            | Self::Autonumabench(_)
            | Self::NumaProbe(_)
            | Self::NumaAccess(_) => true,
        }
    }

    /// Runs it on a target. What it draws, it draws from `seed`.
    pub async fn run<O: Os>(&self, os: O, seed: u64) -> Result<Outcome, WorkloadError> {
        // A kernel has less memory than its machine, and only now is known how much.
        let nodes = u32::try_from(os.nodes().len()).expect("few nodes");
        if let Some(problem) = self.misfit(os.memory(), os.cpus() / nodes.max(1)) {
            return Err(WorkloadError::Misfit(problem));
        }
        if let Self::Warehouses(params) = self
            && let Some(problem) = params.misfit(os.memory(), &os.nodes())
        {
            return Err(WorkloadError::Misfit(problem));
        }
        if let Some(problem) = self.misfit_of_nodes(&os.nodes()) {
            return Err(WorkloadError::Misfit(problem));
        }
        match self {
            Self::FaultStorm(params) => fault_storm::run(os, params.clone()).await,
            Self::ForkStorm(params) => fork_storm::run(os, params.clone()).await,
            Self::Thpscale(params) => thpscale::run(os, params.clone()).await,
            Self::Thpscale2015(params) => thpscale_2015::run(os, params.clone()).await,
            Self::AgedFault(params) => aged_fault::run(os, params.clone(), seed).await,
            Self::SmallFiles(params) => small_files::run(os, params.clone()).await,
            Self::SlabChurn(params) => slab_churn::run(os, params.clone(), seed).await,
            Self::Thpfioscale(params) => thpfioscale::run(os, params.clone(), seed).await,
            Self::NumaProbe(params) => numa_probe::run(os, params.clone()).await,
            Self::NumaAccess(params) => numa_access::run(os, params.clone()).await,
            Self::Autonumabench(params) => autonumabench::run(os, params.clone(), seed).await,
            Self::Warehouses(params) => warehouses::run(os, params.clone()).await,
            Self::Week(params) => week::run(os, params.clone(), seed).await,
            Self::Guests(_) => guests::run(),
            Self::WillItScale(params) => will_it_scale::run(os, params.clone()).await,
            Self::GuestFootprint(params) => guest_footprint::run(os, params.clone()).await,
            Self::VmLargerThanANode(params) => vm_larger_than_a_node::run(os, params.clone()).await,
            Self::FragmentedFault(params) => fragmented_fault::run(os, params.clone()).await,
            Self::Service(service) => service::run(os, service.clone(), seed).await,
            Self::LlfreeFrag(params) => llfree_frag::run(os, params.clone(), seed).await,
        }
    }
}

/// Runs the entry of a spawned process: `params` and the result are JSON, as [`Os::spawn_process`] sends them.
/// `None` when no workload has an entry of that name.
pub async fn run_entry<O: Os>(os: O, entry: &str, params: &[u8]) -> Option<serde_json::Result<Vec<u8>>> {
    match entry {
        fault_storm::TASK_ENTRY => Some(through_json(params, async |with| fault_storm::task(os, with).await).await),
        fork_storm::TASK_ENTRY => Some(through_json(params, async |with| fork_storm::task(os, with).await).await),
        thpscale_2015::PROGRAM_ENTRY => {
            Some(through_json(params, async |with| thpscale_2015::program(os, with).await).await)
        }
        will_it_scale::TASK_ENTRY => Some(through_json(params, async |with| will_it_scale::task(os, with).await).await),
        will_it_scale::MEMHOG_ENTRY => {
            Some(through_json(params, async |with| will_it_scale::memhog(os, with).await).await)
        }
        autonumabench::PROCESS_ENTRY => {
            Some(through_json(params, async |with| autonumabench::process(os, with).await).await)
        }
        numa_probe::LOAD_ENTRY => Some(through_json(params, async |with| numa_probe::load(os, with).await).await),
        warehouses::JVM_ENTRY => Some(through_json(params, async |with| warehouses::process(os, with).await).await),
        service::PROCESS_ENTRY => Some(through_json(params, async |with| service::process(os, with).await).await),
        service::EXEC_ENTRY => Some(through_json(params, async |with| service::program(os, with).await).await),
        week::COMPILE_ENTRY => Some(through_json(params, async |with| week::compile(os, with).await).await),
        _ => None,
    }
}

/// An entry whose parameters and result cross a pipe.
async fn through_json<P: Wire, T: Wire>(params: &[u8], entry: impl AsyncFnOnce(P) -> T) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&entry(serde_json::from_slice(params)?).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_that_are_listed_are_those_in_force() {
        for WorkloadInfo { name, params, .. } in WORKLOADS {
            let listed = params.iter().map(|param| (param.name, param.default)).filter(|(_, text)| *text != "none");
            let default = Workload::parse(name, []);
            assert!(default.is_ok(), "{name}: {default:?}");
            assert_eq!(Workload::parse(name, listed), default, "{name}");
        }
    }
}
