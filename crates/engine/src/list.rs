//! Listings and bulk changes, a page at a time. No command shows or changes more than `page_max` rows, and its search costs at
//! most [`WORK_PER_ROW`] for each row, so no command stalls the others.

use bytes::Bytes;

use crate::client::Worker;
use crate::context::Context;
use crate::engine::Engine;
use crate::event::Reply;
use crate::ids::{ClientId, JobId, QueueId, Tag, Timestamp};
use crate::job::JobStateKind;
use crate::query::Query;
use crate::query::{ClientRow, JobView, QueueRow, WorkerRow};
use crate::ready::{Slot, SortKey};
use crate::refusal::Refusal;
use crate::request::{Cursor, Filter, Mutation, QueueKind};
use crate::work::{CHANGE, LOOKED_UP, NAME, NAMES_PER_ROW, ROW, STEP, TEST, TEST_BYTES, WORK_PER_ROW};

impl Engine {
    /// Answers a query.
    #[expect(clippy::unit_arg, reason = "one line for each query is easiest to read")]
    pub(crate) fn query(
        &mut self,
        client: ClientId,
        tag: Tag,
        query: Query,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        match query {
            Query::Job(job) => Ok(self.look(client, tag, &job, context)),
            Query::Schedules { protocol, after, limit } => {
                Ok(self.list_schedules(client, tag, protocol, (after, limit), context))
            }
            Query::Batch { batch } => self.look_batch(client, tag, &batch, context),
            Query::Queue { queue } => Ok(self.look_queue(client, tag, &queue, context)),
            Query::Queues { after, limit } => Ok(self.list_queues(client, tag, (after, limit), context)),
            Query::Jobs { filter, after, limit } => Ok(self.list_jobs(client, tag, &filter, (after, limit), context)),
            Query::Workers { after, limit } => Ok(self.list_workers(client, tag, (after, limit), context)),
            Query::Clients { after, limit } => Ok(self.list_clients(client, tag, (after, limit), context)),
            Query::Stats => Ok(self.tell_stats(client, tag, context)),
        }
    }

    pub(crate) fn look_queue(&self, client: ClientId, tag: Tag, name: &[u8], context: &mut Context) {
        let queue = self.queues.named(name).and_then(|id| self.queues.at(id)).filter(|queue| queue.image.known);
        let rows = queue.map(|queue| queue.row(self.oldest_ready(queue.image.id))).into_iter().collect();
        context.reply(client, tag, Reply::Queues { rows, next: None });
    }

    pub(crate) fn list_queues(&self, client: ClientId, tag: Tag, (after, limit): (Cursor, u32), context: &mut Context) {
        // A queue that is dropped and created again has a new birth number. Queues created after the first page are left out.
        let births = if after.1 == 0 { self.queues.births() } else { after.1 };
        let row = |id| {
            let queue = self.queues.at(id).filter(|queue| queue.image.known && queue.birth < births)?;
            self.spend(ROW);
            Some(queue.row(self.oldest_ready(id)))
        };
        let (rows, next): (Vec<QueueRow>, _) = self.page_of_queues(after.0, self.page(limit), row);
        context.reply(client, tag, Reply::Queues { rows, next: next.map(|next| Cursor(next, births)) });
    }

    /// The first queues from a number on for which `row` returns a row, and the number at which to go on. Unused numbers cost a
    /// look too.
    pub(crate) fn page_of_queues<T>(
        &self,
        first: u64,
        limit: usize,
        what: impl Fn(QueueId) -> Option<T>,
    ) -> (Vec<T>, Option<u64>) {
        let first = u32::try_from(first).unwrap_or(u32::MAX);
        let (mut page, mut left) = (Vec::new(), limit as u64 * WORK_PER_ROW);
        for id in first..self.queues.numbers() {
            if left == 0 {
                return (page, Some(id.into()));
            }
            self.spend(STEP);
            left = left.saturating_sub(STEP);
            let Some(row) = what(QueueId(id)) else { continue };
            if page.len() == limit {
                return (page, Some(id.into()));
            }
            page.push(row);
        }
        (page, None)
    }

    pub(crate) fn list_workers(
        &self,
        client: ClientId,
        tag: Tag,
        (after, limit): (Cursor, u32),
        context: &mut Context,
    ) {
        let limit = self.page(limit);
        let mut workers = self.workers.range(after.0..);
        let rows: Vec<WorkerRow> = workers.by_ref().take(limit).map(|(_, worker)| worker.row()).collect();
        self.spend(ROW * rows.len() as u64);
        let next = workers.next().map(|(number, _)| Cursor(*number, 0));
        context.reply(client, tag, Reply::Workers { rows, next });
    }

    /// Lists clients. A client that serves more queues than one page may name gets several rows; the first has the queues that
    /// it named last.
    pub(crate) fn list_clients(
        &self,
        client: ClientId,
        tag: Tag,
        (after, limit): (Cursor, u32),
        context: &mut Context,
    ) {
        let limit = self.page(limit);
        let (mut rows, mut next) = (Vec::new(), None);
        let mut names_left = limit * NAMES_PER_ROW;
        for id in self.client_ids.range(ClientId(after.0)..) {
            let skipped = if id.0 == after.0 { after.1 } else { 0 };
            if rows.len() == limit || names_left == 0 {
                next = Some(Cursor(id.0, skipped));
                break;
            }
            let row = self.client_row(*id, usize::try_from(skipped).unwrap_or(usize::MAX), names_left);
            let Some(row) = row else { continue };
            self.spend(ROW + NAME * row.subscriptions.len() as u64);
            names_left -= row.subscriptions.len();
            let more = row.goes_on.then_some(Cursor(id.0, skipped + row.subscriptions.len() as u64));
            rows.push(row);
            if more.is_some() {
                next = more;
                break;
            }
        }
        context.reply(client, tag, Reply::Clients { rows, next });
    }

    /// A client with at most `names_max` of the queues that it serves, without the last `skipped`, which earlier rows had.
    fn client_row(&self, id: ClientId, skipped: usize, names_max: usize) -> Option<ClientRow> {
        let client = self.clients.get(&id)?;
        let left = client.subscriptions.len().saturating_sub(skipped);
        let first = left.saturating_sub(names_max);
        let name = |queue| self.queues.at(queue).map(|queue| queue.image.name.clone());
        let told = client.subscriptions.get(first..left).unwrap_or_default();
        Some(ClientRow {
            number: client.info.number,
            address: client.info.address.clone(),
            label: client.label.clone(),
            protocol: client.info.protocol,
            subscriptions: told.iter().filter_map(|served| name(served.queue)).collect(),
            is_continued: skipped > 0,
            goes_on: first > 0,
            held: u32::try_from(client.held.len()).unwrap_or(u32::MAX),
            waits: client.waits(),
        })
    }

    pub(crate) fn list_jobs(
        &self,
        client: ClientId,
        tag: Tag,
        filter: &Filter,
        (after, limit): (Cursor, u32),
        context: &mut Context,
    ) {
        let limit = self.page(limit);
        let (slots, next) = self.matching(filter, after, limit);
        self.spend(ROW * slots.len() as u64);
        let rows: Vec<JobView> = slots.into_iter().filter_map(|slot| self.view(self.jobs.at(slot)?)).collect();
        context.reply(client, tag, Reply::Jobs { rows, next });
    }

    pub(crate) fn mutate(
        &mut self,
        client: ClientId,
        tag: Tag,
        filter: &Filter,
        action: Mutation,
        (after, limit): (Cursor, u32),
        context: &mut Context,
    ) {
        let (slots, next) = self.matching(filter, after, self.page(limit));
        self.spend(CHANGE * slots.len() as u64);
        let mut changed = 0;
        for slot in slots {
            changed += u32::from(self.mutate_one(slot, action, context));
        }
        context.reply(client, tag, Reply::Mutated { changed, next });
    }

    fn mutate_one(&mut self, slot: Slot, action: Mutation, context: &mut Context) -> bool {
        let Some((kind, durable)) = self.jobs.at(slot).map(|job| (job.state.kind(), job.durable)) else { return false };
        match (action, kind) {
            (_, JobStateKind::Leased) => return false,
            (Mutation::Discard, _) => self.discard(slot, context),
            (Mutation::Kill, JobStateKind::Dead | JobStateKind::Done | JobStateKind::Parked) => return false,
            // The dead-letter queue holds durable jobs only.
            (Mutation::Kill, _) if !durable => self.discard(slot, context),
            (Mutation::Kill, _) => {
                self.tell_end(slot, &crate::outcome::End::Cancelled, context);
                self.bury(slot, context);
            }
            (Mutation::Requeue, JobStateKind::Ready | JobStateKind::Done | JobStateKind::Parked) => return false,
            (Mutation::Requeue, _) => {
                let rank = self.rank(false);
                self.make_ready(slot, Some(rank), context);
            }
        }
        true
    }

    // ---- which jobs ------------------------------------------------------------------------------------------------

    /// A page of matching jobs, and where to go on. Names lead directly to their jobs. A timed state is read in order of time,
    /// the ready jobs of a queue in their order, anything else in slab order, which is arbitrary.
    pub(crate) fn matching(&self, filter: &Filter, after: Cursor, limit: usize) -> (Vec<Slot>, Option<Cursor>) {
        if !filter.names.is_empty() {
            return self.matching_names(filter, after, limit);
        }
        let set = match filter.state {
            Some(JobStateKind::Scheduled) => Some(&self.sets.scheduled),
            Some(JobStateKind::Retrying) => Some(&self.sets.retrying),
            Some(JobStateKind::Dead) => Some(&self.sets.dead),
            Some(JobStateKind::Done) => Some(&self.sets.done),
            Some(JobStateKind::Ready | JobStateKind::Leased | JobStateKind::Parked) | None => None,
        };
        if let Some(set) = set {
            let from = (Timestamp(after.0), JobId(after.1));
            let rows = set.range(from..).map(|(at, id)| (Cursor(at.0, id.0), self.jobs.slot(*id), LOOKED_UP));
            return self.page_of(filter, rows, limit);
        }
        match (&filter.queue, filter.state) {
            (Some(name), Some(JobStateKind::Ready)) => self.matching_ready(filter, name, after, limit),
            (Some(_) | None, _) => {
                let first = u32::try_from(after.0).unwrap_or(u32::MAX);
                let rows = self.jobs.places_from(first).map(|(state, job)| {
                    (Cursor(state.0.into(), 0), job.map(|_| state), if job.is_some() { STEP * 4 } else { STEP })
                });
                self.page_of(filter, rows, limit)
            }
        }
    }

    /// Each name once, its jobs by age. The cursor holds the name's index and the job's number.
    fn matching_names(&self, filter: &Filter, after: Cursor, limit: usize) -> (Vec<Slot>, Option<Cursor>) {
        let mut names: Vec<&[u8]> = filter.names.iter().map(AsRef::as_ref).collect();
        names.sort_unstable();
        names.dedup();
        let first = usize::try_from(after.0).unwrap_or(usize::MAX);
        let rows = (0_u64..).zip(names).skip(first).flat_map(|(index, name)| {
            let oldest = if index == after.0 { JobId(after.1) } else { JobId(0) };
            let jobs = self.jobs.all_named(name, oldest).map(move |(id, slot)| (Cursor(index, id.0), Some(slot)));
            // A name without jobs costs a look too.
            let looked_for = (Cursor(index, oldest.0), None);
            std::iter::once(looked_for).chain(jobs).map(|(cursor, slot)| (cursor, slot, LOOKED_UP))
        });
        self.page_of(filter, rows, limit)
    }

    fn matching_ready(&self, filter: &Filter, name: &[u8], after: Cursor, limit: usize) -> (Vec<Slot>, Option<Cursor>) {
        let Some(queue) = self.queues.named(name).and_then(|id| self.queues.at(id)) else { return (Vec::new(), None) };
        // The cursor names the last sort key seen. A `cycle` queue does not use the key's lane, and a `work` queue does not use
        // its minor part; the second half of the cursor holds the one in use.
        let is_cycle = queue.image.kind == QueueKind::Cycle;
        let from = (after != Cursor::default()).then(|| match is_cycle {
            true => SortKey { lane: 0, major: after.0, minor: after.1 },
            false => SortKey { lane: u8::try_from(after.1).unwrap_or(u8::MAX), major: after.0, minor: 0 },
        });
        let walk = std::iter::successors(queue.line.after(from), |(at, _)| queue.line.after(Some(*at)));
        let mut last = after;
        let rows = walk.map(|(at, slot)| {
            let before = last;
            last = Cursor(at.major, if is_cycle { at.minor } else { at.lane.into() });
            (before, Some(slot), LOOKED_UP)
        });
        self.page_of(filter, rows, limit)
    }

    /// Takes rows until the page is full or the search has cost enough. Each row comes with its cursor and with the cost of
    /// getting to it.
    fn page_of(
        &self,
        filter: &Filter,
        rows: impl Iterator<Item = (Cursor, Option<Slot>, u64)>,
        limit: usize,
    ) -> (Vec<Slot>, Option<Cursor>) {
        let (mut page, mut left) = (Vec::new(), limit as u64 * WORK_PER_ROW);
        for (cursor, slot, cost) in rows {
            if page.len() >= limit || left == 0 {
                return (page, Some(cursor));
            }
            let (matches, test_cost) = slot.map_or((false, 0), |slot| self.matches(filter, slot));
            self.spend(cost + test_cost);
            left = left.saturating_sub(cost + test_cost);
            if matches {
                page.extend(slot);
            }
        }
        (page, None)
    }

    /// Whether a job matches in everything but its name, and the cost of the test.
    fn matches(&self, filter: &Filter, slot: Slot) -> (bool, u64) {
        let Some(job) = self.jobs.at(slot) else { return (false, 0) };
        let in_queue = |name: &bytes::Bytes| self.queues.named(name) == Some(job.queue);
        let may_match = filter.state.is_none_or(|state| job.state.kind() == state)
            && filter.queue.as_ref().is_none_or(in_queue)
            && filter.protocol.is_none_or(|protocol| job.protocol == protocol);
        match &filter.test {
            Some(test) if may_match => ((test.0)(job), TEST + job.body().len() as u64 / TEST_BYTES),
            Some(_) | None => (may_match, 0),
        }
    }

    pub(crate) fn page(&self, limit: u32) -> usize {
        limit.clamp(1, self.limits.page_max.max(1)) as usize
    }
}

impl Worker {
    fn row(&self) -> WorkerRow {
        let count = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
        WorkerRow {
            name: Bytes::copy_from_slice(&self.name),
            about: self.about.clone(),
            protocol: self.protocol,
            state: self.state,
            beat_at: self.beat_at,
            connections: count(self.clients.len()),
            held: count(self.held.len()),
        }
    }
}
