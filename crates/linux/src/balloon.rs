//! virtio-balloon in guests, through which they tell their host which pages are free, and settings that are not written to a
//! file of the running kernel.

use std::{fs, path::Path};

use crate::setting::{
    BALLOON, DEFLATE_ON_OOM, DEVICE_POISON, DISCARD, INIT_ON_FREE, PAGE_POISON, REPORTING, REPORTING_DELAY,
    REPORTING_ORDER, SHUFFLE,
};

/// Its driver in the guest, and what has to be there before it.
const MODULES: [&str; 2] = ["virtio_pci", "virtio_balloon"];
/// Devices that the driver has taken.
const BOUND: &str = "/sys/bus/virtio/drivers/virtio_balloon";
/// VIRTIO_BALLOON_F_REPORTING (include/uapi/linux/virtio_balloon.h, v6.1).
const REPORTING_BIT: usize = 5;

type Settings = [(String, String)];

/// The value of a setting: what comes later counts.
fn last<'a>(settings: &'a Settings, name: &str) -> Option<&'a str> {
    settings.iter().rfind(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// The device that QEMU gets; none where nobody speaks of it.
pub(crate) fn device(settings: &Settings) -> Option<String> {
    let reports = last(settings, REPORTING)? == "on";
    Some(format!("virtio-balloon-pci{}", if reports { ",free-page-reporting=on" } else { "" }))
}

/// Modules that a kernel needs for it, where they are not built in.
pub fn modules(settings: &Settings) -> Vec<String> {
    let wanted = last(settings, REPORTING).is_some();
    MODULES.iter().filter(|_| wanted).map(|name| (*name).to_owned()).collect()
}

/// What the kernel's command line says.
pub(crate) fn words(settings: &Settings) -> String {
    let shuffles = last(settings, SHUFFLE) == Some("Y");
    if shuffles { " page_alloc.shuffle=1".to_owned() } else { String::new() }
}

/// Whether init finds no file to write: the device or the command line has it already.
pub(crate) fn is_outside(name: &str) -> bool {
    [REPORTING, SHUFFLE].contains(&name)
}

/// In the guest: whether its kernel reports, where that is wanted.
pub(crate) fn check(settings: &Settings) -> Result<(), String> {
    match last(settings, REPORTING) {
        Some("on") => check_bound(Path::new(BOUND)),
        _ => Ok(()),
    }
}

fn check_bound(driver: &Path) -> Result<(), String> {
    let features = |device: fs::DirEntry| fs::read_to_string(device.path().join("features")).ok();
    let devices = fs::read_dir(driver).into_iter().flatten().flatten();
    let mut features = devices.filter_map(features).peekable();
    if features.peek().is_none() {
        return Err(format!("{REPORTING}: the kernel has no driver for the balloon (virtio_balloon)"));
    }
    if features.any(|bits| bits.as_bytes().get(REPORTING_BIT) == Some(&b'1')) {
        return Ok(());
    }
    Err(format!("{REPORTING}: the kernel's virtio_balloon does not report free pages (5.7 is the first that does)"))
}

/// Why a host cannot have a setting that is a guest's or a simulated host's, if it is one.
pub fn refused_on_host(name: &str) -> Option<&'static str> {
    match name {
        REPORTING | REPORTING_ORDER => Some("a guest's: this kernel runs on as it was booted (--target vm or sim)"),
        SHUFFLE => Some("read at boot only, and this kernel is booted (--target vm or sim)"),
        _ => refused_in_guests(name),
    }
}

/// Why no real kernel can have a setting, if it is the simulator's alone.
pub fn refused_in_guests(name: &str) -> Option<&'static str> {
    match name {
        REPORTING_DELAY => Some("a constant of the kernel, 2 s; only the simulator can change it (--target sim)"),
        BALLOON | DEFLATE_ON_OOM => {
            Some("nobody tells a real guest's balloon what to do yet; the simulator has one (--target sim)")
        }
        DEVICE_POISON | PAGE_POISON | INIT_ON_FREE => {
            Some("not passed on to a real guest yet; only the simulator has it (--target sim)")
        }
        DISCARD => Some("QEMU discards with MADV_DONTNEED; only the simulator has another host (--target sim)"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_last_word_on_the_balloon_counts() {
        assert_eq!(device(&settings(&[("vm.swappiness", "1")])), None);
        assert_eq!(device(&settings(&[(REPORTING, "on"), (REPORTING, "off")])).as_deref(), Some("virtio-balloon-pci"));
        let on = settings(&[(REPORTING, "off"), (SHUFFLE, "Y"), (REPORTING, "on")]);
        assert_eq!(device(&on).as_deref(), Some("virtio-balloon-pci,free-page-reporting=on"));
        assert_eq!(words(&on), " page_alloc.shuffle=1");
        assert_eq!((words(&settings(&[(SHUFFLE, "N")])).as_str(), modules(&[]).len()), ("", 0));
        assert_eq!(modules(&on), MODULES);
    }

    #[test]
    fn a_driver_that_does_not_report_is_told_from_one_that_is_not_there() {
        let driver = std::env::temp_dir().join(format!("pagelab-balloon-{}", std::process::id()));
        let device = driver.join("virtio0");
        assert!(check_bound(&driver).unwrap_err().contains("no driver"));
        fs::create_dir_all(&device).unwrap();
        let with = |bits: &str| {
            fs::write(device.join("features"), bits).unwrap();
            check_bound(&driver)
        };
        assert_eq!(with("0100010000\n"), Ok(()));
        assert!(with("0100000000\n").unwrap_err().contains("does not report"));
        fs::remove_dir_all(&driver).unwrap();
    }

    #[test]
    fn what_no_real_kernel_has_no_host_has() {
        for name in [
            REPORTING,
            BALLOON,
            DEFLATE_ON_OOM,
            PAGE_POISON,
            INIT_ON_FREE,
            DEVICE_POISON,
            REPORTING_ORDER,
            REPORTING_DELAY,
            SHUFFLE,
            DISCARD,
        ] {
            assert!(refused_on_host(name).is_some(), "{name}");
        }
        assert_eq!((refused_in_guests(REPORTING_ORDER), refused_on_host("vm.swappiness")), (None, None));
        assert!(refused_in_guests(REPORTING_DELAY).is_some() && refused_in_guests(DISCARD).is_some());
    }
}
