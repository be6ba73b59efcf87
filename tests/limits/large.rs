//! Many large jobs at once: more than fit into the daemon's buffers. A job that cannot be buffered is not handed out yet,
//! and no worker that reads is disconnected.

use std::sync::{Arc, Barrier};
use std::thread;

use windlass_testkit::daemon::Daemon;

use crate::common::eventmq;
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::spiderq::{ADDED, Bare, add};
use crate::common::{Peer, daemon, wait_until};

/// Together 180 MB, of which 64 MiB may be on their way at a time.
const JOBS: usize = 100;
const BYTES: usize = 1_800_000;

/// Runs this many workers, which begin at once. Each returns the length of its job.
fn at_once(
    workers: usize,
    work: impl Fn(usize, &Barrier) -> usize + Send + Sync + 'static,
) -> Vec<usize> {
    let (work, gate) = (Arc::new(work), Arc::new(Barrier::new(workers)));
    let threads: Vec<_> = (0..workers)
        .map(|number| {
            let (work, gate) = (Arc::clone(&work), Arc::clone(&gate));
            thread::spawn(move || work(number, &gate))
        })
        .collect();
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

fn assert_no_cut(daemon: &Daemon) {
    let log = daemon.log_text();
    assert!(!log.contains("bytes_max"), "{log}");
}

#[test]
fn workers_that_fetch_at_the_same_moment_get_every_job_whole() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let address = daemon.address("faktory");
    let mut producer = Fwp::connect(address);
    for number in 0..JOBS {
        let text = "x".repeat(BYTES);
        let job = format!(r#"PUSH {{"jid":"large-job-{number}","jobtype":"T","args":["{text}"]}}"#);
        assert_eq!(producer.ask(&job), "+OK");
    }
    let got = at_once(JOBS, move |_, gate| {
        let mut worker = Fwp::connect(address);
        gate.wait();
        loop {
            let job = worker.ask("FETCH default");
            if job != "null" {
                let jid = job
                    .split("\"jid\":\"")
                    .nth(1)
                    .unwrap()
                    .split('"')
                    .next()
                    .unwrap();
                assert_eq!(worker.ask(&format!("ACK {{\"jid\":\"{jid}\"}}")), "+OK");
                return job.len();
            }
        }
    });
    assert!(got.iter().all(|bytes| *bytes > BYTES));
    assert_no_cut(&daemon);
}

#[test]
fn workers_that_grab_or_lend_at_the_same_moment_get_every_job_whole() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let (gearman, spiderq) = (daemon.address("gearman"), daemon.address("spiderq"));
    let mut client = Peer::connect(gearman).unwrap();
    (0..JOBS).for_each(|_| drop(client.submit("large", "", vec![b'x'; BYTES]).unwrap()));
    let got = at_once(JOBS, move |_, gate| {
        let mut worker = Peer::connect(gearman).unwrap();
        worker.can_do("large").unwrap();
        gate.wait();
        let job = worker.grab().unwrap().unwrap();
        worker.complete(&job.handle).unwrap();
        job.workload.len()
    });
    assert_eq!(got, [BYTES; JOBS]);
    let mut bare = Bare::connect(spiderq);
    for number in 0..JOBS {
        assert_eq!(
            bare.ask(&add(&format!("key-{number}"), &vec![b'x'; BYTES])),
            ADDED
        );
    }
    let got = at_once(JOBS, move |_, gate| {
        let mut worker = Bare::connect(spiderq);
        gate.wait();
        worker.lease(false).unwrap().value.len()
    });
    assert_eq!(got, [BYTES; JOBS]);
    assert_no_cut(&daemon);
}

/// Requests jobs of this size.
fn request_all(daemon: &Daemon, jobs: usize, bytes: usize) {
    let mut client = eventmq::Peer::connect(daemon.address("eventmq"), "client");
    let text = "x".repeat(bytes);
    (0..jobs)
        .for_each(|number| client.request(&format!("job-{number}"), "mail", "guarantee", &text));
}

/// Works off this many jobs, as they come. Returns their lengths.
fn work_off(worker: &mut eventmq::Peer, jobs: usize) -> Vec<usize> {
    let one = || {
        let job = worker.hear().unwrap();
        assert_eq!(job[0], "REQUEST");
        worker.say(&["REPLY", "r", "\"done\"", &job[1]]).unwrap();
        job[4].len()
    };
    std::iter::repeat_with(one).take(jobs).collect()
}

#[test]
fn a_worker_with_many_credits_gets_as_many_large_jobs_as_it_reads() {
    const BYTES: usize = 4_000_000;
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).eventmq("").start();
    request_all(&daemon, 40, BYTES);
    let mut worker = eventmq::Peer::worker(daemon.address("eventmq"), "worker", r#"[[1, "mail"]]"#);
    worker.ready(40);
    assert_eq!(work_off(&mut worker, 40), [BYTES; 40]);
    assert_no_cut(&daemon);
}

#[test]
fn a_fleet_that_comes_back_at_once_gets_every_job_once() {
    const BYTES: usize = 2_000_000;
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).eventmq("").start();
    request_all(&daemon, 80, BYTES);
    let address = daemon.address("eventmq");
    let got = at_once(40, move |number, gate| {
        let mut worker =
            eventmq::Peer::worker(address, &format!("worker-{number}"), r#"[[1, "mail"]]"#);
        gate.wait();
        worker.ready(2);
        work_off(&mut worker, 2).into_iter().sum()
    });
    assert_eq!(got, [2 * BYTES; 40]);
    assert_no_cut(&daemon);
}

/// Most of its jobs have never left: they are not lost with it.
#[test]
fn the_jobs_of_a_worker_that_leaves_unread_go_to_another_without_a_loss() {
    const BYTES: usize = 4_000_000;
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("limits.loss_pause = \"1ms\"")
        .eventmq("")
        .start();
    request_all(&daemon, 20, BYTES);
    let mut deaf = eventmq::Peer::worker(daemon.address("eventmq"), "deaf", r#"[[1, "mail"]]"#);
    deaf.ready(20);
    wait_until("the first job is on its way", || {
        deaf.dealer.stream.peek(&mut [0]).is_ok()
    });
    drop(deaf);
    let mut worker = eventmq::Peer::worker(daemon.address("eventmq"), "worker", r#"[[1, "mail"]]"#);
    worker.ready(20);
    (0..20).for_each(|_| assert_eq!(worker.hear().unwrap()[4].len(), BYTES));
    let http = Http(daemon.address("http"));
    let rows = http.get("/api/v1/jobs?state=leased&limit=100").json();
    let rows = rows["jobs"].as_array().unwrap();
    let lost = |row: &&serde_json::Value| {
        http.get(&format!("/api/v1/jobs/{}", row["id"])).json()["losses"] != 0
    };
    let lost = rows.iter().filter(lost).count();
    assert!(
        rows.len() == 20 && lost <= 5,
        "{lost} of {} were on their way",
        rows.len()
    );
}

#[test]
fn workers_that_take_nothing_make_room_for_one_that_waits_and_their_jobs_are_ready_at_once() {
    const BYTES: usize = 18_000_000;
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    for number in 0..5 {
        let text = "x".repeat(BYTES);
        let job = format!(r#"PUSH {{"jid":"large-job-{number}","jobtype":"T","args":["{text}"]}}"#);
        assert_eq!(fwp.ask(&job), "+OK");
    }
    let deaf = [(); 4].map(|()| {
        let mut deaf = Fwp::connect(daemon.address("faktory"));
        deaf.say("FETCH default");
        deaf
    });
    let http = Http(daemon.address("http"));
    let leased = || {
        http.get("/api/v1/jobs?state=leased&limit=9").json()["jobs"]
            .as_array()
            .unwrap()
            .len()
    };
    wait_until("the others have jobs", || leased() == 4);
    // The one that waits, and that of the worker that had to make room for it.
    for _ in 0..2 {
        let job = std::iter::repeat_with(|| fwp.ask("FETCH default"))
            .find(|job| job != "null")
            .unwrap();
        assert!(job.len() > BYTES);
    }
    drop(deaf);
}
