//! A backlog larger than memory in PostgreSQL, with one daemon and with several.

use super::daemons::Daemons;
use crate::common::backlog::{
    FWP, GEARMAN, SMALL_MEMORY, bytes_on_disk, drain_fwp, drain_gearman, drain_others, push_all,
    push_gearman,
};
use crate::common::postgres::Postgres;
use crate::common::{daemon, wait_for_log};

#[test]
fn a_daemon_that_was_killed_finds_every_body_in_the_database() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let plan = daemon(dir.path())
        .set(&postgres.section())
        .set("lease = \"800ms\"")
        .set(SMALL_MEMORY);
    let mut daemon = plan.eventmq("").start();
    push_all(&daemon);
    daemon.kill();
    daemon.restart();
    assert!(
        bytes_on_disk(&daemon) > 10 << 20,
        "{} bytes",
        bytes_on_disk(&daemon)
    );
    drain_gearman(daemon.address("gearman"), 0..GEARMAN);
    let expected: Vec<usize> = (0..FWP)
        .filter(|number| !number.is_multiple_of(10))
        .collect();
    assert_eq!(drain_fwp(daemon.address("faktory")), expected);
    drain_others(&daemon);
}

#[test]
fn workers_at_an_edge_get_bodies_that_are_not_in_memory_and_so_do_those_of_the_next_leader() {
    let postgres = Postgres::start();
    let mut daemons = Daemons::on(postgres.section());
    daemons.add(SMALL_MEMORY);
    daemons.add(SMALL_MEMORY);
    let edge = daemons[1].address("gearman");
    push_gearman(edge, 0..1_000);
    assert!(
        bytes_on_disk(&daemons[0]) > 8 << 20,
        "{} bytes",
        bytes_on_disk(&daemons[0])
    );
    assert_eq!(bytes_on_disk(&daemons[1]), 0, "an edge has no bodies");
    drain_gearman(edge, 0..300);
    // A later acknowledgement: what has ended before is in the database.
    push_gearman(edge, 1_000..1_001);
    daemons[0].kill();
    wait_for_log(&daemons[1], "became leader");
    drain_gearman(edge, 300..1_001);
}
