//! The world of the run under way on a thread.

use std::cell::RefCell;

use super::World;

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Runs `body` with the world of this thread's run.
///
/// # Panics
/// When no run is under way on this thread: a handle escaped its run.
pub(crate) fn with<T>(body: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(|world| body(world.as_mut().expect("a simulated task runs inside its run")))
}

/// Makes `world` the world of this thread while `body` runs, and hands it back.
pub(crate) fn scoped(world: World, body: impl FnOnce()) -> World {
    let outer = WORLD.replace(Some(world));
    assert!(outer.is_none(), "one run at a time on a thread");
    body();
    WORLD.take().expect("nobody else takes the world")
}
