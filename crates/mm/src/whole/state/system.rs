//! Linux: none; the memory of a system that has been up for a while, before a benchmark begins.
//! Differs: described by a few numbers. The only files are the files of programs that it starts; nothing else could be
//! reclaimed.

use memory::lru_kind::LruKind;
use rules::{machine::MachineSpec, zone::ZoneKind};
use units::{Frames, Pfn};

use super::{Draw, Drawn, FrameMap, Seen};

/// Most frames of a process that lie side by side: the refill of a per-CPU list (`zone_batchsize`, mm/page_alloc.c, 4.1, in
/// zones of 512 MiB and more).
const RUN: usize = 31;

/// Memory in use before anything begins. A free pageblock that holds any of it gives no huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct System {
    /// Anonymous memory of daemons, movable: runs of frames.
    pub anonymous: Frames,
    /// Memory of the kernel, unmovable, in whole pageblocks.
    pub kernel: Frames,
    /// Percentage of the pageblocks that the anonymous memory is spread over.
    pub percent: u32,
    /// Files of programs that are started again and again, each of size [`Self::PROGRAM`]: not in memory after caches were
    /// dropped.
    pub programs: Frames,
    /// Percentage by which each of these numbers varies at random: no machine is twice in the same state.
    pub varies: u32,
}

impl System {
    /// Size of one program or library in [`Self::programs`].
    pub const PROGRAM: Frames = Frames(64);

    /// The system with its numbers drawn for this run.
    #[must_use]
    pub fn drawn(&self, draw: &mut dyn Draw) -> Self {
        if self.varies == 0 {
            return *self;
        }
        let mut vary = |what: u64| {
            let hundredths = 100 - u64::from(self.varies) + draw.below(2 * u64::from(self.varies) + 1, Drawn::System);
            what * hundredths / 100
        };
        Self {
            anonymous: Frames(vary(self.anonymous.0)),
            kernel: Frames(vary(self.kernel.0)),
            percent: u32::try_from(vary(self.percent.into())).expect("at most twice as much"),
            programs: Frames(vary(self.programs.0)),
            varies: 0,
        }
    }
}

impl FrameMap {
    /// The memory of a machine that holds nothing but this system, at random places; none of it in the DMA zone.
    ///
    /// # Panics
    /// When it does not fit.
    pub fn of_system(machine: &MachineSpec, system: &System, draw: &mut dyn Draw) -> Self {
        let mut frames = vec![Seen::Hole; machine.end().0 as usize];
        let size = machine.pageblock_order.frames();
        let mut blocks: Vec<Pfn> = Vec::new();
        for zone in machine.nodes.iter().flat_map(|node| &node.zones).filter(|zone| zone.managed > Frames(0)) {
            let (first, end) = zone.managed_range();
            frames[zone.start.0 as usize..first.0 as usize].fill(Seen::Reserved);
            frames[first.0 as usize..end.0 as usize].fill(Seen::Free);
            if zone.kind > ZoneKind::Dma {
                let whole = (first.0.next_multiple_of(size)..end.0).step_by(size as usize);
                blocks.extend(whole.map(Pfn).filter(|block| block.0 + size <= end.0));
            }
        }
        let all = blocks.len();
        let mut take = |count: usize| {
            assert!(count <= blocks.len(), "{system:?} does not fit into {all} pageblocks");
            let of = |_| blocks.swap_remove(index(draw, blocks.len()));
            (0..count).map(of).collect::<Vec<Pfn>>()
        };
        let whole = |frames: Frames| usize::try_from(frames.0.div_ceil(size.into())).expect("fewer than 2^32");
        for block in take(whole(system.kernel)) {
            frames[block.0 as usize..(block.0 + size) as usize].fill(Seen::Kernel);
        }
        let spread = take((all * system.percent as usize).div_ceil(100).max(whole(system.anonymous)));
        let mut left = system.anonymous.0;
        while left > 0 {
            let block = spread[index(draw, spread.len())].0 as usize;
            let (start, end) = (block + index(draw, size as usize), block + size as usize);
            let run = 1 + index(draw, RUN);
            for frame in &mut frames[start..end.min(start + run)] {
                if *frame == Seen::Free && left > 0 {
                    *frame = Seen::Anon(Some(LruKind::ActiveAnon));
                    left -= 1;
                }
            }
        }
        Self { frames, zones: Vec::new() }
    }
}

fn index(draw: &mut dyn Draw, len: usize) -> usize {
    usize::try_from(draw.below(len as u64, Drawn::System)).expect("below a length")
}
