//! Bodies that are loaded ahead while memory is short: however many queues are worked off in turn, a job costs few loads.

use std::collections::BTreeMap;

use bytes::Bytes;
use windlass_engine::{
    Command, From, JobCommand, JobId, LeaseTerms, Limits, NewJob, Protocol, Select, Stored, Take,
    TakeCommand, Wait,
};

use crate::common::{Broker, finish};

/// Bytes of each body.
const BODY: usize = 1_000;

/// An engine, a disk with all bodies that are not in memory, and a caller that behaves like a
/// daemon.
struct Fleet {
    broker: Broker,
    disk: BTreeMap<u64, Bytes>,
    loads: u64,
}

impl Fleet {
    /// Queues with jobs without bodies in memory. The memory has space for a part of the bodies.
    fn new((queues, jobs): (u64, u64), part: u64) -> Self {
        let mut fleet = Self {
            broker: Broker::new(),
            disk: BTreeMap::new(),
            loads: 0,
        };
        for n in 0..queues * jobs {
            let body = Bytes::from(n.to_be_bytes().repeat(BODY / 8));
            let job = NewJob::new(Protocol::GEARMAN, format!("q{}", n % queues).into(), body);
            fleet.broker.hear(1, JobCommand::Push(Box::new(job)));
        }
        fleet.cool(0);
        let resident = fleet.broker.engine.resident_bytes();
        let memory_max = (resident + fleet.broker.engine.stored().1 / part) / 3 * 4;
        fleet.broker.engine.set_limits(Limits {
            memory_max,
            ..Limits::default()
        });
        fleet
    }

    /// Moves bodies out of memory until this many bytes of them remain.
    fn cool(&mut self, left: u64) {
        while self.broker.engine.bodies_here() > left {
            let bodies = self.broker.engine.cool(100_000);
            for (job, body) in &bodies {
                assert!(self.broker.engine.set_stored(*job, body, job.0));
                self.disk.insert(job.0, body.clone());
            }
            self.broker.engine.pack(bodies.iter().map(|(job, _)| *job));
        }
    }

    fn load(&mut self, job: JobId, from: Stored) {
        self.loads += 1;
        self.broker
            .engine
            .set_loaded(job, from, &self.disk[&from.at]);
    }

    /// Takes and finishes the next job of a queue.
    fn work(&mut self, queue: u64) {
        let from = From::Listed {
            queues: vec![format!("q{queue}").into()],
            lease: LeaseTerms::CONNECTION,
        };
        let take = Take {
            from,
            select: Select::ListOrder,
            wait: Wait::No,
            worker: Bytes::new(),
        };
        let events = self.broker.hear(2, Command::Take(TakeCommand::Take(take)));
        let taken = events[0]
            .1
            .handed_out()
            .expect("the queue has a job")
            .clone();
        if let Some(from) = taken.stored {
            self.load(taken.id, from);
        }
        self.broker.hear(2, finish(taken.id.0));
        for (job, from) in self.broker.engine.take_wanted() {
            if self.room() >= from.len.into() {
                self.load(job, from);
            }
        }
        let memory_max = self.broker.engine.limits().memory_max;
        if self.room() == 0 && self.broker.engine.bodies_here() > memory_max / 64 {
            self.cool(self.broker.engine.bodies_here() - 20_000);
        }
    }

    /// Bytes of bodies that may be loaded.
    fn room(&self) -> u64 {
        let engine = &self.broker.engine;
        let memory_max = engine.limits().memory_max;
        let few = (memory_max / 64).saturating_sub(engine.bodies_here());
        (memory_max / 4 * 3)
            .saturating_sub(engine.resident_bytes())
            .max(few)
    }
}

/// Queues that are drained in turn share the available memory. A body is loaded in advance only once.
#[test]
fn queues_that_take_turns_share_the_room_for_bodies() {
    for ((queues, jobs), part) in [
        ((1, 4_000), 4),
        ((50, 80), 4),
        ((1_100, 16), 2),
        ((1_100, 16), 8),
        ((2_000, 8), 1_000),
    ] {
        let mut fleet = Fleet::new((queues, jobs), part);
        (0..jobs).for_each(|_| (0..queues).for_each(|queue| fleet.work(queue)));
        let all = queues * jobs;
        assert!(
            fleet.loads <= all * 11 / 10,
            "{queues} queues, 1/{part}: {} loads of {all} bodies",
            fleet.loads
        );
    }
}
