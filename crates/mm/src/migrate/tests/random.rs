//! Linux: none; whatever processes do while pages move, each page holds what was stored to it last: a seeded stream of operations
//! against an account of what was stored.

use memory::{
    frame::{Holdings, SpaceId},
    step::Step,
};
use units::NodeId;

use super::world::{HUGE, ME, World};
use crate::{
    compact::tests::random::Draws,
    migrate::{misplaced::Misplaced, to_node::ToNode},
    space::vma::PageRange,
};

/// A move under way.
enum Moving {
    None,
    Misplaced(Misplaced),
    ToNode(ToNode),
}

impl Moving {
    fn holdings(&self) -> Holdings {
        match self {
            Self::None => Holdings::default(),
            Self::Misplaced(moving) => moving.holdings(),
            Self::ToNode(moving) => moving.holdings(),
        }
    }

    /// A step, and everything is walked after it.
    fn step(&mut self, world: &mut World) {
        let is_over = match self {
            Self::None => return,
            Self::Misplaced(moving) => !matches!(world.step(moving), Step::More),
            Self::ToNode(moving) => {
                let step = world.on(ME, 0, |mm, spaces, cx| moving.step(mm, spaces, cx));
                !matches!(step, Step::More)
            }
        };
        if is_over {
            *self = Self::None;
        }
        world.check(self.holdings());
    }
}

/// A process and the range that it has.
type Process = (SpaceId, PageRange);

fn draw_range(draws: &mut Draws, range: PageRange) -> PageRange {
    let start = draws.below(range.pages());
    let pages = if draws.below(2) == 0 { 1 + draws.below(40) } else { HUGE };
    PageRange::new(range.start.plus(start), pages.min(range.pages() - start))
}

fn operate(world: &mut World, draws: &mut Draws, processes: &mut Vec<Process>, moving: &mut Moving) {
    let (id, range) = processes[usize::try_from(draws.below(processes.len() as u64)).unwrap()];
    let part = draw_range(draws, range);
    let node = u32::try_from(draws.below(2)).unwrap();
    match draws.below(9) {
        0 | 1 => world.write_while(id, part, node, |world| moving.step(world)),
        2 => world.hint(id, range),
        3 if processes.len() < 4 => {
            if let Some(child) = world.fork_while(id, |world| moving.step(world)) {
                processes.push((child, range));
            }
        }
        4 => {
            let part = PageRange::new(part.start, part.pages().min(60));
            world.unmap(id, part);
        }
        5 if processes.len() > 1 => {
            world.end(id);
            processes.retain(|(other, _)| *other != id);
        }
        6 | 7 if matches!(moving, Moving::None) => {
            world.hint(id, range);
            *moving = Moving::Misplaced(Misplaced::new(id, part.start, NodeId(node)));
        }
        8 if matches!(moving, Moving::None) => *moving = Moving::ToNode(ToNode::new(id, part, NodeId(node))),
        _ => moving.step(world),
    }
    world.check(moving.holdings());
}

#[test]
fn no_content_is_lost_and_nothing_is_owned_twice() {
    for (rules, seed) in
        [("v3.9", 3), ("v4.12", 5), ("v4.20", 7), ("v5.10", 11), ("v5.14", 13), ("v6.1", 17), ("v6.8", 19)]
    {
        let (mut world, mut draws) = (World::new(rules), Draws(seed));
        let id = world.process();
        let range = world.room(id, 2);
        world.write(id, range, 0);
        let (mut processes, mut moving) = (vec![(id, range)], Moving::None);
        for _ in 0..300 {
            operate(&mut world, &mut draws, &mut processes, &mut moving);
        }
        // Bound: ten passes over a few pages.
        while !matches!(moving, Moving::None) {
            moving.step(&mut world);
        }
        for (id, _) in processes {
            world.end(id);
        }
        world.drain();
        world.check(Holdings::default());
        let all = |world: &World| world.free(0) + world.free(1);
        assert!(all(&World::new(rules)) - all(&world) < 64, "{rules}: frames are lost");
    }
}
