//! /proc/pagetypeinfo: free blocks by migrate type and order, and how many pageblocks each migrate type has.

use serde::{Deserialize, Serialize};
use units::NodeId;

use super::{
    ProcError,
    lines::{Cursor, Line},
};

/// The whole file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageTypeInfo {
    /// log2 of the frames in a pageblock.
    pub pageblock_order: u32,
    /// Free blocks, one entry per zone and migrate type.
    pub free: Vec<FreeOfType>,
    /// Pageblocks, one entry per zone.
    pub blocks: Vec<BlocksOfZone>,
}

/// Free blocks of one migrate type in one zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeOfType {
    /// The zone's node.
    pub node: NodeId,
    /// The zone's name.
    pub zone: String,
    /// The migrate type's name, such as "Unmovable".
    pub migrate_type: String,
    /// Free blocks of order 0, 1, ...; where the kernel stopped counting ("&gt;100000"), the number it names.
    pub free: Vec<u64>,
}

/// Pageblocks of one zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlocksOfZone {
    /// The zone's node.
    pub node: NodeId,
    /// The zone's name.
    pub zone: String,
    /// Migrate type and pageblocks.
    pub blocks: Vec<(String, u64)>,
}

/// The table that the lines belong to.
enum Table<'a> {
    None,
    Free { orders: usize },
    Blocks { types: Vec<&'a str> },
    Mixed,
}

/// Parses the file. Kernels built with page owner add a count of mixed pageblocks, which is left out.
pub fn parse(text: &str) -> Result<PageTypeInfo, ProcError> {
    let mut lines = Cursor::new("pagetypeinfo", text)?;
    let line = lines.require("\"Page block order: N\"")?;
    let order = line.text.strip_prefix("Page block order:").ok_or_else(|| line.wrong("\"Page block order: N\""))?;
    let mut info =
        PageTypeInfo { pageblock_order: line.small(order.trim(), "an order")?, free: vec![], blocks: vec![] };
    let mut table = Table::None;
    for line in lines.by_ref() {
        if let Some(next) = heading(line) {
            table = next;
        } else {
            row(line, &table, &mut info)?;
        }
    }
    if info.blocks.is_empty() { Err(lines.ended("\"Number of blocks type\" and its zones")) } else { Ok(info) }
}

/// The table that starts with this line. Every node repeats each table.
fn heading(line: Line<'_>) -> Option<Table<'_>> {
    if let Some(orders) = line.text.strip_prefix("Free pages count per migrate type at order") {
        return Some(Table::Free { orders: orders.split_whitespace().count() });
    }
    if let Some(types) = line.text.strip_prefix("Number of blocks type") {
        return Some(Table::Blocks { types: types.split_whitespace().collect() });
    }
    if line.text.starts_with("Number of mixed blocks") {
        return Some(Table::Mixed);
    }
    let preamble = line.text.starts_with("Page block order:") || line.text.starts_with("Pages per block:");
    preamble.then_some(Table::None)
}

fn row(line: Line<'_>, table: &Table<'_>, info: &mut PageTypeInfo) -> Result<(), ProcError> {
    let (node, zone, rest) = line.node_and_zone().ok_or_else(|| line.wrong("\"Node N, zone NAME\" or a heading"))?;
    let (node, zone) = (NodeId(line.small(node, "a node")?), zone.to_owned());
    let numbers = |rest: &str, count: usize| -> Result<Vec<u64>, ProcError> {
        let words = rest.split_whitespace().map(|word| line.number(word.trim_start_matches('>'), "a count"));
        let numbers = words.collect::<Result<Vec<_>, _>>()?;
        if numbers.len() == count { Ok(numbers) } else { Err(line.wrong(format!("{count} numbers"))) }
    };
    match table {
        Table::None => return Err(line.wrong("a heading")),
        Table::Mixed => {}
        Table::Free { orders } => {
            let typed = rest.strip_prefix(", type ").and_then(|rest| rest.trim_start().split_once(' '));
            let (migrate_type, rest) = typed.ok_or_else(|| line.wrong("a migrate type"))?;
            let free = numbers(rest, *orders)?;
            info.free.push(FreeOfType { node, zone, migrate_type: migrate_type.to_owned(), free });
        }
        Table::Blocks { types } => {
            let blocks = types.iter().map(|&name| name.to_owned()).zip(numbers(rest, types.len())?).collect();
            info.blocks.push(BlocksOfZone { node, zone, blocks });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1      2
Node    0, zone      DMA, type    Unmovable      0      1      2
Node    0, zone      DMA, type      Movable >100000      0      0

Number of blocks type     Unmovable      Movable
Node 0, zone      DMA            1            7
";

    #[test]
    fn both_tables() {
        let info = parse(TEXT).unwrap();
        assert_eq!(info.pageblock_order, 9);
        assert_eq!(info.free[1].migrate_type, "Movable");
        assert_eq!(info.free[1].free, [100_000, 0, 0]);
        assert_eq!(info.blocks[0].blocks, [("Unmovable".to_owned(), 1), ("Movable".to_owned(), 7)]);
    }

    #[test]
    fn cut_off_after_any_line_but_the_last() {
        for (end, _) in TEXT.match_indices('\n').take(TEXT.lines().count() - 1) {
            assert!(parse(&TEXT[..=end]).is_err(), "{}", &TEXT[..=end]);
        }
    }
}
