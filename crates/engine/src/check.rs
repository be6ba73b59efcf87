//! Every invariant between the indexes, asserted. Runs after every call in debug builds, in tests, the simulator and the fuzzers.
#![cfg_attr(not(debug_assertions), allow(dead_code, reason = "only debug builds check as they go"))]

use crate::client::Waiting;
use crate::engine::Engine;
use crate::ids::{ClientId, Priority, QueueId};
use crate::job::{Holder, Place, PlaceKind};
use crate::line::Standing;
use crate::queue::Queue;

/// How often a large engine is checked: the work of checking stays in proportion to the work done.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    skip: usize,
}

impl Engine {
    /// Checks an engine of a few jobs every time, a larger one as often as its size allows. Nothing in release builds.
    pub(crate) fn check_now_and_then(&mut self) {
        #[cfg(debug_assertions)]
        {
            if self.checks.skip > 0 {
                self.checks.skip -= 1;
                return;
            }
            self.check();
            let size = self.jobs.len() + self.clients.len() + self.queues.len();
            self.checks.skip = size.saturating_sub(64) / 4;
        }
    }

    /// Asserts every invariant; see the crate's page for what they are.
    ///
    /// # Panics
    ///
    /// If one is broken: a bug in the engine, whatever the input was.
    pub fn check(&self) {
        self.jobs.check();
        self.check_jobs();
        for queue in self.queues.iter() {
            self.check_queue(queue);
        }
        for (id, client) in &self.clients {
            self.check_client(*id, client);
        }
        let sets = [&self.sets.scheduled, &self.sets.retrying, &self.sets.dead, &self.sets.done];
        let in_sets: usize = sets.into_iter().map(std::collections::BTreeSet::len).sum();
        let timed = |job: &&crate::job::Job| {
            matches!(job.place, Place::Scheduled(_) | Place::Retrying(_) | Place::Dead(_) | Place::Done(_))
        };
        assert_eq!(in_sets, self.jobs().filter(timed).count(), "jobs in places with a time");
        self.alarms.check(|at, alarm| self.means_something(at, alarm));
        assert!(
            self.alarms.len() <= 4 * (self.jobs.len() * 3 + self.clients.len() + self.workers.len()) + 4096,
            "alarms pile up"
        );
    }

    fn check_jobs(&self) {
        for job in self.jobs() {
            let queue = self.queues.at(job.queue);
            assert!(queue.is_some(), "{:?} has no queue", job.id);
            assert!(job.id.0 < self.head.next_job, "{:?} is from the future", job.id);
            assert!(
                job.durable || !job.listeners().is_empty() || job.lease().is_some(),
                "{:?} lives for nobody",
                job.id
            );
            match &job.place {
                Place::Scheduled(at) => assert!(self.sets.scheduled.contains(&(*at, job.id)), "{:?}", job.id),
                Place::Retrying(at) => assert!(self.sets.retrying.contains(&(*at, job.id)), "{:?}", job.id),
                Place::Dead(at) => assert!(self.sets.dead.contains(&(*at, job.id)), "{:?}", job.id),
                Place::Done(at) => assert!(self.sets.done.contains(&(*at, job.id)), "{:?}", job.id),
                Place::Leased(lease) => {
                    if let Holder::Connection(holder) = lease.holder {
                        let held = self.clients.get(&holder).is_some_and(|client| client.held.contains(&job.id));
                        assert!(held, "{:?} is held by a client that does not know", job.id);
                    }
                }
                Place::Ready | Place::Shelved => {}
            }
            for listener in job.listeners() {
                let hears = self.clients.get(listener).and_then(|client| client.hears.get(&job.id));
                let times = job.listeners().iter().filter(|other| *other == listener).count();
                assert_eq!(hears.map(|n| *n as usize), Some(times), "{:?} and its listener {listener:?}", job.id);
            }
        }
    }

    fn check_queue(&self, queue: &Queue) {
        let name = &queue.image.name;
        assert_eq!(self.queues.named(name), Some(queue.image.id), "{name:?} is not found by name");
        assert!(queue.image.known || !queue.is_idle(), "{name:?} is there for nothing");
        let mut ready = 0;
        let mut before = None;
        for slot in queue.line.slots() {
            let job = self.jobs.at(slot);
            assert!(
                job.is_some_and(|job| job.place == Place::Ready && job.queue == queue.image.id),
                "{name:?} {slot:?}"
            );
            let at = job.map(Standing::of);
            assert!(before < at, "{name:?} out of order");
            before = at;
            ready += 1;
        }
        assert_eq!(ready, queue.jobs(PlaceKind::Ready), "{name:?}: line and count");
        assert_eq!(queue.line.is_empty(), ready == 0);
        assert_eq!(queue.line.counts().iter().sum::<u32>(), ready, "{name:?}: {} lanes", Priority::COUNT);
        let abilities = self.clients.values().flat_map(|client| &client.abilities);
        assert_eq!(
            abilities.filter(|s| s.queue == queue.image.id).count(),
            queue.workers as usize,
            "{name:?}: workers"
        );
        let woken = self
            .clients
            .values()
            .filter(|c| matches!(c.waiting, Waiting::Awake { queue: q, .. } if q == queue.image.id));
        assert_eq!(woken.count(), queue.woken as usize, "{name:?}: woken");
        if queue.has_work() {
            assert!(queue.takers.is_empty(), "{name:?} has work and a taker");
            assert!(queue.sleepers.is_empty() || queue.woken >= ready, "{name:?} has work and lets workers sleep");
        }
    }

    fn check_client(&self, id: ClientId, client: &crate::client::Client) {
        for job in &client.held {
            let holder = self.job(*job).and_then(|job| job.lease()).map(|lease| &lease.holder);
            assert_eq!(holder, Some(&Holder::Connection(id)), "{id:?} and {job:?}");
        }
        for job in client.hears.keys() {
            assert!(self.job(*job).is_some_and(|job| job.listeners().contains(&id)), "{id:?} hears nothing of {job:?}");
        }
        let waits_at = |queue: QueueId| {
            let queue = self.queues.at(queue);
            queue.is_some_and(|q| q.takers.values().any(|c| *c == id) || q.sleepers.values().any(|c| *c == id))
        };
        let quiet = self.is_quiet(id, &[]);
        match &client.waiting {
            Waiting::Job(blocked) => assert!(blocked.sources.iter().all(|s| waits_at(s.queue)), "{id:?} blocked"),
            Waiting::Wake { .. } if !quiet => {
                assert!(client.abilities.iter().all(|s| waits_at(s.queue)), "{id:?} asleep");
            }
            Waiting::Nothing | Waiting::Wake { .. } | Waiting::Awake { .. } => {}
        }
        assert!(!quiet || !self.queues.iter().any(|queue| waits_at(queue.image.id)), "{id:?} is quiet and waits");
        if client.credit.left > 0 && !quiet {
            assert!(client.abilities.iter().all(|served| waits_at(served.queue)), "{id:?} with credits");
        }
    }
}
