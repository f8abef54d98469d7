//! virtio-balloon in guests, through which they tell their host which pages are free, and settings that are not written to a
//! file of the running kernel.

use std::{fs, path::Path};

use units::setting::{self, BALLOON, DEFLATE_ON_OOM, REPORTING, Real, SHUFFLE};

/// The balloon's driver in the guest, and the module that it needs.
const MODULES: [&str; 2] = ["virtio_pci", "virtio_balloon"];
/// Devices that the driver has taken.
const BOUND: &str = "/sys/bus/virtio/drivers/virtio_balloon";
/// Whether the kernel shuffles its free lists: `Y` or `N` (`shuffle_show`, mm/shuffle.c, v6.1).
const SHUFFLES: &str = "/sys/module/page_alloc/parameters/shuffle";
/// VIRTIO_BALLOON_F_REPORTING (include/uapi/linux/virtio_balloon.h, v6.1).
const REPORTING_BIT: usize = 5;

type Settings = [(String, String)];

/// The value of a setting: what comes later counts.
fn last<'a>(settings: &'a Settings, name: &str) -> Option<&'a str> {
    settings.iter().rfind(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Memory that an operator leaves the guest with, where there is an operator.
pub fn target(settings: &Settings) -> Option<&str> {
    last(settings, BALLOON).filter(|target| *target != "off")
}

/// May the guest take pages back out of its balloon when it needs them?
pub fn deflates_on_oom(settings: &Settings) -> bool {
    last(settings, DEFLATE_ON_OOM) == Some("on")
}

/// The device that QEMU gets; none where nobody speaks of it.
pub(crate) fn device(settings: &Settings) -> Option<String> {
    let is_wanted = last(settings, REPORTING).is_some() || target(settings).is_some();
    let more = if last(settings, REPORTING) == Some("on") { ",free-page-reporting=on" } else { "" };
    is_wanted.then(|| format!("virtio-balloon-pci{more}"))
}

/// Modules that a kernel needs for it, where they are not built in.
pub fn modules(settings: &Settings) -> Vec<String> {
    MODULES.iter().filter(|_| device(settings).is_some()).map(|name| (*name).to_owned()).collect()
}

/// Words of the kernel's command line.
pub(crate) fn words(settings: &Settings) -> String {
    let shuffles = last(settings, SHUFFLE) == Some("Y");
    if shuffles { " page_alloc.shuffle=1".to_owned() } else { String::new() }
}

/// Whether init finds no file to write: the device or the command line has it already.
pub(crate) fn is_outside(name: &str) -> bool {
    setting::find(name).is_some_and(|setting| matches!(setting.real, Real::GuestDevice | Real::CommandLine))
}

/// In the guest: whether its kernel shuffles, reports, and has a balloon, where that is wanted.
pub(crate) fn check(settings: &Settings) -> Result<(), String> {
    if last(settings, SHUFFLE) == Some("Y") {
        check_shuffles(Path::new(SHUFFLES))?;
    }
    let wanted = [(REPORTING, last(settings, REPORTING) == Some("on")), (BALLOON, target(settings).is_some())];
    let mut wanted = wanted.into_iter().filter(|(_, is_wanted)| *is_wanted);
    wanted.try_for_each(|(name, _)| check_bound(name, Path::new(BOUND)))
}

/// A kernel that does not know the word on its command line says nothing.
fn check_shuffles(file: &Path) -> Result<(), String> {
    let found = fs::read_to_string(file)
        .map_err(|_| format!("{SHUFFLE}: the kernel has no shuffling (CONFIG_SHUFFLE_PAGE_ALLOCATOR, from 5.2 on)"))?;
    if found.trim() == "Y" { Ok(()) } else { Err(format!("{SHUFFLE}: the kernel says {:?}, not Y", found.trim())) }
}

fn check_bound(name: &str, driver: &Path) -> Result<(), String> {
    let features = |device: fs::DirEntry| fs::read_to_string(device.path().join("features")).ok();
    let devices = fs::read_dir(driver).into_iter().flatten().flatten();
    let mut features = devices.filter_map(features).peekable();
    if features.peek().is_none() {
        return Err(format!("{name}: the kernel has no driver for the balloon (virtio_balloon)"));
    }
    if name != REPORTING || features.any(|bits| bits.as_bytes().get(REPORTING_BIT) == Some(&b'1')) {
        return Ok(());
    }
    Err(format!("{REPORTING}: the kernel's virtio_balloon does not report free pages (5.7 is the first that does)"))
}

/// Why a host cannot have a setting that is a guest's or a simulated host's, if it is one.
pub fn refused_on_host(name: &str) -> Option<&'static str> {
    match setting::find(name)?.real {
        Real::File => None,
        Real::GuestFile | Real::GuestDevice => {
            Some("a guest's: this kernel runs on as it was booted (--target vm or sim)")
        }
        Real::CommandLine => Some("read at boot only, and this kernel is booted (--target vm or sim)"),
        Real::Never(why) => Some(why),
    }
}

/// Why no real kernel can have a setting, if it is the simulator's alone.
pub fn refused_in_guests(name: &str) -> Option<&'static str> {
    match setting::find(name)?.real {
        Real::Never(why) => Some(why),
        Real::File | Real::GuestFile | Real::GuestDevice | Real::CommandLine => None,
    }
}

#[cfg(test)]
mod tests {
    use units::setting::{DEVICE_POISON, DISCARD, INIT_ON_FREE, PAGE_POISON, REPORTING_DELAY, REPORTING_ORDER};

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
    fn somebody_outside_needs_the_device_too() {
        let by_hand = settings(&[(BALLOON, "64MiB")]);
        assert_eq!((target(&by_hand), device(&by_hand).as_deref()), (Some("64MiB"), Some("virtio-balloon-pci")));
        assert_eq!(modules(&by_hand), MODULES);
        let off = settings(&[(BALLOON, "64MiB"), (BALLOON, "off")]);
        assert_eq!((target(&off), device(&off), modules(&off).len()), (None, None, 0));
        assert!(is_outside(BALLOON), "no file of the guest has it");
    }

    #[test]
    fn a_silent_driver_is_told_from_a_missing_one() {
        let driver = std::env::temp_dir().join(format!("pagelab-balloon-{}", std::process::id()));
        let device = driver.join("virtio0");
        for name in [REPORTING, BALLOON] {
            let expected = format!("{name}: the kernel has no driver for the balloon (virtio_balloon)");
            assert_eq!(check_bound(name, &driver), Err(expected));
        }
        fs::create_dir_all(&device).unwrap();
        let with = |bits: &str| {
            fs::write(device.join("features"), bits).unwrap();
            [REPORTING, BALLOON].map(|name| check_bound(name, &driver))
        };
        assert_eq!(with("0100010000\n"), [Ok(()), Ok(())]);
        let [reporting, balloon] = with("0100000000\n");
        assert!(reporting.unwrap_err().contains("does not report") && balloon.is_ok());
        fs::remove_dir_all(&driver).unwrap();
    }

    #[test]
    fn a_kernel_that_does_not_shuffle_is_refused() {
        let file = std::env::temp_dir().join(format!("pagelab-shuffle-{}", std::process::id()));
        assert!(check_shuffles(&file).unwrap_err().contains("CONFIG_SHUFFLE_PAGE_ALLOCATOR"));
        let with = |text: &str| {
            fs::write(&file, text).unwrap();
            check_shuffles(&file)
        };
        assert_eq!(with("Y\n"), Ok(()));
        assert_eq!(with("N\n"), Err("page_alloc.shuffle: the kernel says \"N\", not Y".to_owned()));
        fs::remove_file(&file).unwrap();
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
