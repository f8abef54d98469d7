//! A machine whose simulated CPUs take as long as a guest's that counts time in instructions.
//!
//! Timers do not slow down with a CPU: kcompactd looks for fragments every half second, and kswapd naps for a tenth. A kernel
//! whose CPU takes seconds for what ours does in milliseconds has that much more of it done beside the same work, and ours
//! would leave out what is only a matter of pace. Such a guest has no device of the host's either: its disk and
//! its swap are memory.

use anyhow::Result;
use lab::{
    fidelity::cells::Guest,
    machine::{Machine, Storage},
    prices,
};

/// The machine of a guest's simulated run, as a file; none where the guest has a time of its own.
pub(super) fn machine(guest: &Guest, seed: u64) -> Result<Option<String>> {
    let Some(shifts) = &guest.replayable else { return Ok(None) };
    let shifts = shifts.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let turn = usize::try_from(seed.saturating_sub(1))? % shifts.len();
    let mut machine = Machine::load(&guest.machine, &linux::setting::names())?;
    machine.storage = Storage::Memory;
    machine.prices = prices::of_instructions(1 << shifts[turn]);
    Ok(Some(machine.to_toml()))
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
            assert_eq!(read.storage, Storage::Memory, "as linux::disk gives it to such a guest");
            assert_eq!(read.prices.len(), prices::generic().len(), "a machine file like others");
            read.prices[0].takes.0
        };
        let first = takes(1);
        assert_eq!([2, 3].map(takes), [first * 4, first]);
    }
}
