//! /proc/version: which kernel this is.

use serde::{Deserialize, Serialize};

use super::{ProcError, lines::Line};

/// A kernel release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// As `uname -r` prints it, such as "6.1.0-50-cloud-amd64".
    pub text: String,
    /// The 6 of 6.1.
    pub major: u32,
    /// The 1 of 6.1.
    pub minor: u32,
}

/// The release in "Linux version RELEASE ...".
pub fn parse(text: &str) -> Result<Release, ProcError> {
    let line = Line::only("version", text.lines().next().unwrap_or_default());
    let release = line.text.strip_prefix("Linux version ").and_then(|rest| rest.split_whitespace().next());
    let release = release.ok_or_else(|| line.wrong("\"Linux version RELEASE\""))?;
    let mut numbers = release.split('.');
    let major = line.small(numbers.next().unwrap_or_default(), "the major release")?;
    let minor = numbers.next().unwrap_or_default();
    let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    let minor = line.small(&minor[..digits], "the minor release")?;
    Ok(Release { text: release.to_owned(), major, minor })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        for (text, release, major, minor) in [
            ("Linux version 5.10.0-32-cloud-amd64 (debian) #1 SMP\n", "5.10.0-32-cloud-amd64", 5, 10),
            ("Linux version 6.18 (2 CPUs)\n", "6.18", 6, 18),
            ("Linux version 4.20-rc3 (gcc)", "4.20-rc3", 4, 20),
        ] {
            assert_eq!(parse(text).unwrap(), Release { text: release.to_owned(), major, minor });
        }
        for text in ["", "Linux version ", "Linux version 6", "Linux version x.1", "Linux version 6.", "Darwin 22.1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
