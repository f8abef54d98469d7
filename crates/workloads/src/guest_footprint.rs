//! guest-footprint: memory that comes and goes as a trace says, for asking what is left of it on the host of a guest.
//!
//! A process follows phases. At the time of each phase the process holds a given number of bytes of anonymous memory (mapped,
//! each page written once) and of files (written, in the page cache unless reclaim takes them). Memory that it gives up is
//! unmapped, unlinked or truncated, the newest first. A process that is late goes on at once. The run ends with the last
//! phase, whose memory goes with the process. (The phases of `build` are our own; `free` is the case that free page reporting
//! was made for.)

pub mod trace;

use os::{Advice, MapSpec, Os, VmRange};
use units::{Bytes, Errno, Picos};

pub use self::trace::{Phase, Trace};
use crate::{
    During, Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo,
    block::{ADVISE, SIZE_EXPECTS, Size, parse_advise},
};

const TRACE: ParamInfo = ParamInfo {
    name: "trace",
    expects: "\"free\", \"build\", or (with --set) a file whose first line is seconds,anonymous,file",
    default: "free",
    about: "what is held when: all freed at once, a build with an idle end, or any trace of your own",
};
const SIZE: ParamInfo = ParamInfo {
    name: "size",
    expects: SIZE_EXPECTS,
    default: "auto",
    about: "the most that is held at once; auto is 70% of the memory, or what a trace of your own says",
};

const ADVISED: ParamInfo = ParamInfo { about: "MADV_HUGEPAGE on anonymous memory", ..ADVISE };

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "guest-footprint",
    about: "memory that comes and goes; what of it a guest's host has to keep",
    maps_memory: true,
    params: &[TRACE, SIZE, ADVISED],
};

/// The most that built-in traces hold where the user does not say.
const HELD: Size = Size::Percent(70);
/// Size of a file.
const FILE: Bytes = Bytes::mib(4);
/// Bytes of one write(2).
const WRITE: Bytes = Bytes::kib(64);

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Memory and files held over time.
    pub trace: Trace,
    /// The size that the trace is scaled to; none is [`HELD`], or as it is written.
    pub size: Option<Size>,
    /// `MADV_HUGEPAGE` on anonymous memory.
    pub advise: bool,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self { trace: Trace::free(), size: None, advise: false };
        for (name, text) in given {
            match name {
                "trace" => {
                    params.trace = Trace::from_param(text).ok_or_else(|| ParamError::BadValue {
                        name: TRACE.name.to_owned(),
                        expects: TRACE.expects.to_owned(),
                        found: text.to_owned(),
                    })?;
                }
                "advise" => params.advise = parse_advise(text)?,
                "size" if text == "auto" => params.size = None,
                "size" => params.size = Some(Size::parse(&SIZE, text)?),
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    /// The phases with sizes in bytes, in a run with `memory` bytes.
    pub fn phases(&self, memory: Bytes) -> Vec<Phase> {
        let size = self.size.or_else(|| self.trace.is_relative().then_some(HELD));
        match size {
            Some(size) => self.trace.scaled_to(size.of(memory)),
            None => self.trace.phases().to_vec(),
        }
    }

    pub(crate) fn memory(&self, total: Bytes) -> Bytes {
        self.phases(total).iter().map(|phase| phase.anonymous).max().unwrap_or_default()
    }

    pub(crate) fn files(&self, total: Bytes) -> Bytes {
        self.phases(total).iter().map(|phase| phase.file).max().unwrap_or_default()
    }

    /// Anonymous memory has nowhere else to go; files have a disk.
    pub(crate) fn misfit(&self, memory: Bytes) -> Option<String> {
        let phase = self.phases(memory).into_iter().find(|phase| phase.anonymous > memory)?;
        let (held, has) = (phase.anonymous.as_mib(), memory.as_mib());
        let place = self.trace.place(&phase);
        Some(format!("{place}: {held} MiB of anonymous memory (trace, size), and the memory of the run is {has} MiB"))
    }

    pub(crate) fn case(&self) -> String {
        self.trace.name().to_owned()
    }

    /// How long it takes if nothing is late.
    pub fn length(&self) -> Picos {
        self.trace.phases().last().map_or(Picos(0), |phase| phase.at)
    }
}

/// Follows the trace; its outcomes are the phases.
pub async fn run<O: Os>(os: O, params: Params) -> Result<Outcome, WorkloadError> {
    let before = os.vmstat().await.during("vmstat")?;
    let start = os.now();
    let mut held = Held { advise: params.advise, ..Held::default() };
    let mut outcomes = Vec::new();
    for phase in params.phases(os.memory()) {
        let due = start + phase.at;
        if due > os.now() {
            os.sleep(due.since(os.now())).await;
        }
        let used = os.rusage().await.during("getrusage")?;
        let mut outcome = TaskOutcome::starting(os.now(), used);
        held.follow(&os, &phase, &mut outcome).await.during("a phase of the trace")?;
        outcome.end = os.now();
        outcome.rusage = os.rusage().await.during("getrusage")?.since(&used);
        outcome.faults = outcome.rusage.faults();
        outcomes.push(outcome);
    }
    let window = os.now().since(start);
    let counters = os.vmstat().await.during("vmstat")?.since(&before);
    let (gauges, unable) = (std::collections::BTreeMap::new(), Vec::new());
    Ok(Outcome { tasks: outcomes, counters, gauges, window, unable, cpus: None })
}

/// Memory and files held now: mappings in the order in which they were made, and files full to this many bytes.
#[derive(Default)]
struct Held {
    advise: bool,
    mappings: Vec<VmRange>,
    files: Bytes,
}

impl Held {
    fn anonymous(&self) -> Bytes {
        self.mappings.iter().map(|mapping| mapping.len).sum()
    }

    /// Frees memory before it takes more, so that there is room.
    async fn follow<O: Os>(&mut self, os: &O, phase: &Phase, outcome: &mut TaskOutcome) -> Result<(), Errno> {
        let whole = |size: Bytes| size.frames().bytes();
        let (anonymous, file) = (whole(phase.anonymous), whole(phase.file));
        self.shrink(os, anonymous).await?;
        self.shrink_files(os, file).await?;
        let more = Bytes(anonymous.0.saturating_sub(self.anonymous().0));
        if more > Bytes(0) {
            let mapping = os.mmap(more, MapSpec::Anonymous).await?;
            if self.advise {
                os.madvise(mapping, Advice::HugePage).await?;
            }
            self.mappings.push(mapping);
            os.store(mapping, Bytes::PAGE).await?;
            outcome.stores += mapping.pages(Bytes::PAGE);
        }
        self.grow_files(os, file).await
    }

    async fn shrink<O: Os>(&mut self, os: &O, to: Bytes) -> Result<(), Errno> {
        let mut over = Bytes(self.anonymous().0.saturating_sub(to.0));
        while over > Bytes(0) {
            let last = self.mappings.last_mut().expect("what is held is in mappings");
            let gone = last.len.min(over);
            os.munmap(last.part(last.len - gone, gone)).await?;
            last.len = last.len - gone;
            if last.len == Bytes(0) {
                self.mappings.pop();
            }
            over = over - gone;
        }
        Ok(())
    }

    async fn grow_files<O: Os>(&mut self, os: &O, to: Bytes) -> Result<(), Errno> {
        while self.files < to {
            let (number, from) = (self.files.0 / FILE.0, Bytes(self.files.0 % FILE.0));
            let len = (FILE - from).min(to - self.files);
            let file = if from == Bytes(0) { os.create(&name(number)).await? } else { os.open(&name(number)).await? };
            os.write_blocks(file, from, len, WRITE).await?;
            os.close(file).await?;
            self.files += len;
        }
        Ok(())
    }

    async fn shrink_files<O: Os>(&mut self, os: &O, to: Bytes) -> Result<(), Errno> {
        while self.files > to {
            let number = (self.files.0 - 1) / FILE.0;
            let start = FILE * number;
            if start >= to {
                os.unlink(&name(number)).await?;
                self.files = start;
            } else {
                let file = os.open(&name(number)).await?;
                os.truncate(file, to - start).await?;
                os.close(file).await?;
                self.files = to;
            }
        }
        Ok(())
    }
}

fn name(number: u64) -> String {
    format!("footprint/{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(given: &[(&'static str, &str)]) -> Result<Params, ParamError> {
        Params::parse(given.iter().copied())
    }

    #[test]
    fn a_trace_holds_at_most_its_size() {
        let memory = Bytes::mib(1000);
        for trace in ["free", "build"] {
            let params = params(&[("trace", trace)]).unwrap();
            let held = |phase: &Phase| phase.anonymous + phase.file;
            let most = params.phases(memory).iter().map(held).max().unwrap();
            assert!(Bytes::mib(699) < most && most <= Bytes::mib(700), "{trace}: {most}");
            assert_eq!(params.case(), trace);
        }
        let free = params(&[("size", "16MiB")]).unwrap();
        assert_eq!((free.memory(memory), free.files(memory)), (Bytes::mib(16), Bytes(0)));
        let build = params(&[("trace", "build"), ("size", "16MiB")]).unwrap();
        assert!(build.files(memory) > Bytes::mib(4));
    }

    #[test]
    fn a_trace_of_ones_own_is_as_written_unless_it_is_scaled() {
        let trace = Trace::from_csv("mine.csv", "seconds,anonymous,file\n0,8MiB,0\n2,0,4194304\n").unwrap().to_string();
        let as_written = params(&[("trace", &trace)]).unwrap();
        assert_eq!((as_written.memory(Bytes(0)), as_written.files(Bytes(0))), (Bytes::mib(8), Bytes::mib(4)));
        assert_eq!((as_written.case().as_str(), as_written.length()), ("mine", Picos::from_secs(2)));
        let half = params(&[("trace", &trace), ("size", "4MiB")]).unwrap();
        assert_eq!((half.memory(Bytes(0)), half.files(Bytes(0))), (Bytes::mib(4), Bytes::mib(2)));
        let problem = as_written.misfit(Bytes::mib(7)).unwrap();
        assert_eq!(problem, "mine.csv:2: 8 MiB of anonymous memory (trace, size), and the memory of the run is 7 MiB");
        assert_eq!(as_written.misfit(Bytes::mib(8)), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [("trace", "builds"), ("trace", ""), ("size", "0%"), ("size", "many"), ("traces", "free")] {
            assert!(params(&[bad]).is_err(), "{bad:?}");
        }
    }
}
