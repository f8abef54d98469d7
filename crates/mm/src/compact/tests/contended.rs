//! Linux: none; others want the lock or the CPU of who compacts.

use memory::{
    cost::Cause,
    cx::{Circumstances, Cx},
    event::Event,
    frame::Holdings,
    pageblock::ZoneIndex,
    step::Step,
};
use rules::variant::{CompactContended, SlowPath, Variant};
use units::{CpuId, Time};

use super::lab::{Lab, ME, OTHER, rules};
use crate::{
    Mm, Spaces,
    compact::{CompactPriority, CompactResult, Compacted, Contention, DirectCompact},
};

impl Lab {
    /// A step before which somebody else had the CPU.
    pub(super) fn preempted_step<T>(&mut self, body: impl FnOnce(&mut Mm, &mut Spaces, &mut Cx) -> T) -> T {
        let mut cx = Cx::new(CpuId(0), self.now, &self.prices, &mut self.counters);
        let (sharers, running, need_resched) = (0, None, false);
        cx.set_circumstances(Circumstances {
            control: ME,
            sharers,
            running,
            need_resched,
            was_preempted: true,
            alone_until: Time(0),
        });
        body(&mut self.mm, &mut self.spaces, &mut cx)
    }

    /// Compacts up to the first step for which `is_it` holds, which is a preempted one; what it comes to, and after how many
    /// more steps.
    fn preempt(
        &mut self,
        priority: CompactPriority,
        is_it: impl Fn(&DirectCompact) -> bool,
    ) -> Option<(Compacted, u32)> {
        let mut compact = DirectCompact::new(Self::request(), priority);
        let mut preempted = None;
        for steps in 0_u32.. {
            let is_now = preempted.is_none() && is_it(&compact);
            let step = if is_now {
                preempted = Some(steps);
                self.preempted_step(|mm, spaces, cx| compact.step(mm, spaces, cx))
            } else {
                self.step(ME, |mm, spaces, cx| compact.step(mm, spaces, cx))
            };
            self.check(compact.holdings());
            if let Step::Done(compacted) = step {
                return preempted.map(|at| (compacted, steps - at));
            }
        }
        None
    }
}

#[test]
fn who_compacts_without_waiting_ends_when_another_wants_the_cpu() {
    // Where pages move, others are let go first all the time.
    let takes_pages = |compact: &DirectCompact| compact.run.as_ref().is_some_and(|run| run.takes_pages());
    let seeks_free = |compact: &DirectCompact| compact.run.as_ref().is_some_and(|run| run.seeks_free());
    let goes_on = Variant { compact_contended: CompactContended::GoesOn, ..rules("v4.1") };
    for (of_then, priority, ends) in [
        (rules("v4.1"), CompactPriority::Async, true),
        (rules("v4.20"), CompactPriority::Async, true),
        (rules("v4.1"), CompactPriority::SyncLight, false),
        (goes_on, CompactPriority::Async, false),
    ] {
        let stops: [fn(&DirectCompact) -> bool; 2] = [takes_pages, seeks_free];
        for stop in stops {
            let (mut lab, _) = Lab::fragmented_every(16, of_then, 40);
            let (compacted, more) = lab.preempt(priority, stop).expect("it gets there");
            lab.check(Holdings::default());
            lab.check_contents();
            // 4.20 does not ask what it was.
            let asks = of_then.slow_path == SlowPath::Fixed;
            assert_eq!(compacted.contention, (ends && asks).then_some(Contention::Cpu), "{priority:?} {compacted:?}");
            assert_eq!(compacted.result == CompactResult::Contended, ends, "{priority:?}: after {more} steps");
            assert!(!ends || more < 140, "{priority:?}: {more} more steps");
            assert_eq!(lab.count(Event::CompactStall), 1);
        }
    }
}

#[test]
fn pages_that_were_taken_go_back_when_it_ends() {
    let (mut lab, _) = Lab::fragmented_every(16, rules("v4.1"), 40);
    let before = lab.mm.lru.zone_frames(ZoneIndex(0), memory::lru_kind::LruKind::ActiveAnon);
    let some = |compact: &DirectCompact| compact.run.as_ref().is_some_and(|run| run.takes_pages());
    let (compacted, more) = lab.preempt(CompactPriority::Async, some).expect("every 32 frames the lock is let go");
    assert_eq!(compacted.contention, Some(Contention::Cpu));
    assert!(more <= 2, "{more}");
    assert_eq!(lab.count(Event::PgmigrateSuccess), 0);
    assert!(lab.count(Event::CompactIsolated) > 0, "they count all the same");
    lab.step(super::lab::ME, |mm, _, cx| mm.lru_add_drain(cx));
    assert_eq!(lab.mm.lru.zone_frames(ZoneIndex(0), memory::lru_kind::LruKind::ActiveAnon), before);
    assert_eq!(lab.mm.lru.zone_isolated(ZoneIndex(0), false), 0);
}

#[test]
fn who_compacts_without_waiting_ends_when_another_has_the_lock() {
    let locks: [fn(&mut Mm, &mut Cx, Time); 2] = [
        |mm, cx, until| {
            mm.lru.hold(cx, ZoneIndex(0));
            cx.wait(until, Cause::LruLock);
            mm.lru.let_go(cx, ZoneIndex(0), 0);
        },
        |mm, cx, until| {
            mm.memory.zone_mut(ZoneIndex(0)).lock(cx);
            cx.wait(until, Cause::ZoneLock);
            mm.memory.zone_mut(ZoneIndex(0)).unlock(cx);
        },
    ];
    for lock in locks {
        for (version, priority, ends) in [
            ("v4.1", CompactPriority::Async, true),
            ("v4.1", CompactPriority::SyncLight, false),
            ("v5.1", CompactPriority::Async, false),
        ] {
            let (mut lab, _) = Lab::fragmented(16, rules(version));
            lab.step(OTHER, |mm, _, cx| lock(mm, cx, Time(1_000_000)));
            lab.now = Time(10);
            let compacted = lab.compact_fast(Lab::request(), priority);
            let contended = compacted.contention == Some(Contention::Lock);
            assert_eq!(contended, ends, "{version} {priority:?}: {compacted:?}");
            if ends {
                assert_eq!(compacted.result, CompactResult::Contended);
                assert_eq!(lab.count(Event::PgmigrateSuccess), 0);
            }
            lab.check(Holdings::default());
        }
    }
}
