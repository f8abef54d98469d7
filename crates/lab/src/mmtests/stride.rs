//! The numbers of threads that mmtests tries (its "large stride", mmtests of 2023, read for behaviour).

/// The counts from 1 to the largest, which is always among them.
pub(crate) fn large_stride(max: u32) -> Vec<u32> {
    let mut counts: Vec<u32> = match max {
        0..=8 => (1..=max).step_by(2).collect(),
        9..=32 => [1, 3, 5, 7].into_iter().chain((12..=max).step_by(6)).collect(),
        _ => [1, 4, 7, 12, 21, 30].into_iter().chain((48..=max).step_by(31)).collect(),
    };
    if counts.last() != Some(&max) {
        counts.push(max);
    }
    counts
}
