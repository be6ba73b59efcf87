//! Listings, a page at a time. No command returns or modifies more than `page_max` rows, and the search cost
//! is limited to [`WORK_PER_ROW`](crate::work::WORK_PER_ROW) per row, so no command stalls the others.

use bytes::Bytes;

use super::call::{Call, Page};
use super::edit::view;
use super::scope::Scope;
use super::search::{Budget, Matches, Search, page_in};
use super::serving::{waiting, workers};
use super::state::State;
use crate::clients::{Client, Worker};
use crate::condition::Order;
use crate::event::Reply;
use crate::ids::{ClientId, JobId, NameIn, Protocol, Protocols, QueueId};
use crate::query::{ClientRow, FiguresRow, JobView, QueueRow, WorkerRow};
use crate::queues::Queue;
use crate::request::{Cursor, Filter};
use crate::work::{NAME, NAMES_PER_ROW, ROW, STEP};

/// The limit of jobs in the row of a worker.
const WORKER_JOBS: usize = 5;

pub(super) fn look_queue(state: &State, name: &[u8], call: &mut Call<'_>) {
    let own = state.clients.protocol_of(call.client);
    let is_shown =
        |queue: &&Queue| queue.is_known_to(own) || (own.is_none() && queue.image().is_special());
    let queue = state
        .queues
        .named(state.home(call.client), name)
        .and_then(|id| state.queues.at(id))
        .filter(is_shown);
    let rows = queue
        .map(|queue| queue_row(state, queue, own))
        .into_iter()
        .collect();
    call.reply(Reply::Queues { rows, next: None });
}

pub(super) fn list_queues(state: &State, page: Page, call: &mut Call<'_>) {
    // A queue that is dropped and created again has a new birth number. Queues created after the first page
    // are omitted.
    let births = if page.after.1 == 0 {
        state.queues.births()
    } else {
        page.after.1
    };
    let scope = Scope::of(state, call);
    let row = |id| {
        let queue = state
            .queues
            .at(id)
            .filter(|queue| scope.has_queue(queue) && queue.birth() < births)?;
        state.work.spend(ROW);
        Some(queue_row(state, queue, scope.protocol()))
    };
    let (rows, next): (Vec<QueueRow>, _) =
        page_of_queues(state, scope, page.after.0, state.page(page.limit), row);
    call.reply(Reply::Queues {
        rows,
        next: next.map(|next| Cursor(next, births)),
    });
}

pub(super) fn list_configured(state: &State, page: Page, call: &mut Call<'_>) {
    let scope = Scope::of(state, call);
    let mut queues = state
        .queues
        .special_of(scope.namespace())
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
            namespace: state.queues.namespace_name(queue.image().id),
        })
    };
    let scope = Scope::of(state, call);
    let limit = state.page(page.limit);
    let (rows, next) = page_of_queues(state, scope, page.after.0, limit, row);
    call.reply(Reply::Figures {
        rows,
        next: next.map(|next| Cursor(next, 0)),
    });
}

pub(super) fn list_kinds(state: &State, page: Page, call: &mut Call<'_>) {
    let scope = Scope::of(state, call);
    let limit = state.page(page.limit);
    let (mut rows, next) = state.kinds.page(scope.namespace(), page.after.0, limit);
    for row in &mut rows {
        row.1.namespace = state.queues.namespaces().name(row.0);
    }
    let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
    state.work.spend(ROW * rows.len() as u64);
    call.reply(Reply::Kinds {
        rows,
        next: next.map(|next| Cursor(next, 0)),
    });
}

/// The row of a queue for a client of this protocol.
fn queue_row(state: &State, queue: &Queue, own: Option<Protocol>) -> QueueRow {
    let image = queue.image();
    let scope = queue.scope(own);
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
        namespace: state.queues.namespace_name(queue.image().id),
    }
}

/// The first queues of a scope's namespaces, from an ID on, for which `what` returns a row, and the ID at which to
/// continue.
pub(super) fn page_of_queues<T>(
    state: &State,
    scope: Scope,
    first: u64,
    limit: usize,
    what: impl Fn(QueueId) -> Option<T>,
) -> (Vec<T>, Option<u64>) {
    let first = QueueId(u32::try_from(first).unwrap_or(u32::MAX));
    let first = scope
        .namespace()
        .map_or(first, |namespace| first.max(QueueId::new(namespace, 0)));
    let mut page = Vec::new();
    // A row costs more with many workers.
    let budget = Budget::of_rows(&state.work, limit);
    let seen = |id: &QueueId| scope.reaches(id.namespace());
    for id in state.queues.ids_from(first).take_while(seen) {
        if budget.is_spent() {
            return (page, Some(id.0.into()));
        }
        state.work.spend(STEP);
        let Some(row) = what(id) else {
            continue;
        };
        if page.len() == limit {
            return (page, Some(id.0.into()));
        }
        page.push(row);
    }
    (page, None)
}

/// Lists clients. A client that serves more queues than fit into a page gets several rows; the first has the
/// queues that it registered last.
pub(super) fn list_clients(state: &State, page: Page, call: &mut Call<'_>) {
    let limit = state.page(page.limit);
    let mut rows = Vec::new();
    let mut next = None;
    let mut names_left = limit * NAMES_PER_ROW;
    let scope = Scope::of(state, call);
    let budget = Budget::of_rows(&state.work, limit);
    for id in state.clients.ids_from(ClientId(page.after.0)) {
        if !scope.reaches(state.clients.namespace_of(id)) {
            if budget.is_spent() {
                next = Some(Cursor(id.0, 0));
                break;
            }
            state.work.spend(STEP);
            continue;
        }
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

/// A client with up to `names_max` of the queues that it serves, without the last `skipped`, which previous
/// rows had; and the number of these queues, including skipped ones.
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
    let name = |queue| state.queues.name(queue).cloned();
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
        namespace: state.queues.namespaces().name(client.namespace()),
    };
    Some((row, named.len()))
}

/// The name of the worker that a client belongs to, for an operator.
fn worker_name(state: &State, client: &Client, scope: Scope) -> Bytes {
    let number = client.worker().filter(|_| scope.protocol().is_none());
    let worker = number.and_then(|number| state.workers.from(number).next());
    worker.map_or_else(Bytes::new, |(_, worker)| {
        let NameIn(_, name) = worker.name();
        Bytes::copy_from_slice(name)
    })
}

pub(super) fn list_workers(state: &State, page: Page, call: &mut Call<'_>) {
    let scope = Scope::of(state, call);
    let all = state.workers.from(page.after.0);
    let namespace = |(_, worker): &(u64, &Worker)| {
        let NameIn(namespace, _) = worker.name();
        namespace
    };
    let (workers, next) = page_in(state, scope, state.page(page.limit), all, namespace);
    let row = |(_, worker): (u64, &Worker)| {
        let held = state.jobs.holders().held_by_worker(worker.name());
        let shown = |id: JobId| {
            let job = state.jobs.get(id)?;
            Some((
                id,
                state.queues.name(job.queue)?.clone(),
                job.lease()?.taken_at,
            ))
        };
        let waits = |id: &ClientId| state.clients.get(*id).is_some_and(Client::waits);
        state
            .work
            .spend(ROW + STEP * worker.clients().count() as u64);
        let waiting = u32::try_from(worker.clients().filter(waits).count()).ok();
        let NameIn(namespace, _) = worker.name();
        WorkerRow {
            namespace: state.queues.namespaces().name(namespace),
            waiting,
            jobs: held.iter().filter_map(shown).take(WORKER_JOBS).collect(),
            ..worker.row(held.len())
        }
    };
    let rows: Vec<WorkerRow> = workers.into_iter().map(row).collect();
    let next = next.map(|(number, _)| Cursor(number, 0));
    call.reply(Reply::Workers { rows, next });
}

pub(super) fn list_jobs(
    state: &State,
    filter: &Filter,
    order: Option<Order>,
    page: Page,
    call: &mut Call<'_>,
) {
    let matches = Search::new(state, filter, page, call).matching(order);
    let Some(Matches { slots, next, .. }) = matches.complete(call) else {
        return;
    };
    state.work.spend(ROW * slots.len() as u64);
    let rows: Vec<JobView> = slots
        .into_iter()
        .filter_map(|slot| view(state, state.jobs.at(slot)?))
        .collect();
    call.reply(Reply::Jobs { rows, next });
}
