//! `windlass bridge` from the released router, with the stock client there and a stock JobManager at the daemon.

use std::process::Command;

use serde_json::{Value, json};

use super::stage::{DEFAULT, Ports, Stage};

#[test]
fn jobs_in_the_released_router_run_here() {
    let stage = Stage::new();
    let old = Ports::free();
    let _router = stage.router(&old);
    let client = stage.peers.stock(&old.front);
    (0..20).for_each(|number| drop(client.defer_job("tasks.note", &json!({"args": [number]}))));

    let address = |place: &str| place.replace("tcp://", "eventmq://");
    let mut bridge = Command::new(env!("CARGO_BIN_EXE_windlass"));
    bridge.arg("bridge").arg("--from").arg(address(&old.back)).arg("--to").arg(address(stage.front()));
    let output = bridge.arg("--until-empty=5s").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("20 jobs moved"), "{said}");

    let _worker = stage.job_manager(DEFAULT);
    let notes = stage.wait_for_notes(20);
    let mut numbers: Vec<i64> = notes.iter().filter_map(|note| note.pointer("/0").and_then(Value::as_i64)).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
}
