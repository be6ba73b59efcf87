//! Moving from the released programs: `windlass bridge` from the router, with the stock client there and a stock
//! JobManager at the daemon; and `windlass import eventmq-redis` from what the stock scheduler keeps.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use super::stage::{DEFAULT, Ports, Stage};
use crate::common::fake_redis;
use crate::common::wait_until;

#[test]
fn jobs_in_the_released_router_run_here() {
    let stage = Stage::new();
    let old = Ports::free();
    let _router = stage.router(&old);
    let client = stage.peers.stock(&old.front);
    (0..20).for_each(|number| drop(client.defer_job("tasks.note", &json!({"args": [number]}))));

    let address = |place: &str| place.replace("tcp://", "eventmq://");
    let mut bridge = Command::new(env!("CARGO_BIN_EXE_windlass"));
    bridge
        .arg("bridge")
        .arg("--from")
        .arg(address(&old.back))
        .arg("--to")
        .arg(address(stage.front()));
    let output = bridge.arg("--until-empty=5s").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("20 jobs moved"),
        "{said}"
    );

    let _worker = stage.job_manager(DEFAULT);
    let notes = stage.wait_for_notes(20);
    let mut numbers: Vec<i64> = notes
        .iter()
        .filter_map(|note| note.pointer("/0").and_then(Value::as_i64))
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
}

#[test]
fn schedules_that_the_stock_scheduler_keeps_are_imported() {
    let stage = Stage::new();
    let old = Ports::free();
    let _router = stage.router(&old);
    let redis = fake_redis::start(None);
    let _scheduler = stage.scheduler_of(&old, redis);
    let client = stage.peers.stock(&old.front);
    let kept = || -> BTreeSet<String> {
        fake_redis::ask(&redis.to_string(), &["LRANGE", "interval_jobs", "0", "-1"])
            .unwrap()
            .into_iter()
            .collect()
    };
    // The router drops what comes before the scheduler.
    wait_until("the scheduler keeps a schedule", || {
        client.schedule(
            "tasks.note",
            &json!({"args": ["hourly"], "interval_secs": 3600, "headers": ["nohaste"]}),
        );
        std::thread::sleep(std::time::Duration::from_millis(200));
        !kept().is_empty()
    });
    client.schedule(
        "tasks.note",
        &json!({"args": ["soon"], "interval_secs": 1, "headers": []}),
    );
    client.schedule(
        "tasks.note",
        &json!({"args": ["nightly"], "cron": "30 4 * * *", "headers": ["nohaste"]}),
    );
    wait_until("the scheduler keeps them all", || kept().len() == 3);

    let mut import = Command::new(env!("CARGO_BIN_EXE_windlass"));
    import
        .args(["import", "eventmq-redis"])
        .arg(redis.to_string());
    let output = import
        .arg(format!(
            "--to={}",
            stage.front().replace("tcp://", "eventmq://")
        ))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.ends_with("3 schedules: 3 imported\n"),
        "{output:?}"
    );
    assert!(
        said.contains("tasks.note in queue \"default\", cron \"30 4 * * *\""),
        "{said}"
    );
    let _worker = stage.job_manager(DEFAULT);
    assert_eq!(
        stage.wait_for_notes(2)[..2],
        [json!(["soon"]), json!(["soon"])]
    );
}
