//! The user halves of tasks: futures, polled in the world's order on one thread. There are no wakers: the world knows
//! which tasks can run.

use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    task::{Context, Waker},
};

use crate::{
    ids::TaskId,
    world::{self, Turn, World, with},
};

/// The user half of a task.
pub(crate) type UserHalf = Pin<Box<dyn Future<Output = ()>>>;

/// The future of a process entry: its result as JSON, or the reason why there is none.
pub type EntryFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>>>>;

/// Finds the entry of a spawned process by name; its parameters are JSON.
pub type Entries = fn(&'static str, Vec<u8>) -> EntryFuture;

thread_local! {
    /// User halves of tasks that were spawned while another one was polled.
    static ADOPTED: RefCell<Vec<(TaskId, UserHalf)>> = const { RefCell::new(Vec::new()) };
    static ENTRIES: RefCell<Option<Entries>> = const { RefCell::new(None) };
}

/// Takes over the user half of a task that was just created.
pub(crate) fn adopt(task: TaskId, half: UserHalf) {
    ADOPTED.with_borrow_mut(|adopted| adopted.push((task, half)));
}

/// The user half of a process that starts at a named entry.
pub(crate) fn entry(name: &'static str, params: Vec<u8>) -> EntryFuture {
    ENTRIES.with_borrow(|entries| entries.expect("a run has its entries")(name, params))
}

/// Runs `main` as the first task, and every task that it spawns, to the end, or until a guest is lost or no task makes
/// progress.
///
/// # Panics
/// When tasks wait for each other for ever: a bug of the workload, which no clock would end.
pub(crate) fn run(world: World, entries: Entries, main: UserHalf) -> World {
    world::scoped(world, || {
        let outer = ENTRIES.replace(Some(entries));
        let mut halves: Vec<Option<UserHalf>> = vec![Some(main)];
        loop {
            match with(World::turn) {
                Turn::Over => {
                    if with(|world| world.watchdog.found.is_some() || world.is_decided()) {
                        halves.clear();
                    }
                    break;
                }
                Turn::Drop(task) => {
                    halves[task.0 as usize] = None;
                    with(World::end_killed);
                    with(World::settle_current);
                    if with(|world| world.guest_lost.is_some()) {
                        // Events that others wait for may never come; nobody asks for them any more.
                        halves.clear();
                        break;
                    }
                }
                Turn::Poll(task) => {
                    poll(&mut halves, task);
                    with(World::settle_current);
                }
            }
        }
        ENTRIES.set(outer);
        assert!(halves.iter().all(Option::is_none), "tasks wait for each other for ever");
    })
}

fn poll(halves: &mut Vec<Option<UserHalf>>, task: TaskId) {
    let half = &mut halves[task.0 as usize];
    let done = half.as_mut().expect("a runnable task has a user half").as_mut();
    if done.poll(&mut Context::from_waker(Waker::noop())).is_ready() {
        *half = None;
        with(World::end);
    }
    for (task, half) in ADOPTED.take() {
        // Kernel threads have no user half.
        assert!(task.0 as usize >= halves.len(), "tasks are adopted in the order of their numbers");
        halves.resize_with(task.0 as usize, || None);
        halves.push(Some(half));
    }
}
