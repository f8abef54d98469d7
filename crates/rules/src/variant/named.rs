//! Linux: none; rules by name and by release.
//! Differs: development kernels between two releases have the older one's rules.

use std::fmt;

use units::Frames;

use super::{Changes, Patch, Variant, all, major_minor};

/// A built-in or user's variant: what its file says, and its whole set of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name of the variant's file, such as `v6.1`.
    pub name: String,
    /// One line on what the variant is.
    pub about: String,
    /// The name of the parent variant; none for the root.
    pub parent: Option<String>,
    /// The first release (major, minor) with these rules; the parent's if the file names none.
    pub since: (u32, u32),
    /// Whether the file names a release: then kernels of that release and later have these rules.
    pub is_release: bool,
    /// Mechanisms of this and earlier releases that no rule models, each with the release that brought it.
    pub not_modelled: Vec<((u32, u32), String)>,
    /// The release that the variant is named after and the variant whose rules it has, if no file is of that release.
    pub stands_in: Option<(String, String)>,
    /// Patches that can be added to the variant, by number.
    pub patches: Vec<Patch>,
    /// What differs from the parent: the rule and its value as the file says it, without quotes. Empty for the root.
    pub diff: Vec<(&'static str, String)>,
    /// Value of every rule.
    pub rules: Variant,
}

impl Named {
    /// The difference from the parent in words: `v6.6 with pcp_high = tuned`.
    pub fn difference(&self) -> String {
        let Some(parent) = &self.parent else { return "every rule".to_owned() };
        if self.diff.is_empty() {
            return of_parent(parent);
        }
        let diff: Vec<_> = self.diff.iter().map(|(rule, value)| format!("{rule} = {value}")).collect();
        format!("{parent} with {}", diff.join(", "))
    }

    /// The variant of a later release without a file: a child of this one with equal rules and patches.
    fn of_later(&self, (major, minor): (u32, u32)) -> Self {
        let name = format!("v{major}.{minor}");
        Self {
            stands_in: Some((name.clone(), self.name.clone())),
            name,
            about: format!("{major}.{minor}: {}", of_parent(&self.name)),
            parent: Some(self.name.clone()),
            since: (major, minor),
            is_release: true,
            diff: Vec::new(),
            ..self.clone()
        }
    }
}

fn of_parent(parent: &str) -> String {
    format!("the rules of {parent}")
}

/// Why a kernel release has no rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownRelease {
    /// The text does not start with two numbers.
    Form(String),
    /// The release (major, minor) is older than the oldest variant.
    TooOld(u32, u32),
}

impl fmt::Display for UnknownRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(text) => write!(f, "expected a kernel release such as \"6.1.0-50-cloud-amd64\", found {text:?}"),
            Self::TooOld(major, minor) => {
                let oldest = &all()[0].name;
                write!(f, "kernel {major}.{minor} is older than {oldest}, the oldest whose rules we know")
            }
        }
    }
}

impl std::error::Error for UnknownRelease {}

/// An error: rules that only a boot can change would change in a running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeedsBoot {
    /// The rules, in the order of the table.
    pub rules: Vec<&'static str>,
}

impl fmt::Display for NeedsBoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rules that only a boot can change: {}", self.rules.join(", "))
    }
}

impl std::error::Error for NeedsBoot {}

impl Variant {
    /// Checks that a running kernel could change from these rules to those in `next`.
    pub fn check_change(&self, next: &Self) -> Result<(), NeedsBoot> {
        let is_of_boot =
            |name: &&str| Self::RULES.iter().any(|rule| rule.name == *name && rule.changes == Changes::AtBoot);
        let rules: Vec<_> = next.differences(self).into_iter().map(|(rule, _)| rule).filter(is_of_boot).collect();
        if rules.is_empty() { Ok(()) } else { Err(NeedsBoot { rules }) }
    }

    /// The newest built-in rules that are not newer than a release as `uname -r` prints it ("6.1.0-50-cloud-amd64").
    pub fn for_release(release: &str) -> Result<&'static Named, UnknownRelease> {
        let (major, minor) = major_minor(release).ok_or_else(|| UnknownRelease::Form(release.to_owned()))?;
        Self::for_version(major, minor)
    }

    /// The newest built-in rules that are not newer than release `major.minor`.
    pub fn for_version(major: u32, minor: u32) -> Result<&'static Named, UnknownRelease> {
        let newest = all().iter().rfind(|variant| variant.is_release && variant.since <= (major, minor));
        newest.ok_or(UnknownRelease::TooOld(major, minor))
    }

    /// The variant of a release by its name, such as `v5.15`, `5.15` or `v5.15.3`: the built-in variant, or else the newest
    /// rules that are not newer. None if the name is not a release: development kernels have patches that no number tells.
    pub fn of_release(name: &str) -> Option<Result<Named, UnknownRelease>> {
        let release = release_of(name)?;
        Some(
            Self::for_version(release.0, release.1)
                .map(|newest| if newest.since == release { newest.clone() } else { newest.of_later(release) }),
        )
    }

    /// The rules that differ from `other`'s, with the values here.
    pub fn differences(&self, other: &Self) -> Vec<(&'static str, String)> {
        let pairs = self.values().into_iter().zip(other.values());
        pairs.filter(|(ours, theirs)| ours != theirs).map(|(ours, _)| ours).collect()
    }

    /// Frames at which a CPU's batch stops growing.
    pub fn pcp_batch_limit_frames(&self) -> Frames {
        self.pcp_batch_limit.frames()
    }
}

/// The two numbers of `v5.15`, `5.15` or `v5.15.3`.
fn release_of(name: &str) -> Option<(u32, u32)> {
    let numbers: Option<Vec<u32>> = name
        .strip_prefix('v')
        .unwrap_or(name)
        .split('.')
        .map(|text| text.parse().ok().filter(|number: &u32| number.to_string() == text))
        .collect();
    match numbers?[..] {
        [major, minor] | [major, minor, _] => Some((major, minor)),
        _ => None,
    }
}
