//! Administrators' requests, by hand and with the stock `emq-cli`.

use std::io::Write as _;
use std::process::{ChildStdin, Stdio};

use serde_json::json;

use super::peers::Worker;
use super::stage::{DEFAULT, Stage};
use crate::common::wait_until;

#[test]
fn reports() {
    let stage = Stage::new();
    let admin = stage.peers.dealer(stage.admin());
    assert_eq!(
        admin.report("ROUTER_SHOW_WORKERS"),
        json!({"connected_workers": {}, "connected_queues": {}})
    );
    assert_eq!(
        admin.report("ROUTER_SHOW_SCHEDULERS"),
        json!({"connected_schedulers": {}})
    );

    let worker = Worker::over(
        stage.peers.dealer_called(stage.back(), Some("w")),
        r#"[[10, "a"], [20, "b"]]"#,
    );
    let scheduler = stage.peers.dealer_called(stage.front(), Some("s"));
    scheduler.say("INFORM", &["", "scheduler"]);
    scheduler.hears("ACK");
    let client = stage.peers.dealer(stage.front());
    for queue in ["a", "a", "b"] {
        client.request(queue, "", "body");
        client.hears("REPLY");
    }
    worker.work();
    worker.ready(1);
    worker.job();
    wait_until("it is counted", || {
        let status = admin.report("STATUS");
        status["processed_messages_by_worker"]["w"] == 1
            && status["inflight_messages_by_queue"]["a"] == 1
    });
    let status = admin.report("STATUS");
    assert_eq!(status["waiting_messages_by_queue"]["a"], 1, "{status}");
    assert_eq!(status["processed_messages_by_queue"]["b"], 1, "{status}");
    for latencies in ["latency_messages_by_queue", "max_latency_messages_by_queue"] {
        assert!(status[latencies].is_object(), "{latencies} of {status}");
    }
    let workers = admin.report("ROUTER_SHOW_WORKERS");
    assert_eq!(
        workers["connected_workers"]["w"]["available_slots"], 0,
        "{workers}"
    );
    assert_eq!(
        workers["connected_workers"]["w"]["queues"]
            .as_array()
            .unwrap()
            .len(),
        2,
        "{workers}"
    );
    assert!(
        workers["connected_workers"]["w"]["hb"].is_f64(),
        "{workers}"
    );
    assert_eq!(
        workers["connected_queues"],
        json!({"a": [[10, "w"]], "b": [[20, "w"]]})
    );
    let schedulers = admin.report("ROUTER_SHOW_SCHEDULERS");
    assert!(
        schedulers["connected_schedulers"]["s"]["hb"].is_f64(),
        "{schedulers}"
    );
}

/// The output of the stock program, which prints every answer in Python's notation.
fn cli(stage: &Stage, orders: &[&str]) -> String {
    let mut command = stage.stock("emq-cli");
    command
        .args(["--addr", stage.admin()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut orders_in: ChildStdin = child.stdin.take().unwrap();
    for order in orders.iter().chain(&["quit"]) {
        writeln!(orders_in, "{order}").unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

#[test]
fn the_stock_program_asks() {
    let stage = Stage::new();
    let _worker = Worker::over(
        stage.peers.dealer_called(stage.back(), Some("some worker")),
        DEFAULT,
    );
    let said = cli(&stage, &["status", "show_workers", "show_schedulers"]);
    for wanted in [
        "'processed_messages_by_worker': {",
        "'some worker': {",
        "[[10, 'some worker']]",
        "{'connected_schedulers': {}}",
    ] {
        assert!(said.contains(wanted), "{wanted} in {said}");
    }
}

/// The daemon sends its goodbye and stops, and its jobs are there after a restart.
#[test]
fn the_stock_program_stops_the_daemon() {
    let mut stage = Stage::with("disconnect = true");
    let worker = stage.peers.worker(stage.back(), r#"[[10, "q"]]"#);
    let scheduler = stage.peers.dealer(stage.front());
    scheduler.say("INFORM", &["", "scheduler"]);
    scheduler.hears("ACK");
    let client = stage.client();
    let ids: Vec<_> = ["held", "waits"]
        .map(|name| client.defer_job("tasks.note", &json!({"args": [name], "queue": "q"})))
        .into();
    for id in &ids {
        assert_eq!(client.hears("REPLY"), [&id[..]]);
    }
    client.schedule(
        "tasks.note",
        &json!({"args": ["scheduled"], "interval_secs": 2, "headers": ["nohaste"], "queue": "q"}),
    );
    worker.ready(1);
    assert_eq!(worker.job().id, ids[0]);

    let said = cli(&stage, &["shutdown"]);
    assert!(said.contains("'ACK'"), "{said}");
    for peer in [&worker.0, &scheduler] {
        peer.hears("KBYE");
    }
    assert!(stage.daemon_mut().wait().success());

    stage.daemon_mut().restart();
    let worker = stage.peers.worker(stage.back(), r#"[[10, "q"]]"#);
    let mut left = ids;
    while !left.is_empty() {
        let job = worker.work();
        left.retain(|id| *id != job.id);
    }
    while !worker.work().body.contains("scheduled") {}
}

/// A client cannot stop the daemon, nor can an administrator without `disconnect = true`.
#[test]
fn only_allowed_administrators_stop_the_daemon() {
    let stage = Stage::new();
    let worker = stage.peers.worker(stage.back(), DEFAULT);
    for address in [stage.front(), stage.back(), stage.admin()] {
        let peer = stage.peers.dealer(address);
        peer.say("DISCONNECT", &[]);
        peer.hears("KBYE");
        let id = peer.request("default", "reply-requested", "body");
        let job = worker.work();
        assert_eq!(job.id, id);
    }
    stage.peers.dealer(stage.admin()).report("STATUS");
}
