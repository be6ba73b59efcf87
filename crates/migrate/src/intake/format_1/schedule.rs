//! A schedule.

use windlass_codec::{DecodeError, Reader};
use windlass_engine::{
    Cron, EARLIER_RUNS_MAX, JobId, LastRun, NewJob, Recurrence, RunEnd, Schedule, Zone,
};
use windlass_store::NextRun;

use super::template::read_template;
use super::{COUNT_MAX, owned, time};

/// Before a last run, in the place of the runs left, and before the jobs of earlier runs.
const LAST_RUN: u64 = 1;
/// By their codes. The others are never recorded.
const ENDS: [RunEnd; 4] = [RunEnd::Running, RunEnd::Done, RunEnd::Failed, RunEnd::Dead];

fn next_run(schedule: JobId, from: &mut Reader<'_>) -> Result<NextRun, DecodeError> {
    let next_at = time(from)?;
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
    Ok(NextRun {
        schedule,
        next_at,
        runs_left,
        last,
    })
}

pub(super) fn read(from: &mut Reader<'_>) -> Result<Schedule, DecodeError> {
    let id = JobId(from.below("a schedule's number", COUNT_MAX)?);
    let (key, job) = read_template(from)?;
    let recurrence = read_recurrence(from)?;
    let anchor = time(from)?;
    let NextRun {
        next_at,
        runs_left,
        last,
        ..
    } = next_run(id, from)?;
    let body = owned(from)?;
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
    let (at, job) = (time(from)?, JobId(from.below("a job's number", COUNT_MAX)?));
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
