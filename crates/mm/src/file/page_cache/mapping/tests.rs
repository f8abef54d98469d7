//! The tree of a mapping: held to a naive twin, an ordered map.

use std::collections::BTreeMap;

use super::*;

/// A mapping beside a map that says the same.
#[derive(Default)]
struct Twin {
    nodes: Nodes,
    mapping: Mapping,
    model: BTreeMap<u64, (Slot, bool)>,
    given: usize,
}

impl Twin {
    fn set(&mut self, index: u64, slot: Slot) {
        if slot != Slot::Empty {
            while self.mapping.room(&self.nodes, index) == Room::NeedsNode {
                self.mapping.add_node(&mut self.nodes, index, Object::of(Pfn(0)));
                self.given += 1;
            }
        } else if self.mapping.room(&self.nodes, index) == Room::NeedsNode {
            return;
        }
        let was = self.mapping.set(&mut self.nodes, index, slot);
        let known = self.model.remove(&index).map_or(Slot::Empty, |(slot, _)| slot);
        assert_eq!(was, known);
        if slot != Slot::Empty {
            self.model.insert(index, (slot, false));
        }
    }

    fn dirty(&mut self, index: u64, on: bool) {
        if let Some((Slot::Folio(_), dirty)) = self.model.get_mut(&index) {
            *dirty = on;
            self.mapping.mark(&mut self.nodes, index, PageFlag::Dirty, on);
        }
    }

    fn agree(&self, probe: u64) {
        let model = |probe| self.model.get(&probe).map_or(Slot::Empty, |(slot, _)| *slot);
        assert_eq!(self.mapping.get(&self.nodes, probe), model(probe));
        let pfn = |slot: &Slot| if let Slot::Folio(pfn) = slot { Some(*pfn) } else { None };
        let next = self.model.range(probe..).find_map(|(index, (slot, _))| Some((*index, pfn(slot)?)));
        assert_eq!(self.mapping.next_folio(&self.nodes, probe), next);
        let dirty = self.model.range(probe..).find_map(
            |(index, (slot, dirty))| {
                if *dirty { Some((*index, pfn(slot)?)) } else { None }
            },
        );
        assert_eq!(self.mapping.next_dirty(&self.nodes, probe), dirty);
        assert_eq!(
            self.mapping.next_any(&self.nodes, probe),
            self.model.range(probe..).next().map(|(index, _)| *index)
        );
        let folios = self.model.values().filter(|(slot, _)| matches!(slot, Slot::Folio(_))).count();
        assert_eq!(self.mapping.folios, folios as u64);
        assert_eq!(self.given - self.nodes.freed.len(), self.nodes.len());
    }
}

#[test]
fn a_tree_says_what_a_map_says() {
    for seed in 1..40_u64 {
        let mut twin = Twin::default();
        let mut state = seed;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let most = [3, 64, 65, 4096, 5000, 1 << 20][(seed % 6) as usize];
        for _ in 0..1500 {
            let index = if draw(3) == 0 { draw(most) } else { draw(most.min(200)) };
            match draw(5) {
                0 | 1 => twin.set(index, Slot::Folio(Pfn(u32::try_from(draw(1000)).unwrap()))),
                2 => twin.set(index, Slot::Shadow(7)),
                3 => twin.set(index, Slot::Empty),
                _ => twin.dirty(index, draw(2) == 0),
            }
            twin.agree(draw(most));
        }
        let all: Vec<u64> = twin.model.keys().copied().collect();
        for index in all {
            twin.set(index, Slot::Empty);
        }
        assert!(twin.mapping.is_empty() && twin.nodes.len() == 0);
    }
}

#[test]
fn one_page_needs_no_node_and_64_need_one() {
    let mut twin = Twin::default();
    twin.set(0, Slot::Folio(Pfn(1)));
    assert_eq!(twin.nodes.len(), 0);
    for index in 1..64 {
        twin.set(index, Slot::Folio(Pfn(1)));
    }
    assert_eq!(twin.nodes.len(), 1);
    twin.set(64, Slot::Folio(Pfn(1)));
    assert_eq!(twin.nodes.len(), 3, "a second one, and one above both");
}
