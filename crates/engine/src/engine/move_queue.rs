//! Moves the jobs of a queue to another namespace.

use bytes::Bytes;

use super::call::Call;
use super::namespaces::{check_room, limits};
use super::place::{behind, insert_job, remember_put, remove_job};
use super::redrive::{MOVED_MAX, have_bodies};
use super::scope::Scope;
use super::search::{Matches, Search};
use super::serve::serve;
use super::state::State;
use crate::command::QueueMove;
use crate::condition::Order;
use crate::context::Context;
use crate::event::Reply;
use crate::ids::{Namespace, QueueId};
use crate::jobs::{Job, JobState, Slot, Unfit};
use crate::refusal::{Outcome, Refusal, Thing};
use crate::request::{Cursor, Filter};
use crate::work::CHANGE;

/// From where to where.
struct Way<'a> {
    queue: &'a Bytes,
    from: QueueId,
    to: Namespace,
    /// The queue of this name there, if there is one.
    there: Option<QueueId>,
}

impl<'a> Way<'a> {
    /// The way of a queue from one namespace to another.
    ///
    /// # Errors
    ///
    /// There is no such namespace or queue, or both namespaces are the same.
    fn find(state: &State, it: &'a QueueMove) -> Outcome<Self> {
        let namespaces = state.queues.namespaces();
        let known = |name: &[u8]| {
            let id = namespaces.named(name);
            id.ok_or(Refusal::NotFound(Thing::Namespace))
        };
        let home = known(&it.from)?;
        let to = known(&it.to)?;
        if home == to {
            return Err(Refusal::InUse);
        }
        let id = state.queues.named(home, &it.queue);
        Ok(Self {
            queue: &it.queue,
            from: id.ok_or(Refusal::NotFound(Thing::Queue))?,
            to,
            there: state.queues.named(to, &it.queue),
        })
    }
}

/// Moves a page of jobs. A job that the other namespace has no room for ends the page, and is refused if it is the first.
pub(super) fn move_queue(state: &mut State, it: &QueueMove, call: &mut Call<'_>) -> Outcome {
    let way = &Way::find(state, it)?;
    let from = way.from.namespace();
    let filter = Filter {
        queue: Some(way.queue.clone()),
        ..Filter::default()
    };
    let search = Search {
        state,
        filter: &filter,
        scope: Scope::whole(from),
        home: from,
        after: it.after,
        limit: state.page(it.limit.min(MOVED_MAX)),
    };
    let Matches {
        mut slots,
        mut next,
        ..
    } = search.matching(Some(Order::Oldest));
    slots.retain(|slot| {
        let job = state.jobs.at(*slot);
        job.is_some_and(|job| may_move(state, job, way))
    });
    if !have_bodies(state, &mut slots, call.context) {
        return Ok(());
    }
    let to = other_queue(state, way, call.context)?;
    let limits = limits(state, way.to);
    state.work.spend(CHANGE * 2 * slots.len() as u64);
    let mut changed = 0;
    for slot in slots {
        let Some(job) = state.jobs.at(slot).cloned() else {
            continue;
        };
        if let Err(full) = check_room(state, way.to, &limits, job.payload.body_len() as u64) {
            if changed == 0 {
                return Err(full);
            }
            next = Some(Cursor(job.id.0, 0));
            break;
        }
        move_one(state, slot, job, to, call.context);
        changed += 1;
    }
    serve(state, to, call.context);
    state.queues.drop_if_unknown(to);
    call.reply(Reply::Mutated { changed, next });
    Ok(())
}

/// Returns true if nobody has the job or waits for it, and its key is free in the other namespace.
fn may_move(state: &State, job: &Job, way: &Way<'_>) -> bool {
    use JobState::{Dead, Ready, Retrying, Scheduled};
    let waits = matches!(job.state, Ready | Scheduled(_) | Retrying(_) | Dead(_));
    let is_heard = !job.listeners().is_empty() || !job.collector().is_empty();
    let is_alone = job.member().is_none() && job.behind().is_none() && !is_heard;
    let key_is_free = |key| {
        let taken = |there| state.jobs.keyed(there, job.protocol, key).is_some();
        !way.there.is_some_and(taken)
    };
    waits
        && job.durable
        && is_alone
        && behind(state, job.id).is_empty()
        && job.key().is_none_or(key_is_free)
}

/// The queue in the other namespace. A new one gets the settings of this.
fn other_queue(state: &mut State, way: &Way<'_>, context: &mut Context) -> Outcome<QueueId> {
    let kind = state.queues.at(way.from).map(|queue| queue.image().kind);
    let to = state.find_or_make(way.to, way.queue, kind.unwrap_or_default(), None)?;
    if way.there.is_none() {
        state
            .queues
            .copy_settings(way.from, to, &mut context.changes);
    }
    Ok(to)
}

fn move_one(state: &mut State, slot: Slot, job: Job, to: QueueId, context: &mut Context) {
    // Must precede the removal of the queue's last job, which may be this one.
    let protocol = Some(job.protocol);
    state.queues.make_known(to, protocol, &mut context.changes);
    remove_job(state, slot, context);
    let slot = insert_job(
        state,
        Job {
            queue: to,
            unfit: Unfit::NONE,
            ..job
        },
    );
    remember_put(state, slot, context);
}
