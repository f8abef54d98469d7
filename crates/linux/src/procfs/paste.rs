//! Texts of /proc and /sys as people paste them: quoted, indented, below a prompt, between code fences, in a log.
//!
//! [`plain`] takes away what mail programs and terminals put around the kernel's lines. Every line keeps its number, so that an
//! error names the place in the text that the user has.

/// Openings of lines that only mark where a quotation begins or ends.
const FENCES: [&str; 10] = ["```", "~~~", "<pre", "</pre", "<code", "</code", "[code", "[/code", "{code", "{noformat"];

/// A pasted text without quotation marks, indentation, code fences and carriage returns.
pub fn plain(text: &str) -> String {
    let text = text.trim_start_matches('\u{feff}');
    let mut plain = String::with_capacity(text.len());
    for line in text.lines() {
        let line = entities(line);
        let line = unquoted(&line);
        if !is_fence(line) {
            plain.push_str(line);
        }
        plain.push('\n');
    }
    plain
}

/// A line with the characters that web pages write by name, and with spaces in place of tabs and of spaces that do not break.
fn entities(line: &str) -> String {
    let line = line.replace(['\t', '\u{a0}', '\r'], " ");
    if !line.contains('&') {
        return line;
    }
    [("&gt;", ">"), ("&lt;", "<"), ("&nbsp;", " "), ("&amp;", "&")]
        .into_iter()
        .fold(line, |line, (name, character)| line.replace(name, character))
}

/// A line without the marks that mail programs put before quotations: `>`, `|`, and the initials of an author.
fn unquoted(line: &str) -> &str {
    let mut rest = line.trim();
    while let Some(inner) = quotation(rest) {
        rest = inner.trim_start();
    }
    rest
}

/// The rest of a line behind a mark of quotation. pagetypeinfo's ">100000" is a number.
fn quotation(line: &str) -> Option<&str> {
    let initials = line.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(line.len());
    let rest = if initials <= 3 { &line[initials..] } else { line };
    let inner = rest.strip_prefix('>').or_else(|| line.strip_prefix('|'))?;
    (!inner.starts_with(|c: char| c.is_ascii_digit())).then_some(inner)
}

fn is_fence(line: &str) -> bool {
    let lower: String = line.chars().take(12).collect::<String>().to_ascii_lowercase();
    FENCES.iter().any(|fence| lower.starts_with(fence))
}

/// The command of a line with a shell's prompt: `[root@host ~]# cat /proc/zoneinfo`, `$ uname -r`, or a prompt alone.
pub(super) fn command(line: &str) -> Option<&str> {
    let ends = [('#', true), ('$', true), ('%', false)];
    ends.into_iter().find_map(|(end, is_bare)| {
        let at = line.find(end)?;
        let (before, after) = (&line[..at], &line[at + end.len_utf8()..]);
        if !(after.is_empty() || after.starts_with(' ')) {
            return None;
        }
        // A prompt names a user and a host, or is the mark alone; "Linux host 4.18 #1 SMP" is none.
        let named = before.contains('@') && before.len() < PROMPT_MAX;
        let bare = is_bare && before.trim().is_empty();
        let shell = before.starts_with("bash-") || before.starts_with("sh-");
        (named || bare || shell).then(|| after.trim())
    })
}

/// Longer texts before a `#` are no prompt.
const PROMPT_MAX: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations_and_fences_are_taken_away() {
        let text = "\u{feff}> Node 0, zone DMA\r\n>> >  pages free 1\n```text\n\tmin\t3\n| low 4\nMG> high 5\n>100000 1\n&gt; x";
        assert_eq!(plain(text), "Node 0, zone DMA\npages free 1\n\nmin 3\nlow 4\nhigh 5\n>100000 1\nx\n");
    }

    #[test]
    fn prompts_have_commands() {
        for (line, found) in [
            ("[root@host ~]# cat /proc/zoneinfo", Some("cat /proc/zoneinfo")),
            ("user@host:/tmp$ uname -r", Some("uname -r")),
            ("# cat /proc/meminfo", Some("cat /proc/meminfo")),
            ("$ cat /proc/meminfo", Some("cat /proc/meminfo")),
            ("[root@host ~]#", Some("")),
            ("host% x", None),
            ("Linux host 4.18.0 #1 SMP", None),
            ("Linux version 4.18.0 (builder@host) (gcc) #1 SMP", None),
            ("pages free 3", None),
        ] {
            assert_eq!(command(line), found, "{line}");
        }
    }
}
