//! Linux: none; patches that were posted for a kernel and can be applied alone or with others.
//! Differs: a patch is the rules that it changes, and a number in the file of the kernel that it was posted for.

use std::{fmt, path::Path};

use super::{Diff, Named};

/// One patch of a variant file: `[patch.1]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Its number in the file, and behind the `+` of a name.
    pub number: u32,
    /// One line on what it does.
    pub about: String,
    /// The rules that it changes.
    pub diff: Diff,
}

/// What is wrong with the patches that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchProblem {
    /// One of them twice.
    Twice(u32),
    /// One that the variant does not have; those that it has.
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

/// What stands behind the `+` of a name is no list of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchesForm {
    name: String,
    found: String,
}

impl fmt::Display for PatchesForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, found } = self;
        let base = split_at_plus(name).map_or(name.as_str(), |(base, _)| base);
        write!(f, "variant {name:?}: expected numbers of patches such as {base}+1,2, found {found:?}")
    }
}

impl std::error::Error for PatchesForm {}

/// The variant and the patches of a name or path such as `v4.1-rc2+1,3`; without a `+` there are none.
pub fn split_patches(name: &str) -> Result<(&str, Vec<u32>), PatchesForm> {
    let Some((base, list)) = split_at_plus(name) else { return Ok((name, Vec::new())) };
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        number.ok_or_else(|| PatchesForm { name: name.to_owned(), found: text.to_owned() })
    };
    Ok((base, list.split(',').map(number).collect::<Result<_, _>>()?))
}

/// At the first `+` behind the last folder; a file may have one in its name.
fn split_at_plus(name: &str) -> Option<(&str, &str)> {
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    let plus = file + name[file..].find('+')?;
    let list = &name[plus + 1..];
    let is_path = Path::new(list).extension().is_some_and(|extension| extension == "toml");
    (!is_path).then_some((&name[..plus], list))
}

impl Named {
    /// The same with some of its patches, in the order of their numbers; its name says which.
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
            patches: Vec::new(),
            diff: rules.differences(&self.rules),
            rules,
        })
    }
}

/// `1 to 5`, or `1, 3, 4`.
fn in_words(numbers: &[u32]) -> String {
    match numbers {
        [first, .., last] if numbers.windows(2).all(|pair| pair[1] == pair[0] + 1) && numbers.len() > 2 => {
            format!("{first} to {last}")
        }
        _ => numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    }
}
