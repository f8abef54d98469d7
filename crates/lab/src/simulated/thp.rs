//! Settings of transparent huge pages as the simulator wants them, and what a kernel would refuse.

use mm::thp::khugepaged::KhugepagedSettings;
use rules::{
    variant::{ThpDefrag, Variant},
    zone::MachineView,
};
use units::{
    Bytes, Picos,
    setting::{self, THP_DEFRAG},
};

/// The words of `defrag`, in the order in which kernels learnt them.
const WORDS: [(&str, ThpDefrag); 5] = [
    ("always", ThpDefrag::Always),
    ("madvise", ThpDefrag::Madvise),
    ("never", ThpDefrag::Never),
    ("defer", ThpDefrag::Defer),
    ("defer+madvise", ThpDefrag::DeferMadvise),
];

/// Why a kernel would refuse a value, if it would.
pub(super) fn refusal(name: &str, value: &str, variant: &Variant) -> Option<String> {
    if name == THP_DEFRAG {
        let known = || WORDS.iter().take(usize::try_from(variant.thp_defrag_values).expect("a few"));
        let is_known = known().any(|(word, _)| *word == value);
        let words: Vec<_> = known().map(|(word, _)| *word).collect();
        return (!is_known).then(|| format!("these rules know {}, not {value:?}", words.join(", ")));
    }
    let swaps_in = name.ends_with("/max_ptes_swap") && !variant.khugepaged_swaps_in;
    if swaps_in || (name.ends_with("/max_ptes_shared") && !variant.khugepaged_shared) {
        return Some("these rules have no such setting".to_owned());
    }
    setting::find(name)?.check(value).err()
}

/// Does the kernel clear all its flags of huge pages when it boots, as memory is too short for them: `enabled`, both `defrag`,
/// the huge zero page (`hugepage_init`, mm/huge_memory.c, v3.9 to v6.18)? Who sets one of them sets no other.
pub(super) fn is_small(view: &MachineView) -> bool {
    let managed: u64 = view.nodes.iter().flat_map(|node| &node.zones).map(|zone| zone.managed.0).sum();
    managed < Bytes::mib(512).frames().0
}

/// The value of `defrag`; the kernel's own where nothing is set.
pub(super) fn defrag(value: Option<&str>, is_small: bool, variant: &Variant) -> ThpDefrag {
    let set = value.and_then(|value| WORDS.iter().find(|(word, _)| *word == value));
    let own = if is_small { ThpDefrag::Never } else { variant.thp_defrag };
    set.map_or(own, |(_, defrag)| *defrag)
}

/// What is set of khugepaged; the rest is the kernel's own.
pub(super) fn khugepaged<'a>(of: impl Fn(&str) -> Option<&'a str>, is_small: bool) -> KhugepagedSettings {
    let own = KhugepagedSettings::default();
    let own = KhugepagedSettings { defrag: own.defrag && !is_small, ..own };
    let number = |name: &str| of(&format!("transparent_hugepage/khugepaged/{name}"))?.parse::<u32>().ok();
    let millis = |name, own| number(name).map_or(own, |value| Picos::from_millis(value.into()));
    KhugepagedSettings {
        pages_to_scan: number("pages_to_scan").map_or(own.pages_to_scan, u64::from),
        scan_sleep: millis("scan_sleep_millisecs", own.scan_sleep),
        alloc_sleep: millis("alloc_sleep_millisecs", own.alloc_sleep),
        max_ptes_none: number("max_ptes_none").unwrap_or(own.max_ptes_none),
        max_ptes_swap: number("max_ptes_swap").unwrap_or(own.max_ptes_swap),
        max_ptes_shared: number("max_ptes_shared").unwrap_or(own.max_ptes_shared),
        defrag: number("defrag").map_or(own.defrag, |value| value != 0),
    }
}

#[cfg(test)]
mod tests {
    use rules::variant::named;

    use super::*;

    #[test]
    fn each_kernel_knows_its_own_words() {
        let refused = |value, rules| refusal(THP_DEFRAG, value, named(rules));
        assert_eq!(refused("defer", "v4.4").unwrap(), "these rules know always, madvise, never, not \"defer\"");
        assert_eq!(refused("defer", "v4.6"), None);
        assert!(refused("defer+madvise", "v4.8").is_some() && refused("defer+madvise", "v6.1").is_none());
        let own = |rules, is_small| defrag(None, is_small, named(rules));
        assert_eq!((own("v4.4", false), own("v6.1", false)), (ThpDefrag::Always, ThpDefrag::Madvise));
        assert_eq!(own("v6.1", true), ThpDefrag::Never);
        assert_eq!(defrag(Some("defer+madvise"), true, named("v6.1")), ThpDefrag::DeferMadvise);
    }

    #[test]
    fn numbers_reach_khugepaged_or_are_refused() {
        let full = |name: &str| format!("transparent_hugepage/khugepaged/{name}");
        let refused = |name: &str, value, rules| refusal(&full(name), value, named(rules));
        assert!(refused("max_ptes_none", "512", "v6.1").is_some() && refused("max_ptes_none", "511", "v6.1").is_none());
        assert!(refused("pages_to_scan", "0", "v6.1").is_some());
        assert_eq!(refused("max_ptes_shared", "5", "v5.4").unwrap(), "these rules have no such setting");
        let settings = khugepaged(|name| (name == full("scan_sleep_millisecs")).then_some("250"), false);
        assert_eq!(settings, KhugepagedSettings { scan_sleep: Picos::from_micros(250_000), ..Default::default() });
        let settings = khugepaged(|name| (name == full("defrag")).then_some("0"), false);
        assert!(!settings.defrag && khugepaged(|_| None, false).defrag && !khugepaged(|_| None, true).defrag);
    }
}
