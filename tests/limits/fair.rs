//! A tenant with very many jobs, and single jobs of others: keys that take turns.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::faktory::Fwp;
use crate::common::{Peer, daemon, from_env, kind, submission, wait_until};
use windlass_gearman::wire::Kind;

const WORKERS: u64 = 4;
/// How long a job takes.
const WORK: Duration = Duration::from_millis(2);
/// Submits that are sent before their answers are read.
const AT_ONCE: usize = 1_000;

/// What the workers have begun.
#[derive(Default)]
struct Starts {
    count: AtomicU64,
    /// By the numbers of single jobs: when, and how many jobs had begun before.
    singles: Mutex<HashMap<u64, (Instant, u64)>>,
    stop: AtomicBool,
}

fn work(address: SocketAddr, starts: &Starts) {
    let mut peer = Peer::connect(address).unwrap();
    peer.can_do("shared").unwrap();
    while !starts.stop.load(Ordering::Relaxed) {
        let Some(job) = peer.grab().unwrap() else {
            continue;
        };
        let before = starts.count.fetch_add(1, Ordering::Relaxed);
        let text = String::from_utf8(job.workload.to_vec()).unwrap();
        if let Some(number) = text
            .strip_prefix("[\"tenant-")
            .and_then(|rest| rest.split_once("\", "))
            .map(|it| it.1)
        {
            let number = number.trim_end_matches(']').parse().unwrap();
            starts
                .singles
                .lock()
                .unwrap()
                .insert(number, (Instant::now(), before));
        }
        thread::sleep(WORK);
        peer.complete(&job.handle).unwrap();
    }
}

/// Jobs of the whale, and a scheduled job of each other tenant, so that its key is known.
fn fill(daemon: &windlass_testkit::daemon::Daemon, jobs: u64, tenants: u64) {
    let mut client = Peer::connect(daemon.address("gearman")).unwrap();
    for first in (0..jobs).step_by(AT_ONCE) {
        let many = jobs.min(first + AT_ONCE as u64) - first;
        for number in first..first + many {
            client
                .send(&submission(
                    "shared",
                    "",
                    format!("[\"whale\", {number}]"),
                    true,
                ))
                .unwrap();
        }
        (0..many).for_each(|_| assert_eq!(kind(&client.packet().unwrap()), Kind::JOB_CREATED));
    }
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    for first in (0..tenants).step_by(AT_ONCE) {
        let job = |tenant| {
            format!(
                r#"{{"jid":"tenant-{tenant}-later","queue":"shared","jobtype":"T","args":["tenant-{tenant}"],"at":"2099-01-01T00:00:00Z"}}"#
            )
        };
        let jobs: Vec<String> = (first..tenants.min(first + AT_ONCE as u64))
            .map(job)
            .collect();
        assert_eq!(fwp.ask(&format!("PUSHB [{}]", jobs.join(","))), "{}");
    }
}

/// `WINDLASS_TEST_WHALE_JOBS=1000000 WINDLASS_TEST_WHALE_TENANTS=100000` is the long form; it prints the delays.
#[test]
fn a_tenant_with_many_jobs_delays_a_single_job_by_no_more_than_what_runs() {
    let jobs = from_env("WINDLASS_TEST_WHALE_JOBS", 10_000);
    let tenants = from_env("WINDLASS_TEST_WHALE_TENANTS", 300);
    let singles = (jobs / 100).min(2_000);
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[queues.shared]\nkey = { args = '/0' }\nfair = true\n")
        .start();
    fill(&daemon, jobs, tenants);
    let (address, starts) = (daemon.address("gearman"), Arc::new(Starts::default()));
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let starts = Arc::clone(&starts);
            thread::spawn(move || work(address, &starts))
        })
        .collect();
    let mut client = Peer::connect(address).unwrap();
    let (mut delays, mut behind) = (Vec::new(), Vec::new());
    for number in 0..singles {
        let tenant = number * 7_919 % tenants;
        let pushed = Instant::now();
        client
            .submit("shared", "", format!("[\"tenant-{tenant}\", {number}]"))
            .unwrap();
        let before = starts.count.load(Ordering::Relaxed);
        wait_until("it begins", || {
            starts.singles.lock().unwrap().contains_key(&number)
        });
        let (began, at) = starts.singles.lock().unwrap()[&number];
        delays.push(began.saturating_duration_since(pushed));
        behind.push(at.saturating_sub(before));
    }
    starts.stop.store(true, Ordering::Relaxed);
    workers
        .into_iter()
        .for_each(|worker| worker.join().unwrap());
    delays.sort_unstable();
    behind.sort_unstable();
    let at = |percent: usize| delays.len() * percent / 100;
    println!(
        "{singles} single jobs behind {jobs}, {tenants} tenants: from the submit to the start p50 {:?}, p99 {:?}, at most {:?}; jobs that \
         began after the answer p50 {}, p99 {}, at most {}; a job takes {WORK:?}",
        delays[at(50)],
        delays[at(99)],
        delays[delays.len() - 1],
        behind[at(50)],
        behind[at(99)],
        behind[behind.len() - 1],
    );
    // On a loaded machine a worker that has a job may rest before it counts it, while the others go on: not often.
    assert!(behind[at(50)] <= WORKERS, "{behind:?}");
}
