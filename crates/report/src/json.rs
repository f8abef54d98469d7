//! A page as JSON, for programs: one object of named fields, or one list.

use serde::{Serialize, Serializer as _, ser::SerializeMap};
use serde_json::{
    Serializer,
    ser::{Formatter, PrettyFormatter},
};

use crate::{
    over_time,
    page::{Page, Part},
    record::{Cell, Key},
};

/// A value that a field of the JSON object may hold.
pub trait FieldValue {
    /// Adds the value to the object under `name`.
    ///
    /// # Errors
    /// A value that does not serialise, such as a map whose keys are no words.
    fn put(&self, name: &str, object: &mut Object<'_, '_>) -> serde_json::Result<()>;
}

/// An object that is being written, with indentation.
pub type Object<'s, 'b> =
    <&'s mut Serializer<&'b mut Vec<u8>, PrettyFormatter<'static>> as serde::Serializer>::SerializeMap;

impl<T: Serialize> FieldValue for T {
    fn put(&self, name: &str, object: &mut Object<'_, '_>) -> serde_json::Result<()> {
        object.serialize_entry(name, self)
    }
}

/// A part of a cell's result, beside the cell's key.
#[derive(Serialize)]
struct OfCell<'a, T> {
    key: &'a Key,
    value: &'a T,
}

/// The page as a JSON document. Claims are a list of judgements. Samples and slow operations are a list of a cell's key and
/// value. A score is one object. All other pages are an object in which the tables are `report`.
///
/// # Panics
/// When a field does not serialise.
pub(crate) fn to_json(page: &Page<'_>) -> String {
    let claims = page.judgements();
    if !claims.is_empty() {
        return indented(&claims);
    }
    match page.parts.as_slice() {
        [Part::Series(cells, _)] => one_line(&of_cells(cells, over_time::series_of)),
        [Part::SlowPath(cells, _)] => one_line(&of_cells(cells, |cell| cell.slow_path.iter())),
        [Part::Score(_, scores)] => indented(scores),
        parts => object(parts).expect("fields serialise"),
    }
}

fn object(parts: &[Part<'_>]) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::pretty(&mut bytes);
    let mut object = serializer.serialize_map(None)?;
    for part in parts {
        match part {
            Part::Tables(report, _) => object.serialize_entry("report", report)?,
            Part::Fields(fields) => fields.iter().try_for_each(|(name, value)| value.put(name, &mut object))?,
            _ => {}
        }
    }
    object.end()?;
    Ok(line(bytes))
}

fn of_cells<'a, T: 'a, P: Iterator<Item = &'a T>>(
    cells: &'a [Cell],
    parts: impl Fn(&'a Cell) -> P,
) -> Vec<OfCell<'a, T>> {
    cells.iter().flat_map(|cell| parts(cell).map(|value| OfCell { key: &cell.key, value })).collect()
}

fn indented(value: &impl Serialize) -> String {
    written(value, PrettyFormatter::new())
}

fn one_line(value: &impl Serialize) -> String {
    written(value, serde_json::ser::CompactFormatter)
}

fn written(value: &impl Serialize, formatter: impl Formatter) -> String {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, formatter)).expect("what was read serialises");
    line(bytes)
}

fn line(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("JSON is text") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        short::Beside,
        table::{Layout, Report},
    };

    /// A struct with the same fields, as the serialiser of the expected bytes.
    #[derive(Serialize)]
    struct Document<'a> {
        z: [&'static str; 2],
        report: &'a Report,
        missing: u64,
    }

    #[test]
    fn a_page_is_a_json_object_with_tables_in_order() {
        let report = Report { layout: Layout::Head, tables: Vec::new(), checks: Vec::new() };
        let (zones, missing) = (["DMA", "Normal"], 3);
        let tables = Part::Tables(&report, Beside::default());
        let first: &dyn FieldValue = &zones;
        let parts = vec![Part::Fields(vec![("z", first)]), tables, Part::Fields(vec![("missing", &missing)])];
        let page = Page { head: "head\n".to_owned(), ..Page::of(parts) };
        let document = Document { z: zones, report: &report, missing: 3 };
        let expected = serde_json::to_string_pretty(&document).expect("it serialises") + "\n";
        assert_eq!(page.to_json(), expected);
        assert_eq!((page.to_text(), page.to_short()), ("head\n".to_owned(), "head\n".to_owned()), "in no text");
    }

    #[test]
    fn a_page_of_one_list_is_that_list() {
        assert_eq!(Page::of(vec![Part::Series(&[], &[])]).to_json(), "[]\n");
        assert_eq!(Page::of(vec![Part::SlowPath(&[], 1)]).to_json(), "[]\n");
    }
}
