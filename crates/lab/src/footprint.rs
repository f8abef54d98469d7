//! The memory of a guest on its host over time: how often it is looked at, and how what was seen becomes part of a cell.

use linux::footprint::Sample as Seen;
use os::Os;
use report::{
    Footprint, Held, Sample, Series,
    record::{HUGE, RESIDENT, USED},
};
use sim::Samples;
use units::{Frames, Picos, Time, setting::REPORTING_DELAY};
use workloads::{Outcome, Workload};

/// The gauge of the simulator: base pages of the guest that its host backs.
pub(crate) const GAUGE: &str = "sim_host_resident";
/// Base pages that are free, and those that a balloon holds, which nobody uses either.
const FREE: [&str; 2] = ["nr_free_pages", mm::guest::balloon::GAUGE];
/// Between two samples, at least.
const EVERY: Picos = Picos::from_micros(100_000);
/// Samples between two passes of reporting, at least.
const SAMPLES_OF_PASS: u64 = 4;

const fn millis(count: u64) -> Picos {
    Picos(Picos::from_micros(1000).0 * count)
}

/// Samples of one run, about.
const SAMPLES: u64 = 6000;

/// How often it is looked at while a workload runs that asks for it, with these settings. Passes of reporting that follow each
/// other sooner than usual are told apart too.
pub(crate) fn every(workload: &Workload, settings: &[(String, String)]) -> Option<Picos> {
    let Workload::GuestFootprint(params) = workload else { return None };
    let delay = settings.iter().rfind(|(name, _)| name == REPORTING_DELAY).and_then(|(_, delay)| delay.parse().ok());
    let often = delay.map_or(EVERY, |delay: u64| EVERY.min(millis((delay / SAMPLES_OF_PASS).max(1))));
    Some(often.max(millis(params.length().0 / SAMPLES / millis(1).0)))
}

/// What the guest held, without what its host had.
pub(crate) fn held<O: Os>(workload: &Workload, os: &O, outcome: &Outcome) -> Vec<Held> {
    let Workload::GuestFootprint(params) = workload else { return Vec::new() };
    let phases = params.phases(os.memory());
    let held = |(phase, task): (&workloads::guest_footprint::Phase, &workloads::TaskOutcome)| Held {
        at_us: micros(task.start),
        done_us: micros(task.end),
        anonymous: phase.anonymous.0,
        file: phase.file.0,
    };
    phases.iter().zip(&outcome.tasks).map(held).collect()
}

fn micros(at: Time) -> u64 {
    Picos(at.0).as_nanos() / 1000
}

/// Not after the last phase: what a process that ends gives back is nobody's question.
fn is_inside(held: &[Held], sample: &Sample) -> bool {
    held.last().is_none_or(|last| sample.at_us <= last.done_us)
}

/// The footprint of a simulated guest with `frames` frames, holes not counted; none where its host is not simulated.
pub(crate) fn simulated(every: Picos, samples: &Samples, held: Vec<Held>, frames: Frames) -> Option<Footprint> {
    let columns = |gauges: &[&str]| -> Vec<usize> {
        let is_gauge = |name: &String| name.rsplit('/').next().is_some_and(|last| gauges.contains(&last));
        (0..samples.names.len()).filter(|column| is_gauge(&samples.names[*column])).collect()
    };
    let (resident, unused) = (columns(&[GAUGE]), columns(&FREE));
    let sum = |columns: &[usize], values: &[u64]| columns.iter().map(|column| values[*column]).sum::<u64>();
    let sample = |(at, values): &(Time, Vec<u64>)| Sample {
        at_us: micros(*at),
        values: vec![sum(&resident, values), frames.0.saturating_sub(sum(&unused, values))],
    };
    let rows: Vec<Sample> = samples.rows.iter().map(sample).filter(|sample| is_inside(&held, sample)).collect();
    let series = Series::new(every.0, &[RESIDENT, USED].map(str::to_owned), &rows);
    (!resident.is_empty()).then_some(Footprint { epoch_us: 0, held, series })
}

/// Frames of a machine that exist.
pub(crate) fn frames(machine: &rules::machine::MachineSpec) -> Frames {
    machine.nodes.iter().flat_map(|node| &node.zones).map(|zone| zone.present).sum()
}

/// The same instant by the clock of the host and by that of a guest, in nanoseconds. A guest's clock is as fast as its host's
/// (but for one that counts instructions, whose times are then off).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clocks {
    pub(crate) host_ns: u64,
    pub(crate) guest_ns: u64,
}

/// Puts what was seen of QEMU into the footprint of a cell: at times of its workload, from its start on.
pub(crate) fn fill(footprint: &mut Footprint, every: Picos, seen: &[Seen], clocks: Clocks) {
    let sample = |seen: &Seen| {
        let of_guest = (seen.at_ns + clocks.guest_ns).checked_sub(clocks.host_ns)?;
        let at_us = (of_guest / 1000).checked_sub(footprint.epoch_us)?;
        Some(Sample { at_us, values: vec![seen.resident.0, seen.huge.0] })
    };
    let rows: Vec<Sample> =
        seen.iter().filter_map(sample).filter(|sample| is_inside(&footprint.held, sample)).collect();
    footprint.series = Series::new(every.0, &[RESIDENT, HUGE].map(str::to_owned), &rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_the_host_are_at_times_of_the_workload() {
        let seen = |at_ns, pages| Seen { at_ns, resident: Frames(pages), huge: Frames(0) };
        let clocks = Clocks { host_ns: 9_000_000, guest_ns: 2_000_000 };
        let mut footprint = Footprint { epoch_us: 2500, ..Footprint::default() };
        // The workload begins half a millisecond after the two clocks were read.
        fill(&mut footprint, EVERY, &[seen(9_400_000, 1), seen(9_500_000, 2), seen(9_700_000, 3)], clocks);
        assert_eq!(footprint.resident(), [(0, 2), (200, 3)]);
        assert_eq!(footprint.series.still[HUGE], 0);
    }

    #[test]
    fn the_gauge_of_all_nodes_is_a_simulated_guests_memory() {
        let names = |names: [&str; 5]| names.map(str::to_owned).to_vec();
        let rows = vec![(Time(0), vec![1, 2, 30, 60, 0]), (Time(5_000_000), vec![1, 4, 50, 20, 30])];
        let samples = Samples {
            names: names([
                "pgfault",
                "node0/sim_host_resident",
                "node1/sim_host_resident",
                "nr_free_pages",
                "sim_balloon_pages",
            ]),
            rows: rows.clone(),
        };
        let all = simulated(EVERY, &samples, Vec::new(), Frames(90)).unwrap();
        assert_eq!((all.resident(), all.used()), (vec![(0, 32), (5, 54)], vec![(0, 30), (5, 40)]));
        let held = vec![Held { at_us: 0, done_us: 4, anonymous: 1, file: 0 }];
        assert_eq!(simulated(EVERY, &samples, held, Frames(90)).unwrap().resident(), [(0, 32)], "it is over then");
        let without = Samples { names: names(["a", "b", "c", "d", "e"]), rows };
        assert_eq!(simulated(EVERY, &without, Vec::new(), Frames(90)), None);
    }

    #[test]
    fn long_traces_are_looked_at_less_often_and_frequent_passes_more() {
        let of = |trace: &str, delay: &str| {
            let workload = Workload::parse("guest-footprint", [("trace", trace)]).unwrap();
            every(&workload, &[(REPORTING_DELAY.to_owned(), delay.to_owned())]).unwrap()
        };
        assert_eq!((of("free", "2000"), of("free", "100")), (EVERY, millis(25)));
        assert_eq!(of("free", "1"), millis(8), "a run has some thousand samples");
        assert_eq!(of("day 2:0/1GiB/0B 3:86400/0B/0B", "100"), millis(14_400));
        assert_eq!(every(&Workload::parse("week", []).unwrap(), &[]), None);
    }
}
