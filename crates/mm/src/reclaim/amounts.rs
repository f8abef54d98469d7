//! Linux: prepare_scan_count(), get_scan_count() and the trimming in shrink_lruvec() in mm/vmscan.c (v4.1, v5.9 to v6.1).
//! Differs: no memcg.

use memory::{cx::Cx, lru_kind::LruKind, step::RUN};
use rules::{gfp::Mark, variant::LruBy};
use units::NodeId;

use crate::{
    Mm,
    folio::lru::Recent,
    reclaim::{DEF_PRIORITY, Reclaimer, ScanControl},
};

const KINDS: usize = LruKind::ALL.len();

/// Frames of each list that a pass scans.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Amounts {
    /// Frames still to be scanned, by list.
    pub(super) left: [u64; KINDS],
    /// Frames to be scanned at first, by list.
    targets: [u64; KINDS],
    /// Frames on the lists of the kinds that are scanned (`lru_pages`).
    pub(super) eligible: u64,
    /// Whether the active lists may be aged: anonymous, files.
    pub(super) may_deactivate: [bool; 2],
    /// A direct reclaimer's first pass takes from all lists what was found right.
    is_proportional: bool,
    /// Enough was reclaimed.
    pub(super) is_over: bool,
}

/// How the scan is divided between anonymous memory and files (`enum scan_balance`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Balance {
    /// Both kinds by their sizes.
    Equal,
    /// By these parts of the number behind them, anonymous memory first.
    Fraction([u64; 2], u64),
    Anon,
    File,
}

impl Amounts {
    /// Computes the frames to scan, under the LRU lock.
    pub(super) fn count(mm: &mut Mm, cx: &mut Cx, lruvec: usize, sc: &ScanControl) -> Self {
        mm.lru.look(cx, lruvec);
        let may_deactivate = [false, true].map(|is_file| sc.force_deactivate || mm.may_deactivate(lruvec, is_file));
        let balance = mm.scan_balance(lruvec, sc, may_deactivate);
        let sizes = LruKind::ALL.map(|kind| mm.lru_size(lruvec, kind, sc.highest));
        let mut left = balance.parts(sizes, |size| size >> sc.priority);
        if left == [0; KINDS] && mm.forces_scan(lruvec, sc) {
            left =
                balance.parts(sizes, |size| if size >> sc.priority > 0 { size >> sc.priority } else { size.min(RUN) });
        }
        let goes = |kind: &LruKind| match balance {
            Balance::Equal | Balance::Fraction(..) => true,
            Balance::Anon => !kind.is_file(),
            Balance::File => kind.is_file(),
        };
        let eligible = LruKind::ALL.iter().zip(sizes).filter(|(kind, _)| goes(kind)).map(|(_, size)| size).sum();
        let is_proportional = sc.by == Reclaimer::Direct && sc.priority == DEF_PRIORITY;
        Self { left, targets: left, eligible, may_deactivate, is_proportional, is_over: false }
    }

    /// These frames to scan, for kswapd.
    #[cfg(test)]
    pub(super) fn for_test(left: [u64; KINDS]) -> Self {
        Self { left, targets: left, ..Self::default() }
    }

    /// Whether nothing is left to scan, except active anonymous memory, which is only scanned along with others.
    pub(super) fn is_done(&self) -> bool {
        [LruKind::InactiveAnon, LruKind::ActiveFile, LruKind::InactiveFile]
            .iter()
            .all(|kind| self.left[*kind as usize] == 0)
    }

    /// Takes up to `most` frames off what is left of a list.
    pub(super) fn take(&mut self, at: usize, most: u64) -> u64 {
        let run = self.left[at].min(most);
        self.left[at] -= run;
        run
    }

    /// Trims the scan after each list had its turn: once enough is reclaimed, the kind with less left is stopped, and the
    /// other is scanned in the same proportion.
    pub(super) fn trim(&mut self, reclaimed: u64, sc: &ScanControl, trims_again: bool) {
        if reclaimed < sc.to_reclaim || self.is_proportional {
            return;
        }
        let of = |values: &[u64; KINDS], is_file| {
            values[LruKind::of(is_file, false) as usize] + values[LruKind::of(is_file, true) as usize]
        };
        let (anon, file) = (of(&self.left, false), of(&self.left, true));
        if anon == 0 || file == 0 {
            self.is_over = true;
            return;
        }
        let stops_file = file <= anon;
        let percent_left = anon.min(file) * 100 / (of(&self.targets, stops_file) + 1);
        for is_active in [false, true] {
            self.left[LruKind::of(stops_file, is_active) as usize] = 0;
            let other = LruKind::of(!stops_file, is_active) as usize;
            let scanned = self.targets[other] - self.left[other];
            let target = self.targets[other] * (100 - percent_left) / 100;
            self.left[other] = target.saturating_sub(scanned);
        }
        // Up to 6.0 what is left after the first trim is all scanned.
        self.is_proportional = !trims_again;
    }
}

impl Balance {
    /// Frames to scan of lists of these sizes; `alone` gives them for a list that is scanned by itself.
    fn parts(self, sizes: [u64; KINDS], alone: impl Fn(u64) -> u64) -> [u64; KINDS] {
        LruKind::ALL.map(|kind| {
            let scan = alone(sizes[kind as usize]);
            match self {
                Self::Equal => scan,
                Self::Fraction(parts, whole) => scan * parts[usize::from(kind.is_file())] / whole,
                Self::Anon if !kind.is_file() => scan,
                Self::File if kind.is_file() => scan,
                Self::Anon | Self::File => 0,
            }
        })
    }
}

impl Mm {
    /// Whether an active list may be aged: pages are refaulted too soon, or the inactive list is too short.
    fn may_deactivate(&self, lruvec: usize, is_file: bool) -> bool {
        let counts = self.memory.variant().reclaim_ages_by_pass;
        (counts && self.comes_back(lruvec, is_file)) || self.inactive_is_low(lruvec, is_file)
    }

    /// Whether pages of a kind were refaulted and activated since reclaim last ended, if that counts.
    pub(super) fn comes_back(&self, lruvec: usize, is_file: bool) -> bool {
        let lists = &self.lru.lruvecs()[lruvec];
        let at = usize::from(is_file);
        self.memory.variant().reclaim_notes_refaults && lists.activations[at] != lists.refaults[at]
    }

    /// Whether kswapd scans a little in any case, in a zone that it has scanned over and over.
    fn forces_scan(&self, lruvec: usize, sc: &ScanControl) -> bool {
        let is_given_up =
            self.memory.variant().lru_by == LruBy::Zone && !self.zones_of(lruvec).any(|at| self.is_reclaimable(at));
        sc.by == Reclaimer::Kswapd && is_given_up
    }

    /// Decides on the balance (the branches of `get_scan_count`).
    fn scan_balance(&mut self, lruvec: usize, sc: &ScanControl, may_deactivate: [bool; 2]) -> Balance {
        let frames = |kind| self.lru.frames(lruvec, kind);
        if !sc.may_swap || self.swap.free() == 0 {
            return Balance::File;
        }
        if sc.priority == 0 && self.swappiness > 0 {
            return Balance::Equal;
        }
        let files = frames(LruKind::InactiveFile) + frames(LruKind::ActiveFile);
        let zones = self.zones_of(lruvec).map(|at| self.memory.zone(at));
        let (free, high) =
            zones.fold((0, 0), |(free, high), zone| (free + zone.free_frames(), high + zone.mark(Mark::High)));
        let is_tiny = files + free <= high;
        let has_anon = !may_deactivate[0] && frames(LruKind::InactiveAnon) >> sc.priority > 0;
        if is_tiny && (has_anon || self.memory.variant().lru_by == LruBy::Zone) {
            return Balance::Anon;
        }
        // Up to 4.6 it does not matter that a pass would look at none of them.
        let has_files = frames(LruKind::InactiveFile) >> sc.priority > 0 || !self.memory.variant().inactive_by_lists;
        if has_files && !may_deactivate[1] {
            return Balance::File;
        }
        if !self.memory.variant().reclaim_by_costs {
            return self.balance_by_use(lruvec);
        }
        let cost = self.lru.lruvecs()[lruvec].cost;
        let total = cost[0] + cost[1];
        // A third of the total cost is added to each kind's own: so none is ever spared for good.
        let [anon, file] = cost.map(|cost| total + cost);
        let swappiness = u64::from(self.swappiness);
        let part = |weight, cost| weight * (anon + file + 1) / (cost + 1);
        let parts = [part(swappiness, anon), part(200 - swappiness, file)];
        Balance::Fraction(parts, parts[0] + parts[1])
    }

    /// Balances kinds by use: the fewer of its pages were in use lately, the more of a kind is scanned (`get_scan_count`,
    /// v4.1).
    pub(super) fn balance_by_use(&mut self, lruvec: usize) -> Balance {
        let swappiness = u64::from(self.swappiness);
        let sizes = [false, true].map(|is_file| {
            [false, true]
                .into_iter()
                .map(|is_active| self.lru.frames(lruvec, LruKind::of(is_file, is_active)))
                .sum::<u64>()
        });
        let recent = &mut self.lru.lruvec_mut(lruvec).recent;
        for (recent, size) in recent.iter_mut().zip(sizes) {
            if recent.scanned > size / 4 {
                (recent.scanned, recent.rotated) = (recent.scanned / 2, recent.rotated / 2);
            }
        }
        let part = |weight, recent: Recent| weight * (recent.scanned + 1) / (recent.rotated + 1);
        let parts = [part(swappiness, recent[0]), part(200 - swappiness, recent[1])];
        Balance::Fraction(parts, parts[0] + parts[1] + 1)
    }

    /// Records the number of refaulted pages at the end of a reclaim run on a node (`snapshot_refaults`).
    pub(crate) fn snapshot_refaults(&mut self, node: NodeId) {
        for at in self.lruvecs_of(node, rules::zone::ZoneKind::Movable) {
            let lists = self.lru.lruvec_mut(at);
            lists.refaults = lists.activations;
        }
    }
}
