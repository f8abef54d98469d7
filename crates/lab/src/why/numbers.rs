//! Numbers of sentences.

use units::Time;

/// An instant in seconds, to the microsecond, rounded down.
pub(crate) fn seconds(at: Time) -> String {
    const PER_MICRO: u64 = 1_000_000;
    let micros = at.0 / PER_MICRO;
    format!("{}.{:06}", micros / PER_MICRO, micros % PER_MICRO)
}

/// A span with four digits or so, in the unit that it is read best in.
pub(crate) fn span(ps: u64) -> String {
    let (unit, of) = match ps {
        1_000_000_000_000.. => ("s", 1e12),
        1_000_000_000.. => ("ms", 1e9),
        1_000_000.. => ("us", 1e6),
        _ => ("ns", 1e3),
    };
    let value = ps as f64 / of;
    let digits = if value < 10.0 {
        3
    } else if value < 100.0 {
        2
    } else {
        1
    };
    format!("{value:.digits$} {unit}")
}

/// A number with a comma between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [5_000, 12_345_678, 8_345_000_000, 123_456_000_000].map(span),
            ["5.000 ns", "12.35 us", "8.345 ms", "123.5 ms"]
        );
        assert_eq!(seconds(Time(12_345_678_999_999)), "12.345678");
    }
}
