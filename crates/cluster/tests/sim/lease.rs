//! The lease as its holder knows it: until when it may act, by its own clock; and the renewals.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_store::{Error, Tenure};

use super::Plan;
use super::database::{Answer, LEASE_MS, Run, Statement};
use super::world::Around;
use windlass_hub::clock;

/// The part of a lease that its holder uses, in milliseconds. A quarter is a margin for clock
/// differences.
const OWN_MS: u64 = LEASE_MS - LEASE_MS / 4;

/// How often a lease is renewed, and how soon after a failure, in milliseconds.
const RENEW_MS: u64 = LEASE_MS / 4;
const RETRY_MS: u64 = 100;

/// The right to the store.
#[derive(Debug)]
pub(super) struct Lease {
    epoch: u64,
    /// The length of the leader's grace.
    length_ms: u64,
    /// Whether the holder checks its clock.
    looks: bool,
    /// In milliseconds since boot.
    until_ms: AtomicU64,
    /// The database's clock minus the time since boot; `None`: daemons use their own wall clocks.
    wall_ahead_ms: Option<AtomicI64>,
    is_lost: AtomicBool,
    edges_before: Option<Vec<u32>>,
    /// The edges that are recorded next, and the number of that record.
    record: Mutex<(u64, Option<Vec<u32>>)>,
    recorded: AtomicU64,
}

impl Lease {
    /// A lease requested at a time since boot, and granted at a time of the database's clock.
    /// Without a grace, new leaders hand out jobs immediately.
    pub(super) fn new(
        epoch: u64,
        (sent_ms, clock_ms): (u64, u64),
        edges_before: Option<Vec<u32>>,
        plan: &Plan,
    ) -> Self {
        let length_ms = if plan.has_grace { LEASE_MS } else { 0 };
        let until_ms = AtomicU64::new(sent_ms + OWN_MS);
        let wall_ahead_ms = plan
            .asks_the_time
            .then(|| AtomicI64::new(ahead_ms(sent_ms, clock_ms)));
        let record = Mutex::new((0, edges_before.clone()));
        Self {
            epoch,
            length_ms,
            looks: plan.looks,
            until_ms,
            wall_ahead_ms,
            is_lost: AtomicBool::new(false),
            edges_before,
            record,
            recorded: AtomicU64::new(0),
        }
    }

    /// The database has renewed it.
    pub(super) fn renewed(&self, sent_ms: u64, clock_ms: u64) {
        self.until_ms.store(sent_ms + OWN_MS, Ordering::Release);
        self.wall_ahead_ms
            .iter()
            .for_each(|it| it.store(ahead_ms(sent_ms, clock_ms), Ordering::Release));
    }

    /// Another daemon has the lease, or it was released.
    pub(super) fn lose(&self) {
        self.until_ms.store(0, Ordering::Release);
        self.is_lost.store(true, Ordering::Release);
    }

    /// Whether it is certain, by the clock.
    pub(super) fn is_certain(&self) -> bool {
        clock::since_boot_ms() < self.until_ms.load(Ordering::Acquire)
    }
}

impl Tenure for Lease {
    fn holds(&self) -> bool {
        if self.looks {
            self.is_certain()
        } else {
            self.lost().is_none()
        }
    }

    fn wait(&self, _: Duration) {
        panic!(
            "a thread would wait here: the simulator lets it do something only when it does not"
        );
    }

    fn lost(&self) -> Option<Error> {
        let lost = || Error::Deposed {
            place: "the database".to_owned(),
            holder: "another daemon".to_owned(),
        };
        self.is_lost.load(Ordering::Acquire).then(lost)
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn length(&self) -> Duration {
        Duration::from_millis(self.length_ms)
    }

    fn edges_before(&self) -> Option<Vec<u32>> {
        self.edges_before.clone()
    }

    fn record(&self, edges: Vec<u32>) -> u64 {
        let mut record = self.record.lock().unwrap();
        *record = (record.0 + 1, Some(edges));
        record.0
    }

    fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Acquire)
    }

    fn wall_ahead_ms(&self) -> Option<i64> {
        Some(self.wall_ahead_ms.as_ref()?.load(Ordering::Acquire))
    }
}

/// The database's clock minus the time since boot, from a reply received now.
pub(super) fn ahead_ms(sent_ms: u64, clock_ms: u64) -> i64 {
    clock_ms.cast_signed() - sent_ms.midpoint(clock::since_boot_ms()).cast_signed()
}

/// The thread that renews a lease.
#[derive(Debug)]
pub(super) struct Renewals {
    pub(super) lease: Arc<Lease>,
    /// The statement in flight, the time since boot when it was sent, and its record.
    asked: Option<(u64, u64, u64)>,
    at: u64,
    has_failed: bool,
}

impl Renewals {
    pub(super) const fn new(lease: Arc<Lease>, now: u64) -> Self {
        Self {
            lease,
            asked: None,
            at: now + RENEW_MS,
            has_failed: false,
        }
    }

    pub(super) fn turn(&mut self, run: Run, around: &mut Around) {
        let (record, edges) = self.lease.record.lock().unwrap().clone();
        let has_news = !self.has_failed && record > self.lease.recorded();
        if self.asked.is_none()
            && (has_news || self.at <= around.now)
            && self.lease.lost().is_none()
        {
            let number = around.send(
                run,
                Statement::Renew {
                    epoch: self.lease.epoch(),
                    edges,
                },
            );
            self.asked = Some((number, clock::since_boot_ms(), record));
        }
    }

    /// Handles a reply of the database. Returns it if it belongs to no renewal.
    pub(super) fn receive(&mut self, number: u64, answer: Answer, now: u64) -> Option<Answer> {
        let Some((_, sent_ms, record)) = self.asked.take_if(|(asked, ..)| *asked == number) else {
            return Some(answer);
        };
        self.has_failed = !matches!(answer, Answer::Renewed { .. });
        match answer {
            Answer::Renewed { clock_ms } => {
                self.lease.renewed(sent_ms, clock_ms);
                self.lease.recorded.store(record, Ordering::Release);
            }
            Answer::Deposed => self.lease.lose(),
            _ => {}
        }
        self.at = now + if self.has_failed { RETRY_MS } else { RENEW_MS };
        None
    }
}
