//! Explains why a job is not running, and which jobs occupy the slots of throttles. Only reads.

use std::collections::BTreeSet;

use super::call::{Call, Page};
use super::checks::find;
use super::place::ahead_of;
use super::scope::Scope;
use super::serving::{is_worked_on, serve_it};
use super::state::State;
use crate::event::Reply;
use crate::ids::{JobId, NameIn};
use crate::jobs::{Holder, Job, JobState, JobStateKind};
use crate::query::{LeaseHolder, ThrottleRow, Turn, Why};
use crate::queues::{Consumers, Hold, Queue, SortKey, Starts};
use crate::refusal::{Outcome, Refusal, Thing};
use crate::request::{Cursor, JobRef};
use crate::work::{LOOKED_UP, ROW, STEP};

/// Jobs before a job are counted up to this number.
const BEHIND_MAX: u32 = 500;

/// The limit of listed jobs that occupy a throttle's slots, or a key.
const HOLDERS_MAX: usize = 10;

/// The limit of leases and retries that are examined to find the jobs that occupy a key.
const LOOKED_MAX: usize = 10_000;

pub(super) fn explain(state: &State, job: &JobRef, call: &mut Call<'_>) -> Outcome {
    let slot = find(state, job, Scope::of(state, call))?;
    let job = state.jobs.at(slot).ok_or(Refusal::NotFound(Thing::Job))?;
    let why = match &job.state {
        JobState::Leased(lease) => Why::Leased(Box::new(holder(state, &lease.holder))),
        JobState::Ready => waits(state, job),
        JobState::Scheduled(_) | JobState::Retrying(_) | JobState::Parked => coalesced(state, job),
        JobState::Dead(_) | JobState::Done(_) => Why::NotReady,
    };
    call.reply(Reply::Why(why));
    Ok(())
}

pub(super) fn list_throttles(state: &State, page: Page, call: &mut Call<'_>) {
    let mut rows: Vec<ThrottleRow> = Vec::new();
    let mut next = None;
    let scope = Scope::of(state, call);
    for queue in state
        .queues
        .special_of(scope.namespace())
        .skip_while(|queue| u64::from(queue.image().id.0) < page.after.0)
    {
        let image = queue.image();
        state.work.spend(STEP);
        let Some(throttle) = image.throttle else {
            continue;
        };
        if rows.len() == state.page(page.limit) {
            next = Some(Cursor(image.id.0.into(), 0));
            break;
        }
        let holder = |id| {
            state.work.spend(LOOKED_UP);
            let lease = state.jobs.get(id)?.lease()?;
            Some((id, lease.taken_at, holder(state, &lease.holder)))
        };
        rows.push(ThrottleRow {
            namespace: state.queues.namespace_name(image.id),
            queue: image.name.clone(),
            known: image.is_known(),
            throttle,
            slots_held: queue.slots_held(),
            ready: queue.jobs(JobStateKind::Ready),
            holders: queue
                .slot_holders()
                .take(HOLDERS_MAX)
                .filter_map(holder)
                .collect(),
        });
    }
    state.work.spend(ROW * rows.len() as u64);
    call.reply(Reply::Throttles { rows, next });
}

/// The holder of a lease. A connection without a name gets the name of the worker.
pub(super) fn holder(state: &State, holder: &Holder) -> LeaseHolder {
    match holder {
        Holder::Named(worker) => LeaseHolder {
            worker: worker.to_vec().into(),
            ..LeaseHolder::default()
        },
        Holder::Connection(id) => {
            let Some(client) = state.clients.get(*id) else {
                return LeaseHolder::default();
            };
            let named = client
                .worker()
                .and_then(|number| state.workers.from(number).next());
            let named = named.filter(|_| client.label().is_empty());
            let worker = named.map_or_else(
                || client.label().clone(),
                |(_, worker)| {
                    let NameIn(_, name) = worker.name();
                    bytes::Bytes::copy_from_slice(name)
                },
            );
            let address = client.info().address.clone();
            let number = client.info().number;
            LeaseHolder {
                worker,
                address,
                number,
                protocol: client.protocol(),
            }
        }
        Holder::Away(protocol) => LeaseHolder {
            protocol: Some(*protocol),
            ..LeaseHolder::default()
        },
    }
}

fn coalesced(state: &State, job: &Job) -> Why {
    let behind = ahead_of(state, job)
        .and_then(|slot| state.jobs.at(slot))
        .map(|ahead| ahead.id);
    match job
        .extra
        .as_deref()
        .and_then(|extra| extra.coalesced.as_deref())
    {
        Some(it) if it.submits > 1 || behind.is_some() => Why::Coalesced {
            submits: it.submits,
            behind,
        },
        Some(_) | None => Why::NotReady,
    }
}

fn waits(state: &State, job: &Job) -> Why {
    let Some(queue) = state.queues.at(job.queue) else {
        return Why::NotReady;
    };
    if queue.image().paused.has(job.protocol) {
        return Why::Paused {
            since: queue.image().paused_at,
        };
    }
    let hold = state.queues.hold(job);
    if let Some(hold @ Hold::Paused { .. }) = hold {
        return Why::Turn(Box::new(Turn {
            hold: Some(hold),
            ..Turn::default()
        }));
    }
    let serving = queue
        .consumers()
        .filter(|consumers| serve_it(state, queue, consumers));
    let (seeing, others): (Vec<_>, Vec<_>) =
        serving.partition(|consumers| sees(consumers, queue, job));
    if seeing.is_empty()
        && !is_worked_on(queue, job.protocol)
        && state.queues.unclaimed_subscriptions(job.realm()) == 0
    {
        return Why::Unserved {
            others: others.into_iter().filter_map(Consumers::protocol).collect(),
        };
    }
    if queue.is_throttled() {
        return Why::Throttled {
            holders: queue.slot_holders().take(HOLDERS_MAX).collect(),
        };
    }
    let own = Some(job.protocol).filter(|_| !queue.is_bridged());
    match queue.starts(own, state.now) {
        Some(starts) => Why::Turn(Box::new(turn(state, starts, job, hold))),
        None => behind(state, queue, job),
    }
}

/// The turn by the policy of the queue. The last restriction to be lifted is reported: a job of the same key,
/// for which no time is known, before a rate.
fn turn(state: &State, starts: Starts<'_>, job: &Job, hold: Option<Hold>) -> Turn {
    let mut jobs = 0;
    let mut last = None;
    for start in starts.take(BEHIND_MAX as usize) {
        state.work.spend(LOOKED_UP);
        if state.jobs.at(start.slot).is_some_and(|it| it.id == job.id) {
            return Turn {
                hold,
                jobs,
                more: false,
                at: Some(start.at),
                holders: Vec::new(),
            };
        }
        jobs += 1;
        last = Some(start.at);
    }
    if jobs == BEHIND_MAX {
        return Turn {
            hold,
            jobs,
            more: true,
            at: last,
            holders: Vec::new(),
        };
    }
    // It does not start before a job of the same key finishes.
    let jobs = state.queues.before_in_key(job, BEHIND_MAX);
    state.work.spend(LOOKED_UP * u64::from(jobs));
    Turn {
        hold,
        jobs,
        more: jobs == BEHIND_MAX,
        at: None,
        holders: key_holders(state, job),
    }
}

/// Some of the jobs that occupy the key of a job: leased ones, and previous ones of the same key that are
/// retrying.
fn key_holders(state: &State, job: &Job) -> Vec<JobId> {
    let leased = state
        .jobs
        .holders()
        .of_connections()
        .chain(state.timers.leases());
    // A retrying job occupies the key only if jobs of a key start in order.
    let policy = state.queues.policy(job.queue);
    let is_ordered = policy.is_some_and(|policy| policy.ordered);
    let retrying = state
        .jobs
        .timed(JobStateKind::Retrying)
        .filter(|_| is_ordered)
        .into_iter()
        .flatten();
    let retrying = retrying.map(|(_, id)| *id);
    let holds = |id: &JobId| {
        state.work.spend(STEP);
        let other = state
            .jobs
            .get(*id)
            .filter(|other| other.queue == job.queue && state.queues.share_key(*id, job.id));
        other.is_some_and(|other| other.lease().is_some() || other.rank < job.rank)
    };
    let held: BTreeSet<JobId> = leased
        .chain(retrying)
        .take(LOOKED_MAX)
        .filter(holds)
        .take(HOLDERS_MAX)
        .collect();
    held.into_iter().collect()
}

/// Returns true if these clients see a job of the queue.
fn sees(consumers: &Consumers, queue: &Queue, job: &Job) -> bool {
    consumers
        .protocol()
        .is_none_or(|own| match queue.is_bridged() {
            true => !job.unfit.has(own),
            false => own == job.protocol,
        })
}

/// The number of jobs that are taken before it.
fn behind(state: &State, queue: &Queue, job: &Job) -> Why {
    let own = SortKey::of(job);
    let mut at = None;
    let mut jobs = 0;
    for _ in 0..BEHIND_MAX {
        state.work.spend(LOOKED_UP);
        match queue.ready().after(at) {
            Some((key, before)) if key < own => {
                let is_other = |other: &Job| !queue.is_bridged() && other.protocol != job.protocol;
                jobs += u32::from(!state.jobs.at(before).is_some_and(is_other));
                at = Some(key);
            }
            Some(_) | None => return Why::Behind { jobs, more: false },
        }
    }
    Why::Behind { jobs, more: true }
}
