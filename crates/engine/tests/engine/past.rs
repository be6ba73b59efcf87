//! Imported jobs retain state, failures and times.

use windlass_engine::{
    Backoff, ClientId, Command, Event, Fate, Holder, JobRef, JobState, Lease, LeaseCommand,
    OnExpiry, Past, Proof, Reply, Timestamp, Token,
};

use crate::common;
use crate::common::{Broker, fail, push, take};

const DEAD_MS: u64 = 180 * 86_400_000;

fn been(state: Option<JobState>, failures: u32) -> common::Push {
    push("q").retry(2, Backoff::Fixed(500)).with(|job| {
        job.past = Some(Box::new(Past {
            ready_at: Some(Timestamp(700)),
            failures,
            state,
        }));
    })
}

fn leased(until: u64) -> Option<JobState> {
    let holder = Holder::Named(b"w1".as_slice().into());
    let lease = Lease::new(
        holder,
        Token(0),
        Timestamp(900),
        Timestamp(until),
        OnExpiry::Fail,
    );
    Some(JobState::Leased(Box::new(lease)))
}

#[test]
fn an_imported_job_keeps_its_state() {
    let table = [
        (None, "ready"),
        (Some(JobState::Retrying(Timestamp(3_000))), "retrying 3000"),
        (Some(JobState::Dead(Timestamp(4_000))), "dead until 4000"),
        (leased(5_000), "leased until 5000"),
        // Not longer than the longest lease here.
        (leased(u64::MAX - 1), "leased until 61000"),
    ];
    for (state, expected) in table {
        let mut broker = Broker::limited(|limits| limits.lease_ms_max = 60_000);
        broker.says(1, been(state, 1), ["1 new j1"]);
        assert_eq!(broker.place(1), expected);
    }
    let mut broker = Broker::new();
    broker.says(1, been(None, 0).not_before(2_000), ["1 new j1"]);
    assert_eq!(broker.place(1), "scheduled 2000");
}

#[test]
fn an_imported_time_in_the_past_is_due_at_once() {
    let mut broker = Broker::new();
    broker.says(
        1,
        been(Some(JobState::Retrying(Timestamp(10))), 1),
        ["1 new j1"],
    );
    broker.says(
        1,
        been(Some(JobState::Dead(Timestamp(10))), 1),
        ["1 new j2"],
    );
    broker.says(1, been(leased(999), 1), ["1 new j3"]);
    broker.at(1_000, []);
    assert_eq!(
        [1, 2, 3].map(|job| broker.place(job)),
        ["ready", "gone", "retrying 1500"]
    );
}

#[test]
fn imported_failures_count() {
    let mut broker = Broker::new();
    broker.hear(1, been(None, 1));
    let said = broker.hear(2, take(["q"]));
    let Some((_, Event::Reply(_, Reply::Taken(job)))) = said.first() else {
        panic!("{said:?}")
    };
    assert_eq!(
        (job.failures, job.token, job.ready_at),
        (1, Token(2), Timestamp(700))
    );
    // Two retries, one of them used.
    let said = broker.hear(2, fail(1));
    assert!(
        matches!(
            said[..],
            [(
                _,
                Event::Reply(
                    _,
                    Reply::Failed {
                        fate: Fate::Retried(_),
                        ..
                    }
                )
            )]
        ),
        "{said:?}"
    );
    broker.at(1_500, []);
    broker.hear(2, take(["q"]));
    let said = broker.hear(2, fail(1));
    assert!(
        matches!(said[..], [(_, Event::Reply(_, Reply::Failed { fate: Fate::Buried(Timestamp(until)), .. }))] if until == 1_500 + DEAD_MS)
    );
}

#[test]
fn the_worker_of_an_imported_lease_may_end_it() {
    let mut broker = Broker::new();
    broker.hear(1, been(leased(5_000), 0).named("jid"));
    assert_eq!(
        broker
            .engine
            .job_named(windlass_engine::Namespace::UNNAMED, b"jid")
            .map(|job| job.attempts),
        Some(1)
    );
    broker.is_due_at(5_000);
    let job = JobRef::Name(b"jid".as_slice().into());
    broker.says(
        2,
        Command::Lease(LeaseCommand::Finish {
            job,
            proof: Proof::AnyLease,
            result: "".into(),
        }),
        ["2 finished j1"],
    );
    assert!(
        broker
            .engine
            .job_named(windlass_engine::Namespace::UNNAMED, b"jid")
            .is_none()
    );
}

#[test]
fn an_impossible_past_is_refused() {
    let mut broker = Broker::new();
    for state in [
        JobState::Ready,
        JobState::Scheduled(Timestamp(9)),
        JobState::Parked,
        JobState::Done(Timestamp(9)),
    ] {
        broker.says(
            1,
            been(Some(state), 0),
            ["1 refused: not allowed in this state"],
        );
    }
    let holder = Holder::Connection(ClientId(1));
    let bound = Lease::new(
        holder,
        Token(1),
        Timestamp(1),
        Timestamp(9_000),
        OnExpiry::Requeue,
    );
    broker.says(
        1,
        been(Some(JobState::Leased(Box::new(bound))), 0),
        ["1 refused: not allowed in this state"],
    );
    broker.says(
        1,
        been(None, 0).cycle(),
        ["1 refused: not allowed in this state"],
    );
    broker.says(
        1,
        been(None, 0).foreground(),
        ["1 refused: not allowed in this state"],
    );
    broker.says(
        1,
        common::every(1_000, been(None, 0)),
        ["1 refused: not allowed in this state"],
    );
}
