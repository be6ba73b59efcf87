//! Faults of all kinds while clients of all protocols are at work at all daemons: nothing that was acknowledged is
//! lost, no job is handed out again after its acknowledged end, and no job is finished by two workers that both
//! got the acknowledgement.
//!
//! The short form runs with the suite. More rounds: the variables named here, and `tests/PROOF.md`.

use std::thread;
use std::time::Duration;

use windlass_testkit::daemon::free_port;
use windlass_testkit::rng::Rng;

use super::cut::Relay;
use super::daemons::{Daemons, role};
use super::work::Clients;
use crate::common::http::Http;
use crate::common::pair::Pair;
use crate::common::postgres::Postgres;
use crate::common::{from_env, wait_until};

/// How long a leader is stopped.
const STOPS_MS: [u64; 9] = [100, 300, 700, 1_500, 3_000, 5_000, 10_000, 20_000, 30_000];

/// Jobs of each protocol between two faults.
const JOBS: usize = 30;

/// After this many rounds the spiderq entries that workers have dropped are deleted: they stay for look-ups, and would
/// fill the daemon's memory in a long test.
const ROUNDS_KEPT: u64 = 50;

/// The daemon that reports that it leads.
fn leader(daemons: &Daemons) -> usize {
    let mut leader = None;
    wait_until("a daemon leads", || {
        leader = (0..daemons.all.len()).find(|number| role(&daemons[*number]) == "leading");
        leader.is_some()
    });
    leader.unwrap()
}

/// Commits that a deposed leader has tried, and that were refused.
fn refused(daemons: &Daemons, number: usize) -> usize {
    daemons[number]
        .log_text()
        .matches("a commit was refused")
        .count()
}

/// Leaders are killed, stopped for a while, asked to yield, and deposed in the database. More rounds:
/// `WINDLASS_TEST_FAILOVERS`; longer stops than 5 s: `WINDLASS_TEST_STOP_MAX_MS`.
#[test]
fn leaders_come_and_go_and_nothing_is_lost_or_handed_out_again() {
    let (rounds, longest) = (
        from_env("WINDLASS_TEST_FAILOVERS", 8),
        from_env("WINDLASS_TEST_STOP_MAX_MS", 5_000),
    );
    let stops: Vec<u64> = STOPS_MS.into_iter().filter(|ms| *ms <= longest).collect();
    let mut daemons = Daemons::start(3);
    let clients = Clients::start(&daemons);
    let (mut random, mut all_refused) = (Rng::new(7), 0);
    for round in 0..rounds {
        clients.work().wait_for_more(&daemons, JOBS);
        let leader = leader(&daemons);
        if round % ROUNDS_KEPT == ROUNDS_KEPT - 1 {
            // A leader that ends meanwhile leaves some for the next time.
            Http(daemons[leader].address("http"))
                .post("/api/v1/jobs/delete?queue=spiderq&state=parked", "");
        }
        let before = refused(&daemons, leader);
        match round % 4 {
            0 => {
                daemons[leader].kill();
                daemons[leader].restart();
                clients.work().look(&daemons);
                continue;
            }
            1 => {
                daemons[leader].signal("STOP");
                thread::sleep(Duration::from_millis(*random.pick(&stops).unwrap()));
                daemons[leader].signal("CONT");
            }
            2 => {
                Http(daemons[leader].address("http")).post("/api/v1/cluster/yield", "");
            }
            // It believes that its lease holds. Its next commit is refused all the same.
            _ => {
                daemons
                    .database()
                    .ask("UPDATE windlass.lease SET epoch = epoch + 1, until = '2000-01-01'");
                // Unless its renewal comes first.
                wait_until("the deposed leader leads no more", || {
                    refused(&daemons, leader) > before || role(&daemons[leader]) != "leading"
                });
            }
        }
        all_refused += refused(&daemons, leader) - before;
    }
    clients.work().wait_for_more(&daemons, JOBS);
    clients.finish(
        &daemons,
        &format!(
            "{rounds} changes of the leader, {all_refused} commits of deposed leaders refused"
        ),
    );
}

/// The database fails over to its synchronous standby. More rounds: `WINDLASS_TEST_PRIMARIES`.
#[test]
fn a_lost_primary_loses_nothing_if_its_standby_is_synchronous() {
    let rounds = from_env("WINDLASS_TEST_PRIMARIES", 2);
    let mut pair = Pair::start();
    let mut daemons = Daemons::on(pair.section());
    (0..3).for_each(|_| daemons.add(""));
    let clients = Clients::start(&daemons);
    for _ in 0..rounds {
        clients.work().wait_for_more(&daemons, JOBS);
        pair.fail_over();
        clients.work().wait_for_more(&daemons, JOBS);
        pair.rebuild();
    }
    clients.work().wait_for_more(&daemons, JOBS);
    clients.finish(&daemons, &format!("{rounds} primaries killed"));
}

/// Links are cut, one or all of them, and delayed for less and for more than a daemon waits. More rounds:
/// `WINDLASS_TEST_CUTS`.
#[test]
fn links_that_are_cut_lose_nothing() {
    const SILENCES_MS: [u64; 4] = [50, 500, 1_500, 3_000];
    let rounds = from_env("WINDLASS_TEST_CUTS", 8);
    let postgres = Postgres::start();
    let (mut daemons, mut relays) = (Daemons::on(postgres.section()), Vec::new());
    for _ in 0..3 {
        let port = free_port();
        relays.push(Relay::to(port));
        let address = format!("address = \"127.0.0.1:{}\"", relays.last().unwrap().port());
        let plan = daemons.plan(port, &address);
        daemons.start_one(plan);
    }
    let clients = Clients::start(&daemons);
    let mut random = Rng::new(11);
    for round in 0..rounds {
        clients.work().wait_for_more(&daemons, JOBS);
        let relay = &relays[leader(&daemons)];
        match round % 4 {
            0 => relay.cut_one(),
            1 => relay.cut(),
            kind => {
                relay.silence(true);
                thread::sleep(Duration::from_millis(random.one_of(SILENCES_MS)));
                if kind == 2 {
                    relay.cut();
                }
                relay.silence(false);
            }
        }
    }
    clients.work().wait_for_more(&daemons, JOBS);
    clients.finish(&daemons, &format!("{rounds} cuts"));
}
