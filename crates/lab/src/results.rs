//! Results as they are read: runs made here, and numbers measured elsewhere.

use std::{io::ErrorKind, path::Path};

use report::{Cell, Contents, Key, Record, Skipped};

use crate::{
    counted,
    mmtests::{self, Like},
    plan::{Identity, Seeds},
    run::{self, IDENTITY_FILE},
    usage::UsageError,
};

/// The run and the records of a result directory; with `seeds`, only the records with one of these seeds.
pub(crate) fn contents(directory: &Path, seeds: Option<Seeds>) -> Result<(Identity, Contents), UsageError> {
    contents_like(directory, seeds, None)
}

/// Reads a result directory, or numbers that were measured elsewhere: those in the rows of another result or series, where one is
/// given.
pub(crate) fn contents_like(
    directory: &Path,
    seeds: Option<Seeds>,
    like: Option<&Like>,
) -> Result<(Identity, Contents), UsageError> {
    let lacks_identity = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory);
    let is_from_elsewhere = directory.join(IDENTITY_FILE).metadata().is_err_and(|error| lacks_identity(error.kind()));
    let (mut identity, mut contents) = if is_from_elsewhere {
        mmtests::contents(directory, like)?
    } else {
        let (identity, mut contents) = run::read(directory)?;
        counted::fill(&identity, &mut contents.records);
        (identity, contents)
    };
    if let Some(seeds) = seeds {
        leave_out(&mut identity.keys, &mut contents.records, seeds)?;
    }
    Ok((identity, contents))
}

/// Leaves out what has none of these seeds, all of which the result must have.
fn leave_out(keys: &mut Vec<Key>, records: &mut Vec<Record>, seeds: Seeds) -> Result<(), UsageError> {
    let all = || keys.iter().map(|key| key.seed);
    let (first, last) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
    if let Some(lacks) = seeds.all().find(|seed| !(first..=last).contains(seed)) {
        return Err(UsageError::of_key("--seeds", format!("the result has no seed {lacks}; it has {first}-{last}")));
    }
    keys.retain(|key| seeds.contains(key.seed));
    records.retain(|record| match record {
        Record::Cell(Cell { key, .. }) | Record::Skipped(Skipped { key: Some(key), .. }) => seeds.contains(key.seed),
        Record::System(_) | Record::Skipped(_) => true,
    });
    Ok(())
}
