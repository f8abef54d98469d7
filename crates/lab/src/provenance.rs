//! Where a result comes from: program, commit, date.

#[cfg(test)]
#[path = "../build/sources.rs"]
mod sources;
#[cfg(test)]
mod tests;

use std::time::SystemTime;

/// Hash of the sources that results depend on, and of the lock file, taken at build.
pub const PROGRAM_HASH: &str = env!("PAGELAB_PROGRAM_HASH");

/// Names of the crates whose sources [`PROGRAM_HASH`] covers, with a space between two.
pub const SIMULATED_CRATES: &str = env!("PAGELAB_SIMULATED_CRATES");

/// Hash of the sources that a guest's results depend on, apart from its kernel's; simulated results do not depend on all of
/// them. Taken at build.
pub const GUEST_HASH: &str = env!("PAGELAB_GUEST_HASH");

/// The commit this program was built from.
pub const COMMIT: &str = env!("PAGELAB_COMMIT");

/// The date and time in RFC 3339, UTC. Goes into `run` objects and directory names, never into what is measured.
pub fn now() -> String {
    #[expect(clippy::disallowed_methods, reason = "the date of a run is provenance, not a measurement")]
    let now = SystemTime::now();
    humantime::format_rfc3339_seconds(now).to_string()
}

/// The same, as part of a file name: `20261120-165012`.
pub fn stamp() -> String {
    now().chars().filter(|c| c.is_ascii_digit() || *c == 'T').collect::<String>().replace('T', "-")
}
