//! Maps each command to a function, with a `match` per family. The code of jobs, takes and leases must fit
//! into a small cache, so the other families are not inlined.

#![expect(
    clippy::unit_arg,
    reason = "one line for each command is easiest to read"
)]

use super::call::{Call, Page};
use super::move_queue::move_queue;
use super::scope::must_see_all;
use super::state::State;
use super::{
    attempts, batches, claims, collect, edit, flush, leases, list, mutate, namespaces, policies,
    push, queues, redrive, schedules, stats, subscriptions, take, why, workers,
};
use crate::command::{
    BatchCommand, BulkCommand, ClientCommand, Command, JobCommand, QueueCommand, ScheduleCommand,
    WorkerCommand,
};
use crate::event::Reply;
use crate::ids::ClientId;
use crate::query::Query;
use crate::refusal::Outcome;

pub(super) fn dispatch(state: &mut State, command: Command, call: &mut Call<'_>) -> Outcome {
    match command {
        Command::Client(command) => client(state, command, call),
        Command::Job(command) => job(state, command, call),
        Command::Take(command) => take::ask(state, command, call),
        Command::Lease(report) if state.succession.is_some() => claims::report(state, report, call),
        Command::Lease(report) => leases::report(state, report, call),
        Command::Query(query) => answer(state, query, call),
        Command::Queue(command) => queue(state, command, call),
        Command::Schedule(command) => schedule(state, command, call),
        Command::Batch(command) => batch(state, command, call),
        Command::Barrier => Ok(call.reply(Reply::Settled)),
        Command::Claim(claim) => claims::claim(state, *claim, call),
        Command::Bulk(command) => bulk(state, command, call),
        Command::Namespace(command) => namespaces::change(state, command, call),
        Command::Worker(command) => worker(state, command, call),
    }
}

/// Returns true if there are namespaces, and a client that is not open sends a command: one that was turned away must not
/// reach that without a name.
#[inline]
pub(super) fn is_turned_away(state: &State, command: &Command, client: ClientId) -> bool {
    !state.queues.namespaces().is_empty() && is_unknown(state, command, client)
}

#[cold]
#[inline(never)]
fn is_unknown(state: &State, command: &Command, client: ClientId) -> bool {
    let may_be_unknown = matches!(
        command,
        Command::Client(ClientCommand::Open(_) | ClientCommand::Close)
    );
    !may_be_unknown && state.clients.get(client).is_none()
}

#[inline(never)]
fn client(state: &mut State, command: ClientCommand, call: &mut Call<'_>) -> Outcome {
    match command {
        ClientCommand::Open(info) => namespaces::open(state, info, call),
        ClientCommand::Close => {
            state.forget_waiting(call.client);
            Ok(subscriptions::close(state, call.client, call.context))
        }
        ClientCommand::SetName(label) => subscriptions::set_client_name(state, call.client, &label),
        ClientCommand::Serve(new) => {
            subscriptions::subscribe(state, call.client, new, call.context)
        }
        ClientCommand::Unserve { queue, requeue } => {
            subscriptions::unserve(state, call.client, &queue, requeue, call.context)
        }
        ClientCommand::Watch { queue, text, room } => {
            subscriptions::watch(state, call.client, queue, text, room)
        }
        ClientCommand::Disconnect(client) => subscriptions::disconnect(state, client, call),
        ClientCommand::UnserveAll { requeue } => {
            subscriptions::unserve_all(state, call.client, requeue, call.context)
        }
    }
}

fn job(state: &mut State, command: JobCommand, call: &mut Call<'_>) -> Outcome {
    match command {
        JobCommand::Push(mut job) => {
            job.namespace = state.home(call.client);
            push::push(state, &job, call)
        }
        JobCommand::Track {
            job,
            progress,
            text,
            until,
        } => edit::track(state, &job, progress, text, until, call),
        JobCommand::Replace { job, body } => edit::replace(state, &job, &body, call),
        JobCommand::Cancel(job) => edit::cancel(state, &job, call),
        JobCommand::Collect { name, from } => collect::collect(state, &name, from, call),
    }
}

fn queue(state: &mut State, command: QueueCommand, call: &mut Call<'_>) -> Outcome {
    match command {
        QueueCommand::Create { queue, kind } => queues::create_queue(state, &queue, kind, call),
        QueueCommand::Remove { queue, only_idle } => {
            queues::remove_queue(state, &queue, only_idle, call)
        }
        QueueCommand::Pause { queue, paused } => queues::pause_queue(state, &queue, paused, call),
        QueueCommand::Limit { queue, jobs_max } => {
            queues::limit_queue(state, &queue, jobs_max, call)
        }
        QueueCommand::Throttle { queue, throttle } => {
            queues::throttle_queue(state, &queue, throttle, call)
        }
        QueueCommand::Bridge(bridge) => queues::bridge(state, *bridge, call),
        QueueCommand::SetRules { queue, rules } => queues::rule_queue(state, &queue, *rules, call),
        QueueCommand::SetPolicy { queue, policy, by } => {
            queues::set_policy(state, &queue, policy, &by, call)
        }
        QueueCommand::PauseKey { queue, key, paused } => {
            queues::pause_key(state, &queue, &key, paused, call)
        }
        QueueCommand::SetPatterns(patterns) => queues::set_patterns(state, *patterns, call),
    }
}

#[inline(never)]
fn schedule(state: &mut State, command: ScheduleCommand, call: &mut Call<'_>) -> Outcome {
    match command {
        ScheduleCommand::Set(new) => schedules::set_schedule(state, *new, call),
        ScheduleCommand::Remove(which) => schedules::remove_schedule(state, &which, call),
        ScheduleCommand::Run(which) => schedules::run_now(state, &which, call),
        ScheduleCommand::Pause { schedule, paused } => {
            schedules::pause_schedule(state, &schedule, paused, call)
        }
    }
}

#[inline(never)]
fn batch(state: &mut State, command: BatchCommand, call: &mut Call<'_>) -> Outcome {
    match command {
        BatchCommand::New(new) => batches::new_batch(state, *new, call),
        BatchCommand::Open { batch, hold_ms } => batches::open_batch(state, &batch, hold_ms, call),
        BatchCommand::Commit { batch } => batches::commit_batch(state, &batch, call),
    }
}

#[inline(never)]
fn bulk(state: &mut State, command: BulkCommand, call: &mut Call<'_>) -> Outcome {
    match command {
        BulkCommand::Mutate {
            filter,
            action,
            after,
            limit,
        } => Ok(mutate::mutate(
            state,
            &filter,
            action,
            Page { after, limit },
            call,
        )),
        BulkCommand::Flush {
            protocol,
            after,
            limit,
        } => flush::flush(state, protocol, Page { after, limit }, call),
        BulkCommand::Redrive {
            filter,
            to,
            delay_ms,
            per_second,
            after,
            limit,
        } => redrive::redrive(
            state,
            &filter,
            &to,
            delay_ms,
            per_second,
            Page { after, limit },
            call,
        ),
        BulkCommand::MoveQueue(it) => {
            must_see_all(state, call)?;
            move_queue(state, &it, call)
        }
        BulkCommand::ReadKeys { after, limit } => {
            must_see_all(state, call)?;
            Ok(policies::read_keys(state, Page { after, limit }, call))
        }
    }
}

#[inline(never)]
fn worker(state: &mut State, command: WorkerCommand, call: &mut Call<'_>) -> Outcome {
    match command {
        WorkerCommand::Register { worker, about } => {
            workers::register_worker(state, &worker, about, call)
        }
        WorkerCommand::Beat {
            worker,
            state: to,
            memory_bytes,
        } => workers::beat(state, &worker, to, memory_bytes, call),
        WorkerCommand::SetState { worker, state: to } => {
            workers::set_worker_state(state, &worker, to, call)
        }
        WorkerCommand::Drain => workers::drain(state, call),
    }
}

fn answer(state: &State, query: Query, call: &mut Call<'_>) -> Outcome {
    match query {
        Query::Job(job) => Ok(edit::look(state, &job, call)),
        Query::Schedules {
            protocol,
            after,
            limit,
        } => Ok(schedules::list_schedules(
            state,
            protocol,
            Page { after, limit },
            call,
        )),
        Query::Batch { batch } => batches::look_batch(state, &batch, call),
        Query::Batches { after, limit } => {
            Ok(batches::list_batches(state, Page { after, limit }, call))
        }
        Query::Queue { queue } => Ok(list::look_queue(state, &queue, call)),
        Query::Queues { after, limit } => Ok(list::list_queues(state, Page { after, limit }, call)),
        Query::Configured { after, limit } => {
            Ok(list::list_configured(state, Page { after, limit }, call))
        }
        Query::Throttles { after, limit } => {
            Ok(why::list_throttles(state, Page { after, limit }, call))
        }
        Query::Jobs {
            filter,
            after,
            limit,
        } => Ok(list::list_jobs(
            state,
            &filter,
            None,
            Page { after, limit },
            call,
        )),
        Query::JobsBy {
            order,
            filter,
            after,
            limit,
        } => Ok(list::list_jobs(
            state,
            &filter,
            Some(order),
            Page { after, limit },
            call,
        )),
        Query::Preview {
            filter,
            action,
            after,
            limit,
        } => Ok(mutate::preview(
            state,
            &filter,
            action,
            Page { after, limit },
            call,
        )),
        Query::Clients { after, limit } => {
            Ok(list::list_clients(state, Page { after, limit }, call))
        }
        Query::Workers { after, limit } => {
            Ok(list::list_workers(state, Page { after, limit }, call))
        }
        Query::Why(job) => why::explain(state, &job, call),
        Query::Keys {
            queue,
            after,
            limit,
        } => Ok(policies::list_keys(
            state,
            &queue,
            Page { after, limit },
            call,
        )),
        Query::Attempts(job) => attempts::list_attempts(state, &job, call),
        Query::Figures { after, limit } => {
            Ok(list::list_figures(state, Page { after, limit }, call))
        }
        Query::Kinds { after, limit } => Ok(list::list_kinds(state, Page { after, limit }, call)),
        Query::Stats => Ok(stats::stats(state, call)),
        Query::Days => stats::days(state, call),
        Query::Namespaces { after, limit } => {
            Ok(namespaces::list(state, Page { after, limit }, call))
        }
        Query::WorkLeft => {
            must_see_all(state, call)?;
            call.reply(Reply::WorkLeft(Box::new(workers::work_left(
                state,
                call.client.daemon(),
            ))));
            Ok(())
        }
    }
}
