//! Leases: which client has a job, until when, and which client may end the lease.

use windlass_engine::{
    Backoff, ClientCommand, Command, Event, JobCommand, JobId, LeaseCommand, LeaseTerms, Mutation,
    Note, OnExpiry, Proof, Reply, Timestamp, Token,
};

use crate::common;
use crate::common::{
    Broker, data, extend, fail, fail_by, finish, finish_by, push, release, serve_on, take, tell,
    timed, token,
};

const FAIL: OnExpiry = OnExpiry::Fail;
const REQUEUE: OnExpiry = OnExpiry::Requeue;

/// Client 1 has j1 with a connection-bound lease, j2 with a time-bound lease with token 1; j3 is
/// ready.
fn held() -> Broker {
    let mut broker = Broker::new();
    for _ in 0..3 {
        broker.hear(4, push("q"));
    }
    broker.says(1, take(["q"]), ["1 took j1.1"]);
    broker.says(1, take(["q"]).for_ms(500, FAIL), ["1 took j2.1 until 1500"]);
    broker
}

#[test]
fn which_proofs_may_finish_a_job() {
    let table = [
        ("its connection", 1, 1, Proof::Connection, "1 finished j1"),
        (
            "another connection",
            2,
            1,
            Proof::Connection,
            "2 refused: lease not held",
        ),
        ("any client with the token", 2, 1, token(1), "2 finished j1"),
        (
            "not with another token",
            1,
            1,
            token(2),
            "1 refused: lease not held",
        ),
        (
            "any client, if the protocol allows it",
            2,
            1,
            Proof::AnyLease,
            "2 finished j1",
        ),
        (
            "a time-bound lease has no connection",
            1,
            2,
            Proof::Connection,
            "1 refused: lease not held",
        ),
        (
            "a time-bound lease by token",
            3,
            2,
            token(1),
            "3 finished j2",
        ),
        (
            "a job that is not leased",
            1,
            3,
            Proof::AnyLease,
            "1 refused: lease not held",
        ),
        (
            "an unknown job",
            1,
            9,
            Proof::AnyLease,
            "1 refused: job unknown",
        ),
    ];
    for (name, client, job, proof, expected) in table {
        let said = common::words(&held().hear(client, finish_by(job, proof)));
        assert_eq!(said, [expected], "{name}");
    }
}

#[test]
fn a_late_connection_bound_lease_is_no_loss_unless_losses_have_a_limit() {
    let bound = LeaseTerms {
        lease_ms: Some(100),
        on_expiry: REQUEUE,
        ..LeaseTerms::CONNECTION
    };
    let timed = timed(100, REQUEUE);
    for (name, lease, losses_max, own, lost) in [
        ("no limit", bound, 0, 0, 0),
        ("a limit for all", bound, 5, 0, 1),
        ("a limit of its own", bound, 0, 7, 1),
        ("time-bound: its worker may be gone", timed, 0, 0, 1),
    ] {
        let mut broker = Broker::limited(|limits| limits.losses_max = losses_max);
        broker.hear(4, push("q").losses(own));
        broker.hear(1, serve_on("q", 0, lease));
        broker.hear(1, common::take_served());
        broker.hear(
            1,
            tell(
                1,
                Note::Progress {
                    numerator: 1,
                    denominator: 2,
                    raw: "1".into(),
                },
            ),
        );
        broker.at(1_100, []);
        assert_eq!(broker.place(1), "ready", "{name}");
        let job = broker.engine.job(JobId(1)).unwrap();
        let extra = job.extra.as_deref().unwrap();
        assert_eq!(
            (extra.losses, extra.progress.is_none()),
            (lost, true),
            "{name}"
        );
        assert_eq!(broker.engine.meta().totals.lost, u64::from(lost), "{name}");
    }
}

#[test]
fn a_stale_token_ends_nothing() {
    let mut broker = held();
    broker.at(1_500, []);
    // Discarded: its producer asked for no retry.
    assert_eq!(broker.place(2), "gone");
    broker.says(1, finish_by(2, token(1)), ["1 refused: job unknown"]);

    broker.says(4, push("q").losses(0), ["4 new j4"]);
    broker.says(2, take(["q"]), ["2 took j3.1"]);
    broker.says(
        2,
        take(["q"]).for_ms(100, REQUEUE),
        ["2 took j4.1 until 1600"],
    );
    broker.at(1_600, []);
    broker.says(
        3,
        take(["q"]).for_ms(100, REQUEUE),
        ["3 took j4.2 until 1700"],
    );
    for stale in [
        finish_by(4, token(1)),
        fail_by(4, token(1)),
        extend(4, 1, 9_000, false),
    ] {
        broker.says(2, stale, ["2 refused: lease not held"]);
    }
    broker.says(3, finish_by(4, token(2)), ["3 finished j4"]);
}

#[test]
fn connection_bound_leases_end_with_their_connection() {
    let mut broker = held();
    broker.says(1, Command::Client(ClientCommand::Close), []);
    assert_eq!(broker.place(1), "ready");
    assert_eq!(broker.place(2), "leased until 1500");
    broker.says(2, take(["q"]), ["2 took j1.2"]);
}

#[test]
fn an_expired_lease_has_the_effect_of_its_terms() {
    let table = [
        ("is a failure", FAIL, "retrying 1100", 1),
        ("is a lost worker", REQUEUE, "ready", 0),
        ("goes to the front", OnExpiry::Front, "ready", 0),
    ];
    for (name, on_expiry, state, failures) in table {
        let mut broker = Broker::new();
        broker.hear(4, push("q").retry(3, windlass_engine::Backoff::Fixed(50)));
        broker.hear(4, push("q"));
        broker.says(
            1,
            take(["q"]).for_ms(50, on_expiry),
            ["1 took j1.1 until 1050"],
        );
        broker.is_due_at(1_050);
        broker.at(1_049, []);
        assert_eq!(broker.place(1), "leased until 1050", "{name}");
        broker.at(1_050, []);
        assert_eq!(broker.place(1), state, "{name}");
        let job = broker.engine.job(windlass_engine::JobId(1)).unwrap();
        assert_eq!((job.failures, job.attempts), (failures, 1), "{name}");
    }
}

#[test]
fn a_lost_job_returns_to_its_position_or_to_the_front() {
    for (on_expiry, expected) in [(REQUEUE, [2, 1, 3, 4]), (OnExpiry::Front, [1, 2, 3, 4])] {
        let mut broker = Broker::new();
        broker.hear(4, push("q"));
        broker.says(
            1,
            take(["q"]).for_ms(50, on_expiry),
            ["1 took j1.1 until 1050"],
        );
        broker.hear(4, push("q").front());
        broker.hear(4, push("q"));
        broker.hear(4, push("q"));
        broker.at(1_050, []);
        assert_eq!(broker.drain("q"), expected, "{on_expiry:?}");
    }
}

#[test]
fn extend_moves_the_end_of_a_lease_within_the_limit() {
    let table = [
        ("later", 2_000, false, "leased until 2000"),
        ("earlier", 1_200, false, "leased until 1200"),
        ("only later, and it is", 2_000, true, "leased until 2000"),
        (
            "only later, and it is not",
            1_200,
            true,
            "leased until 1500",
        ),
        ("not past the limit", 999_999, false, "leased until 11000"),
    ];
    for (name, until, only_later, expected) in table {
        let mut broker = Broker::limited(|limits| limits.lease_ms_max = 10_000);
        broker.hear(4, push("q"));
        broker.says(
            1,
            take(["q"]).for_ms(500, REQUEUE),
            ["1 took j1.1 until 1500"],
        );
        broker.says(1, extend(1, 1, until, only_later), ["1 done"]);
        assert_eq!(broker.place(1), expected, "{name}");
        let end: u64 = expected.rsplit(' ').next().unwrap().parse().unwrap();
        broker.at(end - 1, []);
        assert_eq!(broker.place(1), expected, "{name}");
        broker.at(end, []);
        assert_eq!(broker.place(1), "ready", "{name}");
    }
}

#[test]
fn a_lease_extended_into_the_past_ends_at_once() {
    let mut broker = Broker::new();
    broker.hear(4, push("q"));
    broker.says(
        1,
        take(["q"]).for_ms(500, REQUEUE),
        ["1 took j1.1 until 1500"],
    );
    broker.says(1, extend(1, 1, 10, false), ["1 done"]);
    broker.is_due_at(1_000);
    broker.says(2, take(["q"]), ["2 took j1.2"]);
}

/// Everything due is executed in the order in which it became due, including an extended lease.
#[test]
fn an_extended_lease_ends_in_its_turn() {
    let mut broker = Broker::new();
    broker.hear(4, push("a"));
    broker.hear(4, push("b"));
    broker.says(
        1,
        take(["a"]).for_ms(100, REQUEUE),
        ["1 took j1.1 until 1100"],
    );
    broker.says(
        1,
        take(["b"]).for_ms(500, REQUEUE),
        ["1 took j2.1 until 1500"],
    );
    broker.says(1, extend(1, 1, 2_000, true), ["1 done"]);
    broker.says(3, take(["a", "b"]).forever(), []);
    broker.at(3_000, ["3 took j2.2"]);
}

#[test]
fn a_lease_lasts_as_the_taker_or_the_job_asks_within_the_limit() {
    let table = [
        (
            "what the taker asks",
            push("q"),
            500,
            "1 took j1.1 until 1500",
        ),
        (
            "what the job asks",
            push("q").lease_ms(70),
            500,
            "1 took j1.1 until 1070",
        ),
        (
            "no longer than the limit",
            push("q").lease_ms(90_000),
            500,
            "1 took j1.1 until 11000",
        ),
    ];
    for (name, job, ms, expected) in table {
        let mut broker = Broker::limited(|limits| limits.lease_ms_max = 10_000);
        broker.hear(4, job);
        let said = common::words(&broker.hear(1, take(["q"]).for_ms(ms, FAIL)));
        assert_eq!(said, [expected], "{name}");
    }
    // A lease that expires immediately would loop from credit to credit within a tick.
    let mut broker = Broker::new();
    broker.hear(1, serve_on("q", 0, timed(0, REQUEUE)));
    broker.says(1, common::credit(u32::MAX), []);
    broker.says(4, push("q"), ["1 took j1.1 until 1001", "4 new j1"]);
    broker.at(1_001, ["1 took j1.2 until 1002"]);
}

/// A job's lease time, on terms that respect it and on others.
#[test]
fn a_jobs_own_lease_time_applies_as_the_terms_allow() {
    let bound = LeaseTerms::CONNECTION;
    let timed = LeaseTerms {
        wish: None,
        ..timed(500, REQUEUE)
    };
    // The terms, the expiry, and the effect of the expiry.
    let table = [
        (
            "connection-bound, and it does not count",
            bound,
            "1 took j1.1",
            "leased",
            0,
        ),
        (
            "connection-bound, and it is a failure",
            LeaseTerms {
                wish: Some(FAIL),
                ..bound
            },
            "1 took j1.1 until 1070",
            "retrying 2070",
            1,
        ),
        (
            "time-bound, and it does not count",
            timed,
            "1 took j1.1 until 1500",
            "leased until 1500",
            0,
        ),
        (
            "time-bound, and it is a failure",
            LeaseTerms {
                wish: Some(FAIL),
                ..timed
            },
            "1 took j1.1 until 1070",
            "retrying 2070",
            1,
        ),
        (
            "a lost worker",
            LeaseTerms {
                wish: Some(REQUEUE),
                ..bound
            },
            "1 took j1.1 until 1070",
            "ready",
            0,
        ),
    ];
    for (name, lease, taken, state, failures) in table {
        let mut broker = Broker::new();
        broker.hear(4, push("q").lease_ms(70).retry(3, Backoff::Fixed(1_000)));
        broker.hear(1, serve_on("q", 0, lease));
        assert_eq!(
            common::words(&broker.hear(1, common::take_served())),
            [taken],
            "{name}"
        );
        broker.at(1_070, []);
        assert_eq!(broker.place(1), state, "{name}");
        assert_eq!(
            broker.engine.job(JobId(1)).map(|job| job.failures),
            Some(failures),
            "{name}"
        );
        // Whatever the expiry is, this lease is released with the connection.
        broker.says(1, Command::Client(ClientCommand::Close), []);
        let left = if lease.connection_bound {
            state.replace("leased", "ready")
        } else {
            state.into()
        };
        assert_eq!(broker.place(1), left, "{name}");
    }
    // A job without a lease time gets the taker's.
    let mut broker = Broker::new();
    broker.hear(4, push("q"));
    broker.hear(
        1,
        serve_on(
            "q",
            0,
            LeaseTerms {
                lease_ms: Some(90),
                on_expiry: REQUEUE,
                wish: Some(FAIL),
                ..bound
            },
        ),
    );
    broker.says(1, common::take_served(), ["1 took j1.1 until 1090"]);
    broker.at(1_090, []);
    assert_eq!(broker.place(1), "ready");
}

#[test]
fn a_worker_whose_connection_was_lost_may_finish_late() {
    let late = || finish_by(1, Proof::Late);
    // j1 was leased to client 1, and then this happened.
    type Then = fn(&mut Broker);
    let table: [(&str, Then, &str); 7] = [
        ("it is ready", |_| {}, "2 finished j1"),
        (
            "another client has it",
            |broker| drop(broker.hear(3, take(["q"]))),
            "2 refused: lease not held",
        ),
        (
            "it failed since and is retrying",
            |broker| {
                broker.hear(3, take(["q"]));
                broker.says(3, fail(1), ["3 failed j1, retried 1050"]);
            },
            "2 finished j1",
        ),
        (
            "it is done",
            |broker| {
                broker.hear(3, take(["q"]));
                broker.says(
                    3,
                    finish(1),
                    ["4 ended j1 succeeded result", "3 finished j1"],
                );
            },
            "2 refused: lease not held",
        ),
        (
            "it is dead",
            |broker| drop(broker.hear(3, common::mutate(common::all(), Mutation::Kill))),
            "2 refused: lease not held",
        ),
        (
            "it was removed",
            |broker| {
                broker.says(
                    3,
                    Command::Job(JobCommand::Cancel(common::id(1))),
                    ["4 ended j1 cancelled", "3 done"],
                )
            },
            "2 refused: job unknown",
        ),
        (
            "it lives in a queue that is paused",
            |broker| broker.says(3, common::pause("q", true), ["3 done"]),
            "2 finished j1",
        ),
    ];
    for (name, then, expected) in table {
        let mut broker = Broker::new();
        broker.hear(
            4,
            push("q")
                .retry(3, Backoff::Fixed(50))
                .listen()
                .keep_result(5_000),
        );
        broker.says(1, take(["q"]), ["1 took j1.1"]);
        broker.says(1, Command::Client(ClientCommand::Close), []);
        then(&mut broker);
        let said = common::words(&broker.hear(2, late()));
        broker.engine.check();
        assert_eq!(said.last().map(String::as_str), Some(expected), "{name}");
        if expected == "2 finished j1" {
            assert_eq!(said, ["4 ended j1 succeeded result", expected], "{name}");
            assert_eq!(broker.place(1), "done until 6000", "{name}");
            assert_eq!(broker.engine.meta().totals.succeeded, 1, "{name}");
            broker.says(2, late(), ["2 refused: lease not held"]);
        }
    }
}

/// Only a success may be late. Other late reports are rejected, and so is any report on a scheduled job.
#[test]
fn only_a_success_may_be_late() {
    let mut broker = Broker::new();
    broker.hear(4, push("q"));
    broker.hear(4, push("q").not_before(9_000));
    let (job, proof) = (common::id(1), Proof::Late);
    for other in [
        fail_by(1, proof),
        Command::Lease(LeaseCommand::Release {
            job: job.clone(),
            proof,
            front: false,
        }),
        Command::Lease(LeaseCommand::Extend {
            job: job.clone(),
            proof,
            until: Timestamp(5_000),
            only_later: false,
        }),
        Command::Lease(LeaseCommand::Progress {
            job,
            proof,
            note: data("half"),
        }),
        finish_by(2, proof),
    ] {
        broker.says(1, other, ["1 refused: lease not held"]);
    }
    broker.hear(4, push("c").cycle());
    broker.says(1, finish_by(3, proof), ["1 refused: lease not held"]);
    broker.says(4, take(["q"]), ["4 took j1.1"]);
    broker.says(4, fail_by(1, proof), ["4 refused: lease not held"]);
}

/// The same rule for all protocols: a report of the worker that had the job is accepted, unless another
/// worker has the job, or an operator has returned it.
#[test]
fn a_late_report_counts_while_the_job_waits() {
    type Then = fn(&mut Broker);
    let again: Then = |broker| drop(broker.hear(2, take(["q"]).worker("b").for_ms(500, FAIL)));
    let back: Then = |broker| drop(broker.hear(4, finish_of_operator(1)));
    let nothing: Then = |_| {};
    let (held, done) = ("1 refused: lease not held", "1 finished j1");
    let table: [(&str, Proof, Then, &str); 11] = [
        ("over a connection", Proof::Late, nothing, done),
        (
            "over a connection, as of Gearman",
            Proof::Connection,
            nothing,
            held,
        ),
        ("by a token", Proof::Token(Token(1)), nothing, done),
        ("by name", Proof::AnyLease, nothing, done),
        (
            "by the token of another delivery",
            Proof::Token(Token(2)),
            nothing,
            held,
        ),
        (
            "another has it: over a connection",
            Proof::Late,
            again,
            held,
        ),
        (
            "another has it: by a token",
            Proof::Token(Token(1)),
            again,
            held,
        ),
        ("taken back: over a connection", Proof::Late, back, held),
        ("taken back: by a token", Proof::Token(Token(1)), back, held),
        ("taken back: by name", Proof::AnyLease, back, held),
        (
            "taken back, and another has it: by name",
            Proof::AnyLease,
            |broker| back_and_again(broker),
            held,
        ),
    ];
    for (name, proof, then, expected) in table {
        let mut broker = Broker::new();
        broker.hear(1, common::enlist("a"));
        broker.hear(2, common::enlist("b"));
        broker.hear(4, push("q").retry(3, Backoff::Fixed(50)));
        broker.says(
            1,
            take(["q"]).worker("a").for_ms(500, FAIL),
            ["1 took j1.1 until 1500"],
        );
        if !name.starts_with("taken back") {
            broker.at(1_500, []);
            broker.at(1_550, []);
        }
        then(&mut broker);
        assert_eq!(
            common::words(&broker.hear(1, finish_by(1, proof))),
            [expected],
            "{name}"
        );
        broker.engine.check();
    }
}

fn finish_of_operator(job: u64) -> Command {
    Command::Lease(LeaseCommand::Release {
        job: common::id(job),
        proof: Proof::AnyLease,
        front: false,
    })
}

fn back_and_again(broker: &mut Broker) {
    broker.says(4, finish_of_operator(1), ["4 done"]);
    broker.says(
        2,
        take(["q"]).worker("b").for_ms(500, FAIL),
        ["2 took j1.2 until 1500"],
    );
}

#[test]
fn the_words_of_a_late_failure_are_kept() {
    let mut broker = Broker::new();
    broker.hear(4, push("q").retry(3, Backoff::Fixed(50)));
    broker.says(
        1,
        take(["q"]).worker("a").for_ms(500, FAIL),
        ["1 took j1.1 until 1500"],
    );
    broker.at(1_500, []);
    let last = |broker: &Broker| {
        let extra = broker
            .engine
            .job(JobId(1))
            .and_then(|job| job.extra.clone());
        extra
            .and_then(|extra| extra.failure)
            .map(|failure| (failure.kind, failure.at.0))
    };
    assert_eq!(last(&broker), Some(("ReservationExpired".into(), 1_500)));
    broker.now = 1_520;
    let refused = ["1 refused: lease not held"];
    broker.says(1, fail_by(1, Proof::AnyLease), refused);
    assert_eq!(last(&broker), Some(("".into(), 1_500)));
    assert_eq!(
        broker.engine.job(JobId(1)).map(|job| job.failures),
        Some(1),
        "it is the same failure"
    );
}

#[test]
fn unserve_may_give_back_the_jobs() {
    for (requeue, state) in [(true, "ready"), (false, "leased")] {
        let mut broker = Broker::new();
        broker.hear(1, common::serve("q"));
        broker.hear(4, push("q"));
        broker.says(1, common::take_served(), ["1 took j1.1"]);
        broker.says(1, common::unserve("q", requeue), []);
        assert_eq!(broker.place(1), state);
    }
}

#[test]
fn listeners_are_notified_of_progress_and_the_end() {
    let mut broker = Broker::new();
    broker.says(1, push("q").listen(), ["1 new j1"]);
    broker.says(2, push("r").listen(), ["2 new j2"]);
    broker.says(3, take(["q"]), ["3 took j1.1"]);
    broker.says(3, tell(1, data("half")), ["1 told j1 data half", "3 done"]);
    let progress = Note::Progress {
        numerator: 3,
        denominator: 4,
        raw: bytes::Bytes::new(),
    };
    broker.says(3, tell(1, progress), ["1 told j1 3/4", "3 done"]);
    broker.says(2, tell(1, data("no right")), ["2 refused: lease not held"]);
    broker.says(
        3,
        finish(1),
        ["1 ended j1 succeeded result", "3 finished j1"],
    );
    // Listeners of another job receive nothing.
    broker.says(3, take(["r"]), ["3 took j2.1"]);
    broker.says(
        3,
        fail(2),
        ["2 ended j2 failed oops", "3 failed j2, discarded"],
    );
}

#[test]
fn a_foreground_job_lives_with_its_listeners() {
    let mut broker = Broker::new();
    broker.says(1, push("q").foreground(), ["1 new j1"]);
    broker.says(1, Command::Client(ClientCommand::Close), []);
    assert_eq!(
        broker.place(1),
        "gone",
        "while it waits, it goes with the last listener"
    );

    broker.says(2, push("q").foreground(), ["2 new j2"]);
    broker.says(3, take(["q"]), ["3 took j2.1"]);
    broker.says(2, Command::Client(ClientCommand::Close), []);
    assert_eq!(broker.place(2), "leased", "it is worked on to its end");
    broker.says(3, release(2, false), ["3 done"]);
    assert_eq!(broker.place(2), "gone", "and not again");

    broker.open(2);
    broker.says(2, push("q").foreground(), ["2 new j3"]);
    broker.says(2, take(["q"]), ["2 took j3.1"]);
    broker.says(2, Command::Client(ClientCommand::Close), []);
    assert_eq!(broker.place(3), "gone", "its own worker and listener");
}

#[test]
fn a_job_sent_on_credit_is_held_on_the_terms_of_the_ability() {
    let mut broker = Broker::new();
    broker.hear(1, serve_on("q", 0, timed(300, FAIL)));
    broker.says(1, common::credit(1), []);
    broker.says(4, push("q"), ["1 took j1.1 until 1300", "4 new j1"]);
}

#[test]
fn a_stop_interrupts_connection_bound_leases_and_listeners() {
    let mut broker = Broker::new();
    assert!(broker.engine.work_left(0).is_at_rest);
    // Waiting jobs and time-bound leases are still there afterwards.
    broker.hear(4, push("q"));
    broker.hear(4, push("q"));
    broker.says(1, take(["q"]).for_ms(500, FAIL), ["1 took j1.1 until 1500"]);
    assert!(broker.engine.work_left(0).is_at_rest);
    broker.says(1, take(["q"]), ["1 took j2.1"]);
    assert!(
        !broker.engine.work_left(0).is_at_rest,
        "held by a connection"
    );
    broker.says(1, finish(2), ["1 finished j2"]);
    assert!(broker.engine.work_left(0).is_at_rest);
    broker.hear(4, push("q").foreground());
    assert!(!broker.engine.work_left(0).is_at_rest, "waited for");
    broker.hear(4, ClientCommand::Close);
    assert!(broker.engine.work_left(0).is_at_rest);
}

#[test]
fn a_taken_job_shows_whether_a_client_listens_to_it() {
    let mut broker = Broker::new();
    broker.hear(1, push("q"));
    broker.hear(1, push("q").listen());
    for heard in [false, true] {
        let events = broker.hear(2, take(["q"]));
        let [(_, Event::Reply(_, Reply::Taken(job)))] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert_eq!(job.heard, heard, "{:?}", job.id);
    }
}
