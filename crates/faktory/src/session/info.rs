//! INFO: the figures, as an object that clients and the server's own pages read.
//!
//! Rules: every key of deployed servers, and those of older ones that clients still look for (`default_size`). What is due
//! is done when it is due here, not in rounds: there are no rounds to count, so `cycles` and `wall_time_sec` are 0. Queues
//! are told whoever pushes to them, for anybody may fetch from them; all else is of jobs that were pushed here, which is
//! what MUTATE and FLUSH reach.

use std::collections::BTreeMap;

use bytes::Bytes;
use windlass_engine::{Command, Cursor, Event, Origin, OriginStats, PlaceKind, QueueKind, Stats, Timestamp};
use windlass_session::Outbox;

use super::{Answer, Ask, FAKTORY_VERSION, FaktorySession, Task, refusal};
use crate::wire::{Chore, InfoText, is_queue_name, reply};

/// Queues asked for at once.
const PAGE_ROWS: u32 = 500;

/// What is known so far.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    stats: Stats,
    queues: BTreeMap<Bytes, u64>,
}

impl FaktorySession {
    pub(super) fn info(&mut self, out: &mut Outbox) {
        self.begin(Task::Info(Box::default()), Command::Stats, out);
    }

    pub(super) fn info_step(&mut self, now: Timestamp, mut gathered: Box<Gathered>, answer: Answer, out: &mut Outbox) {
        let after = match answer {
            Ok(Event::Stats { stats, .. }) => {
                gathered.stats = *stats;
                Some(Cursor::default())
            }
            Ok(Event::Queues { rows, next, .. }) => {
                let ours = rows.into_iter().filter(|row| row.kind == QueueKind::Work && is_queue_name(&row.name));
                gathered.queues.extend(ours.map(|row| (row.name.clone(), row.jobs(PlaceKind::Ready).into())));
                next
            }
            Ok(_) => None,
            Err(why) => return refusal::write(why, out.bytes()),
        };
        match after {
            Some(after) => {
                self.task = Some(Task::Info(gathered));
                self.ask(Ask::Step, Command::ListQueues { after, limit: PAGE_ROWS }, out);
            }
            None => reply::bulk(self.info_text(now, &gathered).write().as_bytes(), out.bytes()),
        }
    }

    fn info_text<'a>(&'a self, now: Timestamp, gathered: &'a Gathered) -> InfoText<'a> {
        let Gathered { stats, queues } = gathered;
        let ours = stats.of(Origin::FAKTORY);
        let OriginStats { totals, .. } = ours;
        let jobs = |place: PlaceKind| ours.places.get(place as usize).copied().unwrap_or_default();
        let shared = &self.settings.shared;
        InfoText {
            now_ms: now.0,
            queues,
            dead: Chore { size: jobs(PlaceKind::Dead), done: totals.purged },
            retries: Chore { size: jobs(PlaceKind::Retrying), done: totals.retried },
            scheduled: Chore { size: jobs(PlaceKind::Scheduled), done: totals.released },
            working: Chore { size: jobs(PlaceKind::Leased), done: totals.timed_out },
            workers: Chore { size: stats.workers.into(), done: totals.dismissed },
            total_failures: totals.failed,
            total_processed: totals.succeeded + totals.failed,
            description: &self.settings.description,
            faktory_version: FAKTORY_VERSION,
            windlass_version: env!("CARGO_PKG_VERSION"),
            uptime_s: shared.uptime_s(now),
            connections: shared.connections(),
            command_count: shared.commands(),
            used_memory_mb: (self.settings.memory_mb)(),
            misfits: stats.totals.misfits,
        }
    }
}
