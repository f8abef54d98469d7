//! `cargo xtask fidelity --draw N`: cells drawn at random, on guests and in the simulator, beside the ceiling of the same draw.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow};
use cargo_metadata::Metadata;
use lab::{
    fidelity::{
        self, cells,
        draw::{self, Candidate},
        drawn::{self, Drawn, Facts},
        table,
    },
    usage::UsageError,
};
use linux::{host::monotonic_ns, kernel_image, qemu};

use super::{GuestRuns, Options, Subject, built, guests::Guests, seed::Seed, write};
use crate::base::{Base, PAGELAB};

/// Everything of the newest draw that counts, which `pagelab trust` quotes.
const JSON: &str = "docs/fidelity-draw.json";
const DOCUMENT: &str = "docs/fidelity/draw.md";

pub(super) fn run(workspace: &Metadata, options: &Options, cells: u64) -> Result<()> {
    let start = monotonic_ns();
    let root = workspace.workspace_root.as_std_path();
    if !options.cached {
        qemu::find_emulator().map_err(|error| UsageError::new(error.to_string()))?;
    }
    let seed = match &options.seed {
        Some(digits) => Seed::of_choice(digits),
        None => Seed::of_commit(root)?,
    };
    let not_that_counts = seed.why_not().map(|reason| format!("this is not the draw that counts: {reason}"));
    eprintln!("seed {}{}", seed.digits, not_that_counts.as_ref().map_or(String::new(), |not| format!("; {not}")));
    let machines = Machines::in_cache()?;
    let (runs, left_out) = draw::draw(&seed.digits, (cells, options.boots), |candidate| machines.place(candidate))?;
    eprintln!("{} cells; {} candidates were left out, as they cannot run", runs.len(), left_out.len());
    // Before hours of guests.
    let base = options.base.as_ref().map(|commit| Base::of(workspace, commit, &PAGELAB)).transpose()?;

    let program = built(workspace)?;
    let runs: Vec<&cells::Run> = runs.iter().collect();
    let guests = Guests::new(&program, &runs, options)?;
    let ran = GuestRuns::of(&guests, &runs, options)?;
    let (compared, skipped) = ran.beside(&Subject::of_this_tree(&program), options.jobs())?;
    let comparison = ran.compare(&compared, skipped);
    let sets = |run: &&cells::Run| (run.called.clone().unwrap_or_default(), run.sets.join(" "));
    let facts = Facts {
        commit: seed.commit.clone().filter(|_| not_that_counts.is_none()),
        seed: seed.digits,
        boots: options.boots,
        settings: runs.iter().map(sets).collect::<BTreeMap<_, _>>(),
        left_out,
    };
    let mut drawn = Drawn::of(facts, &compared, comparison);
    if let Some(base) = &base {
        let (compared, skipped) = ran.beside(&Subject::of_base(workspace, base)?, options.jobs())?;
        let theirs = fidelity::compare(&guests.releases(), &compared, skipped);
        drawn.base = Some(drawn::beside_base(base.name(), &drawn.comparison, &theirs));
    }
    drawn.guests_s = guests.seconds(&ran.boots);
    drawn.wall_s = ((monotonic_ns() - start) as f64 / 1e9).round();
    report(root, &drawn, not_that_counts.as_deref())
}

/// Files of drawn machines, which stay in the cache with the guests: results name them.
struct Machines(PathBuf);

impl Machines {
    fn in_cache() -> Result<Self> {
        let directory = kernel_image::cache_dir()?.join("fidelity").join("machines");
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        Ok(Self(directory))
    }

    /// The candidate as a run, or why it cannot be one.
    fn place(&self, Candidate { mut run, machine }: Candidate) -> Result<cells::Run, String> {
        let kernel = &run.guest.kernel;
        kernel_image::resolve(kernel)
            .map_err(|error| format!("kernel {kernel}: {error}; `cargo xtask kernel {kernel}` fetches one"))?;
        if let Some(reason) = run.lacks_setting() {
            return Err(reason);
        }
        let file = self.0.join(format!("{}.toml", run.guest.machine));
        // A name says all of a machine, but a program of another day may have written it otherwise.
        if fs::read_to_string(&file).ok().as_ref() != Some(&machine) {
            write(&file, &machine).map_err(|error| format!("{error:#}"))?;
        }
        run.guest.machine = file.to_string_lossy().into_owned();
        draw::cannot_plan(&run).map_or(Ok(run), Err)
    }
}

/// Into docs/ when it counts, else to standard output.
fn report(root: &Path, drawn: &Drawn, not_that_counts: Option<&str>) -> Result<()> {
    let shown = |tally: fidelity::Tally| format!("{} of {}", tally.within, tally.compared);
    match not_that_counts {
        None => {
            let document = root.join(DOCUMENT);
            let text = fs::read_to_string(&document).map_err(|error| anyhow!("{}: {error}", document.display()))?;
            write(&root.join(JSON), &(serde_json::to_string_pretty(drawn)? + "\n"))?;
            write(&document, &drawn::renew(&text, drawn))?;
            println!("{JSON} and {DOCUMENT} are new");
        }
        // Looking is for finding what is wrong.
        Some(_) => print!("{}{}", drawn::renew("", drawn), table::misses(&drawn.comparison)),
    }
    println!("{} counters within their class", shown(drawn.comparison.total));
    if let (Some(kernel), Some(single)) = (drawn.ceiling, drawn.single) {
        println!("{} of the kernel against its other boots, {} of single runs of ours", shown(kernel), shown(single));
    }
    let skipped = drawn.comparison.skipped.len();
    if skipped > 0 {
        println!("{skipped} cells were drawn and not compared, as one side did not get through");
    }
    println!("wall time {:.0} s; guests took {:.0} s when they ran", drawn.wall_s, drawn.guests_s);
    if let Some(not) = not_that_counts {
        println!("{not}; docs/ stays as it is");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_came_after_a_kernel_leaves_its_candidate_out() {
        let all = (0..200).map(|number| draw::candidate("0badcafe", number, 1).run);
        let fraction = "vm.percpu_pagelist_high_fraction";
        let (mut late, mut kept) = (0, 0);
        for run in all {
            let has = run.sets.iter().any(|set| set.starts_with(fraction));
            if has && run.guest.kernel == "5.10" {
                let reason = run.lacks_setting().expect("5.14 has it");
                assert_eq!(reason, format!("kernel 5.10 has no {fraction}, which came with 5.14"));
                late += 1;
            } else {
                assert_eq!(run.lacks_setting(), None, "{}", run.label());
                kept += 1;
            }
        }
        assert!(late > 0 && kept > 100, "{late} {kept}");
    }
}
