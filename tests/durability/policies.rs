//! Policies through kills: see also `cluster/policies.rs`.

use crate::common::daemon;
use crate::common::http::Http;
use crate::common::in_order::{InOrder, ORDERED};

#[test]
fn jobs_of_a_key_stay_in_order_and_never_overlap_through_kills() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).set(ORDERED).start();
    let jobs = InOrder::submit(8, 40, vec![daemon.address("gearman")]);
    let workers: Vec<_> = (0..4).map(|_| jobs.work(0)).collect();
    for percent in [10, 30, 50, 70, 90] {
        jobs.wait_for(percent);
        daemon.kill();
        jobs.killed(0);
        daemon.restart();
        jobs.restarted(0, daemon.address("gearman"));
    }
    jobs.finish(workers);
}

/// Most bodies are not in memory when the daemon starts, and keys are read in them.
#[test]
fn keys_are_read_in_bodies_that_are_not_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let memory = format!("limits.memory = \"4MiB\"\n{ORDERED}");
    let mut daemon = daemon(dir.path()).set(&memory).start();
    let jobs = InOrder::submit_long(3, 60, vec![daemon.address("gearman")], 100_000);
    daemon.kill();
    daemon.restart();
    jobs.restarted(0, daemon.address("gearman"));
    let stored = Http(daemon.address("http")).metric("windlass_jobs_stored");
    assert!(stored > 60.0, "{stored} of 180 bodies are not in memory");
    let workers: Vec<_> = (0..4).map(|_| jobs.work(0)).collect();
    jobs.finish(workers);
}
