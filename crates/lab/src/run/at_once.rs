//! Several cells at a time, their results in the order of the plan.

use std::{
    collections::BTreeMap,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

/// A message of one of the threads.
pub(crate) enum News<R> {
    /// The thread begins with an item.
    Began,
    /// The thread has done the item.
    Done(R),
}

/// Does `work` on each of `items`, at most `workers` at a time, and tells `hear` on this thread: that an item was begun as
/// soon as it is, what came of it in the order of the items. No further item is begun once `hear` has failed, but what was
/// begun is still told; the first failure is returned.
///
/// Bound: each item is begun once and done once.
pub(crate) fn in_order<T: Sync, R: Send, E>(
    items: &[T],
    workers: usize,
    work: impl Fn(&T) -> R + Sync,
    mut hear: impl FnMut(&T, News<R>) -> Result<(), E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let mut outcome = Ok(());
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let mut started = 0;
        for _ in 0..workers.min(items.len()) {
            let (tell, next, work) = (tell.clone(), &next, &work);
            let thread = thread::Builder::new().spawn_scoped(scope, move || {
                let mut at = next.fetch_add(1, Ordering::Relaxed);
                while let Some(item) = items.get(at) {
                    // The other end goes away only with the scope.
                    let _ = tell.send((at, News::Began));
                    let _ = tell.send((at, News::Done(work(item))));
                    at = next.fetch_add(1, Ordering::Relaxed);
                }
            });
            // Those that are there do the work of all.
            if thread.is_err() {
                break;
            }
            started += 1;
        }
        drop(tell);
        if started == 0 {
            outcome = items.iter().try_for_each(|item| {
                hear(item, News::Began)?;
                hear(item, News::Done(work(item)))
            });
            return;
        }
        let mut waiting = BTreeMap::new();
        let mut kept = 0;
        let mut note = |failed: Result<(), E>| {
            if failed.is_err() {
                next.store(items.len(), Ordering::Relaxed);
            }
            let so_far = std::mem::replace(&mut outcome, Ok(()));
            outcome = so_far.and(failed);
        };
        for (at, news) in told {
            match news {
                News::Began => note(hear(&items[at], News::Began)),
                News::Done(result) => {
                    waiting.insert(at, result);
                    while let Some(result) = waiting.remove(&kept) {
                        note(hear(&items[kept], News::Done(result)));
                        kept += 1;
                    }
                }
            }
        }
    });
    outcome
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Barrier, Mutex},
        time::Duration,
    };

    use super::*;

    #[test]
    fn results_come_in_order_whoever_is_first() {
        let items: Vec<u64> = (0..20).collect();
        let mut done = Vec::new();
        let work = |item: &u64| {
            thread::sleep(Duration::from_millis(20 - item));
            item * 2
        };
        let result = in_order(&items, 8, work, |item, news| {
            if let News::Done(result) = news {
                done.push((*item, result));
            }
            Ok::<_, ()>(())
        });
        assert_eq!(result, Ok(()));
        assert_eq!(done, items.iter().map(|item| (*item, item * 2)).collect::<Vec<_>>());
    }

    #[test]
    fn two_really_are_done_at_a_time_and_no_more() {
        // Two meet here; one at a time would wait for ever.
        let meet = Barrier::new(2);
        let (now, most) = (Mutex::new(0), Mutex::new(0));
        let work = |_: &u64| {
            *now.lock().unwrap() += 1;
            let mut most = most.lock().unwrap();
            *most = (*most).max(*now.lock().unwrap());
            drop(most);
            meet.wait();
            *now.lock().unwrap() -= 1;
        };
        in_order(&[0, 1, 2, 3], 2, work, |_, _| Ok::<_, ()>(())).unwrap();
        assert!((2..=2).contains(&*most.lock().unwrap()));
    }

    #[test]
    fn a_failure_stops_what_has_not_begun() {
        let items: Vec<u64> = (0..1000).collect();
        let mut begun = 0;
        let work = |_: &u64| thread::sleep(Duration::from_millis(1));
        let result = in_order(&items, 2, work, |item, news| {
            begun += u64::from(matches!(news, News::Began));
            if matches!(news, News::Done(())) && *item >= 3 { Err(*item) } else { Ok(()) }
        });
        assert_eq!(result, Err(3));
        assert!(begun < 1000, "{begun}");
    }
}
