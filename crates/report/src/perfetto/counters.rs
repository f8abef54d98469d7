//! Columns of a time series as counters.

use std::collections::BTreeMap;

use super::{
    protos::{CounterDescriptor, EventType, TrackDescriptor, TrackEvent},
    writer::{Kernels, Writer, kernel_of_column},
};
use crate::{record::RESIDENT, series::Series};

impl Writer {
    /// Adds a counter track for each column that moved, in the process of its kernel.
    pub(super) fn series(&mut self, series: &Series, kernels: &Kernels) {
        let samples = series.samples();
        let mut groups: BTreeMap<(usize, &str), u64> = BTreeMap::new();
        for (column, path) in series.columns.iter().enumerate() {
            let (kernel, name) = kernel_of_column(path);
            let process = kernels.tracks[kernel];
            let group = name.rsplit_once('/').map(|(group, _)| group);
            let parent = group.map_or(process, |group| {
                *groups.entry((kernel, group)).or_insert_with(|| {
                    let name = Some(group.to_owned());
                    self.track(TrackDescriptor { parent_uuid: Some(process), name, ..TrackDescriptor::default() })
                })
            });
            let track = self.track(TrackDescriptor {
                parent_uuid: Some(parent),
                name: Some(name.to_owned()),
                counter: Some(CounterDescriptor { unit_name: Some(unit(name).to_owned()) }),
                ..TrackDescriptor::default()
            });
            let mut before = None;
            for (at, sample) in samples.iter().enumerate() {
                let value = sample.values[column];
                // A value holds until the column's following sample; the last sample is written too, since it says how long the
                // value held.
                if before.replace(value) != Some(value) || at + 1 == samples.len() {
                    let value = TrackEvent {
                        counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
                        ..TrackEvent::default()
                    };
                    self.event(sample.at_us * 1000, track, EventType::Counter, value);
                }
            }
        }
    }
}

/// The unit of a column.
fn unit(name: &str) -> &'static str {
    let (group, last) = name.rsplit_once('/').unwrap_or(("", name));
    match group.rsplit('/').next() {
        Some("free") => "free blocks",
        Some("blocks") => "pageblocks",
        _ if last.contains("hugepages") => "huge pages",
        _ if last == RESIDENT || last.starts_with("nr_") => "pages",
        _ => "events",
    }
}

#[cfg(test)]
mod tests {
    use super::unit;

    #[test]
    fn a_column_has_a_unit() {
        let names = ["node0/DMA32/free/9", "node0/DMA/blocks/Movable", "node0/nr_anon_transparent_hugepages"];
        assert_eq!(names.map(unit), ["free blocks", "pageblocks", "huge pages"]);
        assert_eq!(["node0/nr_free_pages", "pgfault"].map(unit), ["pages", "events"]);
    }
}
