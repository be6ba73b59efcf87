//! Compares the engine with the oracle: events and state.

use std::collections::BTreeMap;

use windlass_engine::{
    Bridge, ClientId, Engine, Event, Holder, Job, JobState, JobStateKind, Lease, OnExpiry,
    Patterns, Reply, Schedule, Timestamp, Unfit,
};

use super::{Oracle, QueueMemo, plain};

/// Asserts that each client received the same events in the same order.
pub(crate) fn same_events(engine: &[(ClientId, Event)], oracle: &[(ClientId, Event)]) {
    let by_client = |events: &[(ClientId, Event)]| {
        let mut told: BTreeMap<ClientId, Vec<Event>> = BTreeMap::new();
        for (client, event) in events {
            told.entry(*client)
                .or_default()
                .push(comparable(event.clone()));
        }
        told
    };
    let (engine, oracle) = (by_client(engine), by_client(oracle));
    assert_eq!(
        engine, oracle,
        "left: the engine's events, right: the oracle's"
    );
}

fn comparable(mut event: Event) -> Event {
    if let Event::Reply(
        _,
        Reply::Looked {
            job: Some(view), ..
        },
    ) = &mut event
    {
        view.job = plain(&view.job);
    }
    // The oracle follows no runs.
    match &mut event {
        Event::Reply(_, Reply::Schedules { rows, .. }) => {
            rows.iter_mut().for_each(|row| row.last = None)
        }
        Event::Reply(
            _,
            Reply::Looked {
                schedule: Some(schedule),
                ..
            },
        ) => schedule.last = None,
        // Nor what the pages alone show of workers.
        Event::Reply(_, Reply::Queues { rows, .. }) => {
            rows.iter_mut()
                .for_each(|row| (row.waiting, row.policy) = (None, None));
        }
        Event::Reply(_, Reply::Workers { rows, .. }) => {
            rows.iter_mut()
                .for_each(|row| (row.waiting, row.jobs) = (None, Vec::new()));
        }
        _ => {}
    }
    // The rest of the cursor is internal to the engine.
    if let Event::Reply(
        _,
        Reply::Queues {
            next: Some(next), ..
        },
    ) = &mut event
    {
        next.1 = 0;
    }
    event
}

impl Oracle {
    /// Asserts that the engine's state equals the oracle's. Records the engine's numbers of new queues.
    pub(crate) fn compare(&mut self, engine: &Engine) {
        self.compare_queues(engine);
        self.compare_jobs(engine);
        let schedules: Vec<_> = engine
            .schedules()
            .map(|it| Schedule {
                last: None,
                ..it.clone()
            })
            .collect();
        assert_eq!(
            schedules, self.schedules,
            "left: the engine's schedules, right: the oracle's"
        );
        let batches: Vec<_> = engine.batches().cloned().collect();
        let expected: Vec<_> = self.live_batches().collect();
        assert_eq!(
            batches, expected,
            "left: the engine's batches, right: the oracle's"
        );
        let meta = engine.meta();
        assert_eq!(
            (meta.totals, meta.next_job),
            (self.totals, self.next_job),
            "the engine's totals and numbers"
        );
        let protocols: Vec<_> = self
            .protocols
            .iter()
            .map(|(protocol, totals)| (*protocol, *totals))
            .collect();
        assert_eq!(
            meta.protocols, protocols,
            "left: the engine's totals by protocol, right: the oracle's"
        );
        for worker in &self.workers {
            assert_eq!(
                engine.worker_state(&worker.name),
                Some(worker.state),
                "{:?}",
                worker.name
            );
        }
        // An alarm may fire without need, but none may be missed.
        if let Some(due) = self.next_deadline() {
            assert!(
                engine
                    .next_deadline()
                    .is_some_and(|at| at <= due.max(self.now)),
                "a deadline at {due:?} is missed"
            );
        }
    }

    fn compare_queues(&mut self, engine: &Engine) {
        for image in engine.queues().map(windlass_engine::Queue::image) {
            let Some(queue) = self
                .queues
                .iter_mut()
                .find(|queue| queue.name == image.name)
            else {
                panic!("the engine has a queue {:?}", image.name);
            };
            assert_eq!(
                queue.id.unwrap_or(image.id),
                image.id,
                "{:?} changed its number",
                image.name
            );
            queue.id = Some(image.id);
            let of = |q: &QueueMemo| {
                let set = (
                    q.kind,
                    q.known,
                    q.paused,
                    q.paused_at,
                    q.jobs_max,
                    q.jobs_max_of,
                );
                (set, q.throttle, q.rules, q.serial)
            };
            let (rules, throttle) = (image.rules(), image.throttle);
            let (kind, known, paused, at) =
                (image.kind, image.known, image.paused, image.paused_at);
            let set = (kind, known, paused, at, image.jobs_max, image.jobs_max_of);
            let is = (set, throttle, rules, image.serial);
            assert_eq!(is, of(queue), "{image:?}");
        }
        assert_eq!(
            engine.queues().count(),
            self.queues.len(),
            "queues: {:?}",
            self.queues
        );
        for queue in &self.queues {
            let id = queue.id.expect("every queue was just found");
            let counts = JobStateKind::ALL
                .map(|state| engine.queue(id).map_or(0, |queue| queue.jobs(state)));
            assert_eq!(
                counts,
                JobStateKind::ALL.map(|state| self.count(queue.number, None, state)),
                "{:?}",
                queue.name
            );
        }
    }

    fn compare_jobs(&self, engine: &Engine) {
        assert_eq!(engine.job_count(), self.jobs.len(), "jobs");
        let mut lines: BTreeMap<_, Vec<&Job>> = BTreeMap::new();
        for memo in &self.jobs {
            let Some(job) = engine.job(memo.job.id) else {
                panic!("the engine lost {:?}", memo.job)
            };
            assert_eq!(
                plain(job),
                plain(&memo.job),
                "left: the engine's job, right: the oracle's"
            );
            assert_eq!(
                engine.holds_key(job.id),
                memo.holds_key,
                "left: whether {job:?} holds its key, right: the oracle's"
            );
            assert_eq!(
                self.queue(memo.job.queue).id,
                Some(job.queue),
                "{:?} is in another queue",
                job.id
            );
            if job.state == JobState::Ready {
                lines.entry(memo.job.queue).or_default().push(job);
            }
        }
        for (queue, mut line) in lines {
            line.sort_by_key(|job| match job.cycle() {
                Some(cycle) => (0, cycle.priority, job.rank),
                None => (job.priority.lane(), job.rank, 0),
            });
            let line: Vec<_> = line.into_iter().map(|job| job.id).collect();
            assert_eq!(
                line,
                self.ready_queue(queue),
                "order in {:?}",
                self.queue(queue).name
            );
        }
    }
}

impl Oracle {
    /// The daemon crashed or stopped, and `engine` was recovered: connection-bound state is gone.
    pub(crate) fn survive(&mut self, engine: &Engine) {
        // After a boot its time comes from the wall clock, and may be a little behind.
        (self.now, self.turn.1) = (Timestamp(0), self.clock);
        self.clients.clear();
        (self.bridge, self.patterns) = (Bridge::default(), Patterns::default());
        self.queues
            .iter_mut()
            .for_each(|queue| queue.bridged = false);
        self.boot_count += 1;
        self.workers.clear();
        self.returning.clear();
        self.begins = true;
        self.uses = (0, 0);
        self.queues.iter_mut().for_each(|queue| queue.used = 0);
        self.next_worker = 1;
        self.awake.clear();
        self.jobs.retain(|memo| memo.job.durable);
        self.followers_survive(engine);
        for memo in &mut self.jobs {
            let Some(job) = engine.job(memo.job.id) else {
                panic!("{:?} was acknowledged and is lost", memo.job.id)
            };
            memo.job.unfit = Unfit::NONE;
            let was_held = memo.connection().is_some();
            if was_held {
                memo.job.state = JobState::Ready;
                assert!(
                    job.attempts == memo.job.attempts || job.attempts + 1 == memo.job.attempts,
                    "{job:?}"
                );
                memo.job.attempts = job.attempts;
            }
            memo.lease_due = memo
                .job
                .lease()
                .map_or(Timestamp::NEVER, |lease| lease.until);
            let reserved = |lease: &Lease| match &lease.holder {
                Holder::Named(name) if lease.on_expiry == OnExpiry::Fail && !name.is_empty() => {
                    Some(name.clone())
                }
                Holder::Named(_) | Holder::Connection(_) | Holder::Away(_) => None,
            };
            self.returning.extend(memo.job.lease().and_then(reserved));
            memo.lease_worker = None;
            memo.extra().listeners.clear();
            memo.extra().taken_back = false;
            memo.extra().output = None;
            memo.extra().progress = job
                .extra
                .as_deref()
                .and_then(|extra| extra.progress.clone());
            let mut recovered = job.clone();
            recovered.extra.get_or_insert_default();
            assert_eq!(
                plain(&recovered),
                plain(&memo.job),
                "left: the job recovered, right: as it was"
            );
            memo.job.extra.clone_from(&job.extra);
        }
        self.batches_survive();
        self.settle_keys();
        self.slots_survive();
        self.forget_idle_queues();
        assert!(
            engine.meta().next_job >= self.next_job,
            "a number is used again"
        );
        self.next_job = engine.meta().next_job;
        self.first_new = self.next_job;
    }

    /// Of several jobs that might hold a key, the youngest holds it: it was pushed after the others had released the
    /// key.
    fn settle_keys(&mut self) {
        let same = |one: &Job, other: &Job| {
            one.queue == other.queue
                && one.protocol == other.protocol
                && one.key() == other.key()
                && one.id > other.id
        };
        let holds: Vec<bool> = self
            .jobs
            .iter()
            .map(|memo| {
                memo.wants_key()
                    && !self
                        .jobs
                        .iter()
                        .any(|j| j.wants_key() && same(&j.job, &memo.job))
            })
            .collect();
        for (memo, holds) in self.jobs.iter_mut().zip(holds) {
            memo.holds_key = holds;
        }
    }
}
