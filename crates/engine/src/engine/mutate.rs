//! Bulk changes of jobs that match a filter, a page at a time.

use super::attempts::take_back;
use super::call::{Call, Page};
use super::ends::{bury, discard, notify_end};
use super::history::record_end;
use super::queues::show;
use super::requeue::{make_ready, retry_at};
use super::search::{Matches, Search};
use super::state::State;
use crate::context::Context;
use crate::event::{QueueChange, Reply};
use crate::history::Ending;
use crate::jobs::{Job, JobStateKind, Slot};
use crate::outcome::End;
use crate::request::{Cursor, Filter, Mutation, QueueKind};
use crate::work::CHANGE;

pub(super) fn mutate(
    state: &mut State,
    filter: &Filter,
    action: Mutation,
    page: Page,
    call: &mut Call<'_>,
) {
    let retries = matches!(action, Mutation::Requeue | Mutation::Redrive { .. });
    let home = state.home(call.client);
    let in_order = retries && state.queues.are_ordered(home, filter.queue.as_deref());
    let matches = Search::new(state, filter, page, call).to_retry(in_order);
    let Some(Matches { slots, next, .. }) = matches.complete(call) else {
        return;
    };
    if action == Mutation::Discard
        && page.after == Cursor::default()
        && let Some(queue) = filter.cleared_queue()
        && let Some(id) = state.queues.named(home, queue)
    {
        show(state, id, queue, QueueChange::Cleared);
    }
    state.work.spend(CHANGE * slots.len() as u64);
    let change =
        |changed, slot| changed + u32::from(mutate_one(state, slot, action, changed, call.context));
    let changed = slots.into_iter().fold(0, change);
    call.reply(Reply::Mutated { changed, next });
}

/// `before` is the number of jobs that the command has already modified.
fn mutate_one(
    state: &mut State,
    slot: Slot,
    action: Mutation,
    before: u32,
    context: &mut Context,
) -> bool {
    let Some(job) = state
        .jobs
        .at(slot)
        .filter(|job| applies(state, action, job))
    else {
        return false;
    };
    match action {
        Mutation::Discard | Mutation::Cancel => discard(state, slot, Ending::Cancelled, context),
        // The dead-letter queue holds durable jobs only.
        Mutation::Kill if !job.durable => discard(state, slot, Ending::Cancelled, context),
        Mutation::Kill => {
            record_end(state, slot, Ending::Dead, None, context);
            notify_end(state, slot, &End::Cancelled, context);
            bury(state, slot, context);
        }
        Mutation::Requeue => {
            let rank = state.meta.rank(false);
            make_ready(state, slot, Some(rank), context);
        }
        Mutation::Release => {
            take_back(state, slot);
            make_ready(state, slot, None, context);
        }
        Mutation::Redrive {
            delay_ms,
            per_second,
        } => {
            let later_ms = u64::from(before) * 1_000 / u64::from(per_second.max(1));
            retry_at(
                state,
                slot,
                state.now.after_ms(delay_ms.saturating_add(later_ms)),
                context,
            );
        }
    }
    true
}

pub(super) fn preview(
    state: &State,
    filter: &Filter,
    action: Mutation,
    page: Page,
    call: &mut Call<'_>,
) {
    let matches = Search::new(state, filter, page, call).matching(None);
    let Some(Matches { slots, next, .. }) = matches.complete(call) else {
        return;
    };
    let jobs = slots
        .into_iter()
        .filter_map(|slot| state.jobs.at(slot))
        .filter(|job| applies(state, action, job));
    call.reply(Reply::Counted {
        jobs: u32::try_from(jobs.count()).unwrap_or(u32::MAX),
        next,
    });
}

/// Returns true if a bulk change applies to a job in the present state.
fn applies(state: &State, action: Mutation, job: &Job) -> bool {
    use JobStateKind::{Dead, Done, Leased, Parked, Ready};
    let kind = job.state.kind();
    match action {
        Mutation::Discard => kind != Leased,
        Mutation::Cancel => true,
        Mutation::Kill => !matches!(kind, Leased | Dead | Done | Parked),
        Mutation::Requeue => !matches!(kind, Leased | Ready | Done | Parked),
        Mutation::Redrive { .. } => kind == Dead,
        Mutation::Release => {
            kind == Leased
                && state
                    .queues
                    .at(job.queue)
                    .is_some_and(|queue| queue.image().kind == QueueKind::Work)
        }
    }
}
