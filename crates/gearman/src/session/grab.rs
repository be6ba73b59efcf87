//! GRAB_JOB, GRAB_JOB_UNIQ, GRAB_JOB_ALL: answered at once, with a job or with NO_JOB.
//!
//! Spec: `PROTOCOL`, "GRAB_JOB …", "JOB_ASSIGN …", "NO_JOB".

use bytes::Bytes;
use windlass_engine::{
    From, JobRef, LeaseCommand, Proof, Select, Take, TakeCommand, Taken, Timestamp, Wait,
};
use windlass_session::LARGE_BYTES;

use super::ask::{Ask, WORKER};
use super::{GearmanSpeaker, Talk, unique};
use crate::bridge::workload;
use crate::wire::{AssignForm, Response};

impl GearmanSpeaker {
    pub(super) fn grab(&mut self, form: AssignForm, talk: &mut Talk<'_>) {
        (self.excepted, self.sleeps) = (None, false);
        self.take(form, talk);
    }

    fn take(&self, form: AssignForm, talk: &mut Talk<'_>) {
        let select = if self.settings.section.round_robin {
            Select::RoundRobin
        } else {
            Select::BestPriority
        };
        let take = Take {
            from: From::Subscriptions,
            select,
            wait: Wait::No,
            worker: Bytes::new(),
        };
        talk.ask(Ask::Grab(form), TakeCommand::Take(take));
    }

    pub(super) fn taken(&mut self, form: AssignForm, job: &Taken, talk: &mut Talk<'_>) {
        let workload = match workload(&self.settings.bridge, &job.into()) {
            Ok(workload) => workload,
            Err(misfit) => {
                // Gearman cannot express this job: it waits for workers of other protocols. Take another one.
                let (job, proof) = (JobRef::Id(job.id), Proof::Connection);
                talk.send_as(
                    WORKER,
                    LeaseCommand::Unconvertible {
                        job,
                        proof,
                        why: misfit.to_string().into(),
                    },
                );
                return self.take(form, talk);
            }
        };
        let handle: &[u8] = &self.handle(job.id);
        let (function, workload) = (&*job.queue, &*workload);
        let unique = unique::submitted(job.protocol, &job.key, &job.meta);
        let reducer = unique::reducer(job.protocol, &job.meta);
        let response = match form {
            AssignForm::All if !reducer.is_empty() => Response::JobAssignAll {
                handle,
                function,
                unique,
                reducer,
                workload,
            },
            AssignForm::All | AssignForm::Unique => Response::JobAssignUniq {
                handle,
                function,
                unique,
                workload,
            },
            AssignForm::Plain => Response::JobAssign {
                handle,
                function,
                workload,
            },
        };
        if workload.len() >= LARGE_BYTES && workload.as_ptr() == job.body.as_ptr() {
            response.encode_but(workload.len(), talk.bytes());
            talk.share(job.body.clone());
        } else {
            response.encode(talk.bytes());
        }
        self.limited = Some(job.id).filter(|_| job.until < Timestamp::NEVER);
        if self.sleeps {
            self.lift_limit(talk);
        }
    }
}
