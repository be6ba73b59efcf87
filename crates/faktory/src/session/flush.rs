//! FLUSH: removes everything that was pushed over FWP, a bounded part in each visit to the engine.
//!
//! Rules: deployed servers remove all they store. FLUSH leaves other protocols' jobs and counters alone. Schedules
//! stay, as on deployed servers: they are configuration.

use windlass_engine::{BulkCommand, Cursor, Protocol, Reply};

use super::ask::Ask;
use super::{FaktorySpeaker, Talk};
use crate::wire::reply;

/// Jobs, batches or queues removed in one visit.
const PAGE_ROWS: u32 = 200;

impl FaktorySpeaker {
    pub(super) fn flush(after: Cursor, talk: &mut Talk<'_>) {
        talk.ask(
            Ask::Flush,
            BulkCommand::Flush {
                protocol: Protocol::FAKTORY,
                after,
                limit: PAGE_ROWS,
            },
        );
    }

    pub(super) fn flush_step(reply: &Reply, talk: &mut Talk<'_>) {
        let Reply::Mutated {
            next: Some(after), ..
        } = reply
        else {
            return reply::ok(talk.bytes());
        };
        Self::flush(*after, talk);
    }
}
