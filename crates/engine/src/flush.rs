//! Removes everything of one protocol except its schedules, one page at a time.

use crate::context::{Change, Context};
use crate::engine::Engine;
use crate::event::Reply;
use crate::ids::{ClientId, JobId, Protocol, QueueId, Tag};
use crate::job::JobStateKind;
use crate::queue::Queue;
use crate::request::{Cursor, Filter, QueueKind};
use crate::work::CHANGE;

/// The phases, in this order. Batches come first, so that the removal of their jobs pushes no callbacks.
const BATCHES: u64 = 0;
const JOBS: u64 = 1;
const QUEUES: u64 = 2;

impl Engine {
    pub(crate) fn flush(
        &mut self,
        client: ClientId,
        tag: Tag,
        protocol: Protocol,
        (after, limit): (Cursor, u32),
        context: &mut Context,
    ) {
        let limit = self.page(limit);
        let Cursor(stage, at) = after;
        let (changed, next) = match stage {
            BATCHES => self.flush_batches(protocol, JobId(at), limit, context),
            JOBS => self.flush_jobs(protocol, at, limit, context),
            QUEUES => self.flush_queues(at, limit, context),
            _ => (0, None),
        };
        let next = match next {
            Some(at) => Some(Cursor(stage, at)),
            None if stage < QUEUES => Some(Cursor(stage + 1, 0)),
            None => None,
        };
        if next.is_none() {
            self.head.protocols.retain(|(other, _)| *other != protocol);
            context.remember(Change::Head);
        }
        context.reply(client, tag, Reply::Mutated { changed, next });
    }

    fn flush_batches(
        &mut self,
        protocol: Protocol,
        first: JobId,
        limit: usize,
        context: &mut Context,
    ) -> (u32, Option<u64>) {
        let (page, next) = cut(self.batches.from(first).map(|batch| (batch.id, batch.protocol)), limit);
        self.spend(CHANGE * page.len() as u64);
        let doomed = page.into_iter().filter(|(_, other)| *other == protocol);
        let changed = doomed.map(|(id, _)| self.forget_batch(id, false, context)).count_u32();
        (changed, next.map(|(id, _)| id.0))
    }

    /// Removes jobs in any state, leased ones included.
    fn flush_jobs(
        &mut self,
        protocol: Protocol,
        first: u64,
        limit: usize,
        context: &mut Context,
    ) -> (u32, Option<u64>) {
        let filter = Filter { protocol: Some(protocol), ..Filter::default() };
        let (slots, next) = self.matching(&filter, Cursor(first, 0), limit);
        self.spend(CHANGE * slots.len() as u64);
        (slots.into_iter().map(|slot| self.discard(slot, context)).count_u32(), next.map(|next| next.0))
    }

    /// Removes queues that are empty, unserved and without limits. They do not count in the result.
    fn flush_queues(&mut self, first: u64, limit: usize, context: &mut Context) -> (u32, Option<u64>) {
        let empty = |queue: &Queue| {
            let image = &queue.image;
            image.known
                && image.kind == QueueKind::Work
                && queue.total() == 0
                && queue.workers() == 0
                && !image.is_limited()
        };
        // Each existing queue counts as a row, removed or not.
        let looked = |id| self.queues.at(id).map(|queue| (id, empty(queue)));
        let (page, next) = self.page_of_queues(first, limit, looked);
        for (id, _) in page.into_iter().filter(|(_, empty)| *empty) {
            self.spend(CHANGE);
            self.set_queue(id, |image| (image.known, image.paused) = (false, false), context);
            self.drop_if_unknown(id);
        }
        (0, next)
    }

    /// Removes the first ready jobs of a queue, as many as one visit may. If more remain, the error is the number removed.
    pub(crate) fn discard_ready(&mut self, id: QueueId, context: &mut Context) -> Result<(), u32> {
        let limit = self.page(u32::MAX);
        let Some(queue) = self.queues.at(id) else { return Ok(()) };
        let all = queue.jobs(JobStateKind::Ready) as usize <= limit;
        let slots: Vec<_> = queue.line.slots().take(limit).collect();
        self.spend(CHANGE * slots.len() as u64);
        let changed = slots.into_iter().map(|slot| self.discard(slot, context)).count_u32();
        if all { Ok(()) } else { Err(changed) }
    }
}

/// The first rows, and the row after them.
fn cut<T>(rows: impl Iterator<Item = T>, limit: usize) -> (Vec<T>, Option<T>) {
    let mut page: Vec<T> = rows.take(limit + 1).collect();
    let next = if page.len() > limit { page.pop() } else { None };
    (page, next)
}

/// Counts the removed items.
trait Count {
    fn count_u32(self) -> u32;
}

impl<I: Iterator> Count for I {
    fn count_u32(self) -> u32 {
        u32::try_from(self.count()).unwrap_or(u32::MAX)
    }
}
