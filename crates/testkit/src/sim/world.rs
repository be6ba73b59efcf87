//! The world of one seed: its limits, its clients, and how often each kind of event happens.

use bytes::Bytes;
use windlass_engine::{HistoryRules, Limits};

use crate::rng::Rng;

use super::kind::Kind;

/// A world. Small on purpose: names conflict and limits are reached.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) limits: Limits,
    pub(crate) clients_max: usize,
    /// Names of queues, and those of them meant to be `cycle` queues.
    pub(crate) queues: Vec<Bytes>,
    pub(crate) cycles: Vec<Bytes>,
    pub(crate) keys: Vec<Bytes>,
    pub(crate) names: Vec<Bytes>,
    pub(crate) workers: Vec<Bytes>,
    pub(crate) batches: Vec<Bytes>,
    /// The weight of each kind of event.
    pub(crate) weights: Vec<(u64, Kind)>,
    /// How far the clock moves at once, in milliseconds.
    pub(crate) pace_ms: u64,
    /// How often the wall clock is set, in percent of all turns.
    pub(crate) steps_percent: u64,
    /// How often the daemon pauses.
    pub(crate) pauses_percent: u64,
    /// How often bodies leave memory, or come back.
    pub(crate) bodies_percent: u64,
}

impl World {
    /// The world that these random numbers determine.
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let works = names("work", rng.between(1, 5));
        let cycles = names("cycle", rng.between(0, 2));
        let mut weights: Vec<(u64, Kind)> = Kind::ALL.to_vec();
        for (weight, kind) in &mut weights {
            // Some kinds of events are missing in some worlds.
            let factor = rng.one_of([0, 1, 1, 1, 4]);
            let always = matches!(kind, Kind::Open | Kind::Push | Kind::Take | Kind::Finish);
            *weight *= if always { factor.max(1) } else { factor };
        }
        Self {
            limits: limits(rng),
            clients_max: usize::try_from(rng.between(2, 9)).unwrap_or(2),
            queues: works.iter().chain(&cycles).cloned().collect(),
            cycles,
            keys: names("k", rng.between(1, 5)),
            names: names("n", rng.between(1, 5)),
            workers: names("w", rng.between(1, 3)),
            batches: names("b", rng.between(1, 5)),
            weights,
            pace_ms: rng.one_of([2, 50, 1_000, 30_000]),
            steps_percent: rng.one_of([0, 0, 0, 1, 5]),
            pauses_percent: rng.one_of([0, 0, 0, 1, 3]),
            bodies_percent: rng.one_of([0, 5, 30, 90]),
        }
    }

    /// The kind of the next event.
    pub(crate) fn pick(&self, rng: &mut Rng) -> Kind {
        let mut left = rng.below(self.weights.iter().map(|(weight, _)| weight).sum());
        for (weight, kind) in &self.weights {
            if left < *weight {
                return *kind;
            }
            left -= weight;
        }
        Kind::Push
    }
}

fn names(stem: &str, many: u64) -> Vec<Bytes> {
    (0..many)
        .map(|n| Bytes::from(format!("{stem}{n}")))
        .collect()
}

fn limits(rng: &mut Rng) -> Limits {
    Limits {
        jobs_max: rng.one_of([8, 40, 100]),
        jobs_bytes_max: rng.one_of([u64::MAX, u64::MAX, 12_000]),
        memory_max: u64::MAX,
        schedules_max: rng.one_of([1, 3, 100]),
        batches_max: rng.one_of([0, 1, 3, 100, 100]),
        batch_depth_max: rng.one_of([0, 1, 3]),
        batch_keep_ms: rng.one_of([0, 100, 5_000, 10_000_000]),
        queues_max: rng.one_of([3, 5, 100, 100]),
        abilities_max: rng.one_of([2, 8]),
        name_bytes_max: 8,
        listeners_max: rng.one_of([0, 1, 3, 3, 100, 100]),
        lease_ms_max: rng.one_of([20, 5_000, 100_000]),
        dead_ms: rng.one_of([100, 60_000]),
        dead_max: rng.one_of([0, 1, 3, 1_000, 1_000, 1_000]),
        dead_bytes_max: rng.one_of([600, 2_000, u64::MAX, u64::MAX, u64::MAX]),
        wake_ms: rng.one_of([0, 20, 1_000]),
        beat_ms: rng.one_of([100, 60_000, 10_000_000]),
        return_ms: rng.one_of([0, 100_000, 10_000_000]),
        requeue_dead_workers: rng.chance(50),
        losses_max: rng.one_of([0, 1, 2, 5]),
        loss_pause_ms: rng.one_of([0, 10, 1_000]),
        page_max: rng.one_of([1, 3, 1_000]),
        history: HistoryRules {
            keep_ms: 1,
            body_max: 3,
            result_max: 3,
            output_max: 3,
        },
        dead_memory_max: rng.one_of([600, 2_000, u64::MAX, u64::MAX, u64::MAX]),
    }
}
