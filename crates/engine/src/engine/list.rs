//! Listings, and the jobs of bulk changes, a page at a time. No command shows or changes more than `page_max` rows, and its
//! search costs at most [`WORK_PER_ROW`] for each row, so no command stalls the others.

use std::ops::Deref;

use bytes::Bytes;

use super::call::{Call, Page};
use super::edit::view;
use super::scope::Scope;
use super::serving::{waiting, workers};
use super::state::State;
use crate::clients::{Client, Worker};
use crate::condition::{Condition, Order, Subject};
use crate::event::Reply;
use crate::ids::{ClientId, JobId, Protocol, Protocols, QueueId, Timestamp};
use crate::jobs::{Job, JobStateKind, Slot, Stored};
use crate::query::{ClientRow, FiguresRow, JobView, QueueRow, WorkerRow};
use crate::queues::{Queue, SortKey};
use crate::request::{Cursor, Filter, QueueKind};
use crate::work::{LOOKED_UP, NAME, NAMES_PER_ROW, ROW, STEP, TEST, TEST_BYTES, WORK_PER_ROW};

/// Jobs that the row of a worker shows.
const WORKER_JOBS: usize = 5;

pub(super) fn look_queue(state: &State, name: &[u8], call: &mut Call<'_>) {
    let own = state.clients.protocol_of(call.client);
    let is_shown =
        |queue: &&Queue| queue.is_known_to(own) || (own.is_none() && queue.image().is_special());
    let queue = state
        .queues
        .named(name)
        .and_then(|id| state.queues.at(id))
        .filter(is_shown);
    let rows = queue
        .map(|queue| queue_row(state, queue, own))
        .into_iter()
        .collect();
    call.reply(Reply::Queues { rows, next: None });
}

pub(super) fn list_queues(state: &State, page: Page, call: &mut Call<'_>) {
    // A queue that is dropped and created again has a new birth number. Queues created after the first page are left
    // out.
    let births = if page.after.1 == 0 {
        state.queues.births()
    } else {
        page.after.1
    };
    let own = state.clients.protocol_of(call.client);
    let row = |id| {
        let queue = state
            .queues
            .at(id)
            .filter(|queue| queue.is_known_to(own) && queue.birth() < births)?;
        state.work.spend(ROW);
        Some(queue_row(state, queue, own))
    };
    let (rows, next): (Vec<QueueRow>, _) =
        page_of_queues(state, page.after.0, state.page(page.limit), row);
    call.reply(Reply::Queues {
        rows,
        next: next.map(|next| Cursor(next, births)),
    });
}

pub(super) fn list_configured(state: &State, page: Page, call: &mut Call<'_>) {
    let mut queues = state
        .queues
        .special()
        .skip_while(|queue| u64::from(queue.image().id.0) < page.after.0);
    let row = |queue: &Queue| QueueRow {
        rules: queue.image().rules(),
        ..queue_row(state, queue, None)
    };
    let rows: Vec<QueueRow> = queues
        .by_ref()
        .take(state.page(page.limit))
        .map(row)
        .collect();
    state.work.spend(ROW * rows.len() as u64);
    let next = queues
        .next()
        .map(|queue| Cursor(queue.image().id.0.into(), 0));
    call.reply(Reply::Queues { rows, next });
}

pub(super) fn list_figures(state: &State, page: Page, call: &mut Call<'_>) {
    let row = |id| {
        let queue = state.queues.at(id)?;
        let figures = queue.figures()?.clone();
        state.work.spend(ROW);
        Some(FiguresRow {
            name: queue.image().name.clone(),
            figures,
        })
    };
    let (rows, next) = page_of_queues(state, page.after.0, state.page(page.limit), row);
    call.reply(Reply::Figures {
        rows,
        next: next.map(|next| Cursor(next, 0)),
    });
}

pub(super) fn list_kinds(state: &State, page: Page, call: &mut Call<'_>) {
    let (rows, next) = state.kinds.page(page.after.0, state.page(page.limit));
    state.work.spend(ROW * rows.len() as u64);
    call.reply(Reply::Kinds {
        rows,
        next: next.map(|next| Cursor(next, 0)),
    });
}

/// The part of a queue that a client of this protocol has.
fn queue_row(state: &State, queue: &Queue, own: Option<Protocol>) -> QueueRow {
    let (image, scope) = (queue.image(), queue.scope(own));
    let ready = queue.ready_in(scope);
    let oldest = queue
        .ready()
        .first_of(ready)
        .and_then(|(_, slot)| state.jobs.at(slot));
    QueueRow {
        name: image.name.clone(),
        kind: image.kind,
        paused: image.paused.within(Protocols::of(scope)),
        paused_at: image.paused_at,
        jobs_max: image.limits(scope),
        jobs_max_of: image.jobs_max_of,
        throttle: image.throttle,
        rules: queue.rules().copied().unwrap_or_default(),
        bridged: queue.is_bridged(),
        slots_held: queue.slots_held(),
        ready: queue.ready().counts(ready),
        places: queue.states(scope),
        workers: workers(state, queue, scope),
        oldest_ready_at: oldest.map(|job| job.ready_at),
        waiting: Some(waiting(queue, scope)),
        policy: queue.policy_row().map(Box::new),
    }
}

/// The first queues from a number on for which `row` returns a row, and the number at which to go on. Unused numbers
/// cost a look too.
pub(super) fn page_of_queues<T>(
    state: &State,
    first: u64,
    limit: usize,
    what: impl Fn(QueueId) -> Option<T>,
) -> (Vec<T>, Option<u64>) {
    let first = u32::try_from(first).unwrap_or(u32::MAX);
    let (mut page, mut left) = (Vec::new(), limit as u64 * WORK_PER_ROW);
    for id in first..state.queues.numbers() {
        if left == 0 {
            return (page, Some(id.into()));
        }
        let before = state.work.spent();
        state.work.spend(STEP);
        let row = what(QueueId(id));
        // A row costs more with many workers.
        left = left.saturating_sub(state.work.spent().wrapping_sub(before));
        let Some(row) = row else { continue };
        if page.len() == limit {
            return (page, Some(id.into()));
        }
        page.push(row);
    }
    (page, None)
}

/// Lists clients. A client that serves more queues than one page may name gets several rows; the first has the queues
/// that it named last.
pub(super) fn list_clients(state: &State, page: Page, call: &mut Call<'_>) {
    let limit = state.page(page.limit);
    let (mut rows, mut next) = (Vec::new(), None);
    let mut names_left = limit * NAMES_PER_ROW;
    let scope = Scope::of(state, call);
    for id in state.clients.ids_from(ClientId(page.after.0)) {
        let skipped = if id.0 == page.after.0 {
            page.after.1
        } else {
            0
        };
        if rows.len() == limit || names_left == 0 {
            next = Some(Cursor(id.0, skipped));
            break;
        }
        let row = client_row(
            state,
            id,
            scope,
            usize::try_from(skipped).unwrap_or(usize::MAX),
            names_left,
        );
        let Some((row, names)) = row else { continue };
        state.work.spend(ROW + NAME * names as u64);
        names_left -= names;
        let more = row.goes_on.then_some(Cursor(id.0, skipped + names as u64));
        rows.push(row);
        if more.is_some() {
            next = more;
            break;
        }
    }
    call.reply(Reply::Clients { rows, next });
}

/// A client with at most `names_max` of the queues that it serves, without the last `skipped`, which earlier rows had;
/// and the number of these queues, shown or not.
fn client_row(
    state: &State,
    id: ClientId,
    scope: Scope,
    skipped: usize,
    names_max: usize,
) -> Option<(ClientRow, usize)> {
    let client = state.clients.get(id)?;
    let left = client.subscriptions().len().saturating_sub(skipped);
    let first = left.saturating_sub(names_max);
    let name = |queue| {
        state
            .queues
            .at(queue)
            .map(|queue| queue.image().name.clone())
    };
    let named = client.subscriptions().get(first..left).unwrap_or_default();
    let shown = named
        .iter()
        .filter(|served| scope.has_subscription(state, client.protocol(), served.queue));
    let row = ClientRow {
        id,
        number: client.info().number,
        address: client.info().address.clone(),
        label: if client.label().is_empty() {
            worker_name(state, client, scope)
        } else {
            client.label().clone()
        },
        protocol: client.protocol(),
        subscriptions: shown.filter_map(|served| name(served.queue)).collect(),
        is_continued: skipped > 0,
        goes_on: first > 0,
        held: u32::try_from(state.jobs.holders().held_by(id).len()).unwrap_or(u32::MAX),
        waits: client.waits(),
    };
    Some((row, named.len()))
}

/// The name of the worker that a client belongs to, for an operator.
fn worker_name(state: &State, client: &Client, scope: Scope) -> Bytes {
    let number = client.worker().filter(|_| scope == Scope::ALL);
    let worker = number.and_then(|number| state.workers.from(number).next());
    worker.map_or_else(Bytes::new, |(_, worker)| {
        Bytes::copy_from_slice(worker.name())
    })
}

pub(super) fn list_workers(state: &State, page: Page, call: &mut Call<'_>) {
    let mut workers = state.workers.from(page.after.0);
    let row = |(_, worker): (u64, &Worker)| {
        let held = state.jobs.holders().held_by_worker(worker.name());
        let shown = |id: JobId| {
            let job = state.jobs.get(id)?;
            Some((
                id,
                state.queues.at(job.queue)?.image().name.clone(),
                job.lease()?.taken_at,
            ))
        };
        let waits = |id: &ClientId| state.clients.get(*id).is_some_and(Client::waits);
        state
            .work
            .spend(ROW + STEP * worker.clients().count() as u64);
        let waiting = u32::try_from(worker.clients().filter(waits).count()).ok();
        WorkerRow {
            waiting,
            jobs: held.iter().filter_map(shown).take(WORKER_JOBS).collect(),
            ..worker.row(held.len())
        }
    };
    let rows: Vec<WorkerRow> = workers
        .by_ref()
        .take(state.page(page.limit))
        .map(row)
        .collect();
    let next = workers.next().map(|(number, _)| Cursor(number, 0));
    call.reply(Reply::Workers { rows, next });
}

pub(super) fn list_jobs(
    state: &State,
    filter: &Filter,
    order: Option<Order>,
    page: Page,
    call: &mut Call<'_>,
) {
    let matches = matching(
        state,
        filter,
        order,
        Scope::of(state, call),
        page.after,
        state.page(page.limit),
    );
    let Some((slots, next)) = found(matches, call) else {
        return;
    };
    state.work.spend(ROW * slots.len() as u64);
    let rows: Vec<JobView> = slots
        .into_iter()
        .filter_map(|slot| view(state, state.jobs.at(slot)?))
        .collect();
    call.reply(Reply::Jobs { rows, next });
}

// ---- which jobs ------------------------------------------------------------------------------------------------

/// A filter, and the part of all jobs to which its client is limited.
#[derive(Clone, Copy)]
struct Scoped<'a> {
    filter: &'a Filter,
    scope: Scope,
}

impl Deref for Scoped<'_> {
    type Target = Filter;

    fn deref(&self) -> &Filter {
        self.filter
    }
}

/// A page of matching jobs.
#[derive(Debug, Default)]
pub(super) struct Matches {
    pub(super) slots: Vec<Slot>,
    /// Where to go on.
    pub(super) next: Option<Cursor>,
    /// Bodies that the conditions ask for and that are not in memory. With any, the page is worth nothing.
    missing: Vec<(JobId, Stored)>,
    /// Bytes of bodies that the rows and the conditions need and that are not in memory.
    stored_bytes: u64,
}

/// Bytes of bodies that may be loaded for a page.
const LOADED_BYTES_MAX: u64 = 4 << 20;
/// Bodies that may be loaded for the conditions of a page.
const LOADED_MAX: usize = 512;

/// The rows of a page and where to go on, unless the command must wait for bodies.
pub(super) fn found(matches: Matches, call: &mut Call<'_>) -> Option<(Vec<Slot>, Option<Cursor>)> {
    call.context.missing.extend_from_slice(&matches.missing);
    matches
        .missing
        .is_empty()
        .then_some((matches.slots, matches.next))
}

/// A page of jobs to try again. Where keys have an order they come by age, and names in the order of their pages.
pub(super) fn to_retry(
    state: &State,
    filter: &Filter,
    in_order: bool,
    scope: Scope,
    after: Cursor,
    limit: usize,
) -> Matches {
    if in_order && filter.ids.is_empty() && filter.names.is_empty() {
        let rows = state
            .jobs
            .oldest_from(JobId(after.0))
            .map(|(id, slot)| (Cursor(id.0, 0), Some(slot), STEP * 4));
        return page_of(state, Scoped { filter, scope }, rows, limit);
    }
    let mut matches = matching(state, filter, None, scope, after, limit);
    if in_order {
        matches
            .slots
            .sort_by_key(|slot| state.jobs.at(*slot).map(|job| job.id));
    }
    matches
}

/// A page of matching jobs, and where to go on. Numbers and names lead directly to their jobs. Without an order they come
/// as [`crate::Query::Jobs`] has them.
pub(super) fn matching(
    state: &State,
    filter: &Filter,
    order: Option<Order>,
    scope: Scope,
    after: Cursor,
    limit: usize,
) -> Matches {
    let filter = Scoped { filter, scope };
    if !filter.ids.is_empty() {
        return matching_ids(state, filter, after, limit);
    }
    if !filter.names.is_empty() {
        return matching_names(state, filter, after, limit);
    }
    let has_ended = matches!(filter.state, Some(JobStateKind::Dead | JobStateKind::Done));
    let timed = filter.state.filter(|_| has_ended || order.is_none());
    if let Some(set) = timed.and_then(|kind| state.jobs.timed(kind)) {
        let row =
            |(at, id): &(Timestamp, JobId)| (Cursor(at.0, id.0), state.jobs.slot(*id), LOOKED_UP);
        let from = (Timestamp(after.0), JobId(after.1));
        return match (
            has_ended && order != Some(Order::Oldest),
            after == Cursor::default(),
        ) {
            (true, true) => page_of(state, filter, set.iter().rev().map(row), limit),
            (true, false) => page_of(state, filter, set.range(..=from).rev().map(row), limit),
            (false, _) => page_of(state, filter, set.range(from..).map(row), limit),
        };
    }
    match (&filter.queue, filter.state, order) {
        (Some(name), Some(JobStateKind::Ready), Some(Order::Next)) => {
            matching_next(state, filter, name, after, limit)
        }
        (Some(name), Some(JobStateKind::Ready), None) => {
            matching_ready(state, filter, name, after, limit)
        }
        (.., Some(Order::Oldest)) => {
            let named = |it: &Condition| {
                if let Condition::InBatch(name) = it {
                    state.batches.named(name)
                } else {
                    None
                }
            };
            // The jobs of a batch have higher numbers, and most of them follow at once.
            let first = filter
                .conditions
                .iter()
                .find_map(named)
                .map_or(JobId(0), |batch| batch.id);
            let rows = state.jobs.oldest_from(first.max(JobId(after.0)));
            page_of(
                state,
                filter,
                rows.map(|(id, slot)| (Cursor(id.0, 0), Some(slot), STEP * 4)),
                limit,
            )
        }
        (..) => {
            let from = if after == Cursor::default() {
                JobId(u64::MAX)
            } else {
                JobId(after.0)
            };
            let rows = state
                .jobs
                .newest_from(from)
                .map(|(id, slot)| (Cursor(id.0, 0), Some(slot), STEP * 4));
            page_of(state, filter, rows, limit)
        }
    }
}

/// Each job once, by age. The cursor holds a job's number.
fn matching_ids(state: &State, filter: Scoped<'_>, after: Cursor, limit: usize) -> Matches {
    let mut ids: Vec<JobId> = filter
        .ids
        .iter()
        .copied()
        .filter(|id| id.0 >= after.0)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let rows = ids
        .into_iter()
        .map(|id| (Cursor(id.0, 0), state.jobs.slot(id), LOOKED_UP));
    page_of(state, filter, rows, limit)
}

/// Each name once, its jobs by age. The cursor holds the name's index and the job's number.
fn matching_names(state: &State, filter: Scoped<'_>, after: Cursor, limit: usize) -> Matches {
    let mut names: Vec<&[u8]> = filter.names.iter().map(AsRef::as_ref).collect();
    names.sort_unstable();
    names.dedup();
    let first = usize::try_from(after.0).unwrap_or(usize::MAX);
    let rows = (0_u64..).zip(names).skip(first).flat_map(|(index, name)| {
        let oldest = if index == after.0 {
            JobId(after.1)
        } else {
            JobId(0)
        };
        let jobs = state
            .jobs
            .all_named(name, oldest)
            .map(move |(id, slot)| (Cursor(index, id.0), Some(slot)));
        // A name without jobs costs a look too.
        let looked_for = (Cursor(index, oldest.0), None);
        std::iter::once(looked_for)
            .chain(jobs)
            .map(|(cursor, slot)| (cursor, slot, LOOKED_UP))
    });
    page_of(state, filter, rows, limit)
}

fn matching_ready(
    state: &State,
    filter: Scoped<'_>,
    name: &[u8],
    after: Cursor,
    limit: usize,
) -> Matches {
    let Some(queue) = state.queues.named(name).and_then(|id| state.queues.at(id)) else {
        return Matches::default();
    };
    // The cursor names the last sort key seen. A `cycle` queue does not use the key's lane, and a `work` queue does not
    // use its minor part; the second half of the cursor holds the one in use.
    let is_cycle = queue.image().kind == QueueKind::Cycle;
    let from = (after != Cursor::default()).then(|| match is_cycle {
        true => SortKey {
            lane: 0,
            major: after.0,
            minor: after.1,
        },
        false => SortKey {
            lane: u8::try_from(after.1).unwrap_or(u8::MAX),
            major: after.0,
            minor: 0,
        },
    });
    let view = queue.ready_in(queue.scope(filter.scope.protocol()));
    let next = |at| queue.ready().after_of(view, at);
    let walk = std::iter::successors(next(from), |(at, _)| next(Some(*at)));
    let mut last = after;
    let rows = walk.map(|(at, slot)| {
        let before = last;
        last = Cursor(at.major, if is_cycle { at.minor } else { at.lane.into() });
        (before, Some(slot), LOOKED_UP)
    });
    page_of(state, filter, rows, limit)
}

/// Jobs in the order of their starts. The cursor holds the number of starts before.
fn matching_next(
    state: &State,
    filter: Scoped<'_>,
    name: &[u8],
    after: Cursor,
    limit: usize,
) -> Matches {
    let Some(queue) = state.queues.named(name).and_then(|id| state.queues.at(id)) else {
        return Matches::default();
    };
    let Some(starts) = queue.starts(filter.scope.protocol(), state.now) else {
        return matching_ready(state, filter, name, after, limit);
    };
    state
        .work
        .spend(LOOKED_UP * after.0.min(Order::NEXT_MAX.into()));
    let rows = (0..u64::from(Order::NEXT_MAX))
        .zip(starts)
        .skip(usize::try_from(after.0).unwrap_or(usize::MAX));
    page_of(
        state,
        filter,
        rows.map(|(index, start)| (Cursor(index, 0), Some(start.slot), LOOKED_UP)),
        limit,
    )
}

/// Takes rows until the page is full or the search has cost enough. Each row comes with its cursor and with the cost of
/// getting to it.
fn page_of(
    state: &State,
    filter: Scoped<'_>,
    rows: impl Iterator<Item = (Cursor, Option<Slot>, u64)>,
    limit: usize,
) -> Matches {
    let (mut page, mut left) = (Matches::default(), limit as u64 * WORK_PER_ROW);
    for (cursor, slot, cost) in rows {
        let loads_much = page.stored_bytes >= LOADED_BYTES_MAX || page.missing.len() >= LOADED_MAX;
        if page.slots.len() >= limit || left == 0 || loads_much {
            page.next = Some(cursor);
            return page;
        }
        let job = slot.and_then(|slot| state.jobs.at(slot));
        let (matches, test_cost) = job.map_or((Some(false), 0), |job| matches(state, filter, job));
        // A job whose body decides and cannot be read is passed over.
        let is_unreadable = |job: &&Job| state.unreadable.contains(&job.id);
        let matches = matches.or_else(|| job.filter(is_unreadable).map(|_| false));
        state.work.spend(cost + test_cost);
        left = left.saturating_sub(cost + test_cost);
        if matches != Some(false)
            && let Some((id, stored)) = job.and_then(|job| Some((job.id, job.payload.stored()?)))
        {
            page.stored_bytes += u64::from(stored.len);
            page.missing
                .extend(matches.is_none().then_some((id, stored)));
        }
        if matches == Some(true) {
            page.slots.extend(slot);
        }
    }
    page
}

/// Whether a job matches in everything but its name, and the cost of the test. `None`: its body decides, and is not in
/// memory.
fn matches(state: &State, filter: Scoped<'_>, job: &Job) -> (Option<bool>, u64) {
    let in_queue = |name: &Bytes| state.queues.named(name) == Some(job.queue);
    let may_match = filter.state.is_none_or(|state| job.state.kind() == state)
        && filter.queue.as_ref().is_none_or(in_queue)
        && filter
            .protocol
            .is_none_or(|protocol| job.protocol == protocol)
        && filter.scope.has_job(state, job);
    if !may_match || filter.conditions.is_empty() {
        return (Some(may_match), 0);
    }
    let queue = state
        .queues
        .at(job.queue)
        .map_or(&[][..], |queue| &queue.image().name);
    let batch = job
        .member()
        .and_then(|member| state.batches.at(member.batch))
        .map(|batch| &batch.name[..]);
    let subject = Subject { job, queue, batch };
    let is_here = job.payload.stored().is_none();
    let can_tell = |condition: &&Condition| is_here || !condition.reads_body();
    let holds = |condition: &Condition| {
        let by_key = if let Condition::OfKey(key) = condition {
            Some(state.queues.is_of_key(job, key))
        } else {
            None
        };
        by_key.unwrap_or_else(|| condition.holds(subject, state.skew_ms, state.reader.as_deref()))
    };
    let hold = filter.conditions.iter().filter(can_tell).all(holds);
    let tells_all = filter
        .conditions
        .iter()
        .all(|condition| can_tell(&condition));
    let body_bytes = if is_here { job.body().len() as u64 } else { 0 };
    (
        (tells_all || !hold).then_some(hold),
        TEST + body_bytes / TEST_BYTES,
    )
}
