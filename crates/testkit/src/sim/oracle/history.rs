//! Past attempts of jobs: a line for each delivery that did not succeed.

use std::sync::Arc;

use windlass_engine::{
    Attempt, AttemptEnd, AttemptError, Attempts, ClientId, Failure, Holder, Job, JobId, JobRef,
    Reply,
};

use super::{Answer, Oracle};

/// The last so many are kept, and the last so many of these keep the stack trace.
const KEPT: usize = 25;
const TRACED: usize = 8;

impl Oracle {
    /// The delivery of a leased job ends like this.
    pub(super) fn end_attempt(&mut self, id: JobId, end: AttemptEnd) {
        let (skew_ms, ended_at) = (self.turn.1.skew_ms, self.wall());
        let job = &self.job_mut(id).job;
        let (lease, number) = (job.lease().expect("a worker has it").clone(), job.attempts);
        let worker = self.worker_of(&lease.holder);
        let began_at = lease.taken_at.shifted(skew_ms);
        let mut all = explained(&self.job_mut(id).job);
        all.push(Attempt {
            number,
            worker,
            began_at,
            ended_at,
            end,
            error: None,
        });
        if all.len() > KEPT {
            all.remove(0);
        }
        for old in all.iter_mut().rev().skip(TRACED) {
            let error = old.error.as_deref().cloned();
            old.error = error.map(|error| {
                Arc::new(AttemptError {
                    backtrace: Box::default(),
                    ..error
                })
            });
        }
        let mut attempts = Attempts::default();
        all.iter()
            .for_each(|attempt| attempts.push(attempt.clone()));
        assert_eq!(
            all,
            attempts.iter().cloned().collect::<Vec<_>>(),
            "left: as listed, right: as the engine keeps them"
        );
        self.job_mut(id).extra().attempts = Some(Arc::new(attempts));
        self.see(match end {
            AttemptEnd::Failed => "Attempt::Failed",
            AttemptEnd::Lost => "Attempt::Lost",
            AttemptEnd::TimedOut => "Attempt::TimedOut",
            AttemptEnd::Released => "Attempt::Released",
            AttemptEnd::TakenBack => "Attempt::TakenBack",
            AttemptEnd::Unconvertible => "Attempt::Unconvertible",
        });
    }

    /// The first of these that is known: its connection's own name, its worker's name, its address.
    fn worker_of(&self, holder: &Holder) -> Box<[u8]> {
        let id = match holder {
            Holder::Named(name) => return name.clone(),
            Holder::Away(_) => return Box::default(),
            Holder::Connection(id) => id,
        };
        let Some(client) = self.client(*id) else {
            return Box::default();
        };
        let worker = self
            .workers
            .iter()
            .find(|worker| client.worker == Some(worker.number));
        match worker {
            _ if !client.label.is_empty() => client.label.as_ref().into(),
            Some(worker) => worker.name.as_ref().into(),
            None => client.info.address.as_bytes().into(),
        }
    }

    pub(super) fn list_attempts(&self, client: ClientId, job: &JobRef) -> Answer {
        let id = self.find(client, job)?;
        Ok(Some(Reply::Attempts(
            self.job(id)
                .map(|memo| explained(&memo.job))
                .unwrap_or_default(),
        )))
    }
}

/// A job's attempts. The last one has the job's failure as its error, if it has ended in that.
fn explained(job: &Job) -> Vec<Attempt> {
    let Some(extra) = job.extra.as_deref() else {
        return Vec::new();
    };
    let mut all: Vec<Attempt> = extra
        .attempts
        .iter()
        .flat_map(|attempts| attempts.iter().cloned())
        .collect();
    if let (Some(last), Some(failure)) = (all.last_mut(), extra.failure.as_deref()) {
        let fails = !matches!(
            last.end,
            AttemptEnd::Lost | AttemptEnd::Released | AttemptEnd::TakenBack
        );
        if fails && last.ended_at == failure.at && last.error.is_none() {
            last.error = Some(Arc::new(error_of(failure)));
        }
    }
    all
}

/// The script has only short texts.
fn error_of(failure: &Failure) -> AttemptError {
    let Failure {
        kind,
        message,
        backtrace,
        ..
    } = failure;
    let backtrace = backtrace.join(&b"\n"[..]).into_boxed_slice();
    AttemptError {
        kind: kind.as_ref().into(),
        message: message.as_ref().into(),
        backtrace,
    }
}
