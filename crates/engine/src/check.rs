//! Asserts every invariant between the indexes. Runs after every call in debug builds, in tests, the simulator and the fuzzers.
#![cfg_attr(not(debug_assertions), allow(dead_code, reason = "only debug builds check as they go"))]

use std::collections::BTreeMap;

use crate::client::{Client, Waiting, turn_of};
use crate::consumers::{Consumers, WaitKey};
use crate::engine::Engine;
use crate::ids::{ClientId, Priority, Protocol, QueueId, Timestamp};
use crate::job::{Holder, JobState, JobStateKind, Lease};
use crate::queue::Queue;
use crate::ready::SortKey;
use crate::request::QueueKind;

/// By queue and protocol: how many abilities serve it, and how many sleepers were woken for it.
type Hands = BTreeMap<(QueueId, Option<Protocol>), (u32, u32)>;

/// How often a large engine is checked: the cost of checks stays in proportion to the work done.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    skip: usize,
}

impl Engine {
    /// Checks a small engine every time, a larger one as often as its size allows. Does nothing in release builds.
    pub(crate) fn check_now_and_then(&mut self) {
        #[cfg(debug_assertions)]
        {
            if self.checks.skip > 0 {
                self.checks.skip -= 1;
                return;
            }
            self.check();
            let size =
                self.jobs.len() + self.clients.len() + self.queues.len() + self.schedules.len() + self.batches.len();
            self.checks.skip = size.saturating_sub(64) / 4;
        }
    }

    /// Asserts every invariant that the crate's page lists.
    ///
    /// # Panics
    ///
    /// If an invariant is broken: a bug in the engine, whatever the input was.
    pub fn check(&self) {
        self.jobs.check();
        self.queues.check();
        assert!(
            self.clients.len() == self.client_ids.len() && self.clients.keys().all(|id| self.client_ids.contains(id))
        );
        self.census.check(self.jobs().map(|job| (job.protocol, job.state.kind())));
        self.check_schedules();
        self.check_batches();
        self.check_jobs();
        let hands = self.hands();
        for queue in self.queues.iter() {
            self.check_queue(queue, &hands);
            queue.consumers.iter().for_each(|consumers| self.check_waiting(queue, consumers));
        }
        self.check_unclaimed();
        for (id, client) in &self.clients {
            self.check_client(*id, client);
        }
        let sets = [&self.sets.scheduled, &self.sets.retrying, &self.sets.dead, &self.sets.done];
        let in_sets: usize = sets.into_iter().map(std::collections::BTreeSet::len).sum();
        let timed = |job: &&crate::job::Job| {
            matches!(job.state, JobState::Scheduled(_) | JobState::Retrying(_) | JobState::Dead(_) | JobState::Done(_))
        };
        assert_eq!(in_sets, self.jobs().filter(timed).count(), "jobs in places with a time");
        let due_at_once = self.next_deadline().is_some_and(|at| at <= self.now);
        assert!(!self.has_dead_to_drop() || due_at_once, "too many dead jobs, and no tick is due");
        self.alarms.check(|at, alarm| self.means_something(at, alarm));
        assert!(
            self.alarms.len()
                <= 4 * (self.jobs.len() * 3 + self.clients.len() + self.workers.len() + self.queues.len()) + 4096,
            "cancelled alarms pile up"
        );
    }

    fn check_schedules(&self) {
        self.schedules.check();
        for schedule in self.schedules() {
            assert!(self.job(schedule.id).is_none(), "{:?} is a job and a schedule", schedule.id);
            assert!(schedule.id.0 < self.head.next_job, "{:?} is from the future", schedule.id);
        }
    }

    fn check_batches(&self) {
        let mut live = BTreeMap::new();
        for job in self.jobs() {
            let Some(member) = crate::gather::member(job) else { continue };
            assert!(job.durable, "{:?} is in a batch but not durable", job.id);
            let over = matches!(job.state.kind(), JobStateKind::Dead | JobStateKind::Done);
            *live.entry(member.batch).or_default() += u32::from(!over);
        }
        self.batches.check(self.limits.batch_keep_ms, &live);
        assert!(self.stirred.is_empty(), "batches are left to settle");
        assert!(self.freed.is_empty(), "queues are left to serve");
        for batch in self.batches() {
            let id = batch.id;
            assert!(self.job(id).is_none() && self.schedule(id).is_none(), "{id:?} is a batch and something else");
            assert!(id.0 < self.head.next_job, "{id:?} is from the future");
        }
    }

    /// By queue and protocol: abilities registered, clients woken.
    fn hands(&self) -> Hands {
        let mut hands = Hands::new();
        for client in self.clients.values() {
            let own = client.info.protocol;
            for served in &client.subscriptions {
                hands.entry((served.queue, own)).or_default().0 += 1;
            }
            if let Waiting::Awake { queue, .. } = client.waiting {
                hands.entry((queue, own)).or_default().1 += 1;
            }
        }
        hands
    }

    fn check_jobs(&self) {
        for job in self.jobs() {
            let queue = self.queues.at(job.queue);
            assert!(queue.is_some(), "{:?} has no queue", job.id);
            assert!(job.id.0 < self.head.next_job, "{:?} is from the future", job.id);
            assert!(
                job.durable || !job.listeners().is_empty() || job.lease().is_some(),
                "{:?} is not durable and has no listener",
                job.id
            );
            match &job.state {
                JobState::Scheduled(at) => assert!(self.sets.scheduled.contains(&(*at, job.id)), "{:?}", job.id),
                JobState::Retrying(at) => assert!(self.sets.retrying.contains(&(*at, job.id)), "{:?}", job.id),
                JobState::Dead(at) => assert!(self.sets.dead.contains(&(*at, job.id)), "{:?}", job.id),
                JobState::Done(at) => assert!(self.sets.done.contains(&(*at, job.id)), "{:?}", job.id),
                JobState::Leased(lease) => {
                    if let Holder::Connection(holder) = lease.holder {
                        let held = self.clients.get(&holder).is_some_and(|client| client.held.contains(&job.id));
                        assert!(held, "{:?} is missing in the jobs of its client", job.id);
                    }
                }
                JobState::Ready | JobState::Parked => {}
            }
            for listener in job.listeners() {
                let hears = self.clients.get(listener).and_then(|client| client.hears.get(&job.id));
                let times = job.listeners().iter().filter(|other| *other == listener).count();
                assert_eq!(hears.map(|n| *n as usize), Some(times), "{:?} and its listener {listener:?}", job.id);
            }
        }
    }

    fn check_queue(&self, queue: &Queue, hands: &Hands) {
        let name = &queue.image.name;
        assert_eq!(self.queues.named(name), Some(queue.image.id), "{name:?} is not found by name");
        assert_eq!(queue.bridged, self.queues.bridges(&queue.image), "{name:?} is bridged");
        assert!(queue.image.known || !queue.is_idle(), "{name:?} is idle and not known");
        let mut ready = 0;
        let mut before = None;
        for slot in queue.line.slots() {
            let job = self.jobs.at(slot);
            assert!(
                job.is_some_and(|job| job.state == JobState::Ready && job.queue == queue.image.id),
                "{name:?} {slot:?}"
            );
            let at = job.map(SortKey::of);
            assert!(before < at, "{name:?} out of order");
            before = at;
            ready += 1;
        }
        assert_eq!(ready, queue.jobs(JobStateKind::Ready), "{name:?}: line and count");
        assert_eq!(queue.line.is_empty(), ready == 0);
        assert_eq!(queue.line.counts().iter().sum::<u32>(), ready, "{name:?}: {} lanes", Priority::COUNT);
        for (index, consumers) in queue.consumers.iter().enumerate() {
            let own = consumers.protocol;
            assert_eq!(
                queue.consumers.iter().position(|other| other.protocol == own),
                Some(index),
                "{name:?} {own:?} twice"
            );
            let there = hands.get(&(queue.image.id, own)).copied().unwrap_or_default();
            assert_eq!(there, (consumers.workers, consumers.woken), "{name:?}: subscriptions, woken sleepers");
            self.check_sight(queue, own);
        }
        for (id, own) in hands.keys().filter(|(id, _)| *id == queue.image.id) {
            assert!(queue.consumers_of(*own).is_some(), "{name:?} lacks the consumers of {own:?} that {id:?} counts");
        }
        if queue.has_work() {
            let waits = |(key, id): (&WaitKey, &ClientId)| {
                queue.line.first_of(self.protocol_of(*id)).is_some() && self.admits_waiter(queue, *id, *key)
            };
            let takers = queue.consumers.iter().flat_map(|consumers| &consumers.takers).any(waits);
            assert!(!takers, "{name:?} has work and a taker");
            let next = self.next_served(queue.image.id);
            assert!(next.is_none(), "{name:?} has work, and {next:?} waits");
        }
        self.check_slots(queue);
    }

    /// A client of this protocol sees its jobs, and no others.
    fn check_sight(&self, queue: &Queue, own: Option<Protocol>) {
        let name = &queue.image.name;
        let sees = |slot: &crate::ready::Slot| {
            let Some(job) = self.jobs.at(*slot) else { return false };
            let words = own.is_none_or(|own| job.protocol == own || (queue.bridged && !job.unfit.has(own)));
            let own_words = !(queue.bridged && own.is_some_and(|own| job.unfit.has(own)));
            queue.image.kind == QueueKind::Cycle || (words && own_words)
        };
        let mut seen = queue.line.slots().filter(sees);
        let first = queue.line.first_of(own).map(|(_, slot)| slot);
        assert_eq!(first, seen.next(), "{name:?}, the first job that {own:?} sees");
        let many = u32::try_from(seen.count()).unwrap_or(u32::MAX) + u32::from(first.is_some());
        assert_eq!(queue.line.len_of(own), many, "{name:?}, jobs that {own:?} sees");
    }

    /// A throttled queue counts all its leases except those past the throttle's timeout.
    fn check_slots(&self, queue: &Queue) {
        let name = &queue.image.name;
        assert_eq!(queue.slots.is_some(), queue.image.throttle.is_some(), "{name:?} is throttled");
        let (Some(slots), Some(throttle)) = (&queue.slots, queue.image.throttle) else { return };
        let counts = |lease: &&Lease| throttle.over_at(lease.taken_at) > self.now;
        let leased = self.jobs().filter(|job| job.queue == queue.image.id);
        slots.check(name, leased.filter_map(|job| Some((job.id, job.lease().filter(counts)?))));
        let next = slots.next_over_at(throttle);
        assert!(slots.alarm_at() <= next, "{name:?} has slots until {next:?}");
    }

    fn check_client(&self, id: ClientId, client: &Client) {
        for job in &client.held {
            let holder = self.job(*job).and_then(|job| job.lease()).map(|lease| &lease.holder);
            assert_eq!(holder, Some(&Holder::Connection(id)), "{id:?} and {job:?}");
        }
        for job in client.hears.keys() {
            assert!(
                self.job(*job).is_some_and(|job| job.listeners().contains(&id)),
                "{id:?} is not a listener of {job:?}"
            );
        }
        let quiet = self.is_quiet(id, &[]);
        match &client.waiting {
            Waiting::Jobs(takes) => {
                let endless = takes.iter().all(|blocked| blocked.until == Timestamp::NEVER);
                assert!(takes.len() == 1 || (takes.len() > 1 && endless), "{id:?} waits in {} ways", takes.len());
                assert!(takes.iter().is_sorted_by_key(|blocked| blocked.seq), "{id:?} has takes out of order");
                for blocked in takes {
                    assert!(!quiet || blocked.sources.is_empty(), "{id:?} is quiet and blocked");
                    for served in &blocked.sources {
                        let those = self.consumers_at(served.queue, client);
                        let there = those.and_then(|those| those.takers.get(&WaitKey::new(0, blocked.seq)));
                        assert_eq!(there, Some(&id), "{id:?} is blocked");
                    }
                }
            }
            Waiting::Wake { seq } => {
                for served in client.subscriptions.iter().filter(|_| !quiet) {
                    let those = self.consumers_at(served.queue, client);
                    let there = those.and_then(|those| those.sleepers.get(&WaitKey::new(served.weight, *seq)));
                    assert_eq!(there, Some(&id), "{id:?} is asleep");
                }
            }
            Waiting::Nothing | Waiting::Awake { .. } => {}
        }
        for served in client.subscriptions.iter().filter(|_| client.credit.left > 0 && !quiet) {
            let those = self.consumers_at(served.queue, client);
            let there = those.and_then(|those| those.takers.get(&WaitKey::new(served.weight, client.credit.seq)));
            assert_eq!(there, Some(&id), "{id:?} has credits");
        }
    }

    fn consumers_at(&self, queue: QueueId, client: &Client) -> Option<&Consumers> {
        self.queues.at(queue)?.consumers_of(client.info.protocol)
    }

    /// Each client that is queued here really waits, stands under its own protocol, and is not quiet.
    fn check_waiting(&self, queue: &Queue, consumers: &Consumers) {
        let name = &queue.image.name;
        for id in consumers.takers.values().chain(consumers.sleepers.values()) {
            assert_eq!(self.protocol_of(*id), consumers.protocol, "{id:?} waits at {name:?} under another protocol");
        }
        for (key, id) in &consumers.takers {
            let client = self.clients.get(id);
            let blocked = |client: &Client| client.blocked().is_some_and(|takes| turn_of(key.seq, takes).is_some());
            let credits = |client: &Client| client.credit.left > 0 && client.credit.seq == key.seq;
            assert!(
                client.is_some_and(|client| blocked(client) || credits(client)),
                "{id:?} does not wait at {name:?}"
            );
            assert!(!self.is_quiet(*id, &[]), "{id:?} is quiet and waits at {name:?}");
        }
        for (key, id) in &consumers.sleepers {
            let asleep = |client: &Client| matches!(client.waiting, Waiting::Wake { seq } if seq == key.seq);
            assert!(self.clients.get(id).is_some_and(asleep), "{id:?} does not sleep at {name:?}");
            assert!(!self.is_quiet(*id, &[]), "{id:?} is quiet and sleeps at {name:?}");
        }
    }
}
