//! A service as a file says it: processes, each with phases one after the other, and the latency of their operations.
//!
//! The file is read elsewhere; here is the plan that it makes, and how the plan runs over [`Os`](os::Os). Requests come at their
//! time, whether the service keeps up or not (an open loop): what begins late has a latency that says so. Draws are keyed by
//! process, phase and thread, so that all variants see the same requests.

mod arena;
mod copies;
mod crew;
mod meeting;
mod operations;
mod pace;
mod pattern;
mod phase;
mod plan;
mod process;
mod run;

use units::Bytes;

use self::plan::{added, times};
pub use self::{
    operations::{EXEC_ENTRY, ProgramParams, program},
    plan::{
        Access, Action, Advising, Child, Cpus, Event, Exec, Freed, Phase, PieceClass, Pinning, Process, Rate, Requests,
        Service, Share, Until,
    },
    process::{PROCESS_ENTRY, ProcessParams, process},
    run::run,
};
use crate::{ParamError, ParamInfo, WorkloadInfo};

const SERVICE: ParamInfo = ParamInfo {
    name: "service",
    expects: "a service as JSON, as pagelab makes it of a file",
    default: "none",
    about: "what the file says (docs/services.md)",
};

/// The entry of services in `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "service",
    about: "processes and phases as a file of your own says: pagelab run ./my-service.toml (docs/services.md)",
    maps_memory: true,
    params: &[SERVICE],
};

impl Service {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut service = Self::default();
        for (name, text) in given {
            if name != SERVICE.name {
                return Err(ParamError::UnknownParam { name: name.to_owned() });
            }
            service = serde_json::from_str(text).map_err(|_| ParamError::BadValue {
                name: SERVICE.name.to_owned(),
                expects: SERVICE.expects.to_owned(),
                found: text.chars().take(40).collect(),
            })?;
        }
        Ok(service)
    }

    /// The value of the parameter `service` that makes this one.
    pub fn to_param(&self) -> (String, String) {
        (SERVICE.name.to_owned(), serde_json::to_string(self).expect("a plan is JSON"))
    }

    /// Memory that all processes have mapped at once, at most.
    pub(crate) fn memory(&self, total: Bytes) -> Bytes {
        let all = self.processes.iter().map(|process| times(process.memory(total), process.copies.into()));
        all.fold(Bytes(0), added)
    }

    /// Bytes of all files that the service makes.
    pub(crate) fn files(&self, total: Bytes) -> Bytes {
        let all = self.processes.iter().map(|process| times(process.files(total), process.copies.into()));
        all.fold(Bytes(0), added)
    }
}
