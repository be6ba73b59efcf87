//! MUTATE: changes all jobs of a set that match a filter, a bounded number in each visit to the engine.
//!
//! Rules: deployed servers. The glob is matched with the text as a worker would get it.

use bytes::Bytes;
use windlass_engine::{BulkCommand, Condition, Cursor, Filter, Glob, JobId, Protocol, Reply};

use super::ask::{Ask, Mutating};
use super::{FaktorySpeaker, Talk, readable};
use crate::wire::{Mutate, number_of, reply};

/// Jobs changed in one visit. The engine examines more, within its own bound.
const PAGE_JOBS: u32 = 100;

/// Names, or numbers, in one command.
const NAMES_MAX: usize = 500;

impl FaktorySpeaker {
    pub(super) fn mutate(text: Option<&Bytes>, talk: &mut Talk<'_>) {
        let Some(text) = text else {
            return reply::error("invalid format", talk.bytes());
        };
        let mutate = match Mutate::parse(&readable(text)) {
            Ok(mutate) => mutate,
            Err(error) => return reply::error(error, talk.bytes()),
        };
        let filter = Filter {
            state: Some(mutate.state),
            protocol: Some(Protocol::FAKTORY),
            conditions: conditions(mutate.regexp.as_deref(), mutate.jobtype),
            ..Filter::default()
        };
        let numbers = mutate
            .jids
            .iter()
            .filter_map(|jid| number_of(jid))
            .collect();
        let names = mutate
            .jids
            .into_iter()
            .filter(|jid| number_of(jid).is_none())
            .map(Bytes::from)
            .collect();
        let mut mutating = Box::new(Mutating {
            filter,
            action: mutate.action,
            names,
            numbers,
        });
        if mutating.names.is_empty() {
            mutating.turn_to_numbers();
        }
        Self::mutate_some(mutating, Cursor::default(), talk);
    }

    fn mutate_some(mut mutating: Box<Mutating>, after: Cursor, talk: &mut Talk<'_>) {
        if mutating.filter.names.is_empty() {
            let count = mutating.names.len().min(NAMES_MAX);
            mutating.filter.names = mutating.names.drain(..count).collect();
        }
        let (filter, action) = (mutating.filter.clone(), mutating.action);
        talk.ask(
            Ask::Mutate(mutating),
            BulkCommand::Mutate {
                filter: filter.into(),
                action,
                after,
                limit: PAGE_JOBS,
            },
        );
    }

    pub(super) fn mutate_step(mut mutating: Box<Mutating>, reply: &Reply, talk: &mut Talk<'_>) {
        if let Reply::Mutated {
            next: Some(after), ..
        } = reply
        {
            return Self::mutate_some(mutating, *after, talk);
        }
        if mutating.names.is_empty() && mutating.numbers.is_empty() {
            return reply::ok(talk.bytes());
        }
        match mutating.names.is_empty() {
            true => mutating.turn_to_numbers(),
            false => mutating.filter.names.clear(),
        }
        Self::mutate_some(mutating, Cursor::default(), talk);
    }
}

impl Mutating {
    /// Continues with the next jobs that are named by number, if there are any.
    fn turn_to_numbers(&mut self) {
        self.filter.names.clear();
        if !self.numbers.is_empty() {
            let next = std::iter::from_fn(|| self.numbers.pop_first()).take(NAMES_MAX);
            self.filter.ids = next.map(JobId).collect();
            // An explicit name selects a job of any protocol.
            self.filter.protocol = None;
            self.filter.conditions = vec![Condition::Unnamed];
        }
    }
}

/// The conditions on a job's text. The filter admits only FWP's jobs.
fn conditions(regexp: Option<&str>, jobtype: Option<String>) -> Vec<Condition> {
    let jobtype = jobtype.map(|jobtype| Condition::Type(jobtype.into()));
    let glob = regexp.map(|pattern| Condition::Text(Glob::new(pattern.as_bytes())));
    jobtype.into_iter().chain(glob).collect()
}
