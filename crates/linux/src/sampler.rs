//! Counters and memory of this kernel at one moment, in the form of time series: /proc/vmstat, the
//! vmstat of each node, /proc/buddyinfo, and pageblocks by type where /proc/pagetypeinfo may be read (by root, since 5.5).
//!
//! Gauges are read as the kernel has them folded by then (within a second), as folding them would disturb all CPUs.

use std::{collections::BTreeMap, fs, path::Path};

use crate::procfs::{ProcError, buddyinfo, pagetypeinfo, vmstat};

/// The hidden subcommand that reads samples: this program beside a worker.
pub const SAMPLER_COMMAND: &str = "sampler";

const NODES: &str = "/sys/devices/system/node";
/// log2 of the frames in a pageblock of x86-64 with huge pages, where nothing says it (include/linux/pageblock-flags.h, v6.1).
const PAGEBLOCK_ORDER: u32 = 9;

/// Reads samples, always with the same names.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    names: Vec<String>,
    /// The last sample.
    values: Vec<u64>,
}

impl Reader {
    /// The first sample says which names there are.
    pub fn new() -> Result<Self, ProcError> {
        let (names, values) = Texts::live()?.sample()?.into_iter().unzip();
        Ok(Self { names, values })
    }

    /// The names, as paths: `pgfault`, `node0/nr_free_pages`, `node0/DMA32/free/3`, `node0/DMA32/blocks/Movable`.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The last sample.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// Takes a sample of now. A name that has gone (memory was taken away) keeps its last value, a new one is left out.
    pub fn read(&mut self) -> Result<&[u64], ProcError> {
        self.take(Texts::live()?.sample()?);
        Ok(&self.values)
    }

    fn take(&mut self, sample: Vec<(String, u64)>) {
        let mut sample: BTreeMap<String, u64> = sample.into_iter().collect();
        for (name, value) in self.names.iter().zip(&mut self.values) {
            *value = sample.remove(name).unwrap_or(*value);
        }
    }
}

/// The kernel's files.
#[derive(Clone, Debug, Default)]
struct Texts {
    vmstat: String,
    /// By node.
    nodes: BTreeMap<u32, String>,
    buddyinfo: String,
    pagetypeinfo: Option<String>,
}

impl Texts {
    fn live() -> Result<Self, ProcError> {
        let read = |path: &str| {
            fs::read_to_string(path).map_err(|source| ProcError::Read { path: Path::new(path).to_owned(), source })
        };
        let mut nodes = BTreeMap::new();
        // A kernel without NUMA has no nodes there.
        for entry in fs::read_dir(NODES).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok());
            if let (Some(number), Ok(text)) = (number, fs::read_to_string(entry.path().join("vmstat"))) {
                nodes.insert(number, text);
            }
        }
        Ok(Self {
            vmstat: read("/proc/vmstat")?,
            nodes,
            buddyinfo: read("/proc/buddyinfo")?,
            pagetypeinfo: fs::read_to_string("/proc/pagetypeinfo").ok(),
        })
    }

    fn sample(&self) -> Result<Vec<(String, u64)>, ProcError> {
        let machine = vmstat::parse(&self.vmstat)?;
        let nodes = self.nodes.iter().map(|(node, text)| Ok((*node, vmstat::parse(text)?)));
        let nodes = nodes.collect::<Result<Vec<_>, ProcError>>()?;
        let is_by_node = |name: &String| nodes.iter().any(|(_, gauges)| gauges.contains_key(name));
        let mut sample: Vec<(String, u64)> = machine.into_iter().filter(|(name, _)| !is_by_node(name)).collect();
        for (node, gauges) in &nodes {
            sample.extend(gauges.iter().map(|(name, value)| (format!("node{node}/{name}"), *value)));
        }
        let types = self.pagetypeinfo.as_deref().map(pagetypeinfo::parse).transpose()?;
        let pageblock = types.as_ref().map_or(PAGEBLOCK_ORDER, |types| types.pageblock_order);
        for zone in buddyinfo::parse(&self.buddyinfo)? {
            let place = format!("node{}/{}", zone.node, zone.zone);
            let free = zone.free.iter().enumerate();
            sample.extend(free.map(|(order, blocks)| (format!("{place}/free/{order}"), *blocks)));
            // Free frames of a pageblock that has no others are one block, or part of one.
            let whole = (0_u32..).zip(&zone.free).filter(|(order, _)| *order >= pageblock);
            let whole = whole.map(|(order, blocks)| blocks << (order - pageblock)).sum();
            sample.push((format!("{place}/blocks/free"), whole));
        }
        for zone in types.iter().flat_map(|types| &types.blocks) {
            let place = format!("node{}/{}", zone.node, zone.zone);
            sample.extend(zone.blocks.iter().map(|(of, blocks)| (format!("{place}/blocks/{of}"), *blocks)));
        }
        Ok(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> Texts {
        Texts {
            vmstat: "nr_free_pages 900\npgfault 7\n".to_owned(),
            nodes: [(0, "nr_free_pages 500\n".to_owned()), (2, "nr_free_pages 400\n".to_owned())].into(),
            buddyinfo: "Node 0, zone  DMA32  1 2 0 0 0 0 0 0 0 3 4 \nNode 2, zone Normal 0 0 0 0 0 0 0 0 0 1 0 \n".to_owned(),
            pagetypeinfo: Some(
                "Page block order: 9\nNumber of blocks type Unmovable Movable\nNode 0, zone DMA32 1 20\nNode 2, zone Normal 0 9\n"
                    .to_owned(),
            ),
        }
    }

    fn value(sample: &[(String, u64)], name: &str) -> Option<u64> {
        sample.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    #[test]
    fn what_nodes_have_is_theirs_and_the_rest_the_machines() {
        let sample = texts().sample().unwrap();
        let of = |name: &str| value(&sample, name);
        assert_eq!((of("pgfault"), of("nr_free_pages")), (Some(7), None));
        assert_eq!((of("node0/nr_free_pages"), of("node2/nr_free_pages")), (Some(500), Some(400)));
        assert_eq!((of("node0/DMA32/free/1"), of("node0/DMA32/free/10")), (Some(2), Some(4)));
        assert_eq!((of("node0/DMA32/blocks/free"), of("node2/Normal/blocks/free")), (Some(3 + 2 * 4), Some(1)));
        assert_eq!((of("node0/DMA32/blocks/Movable"), of("node2/Normal/blocks/Unmovable")), (Some(20), Some(0)));
        let plain = Texts { nodes: BTreeMap::new(), pagetypeinfo: None, ..texts() }.sample().unwrap();
        assert_eq!(value(&plain, "nr_free_pages"), Some(900), "a kernel without NUMA");
        assert_eq!(value(&plain, "node0/DMA32/blocks/Movable"), None, "not for everybody");
        assert_eq!(value(&plain, "node0/DMA32/blocks/free"), Some(11));
    }

    #[test]
    fn a_lost_name_keeps_its_value_a_new_one_is_ignored() {
        let name = |name: &str| name.to_owned();
        let mut reader = Reader { names: vec![name("a"), name("b")], values: vec![1, 2] };
        reader.take(vec![(name("new"), 9), (name("b"), 3)]);
        assert_eq!((reader.names(), reader.values()), (&[name("a"), name("b")][..], &[1, 3][..]));
    }

    #[test]
    fn this_kernel_can_be_sampled() {
        let mut reader = Reader::new().unwrap();
        let at = reader.names().iter().position(|name| name == "pgfault").unwrap();
        let before = reader.values()[at];
        let after = reader.read().unwrap();
        assert!(after[at] >= before && before > 0);
        assert!(reader.names().iter().any(|name| name.ends_with("/blocks/free")));
    }
}
