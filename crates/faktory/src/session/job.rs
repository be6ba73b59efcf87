//! JOB: shows or cancels one job. Neither in the specification nor on deployed servers.
//!
//! `JOB GET jid` returns an object as a bulk string, or the null bulk string for an unknown job. Its `waits_for` lists
//! the protocols that can express the job, if some cannot. `JOB CANCEL jid` returns `OK`. If several jobs have the same
//! name, the leased one counts, else the oldest.

use bytes::Bytes;
use windlass_engine::{JobCommand, JobStateKind, JobView, Protocol, Query, Reply, Unfit};

use super::ask::Ask;
use super::shown::{Source, source, whole};
use super::{FaktorySpeaker, Talk, job_ref, readable};
use crate::bridge::result;
use crate::wire::{JobText, Text, echo, reply, time_text};
use windlass_bridge::Bridge;

impl FaktorySpeaker {
    pub(super) fn job(verb: &Bytes, jid: &Bytes, talk: &mut Talk<'_>) {
        let job = job_ref(&readable(jid));
        match verb.as_ref() {
            b"GET" => talk.ask(Ask::Look, Query::Job(job)),
            b"CANCEL" => talk.ask(Ask::Report(jid.clone()), JobCommand::Cancel(job)),
            _ => reply::error(
                [b"no such JOB subcommand: ", echo(verb)].concat(),
                talk.bytes(),
            ),
        }
    }

    pub(super) fn looked(&self, reply: &Reply, talk: &mut Talk<'_>) {
        let Reply::Looked {
            job: Some(view), ..
        } = reply
        else {
            return reply::null(talk.bytes());
        };
        put_job(&self.settings.bridge, view, talk);
    }
}

fn put_job(bridge: &Bridge, view: &JobView, talk: &mut Talk<'_>) {
    let (job, skew_ms) = (&view.job, talk.skew_ms());
    let body = Source {
        codec: view.codec,
        ..source(job, &view.queue)
    }
    .shown(bridge);
    let extra = job.extra.as_deref();
    let result = extra.and_then(|extra| {
        let by = extra.result_by.unwrap_or(job.protocol);
        Some(result(bridge, by, extra.result.as_deref()?))
    });
    let unit = Text::new(&body).map(|text| whole(job, text, skew_ms));
    let state = match job.state.kind() {
        JobStateKind::Ready => "enqueued",
        JobStateKind::Leased => "working",
        JobStateKind::Scheduled => "scheduled",
        JobStateKind::Retrying => "retrying",
        JobStateKind::Dead => "dead",
        JobStateKind::Parked => "shelved",
        JobStateKind::Done if job.succeeded() == Some(true) => "success",
        JobStateKind::Done => "failed",
    };
    // Empty unless a conversion of this job has failed.
    let others = Protocol::sharing()
        .filter(|protocol| job.unfit != Unfit::NONE && !job.unfit.has(*protocol));
    let waits_for: Vec<&str> = others.map(|protocol| bridge.name(protocol)).collect();
    let text = JobText {
        state,
        attempts: job.attempts,
        failures: job.failures,
        reserved_until: job
            .lease()
            .map(|lease| time_text(lease.until.shifted(skew_ms).0)),
        waits_for: &waits_for,
        result: result
            .as_deref()
            .filter(|result| !result.is_empty())
            .map(readable),
        job: unit
            .as_deref()
            .and_then(|unit| serde_json::from_slice(unit).ok()),
    };
    reply::json(&text, talk.bytes());
}
