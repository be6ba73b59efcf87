//! `windlass import eventmq-redis`: schedules from a Redis, as the released scheduler stores them, into a running
//! daemon.
//!
//! The Redis is a minimal one of our own.

use std::net::SocketAddr;
use std::process::{Command, Output};

use serde_json::Value;
use windlass_testkit::daemon::Daemon;

use crate::common::daemon;
use crate::common::fake_redis;

/// The value of a schedule, as the released scheduler writes it.
fn stored(queue: &str, headers: &str, interval: &str, argument: &str, cron: &str) -> String {
    let job = format!(
        r#"["run", {{"callable": "record", "path": "tasks", "args": ["{argument}"], "kwargs": {{}}, "class_args": [], "class_kwargs": {{}}}}]"#
    );
    serde_json::json!([queue, headers, interval, job, cron]).to_string()
}

/// A Redis with these schedules.
fn redis_with(schedules: &[(&str, String)]) -> SocketAddr {
    let address = fake_redis::start(None);
    let redis = address.to_string();
    for (identity, text) in schedules {
        fake_redis::ask(&redis, &["LPUSH", "interval_jobs", identity]).unwrap();
        if !text.is_empty() {
            fake_redis::ask(&redis, &["SET", identity, text]).unwrap();
        }
    }
    address
}

fn import(redis: SocketAddr, daemon: &Daemon, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .args(["import", "eventmq-redis"])
        .arg(redis.to_string());
    command
        .arg(format!("--to=eventmq://{}", daemon.address("eventmq")))
        .args(options)
        .output()
        .unwrap()
}

fn schedules(daemon: &Daemon) -> Vec<Value> {
    let url = format!("--url=http://{}", daemon.address("http"));
    let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["schedules", "--json", &url])
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn schedules_are_imported_once_however_often_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).eventmq("").start();
    let redis = redis_with(&[
        ("aa", stored("default", "guarantee", "3600", "hourly", "")),
        (
            "bb",
            stored("nightly", "nohaste", "-1", "nightly", "30 4 * * *"),
        ),
        ("cc", stored("default", "run_count:3", "60", "three", "")),
        ("aa", stored("default", "guarantee", "3600", "hourly", "")),
    ]);
    let rehearsed = import(redis, &daemon, &["--dry-run"]);
    assert!(
        rehearsed.status.success() && schedules(&daemon).is_empty(),
        "{rehearsed:?}"
    );
    for _ in 0..2 {
        let output = import(redis, &daemon, &[]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.ends_with("3 schedules: 3 imported\n"),
            "{output:?}"
        );
        assert!(
            said.contains("imported: tasks.record in queue \"nightly\", cron \"30 4 * * *\"\n"),
            "{said}"
        );
    }
    daemon.kill();
    daemon.restart();
    let schedules = schedules(&daemon);
    let shown = serde_json::to_string(&schedules).unwrap();
    assert!(
        schedules.len() == 3 && shown.contains("30 4 * * *") && shown.contains("nightly"),
        "{shown}"
    );
    let url = format!("--url=http://{}", daemon.address("http"));
    let status = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["status", "--json", &url])
        .output()
        .unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["jobs"], 0, "nothing runs at once");
}

#[test]
fn schedules_that_are_left_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).eventmq("").start();
    let redis = redis_with(&[
        ("aa", stored("default", "", "60", "fine", "")),
        ("bb", stored("default", "", "-1", "never", "61 4 * * *")),
        ("cc", String::new()),
    ]);
    let output = import(redis, &daemon, &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(
        said.contains("schedule bb left: invalid cron expression")
            && said.contains("schedule cc left: "),
        "{said}"
    );
    assert!(said.ends_with("3 schedules: 1 imported\n"), "{said}");
    assert_eq!(schedules(&daemon).len(), 1);
}

#[test]
fn without_a_daemon_or_a_redis_nothing_is_imported() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).eventmq("").start();
    let nobody: SocketAddr = "127.0.0.1:1".parse().unwrap();
    assert_eq!(import(nobody, &daemon, &[]).status.code(), Some(2));
    let redis = redis_with(&[]);
    assert!(import(redis, &daemon, &[]).status.success());
    daemon.kill();
    assert_eq!(import(redis, &daemon, &[]).status.code(), Some(1));
}
