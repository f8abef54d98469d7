//! Stores that write all of a page, by kind; and which of these kinds bzero(3) of the C library uses.

use std::ffi::CStr;

use units::{Bytes, Bzero, Stores};

use crate::procfs;

/// The last-level cache of the first CPU.
const CACHE: &str = "/sys/devices/system/cpu/cpu0/cache/index3";

/// Stores with which bzero(3) of this program's C library clears `len` bytes.
pub(crate) fn bzero(len: Bytes) -> Stores {
    library().stores(len, cache_share())
}

/// The C library, by its release.
#[cfg(target_env = "gnu")]
fn library() -> Bzero {
    #[expect(unsafe_code, reason = "the library's own name of its release")]
    // SAFETY: a string that lives as long as the program does.
    let release = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    of_release(release.to_str().unwrap_or_default())
}

#[cfg(not(target_env = "gnu"))]
fn library() -> Bzero {
    Bzero::RepStosb
}

/// A release of glibc; one that is not readable counts as the newest.
#[cfg_attr(not(target_env = "gnu"), expect(dead_code, reason = "there is no glibc"))]
fn of_release(release: &str) -> Bzero {
    let minor = release.strip_prefix("2.").and_then(|rest| rest.split('.').next()).and_then(|minor| minor.parse().ok());
    match minor {
        Some(0..=17) => Bzero::BeyondShare,
        Some(18..=39) => Bzero::Cached,
        Some(40_u32..) | None => Bzero::BeyondThreeQuarters,
    }
}

/// A hardware thread's share of the last-level cache; none where the kernel does not show it.
fn cache_share() -> Option<Bytes> {
    let read = |name: &str| std::fs::read_to_string(format!("{CACHE}/{name}")).ok();
    let kib: u64 = read("size")?.trim().strip_suffix('K')?.parse().ok()?;
    let threads = procfs::list::cpus(CACHE, &read("shared_cpu_list")?).ok()?.len() as u64;
    Some(Bytes(Bytes::kib(kib).0.checked_div(threads)?))
}

/// Writes all of a page.
///
/// # Safety
/// The page is mapped writable, and nobody else refers to it.
#[expect(unsafe_code, reason = "touching memory is what the workload asks for")]
pub(crate) unsafe fn write_page(page: *mut u8, stores: Stores) {
    const PAGE: usize = 4096;
    match stores {
        // The C library's own call, which no compiler sees through. It is shorter than a share of any last-level cache.
        // SAFETY: as the caller says.
        Stores::Cached => unsafe { libc::memset(page.cast(), 3, PAGE) }.cast::<()>(),
        #[cfg(target_arch = "x86_64")]
        Stores::NonTemporal => {
            use std::arch::x86_64::{__m128i, _mm_set1_epi8, _mm_sfence, _mm_stream_si128};
            #[expect(clippy::cast_ptr_alignment, reason = "a page is aligned")]
            let lines = page.cast::<__m128i>();
            // SAFETY: as the caller says; a page is aligned, and every x86-64 has SSE2.
            unsafe {
                let value = _mm_set1_epi8(3);
                for at in 0..PAGE / 16 {
                    _mm_stream_si128(lines.add(at), value);
                }
                _mm_sfence();
            }
            page.cast()
        }
        #[cfg(target_arch = "x86_64")]
        Stores::RepStosb => {
            // SAFETY: as the caller says; the direction flag is clear.
            unsafe {
                std::arch::asm!("rep stosb", inout("rcx") PAGE => _, inout("rdi") page => _, in("al") 3_u8,
                    options(nostack, preserves_flags));
            }
            page.cast()
        }
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: as the caller says.
        Stores::NonTemporal | Stores::RepStosb => unsafe { libc::memset(page.cast(), 3, PAGE) }.cast::<()>(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_glibc_are_told_apart() {
        let expected = [
            ("2.12", Bzero::BeyondShare),
            ("2.17", Bzero::BeyondShare),
            ("2.18", Bzero::Cached),
            ("2.39.9000", Bzero::Cached),
            ("2.40", Bzero::BeyondThreeQuarters),
            ("3", Bzero::BeyondThreeQuarters),
        ];
        assert_eq!(expected.map(|(release, _)| of_release(release)), expected.map(|(_, bzero)| bzero));
    }

    #[test]
    fn each_kind_writes_all_of_a_page_and_no_more() {
        for (_, stores) in Stores::NAMES {
            let mut pages = vec![0_u8; 3 * 4096];
            let start = pages.as_mut_ptr();
            let offset = start.align_offset(4096);
            #[expect(unsafe_code, reason = "the function under test")]
            // SAFETY: a whole page of the buffer.
            unsafe {
                write_page(start.add(offset), stores);
            }
            let written: Vec<usize> = (0..pages.len()).filter(|at| pages[*at] == 3).collect();
            assert_eq!((written.first(), written.len()), (Some(&offset), 4096), "{stores:?}");
        }
    }
}
