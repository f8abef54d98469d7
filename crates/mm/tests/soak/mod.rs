//! How long the random tests run: what `cargo xtask soak` asks for.

/// How many times as many seeds are taken as usual.
///
/// # Panics
///
/// When the variable is no number.
pub(crate) fn times() -> u64 {
    std::env::var("PAGELAB_SOAK").map_or(1, |times| times.parse().expect("PAGELAB_SOAK: a number of times"))
}
