//! Workers at an edge and more large jobs than the daemons may buffer: the leader hands out what fits, wherever its worker is.

use std::sync::{Arc, Barrier};
use std::thread;

use super::daemons::Daemons;
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::postgres::Postgres;
use crate::common::wait_until;

/// Half of these daemons' buffers may have jobs: 34 MiB.
const BUFFERS: &str = "[server]\nbuffer_bytes_max = \"68MiB\"";

/// A leader and an edge with such buffers, and this number of jobs of this many bytes.
fn with_jobs(jobs: usize, bytes: usize) -> (Postgres, Daemons) {
    let postgres = Postgres::start();
    // No lead is lost here while a disk is slow with the bodies: the answer to a push would be unknown.
    let mut daemons = Daemons::with_lease(postgres.section(), "1m");
    daemons.add(BUFFERS);
    daemons.add(BUFFERS);
    let mut producer = Fwp::connect(daemons[0].address("faktory"));
    let text = "x".repeat(bytes);
    for number in 0..jobs {
        let job = format!(r#"PUSH {{"jid":"large-job-{number}","jobtype":"T","args":["{text}"]}}"#);
        assert_eq!(producer.ask(&job), "+OK");
    }
    (postgres, daemons)
}

/// Fetches until there is a job, and ends it. Returns its length.
fn work_off(worker: &mut Fwp) -> usize {
    let job = std::iter::repeat_with(|| worker.ask("FETCH default"))
        .find(|job| job != "null")
        .unwrap();
    let jid = job
        .split("\"jid\":\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    assert_eq!(worker.ask(&format!("ACK {{\"jid\":\"{jid}\"}}")), "+OK");
    job.len()
}

#[test]
fn workers_at_an_edge_that_fetch_at_the_same_moment_get_every_job_whole() {
    const JOBS: usize = 60;
    const BYTES: usize = 1_800_000;
    let (_postgres, daemons) = with_jobs(JOBS, BYTES);
    let (address, gate) = (daemons[1].address("faktory"), Arc::new(Barrier::new(JOBS)));
    let workers: Vec<_> = (0..JOBS)
        .map(|_| {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                let mut worker = Fwp::connect(address);
                gate.wait();
                work_off(&mut worker)
            })
        })
        .collect();
    assert!(
        workers
            .into_iter()
            .all(|worker| worker.join().unwrap() > BYTES)
    );
    for daemon in [&daemons[0], &daemons[1]] {
        let log = daemon.log_text();
        assert!(!log.contains("bytes_max"), "{log}");
    }
}

/// Their jobs have a share of what all daemons of the broker may buffer.
#[test]
fn workers_at_an_edge_that_take_nothing_make_room_for_one_at_the_leader() {
    const BYTES: usize = 18_000_000;
    let (_postgres, daemons) = with_jobs(3, BYTES);
    let deaf = [(); 2].map(|()| {
        let mut deaf = Fwp::connect(daemons[1].address("faktory"));
        deaf.say("FETCH default");
        deaf
    });
    let http = Http(daemons[0].address("http"));
    let leased = || {
        http.get("/api/v1/jobs?state=leased&limit=9").json()["jobs"]
            .as_array()
            .unwrap()
            .len()
    };
    wait_until("they have jobs", || leased() == 2);
    // The one that waits, and that of a worker that had to make room for it.
    let mut worker = Fwp::connect(daemons[0].address("faktory"));
    (0..2).for_each(|_| assert!(work_off(&mut worker) > BYTES));
    drop(deaf);
}
