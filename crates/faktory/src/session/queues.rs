//! QUEUE: pauses, resumes and removes queues, and reports how long the next job of each has waited.
//!
//! Rules: deployed servers. An unknown queue is not an error. `*` is all queues, a page at a time.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use windlass_engine::{Cursor, Filter, JobStateKind, Query, QueueCommand, Reply};

use super::ask::{Ask, Queues};
use super::{FaktorySpeaker, Talk, Task};
use crate::wire::{QueueRequest, echo, is_queue_name, reply, seconds_object};

/// Queues in one visit.
const PAGE_ROWS: u32 = 200;

const EVERY: &[u8] = b"*";

/// A LATENCY in progress.
#[derive(Debug)]
pub(super) struct Latency {
    /// Queues that remain.
    names: VecDeque<Bytes>,
    /// Queues that the engine has not answered yet.
    open: usize,
    ages: BTreeMap<Bytes, f64>,
}

impl FaktorySpeaker {
    pub(super) fn queue(&mut self, request: QueueRequest, talk: &mut Talk<'_>) {
        match request {
            QueueRequest::Pause(names) => self.each_queue(Some(true), names, talk),
            QueueRequest::Resume(names) => self.each_queue(Some(false), names, talk),
            QueueRequest::Remove(names) => self.each_queue(None, names, talk),
            QueueRequest::Latency(names) if names.iter().eq([EVERY]) => {
                reply::error("QUEUE LATENCY does not support wildcards", talk.bytes());
            }
            QueueRequest::Latency(names) => {
                let latency = Latency {
                    names: names.into(),
                    open: 0,
                    ages: BTreeMap::new(),
                };
                self.ask_ages(Box::new(latency), talk);
            }
            QueueRequest::Unknown(verb) => {
                reply::error(
                    [b"no such QUEUE subcommand: ", echo(&verb)].concat(),
                    talk.bytes(),
                );
            }
        }
    }

    // ---- pause, resume, remove -------------------------------------------------------------------------------------

    fn each_queue(&mut self, paused: Option<bool>, names: Vec<Bytes>, talk: &mut Talk<'_>) {
        let next = names.iter().any(|name| name == EVERY).then(Cursor::default);
        let names = names
            .into_iter()
            .filter(|name| is_queue_name(name))
            .collect();
        self.next_queue(
            Box::new(Queues {
                paused,
                names,
                next,
            }),
            talk,
        );
    }

    /// Handles the next name, then the next page of the list; replies at the end.
    pub(super) fn next_queue(&mut self, mut queues: Box<Queues>, talk: &mut Talk<'_>) {
        match (queues.paused, queues.names.len()) {
            (Some(paused), count @ 1..) => {
                let count = count.min(PAGE_ROWS as usize);
                for queue in queues.names.drain(..count) {
                    talk.ask(Ask::Pause, QueueCommand::Pause { queue, paused });
                }
                self.task = Some(Task::Pause(queues, count));
            }
            (None, 1..) => {
                let queue = queues.names.pop_front().unwrap_or_default();
                remove(queues, queue, talk);
            }
            (_, 0) => match queues.next.take() {
                Some(after) => talk.ask(
                    Ask::Queues(queues),
                    Query::Queues {
                        after,
                        limit: PAGE_ROWS,
                    },
                ),
                None => reply::ok(talk.bytes()),
            },
        }
    }

    pub(super) fn queues_listed(
        &mut self,
        mut queues: Box<Queues>,
        reply: Reply,
        talk: &mut Talk<'_>,
    ) {
        if let Reply::Queues { rows, next, .. } = reply {
            let ours = rows.into_iter().filter(|row| is_queue_name(&row.name));
            queues.names.extend(ours.map(|row| row.name));
            queues.next = next;
        }
        self.next_queue(queues, talk);
    }

    pub(super) fn paused(&mut self, talk: &mut Talk<'_>) {
        match self.task.take() {
            Some(Task::Pause(queues, due @ 2..)) => self.task = Some(Task::Pause(queues, due - 1)),
            Some(Task::Pause(queues, _)) => self.next_queue(queues, talk),
            Some(Task::Bulk(_) | Task::Latency(_)) | None => {}
        }
    }

    pub(super) fn queue_removed(
        &mut self,
        queues: Box<Queues>,
        queue: Bytes,
        reply: &Reply,
        talk: &mut Talk<'_>,
    ) {
        if matches!(reply, Reply::Mutated { next: Some(_), .. }) {
            remove(queues, queue, talk);
        } else {
            self.next_queue(queues, talk);
        }
    }

    // ---- latency ---------------------------------------------------------------------------------------------------

    fn ask_ages(&mut self, mut latency: Box<Latency>, talk: &mut Talk<'_>) {
        let count = latency.names.len().min(PAGE_ROWS as usize);
        for name in latency.names.drain(..count) {
            let filter = Filter {
                state: Some(JobStateKind::Ready),
                queue: Some(name.clone()),
                ..Filter::default()
            };
            talk.ask(
                Ask::Age(name),
                Query::Jobs {
                    filter: filter.into(),
                    after: Cursor::default(),
                    limit: 1,
                },
            );
        }
        latency.open = count;
        match count {
            0 => reply::bulk(&seconds_object(&latency.ages), talk.bytes()),
            _ => self.task = Some(Task::Latency(latency)),
        }
    }

    pub(super) fn age(&mut self, queue: Bytes, reply: &Reply, talk: &mut Talk<'_>) {
        let Some(Task::Latency(mut latency)) = self.task.take() else {
            return;
        };
        let first = if let Reply::Jobs { rows, .. } = reply {
            rows.first()
        } else {
            None
        };
        let waited_ms = first.map_or(0, |view| talk.wall(talk.now()).ms_since(view.job.ready_at));
        #[expect(
            clippy::cast_precision_loss,
            reason = "milliseconds of many thousand years are exact"
        )]
        latency.ages.insert(queue, waited_ms as f64 / 1_000.0);
        latency.open -= 1;
        if latency.open == 0 {
            self.ask_ages(latency, talk);
        } else {
            self.task = Some(Task::Latency(latency));
        }
    }
}

/// Removes a part of the queue.
fn remove(queues: Box<Queues>, queue: Bytes, talk: &mut Talk<'_>) {
    talk.ask(
        Ask::Remove(queues, queue.clone()),
        QueueCommand::Remove {
            queue,
            only_idle: false,
        },
    );
}
