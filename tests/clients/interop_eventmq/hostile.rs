//! Messages that crash or stop the released router, or that it never answers: none of them disturbs another client.

use serde_json::json;

use super::peers::{Socket, Worker};
use super::stage::{DEFAULT, Stage};

/// A well-behaved client and worker.
struct Good {
    client: Socket,
    worker: Worker,
}

impl Good {
    fn new(stage: &Stage) -> Self {
        Self {
            client: stage.client(),
            worker: stage.peers.worker(stage.back(), DEFAULT),
        }
    }

    /// They are still served.
    fn is_served(&self) {
        let id = self
            .client
            .defer_job("tasks.note", &json!({"reply_requested": true}));
        assert_eq!(self.client.hears("REPLY"), [&id[..]]);
        assert_eq!(self.worker.work().id, id);
        assert_eq!(self.client.hears("REPLY"), ["{\"value\": null}", &id]);
    }
}

#[test]
fn a_client_without_identity() {
    let stage = Stage::new();
    let good = Good::new(&stage);
    let client = stage.peers.dealer_called(stage.front(), None);
    let id = client.request("default", "reply-requested", "body");
    assert_eq!(client.hears("REPLY"), [&id[..]]);
    assert_eq!(good.worker.work().id, id);
    assert_eq!(client.hears("REPLY"), ["{\"value\": null}", &id]);
    let binary = Worker::over(
        stage
            .peers
            .dealer_called(stage.back(), Some("\u{1}\u{ff}\u{80}")),
        DEFAULT,
    );
    stage
        .peers
        .dealer(stage.admin())
        .report("ROUTER_SHOW_WORKERS");
    drop(binary);
    good.is_served();
}

#[test]
fn frames_that_are_not_text() {
    let stage = Stage::new();
    let good = Good::new(&stage);
    let client = stage.client();
    for place in 0..7 {
        let id = place.to_string();
        let mut frames = ["", "eMQP/1.0", "REQUEST", &id, "default", "", "{}"];
        frames[place] = "\u{ff}\u{fe}";
        client.send_bare(&frames);
    }
    // The delimiter and the command must be valid. Everything else makes a job; but a body that is not text stops a
    // stock worker, so the last job is not handed out.
    for id in ["1", "\u{ff}\u{fe}", "4", "5", "6"] {
        assert_eq!(client.hears("REPLY"), [id]);
        if id != "6" {
            good.worker.work();
        }
    }
    good.is_served();
}

/// Queues of every form, kinds of every name.
#[test]
fn odd_introductions() {
    let stage = Stage::new();
    let good = Good::new(&stage);
    let answered = [
        (r#"[[10, "default"]]"#, "worker"),
        ("", "worker"),
        (r#"[[5,"a"],[50,"b"]]"#, "worker"),
        ("[]", "worker"),
        ("[40, 'email'],[10, 'default']", "worker"),
        ("", "scheduler"),
        (r#"{"a":1}"#, "scheduler"),
    ];
    for (queues, kind) in answered {
        let peer = stage.peers.dealer(stage.back());
        let id = peer.say("INFORM", &[queues, kind]);
        assert_eq!(peer.hears("ACK"), [id], "{queues} {kind}");
        peer.say("KBYE", &[]);
    }
    let deep = "[".repeat(100_000);
    let unanswered = [
        ("not json", "worker"),
        (r#"{"a":1}"#, "worker"),
        (r#"[["x","y"]]"#, "worker"),
        ("\u{ff}", "worker"),
        (&deep, "worker"),
        ("", "client"),
        ("", ""),
    ];
    for (queues, kind) in unanswered {
        let peer = stage.peers.dealer(stage.back());
        peer.say("INFORM", &[queues, kind]);
        // It has no role yet, and may still introduce itself.
        peer.say("READY", &[]);
        Worker::over(peer, DEFAULT);
    }
    good.is_served();
}

#[test]
fn messages_cut_short() {
    let stage = Stage::new();
    let good = Good::new(&stage);
    let (client, worker) = (stage.client(), stage.peers.dealer(stage.back()));
    for peer in [&client, &worker, &good.worker.0] {
        let messages: [&[&str]; 6] = [
            &["REQUEST", "id", "default", "", "body"],
            &["INFORM", "id", DEFAULT, "worker"],
            &["REPLY", "id", "{}", "id"],
            &["SCHEDULE", "id", "default", "", "1", "[]", ""],
            &["UNSCHEDULE", "id", "default", "", "-1", "[]", ""],
            &["PUBLISH", "id", "topic", "message"],
        ];
        for message in messages {
            let message = [&["", "eMQP/1.0"], message].concat();
            // Some are complete without their last frame, so at least two are missing.
            for frames in 1..message.len() - 1 {
                peer.send_bare(&message[..frames]);
            }
        }
        for other in [
            &[""][..],
            &["x"],
            &["", ""],
            &["", "", "", ""],
            &["", "eMQP/1.0", "WHAT", "id"],
            &["eMQP/1.0"; 60],
        ] {
            peer.send_bare(other);
        }
    }
    // Too many frames end the connection.
    client.send_bare(&[""; 1000]);
    good.is_served();
}

/// Commands of a role, from peers without that role.
#[test]
fn commands_without_introduction() {
    let stage = Stage::new();
    let good = Good::new(&stage);
    let nobody = stage.peers.dealer(stage.back());
    for command in ["READY", "HEARTBEAT", "KBYE", "KBAI", "ACK", "HELLO"] {
        nobody.say(command, &["1795234453.149"]);
    }
    nobody.say("REPLY", &["{\"value\": 1}", "whatever"]);
    let id = good
        .client
        .defer_job("tasks.note", &json!({"reply_requested": true}));
    assert_eq!(good.client.hears("REPLY"), [&id[..]]);
    good.worker.ready(1);
    let job = good.worker.job();
    assert_eq!(job.id, id);
    // Another worker cannot report the end of the job.
    let other = stage.peers.worker(stage.back(), r#"[[10, "other"]]"#).0;
    for peer in [nobody, other] {
        peer.say("REPLY", &["{\"value\": \"wrong\"}", &id]);
        // The answer to this is the first that it receives, and proves that all earlier messages were read.
        peer.report("STATUS");
    }
    good.worker.finish(&job);
    assert_eq!(good.client.hears("REPLY"), ["{\"value\": null}", &id]);
    good.is_served();
}

#[test]
fn peers_that_are_gone() {
    let stage = Stage::new();
    let good = Good::new(&stage);
    // A worker that can take a job and closes.
    let worker = stage.peers.worker(stage.back(), r#"[[50, "default"]]"#);
    worker.ready(5);
    drop(worker);
    good.is_served();
    // A worker that closes with a job.
    let worker = stage.peers.worker(stage.back(), r#"[[10, "q"]]"#);
    let client = stage.client();
    let id = client.defer_job("tasks.note", &json!({"queue": "q"}));
    worker.ready(1);
    assert_eq!(worker.job().id, id);
    drop(worker);
    let other = stage.peers.worker(stage.back(), r#"[[10, "q"]]"#);
    assert_eq!(other.work().id, id);
    // A client that closes before its job has run.
    let id = client.defer_job(
        "tasks.note",
        &json!({"queue": "q", "reply_requested": true}),
    );
    client.hears("REPLY");
    client.hears("REPLY");
    drop(client);
    assert_eq!(other.work().id, id);
    good.is_served();
}

/// The goodbyes of a stock client and of a worker.
#[test]
fn disconnect_and_goodbye() {
    let stage = Stage::new();
    let good = Good::new(&stage);
    let client = stage.client();
    client.say("DISCONNECT", &[]);
    client.hears("KBYE");
    for goodbye in ["KBYE", "KBAI"] {
        let worker = stage.peers.worker(stage.back(), r#"[[10, "q"]]"#);
        worker.ready(2);
        let id = client.defer_job(
            "tasks.note",
            &json!({"queue": "q", "reply_requested": true}),
        );
        assert_eq!(client.hears("REPLY"), [&id[..]]);
        let job = worker.job();
        assert_eq!(job.id, id);
        worker.0.say(goodbye, &[]);
        // It may end its job, and gets no more.
        worker.0.say("REPLY", &["{\"value\": \"late\"}", &id]);
        assert_eq!(client.hears("REPLY"), ["{\"value\": \"late\"}", &id]);
        let id = client.defer_job(
            "tasks.note",
            &json!({"queue": "q", "reply_requested": true}),
        );
        assert_eq!(client.hears("REPLY"), [&id[..]]);
        assert_eq!(
            good.worker.work().id,
            id,
            "no other worker serves the queue"
        );
        assert_eq!(client.hears("REPLY"), ["{\"value\": null}", &id]);
    }
    good.is_served();
}
