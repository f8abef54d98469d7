//! Pageblocks of a map, counted by zone.

use serde::Serialize;

use super::{BlockMap, TYPES};
use crate::series::Series;

/// A zone's pageblocks at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ZoneCensus {
    /// The zone, as in [`super::Band::title`].
    pub zone: String,
    /// Pageblocks by type, in the order of [`TYPES`].
    pub of_type: [u64; TYPES.len()],
    /// Pageblocks whose frames are all free.
    pub free: u64,
    /// Cells in which a huge page starts; where a cell is a pageblock, huge pages.
    pub huge: u64,
    /// Cells with frames in use of another mobility than their type is for.
    pub mixed: u64,
    /// Cells of which the host knows that they are free.
    pub reported: u64,
    /// The fragmentation index for a pageblock, in thousandths.
    pub fragmentation: i64,
}

impl ZoneCensus {
    /// All its pageblocks.
    pub fn blocks(&self) -> u64 {
        self.of_type.iter().sum()
    }
}

/// Counts a sample of a map, zone by zone. Types and free pageblocks come from the series at the same instant, which is exact,
/// if there is one; else from the map's cells, which are as exact where a cell is a pageblock.
///
/// # Panics
/// When there is no such sample.
pub fn census(map: &BlockMap, sample: usize, series: Option<&Series>) -> Vec<ZoneCensus> {
    let cells = map.cells(sample);
    let mut zones: Vec<(&str, ZoneCensus)> = Vec::new();
    let mut rest = cells.as_slice();
    for (at, band) in map.head.bands.iter().enumerate() {
        let (own, others) = rest.split_at(band.cells(map.head.group));
        rest = others;
        let known = zones.iter().position(|(path, _)| *path == band.zone);
        let known = known.unwrap_or_else(|| {
            let fragmentation = map.head.fragmentation[sample][at];
            zones.push((&band.zone, ZoneCensus { zone: band.title(), fragmentation, ..ZoneCensus::default() }));
            zones.len() - 1
        });
        let zone = &mut zones[known].1;
        let mut left = u64::from(band.blocks);
        for cell in own {
            let blocks = left.min(u64::from(map.head.group));
            left -= blocks;
            zone.of_type[usize::from(cell.kind) % TYPES.len()] += blocks;
            zone.free += if cell.used == Some(0) { blocks } else { 0 };
            zone.huge += u64::from(cell.huge);
            zone.mixed += u64::from(cell.mixed);
            zone.reported += u64::from(cell.reported);
        }
    }
    if let Some(series) = series {
        let values = series.at(sample);
        for (path, zone) in &mut zones {
            let exact = |what: &str| values(&format!("{path}/blocks/{what}"));
            for (blocks, of) in zone.of_type.iter_mut().zip(TYPES) {
                *blocks = exact(of).unwrap_or(*blocks);
            }
            zone.free = exact("free").unwrap_or(zone.free);
        }
    }
    zones.into_iter().map(|(_, zone)| zone).collect()
}

/// Of each sample, how much of the machine's free memory lies in blocks smaller than a pageblock, in thousandths: the kernel's
/// unusable free index (`unusable_free_index()`, mm/vmstat.c, v6.1; a zone's is in /sys/kernel/debug/extfrag/unusable_index), of
/// all zones together. As there, it is 1000 where nothing is free. None where a series has no free blocks.
pub fn unusable(series: &Series, pageblock_order: u8) -> Option<Vec<u64>> {
    let order = |name: &str| name.split_once("/free/").and_then(|(_, order)| order.parse::<u8>().ok());
    let moving: Vec<(usize, u8)> =
        series.columns.iter().enumerate().filter_map(|(at, name)| Some((at, order(name)?))).collect();
    let still: Vec<(u64, u8)> = series.still.iter().filter_map(|(name, value)| Some((*value, order(name)?))).collect();
    if moving.is_empty() && still.is_empty() {
        return None;
    }
    let of_sample = |values: &[u64]| {
        let blocks = moving.iter().map(|(at, order)| (values[*at], *order)).chain(still.iter().copied());
        let (mut all, mut small) = (0_u64, 0_u64);
        for (blocks, order) in blocks {
            let frames = blocks << order;
            all += frames;
            small += if order < pageblock_order { frames } else { 0 };
        }
        (small * 1000).checked_div(all).unwrap_or(1000)
    };
    Some(series.samples().iter().map(|sample| of_sample(&sample.values)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::tests::random_map;
    use crate::series::Sample;

    #[test]
    fn zones_are_counted_cell_by_cell_or_as_the_series_says() {
        let (map, _) = random_map(1, 3, &mut 17);
        let counted = census(&map, 2, None);
        assert_eq!(
            counted.iter().map(|zone| zone.zone.as_str()).collect::<Vec<_>>(),
            ["node 0 DMA", "node 0 DMA32", "node 1 Normal"]
        );
        assert_eq!(counted.iter().map(ZoneCensus::blocks).collect::<Vec<_>>(), [8, 101, 40]);
        let cells = map.cells(2);
        let of = |kind: u8| cells.iter().filter(|cell| cell.kind == kind).count() as u64;
        for kind in 0..7 {
            assert_eq!(counted.iter().map(|zone| zone.of_type[usize::from(kind)]).sum::<u64>(), of(kind));
        }
        assert_eq!(
            counted.iter().map(|zone| zone.huge).sum::<u64>(),
            cells.iter().filter(|cell| cell.huge).count() as u64
        );
        let names = ["node0/DMA/blocks/Movable".to_owned()];
        let rows: Vec<Sample> = (0..3).map(|n| Sample { at_us: n, values: vec![n * 100] }).collect();
        let exact = census(&map, 2, Some(&Series::new(1, &names, &rows)));
        assert_eq!((exact[0].of_type[1], exact[0].of_type[0]), (200, counted[0].of_type[0]));
    }

    #[test]
    fn blocks_below_a_pageblock_are_unusable() {
        let names = ["node0/DMA32/free/0", "node0/DMA32/free/9", "node0/DMA32/free/10", "pgfault"].map(str::to_owned);
        let of = |at_us, values: [u64; 4]| Sample { at_us, values: values.to_vec() };
        let series = Series::new(
            1,
            &names,
            &[of(0, [0, 1, 1, 5]), of(1, [512, 1, 0, 9]), of(2, [9, 0, 0, 9]), of(3, [0, 0, 0, 9])],
        );
        assert_eq!(unusable(&series, 9), Some(vec![0, 500, 1000, 1000]));
        assert_eq!(unusable(&Series::new(1, &["pgfault".to_owned()], &[of(0, [1, 0, 0, 0])]), 9), None);
    }
}
