//! Fallbacks are counted by kind: as many as the trace has lines of each.

use mm::{
    swap::{SwapMedium, SwapSpec},
    thp::ThpEnabled,
};
use os::{MapSpec, Os, Placement, VmStat};
use rules::variant;
use sim::{Config, Extra, Options, Sim, simulate_with};
use units::{Bytes, ExtfragClass, ExtfragCounts, ExtfragKind, Mobility, Order};

use crate::support::{self, no_entries};

/// 32 MiB and a swap device that takes no time.
fn small(rules: &str) -> Config {
    let swap = Some(SwapSpec { size: Bytes::mib(64), medium: SwapMedium::Memory });
    let variant = *variant::named(rules);
    Config { swap, variant, thp_enabled: ThpEnabled::Always, ..support::machine(2, 8192) }
}

/// One thread writes files, the other fills memory meanwhile: unmovable, movable and reclaimable frames. Counters before
/// and after.
fn mix(config: &Config) -> (VmStat, VmStat, Extra) {
    let options = Options { trace_lines: Some(1 << 20), ..Options::default() };
    let (result, _, extra) = simulate_with(config, options, no_entries, async |os: Sim| {
        let before = os.vmstat().await.unwrap();
        let filled = os.spawn(Placement::Spread(1), async |os: Sim| {
            for _ in 0..8 {
                let range = os.mmap(Bytes::mib(24), MapSpec::Anonymous).await.unwrap();
                os.store(range, Bytes::PAGE).await.unwrap();
                os.munmap(range).await.unwrap();
            }
        });
        for at in 0..1600 {
            let file = os.create(&format!("{at}")).await.unwrap();
            os.write(file, Bytes(0), Bytes::kib(16)).await.unwrap();
            os.close(file).await.unwrap();
        }
        filled.await.unwrap();
        (before, os.vmstat().await.unwrap())
    });
    (result.0, result.1, extra)
}

/// The fields of a line of the trace.
fn kind(line: &str) -> ExtfragKind {
    let field = |name: &str| -> u8 {
        let value = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {line}"))
    };
    let mobility = |name| Mobility::ALL[usize::from(field(name))];
    let kind = ExtfragKind {
        alloc_type: mobility("alloc_migratetype"),
        fallback_type: mobility("fallback_migratetype"),
        alloc_order: Order(field("alloc_order")),
        fallback_order: Order(field("fallback_order")),
        change_ownership: field("change_ownership") == 1,
    };
    assert_eq!(kind.is_fragmenting(Order::HUGE), field("fragmenting") == 1, "{line}");
    kind
}

#[test]
fn only_kernels_with_stalls_have_their_counter() {
    let stalls = |patches: &[u32]| {
        let config = Config { variant: variant::patched("v4.20-rc3", patches), ..small("v4.20") };
        mix(&config).1.0.contains_key("fragment_stall")
    };
    assert!(stalls(&[1, 2, 3, 4, 5]) && !stalls(&[1, 2, 3, 4]));
}

#[test]
fn counts_are_those_of_the_trace() {
    for rules in ["v4.1", "v4.20", "v6.1", "v6.12"] {
        let (before, after, extra) = mix(&small(rules));
        let mut recounted = ExtfragCounts::default();
        for line in extra.trace.as_ref().unwrap().lines() {
            assert!(recounted.count(kind(line), 1), "{line}");
        }
        assert_eq!(recounted, extra.extfrag, "{rules}");
        let kinds: Vec<_> = extra.extfrag.iter().filter(|(_, count)| *count > 0).collect();
        let fragmenting = kinds.iter().filter(|(kind, _)| kind.is_fragmenting(Order::HUGE)).count();
        assert!(fragmenting >= 3, "{rules}: {kinds:?}");
        // What a workload reads of it is the same by name.
        let moved = after.since(&before);
        let moved = |class: ExtfragClass| u64::try_from(moved[&class.name()]).unwrap();
        let by_class: Vec<_> = extra.extfrag.by_class(Order::HUGE).collect();
        assert!(by_class.iter().all(|(class, count)| moved(*class) <= *count), "{rules}: {by_class:?}");
        assert!(by_class.iter().any(|(class, _)| class.fragmenting && moved(*class) > 0), "{rules}: {by_class:?}");
    }
}
