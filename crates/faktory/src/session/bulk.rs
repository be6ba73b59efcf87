//! PUSHB: many jobs in one line. The list goes to the engine in parts of bounded size, one visit for each part.
//!
//! Spec: deployed servers. The reply is an object with an error text for each rejected job, by name; it is empty if all
//! jobs were accepted.

use std::collections::BTreeMap;

use bytes::Bytes;
use windlass_engine::JobCommand;

use super::ask::Ask;
use super::push::{Pushed, new_job};
use super::{FaktorySpeaker, Talk, Task, readable};
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
    /// Jobs that the engine has not answered yet.
    open: usize,
    wrong: BTreeMap<Bytes, String>,
}

impl FaktorySpeaker {
    pub(super) fn push_bulk(&mut self, line: Bytes, talk: &mut Talk<'_>) {
        let text = match readable(&line) {
            std::borrow::Cow::Borrowed(_) => line.clone(),
            std::borrow::Cow::Owned(text) => Bytes::from(text),
        };
        match List::parse(&readable(&text), PART_MAX) {
            Ok(List { first, rest }) => {
                let mut bulk = Bulk {
                    text: text.clone(),
                    rest,
                    open: 0,
                    wrong: BTreeMap::new(),
                };
                self.push_part(&mut bulk, &first, talk);
                self.go_on(Box::new(bulk), talk);
            }
            Err(error) => reply::error(error, talk.bytes()),
        }
    }

    /// Pushes one part of the list.
    fn push_part(&mut self, bulk: &mut Bulk, units: &[Unit<'_>], talk: &mut Talk<'_>) {
        let at = Pushed::at(talk);
        for unit in units {
            match new_job(&self.settings, at, &bulk.text, unit) {
                Ok(job) => {
                    let (jid, bid) = (job.name.clone().unwrap_or_default(), job.batch.clone());
                    talk.ask(Ask::Listed { jid, bid }, JobCommand::Push(Box::new(job)));
                    bulk.open += 1;
                }
                Err(error) => bulk.is_wrong(Bytes::copy_from_slice(unit.jid.as_bytes()), error),
            }
        }
    }

    /// Pushes the next part that contains a valid job, or writes the reply.
    fn go_on(&mut self, mut bulk: Box<Bulk>, talk: &mut Talk<'_>) {
        while bulk.open == 0 {
            let Some(from) = bulk.rest else {
                return reply::bulk(&texts_object(&bulk.wrong), talk.bytes());
            };
            let text = bulk.text.clone();
            let text = readable(&text);
            let List { first, rest } = List::go_on(&text, from, PART_MAX);
            bulk.rest = rest;
            self.push_part(&mut bulk, &first, talk);
        }
        self.task = Some(Task::Bulk(bulk));
    }

    /// `wrong`: why this job was refused.
    pub(super) fn listed(&mut self, jid: Bytes, wrong: Option<String>, talk: &mut Talk<'_>) {
        let Some(Task::Bulk(mut bulk)) = self.task.take() else {
            return;
        };
        bulk.open -= 1;
        if let Some(wrong) = wrong {
            bulk.is_wrong(jid, wrong);
        }
        self.go_on(bulk, talk);
    }
}

impl Bulk {
    fn is_wrong(&mut self, jid: Bytes, error: String) {
        self.wrong.insert(Bytes::copy_from_slice(&jid), error);
    }
}
