//! Recurring jobs: run by the daemon, or by the stock scheduler.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::peers::{Job, Worker};
use super::stage::{DEFAULT, Stage};
use crate::common::wait_until;

/// A job of this name, every `secs` seconds.
fn every(secs: u64, name: &str, headers: &[&str]) -> Value {
    json!({"args": [name], "interval_secs": secs, "headers": headers})
}

/// The name of a scheduled job.
fn name(job: &Job) -> String {
    let body: Value = serde_json::from_str(&job.body).unwrap();
    assert_eq!(body[0], "run");
    assert_eq!(
        (&body[1]["path"], &body[1]["callable"]),
        (&json!("tasks"), &json!("note"))
    );
    body[1]["args"][0].as_str().unwrap().to_owned()
}

/// Works until each of these has run this often, and returns how often each name ran.
fn work_until(worker: &Worker, wanted: &[(&str, usize)]) -> HashMap<String, usize> {
    let mut runs: HashMap<String, usize> = HashMap::new();
    while wanted
        .iter()
        .any(|(name, times)| runs.get(*name).is_none_or(|runs| runs < times))
    {
        *runs.entry(name(&worker.work())).or_default() += 1;
    }
    runs
}

#[test]
fn intervals() {
    let stage = Stage::new();
    let worker = stage.peers.worker(stage.back(), DEFAULT);
    let client = stage.client();
    client.schedule("tasks.note", &every(1, "now and then", &["guarantee"]));
    client.schedule("tasks.note", &every(1, "then", &["nohaste"]));
    client.schedule("tasks.note", &every(1, "twice", &["run_count:2"]));
    client.schedule(
        "tasks.note",
        &every(1, "once, later", &["nohaste", "run_count:1"]),
    );
    client.schedule("tasks.note", &every(3600, "once an hour", &[]));
    client.schedule("tasks.note", &every(3600, "in an hour", &["nohaste"]));
    assert_eq!(name(&worker.work()), "now and then");
    let runs = work_until(&worker, &[("now and then", 3), ("then", 4)]);
    let times = |name| runs.get(name).copied().unwrap_or_default();
    assert_eq!(
        ["twice", "once, later", "once an hour", "in an hour"].map(times),
        [2, 1, 1, 0],
        "{runs:?}"
    );
}

/// A run has its schedule's queue and the schedule's relevant headers.
#[test]
fn runs_match_their_schedule() {
    let stage = Stage::new();
    let worker = stage.peers.worker(stage.back(), r#"[[10, "q"]]"#);
    let client = stage.client();
    let options = json!({
        "args": ["a"], "kwargs": {"b": 1}, "class_args": ["c"], "class_kwargs": {"d": 2}, "queue": "q",
        "interval_secs": 3600,
    });
    client.schedule("tasks:Greeter.note", &options);
    let job = worker.work();
    assert_eq!(job.queue, "q");
    assert!(job.headers.contains("reply-requested"), "{job:?}");
    let body: Value = serde_json::from_str(&job.body).unwrap();
    let wanted = json!({
        "path": "tasks:Greeter", "callable": "note",
        "args": ["a"], "kwargs": {"b": 1}, "class_args": ["c"], "class_kwargs": {"d": 2},
    });
    assert_eq!(body, json!(["run", wanted]));
}

/// A schedule belongs to one job: scheduling it again replaces the schedule, and one command removes it.
#[test]
fn replaced_and_ended() {
    let stage = Stage::new();
    let worker = stage.peers.worker(stage.back(), DEFAULT);
    let client = stage.client();
    for name in ["replaced", "ended", "kept"] {
        client.schedule("tasks.note", &every(1, name, &["nohaste"]));
    }
    work_until(&worker, &[("replaced", 1), ("ended", 1), ("kept", 1)]);
    client.schedule("tasks.note", &every(3600, "replaced", &["nohaste"]));
    // Neither the interval nor the queue identifies the schedule.
    client.schedule(
        "tasks.note",
        &json!({"args": ["ended"], "unschedule": true}),
    );
    client.schedule(
        "tasks.note",
        &json!({"args": ["never there"], "unschedule": true}),
    );
    // Runs from before the removal may still arrive.
    work_until(&worker, &[("kept", 1)]);
    let runs = work_until(&worker, &[("kept", 3)]);
    assert_eq!(runs.keys().collect::<Vec<_>>(), ["kept"], "{runs:?}");

    // A removed schedule can be set again.
    client.schedule("tasks.note", &every(1, "ended", &[]));
    work_until(&worker, &[("ended", 2)]);
}

/// Takes until the next full minute. The daemon is killed on the way.
#[test]
fn cron() {
    // This worker is silent for up to a minute.
    let mut stage = Stage::with("heartbeat_timeout = \"0s\"");
    let worker = stage
        .peers
        .worker(stage.back(), r#"[[10, "q"], [5, "default"]]"#);
    let client = stage.client();
    let cron = |name: &str, headers: &[&str]| json!({"args": [name], "cron": "* * * * *", "headers": headers, "queue": "q"});
    client.schedule("tasks.note", &cron("at once", &["guarantee"]));
    assert_eq!(name(&worker.work()), "at once");
    client.schedule(
        "tasks.note",
        &json!({"args": ["at once"], "unschedule": true}),
    );
    client.schedule("tasks.note", &cron("becomes an interval", &["nohaste"]));
    client.schedule(
        "tasks.note",
        &every(1, "becomes an interval", &["nohaste", "run_count:2"]),
    );
    client.schedule("tasks.note", &cron("every minute", &["nohaste"]));
    client.schedule(
        "tasks.note",
        &json!({"args": ["never"], "cron": "0 0 30 2 *", "headers": ["nohaste"]}),
    );
    client.schedule(
        "tasks.note",
        &json!({"args": ["broken"], "cron": "61 * * *", "headers": []}),
    );
    work_until(&worker, &[("becomes an interval", 1)]);
    stage.settle();
    stage.daemon_mut().kill();
    stage.daemon_mut().restart();

    let worker = stage
        .peers
        .worker(stage.back(), r#"[[10, "q"], [5, "default"]]"#);
    let mut runs = work_until(&worker, &[("every minute", 1), ("becomes an interval", 1)]);
    // Other runs of the same minute precede this job.
    client.defer_job("tasks.note", &json!({"args": ["the end"], "queue": "q"}));
    runs.extend(work_until(&worker, &[("the end", 1)]));
    let mut names: Vec<_> = runs.keys().collect();
    names.sort();
    assert_eq!(names, ["becomes an interval", "every minute", "the end"]);
}

/// Schedules are forwarded to the stock scheduler, and the jobs it requests are executed.
#[test]
fn the_stock_scheduler() {
    let stage = Stage::with("scheduler = \"external\"");
    let scheduler = stage.scheduler();
    let admin = stage.peers.dealer(stage.admin());
    wait_until("the scheduler is there", || {
        let report = admin.report("ROUTER_SHOW_SCHEDULERS");
        !report["connected_schedulers"]
            .as_object()
            .unwrap()
            .is_empty()
    });
    let worker = stage.peers.worker(stage.back(), DEFAULT);
    let client = stage.client();
    for name in ["ended", "kept"] {
        client.schedule("tasks.note", &every(1, name, &["nohaste"]));
    }
    work_until(&worker, &[("ended", 1), ("kept", 1)]);
    client.schedule(
        "tasks.note",
        &json!({"args": ["ended"], "unschedule": true}),
    );
    work_until(&worker, &[("kept", 1)]);
    let runs = work_until(&worker, &[("kept", 2)]);
    assert_eq!(
        runs.keys().collect::<Vec<_>>(),
        ["kept"],
        "{runs:?}\n{}",
        scheduler.log_text()
    );
}

/// A scheduler receives nothing while the daemon schedules by itself.
#[test]
fn a_scheduler_that_is_not_needed() {
    let stage = Stage::new();
    let scheduler = stage.peers.dealer(stage.front());
    let informed = scheduler.say("INFORM", &["", "scheduler"]);
    assert_eq!(scheduler.hears("ACK"), [informed]);
    let worker = stage.peers.worker(stage.back(), DEFAULT);
    stage
        .client()
        .schedule("tasks.note", &every(3600, "once", &[]));
    assert_eq!(name(&worker.work()), "once");
    // The answer to this would follow any other message.
    scheduler.request("default", "", "body");
    scheduler.hears("REPLY");
}
