//! Bodies out of the engine's memory: at any moment any of them may leave it, or come back. The engine must behave as if
//! all were there, and name no place that it has given up.

use std::collections::BTreeMap;

use bytes::Bytes;
use windlass_engine::{ClientId, Context, Engine, Event, Job, JobId, Stored};

use crate::rng::Rng;

/// Bytes that the engine is asked to give up at once.
const COOLED_BYTES: u64 = 200;

/// The bodies by their places.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    kept: BTreeMap<u64, Bytes>,
    last: u64,
}

impl Bodies {
    /// Moves some bodies out of memory, or back.
    pub(crate) fn shuffle(&mut self, engine: &mut Engine, jobs: &[JobId], rng: &mut Rng) {
        for (id, body) in engine.cool(COOLED_BYTES) {
            let job = engine.job(id).expect("only jobs that exist are named");
            assert!(
                job.lease().is_none() && job.payload.stored().is_none(),
                "{job:?} cannot be named"
            );
            self.store(engine, id, &body);
        }
        for id in jobs {
            let Some(job) = engine.job(*id).filter(|_| rng.chance(30)) else {
                continue;
            };
            match job.payload.stored() {
                Some(from) => assert!(
                    engine.set_loaded(*id, from, &self.read(*id, from)),
                    "{id:?} refers to {from:?}"
                ),
                None => {
                    let (body, is_handed_out) = (job.payload.share_body(), job.lease().is_some());
                    if is_handed_out {
                        assert!(!engine.set_stored(*id, &body, 0), "{id:?} is handed out");
                    } else {
                        self.store(engine, *id, &body);
                    }
                }
            }
        }
        engine.pack(jobs.iter().copied().filter(|_| rng.chance(20)));
        for (id, from) in engine.take_wanted() {
            if engine.job(id).and_then(|job| job.payload.stored()) == Some(from) && rng.chance(70) {
                engine.set_loaded(id, from, &self.read(id, from));
            }
        }
    }

    fn store(&mut self, engine: &mut Engine, id: JobId, body: &Bytes) {
        self.last += 1;
        assert!(
            engine.set_stored(id, body, self.last),
            "{id:?} has the body that it was asked for"
        );
        assert!(
            !engine.set_stored(id, body, self.last),
            "{id:?} has no body in memory any more"
        );
        self.kept.insert(self.last, body.clone());
    }

    fn read(&self, id: JobId, from: Stored) -> Bytes {
        let body = self
            .kept
            .get(&from.at)
            .unwrap_or_else(|| panic!("{from:?} of {id:?} was given up"));
        assert!(from.is(body), "{from:?} of {id:?} has another body");
        body.clone()
    }

    /// Puts the bodies into events that wait for them.
    pub(crate) fn supply(&self, events: &mut [(ClientId, Event)]) {
        for (_, event) in events {
            event.supply(|id, from| Some(self.read(id, from)));
            assert!(!event.waits_for_body() && event.bodies().next().is_none());
        }
    }

    /// Loads what the last command waits for. Some of it cannot be read at the first try.
    pub(crate) fn load(&self, engine: &mut Engine, context: &mut Context, rng: &mut Rng) {
        for (id, from) in context.missing.drain(..) {
            let body = self.read(id, from);
            if rng.chance(80) {
                assert!(
                    engine.set_loaded(id, from, &body),
                    "{id:?} refers to {from:?}"
                );
            }
        }
    }

    /// A job with its body.
    pub(crate) fn whole(&self, job: Job) -> Job {
        match job.payload.stored() {
            Some(from) => Job {
                payload: job.payload.with_body(&self.read(job.id, from)),
                ..job
            },
            None => job,
        }
    }

    /// Forgets what the engine has given up. The turn is over: its changes are in the journal.
    pub(crate) fn free(&mut self, engine: &mut Engine) {
        for from in engine.take_freed() {
            assert!(
                self.kept.remove(&from.at).is_some(),
                "{from:?} was given up twice"
            );
        }
        let (jobs, bytes) = engine.stored();
        let kept: usize = self.kept.values().map(Bytes::len).sum();
        assert_eq!(
            (jobs, bytes),
            (self.kept.len() as u64, kept as u64),
            "bodies out of memory, and their bytes"
        );
    }

    /// The daemon has ended, and everything that was its own.
    pub(crate) fn end(&mut self) {
        self.kept.clear();
    }
}
