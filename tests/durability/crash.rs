//! Kills the daemon under load, again and again: every acknowledged job is there afterwards, and no job returns whose
//! completion was certainly durable.
//!
//! `WINDLASS_TEST_CRASHES=1000` runs it longer (20 by default), `WINDLASS_TEST_CRASH_SEED` with another seed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use windlass_engine::{Context, Timestamp};

use crate::common::faktory::Fwp;
use crate::common::{Peer, daemon, from_env};

/// The combined records of all clients in all rounds.
#[derive(Default)]
struct Ledger {
    next: AtomicU64,
    acknowledged: Mutex<BTreeSet<u64>>,
    /// How often each job was completed.
    completed: Mutex<BTreeMap<u64, u32>>,
    /// Jobs whose completion is certainly durable: a later request on the same connection was acknowledged.
    settled: Mutex<BTreeSet<u64>>,
    submitted: AtomicU64,
}

impl Ledger {
    fn acknowledgements(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    fn complete(&self, id: u64) {
        assert!(
            !self.settled.lock().unwrap().contains(&id),
            "job {id} came back after its end was on the disk"
        );
        *self.completed.lock().unwrap().entry(id).or_default() += 1;
    }
}

#[test]
fn every_acknowledged_job_survives_kill_9() {
    let crashes = from_env("WINDLASS_TEST_CRASHES", 20);
    let mut rng = Context::new(Timestamp(0), from_env("WINDLASS_TEST_CRASH_SEED", 1));
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    let ledger = Arc::new(Ledger::default());
    for crash in 0..crashes {
        let more = usize::try_from(1 + rng.roll(400)).unwrap();
        let goal = ledger.acknowledgements() + more;
        load_until(&ledger, work, daemon.address("gearman"), goal, || {
            daemon.kill()
        });
        daemon.restart();
        println!("crash {crash}: {} acknowledged", ledger.acknowledgements());
        drain_at_times(crash, &ledger, daemon.address("gearman"));
    }
    drain(&ledger, daemon.address("gearman"));
    let completed = ledger.completed.lock().unwrap();
    let lost: Vec<_> = ledger
        .acknowledged
        .lock()
        .unwrap()
        .iter()
        .filter(|id| !completed.contains_key(id))
        .copied()
        .collect();
    assert!(lost.is_empty(), "acknowledged but lost: {lost:?}");
    assert!(completed.len() as u64 <= ledger.submitted.load(Ordering::Relaxed));
}

/// A client's work until it is stopped, or the daemon is killed.
type Client = fn(&Ledger, SocketAddr, &AtomicBool) -> io::Result<()>;

/// Runs four producers and two workers until `goal` jobs are acknowledged, then kills the daemon under load.
fn load_until(
    ledger: &Arc<Ledger>,
    work: Client,
    address: SocketAddr,
    goal: usize,
    kill: impl FnOnce(),
) {
    let stop = Arc::new(AtomicBool::new(false));
    let run = |work: Client| {
        let (ledger, stop) = (Arc::clone(ledger), Arc::clone(&stop));
        // It ends with an error, because the test kills the daemon under it.
        thread::spawn(move || {
            if let Err(error) = work(&ledger, address, &stop) {
                println!("a client ended: {error}");
            }
        })
    };
    let threads: Vec<_> = (0..4)
        .map(|_| run(produce))
        .chain((0..2).map(|_| run(work)))
        .collect();
    while ledger.acknowledgements() < goal {
        assert!(
            !threads.iter().any(JoinHandle::is_finished),
            "a client gave up before the daemon was killed"
        );
        thread::yield_now();
    }
    kill();
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("a client failed an assertion");
    }
}

fn produce(ledger: &Ledger, address: SocketAddr, stop: &AtomicBool) -> io::Result<()> {
    let mut peer = Peer::connect(address)?;
    while !stop.load(Ordering::Relaxed) {
        let id = ledger.next.fetch_add(1, Ordering::Relaxed);
        ledger.submitted.fetch_add(1, Ordering::Relaxed);
        // Some are larger than a piece of the journal, some have a unique id, most are small and have none.
        let mut workload = id.to_string().into_bytes();
        if id % 50 == 7 {
            workload.push(b' ');
            workload.resize(100_000, b'x');
        }
        let unique = if id.is_multiple_of(3) {
            format!("u{id}")
        } else {
            String::new()
        };
        peer.submit("crash", &unique, workload)?;
        ledger.acknowledged.lock().unwrap().insert(id);
    }
    Ok(())
}

fn work(ledger: &Ledger, address: SocketAddr, stop: &AtomicBool) -> io::Result<()> {
    let mut peer = Peer::connect(address)?;
    peer.can_do("crash")?;
    while !stop.load(Ordering::Relaxed) {
        let Some(job) = peer.grab()? else { continue };
        let id = number(&job.workload);
        ledger.complete(id);
        peer.complete(&job.handle)?;
        // Another job behind the completion: its acknowledgement proves that the completion is on the disk.
        let mark = ledger.next.fetch_add(1, Ordering::Relaxed);
        ledger.submitted.fetch_add(1, Ordering::Relaxed);
        peer.submit("crash", "", mark.to_string().into_bytes())?;
        ledger.acknowledged.lock().unwrap().insert(mark);
        ledger.settled.lock().unwrap().insert(id);
    }
    Ok(())
}

/// With `hand_out_after_commit`: the end of a job has no answer, but the assignment of the next job proves that the end
/// is durable.
#[test]
fn with_hand_out_after_commit_the_end_of_the_last_job_is_durable() {
    const KILLS: u64 = 3;
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path())
        .set("[server]\nhand_out_after_commit = true")
        .start();
    let ledger = Arc::new(Ledger::default());
    for kill in 0..from_env("WINDLASS_TEST_CRASHES", KILLS).max(KILLS) {
        let goal = ledger.acknowledgements() + 400;
        load_until(
            &ledger,
            work_one_after_the_other,
            daemon.address("gearman"),
            goal,
            || {
                let log = daemon.log_text();
                assert!(!log.contains("the store failed"), "{log}");
                daemon.kill();
            },
        );
        daemon.restart();
        drain_at_times(kill, &ledger, daemon.address("gearman"));
    }
    assert!(ledger.settled.lock().unwrap().len() > 100, "work was done");
    drain(&ledger, daemon.address("gearman"));
    let completed = ledger.completed.lock().unwrap();
    let acknowledged = ledger.acknowledged.lock().unwrap();
    assert!(
        acknowledged.iter().all(|id| completed.contains_key(id)),
        "acknowledged but lost"
    );
}

fn work_one_after_the_other(
    ledger: &Ledger,
    address: SocketAddr,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut peer = Peer::connect(address)?;
    peer.can_do("crash")?;
    let mut last = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(job) = peer.grab()? else { continue };
        ledger.settled.lock().unwrap().extend(last);
        let id = number(&job.workload);
        ledger.complete(id);
        peer.complete(&job.handle)?;
        last = Some(id);
    }
    Ok(())
}

/// Completes all remaining jobs after each hundredth kill: the producers are faster than the workers, and a queue that
/// is full would end them.
fn drain_at_times(kill: u64, ledger: &Ledger, address: SocketAddr) {
    if kill % 100 == 99 {
        drain(ledger, address);
    }
}

/// Completes all remaining jobs.
fn drain(ledger: &Ledger, address: SocketAddr) {
    let mut peer = Peer::connect(address).unwrap();
    peer.can_do("crash").unwrap();
    while let Some(job) = peer.grab().unwrap() {
        ledger.complete(number(&job.workload));
        peer.complete(&job.handle).unwrap();
    }
    let status = peer.listing("status").unwrap();
    assert_eq!(status, ["crash\t0\t0\t1"]);
}

fn number(workload: &[u8]) -> u64 {
    let digits = workload.split(|byte| *byte == b' ').next().unwrap();
    std::str::from_utf8(digits).unwrap().parse().unwrap()
}

// ---- Faktory --------------------------------------------------------------------------------------------------------

/// Jobs per PUSHB.
const LIST_JOBS: u64 = 10;

#[test]
fn every_acknowledged_push_survives_kill_9() {
    let crashes = from_env("WINDLASS_TEST_CRASHES", 20).div_ceil(4);
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    let ledger = Arc::new(Ledger::default());
    for _ in 0..crashes {
        let address = daemon.address("faktory");
        let goal = ledger.acknowledgements() + 200;
        let threads: Vec<_> = [1, 1, LIST_JOBS]
            .map(|jobs| push_until_the_end(&ledger, address, jobs))
            .into();
        while ledger.acknowledgements() < goal {
            assert!(
                threads.iter().any(|thread| !thread.is_finished()),
                "all gave up before the daemon was killed"
            );
            thread::yield_now();
        }
        daemon.kill();
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("a client failed an assertion"));
        daemon.restart();
    }
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let mut seen = BTreeSet::new();
    loop {
        let job = fwp.ask("FETCH crash");
        let Some((_, rest)) = job.split_once("\"jid\":\"jid") else {
            break;
        };
        let number = rest.split('"').next().unwrap();
        assert_eq!(fwp.ask(&format!("ACK {{\"jid\":\"jid{number}\"}}")), "+OK");
        assert!(
            seen.insert(number.parse().unwrap()),
            "{number} is there twice"
        );
        // After a minute without one the daemon takes the worker for dead.
        if seen.len() % 1_000 == 0 {
            assert_eq!(fwp.ask(r#"BEAT {"wid":"wid-1"}"#), "+OK");
        }
    }
    let lost: Vec<_> = ledger
        .acknowledged
        .lock()
        .unwrap()
        .difference(&seen)
        .copied()
        .collect();
    assert!(lost.is_empty(), "acknowledged but lost: {lost:?}");
    assert!(seen.len() as u64 <= ledger.submitted.load(Ordering::Relaxed));
}

/// Pushes `jobs` jobs per command, again and again, until the daemon is gone.
fn push_until_the_end(ledger: &Arc<Ledger>, address: SocketAddr, jobs: u64) -> JoinHandle<()> {
    let (ledger, mut fwp) = (Arc::clone(ledger), Fwp::connect(address));
    thread::spawn(move || {
        loop {
            let first = ledger.next.fetch_add(jobs, Ordering::Relaxed);
            ledger.submitted.fetch_add(jobs, Ordering::Relaxed);
            let units = (first..first + jobs).map(|id| {
                format!(r#"{{"jid":"jid{id:09}","jobtype":"T","queue":"crash","args":[{id}]}}"#)
            });
            let units = units.collect::<Vec<_>>().join(",");
            let (line, ok) = if jobs == 1 {
                (format!("PUSH {units}"), "+OK")
            } else {
                (format!("PUSHB [{units}]"), "{}")
            };
            let Ok(said) = fwp.try_ask(&line) else { return };
            assert_eq!(said, ok);
            ledger
                .acknowledged
                .lock()
                .unwrap()
                .extend(first..first + jobs);
        }
    })
}
