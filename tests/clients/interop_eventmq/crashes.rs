//! Programs that end prematurely.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::stage::{DEFAULT, Stage};
use crate::common::wait_until;

const JOBS: usize = 200;

/// Requests jobs that note their numbers, and waits until the daemon has them all.
fn defer_numbers(stage: &Stage) {
    let client = stage.client();
    let ids: HashSet<_> = (0..JOBS)
        .map(|number| client.defer_job("tasks.note", &json!({"args": [number]})))
        .collect();
    let taken: HashSet<_> = (0..JOBS).flat_map(|_| client.hears("REPLY")).collect();
    assert_eq!(taken, ids);
}

/// Waits until every job has run at least once.
fn wait_for_numbers(stage: &Stage) {
    let all: HashSet<_> = (0..JOBS).map(|number| json!([number])).collect();
    wait_until("every job has run", || {
        stage.notes().into_iter().collect::<HashSet<_>>() == all
    });
}

#[test]
fn a_jobmanager_is_killed() {
    let stage = Stage::new();
    let mut killed = stage.job_manager(DEFAULT);
    defer_numbers(&stage);
    stage.wait_for_notes(20);
    killed.kill();
    let _other = stage.job_manager(DEFAULT);
    wait_for_numbers(&stage);
    stage.settle();
}

#[test]
fn a_jobmanager_is_killed_and_another_is_there() {
    let stage = Stage::new();
    let (mut killed, _other) = (stage.job_manager(DEFAULT), stage.job_manager(DEFAULT));
    defer_numbers(&stage);
    stage.wait_for_notes(20);
    killed.kill();
    wait_for_numbers(&stage);
    stage.settle();
}

#[test]
fn a_jobmanager_is_terminated() {
    let stage = Stage::new();
    let mut ends = stage.job_manager(DEFAULT);
    let client = stage.client();
    let held = stage.dir().join("held");
    std::fs::write(&held, "").unwrap();
    let ids: HashSet<_> = ["one", "two"]
        .map(|name| {
            client.defer_job(
                "tasks.hold",
                &json!({"args": [name, held], "reply_requested": true}),
            )
        })
        .into();
    stage.wait_for_notes(2);
    ends.terminate();
    wait_until("it sends its goodbye", || {
        let workers = stage
            .peers
            .dealer(stage.admin())
            .report("ROUTER_SHOW_WORKERS");
        workers["connected_workers"].as_object().unwrap().is_empty()
    });
    // A new JobManager gets the waiting jobs, and none that are being worked on.
    let after = client.defer_job("tasks.note", &json!({"args": ["after"]}));
    let _other = stage.job_manager(DEFAULT);
    let notes = stage.wait_for_notes(3);
    assert_eq!(notes[2], json!(["after"]));

    std::fs::remove_file(held).unwrap();
    assert!(ends.wait().success());
    let mut said: Vec<_> = (0..5).map(|_| client.hears("REPLY")).collect();
    assert!(said.contains(&vec![after]));
    said.retain(|said| said.len() == 2);
    assert_eq!(
        said.iter()
            .map(|said| said[1].clone())
            .collect::<HashSet<_>>(),
        ids,
        "{said:?}"
    );
    stage.settle();
    assert_eq!(
        stage.notes().len(),
        5,
        "nothing ran twice: {:?}",
        stage.notes()
    );
}

/// The JobManager reconnects by itself once it has noticed that the daemon is a new one.
#[test]
fn the_daemon_is_killed() {
    let mut stage = Stage::new();
    let _jobs = stage.job_manager(DEFAULT);
    let client = stage.client();
    client.schedule(
        "tasks.note",
        &json!({"args": ["scheduled"], "interval_secs": 1, "headers": ["nohaste"]}),
    );
    defer_numbers(&stage);
    stage.wait_for_notes(20);
    stage.daemon_mut().kill();
    let before = stage.notes().len();
    stage.daemon_mut().restart();
    wait_until("all has run", || {
        let notes: HashSet<Value> = stage.notes().into_iter().collect();
        notes.len() == JOBS + 1
    });
    let runs = |notes: &[Value]| {
        notes
            .iter()
            .filter(|note| **note == json!(["scheduled"]))
            .count()
    };
    wait_until("the schedule goes on", || {
        runs(&stage.notes()[before..]) >= 2
    });
}

/// A connected worker that falls silent counts as dead, and its job goes to another worker.
#[test]
fn a_worker_falls_silent() {
    let stage = Stage::with("heartbeat_timeout = \"1s\"");
    let client = stage.client();
    let id = client.defer_job("tasks.note", &json!({"reply_requested": true}));
    let silent = stage.peers.worker(stage.back(), DEFAULT);
    silent.ready(1);
    assert_eq!(silent.job().id, id);
    let admin = stage.peers.dealer(stage.admin());
    wait_until("it counts as dead", || {
        admin.report("ROUTER_SHOW_WORKERS")["connected_workers"]
            .as_object()
            .unwrap()
            .is_empty()
    });
    assert_eq!(stage.peers.worker(stage.back(), DEFAULT).work().id, id);
    assert_eq!(client.hears("REPLY"), [&id[..]]);
    assert_eq!(client.hears("REPLY"), ["{\"value\": null}", &id]);
}
