//! The end of the process by a thread that cannot go on.

use std::sync::OnceLock;

/// Writes the last lines of the log.
static FLUSH: OnceLock<fn()> = OnceLock::new();

/// What writes the last lines of the log before the process ends: a thread of its own may write them.
pub fn flush_log_with(flush: fn()) {
    let _ = FLUSH.set(flush);
}

/// Ends the process, so that it restarts from its journal. The reason is in the log.
pub(crate) fn exit() -> ! {
    if let Some(flush) = FLUSH.get() {
        flush();
    }
    std::process::exit(1)
}
