//! Policies through kills: see also `cluster/policies.rs`.

use crate::common::daemon;
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
