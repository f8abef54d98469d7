//! Checksums in JSON texts: the last key of an object is a hash of the bytes before it.
//!
//! The key is no part of the content: a reader checks it before anything else and then drops it.

/// The name of the checksum's key.
const KEY: &str = "checksum";
/// Digits of a checksum, 64 bits of BLAKE3: enough against damage, if not against an adversary.
const DIGITS: usize = 16;

/// The result of checking a text's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// The checksum matches.
    Whole,
    /// The checksum does not match.
    Broken,
    /// The text has no checksum: it was written by an older program, or the checksum itself is damaged.
    Missing,
}

/// The two ways in which JSON objects are written, with indentation and without: text before the key, between key and
/// value, and at the end.
const FORMS: [[&str; 3]; 2] = [["\n}", ",\n  \"", "\n}"], ["}", ",\"", "}"]];

/// Puts the object's checksum at its end.
///
/// # Panics
/// When the text is no object with a key.
pub fn seal(mut json: Vec<u8>) -> Vec<u8> {
    let form = FORMS.iter().find(|[closing, ..]| json.ends_with(closing.as_bytes())).expect("an object ends so");
    json.truncate(json.len() - form[0].len());
    assert!(json.len() > 1 && json[0] == b'{', "an object with a key");
    let end = ending(form, &checksum(&json));
    json.extend_from_slice(end.as_bytes());
    json
}

/// Checks whether a text is as [`seal`] made it.
pub fn verify(json: &[u8]) -> Seal {
    let is_sealed = |form| {
        let length = ending(form, &"0".repeat(DIGITS)).len();
        let (body, end) = json.split_at_checked(json.len().checked_sub(length)?)?;
        let end = std::str::from_utf8(end).ok()?;
        if end == ending(form, &checksum(body)) {
            return Some(Seal::Whole);
        }
        let at = end.len() - form[2].len() - 1 - DIGITS;
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let digits = end.get(at..at + DIGITS).filter(|digits| digits.as_bytes().iter().all(is_digit))?;
        (end == ending(form, digits)).then_some(Seal::Broken)
    };
    FORMS.iter().find_map(is_sealed).unwrap_or(Seal::Missing)
}

/// The checksum of some bytes.
pub fn checksum(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..DIGITS].to_owned()
}

fn ending([_, before, closing]: &[&str; 3], digits: &str) -> String {
    let blank = if before.starts_with(",\n") { " " } else { "" };
    format!("{before}{KEY}\":{blank}\"{digits}\"{closing}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_object_has_one_key_more_at_its_end() {
        let compact = String::from_utf8(seal(b"{\"a\":[1,{}]}".to_vec())).unwrap();
        assert_eq!(compact, format!("{{\"a\":[1,{{}}],\"checksum\":\"{}\"}}", checksum(b"{\"a\":[1,{}]")));
        let pretty = serde_json::to_vec_pretty(&serde_json::json!({ "a": 1 })).unwrap();
        let pretty = String::from_utf8(seal(pretty)).unwrap();
        assert_eq!(pretty, format!("{{\n  \"a\": 1,\n  \"checksum\": \"{}\"\n}}", checksum(b"{\n  \"a\": 1")));
        for text in [compact, pretty] {
            assert_eq!(verify(text.as_bytes()), Seal::Whole);
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read.as_object().unwrap().len(), 2);
        }
        for text in ["", "}", "{\"a\":1}", "{\n  \"a\": 1\n}", "{\"checksum\":\"0123\"}"] {
            assert_eq!(verify(text.as_bytes()), Seal::Missing, "{text}");
        }
    }

    #[test]
    fn no_byte_can_change() {
        for text in [b"{\"a\":\"b c\"}".as_slice(), b"{\n  \"a\": 1\n}"] {
            let sealed = seal(text.to_vec());
            for at in 0..sealed.len() {
                for bit in 0..8 {
                    let mut other = sealed.clone();
                    other[at] ^= 1 << bit;
                    assert_ne!(verify(&other), Seal::Whole, "{}", String::from_utf8_lossy(&other));
                }
                assert_ne!(verify(&sealed[..at]), Seal::Whole);
            }
        }
    }
}
