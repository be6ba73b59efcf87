//! The real daemon is restarted while workers have jobs over their connections, which they finish afterwards.

use bytes::Bytes;
use windlass_gearman::wire::{Report, Request, Response};
use windlass_testkit::daemon::Daemon;

use crate::common::eventmq;
use crate::common::http::Http;
use crate::common::{Assigned, Peer, daemon, wait_until};

const QUEUES: &str = r#"[[10, "default"]]"#;
const JOB: &str = r#"["run", {"callable": "report", "path": "tasks"}]"#;
const RESULT: &str = r#"{"value": 7}"#;

/// Workers of Gearman and EventMQ, each with one job. The EventMQ job has the id `m1`.
fn two_at_work(daemon: &Daemon) -> (Peer, Assigned, eventmq::Peer) {
    let mut gearman = gearman_worker(daemon);
    gearman.submit("f", "", "load").unwrap();
    let assigned = gearman.grab().unwrap().unwrap();
    let mut worker = eventmq::Peer::worker(daemon.address("eventmq"), "manager", QUEUES);
    worker.ready(1);
    eventmq::Peer::connect(daemon.address("eventmq"), "client").request("m1", "default", "", JOB);
    assert_eq!(worker.hear().unwrap()[0], "REQUEST");
    (gearman, assigned, worker)
}

fn gearman_worker(daemon: &Daemon) -> Peer {
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.can_do("f").unwrap();
    worker
}

fn stop(daemon: &mut Daemon) {
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log_text());
}

fn leased(daemon: &Daemon) -> Vec<serde_json::Value> {
    let jobs = Http(daemon.address("http"))
        .get("/api/v1/jobs?state=leased")
        .json();
    jobs["jobs"]
        .as_array()
        .unwrap_or_else(|| panic!("{jobs}"))
        .clone()
}

fn jobs(daemon: &Daemon) -> usize {
    let jobs = Http(daemon.address("http")).get("/api/v1/jobs").json();
    jobs["jobs"]
        .as_array()
        .unwrap_or_else(|| panic!("{jobs}"))
        .len()
}

#[test]
fn workers_report_after_a_restart_on_jobs_that_no_other_worker_gets() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path())
        .set("server.return_grace = \"1h\"")
        .eventmq("")
        .start();
    let (_gearman, assigned, _worker) = two_at_work(&daemon);
    stop(&mut daemon);
    daemon.restart();
    let (mut other, mut another) = (
        gearman_worker(&daemon),
        eventmq::Peer::worker(daemon.address("eventmq"), "other", QUEUES),
    );
    another.ready(1);
    assert!(other.grab().unwrap().is_none());
    for job in leased(&daemon) {
        let job = Http(daemon.address("http"))
            .get(&format!("/api/v1/jobs/{}", job["id"]))
            .json();
        let why = job["why"]["text"].as_str().unwrap_or_default();
        assert!(why.contains("from before the daemon was stopped"), "{job}");
    }
    assert_eq!(leased(&daemon).len(), 2);
    // A job's state is asked for by its handle, as before.
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    gearman
        .send(&Request::GetStatus {
            handle: assigned.handle.clone(),
        })
        .unwrap();
    let packet = gearman.packet().unwrap();
    let status = Response::parse(&packet);
    assert!(
        matches!(status, Ok(Response::StatusRes { status, .. }) if status.known && status.running),
        "{status:?}"
    );
    gearman
        .send(&Request::Work {
            handle: assigned.handle.clone(),
            report: Report::Data(Bytes::from_static(b"half")),
        })
        .unwrap();
    gearman.complete(&assigned.handle).unwrap();
    // The stock JobManager connects again by itself, and sends the results that it has.
    let mut worker = eventmq::Peer::connect(daemon.address("eventmq"), "manager");
    worker.say(&["REPLY", "r1", RESULT, "m1"]).unwrap();
    wait_until("both jobs have ended", || jobs(&daemon) == 0);
    assert!(other.grab().unwrap().is_none());
}

#[test]
fn a_job_whose_worker_does_not_come_back_goes_to_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path())
        .set("server.return_grace = \"1s\"")
        .eventmq("")
        .start();
    let (_gearman, assigned, _worker) = two_at_work(&daemon);
    stop(&mut daemon);
    daemon.restart();
    let mut other = gearman_worker(&daemon);
    let mut again = None;
    wait_until("another worker has the job", || {
        again = other.grab().unwrap();
        again.is_some()
    });
    assert_eq!(again.map(|job| job.handle), Some(assigned.handle));
    let mut another = eventmq::Peer::worker(daemon.address("eventmq"), "other", QUEUES);
    another.ready(1);
    assert_eq!(another.hear().unwrap()[1..3], ["m1", "default"]);
}

#[test]
fn jobs_are_ready_at_once_after_a_kill_and_without_a_grace() {
    for (keys, is_killed) in [
        ("server.return_grace = \"1h\"", true),
        ("server.return_grace = 0", false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut daemon = daemon(dir.path()).set(keys).eventmq("").start();
        let (_gearman, assigned, _worker) = two_at_work(&daemon);
        if is_killed {
            daemon.kill();
        } else {
            stop(&mut daemon);
        }
        daemon.restart();
        assert_eq!(
            gearman_worker(&daemon)
                .grab()
                .unwrap()
                .map(|job| job.handle),
            Some(assigned.handle)
        );
        let mut another = eventmq::Peer::worker(daemon.address("eventmq"), "other", QUEUES);
        another.ready(1);
        assert_eq!(another.hear().unwrap()[0], "REQUEST");
    }
}
