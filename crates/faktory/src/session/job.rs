//! JOB: one job looked at, or taken back. Not specified, and not known to deployed servers.
//!
//! `JOB GET jid` answers a bulk string, an object, or the null bulk string if there is no such job; `waits_for` in it are the
//! protocols that have words for a job which others have none for; `JOB CANCEL jid` answers
//! `OK`. Of several jobs with the same name the one that is worked on is meant, else the oldest.

use bytes::Bytes;
use windlass_engine::{Command, Event, JobView, Origin, PlaceKind, Unfit};
use windlass_session::Outbox;

use super::fetch::{Source, job_ref};
use super::mutate::{source, whole};
use super::push::readable;
use super::{Answer, Ask, FaktorySession, Task, refusal};
use crate::wire::{JobText, Text, echo, reply};

impl FaktorySession {
    pub(super) fn job(&mut self, verb: &Bytes, jid: &Bytes, out: &mut Outbox) {
        let job = job_ref(&readable(jid));
        match verb.as_ref() {
            b"GET" => self.begin(Task::Look, Command::Look(job), out),
            b"CANCEL" => self.ask(Ask::Report(jid.clone()), Command::Cancel(job), out),
            _ => reply::error([b"no such JOB subcommand: ", echo(verb)].concat(), out.bytes()),
        }
    }

    pub(super) fn looked(answer: &Answer, out: &mut Outbox) {
        match answer {
            Ok(Event::Looked { job: Some(view), .. }) => {
                let text = job_text(view, out.skew_ms());
                reply::bulk(&text, out.bytes());
            }
            Ok(_) => reply::null(out.bytes()),
            Err(why) => refusal::write(*why, out.bytes()),
        }
    }
}

fn job_text(view: &JobView, skew_ms: i64) -> Vec<u8> {
    let job = &view.job;
    let body = Source { codec: view.codec, ..source(job, &view.queue) }.shown();
    let extra = job.extra.as_deref();
    let result = extra.and_then(|extra| {
        let by = extra.result_by.unwrap_or(job.origin);
        Some(windlass_bridge::result(by, Origin::FAKTORY, extra.result.as_deref()?))
    });
    let unit = Text::new(&body).map(|text| whole(job, text, skew_ms));
    let state = match job.place.kind() {
        PlaceKind::Ready => "enqueued",
        PlaceKind::Leased => "working",
        PlaceKind::Scheduled => "scheduled",
        PlaceKind::Retrying => "retrying",
        PlaceKind::Dead => "dead",
        PlaceKind::Shelved => "shelved",
        PlaceKind::Done if job.succeeded() == Some(true) => "success",
        PlaceKind::Done => "failed",
    };
    // Only a job that turned out not to suit some waits for others.
    let others = Unfit::SHARING.into_iter().filter(|origin| job.unfit != Unfit::NONE && !job.unfit.has(*origin));
    let waits_for: Vec<&str> = others.map(windlass_bridge::origin_name).collect();
    JobText {
        state,
        job: unit.as_deref(),
        attempts: job.attempts,
        failures: job.failures,
        reserved_until_ms: job.lease().map(|lease| lease.until.shifted(skew_ms).0),
        result: result.as_deref().filter(|result| !result.is_empty()),
        waits_for: &waits_for,
    }
    .write()
}
