//! QUEUE: pauses, resumes and removes queues, and reports how long the next job of each has waited.
//!
//! Rules: deployed servers. An unknown queue is not an error. `*` is all queues, a page at a time.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use windlass_engine::{Cursor, Filter, JobStateKind, Query, QueueCommand, QueueKind, Refusal, Reply, Thing, Timestamp};
use windlass_session::Outbox;

use super::{Answer, Ask, FaktorySession, Task, refusal};
use crate::wire::{QueueRequest, echo, is_queue_name, reply, seconds_object};

/// Queues in one visit.
const PAGE_ROWS: u32 = 200;

const EVERY: &[u8] = b"*";

/// A PAUSE, RESUME or REMOVE in progress.
#[derive(Debug)]
pub(super) struct Queues {
    what: What,
    /// Queues that remain.
    names: VecDeque<Bytes>,
    /// The next page of the list of all queues.
    next: Option<Cursor>,
    /// The last command to the engine.
    asked: Asked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Pause(bool),
    Remove,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    /// List queues.
    List,
    /// Pause or resume; the number of answers that are due.
    Pause(usize),
    /// Remove this queue. Its jobs go a page at a time, the queue itself with the last page.
    Remove(Bytes),
}

/// A LATENCY in progress.
#[derive(Debug)]
pub(super) struct Latency {
    asked: VecDeque<Bytes>,
    names: VecDeque<Bytes>,
    ages: BTreeMap<Bytes, f64>,
}

impl FaktorySession {
    pub(super) fn queue(&mut self, request: QueueRequest, out: &mut Outbox) {
        match request {
            QueueRequest::Pause(names) => self.each_queue(What::Pause(true), names, out),
            QueueRequest::Resume(names) => self.each_queue(What::Pause(false), names, out),
            QueueRequest::Remove(names) => self.each_queue(What::Remove, names, out),
            QueueRequest::Latency(names) if names.iter().eq([EVERY]) => {
                reply::error("QUEUE LATENCY does not support wildcards", out.bytes());
            }
            QueueRequest::Latency(names) => {
                let latency = Latency { asked: VecDeque::new(), names: names.into(), ages: BTreeMap::new() };
                self.ask_ages(Box::new(latency), out);
            }
            QueueRequest::Unknown(verb) => {
                reply::error([b"no such QUEUE subcommand: ", echo(&verb)].concat(), out.bytes());
            }
        }
    }

    // ---- pause, resume, remove -------------------------------------------------------------------------------------

    fn each_queue(&mut self, what: What, names: Vec<Bytes>, out: &mut Outbox) {
        let next = names.iter().any(|name| name == EVERY).then(Cursor::default);
        let names = names.into_iter().filter(|name| is_queue_name(name)).collect();
        self.next_queue(Box::new(Queues { what, names, next, asked: Asked::List }), out);
    }

    /// Handles the next name, then the next page of the list; replies at the end.
    fn next_queue(&mut self, mut queues: Box<Queues>, out: &mut Outbox) {
        let what = queues.what;
        match (what, queues.names.len()) {
            (What::Pause(paused), count @ 1..) => {
                let count = count.min(PAGE_ROWS as usize);
                for queue in queues.names.drain(..count) {
                    self.ask(Ask::Step, QueueCommand::Pause { queue, paused }, out);
                }
                queues.asked = Asked::Pause(count);
                self.task = Some(Task::Queues(queues));
            }
            (What::Remove, 1..) => {
                let queue = queues.names.pop_front().unwrap_or_default();
                self.remove_queue(queues, queue, out);
            }
            (_, 0) => match queues.next.take() {
                Some(after) => {
                    queues.asked = Asked::List;
                    self.begin(Task::Queues(queues), Query::Queues { after, limit: PAGE_ROWS }, out);
                }
                None => reply::ok(out.bytes()),
            },
        }
    }

    fn remove_queue(&mut self, mut queues: Box<Queues>, queue: Bytes, out: &mut Outbox) {
        queues.asked = Asked::Remove(queue.clone());
        self.begin(Task::Queues(queues), QueueCommand::Remove { queue, only_idle: false }, out);
    }

    pub(super) fn queues_step(&mut self, mut queues: Box<Queues>, answer: Answer, out: &mut Outbox) {
        match (queues.asked.clone(), answer) {
            (Asked::List, Ok(Reply::Queues { rows, next, .. })) => {
                let ours = rows.into_iter().filter(|row| row.kind == QueueKind::Work && is_queue_name(&row.name));
                queues.names.extend(ours.map(|row| row.name));
                queues.next = next;
            }
            (Asked::Pause(left @ 2..), Ok(_)) => {
                queues.asked = Asked::Pause(left - 1);
                self.task = Some(Task::Queues(queues));
                return;
            }
            (Asked::Remove(queue), Ok(Reply::Mutated { next: Some(_), .. })) => {
                return self.remove_queue(queues, queue, out);
            }
            (Asked::Remove(_), Err(Refusal::NotFound(Thing::Queue))) | (_, Ok(_)) => {}
            (_, Err(why)) => return self.give_up(&queues.asked, why, out),
        }
        self.next_queue(queues, out);
    }

    /// Replies with an error, and ignores the answers that are still due.
    fn give_up(&mut self, asked: &Asked, why: Refusal, out: &mut Outbox) {
        refusal::write(why, out.bytes());
        if let Asked::Pause(left @ 2..) = asked {
            self.task = Some(Task::Ignore(left - 1));
        }
    }

    // ---- latency ---------------------------------------------------------------------------------------------------

    fn ask_ages(&mut self, mut latency: Box<Latency>, out: &mut Outbox) {
        let count = latency.names.len().min(PAGE_ROWS as usize);
        for name in latency.names.drain(..count) {
            let filter = Filter { state: Some(JobStateKind::Ready), queue: Some(name.clone()), ..Filter::default() };
            self.ask(Ask::Step, Query::Jobs { filter, after: Cursor::default(), limit: 1 }, out);
            latency.asked.push_back(name);
        }
        match latency.asked.is_empty() {
            true => reply::bulk(&seconds_object(&latency.ages), out.bytes()),
            false => self.task = Some(Task::Latency(latency)),
        }
    }

    pub(super) fn latency_step(
        &mut self,
        now: Timestamp,
        mut latency: Box<Latency>,
        answer: &Answer,
        out: &mut Outbox,
    ) {
        let name = latency.asked.pop_front().unwrap_or_default();
        let first = match answer {
            Ok(Reply::Jobs { rows, .. }) => rows.first(),
            Ok(_) | Err(_) => None,
        };
        let waited_ms = first.map_or(0, |view| out.wall(now).ms_since(view.job.ready_at));
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of many thousand years are exact")]
        latency.ages.insert(Bytes::copy_from_slice(&name), waited_ms as f64 / 1_000.0);
        if latency.asked.is_empty() {
            self.ask_ages(latency, out);
        } else {
            self.task = Some(Task::Latency(latency));
        }
    }
}
