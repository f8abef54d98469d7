//! Guests by turns: a machine of two CPUs boots two at once and no more.

use std::sync::{Condvar, Mutex, PoisonError};

use linux::{kernel_image, qemu};

use super::skip;

const AT_ONCE: usize = 2;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// Leave to boot one guest at a time.
pub(crate) struct Turn(());

/// Waits for a turn. None when QEMU or the 6.1 kernel is missing, after saying so: the test `name` is skipped.
pub(crate) fn turn(name: &str) -> Option<Turn> {
    assert!(name.starts_with("vm_"), "skips of tests that need a guest are told by their name");
    let missing = [
        qemu::find_emulator().map(drop).map_err(|error| error.to_string()),
        kernel_image::resolve("6.1").map(drop).map_err(|error| error.to_string()),
    ];
    if let Some(reason) = missing.into_iter().find_map(Result::err) {
        skip(name, &reason);
        return None;
    }
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    while *running >= AT_ONCE {
        running = ENDED.wait(running).unwrap_or_else(PoisonError::into_inner);
    }
    *running += 1;
    Some(Turn(()))
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}
