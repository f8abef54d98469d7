//! A comparison as plain text.

use memory::pcp::PcpHigh;
use rules::zone::ZoneKind;
use units::{Frames, NodeId};

use super::{ComputedZones, Figures, LiveState, MinFree, Phase, ZoneComparison, ZoneRow};

/// Titles, and whether the column is of numbers.
const COLUMNS: [(&str, bool); 9] = [
    ("node zone", false),
    ("", false),
    ("managed", true),
    ("min", true),
    ("low", true),
    ("high", true),
    ("batch", true),
    ("pcp high", true),
    ("protection", false),
];

const GAP: &str = "  ";

type Cells = [String; COLUMNS.len()];

impl ZoneComparison {
    /// Lines of plain text: two per populated zone, one per node for its empty zones that are equal, then the verdicts.
    pub fn table(&self) -> Vec<String> {
        let phase = match self.phase {
            Phase::Booted => "as booted",
            Phase::Recomputed => "recomputed from today's pages",
            Phase::Live => "live",
        };
        let mut lines =
            vec![format!("Linux {}, {phase}; ours: rules of {}; frames of 4 KiB", self.release, self.variant)];
        let shown: Vec<&ZoneRow> = self.zones.iter().filter(|zone| !is_dull(zone)).collect();
        let mut rows = vec![COLUMNS.map(|(title, _)| title.to_owned())];
        rows.extend(shown.iter().flat_map(|zone| [cells(zone, "kernel"), cells(zone, "ours")]));
        lines.extend(aligned(&rows));
        lines.extend(self.empty_zones());
        lines.extend(self.zones.iter().filter_map(live_high));
        lines.extend(self.verdict());
        lines.push(min_free(&self.min_free_kbytes));
        lines
    }

    /// A line for each node that has empty zones; all of the zones in it are equal to the kernel's.
    fn empty_zones(&self) -> Vec<String> {
        let mut nodes: Vec<(NodeId, Vec<ZoneKind>)> = Vec::new();
        for zone in self.zones.iter().filter(|zone| is_dull(zone)) {
            match nodes.last_mut() {
                Some((node, kinds)) if *node == zone.node => kinds.push(zone.kind),
                _ => nodes.push((zone.node, vec![zone.kind])),
            }
        }
        let line = |(node, kinds): (NodeId, Vec<ZoneKind>)| {
            let kinds: Vec<_> = kinds.into_iter().map(ZoneKind::name).collect();
            format!("{node} {}: empty, equal", kinds.join(", "))
        };
        nodes.into_iter().map(line).collect()
    }

    fn verdict(&self) -> Vec<String> {
        if self.equal() {
            return vec!["zones: equal".to_owned()];
        }
        let differing = self.zones.iter().filter(|zone| !zone.mismatches.is_empty());
        let line = |zone: &ZoneRow| {
            let figures: Vec<_> = zone.mismatches.iter().map(|mismatch| mismatch.figure.as_str()).collect();
            let reason = &zone.mismatches[0].reason;
            format!("zones: differs: {} in {} ({reason})", name(zone), figures.join(", "))
        };
        differing.map(line).collect()
    }
}

impl ComputedZones {
    /// Lines of plain text: one for each zone that has memory.
    pub fn table(&self) -> Vec<String> {
        let mut lines = vec![format!("rules of {}; frames of 4 KiB", self.variant)];
        let mut rows = vec![COLUMNS.map(|(title, _)| title.to_owned())];
        let zones = self.zones.iter().filter(|zone| zone.managed > Frames(0));
        rows.extend(zones.map(|zone| row(format!("{} {}", zone.node, zone.kind), "", zone.managed, &zone.figures)));
        lines.extend(aligned(&rows));
        lines.push(format!("min_free_kbytes: {}", self.min_free_kbytes));
        lines
    }
}

/// Nothing to see: no memory, no difference.
fn is_dull(zone: &ZoneRow) -> bool {
    zone.present == Frames(0) && zone.mismatches.is_empty()
}

fn name(zone: &ZoneRow) -> String {
    format!("{} {}", zone.node, zone.kind)
}

fn cells(zone: &ZoneRow, who: &str) -> Cells {
    let (figures, title) = if who == "kernel" { (&zone.kernel, name(zone)) } else { (&zone.ours, String::new()) };
    row(title, who, zone.managed, figures)
}

fn row(title: String, who: &str, managed: Frames, figures: &Figures) -> Cells {
    let protection: Vec<_> = figures.protection.iter().map(Frames::to_string).collect();
    [
        title,
        who.to_owned(),
        managed.to_string(),
        figures.marks.min.to_string(),
        figures.marks.low.to_string(),
        figures.marks.high.to_string(),
        figures.pcp_batch.map_or_else(|| "-".to_owned(), |batch| batch.to_string()),
        pcp_high(figures),
        protection.join(" "),
    ]
}

fn pcp_high(figures: &Figures) -> String {
    match figures.pcp_high {
        None => "-".to_owned(),
        Some(PcpHigh::Fixed(high)) => high.to_string(),
        Some(PcpHigh::Tuned { min, max }) => format!("{min}-{max}"),
    }
}

fn aligned(rows: &[Cells]) -> impl Iterator<Item = String> {
    let widths: [usize; COLUMNS.len()] =
        std::array::from_fn(|column| rows.iter().map(|cells| cells[column].len()).max().unwrap_or(0));
    let line = move |cells: &Cells| {
        let padded = cells.iter().zip(COLUMNS).zip(widths).map(|((cell, (_, number)), width)| {
            if number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        padded.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    rows.iter().map(line)
}

/// What the kernel has tuned `high` to, in a zone where it does.
fn live_high(zone: &ZoneRow) -> Option<String> {
    let used = zone.live_high.iter().filter(|live| live.state != LiveState::Unused).map(|live| live.high);
    let count = |state| zone.live_high.iter().filter(|live| live.state == state).count();
    let (least, most) = (used.clone().min()?, used.max()?);
    let range = if least == most { least.to_string() } else { format!("{least}-{most}") };
    let states = [
        (LiveState::Within, "within"),
        (LiveState::Unused, "unused"),
        (LiveState::Stale, "stale"),
        (LiveState::Outside, "outside"),
    ];
    let counts = states.map(|(state, word)| (count(state), word)).into_iter().filter(|(cpus, _)| *cpus > 0);
    let counts: Vec<_> = counts.map(|(cpus, word)| format!("{cpus} {word}")).collect();
    Some(format!("{} pcp high now {range}; CPUs: {}", name(zone), counts.join(", ")))
}

fn min_free(sizes: &MinFree) -> String {
    let MinFree { kernel_kib, automatic_kib, difference_percent, within } = sizes;
    let tolerance = MinFree::TOLERANCE_PERCENT;
    let verdict = if *within {
        format!("equal within {tolerance} %")
    } else {
        "differs: set by a user, or chosen under other settings".to_owned()
    };
    format!("min_free_kbytes: kernel {kernel_kib}, ours {automatic_kib} ({difference_percent:+.2} %): {verdict}")
}
