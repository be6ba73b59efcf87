//! The daemon ends and begins again, in order or killed; and dead jobs are tried again, all at once.

use windlass_engine::{
    BulkCommand, Context, Engine, Filter, JobId, JobStateKind, Lease, Mutation, Timestamp,
};

use super::laws::Redrive;
use super::{Life, QUEUE, RETURN_MS, limits};

impl Life {
    /// The daemon ends and begins again, sooner or later than what is pending, from what its journal has.
    pub(super) fn restart(&mut self) {
        let is_killed = self.rng.chance(50);
        self.tally.note(if is_killed {
            "Policy::Killed"
        } else {
            "Policy::Stopped"
        });
        if is_killed {
            self.kills.push(self.now);
        } else {
            self.stop();
        }
        let mut engine = Engine::new(limits(), self.rng.throw());
        engine.recall_meta(self.engine.meta().clone(), !is_killed);
        self.engine
            .queues()
            .for_each(|queue| engine.recall_queue(queue.image().clone()));
        let held = self
            .engine
            .jobs()
            .filter(|job| job.lease().is_some_and(Lease::connection_bound));
        let held: Vec<JobId> = held.map(|job| job.id).collect();
        for job in self.engine.jobs() {
            assert!(engine.recall_job(job.clone()));
        }
        engine.wake_up();
        engine.hold_due();
        self.engine = engine;
        // A daemon that is stopped while it waits for what one before may have handed out leaves that to the next one.
        let is_in_doubt = (is_killed || self.now < self.in_doubt_until) && self.most() < u32::MAX;
        self.now += self.rng.one_of([0, 1, 40, 400, 3_000, 20_000]);
        self.in_doubt_until = if is_in_doubt { self.now + RETURN_MS } else { 0 };
        if is_killed {
            let maybe = |job: JobId| {
                (
                    job,
                    self.keys.get(&job).copied().unwrap_or_default(),
                    self.now + RETURN_MS,
                )
            };
            self.maybe = held.into_iter().map(maybe).collect();
        }
        self.begin();
    }

    /// The configuration is there.
    pub(super) fn start(&mut self) {
        self.engine.release_due();
        self.tick();
    }

    /// An orderly stop.
    fn stop(&mut self) {
        self.tick();
        let held = self.engine.held_over_connections();
        let mut context = Context::new(Timestamp(self.now), self.rng.throw());
        self.engine.leave(&held, &mut context);
        self.engine.finish_rates(&mut context);
        self.engine.finish_meta();
    }

    /// An operator has all dead jobs tried again, at once or at a speed, in their queue or as new ones of it.
    pub(super) fn retry_dead(&mut self) {
        if self.redrive.is_some() {
            return;
        }
        // Jobs that are due are no part of it.
        self.tick();
        self.tally.note("Policy::Retried");
        let is_dead = |job: &&windlass_engine::Job| job.state.kind() == JobStateKind::Dead;
        let jobs: Vec<JobId> = self
            .engine
            .jobs()
            .filter(is_dead)
            .map(|job| job.id)
            .collect();
        let filter = Filter {
            state: Some(JobStateKind::Dead),
            queue: Some(QUEUE.into()),
            ..Filter::default()
        };
        let (filter, per_second) = (Box::new(filter), self.rng.one_of([5_u32, 100]));
        let limit = 100;
        match self.rng.below(3) {
            0 => self.rounds(|after| BulkCommand::Mutate {
                filter: filter.clone(),
                action: Mutation::Requeue,
                after,
                limit: 3,
            }),
            way => {
                let action = Mutation::Redrive {
                    delay_ms: 0,
                    per_second,
                };
                self.rounds(|after| match way {
                    1 => BulkCommand::Mutate {
                        filter: filter.clone(),
                        action,
                        after,
                        limit,
                    },
                    _ => BulkCommand::Redrive {
                        filter: filter.clone(),
                        to: QUEUE.into(),
                        delay_ms: 0,
                        per_second,
                        after,
                        limit,
                    },
                });
                // Until its bodies are there the command has done nothing, and the jobs are dead as before.
                self.redrive = Some(Redrive {
                    began: self.now,
                    per_second: per_second.into(),
                    jobs,
                });
            }
        }
    }
}
