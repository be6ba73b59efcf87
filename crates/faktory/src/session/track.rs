//! TRACK: progress of a job. Its worker sets it, any client reads it.
//!
//! Rules: the commercial edition's. Only jobs with `custom.track` have progress; their end remains readable for half an hour.

use bytes::Bytes;
use windlass_engine::{Command, JobCommand, JobStateKind, JobView, Query, Reply, Timestamp};
use windlass_session::Outbox;

use super::fetch::job_ref;
use super::push::readable;
use super::refusal;
use super::{Answer, Ask, FaktorySession, Task};
use crate::wire::{TrackSet, TrackText, echo, reply};

/// How long a job's end remains readable, in milliseconds.
pub(super) const KEEP_MS: u64 = 1_800_000;

/// The longest extension of a reservation, in milliseconds from the command.
const RESERVE_MS_MAX: u64 = 86_400_000;

impl FaktorySession {
    pub(super) fn track(&mut self, now: Timestamp, verb: &Bytes, rest: &Bytes, out: &mut Outbox) {
        match verb.as_ref() {
            b"GET" => self.begin(Task::Track(rest.clone()), Query::Job(job_ref(&readable(rest))), out),
            b"SET" => {
                let Some(TrackSet { jid, percent, desc, reserve_until_ms }) = TrackSet::parse(&readable(rest)) else {
                    return reply::error([b"invalid TRACK SET ", echo(rest)].concat(), out.bytes());
                };
                let longest = now.after_ms(RESERVE_MS_MAX);
                let track = Command::Job(JobCommand::Track {
                    job: job_ref(&jid),
                    progress: percent.map(|percent| (percent, 100)),
                    text: desc.map(Bytes::from),
                    until: reserve_until_ms.map(|until| out.by_engine(Timestamp(until)).min(longest)),
                });
                self.ask(Ask::Report(jid.into()), track, out);
            }
            _ => reply::error([b"no such TRACK subcommand: ", echo(verb)].concat(), out.bytes()),
        }
    }

    pub(super) fn tracked(jid: &[u8], answer: &Answer, out: &mut Outbox) {
        match answer {
            Ok(Reply::Looked { job: Some(view), .. }) => reply::bulk(&text(jid, view), out.bytes()),
            Ok(_) => reply::bulk(&unknown(jid).write(), out.bytes()),
            Err(why) => refusal::write(*why, out.bytes()),
        }
    }
}

fn unknown(jid: &[u8]) -> TrackText<'_> {
    TrackText { jid: readable(jid), percent: None, desc: "".into(), state: "unknown", updated_at_ms: None }
}

fn text(jid: &[u8], view: &JobView) -> Vec<u8> {
    let job = &view.job;
    let extra = job.extra.as_deref();
    let Some(track) = extra.and_then(|extra| extra.track) else { return unknown(jid).write() };
    let progress = extra.and_then(|extra| extra.progress.as_ref());
    // A worker of another protocol may count in other units.
    let percent = progress.and_then(|progress| {
        let hundredths = u64::from(progress.numerator) * 100;
        hundredths
            .checked_div(progress.denominator.into())
            .map(|percent| u32::try_from(percent.min(100)).unwrap_or(100))
    });
    let state = match (job.state.kind(), job.succeeded()) {
        (JobStateKind::Leased, _) => "working",
        (JobStateKind::Retrying, _) => "failed",
        (JobStateKind::Dead, _) => "dead",
        (JobStateKind::Done, Some(true)) => "success",
        (JobStateKind::Done, _) => "failed",
        (JobStateKind::Ready | JobStateKind::Scheduled | JobStateKind::Parked, _) => "enqueued",
    };
    TrackText {
        percent,
        desc: progress.map(|progress| String::from_utf8_lossy(&progress.text)).unwrap_or_default(),
        state,
        updated_at_ms: Some(track.updated_at.0),
        ..unknown(jid)
    }
    .write()
}
