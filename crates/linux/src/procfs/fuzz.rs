//! No text, however damaged, may make a parser panic.

use std::path::Path;

use super::*;

/// A recording of `recordings/proc/`, such as `6.1-2n-2g/booted`.
pub(super) fn recording(name: &str) -> Capture {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/proc");
    Capture::from_dir(&recordings.join(name)).unwrap()
}

/// Marsaglia's xorshift64: enough to pick places.
pub(crate) struct Xorshift(u64);

impl Xorshift {
    /// A generator that gives the same places in every run.
    pub(crate) fn new() -> Self {
        Self(SEED)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }
}

const BYTES: &[u8] = b"09- ,:()[]\n\tNx\xff";
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

pub(crate) fn damage(text: &str, random: &mut Xorshift) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        let byte = BYTES[random.below(BYTES.len())];
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, byte),
            2 => drop(bytes.drain(at..bytes.len().min(at + 1 + random.below(80)))),
            3 => bytes.extend_from_within(at..),
            4 => bytes.splice(at..at, *b"18446744073709551615").for_each(drop),
            _ if at < bytes.len() => bytes[at] = byte,
            _ => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Parses everything; counts the texts that were refused.
fn refused(capture: &Capture) -> usize {
    let text = |key| capture.texts.get(key).map_or("", String::as_str);
    let results = [
        Snapshot::parse(capture).map(drop),
        vmstat::parse(text("vmstat")).map(drop),
        buddyinfo::parse(text("buddyinfo")).map(drop),
        pagetypeinfo::parse(text("pagetypeinfo")).map(drop),
    ];
    results.into_iter().filter(Result::is_err).count()
}

#[test]
fn damaged_recordings_are_refused_or_read_but_never_a_panic() {
    let mut random = Xorshift::new();
    for name in ["5.10-4n-2g/booted", "6.12-4n-2g/booted", "6.18-host/booted"] {
        let intact = recording(name);
        assert_eq!(refused(&intact), 0, "{name}");
        let mut rejections = 0;
        for key in intact.texts.keys() {
            for _ in 0..200 {
                let mut capture = intact.clone();
                let text = damage(&intact.texts[key], &mut random);
                capture.texts.insert(key.clone(), text);
                rejections += refused(&capture);
            }
        }
        assert!(rejections > 100, "{name}: damage goes unnoticed, {rejections} refusals");
    }
}

#[test]
fn zoneinfo_cut_anywhere_is_refused() {
    let capture = recording("6.18-host/booted");
    let text = &capture.texts["zoneinfo"];
    for cut in 0..text.len() {
        let error = zoneinfo::parse(&text[..cut]).unwrap_err().to_string();
        assert!(error.starts_with("zoneinfo, line "), "{error}");
    }
}

/// A text as people paste it: quoted, indented, wrapped, cut, between fences, below a prompt, in a log.
fn pasted(text: &str, random: &mut Xorshift) -> String {
    let mut text = text.to_owned();
    for _ in 0..=random.below(3) {
        let each = |change: &dyn Fn(&str) -> String| text.lines().map(change).collect::<Vec<_>>().join("\n");
        text = match random.below(8) {
            0 => each(&|line| format!("> {line}")),
            1 => each(&|line| format!("\t    {line}")),
            2 => format!("```\n{text}\n```\nThanks!"),
            3 => format!("[root@host ~]# cat /proc/zoneinfo\n{text}[root@host ~]#"),
            4 => each(&|line| format!("Nov 01 10:00:00 host kernel: [  12.500000] {line}")),
            5 => {
                let width = 20 + random.below(60);
                each(&|line| match line
                    .char_indices()
                    .filter(|(at, letter)| *at > width && *letter == ' ')
                    .map(|(at, _)| at)
                    .next()
                {
                    Some(at) => format!("{}\n{}", &line[..at], &line[at + 1..]),
                    None => line.to_owned(),
                })
            }
            6 => text.chars().take(random.below(text.chars().count())).collect(),
            _ => damage(&text, random),
        };
    }
    text
}

#[test]
fn pastes_are_refused_or_read_but_never_a_panic() {
    const REPORT: &str = "\
CPU: 3 PID: 77 Comm: app Tainted: G        W          6.1.0-9-amd64 #1
Node 0 DMA free:15360kB boost:0kB min:40kB low:52kB high:64kB present:15996kB managed:15360kB mlocked:0kB
lowmem_reserve[]: 0 1900 3900
Node 0 Normal free:36kB boost:4kB min:34544kB low:43180kB high:51816kB present:2097152kB managed:2031616kB
Node 0 DMA: 0*4kB 0*8kB 1*1024kB (U) 1*2048kB (M) 3*4096kB (M) = 15360kB
Node 0 Normal: 3*4kB (UME) 3*8kB = 36kB
";
    let mut random = Xorshift::new();
    let capture = recording("6.1-2n-2g/booted");
    let all = ["version", "meminfo", "buddyinfo", "pagetypeinfo", "zoneinfo"];
    let all = all.into_iter().filter_map(|key| capture.text(key).ok()).collect::<Vec<_>>();
    let (all, mut read) = (all.concat(), [0; 2]);
    for _ in 0..1000 {
        let found = Capture::pasted(&pasted(&all, &mut random));
        read[0] += usize::from(found.text("zoneinfo").is_ok_and(|text| zoneinfo::parse(text).is_ok()));
        refused(&found);
        read[1] += usize::from(oom::parse(&pasted(REPORT, &mut random)).is_ok());
    }
    assert!(read.iter().all(|read| (100..1000).contains(read)), "{read:?} of 1000 each are read");
}
