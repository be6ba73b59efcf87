//! Moves dead jobs to another queue.

use bytes::Bytes;

use super::call::{Call, Page};
use super::identity::expires_by;
use super::place::{insert_job, remember_put, remove_job};
use super::search::{Matches, Search};
use super::state::State;
use crate::context::Context;
use crate::event::Reply;
use crate::ids::{QueueId, Timestamp};
use crate::jobs::{Job, JobState, Slot, Unfit};
use crate::refusal::Outcome;
use crate::request::{Filter, QueueKind};
use crate::work::CHANGE;

/// The limit of jobs that a round moves, because all the bodies are then in memory.
pub(super) const MOVED_MAX: u32 = 512;

/// Moves dead jobs to a queue, where `per_second` of them become ready each second.
pub(super) fn redrive(
    state: &mut State,
    filter: &Filter,
    to: &Bytes,
    delay_ms: u64,
    per_second: u32,
    page: Page,
    call: &mut Call<'_>,
) -> Outcome {
    state.check_name(to)?;
    let home = state.home(call.client);
    let in_order = state.queues.are_ordered(home, filter.queue.as_deref())
        || state.queues.are_ordered(home, Some(to));
    let page = Page {
        limit: page.limit.min(MOVED_MAX),
        ..page
    };
    let matches = Search::new(state, filter, page, call).to_retry(in_order);
    let Some(Matches {
        mut slots, next, ..
    }) = matches.complete(call)
    else {
        return Ok(());
    };
    // The queue is in the client's own namespace, and a job stays in its.
    slots.retain(|slot| {
        let job = state.jobs.at(*slot);
        job.is_some_and(|job| job.queue.namespace() == home)
    });
    if !have_bodies(state, &mut slots, call.context) {
        return Ok(());
    }
    let queue = state.find_or_make(home, to, QueueKind::Work, None)?;
    state.work.spend(CHANGE * 2 * slots.len() as u64);
    let mut changed = 0;
    for slot in slots {
        let later_ms = u64::from(changed) * 1_000 / u64::from(per_second.max(1));
        let at = state.now.after_ms(delay_ms.saturating_add(later_ms));
        changed += u32::from(move_one(state, slot, queue, at, call.context));
    }
    state.queues.drop_if_unknown(queue);
    call.reply(Reply::Mutated { changed, next });
    Ok(())
}

/// Returns true if the bodies of jobs that will be written anew are in memory; the command waits for those that are
/// not. Leaves out jobs whose bodies cannot be read.
pub(super) fn have_bodies(state: &State, slots: &mut Vec<Slot>, context: &mut Context) -> bool {
    slots.retain(|slot| {
        let job = state.jobs.at(*slot);
        job.is_some_and(|job| !state.unreadable.contains(&job.id))
    });
    let jobs = slots.iter().filter_map(|slot| state.jobs.at(*slot));
    let stored = jobs.filter_map(|job| Some((job.id, job.payload.stored()?)));
    context.missing.extend(stored);
    context.missing.is_empty()
}

/// Makes a dead job a new job of this queue, with the same ID. Returns `true` if that was possible.
fn move_one(
    state: &mut State,
    slot: Slot,
    queue: QueueId,
    at: Timestamp,
    context: &mut Context,
) -> bool {
    let rules = state.queues.rules(queue).copied().unwrap_or_default();
    let fits = |job: &&Job| {
        rules
            .body_bytes_max
            .is_none_or(|most| job.payload.body_len() <= most as usize)
    };
    let is_dead = |job: &&Job| matches!(job.state, JobState::Dead(_)) && job.cycle().is_none();
    let Some(mut job) = state.jobs.at(slot).filter(is_dead).filter(fits).cloned() else {
        return false;
    };
    // Must precede the removal of the queue's last job, which may be this one.
    state
        .queues
        .make_known(queue, Some(job.protocol), &mut context.changes);
    remove_job(state, slot, context);
    job.queue = queue;
    job.state = JobState::Retrying(at);
    // With `ordered`, it precedes all jobs of this queue that were pushed after it.
    let policy = state.queues.policy(queue);
    if !policy.is_some_and(|policy| policy.ordered) {
        job.rank = state.meta.rank(false);
    }
    job.failures = 0;
    job.unfit = Unfit::NONE;
    job.retry = rules.retry.unwrap_or(job.retry);
    let expires = expires_by(state, at, job.expiry(), rules.ttl_ms);
    if job.extra.is_some() || expires != job.expiry() {
        let extra = job.extra_mut();
        extra.losses = 0;
        extra.coalesced = None;
        extra.expires = expires;
    }
    let slot = insert_job(state, job);
    state.jobs.reclaim_key(slot, state.now, &mut state.timers);
    remember_put(state, slot, context);
    true
}
