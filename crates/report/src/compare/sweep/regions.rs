//! Flat regions of a sweep's row: rectangles of neighbouring cells between which no difference is found.

use serde::Serialize;

use super::{Axis, Compared, Comparison, Gates, OverGrid, Place, Unmatched, Verdict};

/// A rectangle of a sweep's grid over its first two axes, both corners included.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Region {
    /// The first place.
    pub from: Place,
    /// The last place.
    pub to: Place,
    /// Number of cells in the region.
    pub cells: usize,
    /// The lowest value in the region.
    pub low: f64,
    /// The highest value in the region.
    pub high: f64,
    /// Are all differences between neighbouring cells, and the one between the region's lowest and highest cell, too small to
    /// matter? If false, no difference was found, but the runs spread too much to rule one out.
    pub is_sure: bool,
}

impl Region {
    /// Is a grid place inside the region?
    pub fn holds(&self, place: &Place) -> bool {
        place.iter().zip(self.from.iter().zip(&self.to)).all(|(at, (from, to))| (from..=to).contains(&at))
    }
}

/// The regions of a row with at least two cells, the largest first, each as large as the earlier ones leave room for.
pub(super) fn of<'e>(
    row: &OverGrid<'_>,
    axes: &[Axis],
    edge: impl Fn(&Place, &Place) -> Option<&'e Compared>,
    gates: Gates,
) -> Vec<Region> {
    let depth = axes.len().min(2);
    let mut panels: Vec<Place> = row.values.keys().map(|place| place[depth..].to_vec()).collect();
    panels.sort();
    panels.dedup();
    panels.iter().flat_map(|rest| of_panel(row, axes, rest, &edge, gates)).collect()
}

/// Rows and columns of a rectangle.
#[derive(Clone, Copy)]
struct Rectangle {
    top: usize,
    bottom: usize,
    left: usize,
    right: usize,
}

impl Rectangle {
    fn size(self) -> usize {
        (self.bottom - self.top + 1) * (self.right - self.left + 1)
    }

    fn cells(self) -> impl Iterator<Item = (usize, usize)> {
        (self.top..=self.bottom).flat_map(move |row| (self.left..=self.right).map(move |column| (row, column)))
    }
}

fn of_panel<'e>(
    row: &OverGrid<'_>,
    axes: &[Axis],
    rest: &[usize],
    edge: &impl Fn(&Place, &Place) -> Option<&'e Compared>,
    gates: Gates,
) -> Vec<Region> {
    let (height, width) = (axes[0].values.len(), axes.get(1).map_or(1, |axis| axis.values.len()));
    let place = |(down, across): (usize, usize)| -> Place {
        if axes.len() == 1 { vec![down] } else { [&[down, across], rest].concat() }
    };
    let is_there = |cell: (usize, usize)| row.values.contains_key(&place(cell));
    // Two places of one column are equal without a test.
    let verdict = |old, new| edge(&place(old), &place(new)).map_or(Verdict::Same, |compared| compared.verdict);
    let below: Vec<Vec<Verdict>> = (0..height.saturating_sub(1))
        .map(|down| (0..width).map(|across| verdict((down, across), (down + 1, across))).collect())
        .collect();
    let beside: Vec<Vec<Verdict>> = (0..height)
        .map(|down| (0..width.saturating_sub(1)).map(|across| verdict((down, across), (down, across + 1))).collect())
        .collect();
    let inner = |rectangle: Rectangle| {
        let Rectangle { top, bottom, left, right } = rectangle;
        let down = (top..bottom).flat_map(|at| &below[at][left..=right]);
        down.chain((top..=bottom).flat_map(|at| &beside[at][left..right])).copied().collect::<Vec<_>>()
    };
    let mut candidates: Vec<Rectangle> = Vec::new();
    for (top, left) in (0..height).flat_map(|top| (0..width).map(move |left| (top, left))) {
        // A rectangle with a difference inside makes every larger rectangle around it fail too.
        let mut limit = width;
        for bottom in top..height {
            for right in left..limit {
                let rectangle = Rectangle { top, bottom, left, right };
                let is_flat = |verdict: &Verdict| !verdict.is_starred() && *verdict != Verdict::DiffersInAll;
                let edge_is_there = (top..=bottom).all(|down| is_there((down, right)));
                if !edge_is_there || !inner(rectangle).iter().all(is_flat) {
                    limit = right;
                    break;
                }
                candidates.push(rectangle);
            }
        }
    }
    candidates.sort_by_key(|rectangle| (std::cmp::Reverse(rectangle.size()), rectangle.top, rectangle.left));
    let mut taken = vec![vec![false; width]; height];
    let mut regions = Vec::new();
    for rectangle in candidates.into_iter().filter(|rectangle| rectangle.size() > 1) {
        if rectangle.cells().any(|(down, across)| taken[down][across]) {
            continue;
        }
        let value = |cell: &(usize, usize)| row.values[&place(*cell)].value.value;
        let cells: Vec<(usize, usize)> = rectangle.cells().collect();
        let lowest = *cells.iter().min_by(|a, b| value(a).total_cmp(&value(b))).expect("it has cells");
        let highest = *cells.iter().max_by(|a, b| value(a).total_cmp(&value(b))).expect("it has cells");
        let ends = ends(row, (&place(lowest), &place(highest)), cells.len(), gates);
        if ends.is_starred() || ends == Verdict::OneRun {
            continue;
        }
        for (down, across) in rectangle.cells() {
            taken[down][across] = true;
        }
        let is_sure = |verdict: &Verdict| matches!(verdict, Verdict::Same | Verdict::NoChange);
        regions.push(Region {
            from: place((rectangle.top, rectangle.left)),
            to: place((rectangle.bottom, rectangle.right)),
            cells: cells.len(),
            low: value(&lowest),
            high: value(&highest),
            is_sure: is_sure(&ends) && inner(rectangle).iter().all(is_sure),
        });
    }
    regions
}

/// The verdict on the lowest against the highest of `cells` cells, corrected because the two were chosen among all pairs of
/// cells.
fn ends(row: &OverGrid<'_>, (low, high): (&Place, &Place), cells: usize, gates: Gates) -> Verdict {
    let Some(pair) = row.pair(low, high) else { return Verdict::Same };
    let mut comparison = Comparison { gates, rows: vec![row.of.compared(pair)], unmatched: Unmatched::default() };
    comparison.judge(cells * (cells - 1) / 2 - 1);
    comparison.rows[0].verdict
}
