//! The table of settings: its defaults, and values that are refused.

use std::collections::BTreeSet;

use super::*;

#[test]
fn a_default_is_a_value_or_is_said_in_words() {
    for setting in SETTINGS {
        assert!(setting.default.contains(' ') || setting.check(setting.default).is_ok(), "{}", setting.name);
    }
    let different: BTreeSet<_> = names().into_iter().collect();
    assert_eq!(different.len(), SETTINGS.len());
}

/// Setting all that is a value of the table to its default changes nothing: each field belongs to its own setting.
#[test]
fn fields_are_set_by_their_own_settings() {
    let mut settings = Settings::default();
    for setting in SETTINGS.iter().filter(|setting| !setting.default.contains(' ')) {
        settings.set(setting.name, setting.default).unwrap();
    }
    assert_eq!(settings, Settings::default());
    settings.set("vm.page-cluster", "5").unwrap();
    settings.set(DEVICE_POISON, "off").unwrap();
    let expected = Settings { page_cluster: 5, device_knows_poison: false, ..Settings::default() };
    assert_eq!(settings, expected);
}

/// Of several numbers none is left out: each is read, or the text is refused.
#[test]
fn a_number_that_cannot_be_read_is_not_dropped() {
    const RATIO: &str = "vm.lowmem_reserve_ratio";
    let mut settings = Settings::default();
    settings.set(RATIO, "256 -1 32 0 0").unwrap();
    assert_eq!(settings.lowmem_reserve_ratio, [256, 0, 32, 0, 0], "a negative ratio is the kernel's 0");
    for value in ["256 4294967296 32", "256 x 32", "", " "] {
        let said = settings.set(RATIO, value).unwrap_err();
        let expected = format!("{RATIO}: expected whole numbers separated by blanks, found {value:?}");
        assert_eq!(said, expected);
    }
    assert_eq!(settings.set("vm.swappiness", "201").unwrap_err(), format!("vm.swappiness: {}", wrong("201")));
    assert_eq!(settings.set("vm.swapiness", "1").unwrap_err(), "vm.swapiness: unknown setting");
    assert_eq!(settings.lowmem_reserve_ratio, [256, 0, 32, 0, 0], "what is refused changes nothing");
}

fn wrong(value: &str) -> String {
    find("vm.swappiness").unwrap().check(value).unwrap_err()
}

#[test]
fn values_of_the_wrong_form_are_refused_without_a_kernel() {
    let check = |name, value| find(name).unwrap().check(value);
    assert_eq!(check("vm.swappiness", "10"), Ok(()));
    assert_eq!(check("vm.lowmem_reserve_ratio", "256 256 32 0 0"), Ok(()));
    assert_eq!(check("transparent_hugepage/defrag", "defer+madvise"), Ok(()));
    assert_eq!(check("vm.swappiness", "10%").unwrap_err(), "expected a whole number from 0 to 200, found \"10%\"");
    let boost = "vm.watermark_boost_factor";
    assert_eq!(check(boost, "-1").unwrap_err(), "expected a whole number from 0 to 2147483647, found \"-1\"");
    assert_eq!(check(boost, "2147483647"), Ok(()));
    assert_eq!(check(THP_ENABLED, "on").unwrap_err(), "expected one of always, madvise, never, found \"on\"");
}
