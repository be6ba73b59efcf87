//! Converts a job that another Faktory server stored into a job of this engine.
//!
//! Reading the other server's storage happens elsewhere. The text of a job is as that server wrote it: a work unit, or
//! a reservation that contains one.

use bytes::Bytes;
use serde_json::value::RawValue;
use windlass_engine::{Holder, JobState, Lease, NewJob, OnExpiry, Past, Timestamp, Token};

use super::push::{Pushed, failures, new_job};
use super::{Settings, readable};
use crate::wire::{Unit, json, parse_time};

/// A job's state on the other server, with the time that belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Ready in its queue.
    Queued,
    /// Scheduled: not due before this time.
    Scheduled(Timestamp),
    /// Failed; the next retry is at this time.
    Retrying(Timestamp),
    /// Dead; kept until this time.
    Dead(Timestamp),
    /// Leased to a worker until this time. The text is that of the reservation.
    Reserved(Timestamp),
}

impl Settings {
    /// Converts a stored job: the same as PUSH, plus its history. `now` and all times derived from it are wall-clock
    /// times. The job keeps its times and its failures. Its unique lock and its expiry count from the time it was
    /// enqueued.
    ///
    /// # Errors
    ///
    /// PUSH would reject the job.
    pub fn adopt(&self, now: Timestamp, text: &[u8], standing: Standing) -> Result<NewJob, String> {
        let limit = self.section.line_bytes_max.bytes();
        if text.len() > limit {
            return Err(format!(
                "a job of {} bytes, faktory.line_bytes_max is {limit}",
                text.len()
            ));
        }
        let whole = Bytes::copy_from_slice(text);
        let text = readable(&whole);
        match standing {
            Standing::Reserved(until) => {
                let Reservation { job, wid, since } =
                    Reservation::parse(&text).ok_or("not a reservation")?;
                let holder = Holder::Named(wid.into());
                let lease = Lease::new(
                    holder,
                    Token(0),
                    since.unwrap_or(now),
                    until,
                    OnExpiry::Fail,
                );
                self.moved(
                    now,
                    &whole,
                    job,
                    Some(JobState::Leased(Box::new(lease))),
                    None,
                )
            }
            Standing::Queued => self.moved(now, &whole, &text, None, None),
            Standing::Scheduled(at) => self.moved(now, &whole, &text, None, Some(at)),
            Standing::Retrying(at) => {
                self.moved(now, &whole, &text, Some(JobState::Retrying(at)), None)
            }
            Standing::Dead(until) => {
                self.moved(now, &whole, &text, Some(JobState::Dead(until)), None)
            }
        }
    }

    fn moved(
        &self,
        now: Timestamp,
        whole: &Bytes,
        text: &str,
        state: Option<JobState>,
        not_before: Option<Timestamp>,
    ) -> Result<NewJob, String> {
        let unit = Unit::parse(text)?;
        let enqueued_at = enqueued_at(text);
        let since = enqueued_at
            .or_else(|| time(&unit.created_at))
            .unwrap_or(now);
        let past = Past {
            ready_at: enqueued_at,
            failures: unit.failure.map_or(0, failures),
            state,
        };
        let job = new_job(self, Pushed::by_wall(since), whole, &unit)?;
        Ok(NewJob {
            not_before,
            past: Some(Box::new(past)),
            ..job
        })
    }
}

/// A job that a worker has.
struct Reservation<'a> {
    job: &'a str,
    wid: Vec<u8>,
    since: Option<Timestamp>,
}

impl<'a> Reservation<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let [job, wid, since] = json::members(text, &["job", "wid", "reserved_at"]).ok()?;
        let words = |value: Option<&'a RawValue>| value.map_or(Ok("".into()), json::text).ok();
        Some(Self {
            job: job?.get(),
            wid: words(wid)?.as_bytes().to_vec(),
            since: time(&words(since)?),
        })
    }
}

/// The time in `enqueued_at`, if there is one.
fn enqueued_at(text: &str) -> Option<Timestamp> {
    let [at] = json::members(text, &["enqueued_at"]).ok()?;
    time(&json::text(at?).ok()?)
}

fn time(text: &str) -> Option<Timestamp> {
    parse_time(text).ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use windlass_engine::{Backoff, Expiry, KeyUntil, Protocol, Retry};

    use windlass_config::ByteSize;

    use super::*;
    use crate::config::Faktory;

    const NOW: Timestamp = Timestamp(1_795_300_000_000);
    const QUEUED: &str = r#"{"retry":3,"failure":{"failed_at":"2026-11-21T03:00:00Z","next_at":"2026-11-21T03:00:20Z","message":"no","errtype":"E","retry_count":1,"remaining":2},"custom":{"n":12345678901234567890},"jid":"jid00000001","queue":"q","jobtype":"T","created_at":"2026-11-21T03:59:09.366883261Z","enqueued_at":"2026-11-21T03:59:09.367045193Z","args":[1.0,"<"]}"#;

    fn adopt(text: &str, standing: Standing) -> Result<NewJob, String> {
        Settings::new(Faktory::default(), NOW).adopt(NOW, text.as_bytes(), standing)
    }

    #[test]
    fn a_queued_job_keeps_its_fields_and_its_history() {
        let job = adopt(QUEUED, Standing::Queued).unwrap();
        let past = job.past.unwrap();
        assert_eq!(
            (&job.queue[..], job.name.as_deref()),
            (&b"q"[..], Some(&b"jid00000001"[..]))
        );
        assert_eq!((job.protocol, job.not_before), (Protocol::FAKTORY, None));
        assert_eq!(
            job.retry,
            Retry {
                failures_max: 3,
                losses_max: 0,
                backoff: Backoff::Faktory
            }
        );
        assert_eq!(
            *past,
            Past {
                ready_at: Some(Timestamp(1_795_233_549_368)),
                failures: 2,
                state: None
            }
        );
        let body = std::str::from_utf8(&job.body).unwrap();
        assert_eq!(
            body,
            QUEUED.replace(r#","enqueued_at":"2026-11-21T03:59:09.367045193Z""#, "")
        );
    }

    #[test]
    fn states() {
        let at = Timestamp(NOW.0 + 5_000);
        let state =
            |standing| adopt(QUEUED, standing).map(|job| (job.not_before, job.past.unwrap().state));
        assert_eq!(state(Standing::Scheduled(at)), Ok((Some(at), None)));
        assert_eq!(
            state(Standing::Retrying(at)),
            Ok((None, Some(JobState::Retrying(at))))
        );
        assert_eq!(
            state(Standing::Dead(at)),
            Ok((None, Some(JobState::Dead(at))))
        );
        let text = format!(
            r#"{{"job":{QUEUED},"reserved_at":"2026-11-21T04:00:00Z","expires_at":"2026-11-21T04:30:00Z","wid":"w1"}}"#
        );
        let job = adopt(&text, Standing::Reserved(at)).unwrap();
        let holder = Holder::Named(b"w1".as_slice().into());
        let lease = Lease::new(
            holder,
            Token(0),
            Timestamp(1_795_233_600_000),
            at,
            OnExpiry::Fail,
        );
        assert_eq!(job.name.as_deref(), Some(&b"jid00000001"[..]));
        assert_eq!(
            job.past.unwrap().state,
            Some(JobState::Leased(Box::new(lease)))
        );
        for text in ["", "{}", QUEUED, "[]"] {
            assert_eq!(
                adopt(text, Standing::Reserved(at)),
                Err("not a reservation".to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn unique_locks_and_expiry_count_from_the_time_of_enqueuing() {
        let text = r#"{"jid":"jid00000001","jobtype":"T","args":[],"created_at":"2026-11-21T03:59:09Z","custom":{"unique_for":60,"expires_in":120}}"#;
        let job = adopt(text, Standing::Queued).unwrap();
        assert_eq!(
            job.unique.map(|unique| unique.until),
            Some(KeyUntil::EndOr(Timestamp(1_795_233_609_000)))
        );
        assert_eq!(job.expires, Expiry::By(Timestamp(1_795_233_669_000)));
        assert_eq!(job.past.unwrap().ready_at, None);
    }

    #[test]
    fn jobs_that_push_would_reject_are_errors() {
        let small = Settings::new(
            Faktory {
                line_bytes_max: ByteSize(9),
                ..Faktory::default()
            },
            NOW,
        );
        let error = small
            .adopt(NOW, QUEUED.as_bytes(), Standing::Queued)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "a job of {} bytes, faktory.line_bytes_max is 9",
                QUEUED.len()
            )
        );
        let table = [
            (
                "nonsense",
                "invalid JSON: unexpected character at line 1, column 2",
            ),
            (
                r#"{"jid":"short","jobtype":"T","args":[]}"#,
                "jobs must have a reasonable jid parameter",
            ),
            (
                r#"{"jid":"jid00000001","args":[]}"#,
                "jobs must have a jobtype parameter",
            ),
        ];
        for (text, reason) in table {
            assert_eq!(
                adopt(text, Standing::Queued).unwrap_err().to_string(),
                reason,
                "{text}"
            );
        }
    }
}
