//! Every dependency of the workspace says what it is for.

use super::Finding;

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut section = "";
    for (at, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            section = line.trim();
        }
        let is_dependency = section == "[workspace.dependencies]"
            && line.starts_with(|c: char| c.is_ascii_alphabetic())
            && line.contains('=');
        // Our own crates describe themselves.
        if is_dependency && !line.contains("path = ") && comment(line).is_none() {
            findings.push(Finding::new(path, at + 1, "a dependency without a `# what it is for`"));
        }
    }
    findings
}

/// The comment at the end of a line of TOML, without its `#`.
fn comment(line: &str) -> Option<&str> {
    let mut in_string = false;
    let hash = line.char_indices().find(|&(_, c)| {
        in_string ^= c == '"';
        c == '#' && !in_string
    });
    hash.map(|(at, _)| line[at + 1..].trim()).filter(|comment| !comment.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_needs_its_comment() {
        let text = "\
[workspace.package]
edition = \"2024\"
[workspace.dependencies]
# our own
units = { path = \"crates/units\" }
anyhow = \"1\" # errors at the edge
csv = \"1\"
odd = { version = \"1\", features = [\"#\"] }
bare = \"1\" #
[profile.dev]
debug = 1
";
        let lines: Vec<usize> = check("Cargo.toml", text).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [7, 8, 9]);
    }
}
