//! vm-larger-than-a-node: a process maps the memory of a virtual machine, which may be more than its node has.
//!
//! As QEMU with a device that is handed to its guest: one task on the CPUs of a node maps `size` bytes, advises huge pages and
//! pins all of it (VFIO_IOMMU_MAP_DMA), which brings in each page. Without `pin` it writes all of it once. Then it says where
//! its memory ended. (A. Arcangeli's test of August 2018 was that: "assign a device to a guest larger than a node".)

use os::{Advice, MapSpec, Os, VmRange};
use units::{Bytes, Errno};

use crate::{
    Outcome, ParamError, ParamInfo, TaskOutcome, Unable, WorkloadError, WorkloadInfo,
    block::{ADVISE, SIZE_EXPECTS, Size, parse_advise},
    conditions::{CPU_NODE, CpuNode},
    meet::{Meet, run_alone},
    params::one_of,
};

const SIZE: ParamInfo =
    ParamInfo { name: "size", expects: SIZE_EXPECTS, default: "60%", about: "memory of the virtual machine" };
const ADVISED: ParamInfo = ParamInfo { default: "yes", about: "MADV_HUGEPAGE on that memory", ..ADVISE };
const PIN: ParamInfo = ParamInfo {
    name: "pin",
    expects: "\"no\" or \"yes\"",
    default: "yes",
    about: "pin it, as for a device of the guest; else each byte is written once",
};

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "vm-larger-than-a-node",
    about: "map and pin the memory of a virtual machine, which may be more than its node has",
    maps_memory: true,
    params: &[SIZE, PIN, ADVISED, CPU_NODE],
};

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Memory of the virtual machine.
    pub size: Size,
    /// Whether it is pinned.
    pub pin: bool,
    /// `MADV_HUGEPAGE` on it.
    pub advise: bool,
    /// The node whose CPUs it runs on.
    pub cpus: CpuNode,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self { size: Size::Percent(60), pin: true, advise: true, cpus: CpuNode::DEFAULT };
        for (name, text) in given {
            match name {
                "size" => params.size = Size::parse(&SIZE, text)?,
                "pin" => params.pin = !one_of(&PIN, text, "no", "yes")?,
                "advise" => params.advise = parse_advise(text)?,
                "cpus" => params.cpus = CpuNode::parse(text)?,
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    /// In whole huge pages, as a virtual machine's memory is.
    pub fn size(&self, total: Bytes) -> Bytes {
        Bytes::HUGE_PAGE * (self.size.of(total).0 / Bytes::HUGE_PAGE.0)
    }

    pub(crate) fn memory(&self, total: Bytes) -> Bytes {
        self.size(total) + Bytes::HUGE_PAGE
    }

    /// Pinned memory has nowhere else to go.
    pub(crate) fn misfit(&self, total: Bytes) -> Option<String> {
        let (size, has) = (self.size(total).as_mib(), total.as_mib());
        (self.pin && size > has).then(|| {
            format!(
                "size: {size} MiB are to be pinned, and the memory of the run is {has} MiB: expected less, or pin=no"
            )
        })
    }

    /// By size, as published: `gb=30`.
    pub(crate) fn case(&self) -> String {
        let size = match self.size {
            Size::Percent(percent) => format!("size={percent}%"),
            Size::Bytes(bytes) if bytes.0.is_multiple_of(Bytes::gib(1).0) => {
                format!("gb={}", bytes.0 / Bytes::gib(1).0)
            }
            Size::Bytes(bytes) => format!("mb={}", bytes.as_mib()),
        };
        let marks = [(!self.pin, "unpinned"), (!self.advise, "unadvised")];
        marks.iter().filter(|(is, _)| *is).fold(size, |case, (_, mark)| format!("{case},{mark}"))
    }
}

/// Runs the task and reads the machine's counters around all that it does.
pub async fn run<O: Os>(os: O, params: Params) -> Result<Outcome, WorkloadError> {
    let (tasks, window) = run_alone(&os, async move |os: &O, meet| work(os, &params, meet).await).await?;
    let mut unable = Vec::new();
    if tasks.iter().any(|task| task.places.is_none()) {
        unable.push(Unable {
            what: "places of memory".to_owned(),
            reason: "the kernel does not show this process where its pages are, or which are huge".to_owned(),
        });
    }
    Ok(window.outcome(tasks, unable))
}

async fn work<O: Os>(os: &O, params: &Params, meet: Meet) -> Result<TaskOutcome, Errno> {
    if let Some(cpus) = params.cpus.of(&os.nodes()) {
        os.set_affinity(&cpus).await?;
    }
    os.arrive(meet.ready).await?;
    os.arrive(meet.start).await?;
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    let mapping = os.mmap(params.memory(os.memory()), MapSpec::Anonymous).await?;
    let guest = mapping.aligned_part(Bytes::HUGE_PAGE, params.size(os.memory()));
    if params.advise {
        os.madvise(guest, Advice::HugePage).await?;
    }
    if params.pin {
        os.pin(guest).await?;
    } else {
        os.fill(guest).await?;
    }
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    outcome.faults = outcome.rusage.faults();
    outcome.stores = guest.pages(Bytes::PAGE);
    os.arrive(meet.end).await?;
    os.arrive(meet.leave).await?;
    outcome.places = places(os, guest).await?;
    os.munmap(mapping).await?;
    Ok(outcome)
}

/// Where memory ended; nothing where the target does not say.
pub(crate) async fn places<O: Os>(os: &O, range: VmRange) -> Result<Option<Vec<os::Placed>>, Errno> {
    match os.places(range).await {
        Ok(places) => Ok(Some(places)),
        Err(Errno::NOSYS | Errno::PERM) => Ok(None),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(given: &[(&'static str, &str)]) -> Result<Params, ParamError> {
        Params::parse(given.iter().copied())
    }

    #[test]
    fn cases_are_named_by_size() {
        let case = |given: &[(&'static str, &str)]| params(given).unwrap().case();
        assert_eq!(case(&[]), "size=60%");
        assert_eq!(case(&[("size", "34GiB")]), "gb=34");
        assert_eq!(case(&[("size", "400MiB"), ("pin", "no"), ("advise", "no")]), "mb=400,unpinned,unadvised");
    }

    #[test]
    fn more_than_there_is_cannot_be_pinned() {
        let total = Bytes::gib(64);
        let problem = params(&[("size", "65GiB")]).unwrap().misfit(total);
        let expected =
            "size: 66560 MiB are to be pinned, and the memory of the run is 65536 MiB: expected less, or pin=no";
        assert_eq!(problem.as_deref(), Some(expected));
        assert_eq!(params(&[("size", "65GiB"), ("pin", "no")]).unwrap().misfit(total), None);
        assert_eq!(params(&[("size", "42GiB")]).unwrap().misfit(total), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [("size", "0"), ("pin", "maybe"), ("advise", "1"), ("cpus", "none"), ("cpu", "0")] {
            assert!(params(&[bad]).is_err(), "{bad:?}");
        }
    }
}
