//! Asserts the invariants between the owners; each owner asserts those of the owned fields. Executed after
//! every call in debug builds, in tests, the simulator and the fuzzers.

use std::collections::BTreeMap;

use super::claims;
use super::due::{has_waited, is_live, next_deadline};
use super::place::ahead_of;
use super::room::has_past_to_drop;
use super::serve::{admits_waiter, next_served, next_unclaimed};
use super::state::State;
use crate::clients::{Client, check_waiters};
use crate::ids::{ClientId, JobId, Protocol, QueueId};
use crate::jobs::{Job, JobState};
use crate::queues::{Consumers, Queue, WaitKey, WaitsAs};

/// By queue and protocol: subscriptions, and sleepers that were woken for it.
type Hands = BTreeMap<(QueueId, Option<Protocol>), (u32, u32)>;

/// The interval of checks of a large engine, chosen so that the cost of checks is proportional to
/// the work done.
#[cfg(debug_assertions)]
#[derive(Debug, Default)]
pub(super) struct Pace {
    skip: usize,
}

#[cfg(debug_assertions)]
impl Pace {
    /// Checks a small engine every time, a larger one as often as the size allows. Returns `true` if it did.
    pub(super) fn check(&mut self, state: &State) -> bool {
        // A check reads all jobs, and unpacks those that are packed.
        const JOBS_MAX: usize = 100_000;
        if self.skip > 0 || state.jobs.len() > JOBS_MAX {
            self.skip = self.skip.saturating_sub(1);
            return false;
        }
        check(state);
        let things = [
            state.jobs.len(),
            state.clients.count_of(None) as usize,
            state.queues.len(),
            state.schedules.len(),
        ];
        let size = things.into_iter().sum::<usize>() + state.batches.len();
        self.skip = size.saturating_sub(64) / 4;
        true
    }
}

/// Asserts every invariant that the crate's page lists.
pub(super) fn check(state: &State) {
    assert!(
        state.caused.is_empty(),
        "a death and the job that it causes belong to one visit"
    );
    state.jobs.check();
    state.queues.check(&state.jobs, state.now);
    state.clients.check();
    state.workers.check();
    state.watchers.check();
    state.deferred.check();
    state.schedules.check();
    check_waiters(&state.clients, &state.workers, &state.queues);
    check_batches(state);
    check_jobs(state);
    check_totals(state);
    check_numbers(state);
    claims::check(state);
    let hands = hands(state);
    for queue in state.queues.iter() {
        check_consumers(queue, &hands);
        check_served(state, queue);
        check_taking(state, queue);
    }
    let protocols = Protocol::ALL.map(|row| row.id);
    let namespaces = state.queues.namespaces().numbers();
    for realm in namespaces.flat_map(|it| protocols.map(|protocol| it.realm(protocol))) {
        let served = state
            .clients
            .iter()
            .flat_map(|(_, client)| client.subscriptions());
        let takes = served
            .filter(|served| served.unclaimed_realm() == Some(realm))
            .count();
        assert_eq!(
            state.queues.unclaimed_subscriptions(realm),
            takes,
            "subscriptions of unclaimed {realm:?}"
        );
    }
    let mut watched = state.queues.watched_realms();
    assert!(
        state.starved.has_unclaimed()
            || watched.all(|realm| next_unclaimed(state, realm).is_none()),
        "an unclaimed job waits, and so does a client that takes it"
    );
    let due_at_once = next_deadline(state).is_some_and(|at| at <= state.now);
    assert!(
        !has_past_to_drop(state) || due_at_once,
        "too many jobs that are over, and no tick is due"
    );
    assert!(
        !has_waited(state) || due_at_once,
        "something has waited long enough, and no tick is due"
    );
    state.timers.check(|at, timer| is_live(state, at, timer));
    let things = state.jobs.len() * 3
        + state.clients.count_of(None) as usize
        + state.workers.len()
        + state.queues.len();
    assert!(
        state.timers.len() <= 4 * things + 4096,
        "cancelled timers pile up"
    );
}

fn jobs(state: &State) -> impl Iterator<Item = &Job> {
    state.jobs.iter().map(|(_, job)| job)
}

fn check_batches(state: &State) {
    let mut live = BTreeMap::new();
    for job in jobs(state) {
        let Some(member) = job.member() else { continue };
        assert!(job.durable, "{:?} is in a batch but not durable", job.id);
        *live.entry(member.batch).or_default() += u32::from(!job.is_over());
    }
    state.batches.check(state.limits.batch_keep_ms, &live);
}

/// Asserts that an ID names a single object, and was assigned.
fn check_numbers(state: &State) {
    let schedules = state.schedules.from(JobId(0)).map(|schedule| schedule.id);
    let batches = state.batches.from(JobId(0)).map(|batch| batch.id);
    let all: Vec<JobId> = jobs(state)
        .map(|job| job.id)
        .chain(schedules)
        .chain(batches)
        .collect();
    assert!(
        all.iter().all(|id| id.0 < state.meta.next_job()),
        "a number is from the future"
    );
    let count = all.len();
    assert_eq!(
        all.into_iter()
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        count,
        "a number names two things"
    );
}

fn check_jobs(state: &State) {
    for job in jobs(state) {
        assert!(
            state.queues.at(job.queue).is_some(),
            "{:?} has no queue",
            job.id
        );
        let lives = job.durable || !job.listeners().is_empty() || job.lease().is_some();
        assert!(lives, "{:?} is not durable and has no listener", job.id);
        let is_follower = job
            .behind()
            .is_none_or(|ahead| state.followers.of(ahead).any(|id| id == job.id));
        assert!(
            is_follower,
            "{:?} is not known to follow another job",
            job.id
        );
        let is_parked = job.state == JobState::Parked && job.behind().is_some();
        assert!(
            !is_parked || ahead_of(state, job).is_some(),
            "{:?} waits for no job",
            job.id
        );
    }
}

fn check_totals(state: &State) {
    let mut counted: BTreeMap<QueueId, u32> = BTreeMap::new();
    for job in jobs(state) {
        *counted.entry(job.queue).or_default() += 1;
    }
    for queue in state.queues.iter() {
        let count = counted.remove(&queue.image().id).unwrap_or_default();
        assert_eq!(queue.total(), count, "jobs of {:?}", queue.image().name);
    }
    assert!(counted.is_empty(), "jobs without a queue: {counted:?}");
}

/// By queue and protocol: subscriptions registered, clients woken.
fn hands(state: &State) -> Hands {
    let mut hands = Hands::new();
    for (_, client) in state.clients.iter() {
        for served in client.subscriptions() {
            hands
                .entry((served.queue, client.protocol()))
                .or_default()
                .0 += 1;
        }
        if let Some(queue) = client.woken_for() {
            hands.entry((queue, client.protocol())).or_default().1 += 1;
        }
    }
    hands
}

fn check_consumers(queue: &Queue, hands: &Hands) {
    let id = queue.image().id;
    let name = &queue.image().name;
    let mut protocols = Vec::new();
    for consumers in queue.consumers() {
        let own = consumers.protocol();
        assert!(!protocols.contains(&own), "{name:?} {own:?} twice");
        protocols.push(own);
        let there = hands.get(&(id, own)).copied().unwrap_or_default();
        assert_eq!(
            there,
            (consumers.workers(), consumers.woken()),
            "{name:?}: subscriptions, woken sleepers"
        );
    }
    for (_, own) in hands.keys().filter(|(other, _)| *other == id) {
        assert!(
            protocols.contains(own),
            "{name:?} lacks the consumers of {own:?}"
        );
    }
}

/// If there is a ready job, either a woken sleeper still has time to take it, or no waiting client can see
/// and take it.
fn check_served(state: &State, queue: &Queue) {
    if queue.free_slots() == 0 || state.starved.has(queue.image().id) {
        return;
    }
    let name = &queue.image().name;
    let waits = |(key, id): (&WaitKey, &ClientId)| {
        queue.first_of(state.clients.protocol_of(*id)).is_some()
            && admits_waiter(state, queue, *id, *key)
    };
    let takers = queue
        .consumers()
        .flat_map(|consumers| consumers.waiting(WaitsAs::Taker))
        .any(waits);
    let woken: u32 = queue.consumers().map(Consumers::woken).sum();
    assert!(
        !takers || woken > 0,
        "{name:?} has work and a taker, and no sleeper was woken"
    );
    let next = next_served(state, queue.image().id);
    assert!(next.is_none(), "{name:?} has work, and {next:?} waits");
}

/// Asserts that a queue lists only existing clients, which also list the queue.
fn check_taking(state: &State, queue: &Queue) {
    let own = (queue.image().id, queue.birth());
    let takes = |it: &Client| {
        it.takes_from
            .iter()
            .any(|take| (take.queue, take.birth) == own)
    };
    let mut taking = queue.consumers().flat_map(Consumers::taking);
    assert!(
        taking.all(|id| state.clients.get(*id).is_some_and(takes)),
        "{:?}: who takes from it",
        queue.image().name
    );
}
