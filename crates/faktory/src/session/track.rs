//! TRACK: progress of a job. Its worker sets it, any client reads it.
//!
//! Rules: the commercial edition's. Only jobs with `custom.track` have progress; their end remains readable for half an
//! hour.

use bytes::Bytes;
use windlass_engine::{Command, JobCommand, JobStateKind, JobView, Query, Reply, Timestamp};

use super::ask::Ask;
use super::{FaktorySpeaker, Talk, job_ref, readable};
use crate::wire::{TrackSet, TrackText, echo, reply, time_text};

impl FaktorySpeaker {
    pub(super) fn track(&self, verb: &Bytes, rest: &Bytes, talk: &mut Talk<'_>) {
        match verb.as_ref() {
            b"GET" => talk.ask(
                Ask::Track(rest.clone()),
                Query::Job(job_ref(&readable(rest))),
            ),
            b"SET" => {
                let Some(TrackSet {
                    jid,
                    percent,
                    desc,
                    reserve_until_ms,
                }) = TrackSet::parse(&readable(rest))
                else {
                    return reply::error(
                        [b"invalid TRACK SET ", echo(rest)].concat(),
                        talk.bytes(),
                    );
                };
                let longest = talk.now().after_ms(
                    self.settings
                        .section
                        .reserve_max_s()
                        .unsigned_abs()
                        .saturating_mul(1_000),
                );
                let track = Command::Job(JobCommand::Track {
                    job: job_ref(&jid),
                    progress: percent.map(|percent| (percent, 100)),
                    text: desc.map(Bytes::from),
                    until: reserve_until_ms
                        .map(|until| talk.by_engine(Timestamp(until)).min(longest)),
                });
                talk.ask(Ask::Report(jid.into()), track);
            }
            _ => reply::error(
                [b"no such TRACK subcommand: ", echo(verb)].concat(),
                talk.bytes(),
            ),
        }
    }

    pub(super) fn tracked(jid: &[u8], reply: &Reply, talk: &mut Talk<'_>) {
        let view = if let Reply::Looked { job, .. } = reply {
            job.as_deref()
        } else {
            None
        };
        let text = view.map_or_else(|| unknown(jid), |view| text(jid, view));
        reply::json(&text, talk.bytes());
    }
}

fn unknown(jid: &[u8]) -> TrackText<'_> {
    TrackText {
        jid: readable(jid),
        percent: None,
        desc: "".into(),
        state: "unknown",
        updated_at: String::new(),
    }
}

fn text<'a>(jid: &'a [u8], view: &'a JobView) -> TrackText<'a> {
    let job = &view.job;
    let extra = job.extra.as_deref();
    let Some(track) = extra.and_then(|extra| extra.track) else {
        return unknown(jid);
    };
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
        desc: progress
            .map(|progress| String::from_utf8_lossy(&progress.text))
            .unwrap_or_default(),
        state,
        updated_at: time_text(track.updated_at.0),
        ..unknown(jid)
    }
}
