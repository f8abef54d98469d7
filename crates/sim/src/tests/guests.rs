//! Guests of a host: whose every frame is, on both levels, after every step.

use memory::backing::{Discard, HostSpec};
use mm::{
    guest::{
        balloon::{BalloonSpec, Leaves},
        mistake::Mistake,
        reporting::ReportingSpec,
    },
    swap::SwapSpec,
};

use super::{tags::tagged, *};
use crate::{
    guests::{GuestLost, GuestsOptions, LostBy, simulate_guests, simulate_guests_with},
    ids::HOST,
    world::with,
};

/// A machine of one node with these CPUs and this memory in MiB.
fn machine(cpus: u32, mib: u32) -> MachineSpec {
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), mib * 256);
    let cpus = (0..cpus).map(CpuId).collect();
    let node = NodeSpec { id: NodeId(0), cpus, distance: vec![10], zones: vec![zone] };
    MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] }
}

fn host(mib: u32) -> Config {
    let config = config(ThpEnabled::Madvise);
    let settings = Settings { min_free_kbytes: 512, watermark_boost_factor: 0, ..Settings::default() };
    let size = Bytes::mib(256);
    Config {
        machine: machine(3, mib),
        settings,
        swap: Some(SwapSpec { size, medium: SwapMedium::Memory }),
        cpus: 3,
        cap: Bytes::gib(1),
        ..config
    }
}

fn guest(mib: u32, reports: bool) -> Config {
    let delay = Picos::from_micros(2_000);
    Config {
        machine: machine(1, mib),
        cpus: 1,
        swap: None,
        cap: Bytes::mib(u64::from(mib)),
        host: Some(HostSpec { page: Order::HUGE, discard: Discard::DontNeed }),
        reporting: reports.then_some(ReportingSpec { order: Order(3), delay }),
        settings: Settings { min_free_kbytes: 64, ..Settings::default() },
        ..host(mib)
    }
}

/// Fills memory, gives it back, and is idle for a while; again and again.
async fn phases(os: Sim, rounds: u32, size: Bytes) {
    for _ in 0..rounds {
        let range = os.mmap(size, MapSpec::Anonymous).await.unwrap();
        os.fill(range).await.unwrap();
        os.munmap(range).await.unwrap();
        os.sleep(Picos::from_micros(40_000)).await;
    }
}

#[test]
fn what_guests_access_is_there_in_the_host() {
    let guests = [guest(16, false), guest(16, false)];
    let (results, finish) = simulate_guests(&host(64), &guests, no_entries, async |os, n| {
        phases(os, 1, Bytes::mib(8)).await;
        n
    })
    .expect("the host has room");
    assert_eq!(results, [0, 1]);
    for counters in &finish.guests {
        assert!(counters.get(Event::SimHostFaults) >= 4, "{}", counters.get(Event::SimHostFaults));
        assert_eq!(counters.get(Event::SimHostDiscards), 0);
    }
    assert!(finish.host.counters.get(Event::ThpFaultAlloc) >= 8, "the host backs guests with huge pages");
    assert_eq!(finish.host.counters.get(Event::Pswpout), 0);
}

#[test]
fn a_host_that_is_short_swaps_what_guests_do_not_report() {
    let swapped = |reports: bool| {
        let guests = [guest(24, reports), guest(24, reports)];
        let (_, finish) = simulate_guests(&host(32), &guests, no_entries, async |os, n| {
            // One after the other, so that there would be enough for each.
            os.sleep(Picos::from_micros(20_000 * n as u64)).await;
            phases(os, 2, Bytes::mib(16)).await;
        })
        .expect("the host has room");
        let discards: u64 = finish.guests.iter().map(|counters| counters.get(Event::SimHostDiscards)).sum();
        (finish.host.counters.get(Event::Pswpin), discards)
    };
    let (without, with) = (swapped(false), swapped(true));
    assert!(without.0 > 0 && without.1 == 0, "{without:?}");
    assert!(with.1 > 0, "{with:?}");
    assert!(with.0 < without.0 / 2, "{with:?} by {without:?}");
}

#[test]
fn a_run_with_guests_repeats_itself() {
    let run = || {
        let guests = [guest(16, true), guest(16, true)];
        let run = simulate_guests(&host(24), &guests, no_entries, async |os, _| phases(os, 2, Bytes::mib(8)).await);
        run.expect("the host has room").1.host.hash
    };
    assert_eq!(run(), run());
}

#[test]
fn samples_are_of_every_kernel_and_change_nothing() {
    let run = |sample| {
        let guests = [guest(16, true), guest(16, true)];
        let body = async |os, _| phases(os, 2, Bytes::mib(8)).await;
        simulate_guests_with(&host(64), &guests, GuestsOptions { sample, ..GuestsOptions::default() }, no_entries, body)
            .expect("the host has room")
            .1
    };
    let (without, with) = (run(None), run(Some(Picos::from_micros(10_000))));
    assert_eq!(without.samples, None);
    assert_eq!(without.host.hash, with.host.hash);
    let samples = with.samples.expect("they were asked for");
    assert!(samples.rows.len() > 5 && samples.rows.iter().all(|(_, values)| values.len() == samples.names.len()));
    let column = |name: &str| {
        let at = samples.names.iter().position(|known| known == name).unwrap_or_else(|| panic!("no {name}"));
        samples.rows.iter().map(|(_, values)| values[at]).collect::<Vec<_>>()
    };
    for name in ["guest1/sim_host_discards", "guest2/sim_host_discards", "host/pgfault", "host/node0/nr_free_pages"] {
        let values = column(name);
        assert!(values.iter().any(|value| *value != values[0]), "{name} {values:?}");
    }
    assert_eq!(column("guest2/sim_host_discards").last(), Some(&with.guests[1].get(Event::SimHostDiscards)));
    // A gauge that comes with the guest's boot, after the first sample.
    assert!(column("guest1/sim_report_least_millionths").iter().any(|value| *value > 0));
}

#[test]
fn what_a_guest_still_uses_comes_back_from_the_hosts_swap() {
    let ((out, back), words, seen) = tagged(|| one_keeps_its_memory(None));
    assert!(out > 500 && back > 500, "{out} pages out, {back} back");
    assert!(words > 6_000 && seen > 100_000, "{words} words, seen {seen} times");
}

/// One guest keeps its memory while the other one takes what the host has; then it reads again what it has written: pages that
/// the host swapped out, and those that came back.
fn one_keeps_its_memory(mistake: Option<Mistake>) -> (u64, u64) {
    let guests = [guest(24, true), guest(24, true)];
    let (_, finish) = simulate_guests(&host(32), &guests, no_entries, async move |os, n| {
        if let Some(mistake) = mistake {
            with(|world| {
                let kernel = world.current().kernel;
                world.kernels[kernel].mm.make_mistake(mistake);
            });
        }
        if n == 1 {
            os.sleep(Picos::from_micros(40_000)).await;
            return phases(os, 1, Bytes::mib(20)).await;
        }
        let range = os.mmap(Bytes::mib(16), MapSpec::Anonymous).await.unwrap();
        os.fill(range).await.unwrap();
        os.sleep(Picos::from_micros(200_000)).await;
        os.load(range, Bytes::PAGE).await.unwrap();
    })
    .expect("the host has room");
    (finish.host.counters.get(Event::Pswpout), finish.host.counters.get(Event::Pswpin))
}

#[test]
fn a_host_kernel_that_gives_back_what_is_in_use_is_seen() {
    let run = || tagged(|| one_keeps_its_memory(Some(Mistake::DiscardsBuddy)));
    // A thread of its own: what is left of a run stays with it.
    let panic = std::thread::spawn(run).join().expect_err("it is a mistake");
    let text = panic.downcast_ref::<String>().expect("what was found");
    assert!(text.contains("is in use, and gone") || text.contains("left == right"), "{text}");
}

/// Each guest fills memory of this size and keeps it.
fn filled(host: &Config, guests: &[Config], size: Bytes) -> Result<(), GuestLost> {
    let (_, finish) = simulate_guests(host, guests, no_entries, async move |os, n| {
        os.sleep(Picos::from_micros(20_000 * n as u64)).await;
        let range = os.mmap(size, MapSpec::Anonymous).await.unwrap();
        os.fill(range).await.unwrap();
        os.sleep(Picos::from_micros(200_000)).await;
    })
    .map_err(|problem| match problem {
        NoResult::GuestLost(lost) => lost,
        other => panic!("{other}"),
    })?;
    assert!(finish.host.counters.get(Event::ThpFaultAlloc) > 0);
    Ok(())
}

#[test]
fn a_guest_that_its_host_kills_ends_the_run() {
    let small = |size| Config { swap: Some(SwapSpec { size, medium: SwapMedium::Memory }), ..host(24) };
    let guests = [guest(24, false), guest(24, true)];
    filled(&small(Bytes::mib(32)), &guests, Bytes::mib(16)).expect("it fits with the swap");
    let lost = filled(&small(Bytes::mib(4)), &guests, Bytes::mib(16)).expect_err("it does not");
    let GuestLost { guest, after, by: LostBy::Host(memory) } = &lost else { panic!("{lost:?}") };
    assert!(*after > Picos::from_micros(1_000) && *after < Picos::from_micros(200_000), "{after:?}");
    let of = |guest: usize| memory[guest].resident + memory[guest].swapped;
    assert!(of(*guest) >= of(1 - *guest), "the larger one goes: {lost:?}");
    let both = of(0) + of(1);
    assert!(both > Bytes::mib(18) && both < Bytes::mib(28), "about what the host has: {lost:?}");
    assert_eq!(filled(&small(Bytes::mib(4)), &guests, Bytes::mib(16)), Err(lost), "it repeats itself");
}

#[test]
fn a_guest_whose_own_memory_is_out_ends_the_run() {
    let guests = [guest(16, true), guest(16, true)];
    let lost = filled(&host(64), &guests, Bytes::mib(16)).expect_err("it has no swap");
    assert_eq!((lost.guest, lost.by), (0, LostBy::Itself));
}

#[test]
fn a_balloon_that_may_gives_pages_back_before_a_process_dies() {
    let run = |deflate_on_oom: bool| {
        let orders = vec![(Picos(0), Leaves::Memory(Frames(8 * 256)))];
        let config = Config { balloon: Some(BalloonSpec { orders, deflate_on_oom }), ..guest(24, false) };
        let (end, finish) = simulate(&config, no_entries, async |os| {
            os.sleep(Picos::from_micros(300_000)).await;
            let hog = os.fork(Placement::Spread(0), async |os: Sim| phases(os, 1, Bytes::mib(14)).await);
            hog.await.unwrap().await
        });
        let [inflated, deflated] =
            [Event::BalloonInflate, Event::BalloonDeflate].map(|event| finish.counters.get(event));
        assert_eq!((inflated, end.is_err()), (16 * 256, finish.counters.get(Event::OomKill) > 0));
        (end.is_ok(), deflated)
    };
    assert_eq!(run(false), (false, 0));
    let (is_alive, deflated) = run(true);
    assert!(is_alive && (6 * 256..10 * 256).contains(&deflated), "{is_alive}, {deflated} pages");
}

#[test]
fn a_balloon_takes_memory_and_gives_it_back() {
    let run = |orders: &[(u64, u64)]| {
        let order =
            |(millis, frames): &(u64, u64)| (Picos::from_micros(millis * 1000), Leaves::Memory(Frames(*frames)));
        let balloon = Some(BalloonSpec { orders: orders.iter().map(order).collect(), deflate_on_oom: false });
        let config = Config { balloon, ..guest(24, false) };
        let ((), finish) = simulate(&config, no_entries, async |os| {
            // Longer than a balloon rests.
            os.sleep(Picos::from_micros(300_000)).await;
            phases(os, 1, Bytes::mib(4)).await;
        });
        [Event::BalloonInflate, Event::BalloonDeflate].map(|event| finish.counters.get(event))
    };
    assert_eq!(run(&[(0, 8 * 256), (50, 24 * 256)]), [16 * 256; 2]);
}

/// How long CPUs were in the host of a guest that gives 8 MiB back, while another CPU computes or is idle; and how many huge
/// pages the host gave back.
fn time_in_host(computes: bool) -> (Picos, u64) {
    let config = Config { machine: machine(2, 32), cpus: 2, ..guest(32, true) };
    let ((), finish) = simulate(&config, no_entries, async move |os: Sim| {
        let other = os.spawn(Placement::Spread(1), async move |os: Sim| {
            // As often as a step ends, so that it is known when it was in the host.
            for _ in 0..if computes { 100_000 } else { 0 } {
                os.compute(Picos::from_micros(1)).await;
            }
        });
        phases(os, 1, Bytes::mib(8)).await;
        other.await.unwrap();
    });
    (finish.times.cpu.on(memory::cost::Cause::Host), finish.counters.get(Event::SimHostDiscards) / 512)
}

#[test]
fn all_cpus_leave_the_guest_when_its_host_gives_memory_back() {
    let ((idle, given_back), (busy, same)) = (time_in_host(false), time_in_host(true));
    assert!(given_back >= 4 && given_back == same, "{given_back} huge pages, {same} beside a busy CPU");
    let exits = (busy - idle).0 / Picos::from_nanos(50).0;
    // Of some huge pages it gets one half first.
    assert!((given_back..4 * given_back).contains(&exits), "{exits} exits for {given_back} huge pages");
}

/// Four hardware threads of two cores, for a kernel of its own and for a guest.
#[test]
fn a_guest_sees_cpus_without_hardware_threads() {
    let levels = |host| {
        let cpus: Vec<CpuId> = (0..4).map(CpuId).collect();
        let mut config = Config { variant: *variant::named("v4.1"), cpus: 4, host, ..config(ThpEnabled::Never) };
        config.machine.nodes[0].cpus.clone_from(&cpus);
        (config.cores, config.caches) = (cpus.chunks(2).map(<[_]>::to_vec).collect(), vec![cpus]);
        let mut world = crate::fresh(&config);
        world.compare_cpus(&config);
        world.kernels[HOST].domains.levels()
    };
    assert_eq!(levels(None), 2, "threads of a core, cores of a cache");
    assert_eq!(levels(Some(HostSpec { page: Order::HUGE, discard: Discard::DontNeed })), 1);
}
