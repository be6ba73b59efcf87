//! SUBMIT_JOB and its variants, SUBMIT_JOB_EPOCH, SUBMIT_REDUCE_JOB: a job in, a handle out.
//!
//! Spec: `PROTOCOL`, "SUBMIT_JOB …", "SUBMIT_JOB_EPOCH", "SUBMIT_REDUCE_JOB …", "JOB_CREATED". A foreground job lives
//! with its waiting clients and is not written to disk. A background job is on disk before its handle is sent.

use bytes::Bytes;
use windlass_engine::{
    Backoff, Clash, JobCommand, JobId, KeyUntil, Listen, NewJob, Payload, Priority as Urgency,
    Protocol, Retry, Timestamp, Unique,
};

use super::ask::Ask;
use super::{GearmanSpeaker, Settings, Talk, unique};
use crate::config::Gearman;
use crate::wire::{Priority, Response, Submission};

/// The properties of a submission beside function, id and workload.
pub(super) struct Manner {
    pub(super) priority: Priority,
    pub(super) background: bool,
    pub(super) reducer: Bytes,
    pub(super) not_before: Option<Timestamp>,
}

impl Manner {
    pub(super) const fn new(priority: Priority, background: bool) -> Self {
        Self {
            priority,
            background,
            reducer: Bytes::new(),
            not_before: None,
        }
    }

    /// Background, normal priority. A time of 0, or one in the past, means at once.
    pub(super) fn at(seconds: u64) -> Self {
        let not_before = (seconds > 0).then(|| Timestamp(seconds.saturating_mul(1_000)));
        Self {
            not_before,
            ..Self::new(Priority::Normal, true)
        }
    }

    pub(super) fn reduce(reducer: Bytes, background: bool) -> Self {
        Self {
            reducer,
            ..Self::new(Priority::Normal, background)
        }
    }
}

impl GearmanSpeaker {
    pub(super) fn submit(&self, job: Submission, manner: Manner, talk: &mut Talk<'_>) {
        // The engine copies a small workload itself.
        let large = job.workload.len() > Payload::COPY_MAX;
        let workload = if large {
            talk.keep(&job.workload)
        } else {
            job.workload
        };
        let new = new_job(&self.settings, Submission { workload, ..job }, manner);
        talk.ask(Ask::Submit, JobCommand::Push(Box::new(new)));
    }

    pub(super) fn pushed(&self, job: JobId, talk: &mut Talk<'_>) {
        Response::JobCreated {
            handle: &self.handle(job),
        }
        .encode(talk.bytes());
    }
}

/// The new job of a submission.
pub(super) fn new_job(settings: &Settings, job: Submission, manner: Manner) -> NewJob {
    let Submission {
        function,
        unique,
        workload,
    } = job;
    let clash = |key| Unique {
        key,
        clash: Clash::Attach,
        until: KeyUntil::End,
    };
    NewJob {
        priority: urgency(manner.priority),
        durable: manner.background,
        listen: if manner.background {
            Listen::No
        } else {
            Listen::Yes
        },
        meta: unique::meta(&unique, &workload, &manner.reducer),
        unique: unique::key(&unique, &workload).map(clash),
        not_before: manner.not_before,
        retry: retry(&settings.section, manner.background),
        // The protocol cannot express a retry policy.
        retry_default: true,
        ..NewJob::new(Protocol::GEARMAN, function, workload)
    }
}

/// A background job without a unique id.
pub fn background(section: &Gearman, function: Bytes, workload: Bytes) -> NewJob {
    NewJob {
        retry: retry(section, true),
        retry_default: true,
        ..NewJob::new(Protocol::GEARMAN, function, workload)
    }
}

/// Gearman has three priorities, the engine nine.
const fn urgency(priority: Priority) -> Urgency {
    match priority {
        Priority::High => Urgency::clamped(7),
        Priority::Normal => Urgency::NORMAL,
        Priority::Low => Urgency::clamped(3),
    }
}

/// A failure is final. No client waits for a background job, so if configured it is kept for an operator.
const fn retry(section: &Gearman, background: bool) -> Retry {
    let failures_max = if background && section.keep_failed {
        -1
    } else {
        0
    };
    Retry {
        failures_max,
        losses_max: section.job_retries,
        backoff: Backoff::None,
    }
}
