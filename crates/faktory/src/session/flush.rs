//! FLUSH: removes everything that was pushed over FWP, a bounded part in each visit to the engine.
//!
//! Rules: deployed servers remove all they store. FLUSH leaves other protocols' jobs and counters alone. Schedules stay, as on
//! deployed servers: they are configuration.

use windlass_engine::{BulkCommand, Cursor, Protocol, Reply};
use windlass_session::Outbox;

use super::{Answer, FaktorySession, Task, refusal};
use crate::wire::reply;

/// Jobs, batches or queues removed in one visit.
const PAGE_ROWS: u32 = 200;

impl FaktorySession {
    pub(super) fn flush(&mut self, after: Cursor, out: &mut Outbox) {
        self.begin(Task::Flush, BulkCommand::Flush { protocol: Protocol::FAKTORY, after, limit: PAGE_ROWS }, out);
    }

    pub(super) fn flush_step(&mut self, answer: &Answer, out: &mut Outbox) {
        match answer {
            Ok(Reply::Mutated { next: Some(after), .. }) => self.flush(*after, out),
            Ok(_) => reply::ok(out.bytes()),
            Err(why) => refusal::write(*why, out.bytes()),
        }
    }
}
