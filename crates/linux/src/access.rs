//! User code that goes through memory again and again: [`Os::access`](os::Os::access) on a real machine.

use os::{Accessed, Amount, Pattern, Runs, VmRange};
use units::{Bytes, Errno, Picos, Stores};

use crate::{host::monotonic_ns, memory::first_byte, moves, stores::write_page};

/// Bytes of a cache line of x86-64.
const LINE: u64 = 64;
/// Pages visited before the clock is read again: few enough that a batch takes some microseconds, and enough that reading the
/// clock takes no noticeable part of the time.
const BATCH: u64 = 256;

/// The pages of some runs, as numbers from the start of their range.
fn pages_of(runs: Runs) -> Vec<u64> {
    let [all, len, every] = [runs.range.len, runs.len, runs.every].map(|len| len.0.div_ceil(Bytes::PAGE.0));
    (0..all).filter(|page| page % every.max(1) < len).collect()
}

/// Goes through all pages of runs, which have some, round after round.
pub(crate) fn access(runs: Runs, pattern: Pattern, amount: Amount) -> Result<Accessed, Errno> {
    let (range, list) = (runs.range, pages_of(runs));
    let pages = list.len() as u64;
    if pages == 0 {
        return Err(Errno::INVAL);
    }
    Ok(match pattern {
        Pattern::Sweep | Pattern::Fresh | Pattern::NonTemporal | Pattern::RepStosb => {
            let stores = pattern.stores().expect("a sweep stores");
            let start = first_byte(range);
            let mut next = 0;
            let (visits, time) = visit(pages, amount, |visits| {
                for _ in 0..visits {
                    fill_page(start, list[next], stores);
                    next = if next + 1 == list.len() { 0 } else { next + 1 };
                }
            });
            Accessed { accesses: visits * (Bytes::PAGE.0 / LINE), time }
        }
        Pattern::Random => follow_all((range, true), (list, 1), amount),
        Pattern::Lines(lines) => follow_all((range, true), (list, lines.into()), amount),
        Pattern::Stride => follow_all((range, false), (list, 1), amount),
        Pattern::Update => update_all(range, list, amount),
    })
}

/// Loads `lines` words of each page one after another; pages in a random order or by address.
fn follow_all(range: (VmRange, bool), (list, lines): (Vec<u64>, u64), amount: Amount) -> Accessed {
    let pages = list.len() as u64;
    let mut at = chain(range, (list, lines));
    let (visits, time) = visit(pages, amount, |visits| {
        for _ in 0..visits * lines {
            at = follow(at);
        }
    });
    Accessed { accesses: visits * lines, time }
}

/// Loads a word of each page in a random order, each after the one before, and stores it back.
fn update_all(range: VmRange, list: Vec<u64>, amount: Amount) -> Accessed {
    let pages = list.len() as u64;
    let mut at = chain((range, true), (list, 1));
    let (visits, time) = visit(pages, amount, |visits| {
        for _ in 0..visits {
            let next = follow(at);
            leave(at, next);
            at = next;
        }
    });
    Accessed { accesses: visits, time }
}

/// Makes visits until there were enough. Says how many there were, and how long they took.
fn visit(pages: u64, amount: Amount, mut some: impl FnMut(u64)) -> (u64, Picos) {
    let start = monotonic_ns();
    let mut done = 0;
    loop {
        let batch = match amount {
            Amount::Rounds(rounds) => BATCH.min(rounds * pages - done),
            Amount::Time(span) if monotonic_ns() - start >= span.as_nanos() => 0,
            Amount::Time(_) => BATCH,
        };
        if batch == 0 {
            return (done, Picos::from_nanos(monotonic_ns() - start));
        }
        some(batch);
        done += batch;
        moves::look();
    }
}

fn fill_page(start: *mut u8, page: u64, stores: Stores) {
    let offset = usize::try_from(page * Bytes::PAGE.0).expect("inside");
    #[expect(unsafe_code, reason = "touching memory is what the workload asks for")]
    // SAFETY: the page is inside the range, which is mapped writable and which nobody else refers to.
    unsafe {
        write_page(start.add(offset), stores);
    }
}

/// Some words of each page, each in a cache line of its own, say where the following word is; a page's last word says where the
/// following page is. The order is drawn once or is by address, and it ends where it began. Returns where the first word is.
/// The words' places differ from page to page, since they would else all lie in a few sets of each cache.
fn chain((range, is_random): (VmRange, bool), (mut order, lines): (Vec<u64>, u64)) -> usize {
    let mut draws = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |n: u64| {
        draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((draws >> 32) % n).expect("a place in a list")
    };
    // Fisher and Yates.
    for last in (1..if is_random { order.len() } else { 0 }).rev() {
        order.swap(last, below(last as u64 + 1));
    }
    // An odd step passes every line of a page before it comes back.
    let step = 29;
    let line = |page: u64, nth: u64| {
        (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).wrapping_add(nth * step) & (Bytes::PAGE.0 / LINE - 1)
    };
    let word = |(page, nth): (u64, u64)| {
        usize::try_from(range.start.0 + page * Bytes::PAGE.0 + line(page, nth) * LINE).expect("an address")
    };
    let words: Vec<(u64, u64)> = order.iter().flat_map(|page| (0..lines).map(|nth| (*page, nth))).collect();
    for (n, at) in words.iter().enumerate() {
        let next = word(words[(n + 1) % words.len()]);
        let place = std::ptr::with_exposed_provenance_mut::<usize>(word(*at));
        #[expect(unsafe_code, reason = "touching memory is what the workload asks for")]
        // SAFETY: the word is inside the range, aligned, mapped writable, and nobody else refers to it.
        unsafe {
            place.write_volatile(next);
        }
    }
    word(words[0])
}

/// Stores what a word of the chain says already.
fn leave(at: usize, next: usize) {
    #[expect(unsafe_code, reason = "touching memory is what the workload asks for")]
    // SAFETY: `at` is a word of `chain`, mapped writable, and nobody else refers to it.
    unsafe {
        std::ptr::with_exposed_provenance_mut::<usize>(at).write_volatile(next);
    }
}

/// Loads a word that says where the following word is.
fn follow(at: usize) -> usize {
    #[expect(unsafe_code, reason = "touching memory is what the workload asks for")]
    // SAFETY: `chain` wrote the address of one of its own words here.
    unsafe {
        std::ptr::with_exposed_provenance::<usize>(at).read_volatile()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;

    #[test]
    fn a_chain_passes_every_page_once_a_round() {
        let range = memory::map_anonymous(Bytes(Bytes::PAGE.0 * 37)).unwrap();
        for lines in [1, 2, 64] {
            let first = chain((range, true), ((0..37).collect(), lines));
            let (mut pages, mut met): (Vec<u64>, Vec<usize>) = (Vec::new(), Vec::new());
            let mut at = first;
            for _ in 0..37 * lines {
                pages.push((at as u64 - range.start.0) / Bytes::PAGE.0);
                met.push(at / 64);
                at = follow(at);
            }
            assert_eq!(at, first);
            pages.dedup();
            assert!(!pages.is_sorted());
            pages.sort_unstable();
            assert_eq!(pages, (0..37).collect::<Vec<_>>(), "all lines of a page one after the other");
            met.sort_unstable();
            met.dedup();
            assert_eq!(met.len() as u64, 37 * lines, "each line once");
        }
        let mut at = chain((range, false), ((0..37).collect(), 1));
        for page in 0..37 {
            assert_eq!((at as u64 - range.start.0) / Bytes::PAGE.0, page, "page after page");
            at = follow(at);
        }
        memory::unmap(range).unwrap();
    }

    #[test]
    fn rounds_and_times_are_what_was_asked_for() {
        let range = memory::map_anonymous(Bytes(Bytes::PAGE.0 * 10)).unwrap();
        assert_eq!(access(range.into(), Pattern::Random, Amount::Rounds(3)).unwrap().accesses, 30);
        assert_eq!(access(range.into(), Pattern::Update, Amount::Rounds(3)).unwrap().accesses, 30);
        assert_eq!(access(range.into(), Pattern::Lines(5), Amount::Rounds(3)).unwrap().accesses, 150);
        assert_eq!(access(range.into(), Pattern::Sweep, Amount::Rounds(100)).unwrap().accesses, 100 * 10 * 64);
        let done = access(range.into(), Pattern::Sweep, Amount::Time(Picos::from_micros(500))).unwrap();
        assert!(done.time >= Picos::from_micros(500) && done.accesses >= 64, "{done:?}");
        assert_eq!(memory::resident(range).unwrap(), vec![true; 10]);
        memory::unmap(range).unwrap();
    }
}
