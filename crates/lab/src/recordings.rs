//! Recordings of real kernels, for tests.

use std::path::{Path, PathBuf};

/// A file or folder of `recordings/`, such as `proc/6.1-2n-2g/booted`.
pub(crate) fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings").join(name)
}
