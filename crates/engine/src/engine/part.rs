//! Commands that are too long for a visit are executed in parts: closing a connection that serves very many
//! queues, or that has or listens to very many jobs.
//!
//! Each part leaves everything consistent, as if a client had requested only that part, so that other clients
//! can be served after it.

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::attempts::lose_attempt;
use super::failures::lose_job;
use super::push::push_caused;
use super::state::State;
use super::subscriptions::{count_out, forget_served, stop_listening};
use super::take::unwait;
use super::warnings::warn_lost;
use crate::command::{ClientCommand, Command};
use crate::context::Context;
use crate::ids::{ClientId, JobId, QueueId};
use crate::work::{CHANGE, STEP};

/// Executes a page of a command that needs more than a page, and returns `true` if it did.
pub(super) fn apply_in_part(
    state: &mut State,
    client: ClientId,
    command: &Command,
    context: &mut Context,
) -> bool {
    let limit = state.page(u32::MAX);
    let ends = matches!(command, Command::Client(ClientCommand::Close));
    let gives_back = ends
        || matches!(
            command,
            Command::Client(ClientCommand::UnserveAll { requeue: true })
        );
    if !ends && !matches!(command, Command::Client(ClientCommand::UnserveAll { .. })) {
        return false;
    }
    if ends {
        state.forget_waiting(client);
    }
    let Some(known) = state.clients.get(client) else {
        return false;
    };
    if ends && known.blocked_count() > limit {
        state.waiters().unblock_last(client, limit);
    } else if known.subscriptions().len() > limit {
        // A sleeper may leave queues one by one. Any other client could be given a job in the
        // meantime.
        if ends && (known.has_credit() || !known.is_asleep()) {
            unwait(state, client, context);
        }
        forget_last_subscriptions(state, client, limit, context);
    } else if ends && state.jobs.holders().listened_by(client).len() > limit {
        unwait(state, client, context);
        stop_listening_to_some(state, client, limit, context);
    } else if gives_back
        && state.jobs.holders().held_by(client).len() > limit
        && (ends || known.blocked_count() == 0)
    {
        // A take that is still blocked could get such a job, which the next part would then return
        // as well.
        if ends {
            unwait(state, client, context);
            // A job that exists only for this client must not be retried.
            stop_listening_to_some(state, client, limit, context);
        }
        forget_last_subscriptions(state, client, limit, context);
        let held: Vec<JobId> = state
            .jobs
            .holders()
            .held_by(client)
            .iter()
            .take(limit)
            .collect();
        for job in held.iter().filter(|_| ends) {
            warn_lost(state, *job, context);
        }
        for job in &held {
            lose_attempt(state, *job);
        }
        for job in held {
            lose_job(state, job, context);
        }
        push_caused(state, context);
    } else {
        return false;
    }
    state.work.spend(CHANGE * limit as u64);
    true
}

fn stop_listening_to_some(
    state: &mut State,
    client: ClientId,
    limit: usize,
    context: &mut Context,
) {
    let heard: Vec<JobId> = state
        .jobs
        .holders()
        .listened_by(client)
        .iter()
        .take(limit)
        .collect();
    for job in heard {
        stop_listening(state, job, client, context);
    }
}

/// Removes the last `limit` subscriptions. A client that sleeps or has credits is still waiting at other
/// queues, which may include one that was registered twice.
fn forget_last_subscriptions(state: &mut State, id: ClientId, limit: usize, context: &mut Context) {
    let Some(client) = state.clients.get_mut(id) else {
        return;
    };
    let gone = client.unsubscribe_last(limit);
    let kept = client
        .subscriptions()
        .iter()
        .map(|served| (served.queue, served.weight));
    let (queues, kept): (
        HashSet<QueueId, FixedState>,
        HashSet<(QueueId, u32), FixedState>,
    ) = kept.map(|(queue, weight)| (queue, (queue, weight))).unzip();
    let own = client.protocol();
    state.work.spend(STEP * kept.len() as u64);
    for served in &gone {
        match kept.contains(&(served.queue, served.weight)) {
            true => state.waiters().take_unclaimed_no_more(id, *served),
            false => state.waiters().wait_no_more_at(id, *served),
        }
    }
    let (still, gone): (Vec<_>, Vec<_>) = gone
        .into_iter()
        .partition(|served| queues.contains(&served.queue));
    for served in still {
        count_out(state, own, served);
    }
    forget_served(state, id, gone, context);
}
