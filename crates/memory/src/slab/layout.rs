//! Linux: calculate_slab_order(), set_objfreelist_slab_cache() and its like, and enable_cpucache() in mm/slab.c (v4.20).
//! Differs: no colouring, which uses only bytes that are left over.
//!
//! The order of a slab of SLAB, the number of its objects, and the number of objects that a CPU keeps.

use rules::machine::MachineSpec;
use units::Order;

use super::Cache;

/// Frames of memory above which slabs may be of two frames (`kmem_cache_init`: 32 MiB).
const SMALL_MEMORY: u64 = (32 << 20) >> 12;

/// The place of a slab's list of free objects, which has one byte for each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreeList {
    /// In a free object (`CFLGS_OBJFREELIST_SLAB`); not in one that a constructor has initialised.
    InObject,
    /// In an object of another cache (`CFLGS_OFF_SLAB`).
    OffSlab,
    /// At the end of the slab.
    OnSlab,
}

/// The form of a cache's slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) order: Order,
    pub(super) objects: u16,
    pub(super) list: FreeList,
}

impl Layout {
    /// The layout of a cache's slabs on a machine.
    pub(super) fn new(cache: Cache, machine: &MachineSpec) -> Self {
        let zones = machine.nodes.iter().flat_map(|node| &node.zones);
        let memory: u64 = zones.map(|zone| zone.managed.0).sum();
        Self::of(cache.size(), cache.is_reclaimable(), cache.has_constructor(), u8::from(memory > SMALL_MEMORY))
    }

    /// The layout for objects of `size` bytes (`__kmem_cache_create`); `max_order` is `slab_max_order`.
    fn of(size: u32, is_reclaimable: bool, has_constructor: bool, max_order: u8) -> Self {
        let order = |list| order_of(size, list, is_reclaimable, max_order);
        if !has_constructor {
            let (in_object, _) = order(FreeList::InObject);
            if u32::from(in_object.objects) <= size {
                return in_object;
            }
        }
        // Off the slab only if the bytes left over at its end are too few for the list.
        let (off_slab, left) = order(FreeList::OffSlab);
        if off_slab.objects > 0 && left < u32::from(off_slab.objects) {
            return off_slab;
        }
        order(FreeList::OnSlab).0
    }
}

/// The order for a place of the list, and the bytes left over (`calculate_slab_order`); a layout without objects if
/// there is none.
fn order_of(size: u32, list: FreeList, is_reclaimable: bool, max_order: u8) -> (Layout, u32) {
    /// Indices are bytes (`SLAB_OBJ_MAX_NUM`).
    const MOST_OBJECTS: u32 = 255;
    /// `KMALLOC_MAX_ORDER` of SLAB.
    const MOST_ORDER: u8 = 10;
    /// The smallest object for a list off the slab (`KMALLOC_MIN_SIZE`).
    const LEAST_LIST: u32 = 32;
    let mut best = (Layout { order: Order::BASE, objects: 0, list }, 0);
    for order in (0..=MOST_ORDER).map(Order) {
        let bytes = order.frames() << 12;
        let each = size + u32::from(list == FreeList::OnSlab);
        let (objects, left) = (bytes / each, bytes % each);
        if objects == 0 {
            continue;
        }
        if objects > MOST_OBJECTS {
            break;
        }
        let pays = objects.next_power_of_two().max(LEAST_LIST) <= size / 2;
        if list == FreeList::OffSlab && !pays {
            continue;
        }
        let objects = u16::try_from(objects).expect("at most 255");
        best = (Layout { order, objects, list }, left);
        let is_enough = left * 8 <= bytes;
        if is_reclaimable || order.0 >= max_order || is_enough {
            break;
        }
    }
    best
}

/// Most objects of a cache that a CPU keeps (`enable_cpucache`).
pub(super) const fn cpu_limit(cache: Cache) -> usize {
    match cache.size() {
        131_073.. => 1,
        4097.. => 8,
        1025.. => 24,
        257.. => 54,
        _ => 120,
    }
}

/// Batches of objects that the CPUs of a node keep together, if there are several CPUs (`enable_cpucache`).
pub(super) const fn shared_batches(cache: Cache, cpus: usize) -> usize {
    if cpus > 1 && cache.size() <= 4096 { 8 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_are_the_kernels() {
        let of = |max_order| {
            Cache::ALL.map(|cache| {
                let layout = Layout::of(cache.size(), cache.is_reclaimable(), cache.has_constructor(), max_order);
                (layout.order.0, layout.objects)
            })
        };
        let orders = [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let objects = [20, 5, 16, 21, 3, 7, 39, 4, 24, 10, 8, 4, 64, 99, 124, 34, 21, 4, 1];
        let usual: Vec<_> = orders.into_iter().zip(objects).collect();
        assert_eq!(of(1).to_vec(), usual);
        let small: Vec<_> = of(0).into_iter().zip(usual).filter(|(small, usual)| small != usual).collect();
        assert_eq!(small, [((0, 2), (1, 5))], "only address spaces have slabs of two frames");
    }

    #[test]
    fn no_kind_of_ours_keeps_its_lists_elsewhere() {
        let list = |cache: Cache| Layout::of(cache.size(), cache.is_reclaimable(), cache.has_constructor(), 1).list;
        for cache in Cache::ALL {
            // A slab of these caches has more objects than one object has bytes.
            let is_at_end = cache.has_constructor() || matches!(cache, Cache::ExtentStatus | Cache::LsmInode);
            let expected = if is_at_end { FreeList::OnSlab } else { FreeList::InObject };
            assert_eq!(list(cache), expected, "{cache:?}");
        }
    }

    #[test]
    fn a_list_is_off_the_slab_where_objects_fill_it() {
        // 8 objects of 512 bytes with a constructor fill a frame: with the list on the slab there would be 7.
        let full = Layout::of(512, false, true, 1);
        assert_eq!(full, Layout { order: Order::BASE, objects: 8, list: FreeList::OffSlab });
        let small = Layout::of(32, false, true, 1);
        assert_eq!(
            small,
            Layout { order: Order::BASE, objects: 124, list: FreeList::OnSlab },
            "half an object is less"
        );
        // Without a constructor the list is in an object, unless it is larger than the object.
        assert_eq!(Layout::of(512, false, false, 1).list, FreeList::InObject);
        assert_eq!(Layout::of(32, false, false, 1), Layout { list: FreeList::OnSlab, ..small });
    }

    #[test]
    fn the_least_order_will_do_for_what_can_be_given_back() {
        let of = |size, is_reclaimable| Layout::of(size, is_reclaimable, false, 1).order.0;
        assert_eq!((of(1600, true), of(1600, false)), (0, 1));
        assert_eq!((of(5000, true), of(5000, false)), (1, 1), "it must hold one");
        assert_eq!((of(9000, false), of(4096, false)), (2, 0));
    }

    #[test]
    fn a_cpu_keeps_fewer_of_larger_objects() {
        let limits = [120, 24, 120, 120, 24, 54, 120, 54, 120, 54, 54, 54, 120, 120, 120, 120, 120, 54, 24];
        assert_eq!(Cache::ALL.map(cpu_limit), limits);
        assert_eq!((shared_batches(Cache::VmArea, 1), shared_batches(Cache::VmArea, 2)), (0, 8));
    }
}
