//! INFO: the counters, as an object that clients and the server's own pages read.
//!
//! Rules: all keys of deployed servers, and `default_size` of older servers, which clients still read. Timers run when
//! they are due and not in rounds, so `cycles` and `wall_time_sec` are 0. Queues count jobs of all protocols, because
//! any client may fetch from them. All other counters are of jobs pushed over FWP, the same jobs that MUTATE and FLUSH
//! reach.
//!
//! INFO does not delay other clients, however many queues there are: it reads and writes them a page at a time, and
//! sends the reply in parts. Other clients get their turn between two parts.

use windlass_engine::{
    Cursor, JobId, JobRef, JobStateKind, Protocol, ProtocolStats, Query, QueueKind, QueueRow,
    Reply, Stats, Timestamp,
};

use super::ask::{Ask, Gathered, Leaving};
use super::counts::Counted;
use super::{FAKTORY_VERSION, FaktorySpeaker, Settings, Talk};
use crate::wire::{Chore, InfoText, is_queue_name, queue_member, reply};

/// Bytes of queues in one part of the reply.
const PART_BYTES: usize = 64 * 1024;

impl FaktorySpeaker {
    pub(super) fn info(talk: &mut Talk<'_>) {
        talk.ask(Ask::Info(Box::default()), Query::Stats);
    }

    pub(super) fn info_step(&self, mut gathered: Box<Gathered>, reply: Reply, talk: &mut Talk<'_>) {
        let mut after = None;
        if let Reply::Stats(stats) = reply {
            gathered.stats = *stats;
            after = Some(Cursor::default());
        } else if let Reply::Queues { rows, next, .. } = reply {
            rows.iter().for_each(|row| gathered.add(row));
            after = next;
        }
        match after {
            Some(after) => {
                talk.ask(
                    Ask::Info(gathered),
                    Query::Queues {
                        after,
                        limit: u32::MAX,
                    },
                );
            }
            None => self.begin_info(*gathered, talk),
        }
    }

    /// Starts the reply: all counters, and so its length, are known.
    fn begin_info(&self, gathered: Gathered, talk: &mut Talk<'_>) {
        let now = talk.now();
        let own = self.counted.as_ref();
        let text = InfoText {
            connections: own.map_or(0, Counted::connections),
            command_count: own.map_or(0, Counted::commands),
            ..info_text(&self.settings, &gathered, now, talk.wall(now))
        };
        let (begin, mut end) = (text.before_queues(), text.after_queues());
        reply::bulk_head(
            begin.len() + gathered.bytes.saturating_sub(1) + end.len(),
            talk.bytes(),
        );
        talk.bytes().extend_from_slice(begin.as_bytes());
        end.push_str("\r\n");
        Self::go_on_with_info(
            Leaving {
                members: gathered.members.into_values(),
                end,
            },
            talk,
        );
    }

    /// Sends one part. The trivial question to the engine lets other clients have their turn before the next part.
    pub(super) fn go_on_with_info(mut leaving: Leaving, talk: &mut Talk<'_>) {
        let mut bytes = 0;
        while bytes < PART_BYTES {
            let Some(member) = leaving.members.next() else {
                return talk.bytes().extend_from_slice(leaving.end.as_bytes());
            };
            bytes += member.len() + 1;
            talk.bytes().extend_from_slice(&member);
            if leaving.members.len() > 0 {
                talk.bytes().extend_from_slice(b",");
            }
        }
        talk.ask(Ask::Leaving(leaving), Query::Job(JobRef::Id(JobId(0))));
    }
}

/// The object, `now` in the engine's time and by the wall clock.
pub(super) fn info_text<'a>(
    settings: &'a Settings,
    gathered: &'a Gathered,
    now: Timestamp,
    wall: Timestamp,
) -> InfoText<'a> {
    let Gathered {
        stats,
        queues,
        waiting,
        waiting_in_default,
        ..
    } = gathered;
    let ours = stats.of(Protocol::FAKTORY);
    let ProtocolStats { totals, .. } = ours;
    let jobs = |state: JobStateKind| ours.places.get(state as usize).copied().unwrap_or_default();
    let Settings {
        section,
        shared,
        memory_mb,
        ..
    } = settings;
    InfoText {
        now_ms: wall.0,
        queues: *queues,
        waiting: *waiting,
        waiting_in_default: *waiting_in_default,
        dead: Chore {
            size: jobs(JobStateKind::Dead),
            done: totals.purged,
        },
        retries: Chore {
            size: jobs(JobStateKind::Retrying),
            done: totals.retried,
        },
        scheduled: Chore {
            size: jobs(JobStateKind::Scheduled),
            done: totals.released,
        },
        working: Chore {
            size: jobs(JobStateKind::Leased),
            done: totals.timed_out,
        },
        workers: Chore {
            size: stats.workers.into(),
            done: totals.workers_lost,
        },
        total_failures: totals.failed,
        total_processed: totals.succeeded + totals.failed,
        description: &section.description,
        faktory_version: FAKTORY_VERSION,
        windlass_version: env!("CARGO_PKG_VERSION"),
        uptime_s: shared.uptime_s(now),
        connections: shared.connections(),
        command_count: shared.commands(),
        used_memory_mb: memory_mb(),
        misfits: stats.totals.misfits,
    }
}

impl Gathered {
    /// All of it at once.
    pub(super) fn of(stats: Stats, rows: &[QueueRow]) -> Self {
        let mut gathered = Self {
            stats,
            ..Self::default()
        };
        rows.iter().for_each(|row| gathered.add(row));
        gathered
    }

    /// The text of each queue, by name.
    pub(super) fn members(&self) -> impl Iterator<Item = &[u8]> {
        self.members.values().map(AsRef::as_ref)
    }

    fn add(&mut self, row: &QueueRow) {
        // An operator's page, which has the same rows, sees spiderq's queues, too.
        if row.kind != QueueKind::Work || !is_queue_name(&row.name) {
            return;
        }
        // A parked job waits behind another one of its queue.
        let jobs = (row.jobs(JobStateKind::Ready) + row.jobs(JobStateKind::Parked)).into();
        let text = queue_member(&row.name, jobs);
        self.bytes += text.len() + 1;
        self.members.insert(row.name.clone(), text.into());
        self.queues += 1;
        self.waiting += jobs;
        if row.name == "default" {
            self.waiting_in_default = jobs;
        }
    }
}
