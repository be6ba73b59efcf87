//! `show dead jobs` and `requeue job`: lists the dead-letter queue, of all protocols, and retries one of its jobs. gearmand has
//! neither, because it keeps no such jobs.

use std::sync::Arc;

use windlass_engine::{BulkCommand, Cursor, Filter, JobId, JobStateKind, JobView, Mutation, Test};
use windlass_session::Outbox;

use super::GearmanSession;
use super::admin::Task;
use crate::wire::AdminReply;

/// Jobs searched per round.
const PAGE: u32 = 200;

/// Matches all jobs of the dead-letter queue.
pub(super) fn filter() -> Filter {
    Filter { state: Some(JobStateKind::Dead), ..Filter::default() }
}

impl GearmanSession {
    pub(super) fn dead_row(&self, view: &JobView, out: &mut Outbox) {
        let job = &view.job;
        let failure = job.extra.as_deref().and_then(|extra| extra.failure.as_deref());
        let (kind, message) = failure.map_or_else(Default::default, |failure| (&*failure.kind, &*failure.message));
        AdminReply::DeadRow {
            handle: &self.handle(job.id),
            protocol: self.settings.bridge.name(job.protocol),
            function: &view.queue,
            failures: job.failures.into(),
            kind,
            message,
        }
        .write(out.bytes());
    }

    /// Searches the dead-letter queue, which has no index by number.
    pub(super) fn requeue(&mut self, job: JobId, after: Cursor, out: &mut Outbox) {
        let test = Some(Test(Arc::new(move |candidate| candidate.id == job)));
        let filter = Filter { test, ..filter() };
        let action = Mutation::Requeue;
        self.begin(Task::Requeue(job), BulkCommand::Mutate { filter, action, after, limit: PAGE }, out);
    }

    pub(super) fn requeued(&mut self, changed: u32, next: Option<Cursor>, out: &mut Outbox) {
        let Some(Task::Requeue(job)) = self.task else { return };
        match next {
            _ if changed > 0 => self.answer(AdminReply::Done, out),
            Some(after) => self.requeue(job, after, out),
            None => self.answer(AdminReply::UnknownJob, out),
        }
    }
}
