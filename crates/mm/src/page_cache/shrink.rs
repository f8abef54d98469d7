//! Linux: super_cache_count() and super_cache_scan() in fs/super.c, prune_dcache_sb() in fs/dcache.c, prune_icache_sb() in
//! fs/inode.c (v6.1).
//! Differs: inodes are freed without having been marked as used before.

use units::NodeId;

use super::InodeId;
use crate::{Mm, cx::Cx, event::Event, shrinker::asked_when_dropping};

impl Mm {
    /// Dentries and inodes of a node that nobody uses, as many as `vm.vfs_cache_pressure` shows of them.
    pub(crate) fn count_idle_inodes(&self, node: NodeId) -> u64 {
        let total = self.cache.dentries[node].len() + self.cache.idle[node].len();
        total / 100 * self.cache.settings.vfs_cache_pressure
            + total % 100 * self.cache.settings.vfs_cache_pressure / 100
    }

    /// Frees some of so many; how many went.
    pub(crate) fn shrink_inodes(&mut self, cx: &mut Cx, node: NodeId, most: u64) -> u64 {
        let (dentries, inodes) = (self.cache.dentries[node].len(), self.cache.idle[node].len());
        let total = dentries + inodes + 1;
        let freed = self.prune_dentries(cx, node, most * dentries / total);
        freed + self.prune_inodes(cx, node, most * inodes / total)
    }

    fn prune_dentries(&mut self, cx: &mut Cx, node: NodeId, most: u64) -> u64 {
        let mut freed = 0;
        // Bound: as asked.
        for _ in 0..most {
            let Some(id) = self.cache.dentries[node].first() else { break };
            let inode = self.cache.inode_mut(id);
            let (_, place) = inode.dentry_place.take().expect("it is on the list");
            let (is_open, was_used) = (inode.opens > 0 || !inode.maps.is_empty(), inode.is_dentry_used);
            inode.is_dentry_used = false;
            self.cache.dentries[node].remove(place);
            if is_open {
                // It comes back when it is closed.
                continue;
            }
            if was_used {
                let place = self.cache.dentries[node].push(id);
                self.cache.inode_mut(id).dentry_place = Some((node, place));
                continue;
            }
            self.drop_dentry(cx, id);
            self.rest_inode(id);
            freed += 1;
        }
        freed
    }

    fn prune_inodes(&mut self, cx: &mut Cx, node: NodeId, most: u64) -> u64 {
        let mut freed = 0;
        // Bound: as asked.
        for _ in 0..most {
            let Some(id) = self.cache.idle[node].first() else { break };
            self.evict_idle(cx, id);
            freed += 1;
        }
        freed
    }

    /// An inode without pages that nobody uses leaves memory, with what it knows of pages that were.
    fn evict_idle(&mut self, cx: &mut Cx, id: InodeId) {
        self.cache.leave_idle(id);
        let inode = self.cache.inodes[id.0 as usize].as_mut().expect("it is on the list");
        if !inode.mapping.is_empty() {
            inode.mapping.set(&mut self.cache.nodes, 0, super::Slot::Empty);
        }
        if let Some(object) = inode.object.take() {
            self.free_object(cx, object);
        }
    }

    /// All of them (`drop_slab`). The objects asked for are counted where they are in proportion to pages.
    pub(super) fn drop_slab(&mut self, cx: &mut Cx) {
        for node in self.nodes.ids().collect::<Vec<_>>() {
            // Bound: a dentry that was used goes at the second time.
            for _ in 0..2 {
                let dentries = self.cache.dentries[node].len();
                if self.variant.slab_by_scanned {
                    cx.count(Event::SlabsScanned, asked_when_dropping(self.count_idle_inodes(node)));
                }
                self.prune_dentries(cx, node, dentries);
            }
            let inodes = self.cache.idle[node].len();
            self.prune_inodes(cx, node, inodes);
        }
    }
}
