//! Turns a `SCHEDULE` into a schedule of the engine: the job, the times and the number of runs. Pure.
//!
//! Spec: "eMQP / Scheduler". `interval`, `nohaste` and `run_count` mean the same as to the released scheduler. An
//! interval of 0 counts as one second, the released scheduler's period.

use bytes::Bytes;
use windlass_engine::{NewJob, NewSchedule, Recurrence};
use windlass_session::cron::croniter;

use crate::wire::{self, Fault, Plan, Runs, When};

/// The schedule for a message. `template` is the job of each run. `None` for `run_count:0`, which removes the job's
/// schedule.
///
/// # Errors
/// The job or the time is missing or invalid. An earlier schedule of the job remains.
pub(super) fn new_schedule(
    plan: &Plan<'_>,
    template: NewJob,
) -> Result<Option<NewSchedule>, Fault> {
    let key = schedule_key(plan)?;
    let recurrence = recurrence(plan.when()?)?;
    let runs = match plan.headers.run_count() {
        Runs::Count(0) => return Ok(None),
        Runs::Count(runs) => Some(runs),
        Runs::Endless => None,
    };
    Ok(Some(NewSchedule {
        key: Some(key),
        job: template,
        recurrence,
        at_once: !plan.headers.nohaste(),
        keep_grid: false,
        runs,
    }))
}

/// The key of a job's schedule, unique in EventMQ: the 20 bytes of its [`wire::Identity`].
///
/// # Errors
/// The body is not a job.
pub(super) fn schedule_key(plan: &Plan<'_>) -> Result<Bytes, Fault> {
    wire::identity(plan.job).map(|identity| Bytes::copy_from_slice(&identity.0))
}

fn recurrence(when: When<'_>) -> Result<Recurrence, Fault> {
    match when {
        When::Every { secs } => Ok(Recurrence::Every {
            interval_ms: secs.max(1).saturating_mul(1_000),
        }),
        When::Cron(text) => {
            let when = croniter::parse(text)
                .map_err(|error| Fault(format!("invalid cron expression: {error}")))?;
            if !when.can_match() {
                return Err(Fault(format!(
                    "the cron expression never comes due: {when}"
                )));
            }
            Ok(Recurrence::Cron(when))
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::Protocol;

    use super::*;
    use crate::wire::Headers;

    const JOB: &[u8] = br#"["run", {"callable": "report", "path": "tasks"}]"#;

    fn plan<'a>(headers: &'a str, interval: &'a str, cron: &'a str) -> Plan<'a> {
        Plan {
            queue: b"nightly",
            headers: Headers(headers.as_bytes()),
            interval: interval.as_bytes(),
            job: JOB,
            cron: cron.as_bytes(),
        }
    }

    fn template() -> NewJob {
        let job = NewJob::new(
            Protocol::EVENTMQ,
            Bytes::from_static(b"nightly"),
            Bytes::from_static(JOB),
        );
        NewJob {
            meta: Bytes::from_static(b"timeout:7"),
            ..job
        }
    }

    /// Its recurrence, whether it runs at once, and how often.
    fn shown(plan: &Plan<'_>) -> String {
        match new_schedule(plan, template()) {
            Ok(Some(new)) => {
                let when = match new.recurrence {
                    Recurrence::Cron(cron) | Recurrence::Zoned(cron, _) => cron.to_string(),
                    Recurrence::Every { interval_ms } => format!("{interval_ms} ms"),
                };
                let begin = if new.at_once { "at once" } else { "later" };
                let runs = new
                    .runs
                    .map_or("for ever".to_owned(), |runs| runs.to_string());
                format!("{when}, {begin}, {runs}")
            }
            Ok(None) => "nothing".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn times_and_numbers_of_runs() {
        let table = [
            ("", "60", "", "60000 ms, at once, for ever"),
            ("nohaste", "60", "", "60000 ms, later, for ever"),
            ("nohaste,run_count:3", "60", "", "60000 ms, later, 3"),
            ("run_count:1", "60", "", "60000 ms, at once, 1"),
            ("run_count:-1", "60", "", "60000 ms, at once, for ever"),
            ("run_count:-9", "60", "", "60000 ms, at once, for ever"),
            ("run_count:many", "60", "", "60000 ms, at once, for ever"),
            ("run_count:0", "60", "", "nothing"),
            ("", "0", "", "1000 ms, at once, for ever"),
            ("", "1", "* * * * *", "1000 ms, at once, for ever"),
            (
                "",
                "99999999999999999999",
                "",
                "18446744073709551615 ms, at once, for ever",
            ),
            ("", "-1", "30 4 * * *", "30 4 * * *, at once, for ever"),
            (
                "nohaste,run_count:2",
                "-1",
                "30 4 * * mon",
                "30 4 * * 1, later, 2",
            ),
            (
                "",
                "-1",
                "30 4 13 * fri#2",
                "30 4 * * 5#2, at once, for ever",
            ),
            ("run_count:0", "-1", "30 4 * * *", "nothing"),
            (
                "",
                "soon",
                "",
                "the interval is not a whole number of seconds",
            ),
            (
                "",
                "-1",
                "",
                "an interval below 0 stands for a cron expression, and there is none",
            ),
            (
                "",
                "-1",
                "61 4 * * *",
                "invalid cron expression: minute: 61 is not between 0 and 59",
            ),
            (
                "run_count:0",
                "-1",
                "x",
                "invalid cron expression: 1 fields, but minute, hour, day of month, month and day of week are needed",
            ),
            (
                "",
                "-1",
                "0 0 30 2 *",
                "the cron expression never comes due: 0 0 30 2 *",
            ),
        ];
        for (headers, interval, cron, expected) in table {
            assert_eq!(
                shown(&plan(headers, interval, cron)),
                expected,
                "{headers} {interval} {cron}"
            );
        }
    }

    #[test]
    fn each_run_is_the_job_verbatim_and_a_new_schedule_replaces_the_old() {
        let new = new_schedule(&plan("", "60", ""), template())
            .unwrap()
            .unwrap();
        assert_eq!(new.job, template());
        assert!(!new.keep_grid);
    }

    #[test]
    fn the_job_alone_identifies_the_schedule() {
        let key = |plan: &Plan<'_>| new_schedule(plan, template()).unwrap().unwrap().key;
        let one = plan("", "60", "");
        assert_eq!(
            key(&one),
            Some(Bytes::copy_from_slice(&wire::identity(JOB).unwrap().0))
        );
        assert_eq!(key(&one), Some(schedule_key(&one).unwrap()));
        assert_eq!(
            key(&one),
            key(&Plan {
                queue: b"daily",
                ..plan("nohaste", "-1", "@daily")
            })
        );
        let other = Plan {
            job: br#"["run", {"callable": "report", "path": "other"}]"#,
            ..one
        };
        assert_ne!(key(&one), key(&other));
        let none = Plan { job: b"{}", ..one };
        assert_eq!(
            schedule_key(&none),
            Err("the body is not a list with a job in its second place".into())
        );
        assert_eq!(
            new_schedule(&none, template()),
            Err("the body is not a list with a job in its second place".into())
        );
    }
}
