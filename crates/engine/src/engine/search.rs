//! Which jobs a filter selects, a page at a time.

use std::iter::Peekable;

use super::call::{Call, Page};
use super::scope::Scope;
use super::state::State;
use crate::condition::{Condition, Order, Subject};
use crate::ids::{JobId, Namespace, Timestamp};
use crate::jobs::{Job, JobStateKind, Slot, Stored};
use crate::queues::{Queue, SortKey};
use crate::request::{Cursor, Filter, QueueKind};
use crate::work::{LOOKED_UP, STEP, TEST, TEST_BYTES, WORK_PER_ROW, Work};

/// Bytes of bodies that may be loaded for a page.
const LOADED_BYTES_MAX: u64 = 4 << 20;
/// Bodies that may be loaded for the conditions of a page.
const LOADED_MAX: usize = 512;

/// The cost of getting to the next of all jobs.
const NEXT: u64 = STEP * 4;

/// The most that the search for a page may cost.
pub(super) struct Budget<'a> {
    work: &'a Work,
    begun: u64,
    max: u64,
}

impl<'a> Budget<'a> {
    pub(super) const fn of_rows(work: &'a Work, rows: usize) -> Self {
        Self {
            work,
            begun: work.spent(),
            max: rows as u64 * WORK_PER_ROW,
        }
    }

    pub(super) const fn is_spent(&self) -> bool {
        self.work.spent().wrapping_sub(self.begun) >= self.max
    }
}

/// Up to `limit` of the things in the namespaces of a scope, and that with which to go on. Those of other namespaces
/// are passed over, and if there are very many, the page ends before it is full.
pub(super) fn page_in<T>(
    state: &State,
    scope: Scope,
    limit: usize,
    all: impl Iterator<Item = T>,
    namespace: impl Fn(&T) -> Namespace,
) -> (Vec<T>, Option<T>) {
    let budget = Budget::of_rows(&state.work, limit);
    let mut page = Vec::new();
    for thing in all {
        let is_seen = scope.reaches(namespace(&thing));
        if budget.is_spent() || is_seen && page.len() == limit {
            return (page, Some(thing));
        }
        state.work.spend(STEP);
        if is_seen {
            page.push(thing);
        }
    }
    (page, None)
}

/// A page of matching jobs.
#[derive(Debug, Default)]
pub(super) struct Matches {
    pub(super) slots: Vec<Slot>,
    /// Where to go on.
    pub(super) next: Option<Cursor>,
    /// Bodies that the conditions need and that are not in memory. If there are any, the page must be
    /// discarded.
    missing: Vec<(JobId, Stored)>,
    /// Bytes of bodies that the rows and the conditions need and that are not in memory.
    stored_bytes: u64,
}

impl Matches {
    /// The page, unless the command must wait for bodies.
    pub(super) fn complete(self, call: &mut Call<'_>) -> Option<Self> {
        call.context.missing.extend_from_slice(&self.missing);
        self.missing.is_empty().then_some(self)
    }
}

/// True if a search is for a job.
enum Verdict {
    Yes,
    No,
    /// The body decides, and is not in memory.
    NeedsBody,
}

/// A search for a page of jobs.
#[derive(Clone, Copy)]
pub(super) struct Search<'a> {
    pub(super) state: &'a State,
    pub(super) filter: &'a Filter,
    /// The part of all jobs to which the client is limited.
    pub(super) scope: Scope,
    /// The namespace of the names in the filter.
    pub(super) home: Namespace,
    pub(super) after: Cursor,
    pub(super) limit: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(state: &'a State, filter: &'a Filter, page: Page, call: &Call<'_>) -> Self {
        Self {
            state,
            filter,
            scope: Scope::of(state, call),
            home: state.home(call.client),
            after: page.after,
            limit: state.page(page.limit),
        }
    }

    /// The page of jobs to retry. Where keys have an order, jobs are sorted by age, and named ones in the
    /// order of the pages.
    pub(super) fn to_retry(self, in_order: bool) -> Matches {
        if in_order && self.filter.ids.is_empty() && self.filter.names.is_empty() {
            return self.oldest(JobId(0));
        }
        let mut matches = self.matching(None);
        if in_order {
            matches
                .slots
                .sort_by_key(|slot| self.state.jobs.at(*slot).map(|job| job.id));
        }
        matches
    }

    /// The page. IDs and names lead directly to jobs. Without an order, jobs are sorted as for
    /// [`crate::Query::Jobs`].
    pub(super) fn matching(self, order: Option<Order>) -> Matches {
        let filter = self.filter;
        if !filter.ids.is_empty() {
            return self.by_ids();
        }
        if !filter.names.is_empty() {
            return self.by_names();
        }
        if let Some(kind) = filter.state
            && let has_ended = matches!(kind, JobStateKind::Dead | JobStateKind::Done)
            && (has_ended || order.is_none())
            && let Some(set) = self.state.jobs.timed(kind)
        {
            let row =
                |(at, id): &(Timestamp, JobId)| (Cursor(at.0, id.0), self.state.jobs.slot(*id));
            let after = (Timestamp(self.after.0), JobId(self.after.1));
            return if !has_ended || order == Some(Order::Oldest) {
                self.page(set.range(after..).map(row), LOOKED_UP)
            } else if self.is_first() {
                self.page(set.iter().rev().map(row), LOOKED_UP)
            } else {
                self.page(set.range(..=after).rev().map(row), LOOKED_UP)
            };
        }
        if order == Some(Order::Oldest) {
            return self.oldest(self.batch_begins());
        }
        if order != Some(Order::Newest)
            && filter.state == Some(JobStateKind::Ready)
            && let Some(name) = &filter.queue
        {
            let id = self.state.queues.named(self.home, name);
            return match id.and_then(|id| self.state.queues.at(id)) {
                Some(queue) if order.is_some() => self.next_of(queue),
                Some(queue) => self.ready_of(queue),
                None => Matches::default(),
            };
        }
        let from = if self.is_first() {
            JobId(u64::MAX)
        } else {
            JobId(self.after.0)
        };
        let newest = self.state.jobs.newest_from(from);
        self.page(newest.map(|(id, slot)| (Cursor(id.0, 0), Some(slot))), NEXT)
    }

    fn is_first(&self) -> bool {
        self.after == Cursor::default()
    }

    /// The ID of the batch if its jobs are requested. Jobs have higher IDs, and most of them follow closely.
    fn batch_begins(&self) -> JobId {
        for condition in &self.filter.conditions {
            if let Condition::InBatch(name) = condition
                && let Some(batch) = self.state.batches.named(self.home, name)
            {
                return batch.id;
            }
        }
        JobId(0)
    }

    /// By age, from an ID on. The cursor contains a job's ID.
    fn oldest(self, from: JobId) -> Matches {
        let oldest = self.state.jobs.oldest_from(from.max(JobId(self.after.0)));
        self.page(oldest.map(|(id, slot)| (Cursor(id.0, 0), Some(slot))), NEXT)
    }

    /// By age, without duplicates. The cursor contains a job's ID.
    fn by_ids(self) -> Matches {
        let mut ids = self.filter.ids.clone();
        ids.retain(|id| id.0 >= self.after.0);
        ids.sort_unstable();
        ids.dedup();
        let rows = ids
            .into_iter()
            .map(|id| (Cursor(id.0, 0), self.state.jobs.slot(id)));
        self.page(rows, LOOKED_UP)
    }

    /// By name without duplicates, then by age. The cursor contains the name's index and the job's
    /// ID.
    fn by_names(self) -> Matches {
        let mut names: Vec<&[u8]> = self.filter.names.iter().map(AsRef::as_ref).collect();
        names.sort_unstable();
        names.dedup();
        let first = usize::try_from(self.after.0).unwrap_or(usize::MAX);
        let rows = (0_u64..).zip(names).skip(first).flat_map(|(index, name)| {
            let oldest = if index == self.after.0 {
                JobId(self.after.1)
            } else {
                JobId(0)
            };
            let jobs = self
                .named(name, oldest)
                .map(move |(id, slot)| (Cursor(index, id.0), Some(slot)));
            // A name without jobs also costs a lookup.
            std::iter::once((Cursor(index, oldest.0), None)).chain(jobs)
        });
        self.page(rows, LOOKED_UP)
    }

    /// The jobs with a name from an ID on, by age, in all namespaces of the scope.
    fn named(self, name: &'a [u8], oldest: JobId) -> impl Iterator<Item = (JobId, Slot)> {
        let namespaces = self.state.queues.namespaces().numbers();
        let seen = namespaces.filter(move |namespace| self.scope.reaches(*namespace));
        let mut each: Vec<_> = seen
            .map(|namespace| {
                let jobs = self.state.jobs.all_named(namespace, name, oldest);
                jobs.peekable()
            })
            .collect();
        std::iter::from_fn(move || {
            let key = |jobs: &mut Peekable<_>| jobs.peek().map(|(id, _): &(JobId, Slot)| *id);
            let having = each.iter_mut().filter_map(|jobs| Some((key(jobs)?, jobs)));
            let (_, oldest) = having.min_by_key(|(id, _)| *id)?;
            oldest.next()
        })
    }

    /// Ready jobs of a queue in the order of ranks. The cursor contains the last sort key: a `cycle` queue
    /// does not use the key's lane, and a `work` queue does not use the minor part, so the second half
    /// contains the part in use.
    fn ready_of(self, queue: &Queue) -> Matches {
        let is_cycle = queue.image().kind == QueueKind::Cycle;
        let mut last = self.after;
        let from = SortKey {
            lane: if is_cycle {
                0
            } else {
                u8::try_from(last.1).unwrap_or(u8::MAX)
            },
            major: last.0,
            minor: if is_cycle { last.1 } else { 0 },
        };
        let view = queue.ready_in(queue.scope(self.scope.protocol()));
        let next = |at| queue.ready().after_of(view, at);
        let first = next((!self.is_first()).then_some(from));
        let rows = std::iter::successors(first, |(at, _)| next(Some(*at))).map(|(at, slot)| {
            let before = last;
            last = Cursor(at.major, if is_cycle { at.minor } else { at.lane.into() });
            (before, Some(slot))
        });
        self.page(rows, LOOKED_UP)
    }

    /// Ready jobs of a queue in the order of starts. The cursor contains the number of previous starts.
    fn next_of(self, queue: &Queue) -> Matches {
        let Some(starts) = queue.starts(self.scope.protocol(), self.state.now) else {
            return self.ready_of(queue);
        };
        let before = self.after.0.min(Order::NEXT_MAX.into());
        self.state.work.spend(LOOKED_UP * before);
        let rows = (0..u64::from(Order::NEXT_MAX))
            .zip(starts)
            .skip(usize::try_from(before).unwrap_or(usize::MAX));
        self.page(
            rows.map(|(index, start)| (Cursor(index, 0), Some(start.slot))),
            LOOKED_UP,
        )
    }

    /// Takes rows with cursors until the page is full or the search has reached the cost limit. `cost` is the
    /// cost of reaching a row.
    fn page(self, rows: impl Iterator<Item = (Cursor, Option<Slot>)>, cost: u64) -> Matches {
        let mut page = Matches::default();
        let work = &self.state.work;
        let budget = Budget::of_rows(work, self.limit);
        for (cursor, slot) in rows {
            let loads_much =
                page.stored_bytes >= LOADED_BYTES_MAX || page.missing.len() >= LOADED_MAX;
            if page.slots.len() >= self.limit || budget.is_spent() || loads_much {
                page.next = Some(cursor);
                break;
            }
            work.spend(cost);
            let Some(slot) = slot else { continue };
            let Some(job) = self.state.jobs.at(slot) else {
                continue;
            };
            let stored = job.payload.stored();
            match self.verdict(job) {
                Verdict::Yes => page.slots.push(slot),
                Verdict::No => continue,
                Verdict::NeedsBody => page.missing.extend(stored.map(|stored| (job.id, stored))),
            }
            page.stored_bytes += stored.map_or(0, |stored| u64::from(stored.len));
        }
        page
    }

    /// Compares a job with every condition except the name.
    fn verdict(&self, job: &Job) -> Verdict {
        let Self { state, filter, .. } = *self;
        let in_queue = |name| state.queues.named(self.home, name) == Some(job.queue);
        let may_match = filter.state.is_none_or(|state| job.state.kind() == state)
            && filter.queue.as_deref().is_none_or(in_queue)
            && filter
                .protocol
                .is_none_or(|protocol| job.protocol == protocol)
            && self.scope.has_job(state, job);
        if !may_match {
            return Verdict::No;
        }
        if filter.conditions.is_empty() {
            return Verdict::Yes;
        }
        let is_stored = job.payload.stored().is_some();
        let body_bytes = if is_stored { 0 } else { job.body().len() };
        state.work.spend(TEST + body_bytes as u64 / TEST_BYTES);
        let batch = job
            .member()
            .and_then(|member| state.batches.at(member.batch));
        let subject = Subject {
            job,
            queue: state.queues.name(job.queue).map_or(&[], |name| name),
            batch: batch.map(|batch| &batch.name[..]),
        };
        let mut verdict = Verdict::Yes;
        for condition in &filter.conditions {
            let holds = if is_stored && condition.reads_body() {
                verdict = Verdict::NeedsBody;
                // A job is skipped if the body is needed and cannot be read.
                !state.unreadable.contains(&job.id)
            } else if let Condition::OfKey(key) = condition {
                state.queues.is_of_key(job, key)
            } else {
                condition.holds(subject, state.skew_ms, state.reader.as_deref())
            };
            if !holds {
                return Verdict::No;
            }
        }
        verdict
    }
}
