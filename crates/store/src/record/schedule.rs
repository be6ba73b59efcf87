//! A schedule's bytes: whole, with the template of its jobs, or only its next run.
//!
//! ```text
//! schedule = 7 id template recurrence anchor next-run body-len body
//! moved    = 8 id next-run
//! ```
//!
//! next-run = next-at [1 at job end [1 count job*]] runs-left
//!
//! recurrence = 0 interval-ms
//!            | 1 either-day minutes hours days months weekdays
//!            | 2 either-day seconds minutes hours days months weekdays zone-name
//!
//! The third kind has a time zone (its name is empty in UTC), or seconds other than 0.
//!
//! Runs left are written one higher; 0 means no limit. 1 was never written, because a schedule ends with its last run:
//! since there is a last run to record, it comes behind a 1, and the jobs of earlier runs behind another one. Durations of the job are encoded like times.

use windlass_engine::{
    Cron, EARLIER_RUNS_MAX, JobId, LastRun, NewJob, Recurrence, RunEnd, Schedule, Timestamp, Zone,
};

use super::job::Tail;
use super::template::{put_template, read_template};
use super::{COUNT_MAX, NEXT_RUN, SCHEDULE};
use crate::codec::{DecodeError, Reader, code, put_bytes, put_time, put_u64};

/// Before a last run, in the place of the runs left, and before the jobs of earlier runs.
const LAST_RUN: u64 = 1;
/// By their codes. The others are never recorded.
const ENDS: [RunEnd; 4] = [RunEnd::Running, RunEnd::Done, RunEnd::Failed, RunEnd::Dead];

/// When a schedule runs next, and when it ran last: the part that changes while it lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextRun {
    /// The schedule.
    pub schedule: JobId,
    /// Time of the next run.
    pub next_at: Timestamp,
    /// Number of runs from then on; `None`: no limit.
    pub runs_left: Option<u64>,
    /// Its last run.
    pub last: Option<LastRun>,
}

impl NextRun {
    fn of(schedule: &Schedule) -> Self {
        let Schedule {
            id,
            next_at,
            runs_left,
            ..
        } = *schedule;
        Self {
            schedule: id,
            next_at,
            runs_left,
            last: schedule.last.clone(),
        }
    }

    /// Applies this to a schedule.
    pub(crate) fn apply(self, schedule: &mut Schedule) {
        (schedule.next_at, schedule.runs_left) = (self.next_at, self.runs_left);
        schedule.last = self.last;
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(NEXT_RUN);
        put_u64(out, self.schedule.0);
        self.put(out);
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_time(out, self.next_at);
        if let Some(LastRun {
            at,
            job,
            end,
            earlier,
        }) = &self.last
        {
            put_u64(out, LAST_RUN);
            put_time(out, *at);
            put_u64(out, job.0);
            out.push(code(&ENDS, *end));
            if !earlier.is_empty() {
                put_u64(out, LAST_RUN);
                put_u64(out, earlier.len() as u64);
                earlier.iter().for_each(|job| put_u64(out, job.0));
            }
        }
        put_u64(out, self.runs_left.map_or(0, |runs| runs.saturating_add(1)));
    }

    fn read(schedule: JobId, from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let next_at = from.time()?;
        let (mut coded, mut last) = (from.u64()?, None);
        if coded == LAST_RUN {
            let mut run = read_last_run(from)?;
            coded = from.u64()?;
            if coded == LAST_RUN {
                run.earlier = read_earlier(from)?;
                coded = from.u64()?;
            }
            last = Some(run);
        }
        let runs_left = match coded {
            // A schedule is deleted after its last run.
            LAST_RUN => {
                return Err(DecodeError::Range {
                    field: "a schedule's remaining runs",
                    value: 1,
                });
            }
            coded => coded.checked_sub(1),
        };
        Ok(Self {
            schedule,
            next_at,
            runs_left,
            last,
        })
    }
}

/// Appends a whole schedule without its body if that exceeds `inline_max` bytes. Such a body is shared, not copied, and
/// the caller appends it.
pub(crate) fn encode_schedule(
    schedule: &Schedule,
    inline_max: usize,
    out: &mut Vec<u8>,
) -> Option<Box<Tail>> {
    let job = &schedule.job;
    out.push(SCHEDULE);
    put_u64(out, schedule.id.0);
    put_template(job, schedule.key.as_ref(), out);
    put_recurrence(schedule.recurrence, out);
    put_time(out, schedule.anchor);
    NextRun::of(schedule).put(out);
    put_u64(out, job.body.len() as u64);
    if job.body.len() > inline_max {
        return Some(Box::new(Tail {
            body: job.body.clone(),
            ..Tail::default()
        }));
    }
    out.extend_from_slice(&job.body);
    None
}

/// Appends when a schedule runs next.
pub(crate) fn encode_next_run(schedule: &Schedule, out: &mut Vec<u8>) {
    NextRun::of(schedule).encode(out);
}

fn put_recurrence(recurrence: Recurrence, out: &mut Vec<u8>) {
    match recurrence {
        Recurrence::Every { interval_ms } => {
            out.push(0);
            put_u64(out, interval_ms);
        }
        Recurrence::Cron(cron) if cron.seconds == Cron::ALWAYS.seconds => {
            out.push(1);
            out.push(cron.either_day.into());
            put_minutes(cron, out);
        }
        Recurrence::Cron(cron) => put_zoned(cron, "", out),
        Recurrence::Zoned(cron, zone) => put_zoned(cron, zone.name(), out),
    }
}

fn put_zoned(cron: Cron, zone: &str, out: &mut Vec<u8>) {
    out.push(2);
    out.push(cron.either_day.into());
    put_u64(out, cron.seconds);
    put_minutes(cron, out);
    put_bytes(out, zone.as_bytes());
}

fn put_minutes(
    Cron {
        minutes,
        hours,
        days,
        months,
        weekdays,
        ..
    }: Cron,
    out: &mut Vec<u8>,
) {
    for bits in [minutes, hours.into(), days.into(), months.into(), weekdays] {
        put_u64(out, bits);
    }
}

// ---- reading -------------------------------------------------------------------------------------------------------

pub(super) fn decode_next_run(from: &mut Reader<'_>) -> Result<NextRun, DecodeError> {
    let schedule = JobId(from.below("a schedule's number", COUNT_MAX)?);
    NextRun::read(schedule, from)
}

pub(super) fn decode_schedule(from: &mut Reader<'_>) -> Result<Schedule, DecodeError> {
    let id = JobId(from.below("a schedule's number", COUNT_MAX)?);
    let (key, job) = read_template(from)?;
    let recurrence = read_recurrence(from)?;
    let anchor = from.time()?;
    let NextRun {
        next_at,
        runs_left,
        last,
        ..
    } = NextRun::read(id, from)?;
    let body = from.owned()?;
    let job = NewJob { body, ..job };
    Ok(Schedule {
        id,
        key,
        job,
        recurrence,
        anchor,
        next_at,
        runs_left,
        last,
    })
}

fn read_last_run(from: &mut Reader<'_>) -> Result<LastRun, DecodeError> {
    let (at, job) = (
        from.time()?,
        JobId(from.below("a job's number", COUNT_MAX)?),
    );
    let end = from.one_of(&ENDS, "the end of a run")?;
    Ok(LastRun {
        at,
        job,
        end,
        earlier: Vec::new(),
    })
}

fn read_earlier(from: &mut Reader<'_>) -> Result<Vec<JobId>, DecodeError> {
    let count = match from.below("earlier runs", EARLIER_RUNS_MAX as u64 + 1)? {
        // Without one there is no list.
        0 => {
            return Err(DecodeError::Range {
                field: "earlier runs",
                value: 0,
            });
        }
        count => count,
    };
    (0..count)
        .map(|_| from.below("a job's number", COUNT_MAX).map(JobId))
        .collect()
}

fn read_recurrence(from: &mut Reader<'_>) -> Result<Recurrence, DecodeError> {
    match from.u8()? {
        0 => Ok(Recurrence::Every {
            interval_ms: from.u64()?,
        }),
        1 => {
            let either_day = from.below("the day rule", 2)? == 1;
            read_minutes(
                from,
                Cron {
                    either_day,
                    ..Cron::ALWAYS
                },
            )
            .map(Recurrence::Cron)
        }
        2 => {
            let either_day = from.below("the day rule", 2)? == 1;
            let seconds = from.u64()?;
            let cron = read_minutes(
                from,
                Cron {
                    either_day,
                    seconds,
                    ..Cron::ALWAYS
                },
            )?;
            let zone = std::str::from_utf8(from.bytes()?).unwrap_or("?");
            // A zone that no longer exists: the schedule is never due until it is set again.
            let zoned = || Recurrence::Zoned(cron, Zone::named(zone).unwrap_or(Zone::UNKNOWN));
            Ok(if zone.is_empty() {
                Recurrence::Cron(cron)
            } else {
                zoned()
            })
        }
        other => Err(DecodeError::Range {
            field: "a recurrence",
            value: other.into(),
        }),
    }
}

fn read_minutes(from: &mut Reader<'_>, cron: Cron) -> Result<Cron, DecodeError> {
    let minutes = from.u64()?;
    let (hours, days) = (from.u32("hours")?, from.u32("days")?);
    let months = u16::try_from(from.below("months", 1 << 16)?).unwrap_or_default();
    Ok(Cron {
        minutes,
        hours,
        days,
        months,
        weekdays: from.u64()?,
        ..cron
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use windlass_engine::Protocol;

    use super::*;

    #[test]
    fn a_body_that_is_not_copied_is_the_record_s_end() {
        let schedule = |body: &'static [u8]| Schedule {
            id: JobId(1),
            key: None,
            job: NewJob::new(
                Protocol::GEARMAN,
                Bytes::from_static(b"q"),
                Bytes::from_static(body),
            ),
            recurrence: Recurrence::Every { interval_ms: 1 },
            anchor: Timestamp(0),
            next_at: Timestamp(1),
            runs_left: None,
            last: None,
        };
        for (body, shared) in [
            (&b""[..], 0),
            (b"123", 0),
            (b"1234", 0),
            (b"12345", 5),
            (b"123456", 6),
        ] {
            let (mut whole, mut out) = (Vec::new(), Vec::new());
            assert!(encode_schedule(&schedule(body), usize::MAX, &mut whole).is_none());
            let tail = encode_schedule(&schedule(body), 4, &mut out).unwrap_or_default();
            assert_eq!(tail.len(), shared, "{body:?}");
            tail.append_to(&mut out);
            assert_eq!(out, whole);
        }
    }
}
