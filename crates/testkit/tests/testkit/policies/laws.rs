//! The laws about starts and their times, whatever the engine does to decide them.

use std::collections::BTreeMap;

use windlass_engine::{Context, Event, JobId, JobStateKind, Notice, Rate, Reply};

use super::{KEYS, Life, SAVED_MS, WAKE_MS};

/// Jobs of a bulk retry that become ready one after another.
#[derive(Debug)]
pub(super) struct Redrive {
    pub(super) began: u64,
    pub(super) per_second: u64,
    pub(super) jobs: Vec<JobId>,
}

impl Life {
    pub(super) fn judge(&mut self, context: &Context) {
        for (client, event) in &context.events {
            let taken = match event {
                Event::Reply(_, Reply::Taken(taken)) | Event::Notice(Notice::Delivered(taken)) => {
                    taken
                }
                Event::Reply(_, Reply::Empty) => {
                    self.waiting.remove(&client.0);
                    continue;
                }
                Event::Notice(Notice::WorkAvailable) => {
                    self.tally.note("Policy::Woken");
                    self.left_until = self.now + WAKE_MS;
                    self.waiting.remove(&client.0);
                    continue;
                }
                Event::Reply(..) | Event::Notice(_) => continue,
            };
            self.waiting.remove(&client.0);
            self.started(taken.id, self.key_of(taken.id, &taken.body));
        }
        self.engine.check();
        self.overlap_and_waits();
        self.speed();
    }

    fn started(&mut self, job: JobId, key: usize) {
        self.tally.note("Policy::Started");
        self.starts.push((self.now, key));
        assert!(!self.paused.contains(&key), "{:?} is paused", KEYS[key]);
        if let Some(rate) = self.policy.rate {
            self.within(rate, |_| true);
        }
        if let Some(rate) = self.policy.key_rate {
            // A daemon that was killed may have started these and not saved it.
            let unsaved = |at: u64| {
                self.kills
                    .iter()
                    .any(|kill| (kill.saturating_sub(SAVED_MS)..=*kill).contains(&at))
            };
            self.within(rate, |(at, other)| other == key && !unsaved(at));
        }
        if self.policy.ordered {
            let earlier = self.keys.range(..job).filter(|(_, other)| **other == key);
            for (other, _) in earlier {
                let state = self.engine.job(*other).map(|job| job.state.kind());
                let over = matches!(state, None | Some(JobStateKind::Dead | JobStateKind::Done));
                assert!(over, "{job:?} starts before {other:?}, which is {state:?}");
            }
        }
        for other in 0..KEYS.len() {
            self.passed[other][key] += 1;
            self.passed[key][other] = 0;
        }
    }

    /// No window that ends now has more starts of these keys than the rate allows.
    fn within(&self, rate: Rate, counts: impl Fn((u64, usize)) -> bool) {
        let allowed = |ms: u64| ms * u64::from(rate.jobs) / u64::from(rate.per_ms);
        let mut many = 0;
        for (at, _) in self.starts.iter().rev().filter(|start| counts(**start)) {
            many += 1;
            assert!(
                many <= u64::from(rate.burst) + allowed(self.now - at),
                "{many} starts since {at}, now {}",
                self.now
            );
        }
    }

    fn overlap_and_waits(&mut self) {
        let (mut running, mut ready) = ([0; KEYS.len()], [0; KEYS.len()]);
        // The first job of each key that is not over.
        let mut firsts: [Option<(JobId, JobStateKind)>; KEYS.len()] = [None; KEYS.len()];
        let mut leased = std::collections::BTreeSet::new();
        for job in self.engine.jobs() {
            let (body, kind) = (
                if job.payload.stored().is_none() {
                    job.body()
                } else {
                    &[]
                },
                job.state.kind(),
            );
            let key = self.key_of(job.id, body);
            if matches!(
                kind,
                JobStateKind::Leased | JobStateKind::Retrying | JobStateKind::Ready
            ) {
                let first = firsts[key].get_or_insert((job.id, kind));
                *first = (*first).min((job.id, kind));
            }
            running[key] += u32::from(kind == JobStateKind::Leased);
            ready[key] += u32::from(kind == JobStateKind::Ready);
            if kind == JobStateKind::Leased {
                leased.insert(job.id);
            }
        }
        self.running = leased;
        self.overlap(running);
        let most = self.most();
        let is_first =
            |key: usize| firsts[key].is_some_and(|(_, kind)| kind == JobStateKind::Ready);
        let is_held =
            |key: usize| self.paused.contains(&key) || (self.policy.ordered && !is_first(key));
        let is_free = |key: usize| ready[key] > 0 && running[key] < most && !is_held(key);
        let limited = self.policy.rate.is_some()
            || self.policy.key_rate.is_some()
            || self.now < self.in_doubt_until;
        let may_start = (0..KEYS.len()).any(is_free);
        let waits = self.waiting.iter().any(|client| client % 2 == 1);
        let is_left = self.now <= self.left_until;
        assert!(
            limited || !waits || !may_start || is_left,
            "{:?} wait, and there is a job",
            self.waiting
        );
        for (key, waits) in KEYS.iter().enumerate() {
            for (other, starts) in KEYS.iter().enumerate() {
                if self.policy.fair
                    && self.policy.key_rate.is_none()
                    && is_free(key)
                    && self.now >= self.in_doubt_until
                {
                    assert!(
                        self.passed[key][other] <= 2,
                        "{waits:?} waits, {starts:?} starts: {:?}, {:?}, {running:?} run, {ready:?} are ready",
                        self.policy,
                        self.starts.iter().rev().take(9).collect::<Vec<_>>()
                    );
                } else {
                    self.passed[key][other] = 0;
                }
            }
        }
    }

    pub(super) fn most(&self) -> u32 {
        if self.policy.ordered {
            1
        } else {
            self.policy.key_running_max.unwrap_or(u32::MAX)
        }
    }

    /// No key has more jobs running than it may, with those that workers of a daemon that was killed may still run.
    fn overlap(&self, running: [u32; KEYS.len()]) {
        let mut all: BTreeMap<usize, u64> = BTreeMap::new();
        for (_, key, _) in self.maybe.iter().filter(|(_, _, until)| self.now < *until) {
            *all.entry(*key).or_default() += 1;
        }
        for (key, running) in running.iter().enumerate() {
            let all = all.get(&key).copied().unwrap_or_default() + u64::from(*running);
            assert!(
                all <= self.most().into(),
                "{all} jobs of {:?} run, {running} by leases",
                KEYS[key]
            );
        }
    }

    /// No more jobs of a bulk retry come out in a time than its speed allows.
    fn speed(&mut self) {
        let Some(Redrive {
            began,
            per_second,
            jobs,
        }) = &self.redrive
        else {
            return;
        };
        let waits = |job: &JobId| {
            self.engine
                .job(*job)
                .is_some_and(|job| job.state.kind() == JobStateKind::Retrying)
        };
        let (left, many) = (jobs.iter().filter(|job| waits(job)).count(), jobs.len());
        let most = 1 + (self.now - began) * per_second / 1_000;
        assert!(
            (many - left) as u64 <= most,
            "{left} of {many} wait {} ms after the retry",
            self.now - began
        );
        if left == 0 {
            self.redrive = None;
        }
    }
}
