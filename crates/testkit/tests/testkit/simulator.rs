//! Simulated lives of a broker, each compared with the oracle.
//!
//! `WINDLASS_SIM_SEEDS=20000` simulates as many lives instead of the usual number; `WINDLASS_SIM_SEED=17` simulates
//! that one.

use windlass_engine::Command;
use windlass_testkit::dice::each_variant;
use windlass_testkit::sim::{Plan, Tally, live, live_all, live_apart, number};

const SEEDS: u64 = 300;

fn plan(seed: u64) -> Plan {
    // Short lives cover many worlds, long ones reach states that only age brings.
    let steps = if seed.is_multiple_of(8) { 2_000 } else { 500 };
    Plan {
        seed,
        steps,
        hash_seed: seed ^ 0x5eed,
        fingerprint: false,
    }
}

#[test]
fn every_life_agrees_with_the_oracle() {
    if let Some(seed) = number("WINDLASS_SIM_SEED") {
        return drop(live(plan(seed)));
    }
    let seeds = number("WINDLASS_SIM_SEEDS").unwrap_or(SEEDS);
    let tally = live_all(seeds, |seed| live(plan(seed)));
    for (name, count) in &tally.counts {
        println!("{count:>8} {name}");
    }
    if seeds >= SEEDS {
        everything_happens(&tally);
    }
}

/// Checks coverage: a simulator that never reaches a case does not test it.
fn everything_happens(tally: &Tally) {
    let table = [
        ("Client", "Open Close SetName Serve Unserve UnserveAll"),
        ("Job", "Push Track Replace Cancel Collect"),
        ("Take", "Take WaitForWork Credit Unwait"),
        (
            "Lease",
            "Finish Fail Unconvertible Release Extend Repay Progress",
        ),
        (
            "Query",
            "Job Attempts Batch Queue Queues Jobs Workers Clients Schedules Stats Days",
        ),
        (
            "Queue",
            "Create Remove Pause Limit Throttle SetRules SetPatterns Bridge",
        ),
        ("Schedule", "Set Remove"),
        ("Batch", "New Open Commit"),
        ("Bulk", "Mutate Redrive Flush"),
        ("Worker", "Register Beat SetState GivesBack"),
        (
            "Reply",
            "Pushed Taken Empty Finished Failed Done Settled Refused Looked ScheduleSet Schedules Batch Queues Workers Clients \
             Stats Days Mutated Counted Beaten Attempts",
        ),
        (
            "Notice",
            "Delivered WorkAvailable Progress Ended Collected Close",
        ),
        (
            "Refusal",
            "NotUnique NotHeld InUse WrongKind OutOfPlace NeverDue",
        ),
        (
            "Limit",
            "QueueJobs Jobs JobBytes Queues Subscriptions NameBytes Schedules Batches BatchDepth BodyBytes",
        ),
        ("NotFound", "Job Queue Worker Schedule Batch"),
        ("End", "Succeeded Failed Lost TimedOut Expired Cancelled"),
        ("Fate", "Retried Buried Discarded"),
        (
            "Pushed",
            "New Attached Kept AgainWhenDone Remembered Outlasts OutlastsClients",
        ),
        ("Collect", "Lives"),
        ("Stray", "Given Handed"),
        ("Sleeper", "First"),
        ("Finish", "Late LateByName"),
        ("Fail", "LostWithDaemon"),
        ("Clock", "Forward Back Paused"),
        ("Isolation", "Passed"),
        ("Remove", "Beside"),
        ("Pause", "Beside"),
        ("Misfit", "Waits Dies"),
        ("Dead", "Dropped MadeWay BeyondItsQueue"),
        ("Done", "Forgotten"),
        ("OnDead", "Pushed Refused"),
        ("Part", "Done"),
        (
            "Attempt",
            "Failed Lost TimedOut Released TakenBack Unconvertible",
        ),
        ("Loss", "Pauses Dies"),
        ("Redrive", "Later Elsewhere"),
        (
            "Coalesce",
            "Begins Apart Absorbed AfterRun Joined Follows Parked Freed KeyBack BodyAway GaveWay TookIn PartEnded",
        ),
        ("Repeated", "EndedBefore"),
        (
            "Change",
            "JobPut JobMoved JobGone QueueSet QueueGone SchedulePut ScheduleMoved ScheduleGone BatchPut BatchMoved \
             BatchGone DayBegan Meta",
        ),
        ("Daemon", "Crashed Restarted"),
        ("Away", "Left Reports Returns NotBack"),
    ];
    let mut rare = Vec::new();
    for (kind, names) in table {
        for name in names.split_whitespace() {
            let count = tally
                .counts
                .get(&format!("{kind}::{name}"))
                .copied()
                .unwrap_or_default();
            // Few lives have a stop with a connection at work, a kill between a job and its report, or one of the others.
            let least = if matches!(
                kind,
                "Away" | "Redrive" | "Repeated" | "Coalesce" | "Sleeper" | "Fail"
            ) {
                3
            } else {
                75
            };
            rare.extend((count < least).then(|| format!("{kind}::{name} happened {count} times")));
        }
    }
    assert!(rare.is_empty(), "in {SEEDS} lives: {rare:?}");
}

#[test]
fn the_same_seed_lives_the_same_life() {
    for seed in 0..24 {
        // Differently keyed hash tables: their order must not show in any event or record.
        let lives = [1, 2].map(|hash_seed| {
            live(Plan {
                hash_seed,
                fingerprint: true,
                ..plan(seed)
            })
        });
        let [one, other] = &lives;
        assert_eq!(one, other, "seed {seed}");
        assert_ne!(one.fingerprint, 0, "seed {seed}");
    }
}

#[test]
fn two_namespaces_see_what_each_would_see_alone() {
    const SEEDS: u64 = 100;
    const STEPS: u32 = 600;
    const ENUMS: &[&str] = &[
        "Command",
        "ClientCommand",
        "JobCommand",
        "TakeCommand",
        "LeaseCommand",
        "Query",
        "QueueCommand",
        "ScheduleCommand",
        "BatchCommand",
        "BulkCommand",
        "WorkerCommand",
        "NamespaceCommand",
        "Claim",
    ];
    if let Some(seed) = number("WINDLASS_SIM_SEED") {
        return drop(live_apart(seed, STEPS));
    }
    let seeds = number("WINDLASS_SIM_SEEDS").unwrap_or(SEEDS);
    let tally = live_all(seeds, |seed| live_apart(seed, STEPS));
    for (name, count) in &tally.counts {
        println!("{count:>8} {name}");
    }
    // A command that is new must be in the law. Clients open at the beginning, and a drain is of all namespaces.
    let all = each_variant::<Command>(ENUMS);
    let missing = all
        .iter()
        .map(|(path, _)| path.replace("Command.", "").replace('.', "::"))
        .filter(|name| !["Client::Open", "Worker::Drain"].contains(&&**name))
        .filter(|name| !tally.counts.contains_key(name));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<String>::new());
}
