//! Words in lines of a given width.

/// Characters of the widest text.
pub(super) fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

/// The text in lines of at most `width` characters, broken between words where that can be, and a word that is longer than a
/// line between its [`pieces`].
pub fn fold(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut letters: Vec<char> = word.chars().collect();
        let line = lines.last_mut().expect("there is one");
        let used = line.chars().count();
        if used > 0 && used + 1 + letters.len() > width {
            lines.push(String::new());
        } else if used > 0 {
            line.push(' ');
        }
        while letters.len() > width {
            let word: String = letters.iter().collect();
            let ends = pieces(&word).into_iter().scan(0, |end, piece| {
                *end += piece.chars().count();
                Some(*end)
            });
            // A piece that is longer than a line is cut where the line ends.
            let rest = letters.split_off(ends.take_while(|end| *end <= width).last().unwrap_or(width));
            lines.last_mut().expect("there is one").extend(letters);
            lines.push(String::new());
            letters = rest;
        }
        lines.last_mut().expect("there is one").extend(letters);
    }
    lines
}

/// The parts of a word between which it may be broken: after an `=` or a comma, so that names and numbers stay whole.
pub(super) fn pieces(word: &str) -> Vec<&str> {
    word.split_inclusive(['=', ',']).collect()
}

/// A name in the first field of a line, which has `field` characters. For a longer name, the lines of the name come first and the
/// field is empty.
pub(crate) fn name_field(name: &str, field: usize, width: usize) -> (Vec<String>, String) {
    if name.chars().count() <= field {
        (Vec::new(), format!("{name:field$}"))
    } else {
        (fold(name, width), " ".repeat(field))
    }
}

/// The text in one line of at most `width` characters, cut with three dots if it is longer.
pub fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let start: String = text.chars().take(width.saturating_sub(DOTS.len())).collect();
    let word = start.rsplit_once(' ').map_or(start.as_str(), |(whole, _)| whole);
    let start = if 2 * word.chars().count() > width { word } else { &start };
    format!("{}{DOTS}", start.trim_end()).chars().take(width).collect()
}

const DOTS: &str = "...";

/// A list in one line of at most `width` characters: the items that fit, and the number of further items.
pub fn list(before: &str, items: &[String], width: usize) -> String {
    let whole = format!("{before}{}", items.join(", "));
    if whole.chars().count() <= width {
        return whole;
    }
    let shorter = |count: usize| format!("{before}{} and {} more", items[..count].join(", "), items.len() - count);
    let fits = (1..items.len()).rev().map(shorter).find(|text| text.chars().count() <= width);
    fits.unwrap_or_else(|| fit(&format!("{before}{}", items.len()), width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_where_they_can() {
        assert_eq!(fold("with patches 1-4", 12), ["with patches", "1-4"]);
        assert_eq!(fold("abcdefg hi", 3), ["abc", "def", "g", "hi"]);
        assert_eq!(fold("", 3), [""]);
        let setting = "v6.1 watermark_scale_factor=1000";
        assert_eq!(fold(setting, 24), ["v6.1", "watermark_scale_factor=", "1000"]);
        assert_eq!(fold(setting, 27), ["v6.1", "watermark_scale_factor=1000"]);
    }

    #[test]
    fn a_long_name_has_lines_of_its_own() {
        assert_eq!(name_field("pgfault", 9, 40), (Vec::new(), "pgfault  ".to_owned()));
        let name = "sim_nr_tlb_remote_flush_received base-1";
        assert_eq!(name_field(name, 9, 40), (vec![name.to_owned()], " ".repeat(9)));
    }

    #[test]
    fn what_is_left_out_is_said() {
        assert_eq!(fit("one two three", 13), "one two three");
        assert_eq!(fit("one two three", 12), "one two...");
        assert_eq!(fit("abcdefgh", 6), "abc...");
        let names = ["Swap Ins", "Swap Outs", "DMA allocs"].map(str::to_owned);
        assert_eq!(list("zero: ", &names, 40), "zero: Swap Ins, Swap Outs, DMA allocs");
        assert_eq!(list("zero: ", &names, 32), "zero: Swap Ins and 2 more");
        assert_eq!(list("zero: ", &names, 12), "zero: 3");
    }
}
