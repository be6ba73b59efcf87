//! SUBMIT_JOB_SCHED: a background job at recurring times.
//!
//! Spec: `PROTOCOL`, "SUBMIT_JOB_SCHED": five numbers, days of the week from Monday. No other server implements it, so
//! its open points are decided here. An empty field and `*` match any value. Lists, ranges, steps and names work as in
//! a crontab. Times are UTC. The handle is the schedule's. Each run is a job of its own, with a handle of its own.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use windlass_engine::{NewSchedule, Recurrence, ScheduleCommand};
use windlass_session::cron::{CronError, Week, compile};

use super::ask::Ask;
use super::submit::{Manner, new_job};
use super::{GearmanSpeaker, Talk, unique};
use crate::wire::{Priority, Response, Schedule, Submission};

impl GearmanSpeaker {
    pub(super) fn submit_sched(&self, job: Submission, schedule: &Schedule, talk: &mut Talk<'_>) {
        let Schedule {
            minute,
            hour,
            day_of_month,
            month,
            day_of_week,
        } = schedule;
        match compile(
            [minute, hour, day_of_month, month, day_of_week],
            Week::FromMonday,
        ) {
            Ok(cron) => {
                let key = key(&job);
                let job = Submission {
                    workload: talk.keep(&job.workload),
                    ..job
                };
                let job = new_job(&self.settings, job, Manner::new(Priority::Normal, true));
                let recurrence = Recurrence::Cron(cron);
                let new = NewSchedule {
                    key,
                    job,
                    recurrence,
                    at_once: false,
                    keep_grid: true,
                    runs: None,
                };
                talk.ask(Ask::Submit, ScheduleCommand::Set(Box::new(new)));
            }
            Err(error) => refuse(&error, talk),
        }
    }
}

/// The identity of a schedule: the function, and the key that its jobs coalesce by.
fn key(job: &Submission) -> Option<Bytes> {
    let unique = unique::key(&job.unique, &job.workload)?;
    let digest = Sha256::new()
        .chain_update(&job.function)
        .chain_update(b"\0")
        .chain_update(&unique)
        .finalize();
    Some(Bytes::copy_from_slice(&digest))
}

fn refuse(error: &CronError, talk: &mut Talk<'_>) {
    let text = format!("Schedule not understood: {error}");
    Response::Error {
        code: b"INVALID_ARGUMENTS",
        text: text.as_bytes(),
    }
    .encode(talk.bytes());
}
