//! GRAB_JOB, GRAB_JOB_UNIQ, GRAB_JOB_ALL: answered at once, with a job or with NO_JOB.
//!
//! Spec: `PROTOCOL`, "GRAB_JOB …", "JOB_ASSIGN …", "NO_JOB".

use bytes::Bytes;
use windlass_engine::{From, JobRef, LeaseCommand, Proof, Select, Tag, Take, TakeCommand, Taken, Wait};
use windlass_session::Outbox;

use super::ask::Ask;
use super::{GearmanSession, unique};
use crate::bridge::workload;
use crate::wire::{AssignForm, Response};

impl GearmanSession {
    pub(super) fn grab(&mut self, form: AssignForm, out: &mut Outbox) {
        self.excepted = None;
        self.grabs_open += 1;
        self.take(Ask::Grab(form).tag(), out);
    }

    fn take(&self, tag: Tag, out: &mut Outbox) {
        let select = if self.settings.round_robin { Select::RoundRobin } else { Select::BestPriority };
        let take = Take { from: From::Subscriptions, select, wait: Wait::No, worker: Bytes::new() };
        out.command(tag, TakeCommand::Take(take));
    }

    pub(super) fn taken(&mut self, tag: Tag, job: &Taken, out: &mut Outbox) {
        let workload = match workload(&self.settings.bridge, &job.into()) {
            Ok(workload) => workload,
            Err(misfit) => {
                // Gearman cannot express this job: it waits for workers of other protocols. Take another one.
                let (job, proof) = (JobRef::Id(job.id), Proof::Connection);
                out.command(
                    Ask::Worker.tag(),
                    LeaseCommand::Unconvertible { job, proof, why: misfit.to_string().into() },
                );
                return self.take(tag, out);
            }
        };
        self.grabs_open = self.grabs_open.saturating_sub(1);
        let handle: &[u8] = &self.handle(job.id);
        let (function, workload) = (&*job.queue, &*workload);
        let unique = unique::submitted(job.protocol, &job.key, &job.meta);
        let reducer = unique::reducer(job.protocol, &job.meta);
        let response = match Ask::of(tag) {
            Some(Ask::Grab(AssignForm::All)) if !reducer.is_empty() => {
                Response::JobAssignAll { handle, function, unique, reducer, workload }
            }
            Some(Ask::Grab(AssignForm::All | AssignForm::Unique)) => {
                Response::JobAssignUniq { handle, function, unique, workload }
            }
            _ => Response::JobAssign { handle, function, workload },
        };
        response.encode(out.bytes());
    }

    pub(super) fn none_to_take(&mut self, out: &mut Outbox) {
        self.grabs_open = self.grabs_open.saturating_sub(1);
        Response::NoJob.encode(out.bytes());
    }
}
