//! Linux: none; rules by name and by release.
//! Differs: development kernels between two releases have the older one's rules.

use std::fmt;

use units::Frames;

use super::{Changes, Patch, Variant, all, major_minor};

/// A variant as its file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name of its file, such as `v6.1`.
    pub name: String,
    /// One line on what it is.
    pub about: String,
    /// The name of the variant that it differs from; none for the root.
    pub parent: Option<String>,
    /// The first release (major, minor) with these rules; if its file does not say, its parent's.
    pub since: (u32, u32),
    /// Does its file say since which release? Then it is what kernels of that release and later have.
    pub is_release: bool,
    /// Mechanisms of its release and of those before it that no rule has, each with the release that brought it.
    pub not_modelled: Vec<((u32, u32), String)>,
    /// A release that it or its parent is named after, and the variant whose rules it has, where no rule is of that release.
    pub stands_in: Option<(String, String)>,
    /// What can be added to it, by number.
    pub patches: Vec<Patch>,
    /// What differs from the parent: the rule and its value as the file says it, without quotes. Empty for the root.
    pub diff: Vec<(&'static str, String)>,
    /// All of its rules.
    pub rules: Variant,
}

impl Named {
    /// What differs from its parent, in words: `v6.6 with pcp_high = tuned`.
    pub fn difference(&self) -> String {
        let Some(parent) = &self.parent else { return "every rule".to_owned() };
        if self.diff.is_empty() {
            return of_parent(parent);
        }
        let diff: Vec<_> = self.diff.iter().map(|(rule, value)| format!("{rule} = {value}")).collect();
        format!("{parent} with {}", diff.join(", "))
    }

    /// The rules of a release without a file, which are those of this one: its child, with the same patches.
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

/// No rules for this kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownRelease {
    /// The text does not start with two numbers.
    Form(String),
    /// Older than the oldest variant.
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

/// Rules that only a boot can change are to change in a kernel that runs.
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
    /// Whether a kernel that runs by these rules could go on by those of `next`.
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

    /// The variant of a release by its name, such as `v5.15`, `5.15` or `v5.15.3`: the built-in one, or else the rules of the
    /// newest that is not newer. None for what is no name of a release: a development kernel has patches that no number tells.
    pub fn of_release(name: &str) -> Option<Result<Named, UnknownRelease>> {
        let release = release_of(name)?;
        Some(
            Self::for_version(release.0, release.1)
                .map(|newest| if newest.since == release { newest.clone() } else { newest.of_later(release) }),
        )
    }

    /// The rules that differ from those of `other`, with the values here.
    pub fn differences(&self, other: &Self) -> Vec<(&'static str, String)> {
        let pairs = self.values().into_iter().zip(other.values());
        pairs.filter(|(ours, theirs)| ours != theirs).map(|(ours, _)| ours).collect()
    }

    /// Where a CPU's batch stops growing, in frames.
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
