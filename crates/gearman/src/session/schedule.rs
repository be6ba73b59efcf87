//! SUBMIT_JOB_SCHED: a background job at recurring times.
//!
//! Spec: `PROTOCOL`, "SUBMIT_JOB_SCHED": five numbers, days of the week from Monday. No other server implements it, so its open
//! points are decided here. An empty field and `*` match any value. Lists, ranges, steps and names work as in a crontab. Times
//! are UTC. The handle is the schedule's. Each run is a job of its own, with a handle of its own.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use windlass_engine::{NewSchedule, Recurrence, ScheduleCommand};
use windlass_session::Outbox;
use windlass_session::cron::{CronError, Week, compile};

use super::ask::Ask;
use super::submit::Manner;
use super::{GearmanSession, unique};
use crate::wire::{Priority, Response, Schedule, Submission};

impl GearmanSession {
    pub(super) fn submit_sched(&self, job: Submission, schedule: &Schedule, out: &mut Outbox) {
        let Schedule { minute, hour, day_of_month, month, day_of_week } = schedule;
        match compile([minute, hour, day_of_month, month, day_of_week], Week::FromMonday) {
            Ok(cron) => {
                let key = key(&job);
                let job = self.new_job(job, Manner::new(Priority::Normal, true));
                let recurrence = Recurrence::Cron(cron);
                let new = NewSchedule { key, job, recurrence, at_once: false, keep_grid: true, runs: None };
                out.command(Ask::Submit.tag(), ScheduleCommand::Set(Box::new(new)));
            }
            Err(error) => refuse(&error, out),
        }
    }
}

/// The identity of a schedule: the function, and the key that its jobs coalesce by.
fn key(job: &Submission) -> Option<Bytes> {
    let unique = unique::key(&job.unique, &job.workload)?;
    let digest = Sha256::new().chain_update(&job.function).chain_update(b"\0").chain_update(&unique).finalize();
    Some(Bytes::copy_from_slice(&digest))
}

fn refuse(error: &CronError, out: &mut Outbox) {
    let text = format!("Schedule not understood: {error}");
    Response::Error { code: b"INVALID_ARGUMENTS", text: text.as_bytes() }.encode(out.bytes());
}
