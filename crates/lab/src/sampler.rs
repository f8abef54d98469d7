//! Samples of a real kernel while a workload runs: a process of its own beside the worker, so that it shares neither address
//! space nor lock with what is measured.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

use linux::{
    host::monotonic_ns,
    process::{die_with_parent, ending},
    sampler::{Reader, SAMPLER_COMMAND},
    worker,
};
use report::{Sample, Series};
use units::Picos;

/// More samples than this are not taken, but for the last one.
const SAMPLES_MAX: usize = 65_536;

/// A sampler that runs. It ends with whoever started it.
#[derive(Debug)]
pub struct Sampling {
    child: Child,
    answer: BufReader<ChildStdout>,
}

impl Sampling {
    /// Starts one; the first sample has been taken when this returns.
    pub fn start(every: Picos) -> Result<Self, String> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(SAMPLER_COMMAND).arg(every.0.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = die_with_parent(&mut command).spawn().map_err(|error| format!("the sampler: {error}"))?;
        let mut answer = BufReader::new(child.stdout.take().expect("the sampler's output is a pipe"));
        let mut ready = String::new();
        match answer.read_line(&mut ready) {
            Ok(1..) => Ok(Self { child, answer }),
            _ => Err(format!("the sampler {}", gone(&mut child))),
        }
    }

    /// Takes the last sample and returns the series.
    pub fn end(mut self) -> Result<Series, String> {
        drop(self.child.stdin.take());
        let mut text = Vec::new();
        let read = self.answer.read_to_end(&mut text);
        let status = self.child.wait().map_err(|error| format!("the sampler: {error}"))?;
        if !status.success() {
            return Err(format!("the sampler {}", ending(status)));
        }
        read.map_err(|error| format!("the sampler: {error}"))?;
        serde_json::from_slice(&text)
            .map_err(|error| format!("the sampler's series is not readable: {}", report::brief(error)))
    }
}

impl Drop for Sampling {
    /// A workload that failed needs none.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gone(child: &mut Child) -> String {
    let _ = child.kill();
    child.wait().map_or_else(|error| error.to_string(), ending)
}

/// Takes a sample at once and says so in a line, one after each `every_ps`, and one when `input` closes; then writes the series.
pub fn serve(
    every_ps: u64,
    mut input: impl Read + Send + 'static,
    output: &mut impl Write,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // In nanoseconds.
    let period = Picos(every_ps).as_nanos().max(1);
    let start = monotonic_ns();
    let mut reader = Reader::new()?;
    let mut samples = vec![Sample { at_us: 0, values: reader.values().to_vec() }];
    output.write_all(b"\n")?;
    output.flush()?;
    let (over, end) = mpsc::channel();
    worker::start(move || {
        let _ = io::copy(&mut input, &mut io::sink());
        let _ = over.send(());
    })?;
    let elapsed = || monotonic_ns() - start;
    // Bound: the run, whose end closes the input.
    loop {
        // An instant that was missed is left out.
        let next = (elapsed() / period + 1) * period;
        let is_over =
            end.recv_timeout(Duration::from_nanos(next - elapsed().min(next))) != Err(RecvTimeoutError::Timeout);
        let at_us = elapsed() / 1000;
        if is_over || samples.len() < SAMPLES_MAX {
            samples.push(Sample { at_us, values: reader.read()?.to_vec() });
        }
        if is_over {
            break;
        }
    }
    let series = Series::new(every_ps, reader.names(), &samples);
    serde_json::to_writer(&mut *output, &series)?;
    output.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An input that closes after a while, in which pages fault: counters that stand still have no column.
    struct Closes(Duration);

    impl Read for Closes {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            // A new process faults; memory of this one may have been touched before.
            Command::new("true").status()?;
            std::thread::sleep(self.0);
            Ok(0)
        }
    }

    fn series(every: Picos, lasts: Duration) -> Series {
        let mut output = Vec::new();
        serve(every.0, Closes(lasts), &mut output).unwrap();
        assert_eq!(output.first(), Some(&b'\n'), "it says that it has begun");
        serde_json::from_slice(&output).unwrap()
    }

    #[test]
    fn samples_are_of_the_start_of_instants_between_and_of_the_end() {
        let series = series(Picos::from_micros(20_000), Duration::from_millis(210));
        let times: Vec<u64> = series.samples().iter().map(|sample| sample.at_us).collect();
        // How many of them a busy machine takes, and when it comes to the end, nobody knows.
        let (first, last) = (times[0], times[times.len() - 1]);
        assert!(times.is_sorted() && first == 0 && last >= 210_000, "{times:?}");
        assert!((3..=last / 20_000 + 2).contains(&(times.len() as u64)), "{times:?}");
        assert!(series.columns.iter().any(|name| name == "pgfault"), "this process has faults: {:?}", series.columns);
    }

    #[test]
    fn a_run_shorter_than_the_time_between_two_samples_has_two() {
        assert_eq!(series(Picos::from_secs(100), Duration::from_millis(10)).samples().len(), 2);
    }
}
