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

/// Digits of a hash that messages and names of directories show: they tell it from others.
const HASH_DIGITS: usize = 8;

/// The beginning of a hash, for messages.
pub(crate) fn short(hash: &str) -> String {
    hash.chars().take(HASH_DIGITS).collect()
}

/// Refuses to run again what another program ran.
///
/// # Errors
/// The program is another one; the message goes on from the result's name.
pub(crate) fn check_program(its: &str) -> Result<(), String> {
    if its == PROGRAM_HASH {
        return Ok(());
    }
    let (its, own) = (short(its), short(PROGRAM_HASH));
    Err(format!(
        "it is of program {its}, and this one is {own}, which would run it otherwise; run it again with this program"
    ))
}

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
