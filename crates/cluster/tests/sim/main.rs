//! A simulator of a cluster: three daemons, their links, a database and clients, in one thread, from one seed.
//!
//! The daemons are the product's: `Edge`, `EdgeClients`, `ClusterBroker`, `Hub`, engine, journal and frames. The simulator
//! has what is around them: threads, sockets, clocks, the database. Daemons are killed and stand still, each of their
//! threads between any two steps, also between its look at the lease and what it does then; links are slow and are cut;
//! the database answers late, does not answer, or fails over; clocks jump. `laws` has what must hold.
//!
//! Reading order: this file (the tests) · `world` (what happens) · `laws` · `client` · `daemon`, `room` (what `role`,
//! `roles` and `link` do with threads) · `database`, `lease`, `links` · `ledger` · `found` (what the simulator has
//! found, as small scenes).
//!
//! `WINDLASS_SIM_SEEDS=10000` lives as many lives instead of the usual number; `WINDLASS_SIM_SEED=17` lives that one.
#![cfg(test)]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the simulator singles out what it is about"
)]

mod client;
mod daemon;
mod database;
mod found;
mod laws;
mod lease;
mod ledger;
mod links;
mod room;
mod world;

use std::time::Duration;

use windlass_testkit::sim::{Tally, live_all, number};
use world::World;

const DAEMONS: usize = 3;

/// Runs in the suite.
const SEEDS: u64 = 100;

/// Runs within which the absence of a mechanism must be noticed.
const MUTANT_SEEDS: u64 = 1_000;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Determines everything else.
    seed: u64,
    steps: u32,
    /// Clients of each daemon.
    clients: usize,
    /// Whether faults are injected.
    trouble: bool,
    /// Whether the database rejects commits of an earlier epoch.
    has_fence: bool,
    /// Whether a new leader waits for the clients of the previous one.
    has_grace: bool,
    /// Whether a leader checks its clock.
    looks: bool,
    /// Whether a leader uses the database's wall clock.
    asks_the_time: bool,
}

impl Plan {
    const fn new(seed: u64) -> Self {
        let steps = if seed.is_multiple_of(8) { 1_200 } else { 400 };
        let clients = if seed.is_multiple_of(3) { 2 } else { 4 };
        Self {
            seed,
            steps,
            clients,
            trouble: true,
            has_fence: true,
            has_grace: true,
            looks: true,
            asks_the_time: true,
        }
    }
}

const fn as_ms(time: Duration) -> u64 {
    time.as_secs() * 1_000 + time.subsec_millis() as u64
}

/// Runs a life, which must satisfy the laws.
fn live(plan: Plan) -> Tally {
    World::live(plan).unwrap_or_else(|law| panic!("{law}"))
}

#[test]
fn a_cluster_without_trouble_keeps_the_laws() {
    for seed in 0..20 {
        live(Plan {
            trouble: false,
            ..Plan::new(seed)
        });
    }
}

#[test]
fn every_cluster_keeps_the_laws() {
    if let Some(seed) = number("WINDLASS_SIM_SEED") {
        return println!("{:?}", live(Plan::new(seed)));
    }
    let seeds = number("WINDLASS_SIM_SEEDS").unwrap_or(SEEDS);
    let tally = live_all(seeds, |seed| live(Plan::new(seed)));
    for (what, times) in &tally.counts {
        println!("{times:>9} {what}");
    }
    if seeds >= SEEDS {
        everything_happens(&tally);
    }
}

/// Checks coverage: a simulator that never reaches a case does not test it.
fn everything_happens(tally: &Tally) {
    const ALL: [&str; 24] = [
        "a client waits for ever",
        "a clock jumps",
        "a daemon has yielded",
        "a daemon is deposed",
        "a daemon is killed",
        "a daemon is parted from the database",
        "a daemon leads",
        "a daemon stands still",
        "a daemon stops in order",
        "a job is claimed in the grace",
        "a job is claimed late",
        "a job of a batch or a schedule is handed out",
        "a grace ends early",
        "a ledger is compared",
        "a link is cut",
        "a link is made again in one epoch",
        "a listener hears the end",
        "a look-up that the laws know",
        "a push finds another job",
        "an edge comes back",
        "an end is acknowledged",
        "an outcome is unknown",
        "commits refused by the fence",
        "the database fails over",
    ];
    for what in ALL {
        assert!(
            tally.counts.get(what).is_some_and(|times| *times > 0),
            "{what}: never in {SEEDS} lives"
        );
    }
}

/// Ledgers were compared while a lease was still unsent to an edge (6450), and while a client's
/// departure was in flight to the leader (8040).
#[test]
fn ledgers_are_compared_when_nothing_is_on_its_way() {
    for seed in [6_450, 8_040] {
        live(Plan::new(seed));
    }
}

#[test]
fn the_same_seed_lives_the_same_life() {
    for seed in 0..12 {
        let [one, other] = [(); 2].map(|()| live(Plan::new(seed)));
        assert_eq!(one, other, "seed {seed}");
    }
}

/// The first seed that breaks a law in a world without some mechanism.
fn first_broken(without: impl Fn(Plan) -> Plan) -> Option<(u64, String)> {
    (0..MUTANT_SEEDS).find_map(|seed| Some((seed, World::live(without(Plan::new(seed))).err()?)))
}

#[test]
fn without_the_fence_a_law_is_broken() {
    let found = first_broken(|plan| Plan {
        has_fence: false,
        ..plan
    });
    println!(
        "{}",
        found.expect("nothing shows that the fence is missing").1
    );
}

#[test]
fn without_the_grace_a_law_is_broken() {
    let found = first_broken(|plan| Plan {
        has_grace: false,
        ..plan
    });
    println!(
        "{}",
        found.expect("nothing shows that the grace is missing").1
    );
}

#[test]
fn without_a_look_at_the_clock_a_law_is_broken() {
    let found = first_broken(|plan| Plan {
        looks: false,
        ..plan
    });
    println!(
        "{}",
        found
            .expect("nothing shows that no leader looks at its clock")
            .1
    );
}

#[test]
fn without_the_database_s_time_a_law_is_broken() {
    let found = first_broken(|plan| Plan {
        asks_the_time: false,
        ..plan
    });
    println!(
        "{}",
        found
            .expect("nothing shows that a leader goes by its own wall clock")
            .1
    );
}
