//! Linux: super_cache_count() and super_cache_scan() in fs/super.c, prune_dcache_sb() in fs/dcache.c, prune_icache_sb() in
//! fs/inode.c (v4.18 to v6.1).
//! Differs: inodes are freed without having been marked as used before; pages that are freed with an inode are not counted
//! (`pginodesteal`, `kswapd_inodesteal`).

use memory::{cx::Cx, event::Event, step::RUN};
use rules::variant::InodeShrink;
use units::NodeId;

use super::{InodeId, inode::Unused};
use crate::{Mm, folio::lru::Run, reclaim::shrinker::asked_when_dropping};

/// Inodes that are still to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOfInodes {
    inodes: u64,
    /// Index of the first inode's page to go on with.
    from: u64,
}

impl LeftOfInodes {
    pub(super) fn all(inodes: u64) -> Self {
        Self { inodes, from: 0 }
    }
}

impl Mm {
    /// Number of unused dentries and inodes of a node, scaled by `vm.vfs_cache_pressure`.
    pub(crate) fn count_idle_inodes(&self, node: NodeId) -> u64 {
        self.vfs_pressure_ratio(self.cache.dentries[node].len() + self.cache.idle[node].len())
    }

    /// Scales a number of objects by `vm.vfs_cache_pressure`, in two parts (`vfs_pressure_ratio`).
    pub(super) fn vfs_pressure_ratio(&self, objects: u64) -> u64 {
        let pressure = self.cache.settings.vfs_cache_pressure;
        objects / 100 * pressure + objects % 100 * pressure / 100
    }

    /// Frees dentries by their share of `most` objects; returns the inodes that are to be looked at then.
    pub(crate) fn shrink_dentries(&mut self, cx: &mut Cx, node: NodeId, most: u64) -> LeftOfInodes {
        let (dentries, inodes) = (self.cache.dentries[node].len(), self.cache.idle[node].len());
        let total = dentries + inodes + 1;
        self.prune_dentries(cx, node, most * dentries / total);
        LeftOfInodes::all(most * inodes / total)
    }

    fn prune_dentries(&mut self, cx: &mut Cx, node: NodeId, most: u64) {
        // Bound: the objects asked for.
        for _ in 0..most {
            let Some(id) = self.cache.dentries[node].first() else { break };
            let inode = self.cache.inode_mut(id);
            let (_, place) = inode.dentry_place.take().expect("it is on the list").parts();
            let (is_open, was_used) = (inode.opens > 0 || !inode.maps().is_empty(), inode.is_dentry_used);
            inode.is_dentry_used = false;
            self.cache.dentries[node].remove(place);
            if is_open {
                // The dentry of an open file comes back when that is closed.
                continue;
            }
            if was_used {
                let place = self.cache.dentries[node].push(id);
                self.cache.inode_mut(id).dentry_place = Some(Unused::new(node, place));
                continue;
            }
            self.drop_dentry(cx, id);
            self.rest_inode(id);
        }
    }

    /// Looks at unused inodes, from a page of the first one on, and frees those that the kernel's rules allow
    /// (`inode_lru_isolate`). Returns the rest if others may run first; none at the end.
    pub(crate) fn prune_inodes(&mut self, cx: &mut Cx, node: NodeId, mut left: LeftOfInodes) -> Option<LeftOfInodes> {
        // Bound: the objects asked for.
        while left.inodes > 0 {
            let id = self.cache.idle[node].first()?;
            let pages = self.cache.inode(id).mapping.folios;
            let is_kept = self.memory.variant().inode_shrink == InodeShrink::KeepsMany && pages > 1;
            if !is_kept
                && pages > 0
                && let Some(from) = self.invalidate_some(cx, id, left.from)
            {
                return Some(LeftOfInodes { from, ..left });
            }
            if self.cache.inode(id).mapping.folios > 0 {
                // The inode gets another pass.
                self.cache.leave_idle(id);
                self.rest_inode(id);
            } else {
                self.evict_idle(cx, id);
            }
            left = LeftOfInodes::all(left.inodes - 1);
        }
        None
    }

    /// Takes a run of clean, unused pages out of a file, from an index on (`invalidate_mapping_pages`). Returns the index to go
    /// on at; none at the end.
    fn invalidate_some(&mut self, cx: &mut Cx, id: InodeId, from: u64) -> Option<u64> {
        let mut run = Run::EMPTY;
        let mut next = Some(from);
        // Bound: the pages of a run.
        for _ in 0..RUN {
            let Some(from) = next else { break };
            let found = self.cache.inode(id).mapping.next_folio(&self.cache.nodes, from);
            next = found.map(|(index, head)| {
                if self.may_invalidate(cx, (id, index), head) {
                    self.remove_page(cx, head, None);
                    run.push(head);
                }
                index + 1
            });
        }
        self.put_run(cx, &mut run);
        next
    }

    /// Drops an unused inode without pages from memory, with the shadows of its evicted pages.
    fn evict_idle(&mut self, cx: &mut Cx, id: InodeId) {
        self.cache.leave_idle(id);
        self.cut_shadows(cx, id, 0);
        self.free_inode_objects(cx, id);
    }

    /// Drops all dentries, inodes and buffers (`drop_slab`). Objects asked for are counted if shrinkers go by pages scanned.
    pub(super) fn drop_slab(&mut self, cx: &mut Cx) {
        for node in self.memory.nodes().ids().collect::<Vec<_>>() {
            // Bound: a dentry that was used goes at the second time.
            for _ in 0..2 {
                let dentries = self.cache.dentries[node].len();
                if self.memory.variant().slab_by_scanned {
                    cx.count(Event::SlabsScanned, asked_when_dropping(self.count_idle_inodes(node)));
                }
                self.prune_dentries(cx, node, dentries);
            }
            let mut left = Some(LeftOfInodes::all(self.cache.idle[node].len()));
            // Bound: a buffer that was used three times goes at the third pass.
            for _ in 0..3 {
                let buffers = self.count_buffers(node);
                self.shrink_buffers(cx, node, buffers);
            }
            let blocks = self.count_checkpointed();
            self.shrink_checkpointed(cx, blocks);
            // Bound: each turn frees pages or inodes.
            while let Some(more) = left {
                left = self.prune_inodes(cx, node, more);
            }
        }
    }
}
