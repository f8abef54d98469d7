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
