//! Two threads, each pinned to its CPU.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use nix::sys::resource::{UsageWho, getrusage};
use units::CpuId;

use super::{Found, Raw, Samples, absent, each, probe, thread_ns, timed};
use crate::{
    host::{monotonic_ns, pin},
    worker::start_in,
};

const BARRIERS: i64 = 300;
const YIELDS: i64 = 1000;
const ROUND_TRIPS: u32 = 1000;
const WAKES: usize = 15;
/// Long enough for a CPU to go idle.
const NAP: Duration = Duration::from_micros(100);
/// How long the second thread spins undisturbed, to learn what a turn takes.
const CALM_NS: u64 = 300_000;

const MEMBARRIER: &[Raw] = &[Raw::MembarrierAlone, Raw::MembarrierPaired, Raw::Interrupted];
const LINE: &[Raw] = &[Raw::LineTransfer];
const WAKE: &[Raw] = &[Raw::WakeUp];

pub(super) fn probes(cpu: CpuId, partner: Option<CpuId>) -> Vec<Found> {
    let switch = probe(&[Raw::Switch], move |samples| switch(cpu, samples));
    let Some(other) = partner else {
        let none = |gives| absent(gives, "this process may run on one CPU only");
        return vec![switch, none(MEMBARRIER), none(LINE), none(WAKE)];
    };
    let membarrier = match membarrier(REGISTER) {
        Ok(()) => probe(MEMBARRIER, move |samples| interrupts(other, samples)),
        Err(why) => absent(MEMBARRIER, why),
    };
    let line = probe(LINE, move |samples| line_transfer(other, samples));
    let wake = probe(WAKE, move |samples| wake_up(other, samples));
    vec![switch, membarrier, line, wake]
}

// MEMBARRIER_CMD_PRIVATE_EXPEDITED and its registration, include/uapi/linux/membarrier.h (4.14).
const EXPEDITED: libc::c_int = 1 << 3;
const REGISTER: libc::c_int = 1 << 4;

/// Makes every CPU that runs a thread of this process pass a memory barrier, by an interrupt.
fn membarrier(command: libc::c_int) -> Result<(), String> {
    #[expect(unsafe_code, reason = "nix does not wrap membarrier")]
    // SAFETY: the call takes three integers and touches no memory.
    let status = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    nix::errno::Errno::result(status).map(drop).map_err(super::failed("membarrier"))
}

fn membarriers() -> Result<i64, String> {
    let mut result = Ok(());
    let ns = timed(|| {
        for _ in 0..BARRIERS {
            result = std::mem::replace(&mut result, Ok(())).and_then(|()| membarrier(EXPEDITED));
        }
    });
    result.map(|()| each(ns, BARRIERS))
}

/// The second thread counts its turns and its CPU time, first undisturbed, then while it is interrupted.
fn interrupts(other: CpuId, samples: &mut Samples) -> Result<(), String> {
    samples.set(Raw::MembarrierAlone, membarriers()?);
    // 0: not there yet, 1: undisturbed, 2: interrupted, 3: over.
    let phase = AtomicU32::new(0);
    let (paired, lost) = thread::scope(|scope| {
        let partner = start_in(scope, || {
            pin(other);
            phase.store(1, Ordering::SeqCst);
            let (calm_turns, calm_ns) = spin_while(&phase, 1);
            let (turns, ns) = spin_while(&phase, 2);
            ns - turns * calm_ns / calm_turns.max(1)
        })?;
        wait_for(&phase, 1);
        let start = monotonic_ns();
        while monotonic_ns() - start < CALM_NS {}
        phase.store(2, Ordering::SeqCst);
        let paired = membarriers();
        phase.store(3, Ordering::SeqCst);
        Ok::<_, String>((paired, partner.join().expect("a spinning thread does not panic")))
    })?;
    samples.set(Raw::MembarrierPaired, paired?);
    samples.set(Raw::Interrupted, each(lost, BARRIERS));
    Ok(())
}

/// Turns and CPU time while `phase` is `during`.
fn spin_while(phase: &AtomicU32, during: u32) -> (i64, i64) {
    let mut turns = 0;
    let ns = timed(|| {
        while phase.load(Ordering::Relaxed) == during {
            turns += 1;
        }
    });
    (turns, ns)
}

fn wait_for(word: &AtomicU32, value: u32) {
    while word.load(Ordering::Acquire) != value {
        std::hint::spin_loop();
    }
}

/// Two threads on one CPU give it to each other. Timed by the CPU time of both, so that others on it do not count.
fn switch(cpu: CpuId, samples: &mut Samples) -> Result<(), String> {
    let start = Barrier::new(2);
    let part = || {
        pin(cpu);
        start.wait();
        let (ns, switches) = (thread_ns(), switches());
        for _ in 0..YIELDS {
            thread::yield_now();
        }
        (thread_ns() - ns, self::switches() - switches)
    };
    let ((our_ns, ours), (their_ns, theirs)) = thread::scope(|scope| {
        let partner = start_in(scope, part)?;
        let ours = part();
        Ok::<_, String>((ours, partner.join().expect("a yielding thread does not panic")))
    })?;
    if ours + theirs < YIELDS {
        return Err("sched_yield does not switch between two threads of a CPU here".to_owned());
    }
    samples.set(Raw::Switch, each(our_ns + their_ns, ours + theirs));
    Ok(())
}

/// Context switches of this thread so far.
fn switches() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("every Linux counts a thread's switches");
    usage.voluntary_context_switches() + usage.involuntary_context_switches()
}

fn line_transfer(other: CpuId, samples: &mut Samples) -> Result<(), String> {
    let word = AtomicU32::new(0);
    let ns = thread::scope(|scope| {
        start_in(scope, || {
            pin(other);
            for turn in 0..=ROUND_TRIPS {
                wait_for(&word, 2 * turn + 1);
                word.store(2 * turn + 2, Ordering::Release);
            }
        })?;
        // The first one waits for the thread to start.
        let trip = |turn: u32| {
            word.store(2 * turn + 1, Ordering::Release);
            wait_for(&word, 2 * turn + 2);
        };
        trip(0);
        let start = monotonic_ns();
        (1..=ROUND_TRIPS).for_each(trip);
        Ok::<_, String>(monotonic_ns() - start)
    })?;
    samples.set(Raw::LineTransfer, each(ns.cast_signed(), 2 * i64::from(ROUND_TRIPS)));
    Ok(())
}

fn wake_up(other: CpuId, samples: &mut Samples) -> Result<(), String> {
    let (called, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut delays = thread::scope(|scope| {
        let sleeper = start_in(scope, || {
            pin(other);
            let mut delays = Vec::new();
            while !over.load(Ordering::Acquire) {
                thread::park();
                match called.swap(0, Ordering::AcqRel) {
                    0 => {}
                    at => delays.push(monotonic_ns().saturating_sub(at).cast_signed()),
                }
            }
            delays
        })?;
        for _ in 0..WAKES {
            thread::sleep(NAP);
            called.store(monotonic_ns(), Ordering::Release);
            sleeper.thread().unpark();
        }
        thread::sleep(NAP);
        over.store(true, Ordering::Release);
        sleeper.thread().unpark();
        Ok::<_, String>(sleeper.join().expect("a sleeping thread does not panic"))
    })?;
    delays.sort_unstable();
    if let Some(median) = delays.get(delays.len() / 2) {
        samples.set(Raw::WakeUp, each(*median, 1));
    }
    Ok(())
}
