//! A machine on which simulated CPUs are as slow as a guest's that counts time in instructions.
//!
//! Timers do not slow down with a CPU: kcompactd looks for fragments every half second, and kswapd naps for a tenth. A kernel
//! whose CPU takes seconds for what ours does in milliseconds has that much more of it done beside the same work, and ours
//! would leave out what is only a matter of pace. Such a guest has no device of the host's either: it swaps to memory.

use anyhow::Result;
use lab::{
    fidelity::cells::Guest,
    machine::{Machine, SwapMedium},
    prices,
};

/// How many times a generic price the same work takes in a guest, for each nanosecond that an instruction takes there: of
/// small-files with 64 KiB files, 12.5 s of CPU time in a guest at 4 ns, and 0.21 s with generic prices. One figure for all
/// operations, from times; what is compared is counted.
const PER_NS: f64 = 14.5;

/// The machine of a guest's simulated run, as a file; none where the guest has a time of its own.
pub(super) fn machine(guest: &Guest, seed: u64) -> Result<Option<String>> {
    let Some(shifts) = &guest.replayable else { return Ok(None) };
    let shifts = shifts.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let turn = usize::try_from(seed.saturating_sub(1))? % shifts.len();
    let mut machine = Machine::load(&guest.machine, &linux::setting::names())?;
    machine.swap_medium = SwapMedium::Memory;
    Ok(Some(slower(machine, PER_NS * f64::from(1 << shifts[turn])).to_toml()))
}

/// The same machine, all of whose operations take so many times as long.
fn slower(mut machine: Machine, times: f64) -> Machine {
    let others = prices::generic().iter().filter(|price| machine.prices.iter().all(|own| own.work != price.work));
    let mut all: Vec<_> = machine.prices.iter().chain(others).cloned().collect();
    all.sort_by_key(|price| price.work as usize);
    for price in &mut all {
        // Prices are far below 2^53 picoseconds.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a price is positive and below a second"
        )]
        let slow = (price.takes.0 as f64 * times) as u64;
        price.takes.0 = slow;
        price.range = None;
        price.source = format!("{times} times: {}", price.source);
    }
    machine.prices = all;
    machine
}

#[cfg(test)]
mod tests {
    use lab::source::Source;

    use super::*;

    #[test]
    fn a_seeds_shift_sets_the_pace_and_timers_of_their_own_keep_theirs() {
        let guest = |replayable: Option<&str>| Guest {
            name: "one".to_owned(),
            machine: "one-cpu-512m".to_owned(),
            replayable: replayable.map(str::to_owned),
            seeds: 8,
        };
        assert_eq!(machine(&guest(None), 1).unwrap(), None);
        let takes = |seed| {
            let text = machine(&guest(Some("2,4")), seed).unwrap().unwrap();
            let read = Machine::from_source(&Source::from_text("slow.toml", text), &linux::setting::names()).unwrap();
            assert_eq!(read.prices.len(), prices::generic().len(), "a machine file like others");
            assert_eq!(read.swap_medium, SwapMedium::Memory, "as linux::disk gives it to such a guest");
            read.prices[0].takes.0
        };
        let generic = prices::generic()[0].takes.0;
        assert_eq!([1, 2, 3].map(takes), [generic * 58, generic * 232, generic * 58]);
    }
}
