//! PUSHB: many jobs in one line. The list goes to the engine in parts of bounded size, one visit for each part.
//!
//! Spec: deployed servers. The reply is an object with an error text for each rejected job, by name; it is empty if all jobs
//! were accepted.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use windlass_engine::{JobCommand, Refusal, Thing, Timestamp};
use windlass_session::Outbox;

use super::batch::no_such;
use super::push::{Pushed, new_job, readable};
use super::refusal;
use super::{Answer, Ask, FaktorySession, Task};
use crate::wire::{List, Unit, reply, texts_object};

/// Jobs in one part of a list.
const PART_MAX: usize = 4_096;

/// A list that is being pushed.
#[derive(Debug)]
pub(super) struct Bulk {
    /// The whole list.
    text: Bytes,
    /// Offset of the first job that was not read yet.
    rest: Option<usize>,
    /// Names and batches of the jobs that the engine has not answered yet.
    asked: VecDeque<(Bytes, Option<Bytes>)>,
    wrong: BTreeMap<Bytes, String>,
}

impl FaktorySession {
    pub(super) fn push_bulk(&mut self, now: Timestamp, line: Bytes, out: &mut Outbox) {
        let text = match readable(&line) {
            std::borrow::Cow::Borrowed(_) => line.clone(),
            std::borrow::Cow::Owned(text) => Bytes::from(text),
        };
        match List::parse(&readable(&text), PART_MAX) {
            Ok(List { first, rest }) => {
                let mut bulk = Bulk { text: text.clone(), rest, asked: VecDeque::new(), wrong: BTreeMap::new() };
                self.push_part(now, &mut bulk, &first, out);
                self.go_on(now, Box::new(bulk), out);
            }
            Err(error) => reply::error(error.to_string(), out.bytes()),
        }
    }

    /// Pushes one part of the list.
    fn push_part(&mut self, now: Timestamp, bulk: &mut Bulk, units: &[Unit<'_>], out: &mut Outbox) {
        let at = Pushed::at(now, out);
        for unit in units {
            match new_job(&self.settings, at, &bulk.text, unit) {
                Ok(job) => {
                    bulk.asked.push_back((job.name.clone().unwrap_or_default(), job.batch.clone()));
                    self.ask(Ask::Step, JobCommand::Push(Box::new(job)), out);
                }
                Err(error) => bulk.is_wrong(Bytes::copy_from_slice(unit.jid.as_bytes()), error.to_string()),
            }
        }
    }

    /// Pushes the next part that contains a valid job, or writes the reply.
    fn go_on(&mut self, now: Timestamp, mut bulk: Box<Bulk>, out: &mut Outbox) {
        while bulk.asked.is_empty() {
            let Some(from) = bulk.rest else { return reply::bulk(&texts_object(&bulk.wrong), out.bytes()) };
            let text = bulk.text.clone();
            let text = readable(&text);
            let List { first, rest } = List::go_on(&text, from, PART_MAX);
            bulk.rest = rest;
            self.push_part(now, &mut bulk, &first, out);
        }
        self.task = Some(Task::Bulk(bulk));
    }

    pub(super) fn bulk_step(&mut self, now: Timestamp, mut bulk: Box<Bulk>, answer: &Answer, out: &mut Outbox) {
        let (jid, bid) = bulk.asked.pop_front().unwrap_or_default();
        match (answer, bid) {
            (Ok(_), _) => {}
            (Err(Refusal::NotFound(Thing::Batch)), Some(bid)) => bulk.is_wrong(jid, no_such(&bid)),
            (Err(why), _) => bulk.is_wrong(jid, refusal::text(*why)),
        }
        self.go_on(now, bulk, out);
    }
}

impl Bulk {
    fn is_wrong(&mut self, jid: Bytes, error: String) {
        self.wrong.insert(Bytes::copy_from_slice(&jid), error);
    }
}
