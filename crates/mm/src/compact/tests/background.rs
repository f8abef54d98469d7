//! Linux: none; kcompactd.

use memory::{
    event::Event,
    frame::Holdings,
    news::Daemon,
    pageblock::ZoneIndex,
    step::{Step, Wait},
};
use rules::{gfp::AllocRequest, variant::Variant, zone::ZoneKind};
use units::{NodeId, Order};

use super::lab::{Lab, ME, rules};

impl Lab {
    /// Runs kcompactd until it sleeps; says until when, and after how many steps.
    fn run_kcompactd(&mut self) -> (Wait, u32) {
        for steps in 1.. {
            match self.step(ME, |mm, spaces, cx| mm.step_kcompactd(spaces, cx, NodeId(0))) {
                Step::More => self.check(self.mm.kcompactd_holdings(NodeId(0))),
                Step::Block(wait) => {
                    self.check(Holdings::default());
                    return (wait, steps);
                }
                Step::Done(()) => panic!("it has no end"),
            }
        }
        unreachable!()
    }
}

#[test]
fn it_makes_a_block_of_the_order_that_it_was_woken_for() {
    let (mut lab, _) = Lab::fragmented(16, rules("v6.1"));
    lab.mm.compaction.proactiveness = 0;
    assert_eq!(lab.run_kcompactd(), (Wait::Queue, 1), "nobody has asked");
    lab.step(ME, |mm, _, cx| mm.memory.wake_kcompactd(cx, NodeId(0), Order(9), ZoneKind::Movable));
    assert_eq!(lab.mm.memory.take_woken(Daemon::Kcompactd), [NodeId(0)]);
    let (wait, steps) = lab.run_kcompactd();
    assert_eq!(wait, Wait::Queue);
    assert!(steps > 100, "{steps}");
    assert!(lab.free_blocks(9) > 0);
    lab.check_contents();
    assert_eq!(lab.count(Event::CompactDaemonWake), 1);
    let [all, its] = [Event::CompactMigrateScanned, Event::CompactDaemonMigrateScanned].map(|event| lab.count(event));
    assert!(all > 0 && all == its);
    let [all, its] = [Event::CompactFreeScanned, Event::CompactDaemonFreeScanned].map(|event| lab.count(event));
    assert!(all > 0 && all == its);
    assert_eq!(lab.count(Event::CompactStall), 0, "nobody has waited");

    // There is a block now: not worth a second run.
    lab.step(ME, |mm, _, cx| mm.memory.wake_kcompactd(cx, NodeId(0), Order(9), ZoneKind::Movable));
    assert!(!lab.mm.memory.has_woken(Daemon::Kcompactd));
}

#[test]
fn kcompactd_is_woken_by_requests_that_may_not_compact() {
    for (version, wakes) in [("v6.1", true), ("v4.8", false), ("v4.4", false)] {
        let (mut lab, _) = Lab::fragmented(16, rules(version));
        let request = AllocRequest { wakes_kswapd: true, ..AllocRequest::gfp_transhuge_light(NodeId(0)) };
        // Balanced for base pages is not for huge ones: kswapd, after 16 vain runs, leaves it to kcompactd.
        for _ in 0..40 {
            assert!(lab.step(ME, |mm, _, cx| mm.memory.alloc(cx, &request)).is_err());
            while matches!(lab.step(ME, |mm, spaces, cx| mm.step_kswapd(spaces, cx, NodeId(0))), Step::More) {}
            lab.step(ME, |mm, spaces, cx| mm.step_kswapd(spaces, cx, NodeId(0)));
        }
        assert_eq!(lab.mm.memory.has_woken(Daemon::Kcompactd), wakes, "{version}");
    }
}

#[test]
fn it_lowers_a_score_above_90_to_80_by_itself() {
    let (mut lab, _) = Lab::fragmented(16, rules("v6.1"));
    assert_eq!(lab.mm.compaction.score_marks(), (80, 90));
    assert_eq!(lab.mm.zone_score(ZoneIndex(0)), 100, "no free frame is in a huge block");
    // The node has one frame more than its zones in this figure.
    assert_eq!(lab.mm.node_score(NodeId(0)), 99);
    let (wait, _) = lab.run_kcompactd();
    assert!((50..=80).contains(&lab.mm.zone_score(ZoneIndex(0))), "{}", lab.mm.zone_score(ZoneIndex(0)));
    assert_eq!(wait, Wait::Until(lab.now + super::super::kcompactd::CHECK_INTERVAL));
    assert_eq!(lab.count(Event::CompactDaemonWake), 0);
    lab.check_contents();
    // Once more: there is nothing to do.
    let moved = lab.count(Event::PgmigrateSuccess);
    assert_eq!(lab.run_kcompactd().1, 1);
    assert_eq!(lab.count(Event::PgmigrateSuccess), moved);
}

#[test]
fn it_rests_for_32_seconds_when_it_was_of_no_use() {
    let (mut lab, id) = Lab::fragmented(16, rules("v6.1"));
    // Frames to move to are short: nothing can be done.
    let _ = id;
    let marks = lab.mm.memory.zones()[0].marks.min.0;
    let request = AllocRequest::gfp_highuser_movable(NodeId(0));
    let request = AllocRequest { reclaims: false, mark: rules::gfp::Mark::Min, ..request };
    while lab.mm.memory.zones()[0].free_frames() > marks + 1 {
        lab.step(ME, |mm, _, cx| {
            mm.memory.alloc(cx, &request).unwrap();
            mm.memory.drain_all_pages(cx);
        });
    }
    let (wait, _) = lab.run_kcompactd();
    let interval = super::super::kcompactd::CHECK_INTERVAL;
    assert_eq!(wait, Wait::Until(lab.now + units::Picos(interval.0 * 64)));
}

#[test]
fn kcompactd_is_not_proactive_before_5_9_or_at_proactiveness_0() {
    for (rules, proactiveness) in [(rules("v5.8"), 20), (rules("v6.1"), 0)] {
        let (mut lab, _) = Lab::fragmented(16, Variant { ..rules });
        lab.mm.compaction.proactiveness = proactiveness;
        assert_eq!(lab.run_kcompactd(), (Wait::Queue, 1));
    }
}

#[test]
fn kswapd_compacts_by_itself_but_for_zones_that_are_spared() {
    let (mut lab, _) = Lab::fragmented(16, rules("v4.1"));
    assert_eq!(lab.free_blocks(9), 0);
    lab.mm.zone_compacts[ZoneIndex(0)].defer(Order(9));
    lab.step(ME, |mm, spaces, cx| mm.kswapd_compacts(spaces, cx, Order(9)));
    assert_eq!(lab.count(Event::CompactMigrateScanned), 0, "the next time it is looked at again");
    lab.step(ME, |mm, spaces, cx| mm.kswapd_compacts(spaces, cx, Order(9)));
    assert!(lab.free_blocks(9) > 0);
    lab.check(Holdings::default());
    lab.check_contents();
    assert!(lab.count(Event::PgmigrateSuccess) > 0);
    assert_eq!(lab.count(Event::CompactStall), 0, "nobody has waited");
}
