//! Texts of /proc and /sys as people paste them: quoted, indented, below a prompt, between code fences, in a log.
//!
//! [`plain`] takes away what mail programs and terminals put around the kernel's lines. Every line keeps its number, so that an
//! error names the place in the text that the user has.

/// Marks before and behind code: the start of each, and the sign that ends it.
const TAGS: [(&str, char); 10] = [
    ("<pre", '>'),
    ("</pre", '>'),
    ("<code", '>'),
    ("</code", '>'),
    ("<br", '>'),
    ("<p", '>'),
    ("[code", ']'),
    ("[/code", ']'),
    ("{code", '}'),
    ("{noformat", '}'),
];
/// Fences of Markdown.
const FENCES: [&str; 2] = ["```", "~~~"];

/// A line of a pasted text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastedLine {
    /// Number in the text, from 1.
    pub number: usize,
    /// Spaces before its text, behind marks of quotation.
    pub indent: usize,
    /// The text alone; empty for a code fence.
    pub text: String,
}

/// The lines of a pasted text without quotation marks, indentation, code fences and carriage returns. Of lines that a mail
/// program has split for sending, the first has the whole text.
pub fn lines(text: &str) -> Vec<PastedLine> {
    let text = text.trim_start_matches('\u{feff}');
    let numbered = if is_quoted_printable(text) {
        quoted_printable(text)
    } else {
        (1..).zip(text.lines()).map(|(number, line)| (number, line.to_owned())).collect()
    };
    let plain = |(number, line): (usize, String)| {
        let line = entities(&line);
        let (indent, line) = unquoted(&line);
        PastedLine { number, indent, text: untagged(line).to_owned() }
    };
    numbered.into_iter().map(plain).collect()
}

/// The text of [`lines`], each at its number.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut next = 1;
    for line in lines(text) {
        while next < line.number {
            plain.push('\n');
            next += 1;
        }
        plain.push_str(&line.text);
        plain.push('\n');
        next += 1;
    }
    plain.extend(std::iter::repeat_n('\n', (text.lines().count() + 1).saturating_sub(next)));
    plain
}

/// Bytes that quoted-printable texts of kernels and mails have: `=`, a space at the end of a line, a space that does not break,
/// and a plus-minus sign.
const ENCODED: [&str; 4] = ["=3D", "=20", "=C2=A0", "=C2=B1"];

/// Is the text a mail as it was sent, in the encoding that splits lines with a `=` at the end?
fn is_quoted_printable(text: &str) -> bool {
    let is_said = |line: &str| {
        let line = line.to_ascii_lowercase();
        line.starts_with("content-transfer-encoding:") && line.contains("quoted-printable")
    };
    let has_split = || text.lines().any(|line| split(line.trim_end()).is_some());
    text.lines().any(is_said) || (ENCODED.iter().any(|byte| text.contains(byte)) && has_split())
}

/// The lines of a quoted-printable text, with their numbers.
fn quoted_printable(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    // Whether the line before goes on.
    let mut is_split = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        let (part, goes_on) = split(line).map_or((line, false), |part| (part, true));
        match lines.last_mut().filter(|_| is_split) {
            Some((_, before)) => before.push_str(part),
            None => lines.push((number, part.to_owned())),
        }
        is_split = goes_on;
    }
    lines.into_iter().map(|(number, line)| (number, decoded(&line))).collect()
}

/// The text of a split line, without the `=` at its end. A rule of `====` is no split line.
fn split(line: &str) -> Option<&str> {
    line.strip_suffix('=').filter(|part| !part.ends_with('='))
}

/// A line with the bytes that `=XX` stands for.
fn decoded(line: &str) -> String {
    if !line.contains('=') {
        return line.to_owned();
    }
    let mut bytes = Vec::with_capacity(line.len());
    let mut rest = line.as_bytes();
    while let [first, behind @ ..] = rest {
        let pair = behind.first_chunk::<2>().filter(|_| *first == b'=').and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
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

/// A line without the marks that mail programs put before quotations: `>`, `|`, and the initials of an author; and the spaces
/// before it.
fn unquoted(line: &str) -> (usize, &str) {
    let mut rest = line.trim_end();
    let mut indent = rest.len() - rest.trim_start().len();
    rest = rest.trim_start();
    while let Some(inner) = quotation(rest) {
        rest = inner.trim_start();
        indent = inner.len() - rest.len();
    }
    (indent, rest)
}

/// The rest of a line behind a mark of quotation. pagetypeinfo's ">100000" is a number.
fn quotation(line: &str) -> Option<&str> {
    let initials = line.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(line.len());
    let rest = if initials <= 3 { &line[initials..] } else { line };
    let inner = rest.strip_prefix('>').or_else(|| line.strip_prefix('|'))?;
    (!inner.starts_with(|c: char| c.is_ascii_digit())).then_some(inner)
}

/// A line without the marks of code around it. Behind a fence of Markdown a single word names the language.
fn untagged(line: &str) -> &str {
    let mut rest = line;
    while let Some(inner) = TAGS.iter().find_map(|tag| behind_tag(rest, *tag)) {
        rest = inner.trim_start();
    }
    if let Some(inner) = FENCES.iter().find_map(|fence| rest.strip_prefix(fence)) {
        let inner = inner.trim_start_matches(['`', '~']);
        rest = if inner.trim().contains(' ') { inner.trim() } else { "" };
    }
    rest = FENCES.iter().fold(rest, |rest, fence| rest.strip_suffix(fence).unwrap_or(rest));
    while let Some(inner) = TAGS.iter().find_map(|tag| before_tag(rest, *tag)) {
        rest = inner.trim_end();
    }
    rest
}

fn behind_tag<'a>(line: &'a str, (start, end): (&str, char)) -> Option<&'a str> {
    let head = line.get(..start.len()).filter(|head| head.eq_ignore_ascii_case(start))?;
    let (attributes, behind) = line[head.len()..].split_once(end)?;
    (attributes.is_empty() || !attributes.starts_with(char::is_alphanumeric)).then_some(behind)
}

fn before_tag<'a>(line: &'a str, (start, end): (&str, char)) -> Option<&'a str> {
    let inner = line.strip_suffix(end)?;
    let at = inner.rfind(&start[..1])?;
    behind_tag(&line[at..], (start, end)).filter(|behind| behind.is_empty()).map(|_| &line[..at])
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
    fn mails_as_they_were_sent_are_decoded_and_lines_keep_their_numbers() {
        let text = "Content-Transfer-Encoding: quoted-printable\n\n> Normal free:1=\n2kB =3D =C2=B1\n>   low 4=20\n";
        let plain = plain(text);
        assert_eq!(plain.lines().skip(2).collect::<Vec<_>>(), ["Normal free:12kB = \u{b1}", "", "low 4"]);
        assert_eq!(lines(text).last().map(|line| (line.number, line.indent)), Some((5, 3)));
        // Without a header: a byte that is encoded, and a line that is split.
        assert_eq!(super::plain("a =3D b=\nc\n"), "a = bc\n\n");
        for other in ["order=20\n=====\nx\n", "a=3D\n", "x=\ny\n"] {
            assert_eq!(super::plain(other), other);
        }
    }

    #[test]
    fn marks_of_code_may_stand_on_lines_of_data() {
        for (line, text) in [
            ("<pre><code>Node 0, zone DMA 1", "Node 0, zone DMA 1"),
            ("<pre class=\"x\">Node 0", "Node 0"),
            ("Node 0, zone DMA 1 3</code></pre>", "Node 0, zone DMA 1 3"),
            ("pages free 7<br />", "pages free 7"),
            ("[code]min 3[/code]", "min 3"),
            ("```Node 0, zone DMA 1 3```", "Node 0, zone DMA 1 3"),
            ("```console", ""),
            ("~~~~", ""),
            ("{noformat}", ""),
            ("<previous> [codes] x", "<previous> [codes] x"),
            ("<4>[ 1.0] x", "<4>[ 1.0] x"),
        ] {
            assert_eq!(plain(line), format!("{text}\n"), "{line}");
        }
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
