//! Simulated machines, each with its own clocks. A thread acts on one of them at a time, and reads
//! that machine's clocks. All tests run in one process: outside of a simulation, a test's thread
//! has its own clocks from the moment when it sets them.

use std::cell::{Cell, RefCell};

use super::{Clocks, LATEST};

/// The clocks of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The boot of the machine.
    pub boot: u64,
    /// Milliseconds since then.
    pub since_boot_ms: u64,
    /// The wall clock, in milliseconds since the epoch.
    pub wall_ms: u64,
}

thread_local! {
    static MACHINE: Cell<Option<Machine>> = const { Cell::new(None) };
    static CLOCKS: RefCell<Option<Clocks>> = const { RefCell::new(None) };
}

/// The machine that this thread acts on.
pub(super) fn machine() -> Option<Machine> {
    MACHINE.get()
}

/// Uses the clocks of this thread's machine. Without one, returns `act`.
pub(super) fn with_clocks<T, A: FnOnce(&mut Clocks) -> T>(act: A) -> Result<T, A> {
    CLOCKS.with_borrow_mut(|clocks| match clocks {
        Some(clocks) => Ok(act(clocks)),
        None => Err(act),
    })
}

/// Gives this thread its own clocks, if it is a test's. Cargo builds the whole workspace with the
/// features that any test needs, so this code is also in daemons started by tests. Only test
/// threads have a path as their name.
pub(super) fn own() {
    if !std::thread::current()
        .name()
        .is_some_and(|name| name.contains("::"))
    {
        return;
    }
    CLOCKS.with_borrow_mut(|clocks| _ = clocks.get_or_insert_with(Clocks::new));
}

/// Acts on a machine, whose process has this time.
pub fn on<T>(machine: Machine, clocks: &mut Clocks, act: impl FnOnce() -> T) -> T {
    MACHINE.set(Some(machine));
    CLOCKS.set(Some(std::mem::replace(clocks, Clocks::new())));
    LATEST.set(None);
    let done = act();
    *clocks = CLOCKS.take().unwrap_or_else(Clocks::new);
    MACHINE.set(None);
    LATEST.set(None);
    done
}
