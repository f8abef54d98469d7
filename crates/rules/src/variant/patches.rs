//! Linux: none; patches that were posted for a kernel and can be applied alone or with others.
//! Differs: a patch is the rules that it changes, and a number in the file of the kernel that it was posted for.

use std::{fmt, ops::RangeInclusive, path::Path};

use super::{Diff, Named};

/// One patch of a variant file: `[patch.1]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The patch's number in the file, and behind the `+` of a name.
    pub number: u32,
    /// One line on what the patch does.
    pub about: String,
    /// The rules that the patch changes.
    pub diff: Diff,
}

/// An error in a list of patches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchProblem {
    /// A patch is listed twice.
    Twice(u32),
    /// The variant does not have the first number; the list holds those it has.
    Unknown(u32, Vec<u32>),
}

impl fmt::Display for PatchProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice(number) => write!(f, "patch {number} is asked for twice"),
            Self::Unknown(_, known) if known.is_empty() => f.write_str("has no patches"),
            Self::Unknown(number, known) => write!(f, "has no patch {number}; it has {}", in_words(known)),
        }
    }
}

impl std::error::Error for PatchProblem {}

/// An error: the text behind the `+` of a name is not a list of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchesForm {
    name: String,
    found: String,
}

impl fmt::Display for PatchesForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, found } = self;
        let base = split_at_plus(name).map_or(name.as_str(), |(base, _)| base);
        write!(f, "variant {name:?}: expected numbers of patches such as {base}+1,2 or {base}+1-3, found {found:?}")
    }
}

impl std::error::Error for PatchesForm {}

/// Most patches that a range such as `1-5` may stand for: a mistyped range must not fill memory.
const RANGE_MAX: u32 = 1000;

/// Splits a name or path such as `v4.1-rc2+1,3` or `v4.1-rc2+1-5` into variant and patch numbers; without a `+` there are
/// none.
pub fn split_patches(name: &str) -> Result<(&str, Vec<u32>), PatchesForm> {
    let Some((base, list)) = split_at_plus(name) else { return Ok((name, Vec::new())) };
    let mut patches = Vec::new();
    for text in list.split(',') {
        let range = range(text).ok_or_else(|| PatchesForm { name: name.to_owned(), found: text.to_owned() })?;
        patches.extend(range);
    }
    Ok((base, patches))
}

/// The numbers of `3` or of `1-5`; a range goes upward.
fn range(text: &str) -> Option<RangeInclusive<u32>> {
    // Digits alone: `parse` also takes a sign.
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let Some((first, last)) = text.split_once('-') else { return number(text).map(|number| number..=number) };
    let (first, last) = (number(first)?, number(last)?);
    (first < last && last - first < RANGE_MAX).then_some(first..=last)
}

/// Splits at the first `+` of the file name; folders may have one in theirs.
fn split_at_plus(name: &str) -> Option<(&str, &str)> {
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    let plus = file + name[file..].find('+')?;
    let list = &name[plus + 1..];
    let is_path = Path::new(list).extension().is_some_and(|extension| extension == "toml");
    (!is_path).then_some((&name[..plus], list))
}

impl Named {
    /// The variant with some of its patches, in the order of their numbers. The new name lists each patch by itself,
    /// whatever was typed, so that one kernel has one name in results.
    pub fn with_patches(&self, wanted: &[u32]) -> Result<Self, PatchProblem> {
        if wanted.is_empty() {
            return Ok(self.clone());
        }
        let mut sorted = wanted.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(PatchProblem::Twice(twice[0]));
        }
        let (mut rules, mut abouts) = (self.rules, vec![self.about.clone()]);
        for number in &sorted {
            let patch = self.patches.iter().find(|patch| patch.number == *number);
            let known = || self.patches.iter().map(|patch| patch.number).collect();
            let patch = patch.ok_or_else(|| PatchProblem::Unknown(*number, known()))?;
            rules = patch.diff.over(&rules);
            abouts.push(patch.about.clone());
        }
        let list: Vec<_> = sorted.iter().map(u32::to_string).collect();
        Ok(Self {
            name: format!("{}+{}", self.name, list.join(",")),
            about: abouts.join("; "),
            parent: Some(self.name.clone()),
            since: self.since,
            is_release: false,
            not_modelled: self.not_modelled.clone(),
            stands_in: self.stands_in.clone(),
            patches: Vec::new(),
            diff: rules.differences(&self.rules),
            rules,
        })
    }
}

/// Writes patch numbers as `1 to 5` or `1, 3, 4`.
fn in_words(numbers: &[u32]) -> String {
    match numbers {
        [first, .., last] if numbers.windows(2).all(|pair| pair[1] == pair[0] + 1) && numbers.len() > 2 => {
            format!("{first} to {last}")
        }
        _ => numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    }
}
