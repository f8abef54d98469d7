//! /proc/buddyinfo: free blocks of each order.

use serde::{Deserialize, Serialize};
use units::NodeId;

use super::{ProcError, lines::Cursor};

/// One zone's line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeBlocks {
    /// The zone's node.
    pub node: NodeId,
    /// The zone's name, such as "DMA32".
    pub zone: String,
    /// Free blocks of order 0, 1, ...
    pub free: Vec<u64>,
}

/// Every zone that has memory, in the kernel's order.
pub fn parse(text: &str) -> Result<Vec<FreeBlocks>, ProcError> {
    let mut zones: Vec<FreeBlocks> = Vec::new();
    for line in Cursor::new("buddyinfo", text)? {
        let (node, zone, rest) = line.node_and_zone().ok_or_else(|| line.wrong("\"Node N, zone NAME\""))?;
        let node = NodeId(line.small(node, "a node")?);
        let free = rest.split_whitespace().map(|word| line.number(word, "free blocks"));
        let free = free.collect::<Result<Vec<_>, _>>()?;
        let orders = zones.first().map_or(free.len(), |first| first.free.len());
        if free.is_empty() || free.len() != orders {
            return Err(line.wrong(format!("a number for each of {} orders", orders.max(1))));
        }
        zones.push(FreeBlocks { node, zone: zone.to_owned(), free });
    }
    Ok(zones)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Node 0, zone      DMA      0      0      3 \nNode 1, zone    DMA32      2      7    116 \n";

    #[test]
    fn blocks_per_order() {
        let zones = parse(TEXT).unwrap();
        assert_eq!(zones[1], FreeBlocks { node: NodeId(1), zone: "DMA32".to_owned(), free: vec![2, 7, 116] });
    }

    #[test]
    fn a_shorter_line_is_cut_off() {
        let error = parse(&TEXT.replace("    116 ", "")).unwrap_err().to_string();
        assert!(error.starts_with("buddyinfo, line 2: expected a number for each of 3 orders"), "{error}");
        for text in ["Node 0, zone DMA\n", "Node x, zone DMA 1\n", "Node 0 zone DMA 1\n", "Node 0, zone DMA 1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
