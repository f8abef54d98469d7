//! QEMU's monitor: what somebody outside does with the balloon of a guest while it runs.
//!
//! The protocol is QMP (docs/interop/qmp-spec.rst, QEMU 7.2), the commands `balloon` and `query-balloon` (qapi/machine.json).
//! The socket is one of a pair and QEMU's standard input: no file has its name, no other process can connect, and it goes with
//! the two processes.

use std::{
    collections::VecDeque,
    io::{self, BufReader},
    net::Shutdown,
    os::unix::net::UnixStream,
    process::{Command, Stdio},
    time::Duration,
};

use qapi::{ExecuteError, Qmp, Stream, qmp};
use units::{Bytes, Frames, Picos};

use crate::host::monotonic_ns;

/// Arguments that tell QEMU of its end of the pair, which is file descriptor 0.
pub(crate) const ARGUMENTS: [(&str, &str); 2] =
    [("-chardev", "socket,id=monitor,fd=0"), ("-mon", "chardev=monitor,mode=control")];
/// How long an answer may take on a busy host.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often the balloon is asked for its size. What it says by itself (the event `BALLOON_CHANGE`, up to once a second) is
/// read then, so that it never fills the socket.
const ASKED_EVERY_NS: u64 = 1_000_000_000;

/// An operator: knows from when on the balloon shall hold how much.
#[derive(Clone, Debug, Default)]
pub struct Operator {
    /// Orders to come by the host's monotonic clock in nanoseconds, earliest first.
    orders: VecDeque<(u64, Frames)>,
    held: Option<Frames>,
}

impl Operator {
    /// Begins to drive the balloon: from now on it shall hold the given frames at each of these times, earliest first.
    pub fn begin(&mut self, orders: impl IntoIterator<Item = (Picos, Frames)>) {
        self.begin_at(monotonic_ns(), orders);
    }

    fn begin_at(&mut self, now_ns: u64, orders: impl IntoIterator<Item = (Picos, Frames)>) {
        self.orders = orders.into_iter().map(|(at, pages)| (now_ns + at.as_nanos(), pages)).collect();
    }

    /// Frames in the balloon when it was asked last, if it ever was.
    pub fn held(&self) -> Option<Frames> {
        self.held
    }

    /// The newest order whose time has come, once.
    fn due(&mut self, now_ns: u64) -> Option<Frames> {
        let mut newest = None;
        while let Some((_, pages)) = self.orders.pop_front_if(|(at, _)| *at <= now_ns) {
            newest = Some(pages);
        }
        newest
    }
}

/// This process's end.
pub(crate) struct Monitor {
    qmp: Qmp<Stream<BufReader<UnixStream>, UnixStream>>,
    is_open: bool,
    ask_ns: u64,
    /// All memory of the guest.
    memory: Bytes,
}

impl Monitor {
    /// Connects the monitor to QEMU's end of a socket; the guest has `memory` bytes.
    pub(crate) fn attach(command: &mut Command, memory: Bytes) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
        Self::on(ours, memory)
    }

    fn on(ours: UnixStream, memory: Bytes) -> io::Result<Self> {
        ours.set_read_timeout(Some(PATIENCE))?;
        ours.set_write_timeout(Some(PATIENCE))?;
        let stream = Stream::new(BufReader::new(ours.try_clone()?), ours);
        Ok(Self { qmp: Qmp::new(stream), is_open: false, ask_ns: 0, memory })
    }

    /// Carries out what is due, and asks now and then what has come of it. The guest must have begun: QEMU greets before.
    pub(crate) fn look(&mut self, operator: &mut Operator) -> Result<(), String> {
        let now_ns = monotonic_ns();
        let due = operator.due(now_ns);
        if due.is_none() && now_ns < self.ask_ns {
            return Ok(());
        }
        operator.held = Some(self.talk(due).map_err(|error| format!("QEMU's monitor: {error}"))?);
        self.ask_ns = now_ns + ASKED_EVERY_NS;
        Ok(())
    }

    /// Tells the balloon its target, and returns the frames that it holds.
    fn talk(&mut self, shall: Option<Frames>) -> Result<Frames, ExecuteError> {
        if !self.is_open {
            self.qmp.handshake()?;
            self.is_open = true;
        }
        if let Some(pages) = shall {
            // What the guest is left with: the device counts from all of its memory (`virtio_balloon_to_target`).
            let left = i64::try_from(self.memory.0.saturating_sub(pages.bytes().0)).unwrap_or(i64::MAX);
            self.qmp.execute(&qmp::balloon { value: left })?;
        }
        let left = self.qmp.execute(&qmp::query_balloon {})?.actual;
        self.qmp.events();
        Ok(Bytes(self.memory.0.saturating_sub(left.try_into().unwrap_or(0))).frames())
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // It fails when QEMU has gone.
        let _ = self.qmp.inner().get_ref_write().shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, Write},
        thread,
    };

    use super::*;

    const GREETING: &str =
        r#"{"QMP":{"version":{"qemu":{"micro":22,"minor":2,"major":7},"package":""},"capabilities":["oob"]}}"#;

    const REFUSED: &str = r#"{"error":{"class":"DeviceNotActive","desc":"No balloon device has been activated"}}"#;
    const BOTH: &str = r#"{"timestamp":{"seconds":1,"microseconds":2},"event":"BALLOON_CHANGE","data":{"actual":5}}
{"return":{"actual":1073741824}}"#;

    /// Answers as QEMU does, and returns the commands that it got.
    fn emulator(theirs: UnixStream, answers: &'static [&'static str]) -> thread::JoinHandle<Vec<String>> {
        thread::spawn(move || {
            let mut said = BufReader::new(theirs.try_clone().unwrap()).lines();
            let mut theirs = theirs;
            writeln!(theirs, "{GREETING}").unwrap();
            let mut answer = |answer: &&str| {
                let command = said.next().unwrap().unwrap();
                writeln!(theirs, "{answer}").unwrap();
                command
            };
            answers.iter().map(&mut answer).collect()
        })
    }

    fn frames(size: Bytes) -> Frames {
        size.frames()
    }

    #[test]
    fn the_newest_order_that_is_due_is_carried_out_once() {
        let mut operator = Operator::default();
        assert_eq!(operator.due(u64::MAX), None);
        let at = |ms: u64, pages| (Picos::from_micros(ms * 1000), Frames(pages));
        operator.begin_at(5_000_000, [at(0, 1), at(10, 2), at(20, 3)]);
        assert_eq!([4_999_999, 5_000_000, 5_000_001].map(|now| operator.due(now)), [None, Some(Frames(1)), None]);
        // Who is late leaves out what is over.
        assert_eq!([60_000_000, 60_000_001].map(|now| operator.due(now)), [Some(Frames(3)), None]);
    }

    #[test]
    fn a_balloon_hears_what_the_guest_is_left_with() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let heard = emulator(theirs, &[r#"{"return":{}}"#, r#"{"return":{}}"#, r#"{"return":{"actual":1006632960}}"#]);
        let mut monitor = Monitor::on(ours, Bytes::gib(1)).unwrap();
        let mut operator = Operator::default();
        operator.begin([(Picos(0), frames(Bytes::mib(624)))]);
        monitor.look(&mut operator).unwrap();
        assert_eq!(operator.held(), Some(frames(Bytes::mib(64))), "so far");
        // Nothing is due, and it was asked just now.
        assert_eq!(monitor.look(&mut operator), Ok(()));
        let heard = heard.join().unwrap();
        assert_eq!(heard[1], r#"{"execute":"balloon","arguments":{"value":419430400}}"#);
        assert!(heard[0].contains("qmp_capabilities") && heard[2].contains("query-balloon"), "{heard:?}");
    }

    #[test]
    fn events_of_qemu_are_no_answers_and_refusals_are_reported() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let heard = emulator(theirs, &[r#"{"return":{}}"#, BOTH, REFUSED]);
        let mut monitor = Monitor::on(ours, Bytes::gib(1)).unwrap();
        let mut operator = Operator::default();
        monitor.look(&mut operator).unwrap();
        assert_eq!(operator.held(), Some(Frames(0)));
        operator.begin([(Picos(0), Frames(1))]);
        let problem = monitor.look(&mut operator).unwrap_err();
        assert!(problem.starts_with("QEMU's monitor: ") && problem.contains("No balloon device"), "{problem}");
        heard.join().unwrap();
        // It is gone.
        operator.begin([(Picos(0), Frames(2))]);
        let problem = monitor.look(&mut operator).unwrap_err();
        assert!(problem.starts_with("QEMU's monitor: "), "{problem}");
    }
}
