//! Kinds of fallbacks of the page allocator to pageblocks of another mobility: the events of `mm_page_alloc_extfrag`
//! (include/trace/events/kmem.h). One form for whoever counts them and whoever reports them.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{Mobility, Order};

/// One kind of event: its fields but for the frame. Fields have the kernel's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExtfragKind {
    /// The mobility of the request (`alloc_migratetype`).
    pub alloc_type: Mobility,
    /// The list that it was found on (`fallback_migratetype`); the types that nobody asks for have no events.
    pub fallback_type: Mobility,
    /// The order asked for.
    pub alloc_order: Order,
    /// The order found.
    pub fallback_order: Order,
    /// The pageblock is of the type asked for from now on.
    pub change_ownership: bool,
}

/// Orders of the buddy allocator (`MAX_ORDER`, include/linux/mmzone.h, v6.1).
const ORDERS: usize = 11;

/// Mobilities that a request of one falls back to.
const OTHERS: usize = Mobility::ALL.len() - 1;

impl ExtfragKind {
    /// How many numbers kinds have; some are of kinds that cannot be.
    const COUNT: usize = Mobility::ALL.len() * OTHERS * ORDERS * ORDERS * 2;
    /// Was less than a pageblock found, so that two types share the pageblock?
    pub fn is_fragmenting(self, pageblock_order: Order) -> bool {
        self.fallback_order < pageblock_order
    }

    /// The kind without its orders.
    pub fn class(self, pageblock_order: Order) -> ExtfragClass {
        let Self { alloc_type, fallback_type, change_ownership, .. } = self;
        ExtfragClass { alloc_type, fallback_type, fragmenting: self.is_fragmenting(pageblock_order), change_ownership }
    }

    /// The number of an event that can be: another type was found, in a block that is large enough.
    #[inline]
    fn number(self) -> Option<usize> {
        let [asked, found] = [self.alloc_order.0, self.fallback_order.0].map(usize::from);
        let is_possible = self.alloc_type != self.fallback_type && asked <= found && found < ORDERS;
        let other = self.fallback_type as usize - usize::from(self.fallback_type > self.alloc_type);
        let types = self.alloc_type as usize * OTHERS + other;
        is_possible.then_some(((types * ORDERS + asked) * ORDERS + found) * 2 + usize::from(self.change_ownership))
    }

    fn of_number(number: usize) -> Self {
        let order = |number: usize| Order(u8::try_from(number % ORDERS).expect("fewer than 2^8 orders"));
        let types = number / 2 / ORDERS / ORDERS;
        let (alloc, other) = (types / OTHERS, types % OTHERS);
        Self {
            alloc_type: Mobility::ALL[alloc],
            fallback_type: Mobility::ALL[other + usize::from(other >= alloc)],
            alloc_order: order(number / 2 / ORDERS),
            fallback_order: order(number / 2),
            change_ownership: number % 2 == 1,
        }
    }
}

/// One kind of event without its orders: as many as have room among the counters of /proc/vmstat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtfragClass {
    /// The mobility of the request.
    pub alloc_type: Mobility,
    /// The list that it was found on.
    pub fallback_type: Mobility,
    /// Less than a pageblock was found: two types share it, or did.
    pub fragmenting: bool,
    /// The pageblock is of the type asked for from now on.
    pub change_ownership: bool,
}

impl ExtfragClass {
    /// The beginning of all their names.
    pub const PREFIX: &str = "mm_page_alloc_extfrag/";

    /// Every class, in the order of their fields.
    pub fn all() -> impl Iterator<Item = Self> {
        let pairs = Mobility::ALL.into_iter().flat_map(|asked| Mobility::ALL.map(|found| (asked, found)));
        let flags = [(false, false), (false, true), (true, false), (true, true)];
        pairs.filter(|(asked, found)| asked != found).flat_map(move |(alloc_type, fallback_type)| {
            flags.map(|(fragmenting, change_ownership)| Self {
                alloc_type,
                fallback_type,
                fragmenting,
                change_ownership,
            })
        })
    }

    /// The name of the class's counter, with the values of the fields: `mm_page_alloc_extfrag/movable/unmovable/1/0`.
    pub fn name(self) -> String {
        let Self { alloc_type, fallback_type, fragmenting, change_ownership } = self;
        let [fragmenting, change_ownership] = [fragmenting, change_ownership].map(u8::from);
        format!("{}{alloc_type}/{fallback_type}/{fragmenting}/{change_ownership}", Self::PREFIX)
    }

    /// The class of such a name.
    pub fn from_name(name: &str) -> Option<Self> {
        name.starts_with(Self::PREFIX).then(|| Self::all().find(|class| class.name() == name)).flatten()
    }
}

/// How often each kind of event has come. It never grows: counting is one addition.
#[derive(Clone, PartialEq, Eq)]
pub struct ExtfragCounts(Box<[u64; ExtfragKind::COUNT]>);

impl Default for ExtfragCounts {
    fn default() -> Self {
        Self(Box::new([0; ExtfragKind::COUNT]))
    }
}

impl ExtfragCounts {
    /// Counts an event `n` times. Says whether there can be such an event; others are not counted.
    #[inline]
    pub fn count(&mut self, kind: ExtfragKind, n: u64) -> bool {
        let number = kind.number();
        if let Some(number) = number {
            self.0[number] = self.0[number].wrapping_add(n);
        }
        number.is_some()
    }

    /// How often one kind has come.
    pub fn get(&self, kind: ExtfragKind) -> u64 {
        kind.number().map_or(0, |number| self.0[number])
    }

    /// Every kind that there can be with its count, in the order of its fields.
    pub fn iter(&self) -> impl Iterator<Item = (ExtfragKind, u64)> + '_ {
        let all = self.0.iter().enumerate().map(|(number, count)| (ExtfragKind::of_number(number), *count));
        all.filter(|(kind, _)| kind.number().is_some())
    }

    /// How many came since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut moved = self.clone();
        for (now, then) in moved.0.iter_mut().zip(earlier.0.iter()) {
            *now = now.wrapping_sub(*then);
        }
        moved
    }

    /// All classes in their order, with the number of events.
    pub fn by_class(&self, pageblock_order: Order) -> impl Iterator<Item = (ExtfragClass, u64)> {
        let mut sums: BTreeMap<ExtfragClass, u64> = ExtfragClass::all().map(|class| (class, 0)).collect();
        for (kind, count) in self.iter().filter(|(_, count)| *count > 0) {
            let sum = sums.entry(kind.class(pageblock_order)).or_default();
            *sum = sum.wrapping_add(count);
        }
        sums.into_iter()
    }
}

/// Those that have come.
impl fmt::Debug for ExtfragCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().filter(|(_, count)| *count > 0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_numbers_in_the_order_of_their_fields() {
        let counts = ExtfragCounts::default();
        let kinds: Vec<ExtfragKind> = counts.iter().map(|(kind, _)| kind).collect();
        // Six pairs of types, 66 pairs of orders, and whose the pageblock is.
        assert_eq!(kinds.len(), 6 * 66 * 2);
        assert!(kinds.is_sorted());
        assert!(kinds.iter().all(|kind| kind.number().map(ExtfragKind::of_number) == Some(*kind)));
    }

    #[test]
    fn what_cannot_be_is_not_counted() {
        let kind = ExtfragKind {
            alloc_type: Mobility::Movable,
            fallback_type: Mobility::Unmovable,
            alloc_order: Order(0),
            fallback_order: Order(3),
            change_ownership: false,
        };
        let mut counts = ExtfragCounts::default();
        assert!(counts.count(kind, 2));
        assert!(!counts.count(ExtfragKind { fallback_type: Mobility::Movable, ..kind }, 1));
        assert!(!counts.count(ExtfragKind { alloc_order: Order(4), ..kind }, 1), "no block of 8 frames holds 16");
        assert!(!counts.count(ExtfragKind { fallback_order: Order(11), ..kind }, 1));
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 2);
        assert!(kind.is_fragmenting(Order::HUGE) && !kind.is_fragmenting(Order(3)));
    }

    #[test]
    fn classes_have_names_of_their_own() {
        assert_eq!(ExtfragClass::all().count(), 24);
        assert!(ExtfragClass::all().is_sorted());
        assert!(ExtfragClass::all().all(|class| ExtfragClass::from_name(&class.name()) == Some(class)));
        assert_eq!(ExtfragClass::from_name("mm_page_alloc_extfrag/movable/movable/0/0"), None);
        assert_eq!(ExtfragClass::from_name("pgfault"), None);
    }

    #[test]
    fn classes_are_sums_of_kinds() {
        let mut counts = ExtfragCounts::default();
        for number in (0..ExtfragKind::COUNT).step_by(7) {
            counts.count(ExtfragKind::of_number(number), number as u64 + 1);
        }
        let all: u64 = counts.iter().map(|(_, count)| count).sum();
        let by_class: Vec<(ExtfragClass, u64)> = counts.by_class(Order::HUGE).collect();
        assert_eq!((by_class.len(), by_class.iter().map(|(_, count)| count).sum::<u64>()), (24, all));
        let fragmenting = counts.iter().filter(|(kind, _)| kind.is_fragmenting(Order::HUGE)).map(|(_, count)| count);
        let of_classes = by_class.iter().filter(|(class, _)| class.fragmenting).map(|(_, count)| count);
        assert_eq!(of_classes.sum::<u64>(), fragmenting.sum::<u64>());
        assert_eq!(counts.since(&counts), ExtfragCounts::default());
    }
}
