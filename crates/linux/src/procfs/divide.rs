//! A pasted text as a capture: which of its lines are of which file of /proc and /sys.
//!
//! Files are known by their own lines, or by a command or heading that names their path. Prose between them is left out; a line
//! that looks like its file's is kept, however wrong, so that the parser can say so.

use super::{Capture, paste};

const ZONEINFO: &str = "zoneinfo";
const MEMINFO: &str = "meminfo";
const VMSTAT: &str = "vmstat";
const BUDDYINFO: &str = "buddyinfo";
const PAGETYPEINFO: &str = "pagetypeinfo";
const VERSION: &str = "version";

/// Files that say what is in them by their lines.
const KNOWN: [&str; 5] = [ZONEINFO, MEMINFO, VMSTAT, BUDDYINFO, PAGETYPEINFO];

impl Capture {
    /// The files in a pasted text.
    pub fn pasted(text: &str) -> Self {
        Self::pasted_as(text, None)
    }

    /// The files in a pasted text that begins with lines of the file `key`.
    pub fn pasted_as(text: &str, key: Option<&str>) -> Self {
        let text = paste::plain(text);
        let mut divider = Divider { at: key.map(str::to_owned), ..Divider::default() };
        for (number, line) in text.lines().enumerate() {
            divider.line(number, line);
        }
        divider.capture
    }

    /// Takes from `other` the files that are not here yet.
    pub fn complete_with(&mut self, other: Self) {
        for (key, text) in other.texts {
            self.texts.entry(key).or_insert(text);
        }
    }
}

#[derive(Default)]
struct Divider {
    capture: Capture,
    /// The file that lines are of.
    at: Option<String>,
    /// Whether the zone of zoneinfo that is being read has said all that its parser needs.
    is_zone_whole: bool,
    /// Whether `protection: (` waits for its end, which a mail program has put on the next line.
    is_open: bool,
    /// Whether lines are the table of distances of `numactl --hardware`.
    is_distances: bool,
}

impl Divider {
    fn line(&mut self, number: usize, line: &str) {
        if line.is_empty() {
            return;
        }
        if let Some(command) = paste::command(line) {
            // A sentence behind a mark of a comment is no command.
            if !self.sentence(number, command) {
                self.name(named_by(command));
            }
        } else if let Some((key, value)) = labelled(line) {
            self.put(&key, number, value);
            self.name(None);
        } else if let Some(key) = heading(line) {
            self.name(Some(key));
        } else if !self.sentence(number, line) {
            self.of_file(number, line);
        }
    }

    fn name(&mut self, key: Option<String>) {
        self.at = key;
        self.is_open = false;
        self.is_distances = false;
    }

    /// Lines that stand for themselves: the release, a setting, the CPUs and distances of a node.
    fn sentence(&mut self, number: usize, line: &str) -> bool {
        if line.starts_with("Linux version ") {
            self.put(VERSION, number, line);
        } else if let Some(release) = uname(line) {
            self.put(VERSION, number, &format!("Linux version {release}"));
        } else if let Some((name, value)) = line.strip_prefix("vm.").and_then(|line| line.split_once('=')) {
            self.put(&format!("sys/vm/{}", name.trim()), number, value.trim());
        } else if let Some((node, cpus)) = node_cpus(line) {
            self.put(&format!("node/node{node}/cpulist"), number, &cpus);
        } else if line.starts_with("node distances:") {
            self.is_distances = true;
        } else if self.is_distances && distances(line).is_some() {
            if let Some((node, row)) = distances(line) {
                self.put(&format!("node/node{node}/distance"), number, row);
            }
        } else {
            return self.is_distances && line.starts_with("node ");
        }
        true
    }

    fn of_file(&mut self, number: usize, line: &str) {
        if let Some(key) = self.begins(line) {
            if self.at.as_deref() != Some(key) {
                self.name(Some(key.to_owned()));
            }
            self.is_zone_whole = false;
        }
        let Some(key) = self.at.clone() else { return };
        match key.as_str() {
            ZONEINFO => self.of_zoneinfo(number, line),
            BUDDYINFO | PAGETYPEINFO if !line.starts_with("Node ") => self.of_table(&key, number, line),
            MEMINFO if line.split_once(':').is_none_or(|(name, _)| name.contains(' ')) => self.name(None),
            VMSTAT if line.split(' ').count() > 2 && !ends_in_number(line) => self.name(None),
            "osrelease" => {
                self.put(VERSION, number, &format!("Linux version {line}"));
                self.name(None);
            }
            key if KNOWN.contains(&key) => self.put(key, number, line),
            // Files of one line.
            key => {
                let key = key.to_owned();
                self.put(&key, number, line);
                self.name(None);
            }
        }
    }

    /// The file that begins with this line, or goes on with it.
    fn begins(&self, line: &str) -> Option<&'static str> {
        if let Some(rest) = line.strip_prefix("Node ") {
            let (_, zone) = rest.split_once(", zone")?;
            let mut words = zone.split_whitespace();
            words.next()?;
            return Some(match words.next() {
                None => ZONEINFO,
                Some(_) if zone.contains(", type") || self.at.as_deref() == Some(PAGETYPEINFO) => PAGETYPEINFO,
                Some(_) => BUDDYINFO,
            });
        }
        if line.starts_with("Page block order:") {
            return Some(PAGETYPEINFO);
        }
        if line.starts_with("MemTotal:") {
            return Some(MEMINFO);
        }
        // Each zone counts its free pages too, before its last line.
        let is_vmstat = line.starts_with("nr_free_pages ") && (self.at.is_none() || self.is_zone_whole);
        is_vmstat.then_some(VMSTAT)
    }

    fn of_zoneinfo(&mut self, number: usize, line: &str) {
        if self.is_open {
            self.append(ZONEINFO, line);
            self.is_open = !line.contains(')');
            return;
        }
        let words = line.split(' ').filter(|word| !word.is_empty()).count();
        let is_size = SIZES.iter().any(|size| line.strip_prefix(size).is_some_and(|rest| rest.starts_with(' ')));
        let is_like = ends_in_number(line) || matches!(line, "per-node stats" | "pagesets") || (is_size && words <= 3);
        if line.starts_with("Node ") || line.starts_with("protection:") || (is_like && words <= 6) {
            self.is_zone_whole = line.starts_with("start_pfn:") || (self.is_zone_whole && line.contains(':'));
            self.is_open = line.starts_with("protection:") && !line.contains(')');
            self.put(ZONEINFO, number, line);
        } else {
            self.name(None);
        }
    }

    /// A line of a table that does not begin with a node: a heading, or the rest of a line that was wrapped.
    fn of_table(&mut self, key: &str, number: usize, line: &str) {
        let is_rest = line.split_whitespace().all(|word| word.trim_start_matches('>').parse::<u64>().is_ok());
        let last = self.capture.texts.get(key).and_then(|text| text.lines().last()).unwrap_or_default();
        let is_types = last.starts_with("Number of blocks type")
            && line.split_whitespace().all(|word| TYPES.iter().any(|name| word.eq_ignore_ascii_case(name)));
        let is_heading = ["Page block order:", "Pages per block:", "Free pages count", "Number of ", "at order"]
            .iter()
            .any(|start| line.starts_with(start));
        if is_rest && !last.is_empty() || is_types || line.starts_with("at order") {
            self.append(key, line);
        } else if is_heading {
            self.put(key, number, line);
        } else {
            self.name(None);
        }
    }

    /// Adds a line at its own number.
    fn put(&mut self, key: &str, number: usize, line: &str) {
        let text = self.capture.texts.entry(key.to_owned()).or_default();
        // A file of one line is the first that was found.
        if !KNOWN.contains(&key) && !text.is_empty() {
            return;
        }
        if KNOWN.contains(&key) {
            let blank = number.saturating_sub(text.lines().count());
            text.extend(std::iter::repeat_n('\n', blank));
        }
        text.push_str(line);
        text.push('\n');
    }

    /// Adds the rest of a wrapped line to the line before it.
    fn append(&mut self, key: &str, rest: &str) {
        if let Some(text) = self.capture.texts.get_mut(key) {
            text.truncate(text.trim_end().len());
            text.extend([" ", rest, "\n"]);
        }
    }
}

/// Sizes of a zone: their lines are kept even if damage has left no number in them.
const SIZES: [&str; 7] = ["pages free", "min", "low", "high", "spanned", "present", "managed"];

/// Names of migrate types, which a wrapped heading goes on with.
const TYPES: [&str; 7] = ["Unmovable", "Movable", "Reclaimable", "HighAtomic", "Reserve", "CMA", "Isolate"];

fn ends_in_number(line: &str) -> bool {
    let last = line.rsplit(' ').next().unwrap_or_default();
    last.starts_with(|c: char| c.is_ascii_digit() || c == '-')
}

/// The file that a command prints.
fn named_by(command: &str) -> Option<String> {
    let mut words = command.split_whitespace();
    match words.next()? {
        "uname" => (words.next() == Some("-r")).then(|| "osrelease".to_owned()),
        _ => words.find_map(|word| key_of(word.trim_matches(['"', '\'']))),
    }
}

/// The key of a path below /proc or /sys.
fn key_of(path: &str) -> Option<String> {
    let path = path.trim_start_matches('/');
    if let Some(path) = path.strip_prefix("proc/") {
        let known = KNOWN.contains(&path) || path == VERSION;
        return match path {
            "sys/kernel/osrelease" => Some("osrelease".to_owned()),
            _ if known || path.starts_with("sys/vm/") => Some(path.to_owned()),
            _ => None,
        };
    }
    if let Some(name) = path.strip_prefix("sys/kernel/mm/transparent_hugepage/") {
        return matches!(name, "enabled" | "defrag").then(|| format!("transparent_hugepage/{name}"));
    }
    let node = path.strip_prefix("sys/devices/system/node/")?;
    let (_, file) = node.split_once('/')?;
    matches!(file, "cpulist" | "distance" | "meminfo").then(|| format!("node/{node}"))
}

/// `PATH:VALUE`, as `grep . /sys/...` prints it.
fn labelled(line: &str) -> Option<(String, &str)> {
    let (path, value) = line.split_once(':')?;
    let key = if path.starts_with('/') { key_of(path)? } else { return None };
    let is_short = !KNOWN.contains(&key.as_str()) && key != "osrelease";
    (is_short && !value.trim().is_empty()).then(|| (key, value.trim()))
}

/// A line that is a path, or a path between marks: `==> /proc/zoneinfo <==`, `/proc/meminfo:`.
fn heading(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().filter(|word| word.contains(['/', '.']) || word.len() > 5);
    let word = words.next()?.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '/');
    if words.next().is_some() || !(word.starts_with("/proc/") || word.starts_with("/sys/")) {
        return line.strip_prefix("cat ").and_then(|path| key_of(path.trim()));
    }
    key_of(word)
}

/// The release in `Linux HOST RELEASE #N ...` and what follows it, such as the machine, as `uname -a` prints it.
fn uname(line: &str) -> Option<&str> {
    let (_, rest) = line.strip_prefix("Linux ")?.trim_start().split_once(' ')?;
    let rest = rest.trim_start();
    let mut words = rest.split_whitespace();
    let release = words.next()?;
    let begins = release.split('.').take(2).filter(|part| part.starts_with(|c: char| c.is_ascii_digit())).count() == 2;
    let is_build = words.next().is_some_and(|word| word.starts_with('#'));
    (begins && is_build).then_some(rest)
}

/// `node 0 cpus: 0 1 2` of `numactl --hardware`, or `NUMA node0 CPU(s): 0-2` of lscpu, as the kernel's list.
fn node_cpus(line: &str) -> Option<(u32, String)> {
    let (name, cpus) = line.split_once(':')?;
    let node = match name.strip_prefix("NUMA node") {
        Some(rest) => rest.strip_suffix(" CPU(s)")?,
        None => name.strip_prefix("node ")?.strip_suffix(" cpus")?,
    };
    Some((node.trim().parse().ok()?, cpus.split_whitespace().collect::<Vec<_>>().join(",")))
}

/// A row of the table of distances of `numactl --hardware`: ` 0:  10  21`.
fn distances(line: &str) -> Option<(u32, &str)> {
    let (node, row) = line.split_once(':')?;
    Some((node.trim().parse().ok()?, row.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_headings_and_lines_say_whose_a_line_is() {
        let text = "\
Hello, my box is slow:
[root@host ~]# uname -a
Linux host 4.18.0-80.el8.x86_64 #1 SMP x86_64 GNU/Linux
[root@host ~]# cat /proc/buddyinfo
Node 0, zone      DMA      1      0      3
5
Node 0, zone    DMA32      2      7    116      1
==> /proc/sys/vm/min_free_kbytes <==
67584
/sys/kernel/mm/transparent_hugepage/enabled:[always] madvise never
vm.swappiness = 60
node 0 cpus: 0 1
node 1 cpus:
node distances:
node   0   1
  0:  10  21
  1:  21  10
$ cat /proc/vmstat
nr_free_pages 7
Thanks for any idea!
";
        let found = Capture::pasted(text).texts;
        let vmstat = format!("{}nr_free_pages 7\n", "\n".repeat(18));
        let expected = [
            (
                "buddyinfo",
                "\n\n\n\nNode 0, zone      DMA      1      0      3 5\n\nNode 0, zone    DMA32      2      7    116      1\n",
            ),
            ("node/node0/cpulist", "0,1\n"),
            ("node/node0/distance", "10  21\n"),
            ("node/node1/cpulist", "\n"),
            ("node/node1/distance", "21  10\n"),
            ("sys/vm/min_free_kbytes", "67584\n"),
            ("sys/vm/swappiness", "60\n"),
            ("transparent_hugepage/enabled", "[always] madvise never\n"),
            ("version", "Linux version 4.18.0-80.el8.x86_64 #1 SMP x86_64 GNU/Linux\n"),
            ("vmstat", vmstat.as_str()),
        ];
        let found: Vec<(&str, &str)> = found.iter().map(|(key, text)| (key.as_str(), text.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn sentences_may_be_comments_of_a_script() {
        let text = "numactl -H\n# available: 2 nodes (0-1)\n# node 0 cpus: 0 1\n# node 0 size: 9 MB\n# node 1 cpus: 2\n\
                    # node distances:\n# node   0   1\n#   0:  10  21\n#   1:  21  10\n";
        let found = Capture::pasted(text).texts;
        let of = |key: &str| found.get(key).map(|text| text.trim_end());
        assert_eq!((of("node/node0/cpulist"), of("node/node1/cpulist")), (Some("0,1"), Some("2")));
        assert_eq!((of("node/node0/distance"), of("node/node1/distance")), (Some("10  21"), Some("21  10")));
    }

    #[test]
    fn the_rest_of_a_wrapped_line_is_put_back() {
        let text = "\
Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1
2
Node    0, zone      DMA, type    Unmovable      0      1
>100000

Number of blocks type     Unmovable
Movable
Node 0, zone      DMA            1            7
";
        let found = Capture::pasted(text);
        let info = super::super::pagetypeinfo::parse(found.text("pagetypeinfo").unwrap()).unwrap();
        assert_eq!(info.free[0].free, [0, 1, 100_000]);
        assert_eq!(info.blocks[0].blocks.len(), 2);
    }
}
