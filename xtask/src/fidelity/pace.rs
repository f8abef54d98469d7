//! The machine of a guest's simulated run: as fast as `pagelab run` makes the twin of a guest.

use anyhow::Result;
use lab::{fidelity::cells::Guest, machine::Machine, plan::in_turn};

/// The machine of a guest's simulated run, as a file for a program that `knows` some prices by name.
pub(super) fn machine(guest: &Guest, seed: u64, knows: impl Fn(&str) -> bool) -> Result<String> {
    let machine = Machine::load(&guest.machine, &linux::setting::names())?;
    let mut machine = match &guest.replayable {
        None => machine.translated(),
        Some(shifts) => {
            let shifts = shifts.split(',').map(str::parse).collect::<Result<Vec<u8>, _>>()?;
            machine.counting_instructions(in_turn(&shifts, seed))
        }
    };
    machine.prices.retain(|price| knows(price.work.name()));
    Ok(machine.to_toml())
}

#[cfg(test)]
mod tests {
    use lab::{machine::Storage, prices, source::Source};

    use super::*;

    #[test]
    fn a_seeds_shift_sets_the_pace_but_not_separate_timers() {
        let guest = |replayable: Option<&str>| Guest {
            name: "one".to_owned(),
            kernel: "6.1".to_owned(),
            machine: "one-cpu-512m".to_owned(),
            replayable: replayable.map(str::to_owned),
            seeds: 8,
        };
        let read = |shifts, seed| {
            let text = machine(&guest(shifts), seed, |_| true).unwrap();
            Machine::from_source(&Source::from_text("slow.toml", text), &linux::setting::names()).unwrap()
        };
        let translated = read(None, 1);
        assert_eq!((translated.storage, &translated), (Storage::Disk, &read(None, 2)));
        let takes = |seed| {
            let read = read(Some("2,4"), seed);
            assert_eq!(read.storage, Storage::Memory, "as linux::disk gives it to such a guest");
            assert_eq!(read.prices.len(), prices::generic().len(), "a machine file like others");
            read.prices[0].takes.0
        };
        let first = takes(1);
        assert_eq!(translated.prices[0].takes.0 * 4, first * 3, "3 ns an instruction, and 4 with shift 2");
        assert_eq!([2, 3].map(takes), [first * 4, first]);
        let without = machine(&guest(None), 1, |name| name != "file_writepage").unwrap();
        assert!(!without.contains("file_writepage") && without.contains("file_writeback"), "an older program");
    }
}
