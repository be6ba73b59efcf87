//! Which worker gets which job. The test controls the workers, so that every message is visible.

use serde_json::json;

use super::peers::Worker;
use super::stage::{DEFAULT, Stage};
use crate::common::wait_until;

in_namespaces! { weights_among_workers weights_among_queues an_unserved_queue a_queue_that_gets_a_worker the_same_job_again any_listener_serves_every_role }

/// Waits until the daemon has received this many credits in total.
fn wait_for_slots(stage: &Stage, wanted: usize) {
    let admin = stage.peers.dealer(stage.admin());
    wait_until(&format!("{wanted} slots"), || {
        let report = admin.report("ROUTER_SHOW_WORKERS");
        let workers = report["connected_workers"].as_object().unwrap();
        workers
            .values()
            .map(|worker| worker["available_slots"].as_u64().unwrap())
            .sum::<u64>()
            == wanted as u64
    });
}

/// Among workers the heaviest comes first; among equals, the one that has waited longest.
fn weights_among_workers(stage: &Stage) {
    let workers = ["heavy", "one", "other"].map(|name| {
        let weight = if name == "heavy" { 50 } else { 10 };
        let socket = stage.peers.dealer_called(stage.back(), Some(name));
        let worker = Worker::over(socket, &json!([[weight, "q"]]).to_string());
        worker.ready(3);
        worker
    });
    wait_for_slots(stage, 9);
    let client = stage.peers.dealer(stage.front());
    let bodies: Vec<_> = (0..9).map(|number| format!("[{number}]")).collect();
    for body in &bodies {
        client.request("q", "", body);
        client.hears("REPLY");
    }
    let [heavy, one, other] = workers.map(|worker| worker.bodies(3));
    assert_eq!(heavy, bodies[..3]);
    // The order of equals is undefined.
    let (first, second) = if one[0] == bodies[3] {
        (one, other)
    } else {
        (other, one)
    };
    assert_eq!(first, ["[3]", "[5]", "[7]"]);
    assert_eq!(second, ["[4]", "[6]", "[8]"]);
}

/// Among the queues of one worker the heaviest comes first, whatever the order of their names.
fn weights_among_queues(stage: &Stage) {
    let client = stage.peers.dealer(stage.front());
    for body in ["[1]", "[2]"] {
        for queue in ["a", "b"] {
            client.request(queue, "", &format!("{body} in {queue}"));
            client.hears("REPLY");
        }
    }
    let worker = stage.peers.worker(stage.back(), r#"[[5, "a"], [50, "b"]]"#);
    let order: Vec<_> = (0..4).map(|_| worker.work().body).collect();
    assert_eq!(order, ["[1] in b", "[2] in b", "[1] in a", "[2] in a"]);
}

fn an_unserved_queue(stage: &Stage) {
    let client = stage.peers.dealer(stage.front());
    let send = |body| {
        client.request("mail", "", body);
        client.hears("REPLY");
    };
    send("before anyone");
    let default = stage.peers.worker(stage.back(), DEFAULT);
    default.ready(2);
    let job = default.job();
    assert_eq!((&job.queue[..], &job.body[..]), ("mail", "before anyone"));
    send("while nobody serves it");
    assert_eq!(default.job().body, "while nobody serves it");
    default.ready(1);
    wait_for_slots(stage, 1);

    let own = stage.peers.worker(stage.back(), r#"[[10, "mail"]]"#);
    send("served, and its worker is busy");
    own.ready(1);
    assert_eq!(own.job().body, "served, and its worker is busy");
    client.request("default", "", "for the other");
    assert_eq!(default.job().body, "for the other");
}

/// Jobs in an unserved queue are there for the queue's own worker when it connects.
fn a_queue_that_gets_a_worker(stage: &Stage) {
    let client = stage.peers.dealer(stage.front());
    client.request("mail", "", "early");
    client.hears("REPLY");
    assert_eq!(
        stage
            .peers
            .worker(stage.back(), r#"[[10, "mail"]]"#)
            .work()
            .body,
        "early"
    );
}

/// Its identifier identifies a job: sent again it is the same job, whether it waits or is worked on.
fn the_same_job_again(stage: &Stage) {
    let client = stage.peers.dealer(stage.front());
    let again = || {
        client.say_as(
            "the same",
            "REQUEST",
            &["default", "reply-requested", "body"],
        );
        assert_eq!(client.hears("REPLY"), ["the same"]);
    };
    again();
    again();
    let worker = stage.peers.worker(stage.back(), DEFAULT);
    worker.ready(2);
    let job = worker.job();
    assert_eq!(job.id, "the same");
    again();
    client.request("default", "", "next");
    assert_eq!(worker.job().body, "next", "and not the same once more");
    client.hears("REPLY");
    worker.0.say("REPLY", &["{\"value\": 1}", &job.id]);
    assert_eq!(client.hears("REPLY"), ["{\"value\": 1}", "the same"]);
}

fn any_listener_serves_every_role(stage: &Stage) {
    let worker = stage.peers.worker(stage.front(), DEFAULT);
    let scheduler = stage.peers.dealer(stage.back());
    let informed = scheduler.say("INFORM", &["", "scheduler"]);
    assert_eq!(scheduler.hears("ACK"), [informed]);
    let client = stage.peers.dealer(stage.back());
    let id = client.request("default", "", "body");
    assert_eq!(client.hears("REPLY"), [&id[..]]);
    assert_eq!(worker.work().id, id);
}

/// A job's frames are forwarded unchanged, except for the headers, which ask every worker to report the end.
#[test]
fn frames_are_handed_on() {
    let stage = Stage::with("binary_workers = true");
    let worker = stage.peers.worker(stage.back(), "");
    worker.ready(3);
    let client = stage.peers.dealer(stage.front());
    for (id, headers) in [
        ("\u{0}\u{ff}", ""),
        ("plain", "guarantee,timeout:7"),
        ("asked", "reply-requested"),
    ] {
        client.say_as(
            id,
            "REQUEST",
            &["queue \u{fe}", headers, "\u{ff}\u{0}not JSON"],
        );
        assert_eq!(client.hears("REPLY"), [id]);
        let job = worker.job();
        assert_eq!(
            (&job.id[..], &job.queue[..], &job.body[..]),
            (id, "queue \u{fe}", "\u{ff}\u{0}not JSON")
        );
        let mut parts: Vec<_> = job
            .headers
            .split(',')
            .filter(|part| *part != "reply-requested")
            .collect();
        assert!(job.headers.contains("reply-requested"), "{job:?}");
        parts.retain(|part| !part.is_empty());
        let sent: Vec<_> = headers
            .split(',')
            .filter(|part| !["", "reply-requested"].contains(part))
            .collect();
        assert_eq!(parts, sent);
    }
}

/// A worker without free slots and with jobs to finish receives repeated messages from the daemon.
#[test]
fn busy_workers_are_nudged() {
    // This worker sends no heartbeats meanwhile.
    let stage = Stage::with("heartbeat_timeout = \"0s\"\nnudge_max = \"100ms\"");
    let worker = stage.peers.worker(stage.back(), DEFAULT);
    worker.ready(1);
    let client = stage.peers.dealer(stage.front());
    client.request("default", "", "body");
    let job = worker.job();
    // At three seconds each this would take longer than the test waits.
    let mut heard = 0;
    wait_until("fifty heartbeats", || {
        assert_eq!(worker.0.hear_any()[0], "HEARTBEAT");
        heard += 1;
        heard == 50
    });
    worker.finish(&job);
    assert_eq!(client.hears("REPLY").len(), 1);
}
