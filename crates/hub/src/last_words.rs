//! Ends the process from a thread that cannot continue.

use std::sync::OnceLock;

/// Flushes the log.
static FLUSH: OnceLock<fn()> = OnceLock::new();

/// Sets the function that flushes the log before the process exits, because a separate thread may
/// be writing it.
pub fn flush_log_with(flush: fn()) {
    let _ = FLUSH.set(flush);
}

/// Exits the process, so that it restarts from its journal. The reason is in the log.
pub(crate) fn exit() -> ! {
    if let Some(flush) = FLUSH.get() {
        flush();
    }
    std::process::exit(1)
}
