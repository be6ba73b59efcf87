//! `show dead jobs` and `requeue job`: lists the dead-letter queue, of all protocols, and retries one of its jobs.
//! gearmand has neither, because it keeps no such jobs.

use windlass_engine::{BulkCommand, Cursor, Filter, JobId, JobStateKind, JobView, Mutation};

use super::admin::Task;
use super::{GearmanSpeaker, Talk};
use crate::wire::reply;

/// Jobs searched per round.
const PAGE: u32 = 200;

/// Matches all jobs of the dead-letter queue.
pub(super) fn filter() -> Filter {
    Filter {
        state: Some(JobStateKind::Dead),
        ..Filter::default()
    }
}

impl GearmanSpeaker {
    pub(super) fn dead_row(&self, view: &JobView, talk: &mut Talk<'_>) {
        let job = &view.job;
        let failure = job
            .extra
            .as_deref()
            .and_then(|extra| extra.failure.as_deref());
        let (kind, message) = failure.map_or_else(Default::default, |failure| {
            (&*failure.kind, &*failure.message)
        });
        let (handle, protocol) = (self.handle(job.id), self.settings.bridge.name(job.protocol));
        reply::dead_row(
            talk.bytes(),
            &handle,
            protocol,
            &view.queue,
            job.failures.into(),
            kind,
            message,
        );
    }

    /// Makes a job ready again, if it is dead.
    pub(super) fn requeue(&mut self, job: JobId, after: Cursor, talk: &mut Talk<'_>) {
        let filter = Filter {
            ids: vec![job],
            ..filter()
        };
        let action = Mutation::Requeue;
        self.begin(
            Task::Requeue(job),
            BulkCommand::Mutate {
                filter: filter.into(),
                action,
                after,
                limit: PAGE,
            },
            talk,
        );
    }

    pub(super) fn requeued(&mut self, changed: u32, next: Option<Cursor>, talk: &mut Talk<'_>) {
        let Some(Task::Requeue(job)) = self.task else {
            return;
        };
        match next {
            _ if changed > 0 => self.answer(reply::DONE, talk),
            Some(after) => self.requeue(job, after, talk),
            None => self.answer(reply::UNKNOWN_JOB, talk),
        }
    }
}
