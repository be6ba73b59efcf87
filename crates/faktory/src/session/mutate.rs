//! MUTATE: changes all jobs of a set that match a filter, a bounded number in each visit to the engine.
//!
//! Rules: deployed servers. The glob is matched with the text as a worker would get it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{
    BulkCommand, Codec, Cursor, Filter, Job, JobState, JobStateKind, Mutation, Protocol, Reply, Test,
};

use super::ask::Ask;
use super::fetch::{Source, failure_text};
use super::push::readable;
use super::{Answer, FaktorySpeaker, Talk, refusal};
use crate::wire::{Glob, Mutate, MutateCmd, MutateTarget, Text, number_of, reply};
use windlass_bridge::Bridge;

/// Jobs changed in one visit. The engine examines more, within its own bound.
const PAGE_JOBS: u32 = 100;

/// Names in one visit.
const NAMES_MAX: usize = 500;

/// A MUTATE in progress.
#[derive(Debug)]
pub struct Mutating {
    filter: Filter,
    action: Mutation,
    /// Names that remain.
    names: VecDeque<Bytes>,
    /// The numbers in names that the daemon gave. They come last, because they need a pass over the whole set.
    numbers: BTreeSet<u64>,
}

impl FaktorySpeaker {
    pub(super) fn mutate(text: Option<&Bytes>, talk: &mut Talk<'_>) {
        let Some(text) = text else { return reply::error("invalid format", talk.bytes()) };
        let mutate = match Mutate::parse(&readable(text)) {
            Ok(mutate) => mutate,
            Err(error) => return reply::error(error.to_string(), talk.bytes()),
        };
        let action = match mutate.cmd {
            MutateCmd::Clear | MutateCmd::Discard => Mutation::Discard,
            MutateCmd::Kill => Mutation::Kill,
            MutateCmd::Requeue => Mutation::Requeue,
        };
        let state = match mutate.target {
            MutateTarget::Scheduled => JobStateKind::Scheduled,
            MutateTarget::Retries => JobStateKind::Retrying,
            MutateTarget::Dead => JobStateKind::Dead,
        };
        let filter = Filter {
            state: Some(state),
            protocol: Some(Protocol::FAKTORY),
            test: test(mutate.regexp.as_deref(), mutate.jobtype, talk.skew_ms()),
            ..Filter::default()
        };
        let numbers = mutate.jids.iter().filter_map(|jid| number_of(jid)).collect();
        let names = mutate.jids.into_iter().filter(|jid| number_of(jid).is_none()).map(Bytes::from).collect();
        let mut mutating = Box::new(Mutating { filter, action, names, numbers });
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
        talk.ask(Ask::Mutate(mutating), BulkCommand::Mutate { filter: filter.into(), action, after, limit: PAGE_JOBS });
    }

    pub(super) fn mutate_step(mut mutating: Box<Mutating>, answer: &Answer, talk: &mut Talk<'_>) {
        match answer {
            Ok(Reply::Mutated { next: Some(after), .. }) => Self::mutate_some(mutating, *after, talk),
            Ok(_) if !mutating.names.is_empty() => {
                mutating.filter.names.clear();
                Self::mutate_some(mutating, Cursor::default(), talk);
            }
            Ok(_) if !mutating.numbers.is_empty() => {
                mutating.turn_to_numbers();
                Self::mutate_some(mutating, Cursor::default(), talk);
            }
            Ok(_) => reply::ok(talk.bytes()),
            Err(why) => refusal::write(*why, talk.bytes()),
        }
    }
}

impl Mutating {
    /// Continues with jobs that are named by number, if there are any.
    fn turn_to_numbers(&mut self) {
        let numbers = std::mem::take(&mut self.numbers);
        self.filter.names.clear();
        if !numbers.is_empty() {
            // An explicit name selects a job of any protocol.
            self.filter.protocol = None;
            self.filter.test = Some(Test(Arc::new(move |job| job.name().is_empty() && numbers.contains(&job.id.0))));
        }
    }
}

/// The test of a job's text, if the filter has one.
fn test(regexp: Option<&str>, jobtype: Option<String>, skew_ms: i64) -> Option<Test> {
    let glob = regexp.map(|pattern| Glob::new(pattern.as_bytes()));
    if glob.is_none() && jobtype.is_none() {
        return None;
    }
    Some(Test(Arc::new(move |job| {
        // The filter admits only FWP's jobs, whose text contains the queue.
        let body = source(job, b"").shown(&Bridge::default());
        let Some(text) = Text::new(&body) else { return false };
        jobtype.as_deref().is_none_or(|jobtype| text.has_jobtype(jobtype))
            && glob.as_ref().is_none_or(|glob| glob.matches(&whole(job, text, skew_ms)))
    })))
}

/// The source of a job's text.
pub(super) fn source<'a>(job: &'a Job, queue: &'a [u8]) -> Source<'a> {
    Source {
        id: job.id,
        protocol: job.protocol,
        named: !job.name().is_empty(),
        queue,
        body: job.body(),
        codec: Codec::default(),
        key: job.key().unwrap_or_default(),
        priority: job.priority,
        retries: job.retry.failures_max,
        since: job.ready_at,
    }
}

/// A job's text as a worker would get it. `skew_ms` is the wall clock minus the engine's.
pub(super) fn whole(job: &Job, text: Text<'_>, skew_ms: i64) -> Vec<u8> {
    let failure = job.extra.as_deref().and_then(|extra| extra.failure.as_deref());
    let tried_at = if let JobState::Retrying(at) = job.state { at.shifted(skew_ms) } else { job.ready_at };
    let failure = failure_text(failure, job.failures, job.retry.failures_max, tried_at);
    text.whole(failure.as_ref(), was_enqueued(job).then_some(job.ready_at.0))
}

/// Whether the job has ever been ready.
const fn was_enqueued(job: &Job) -> bool {
    job.attempts > 0 || matches!(job.state, JobState::Ready | JobState::Leased(_))
}
