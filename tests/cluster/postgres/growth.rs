//! An hour of churn: jobs that live for milliseconds, and among them jobs that live for minutes. The database
//! must not grow, and commits must not slow down.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::SIZE;
use crate::common::postgres::Postgres;
use crate::common::{Peer, daemon, from_env};

/// Of each hundred jobs this many live on.
const KEPT_PERCENT: u64 = 3;
/// This many jobs live on at once.
const KEPT: usize = 20_000;
const BODY_BYTES: usize = 1_000;
/// One job of this many is large.
const LARGE_EVERY: u64 = 500;
const LARGE_BYTES: usize = 100_000;
/// The pause of a producer after each job. A daemon that becomes slower shows it in the rate nevertheless.
const PAUSE: Duration = Duration::from_micros(700);
const PRODUCERS: u64 = 3;
/// What may be there beside three times the living bodies.
const SPARE_BYTES: u64 = 64 << 20;
/// The rates of the first and of the last of this many parts of the time are compared.
const PARTS: usize = 6;

/// What all clients share.
#[derive(Default)]
struct Churn {
    stop: AtomicBool,
    /// Bytes of the bodies that live on, oldest first.
    kept: Mutex<VecDeque<u64>>,
    submitted: AtomicU64,
    refused: AtomicU64,
    live_bytes: AtomicU64,
}

impl Churn {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn produce(&self, address: SocketAddr, producer: u64) {
        let mut peer = Peer::connect(address).unwrap();
        let mut number = producer;
        while self.goes_on() {
            number += PRODUCERS;
            let body = body(number);
            let bytes = body.len() as u64;
            if number % 100 < KEPT_PERCENT {
                self.live_bytes.fetch_add(bytes, Ordering::Relaxed);
                self.submit(&mut peer, "kept", &body);
                self.kept.lock().unwrap().push_back(bytes);
            } else {
                self.submit(&mut peer, "churn", &body);
            }
            self.submitted.fetch_add(1, Ordering::Relaxed);
            thread::sleep(PAUSE);
        }
    }

    /// Again while the daemon has no lease, on a machine that stood still.
    fn submit(&self, peer: &mut Peer, function: &str, body: &[u8]) {
        while let Err(why) = peer.submit(function, "", body.to_vec()) {
            assert_eq!(why.kind(), ErrorKind::Other, "{why}");
            self.refused.fetch_add(1, Ordering::Relaxed);
            thread::sleep(PAUSE * 10);
        }
    }

    fn work(&self, address: SocketAddr) {
        let mut peer = Peer::connect(address).unwrap();
        peer.can_do("churn").unwrap();
        while self.goes_on() {
            match peer.grab().unwrap() {
                Some(job) => peer.complete(&job.handle).unwrap(),
                None => thread::sleep(PAUSE),
            }
        }
    }

    /// Ends the oldest of the jobs that live on, when there are enough of them.
    fn work_late(&self, address: SocketAddr) {
        let mut peer = Peer::connect(address).unwrap();
        peer.can_do("kept").unwrap();
        while self.goes_on() {
            if self.kept.lock().unwrap().len() <= KEPT {
                thread::sleep(PAUSE * 10);
                continue;
            }
            let job = peer.grab().unwrap().unwrap();
            peer.complete(&job.handle).unwrap();
            let bytes = self.kept.lock().unwrap().pop_front().unwrap();
            self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// A body that cannot be compressed.
fn body(number: u64) -> Vec<u8> {
    let bytes = if number.is_multiple_of(LARGE_EVERY) {
        LARGE_BYTES
    } else {
        BODY_BYTES
    };
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(word).flatten().take(bytes).collect()
}

/// `WINDLASS_TEST_GROWTH_SECONDS` of churn.
#[test]
#[ignore = "a measurement: it takes an hour"]
fn an_hour_of_churn() {
    let length = Duration::from_secs(from_env("WINDLASS_TEST_GROWTH_SECONDS", 3_600));
    let (postgres, dir) = (Postgres::with(&["fsync=on"]), tempfile::tempdir().unwrap());
    let daemon = daemon(dir.path()).set(&postgres.section()).start();
    let (address, churn) = (daemon.address("gearman"), Churn::default());
    let (mut largest, mut after) = ((0, 0), Vec::new());
    thread::scope(|scope| {
        let churn = &churn;
        (0..PRODUCERS).for_each(|number| drop(scope.spawn(move || churn.produce(address, number))));
        (0..2).for_each(|_| drop(scope.spawn(|| churn.work(address))));
        scope.spawn(|| churn.work_late(address));
        let begun = Instant::now();
        for part in 1..=PARTS {
            while begun.elapsed()
                < length * u32::try_from(part).unwrap() / u32::try_from(PARTS).unwrap()
            {
                thread::sleep(Duration::from_secs(1));
                let (bytes, live) = (
                    postgres.number(SIZE),
                    churn.live_bytes.load(Ordering::Relaxed),
                );
                largest = largest.max((bytes, live));
                if bytes > 3 * live + SPARE_BYTES {
                    churn.stop.store(true, Ordering::Relaxed);
                    panic!("{bytes} bytes in the database, {live} of them living");
                }
            }
            after.push(churn.submitted.load(Ordering::Relaxed));
            println!(
                "part {part} of {PARTS}: {} jobs, {} MB",
                after.last().unwrap(),
                postgres.number(SIZE) / 1_000_000
            );
        }
        churn.stop.store(true, Ordering::Relaxed);
    });
    let (first, last) = (after[0], after[PARTS - 1] - after[PARTS - 2]);
    println!(
        "{} jobs in {length:?}, {} refused; at most {} MB in the database, while {} MB lived; the last part did {:.2} \
         times the first's",
        after[PARTS - 1],
        churn.refused.load(Ordering::Relaxed),
        largest.0 / 1_000_000,
        largest.1 / 1_000_000,
        last as f64 / first as f64,
    );
}
