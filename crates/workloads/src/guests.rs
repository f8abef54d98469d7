//! guests: several guests on a host whose memory is not enough for all guests at once.
//!
//! The guests take turns. In its turn a guest fills memory with one process, as numactl's memhog does, and frees it; then it
//! is idle until all others have had theirs. No two of them need memory at the same time. Whether the host has to swap depends
//! on whether it hears of what they have freed.
//!
//! This file is the first program of each guest, over [`Os`]. That there is a host, and that the guests are its
//! processes, is the target's affair; only the simulator has that.

use os::{MapSpec, Os};
use units::{Bytes, Picos};

use crate::{
    During, Iteration, Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo, params::value,
};

const GUESTS: ParamInfo =
    ParamInfo { name: "guests", expects: "a whole number from 1 to 256", default: "2", about: "how many there are" };
const MEMORY: ParamInfo = ParamInfo {
    name: "memory",
    expects: "a multiple of 2MiB from \"64MiB\" to \"1TiB\"",
    default: "32GiB",
    about: "memory of each guest",
};
const CPUS: ParamInfo = ParamInfo {
    name: "cpus",
    expects: "a whole number from 1 to 256",
    default: "2",
    about: "CPUs of each guest, each of them a task of the host",
};
const HOG: ParamInfo = ParamInfo {
    name: "hog",
    expects: "a whole number from 1 to 95",
    default: "80",
    about: "what a guest fills in its turn, in percent of its memory",
};
const ROUNDS: ParamInfo = ParamInfo {
    name: "rounds",
    expects: "a whole number from 1 to 1000",
    default: "2",
    about: "turns that each guest has",
};
const TURN: ParamInfo = ParamInfo {
    name: "turn",
    expects: "whole seconds from 1 to 86400",
    default: "60",
    about: "from the begin of one guest's turn to that of the next one's, if that is done by then",
};
const REPORTING: ParamInfo = ParamInfo {
    name: "reporting",
    expects: "\"on\" or \"off\"",
    default: "on",
    about: "whether guests report free pages to the host",
};

/// The smallest guest.
const LEAST: Bytes = Bytes::mib(64);

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "guests",
    about: "guests of one host that fill and free their memory in turns: who gives memory back, and does the host swap",
    maps_memory: false,
    params: &[GUESTS, MEMORY, CPUS, HOG, ROUNDS, TURN, REPORTING],
};

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// How many guests there are.
    pub guests: u32,
    /// Memory of each.
    pub memory: Bytes,
    /// CPUs of each.
    pub cpus: u32,
    /// Memory that each fills in its turn, in percent of its own.
    pub hog: u64,
    /// Turns of each.
    pub rounds: u32,
    /// Time from the turn of a guest to the turn of the guest after it.
    pub turn: Picos,
    /// Do they report free pages?
    pub reporting: bool,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self {
            guests: 2,
            memory: Bytes::gib(32),
            cpus: 2,
            hog: 80,
            rounds: 2,
            turn: Picos::from_secs(60),
            reporting: true,
        };
        for (name, text) in given {
            match name {
                "guests" => params.guests = value(&GUESTS, text, |n| (1..=256).contains(n))?,
                "memory" => {
                    params.memory = value(&MEMORY, text, |size: &Bytes| {
                        size.0.is_multiple_of(Bytes::HUGE_PAGE.0) && (LEAST..=Bytes::gib(1024)).contains(size)
                    })?;
                }
                "cpus" => params.cpus = value(&CPUS, text, |n| (1..=256).contains(n))?,
                "hog" => params.hog = value(&HOG, text, |n| (1..=95).contains(n))?,
                "rounds" => params.rounds = value(&ROUNDS, text, |n| (1..=1000).contains(n))?,
                "turn" => params.turn = Picos::from_secs(value(&TURN, text, |s| (1..=86_400).contains(s))?),
                "reporting" => {
                    params.reporting = value::<String>(&REPORTING, text, |word| word == "on" || word == "off")
                        .map(|word| word == "on")?;
                }
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    /// For messages: how large guests may be, or how many there may be, with `room` bytes of host memory and swap.
    pub(crate) fn fitting(&self, room: Bytes) -> String {
        let each = Bytes(room.0 / u64::from(self.guests) / Bytes::HUGE_PAGE.0 * Bytes::HUGE_PAGE.0);
        let change = if each < LEAST {
            format!("at most {} guests", room.0 / self.memory.0)
        } else {
            format!("memory of at most {each}")
        };
        format!("{change}, or a machine with more memory or swap")
    }

    pub(crate) fn case(&self) -> String {
        format!("{}-{}", self.guests, if self.reporting { "on" } else { "off" })
    }
}

/// The first program of a guest; `before` guests begin before it.
pub async fn guest<O: Os>(os: &O, params: &Params, before: u32) -> Result<TaskOutcome, WorkloadError> {
    let boot = os.now();
    let hog = Bytes(os.memory().0 * params.hog / 100 / Bytes::HUGE_PAGE.0 * Bytes::HUGE_PAGE.0);
    let used = os.rusage().await.during("getrusage")?;
    let mut outcome = TaskOutcome::starting(boot, used);
    for round in 0..params.rounds {
        let turns = u64::from(round * params.guests + before);
        let from = boot + Picos(params.turn.0 * turns);
        if from > os.now() {
            os.sleep(from.since(os.now())).await;
        }
        let start = os.now();
        let range = os.mmap(hog, MapSpec::Anonymous).await.during("mmap")?;
        os.fill(range).await.during("a write to memory")?;
        let faults = range.pages(Bytes::PAGE);
        outcome.iterations.push(Iteration { faulting: os.now().since(start), faults, unmapping: None });
        os.munmap(range).await.during("munmap")?;
    }
    // All guests stop together: when the last guest's last turn is over.
    let end = boot + Picos(params.turn.0 * u64::from(params.rounds * params.guests));
    if end > os.now() {
        os.sleep(end.since(os.now())).await;
    }
    outcome.end = os.now();
    outcome.rusage = os.rusage().await.during("getrusage")?.since(&used);
    Ok(outcome)
}

/// On a target that has no guests.
pub(crate) fn run() -> Result<Outcome, WorkloadError> {
    Err(WorkloadError::Call("starting a guest", units::Errno::NOSYS))
}
