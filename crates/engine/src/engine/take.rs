//! Commands that ask for work: take a job, wait for work, allow deliveries, stop waiting.

use bytes::Bytes;

use super::call::Call;
use super::deliver::{choose, first, first_unclaimed, hand_out};
use super::serve::{OWN_KEY_WAIT_MS, keeps_itself_waiting, serve, wake};
use super::serving::note_take;
use super::state::{FEW, SMALL_BYTES, State};
use super::warnings::warn_unserved;
use crate::clients::{Client, Served};
use crate::command::TakeCommand;
use crate::context::Context;
use crate::event::Reply;
use crate::held::heap;
use crate::ids::{ClientId, Tag, Timestamp};
use crate::refusal::{Capacity, Outcome, Refusal};
use crate::request::{From, LeaseTerms, QueueKind, Select, Take, Wait};
use crate::work::COMMAND;

/// Handles a request for work or the withdrawal of requests. It is blocked during the grace, and while there
/// is no space for more jobs.
pub(super) fn ask(state: &mut State, command: TakeCommand, call: &mut Call<'_>) -> Outcome {
    if call.context.room > 0 && !state.deferred.must_wait(state.now) {
        return ask_now(state, command, call);
    }
    if matches!(command, TakeCommand::Unwait) {
        state.deferred.forget(call.client);
        return ask_now(state, command, call);
    }
    state.clients.opened(call.client)?;
    if state.deferred.count_of(call.client) >= FEW {
        state.check_beside(SMALL_BYTES)?;
    }
    if call.context.room == 0 {
        state.starved.wait(state.now);
    }
    if state.deferred.add(call.client, call.tag, command) {
        Ok(())
    } else {
        Err(Refusal::OutOfPlace)
    }
}

/// Executes up to a page of the blocked requests.
#[cold]
pub(super) fn resume(state: &mut State, context: &mut Context) {
    for _ in 0..state.page(u32::MAX) {
        if context.room == 0 {
            return state.starved.wait(state.now);
        }
        let Some((client, tag, take)) = state.deferred.pop() else {
            return;
        };
        state.work.spend(COMMAND);
        let mut call = Call {
            client,
            tag,
            context,
        };
        if let Err(why) = ask_now(state, take, &mut call) {
            call.reply(Reply::Refused(why));
        }
    }
}

#[expect(
    clippy::unit_arg,
    reason = "one line for each command is easiest to read"
)]
fn ask_now(state: &mut State, command: TakeCommand, call: &mut Call<'_>) -> Outcome {
    match command {
        TakeCommand::Take(wish) => take(state, wish, call),
        TakeCommand::WaitForWork => wait_for_work(state, call.client, call.context),
        TakeCommand::Credit { credits, select } => {
            credit(state, call.client, credits, select, call.context)
        }
        TakeCommand::Unwait => Ok(unwait(state, call.client, call.context)),
    }
}

fn take(state: &mut State, take: Take, call: &mut Call<'_>) -> Outcome {
    let woken_for = state
        .waiters()
        .stop_waking_to_take(call.client, take.wait)?;
    let answer = take_or_wait(state, take, call);
    // It may have taken no job, or a job of a queue other than the one for which it was woken.
    if let Some(queue) = woken_for {
        serve(state, queue, call.context);
    }
    answer
}

fn take_or_wait(state: &mut State, take: Take, call: &mut Call<'_>) -> Outcome {
    let quiet = state.is_quiet(call.client, &take.worker);
    match take.from {
        From::Subscriptions => {
            let known = state.clients.get(call.client).ok_or(Refusal::OutOfPlace)?;
            let subscriptions = known.subscriptions();
            let client = call.client;
            let own = known.protocol();
            let first = |served: &Served| first(&state.queues, client, own, served, &take.worker);
            match choose(state, call.client, subscriptions, take.select, first).filter(|_| !quiet) {
                Some((served, slot)) => hand_out(
                    state,
                    call.client,
                    call.tag,
                    slot,
                    served,
                    &take.worker,
                    call.context,
                ),
                None => {
                    let sources = if quiet || take.wait == Wait::No {
                        Vec::new()
                    } else {
                        subscriptions.to_vec()
                    };
                    wait_for_job(state, sources, take.wait, take.worker, call)?;
                }
            }
        }
        From::Listed { queues, lease } => {
            let sources = listed(state, call.client, queues, lease)?;
            take_from(
                state,
                &sources,
                take.select,
                take.wait,
                take.worker,
                quiet,
                call,
            )?;
        }
        From::Cycle { queue, lease } => {
            state.check_name(&queue)?;
            let queue = state.find_or_make(
                state.home(call.client),
                &queue,
                QueueKind::Cycle,
                state.clients.protocol_of(call.client),
            )?;
            let sources = [Served {
                queue,
                weight: 0,
                lease,
                unclaimed: None,
            }];
            take_from(
                state,
                &sources,
                take.select,
                take.wait,
                take.worker,
                quiet,
                call,
            )?;
        }
    }
    Ok(())
}

fn take_from(
    state: &mut State,
    sources: &[Served],
    select: Select,
    wait: Wait,
    worker: Bytes,
    quiet: bool,
    call: &mut Call<'_>,
) -> Outcome {
    note_take(state, call.client, sources);
    let own = state.clients.protocol_of(call.client);
    let first = |served: &Served| first(&state.queues, call.client, own, served, &worker);
    let answer = match choose(state, call.client, sources, select, first).filter(|_| !quiet) {
        Some((served, slot)) => {
            hand_out(
                state,
                call.client,
                call.tag,
                slot,
                served,
                &worker,
                call.context,
            );
            Ok(())
        }
        None => {
            let at = if quiet || wait == Wait::No {
                Vec::new()
            } else {
                sources.to_vec()
            };
            wait_for_job(state, at, wait, worker, call)
        }
    };
    for served in sources {
        state.queues.drop_if_unknown(served.queue);
    }
    answer
}

/// Resolves queue names, with the taker's lease terms. An unknown name becomes a queue to wait at.
fn listed(
    state: &mut State,
    client: ClientId,
    names: Vec<Bytes>,
    lease: LeaseTerms,
) -> Outcome<Vec<Served>> {
    let own = state.clients.protocol_of(client);
    let home = state.home(client);
    let limit = state.limits.abilities_max;
    if names.len() > limit as usize {
        return Err(Capacity::Subscriptions.exceeded(limit, limit));
    }
    names.iter().try_for_each(|name| state.check_name(name))?;
    let mut listed = Vec::with_capacity(names.len());
    let mut no_room = None;
    for name in names {
        // A take that expects work skips `cycle` queues.
        let kind = state
            .queues
            .named(home, &name)
            .and_then(|id| state.queues.at(id))
            .map(|queue| queue.image().kind);
        if kind == Some(QueueKind::Cycle) {
            continue;
        }
        match state.find_or_make(home, &name, QueueKind::Work, own) {
            Ok(queue) => listed.push(Served {
                queue,
                weight: 0,
                lease,
                unclaimed: None,
            }),
            // Takes from existing queues still work, and may drain the jobs that fill the memory.
            Err(
                why @ Refusal::Limit {
                    what: Capacity::JobBytes,
                    ..
                },
            ) => no_room = Some(why),
            Err(why) => {
                // Drop the queues that were created only for this take.
                for served in &listed {
                    state.queues.drop_if_unknown(served.queue);
                }
                return Err(why);
            }
        }
    }
    no_room
        .filter(|_| listed.is_empty())
        .map_or(Ok(listed), Err)
}

/// A take found no job.
fn wait_for_job(
    state: &mut State,
    sources: Vec<Served>,
    wait: Wait,
    worker: Bytes,
    call: &mut Call<'_>,
) -> Outcome {
    let until = match wait {
        Wait::No => None,
        Wait::Until(at) => Some(at).filter(|at| *at > state.now),
        Wait::Forever => Some(Timestamp::NEVER),
    };
    let Some(until) = until else {
        call.reply(Reply::Empty);
        return Ok(());
    };
    if sources.len() > FEW
        || state
            .clients
            .get(call.client)
            .is_some_and(|client| client.blocked_count() >= FEW)
    {
        state.check_beside(Served::BYTES * sources.len() as u64 + heap(worker.len()))?;
    }
    let until = if until < Timestamp::NEVER
        && keeps_itself_waiting(state, call.client, &worker, &sources)
    {
        until.min(state.now.after_ms(OWN_KEY_WAIT_MS))
    } else {
        until
    };
    let queues: Vec<_> = sources.iter().map(|served| served.queue).collect();
    state
        .waiters()
        .block(call.client, call.tag, sources, worker, until);
    for queue in queues {
        warn_unserved(state, queue, call.context);
    }
    Ok(())
}

/// Puts a client to sleep. If there is work, it is woken immediately.
#[inline(never)]
fn wait_for_work(state: &mut State, id: ClientId, context: &mut Context) -> Outcome {
    let woken_for = state.waiters().stop_waking(id)?;
    let quiet = state.is_quiet(id, &[]);
    let client = state.clients.get(id).ok_or(Refusal::OutOfPlace)?;
    let own = client.protocol();
    let has_work =
        |served: &&Served| !quiet && first(&state.queues, id, own, served, &[]).is_some();
    let work = client
        .subscriptions()
        .iter()
        .find(has_work)
        .map(|served| served.queue);
    match work {
        Some(queue) => wake(state, id, queue, context),
        None => state.waiters().sleep(id),
    }
    if let Some(queue) = woken_for {
        serve(state, queue, context);
    }
    Ok(())
}

#[inline(never)]
fn credit(
    state: &mut State,
    id: ClientId,
    credits: u32,
    select: Select,
    context: &mut Context,
) -> Outcome {
    state.waiters().add_credit(id, credits, select)?;
    spend_credits(state, id, context);
    Ok(())
}

/// Returns a credit to a client.
pub(super) fn return_credit(state: &mut State, id: ClientId, context: &mut Context) {
    let Some(select) = state.clients.get(id).map(Client::select) else {
        return;
    };
    if state.waiters().add_credit(id, 1, select).is_ok() {
        spend_credits(state, id, context);
    }
}

/// Delivers ready jobs to a client with credits, in the order of the client's selection.
fn spend_credits(state: &mut State, id: ClientId, context: &mut Context) {
    while let Some(client) = state.clients.get(id).filter(|client| client.has_credit()) {
        if state.is_quiet(id, &[]) {
            return;
        }
        let own = client.protocol();
        let first = |served: &Served| {
            let unclaimed = first_unclaimed(&state.queues, id, own, served);
            let candidates = [first(&state.queues, id, own, served, &[]), unclaimed];
            candidates.into_iter().flatten().min_by_key(|(key, _)| *key)
        };
        let Some((served, slot)) =
            choose(state, id, client.subscriptions(), client.select(), first)
        else {
            return;
        };
        if context.room == 0 {
            for served in client.subscriptions() {
                state.starved.add(served.queue, state.now);
            }
            return state.starved.add_unclaimed(state.now);
        }
        state.waiters().use_credit(id);
        hand_out(state, id, Tag::NONE, slot, served, &[], context);
    }
}

/// Removes all waits of a client without a notification.
#[inline(never)]
pub(super) fn unwait(state: &mut State, id: ClientId, context: &mut Context) {
    if let Some(queue) = state.waiters().stop(id) {
        serve(state, queue, context);
    }
}
