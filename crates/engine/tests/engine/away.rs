//! An orderly stop: connection-bound jobs are reserved for their workers until the daemon has started again.

use windlass_engine::{
    Backoff, ClientCommand, ClientInfo, Command, Context, Event, JobId, JobRef, LeaseHolder,
    LeaseTerms, Limits, Note, Proof, Protocol, Query, Reply, Timestamp, Token, Why,
};

use crate::common::{
    Broker, credit, data, fail, fail_by, finish, finish_by, list_jobs, name, placed, push, serve,
    serve_on, take, tell, words,
};

/// A client of a protocol.
fn open(broker: &mut Broker, client: u64, protocol: Protocol) {
    broker.hear(
        client,
        ClientCommand::Open(ClientInfo {
            protocol: Some(protocol),
            ..ClientInfo::default()
        }),
    );
}

/// Clients 11 and 12 are of Gearman, 13 is of EventMQ.
fn open_all(broker: &mut Broker) {
    open(broker, 11, Protocol::GEARMAN);
    open(broker, 12, Protocol::GEARMAN);
    open(broker, 13, Protocol::EVENTMQ);
}

/// Client 11 has job 1, and an EventMQ client has job 2.
fn two_in_hand() -> Broker {
    let mut broker = Broker::new();
    open_all(&mut broker);
    broker.hear(1, push("q"));
    broker.hear(1, push("e").with(|job| job.protocol = Protocol::EVENTMQ));
    broker.says(11, take(["q"]), ["11 took j1.1"]);
    broker.says(13, take(["e"]), ["13 took j2.1"]);
    broker
}

/// The daemon stops in order, and starts again after a minute.
fn restart(broker: &mut Broker, return_ms: u64) {
    let held = broker.engine.held_over_connections();
    let mut context = Context::new(Timestamp(broker.now), 1);
    held.chunks(1)
        .for_each(|page| broker.engine.leave(page, &mut context));
    broker.engine.check();
    broker.now += 60_000;
    broker.restart(Limits {
        return_ms,
        ..Limits::default()
    });
    open_all(broker);
}

fn holder(broker: &mut Broker, job: u64) -> Why {
    let events = broker.hear(1, Query::Why(JobRef::Id(JobId(job))));
    let [(_, Event::Reply(_, Reply::Why(why)))] = events.as_slice() else {
        panic!("{events:?}")
    };
    why.clone()
}

#[test]
fn workers_that_come_back_report_over_any_connection_of_their_protocol() {
    for (report, expected) in [
        (finish(1), "12 finished j1"),
        (fail(1), "12 failed j1, discarded"),
        (finish_by(1, Proof::Late), "12 finished j1"),
        (tell(1, data("half")), "12 done"),
    ] {
        let mut broker = two_in_hand();
        restart(&mut broker, 5_000);
        // The time in which the daemon was down does not count, and no other worker gets the jobs.
        assert_eq!(broker.place(1), "leased until 66000");
        broker.says(11, take(["q"]).until(65_000), []);
        broker.says(13, finish(1), ["13 refused: job unknown"]);
        broker.says(11, finish(2), ["11 refused: job unknown"]);
        broker.says(12, report, [expected]);
        broker.says(13, finish(2), ["13 finished j2"]);
    }
}

#[test]
fn the_jobs_of_workers_that_do_not_come_back_are_ready_after_a_while() {
    let mut broker = two_in_hand();
    restart(&mut broker, 5_000);
    broker.hear(1, push("q"));
    broker.hear(12, serve("q"));
    // The tokens are of the daemon's second run.
    broker.says(12, credit(2), ["12 took j3.4294967297"]);
    broker.is_due_at(66_000);
    broker.at(65_999, []);
    // This is not a loss.
    broker.at(66_000, ["12 took j1.4294967298"]);
    let losses = |broker: &Broker, job| {
        broker
            .engine
            .job(JobId(job))
            .unwrap()
            .extra
            .as_deref()
            .map_or(0, |it| it.losses)
    };
    assert_eq!(
        (losses(&broker, 1), broker.engine.meta().totals.timed_out),
        (0, 0)
    );
    broker.says(11, finish(1), ["11 refused: lease not held"]);
    // A late result is accepted while no other worker has the job.
    broker.says(13, finish_by(2, Proof::Late), ["13 finished j2"]);
}

#[test]
fn without_a_grace_the_jobs_are_ready_at_once() {
    let mut broker = two_in_hand();
    restart(&mut broker, 0);
    broker.says(12, take(["q"]), ["12 took j1.4294967298"]);
}

#[test]
fn it_is_said_who_has_such_a_job_and_a_second_stop_gives_another_grace() {
    let mut broker = two_in_hand();
    for _ in 0..2 {
        restart(&mut broker, 5_000);
        let away = LeaseHolder {
            protocol: Some(Protocol::GEARMAN),
            ..LeaseHolder::default()
        };
        assert_eq!(holder(&mut broker, 1), Why::Leased(Box::new(away)));
    }
    assert_eq!(broker.place(1), "leased until 126000");
    let listed = broker.hear(11, list_jobs(placed(windlass_engine::JobStateKind::Leased)));
    assert!(format!("{listed:?}").contains("Away"), "{listed:?}");
}

#[test]
fn only_what_the_journal_has_waits_for_its_worker() {
    let mut broker = two_in_hand();
    broker.hear(1, push("q").foreground());
    broker.hear(1, push("q"));
    broker.says(11, take(["q"]), ["11 took j3.1"]);
    // A client without a protocol has no name that another connection could share.
    broker.says(2, take(["q"]), ["2 took j4.1"]);
    let held = broker.engine.held_over_connections();
    assert_eq!(held.len(), 4);
    let mut context = Context::new(Timestamp(broker.now), 1);
    broker.engine.leave(&held, &mut context);
    let mut left: Vec<String> = context
        .changes
        .iter()
        .map(|change| format!("{change:?}"))
        .collect();
    left.sort_unstable();
    assert_eq!(left, ["JobMoved(JobId(1))", "JobMoved(JobId(2))"]);
}

#[test]
fn a_worker_that_reports_progress_has_its_job_over_its_new_connection() {
    let status = Note::Progress {
        numerator: 1,
        denominator: 2,
        raw: name("half"),
    };
    for note in [status, data("half")] {
        let mut broker = two_in_hand();
        restart(&mut broker, 5_000);
        broker.says(13, tell(1, note.clone()), ["13 refused: job unknown"]);
        broker.says(12, tell(1, note), ["12 done"]);
        // Only the time limit of the other job is still running.
        assert_eq!(
            [1, 2].map(|job| broker.place(job)),
            ["leased", "leased until 66000"]
        );
        broker.at(66_000, []);
        broker.says(11, finish(1), ["11 refused: lease not held"]);
        broker.says(11, take(["q"]).until(90_000), []);
        // A kill loses the lease, as that of any job over a connection.
        let mut killed = two_in_hand();
        restart(&mut killed, 5_000);
        killed.hear(12, tell(1, data("half")));
        killed.restart(Limits::default());
        assert_eq!(killed.place(1), "ready");
        // A connection that closes gives the job back.
        broker.says(12, ClientCommand::Close, ["11 took j1.4294967298"]);
    }
}

#[test]
fn a_job_that_has_its_worker_again_has_the_terms_of_the_workers_subscription() {
    let mut broker = two_in_hand();
    restart(&mut broker, 5_000);
    broker.hear(
        12,
        serve_on(
            "q",
            0,
            LeaseTerms {
                lease_ms: Some(30_000),
                ..LeaseTerms::CONNECTION
            },
        ),
    );
    broker.says(12, tell(1, data("half")), ["12 done"]);
    assert_eq!(broker.place(1), "leased until 91000");
}

/// The journal may lack the last delivery of a job from before the start. For a job of this run that was
/// never delivered, no report is accepted.
#[test]
fn a_report_counts_of_a_job_that_a_worker_may_have_had_before_the_start() {
    let held = "2 refused: lease not held";
    let table: [(&str, Command, &str); 6] = [
        (
            "a success over another connection",
            finish_by(1, Proof::Late),
            "2 finished j1",
        ),
        (
            "a success by name",
            finish_by(1, Proof::AnyLease),
            "2 finished j1",
        ),
        (
            "a success by token",
            finish_by(1, Proof::Token(Token(1))),
            "2 finished j1",
        ),
        (
            "a failure by name",
            fail_by(1, Proof::AnyLease),
            "2 failed j1, retried 1050",
        ),
        (
            "a failure by token",
            fail_by(1, Proof::Token(Token(1))),
            "2 failed j1, retried 1050",
        ),
        (
            "over a connection, as of Gearman",
            finish_by(1, Proof::Connection),
            held,
        ),
    ];
    for (name, report, expected) in table {
        // Any client may finish a leased job by name, as in Faktory.
        let beside = if name.ends_with("by name") {
            expected
        } else {
            held
        };
        for (restarts, another, expected) in [
            (false, false, held),
            (true, false, expected),
            (true, true, beside),
        ] {
            let mut broker = Broker::new();
            broker.hear(1, push("q").retry(3, Backoff::Fixed(50)));
            if restarts {
                broker.restart(Limits::default());
            }
            if another {
                broker.says(3, take(["q"]), ["3 took j1.4294967297"]);
            }
            let said = words(&broker.hear(2, report.clone()));
            assert_eq!(
                said,
                [expected],
                "{name}, restarts {restarts}, another has it {another}"
            );
            broker.engine.check();
        }
    }
}

#[test]
fn a_failure_from_before_the_start_counts_once() {
    let mut broker = Broker::new();
    broker.hear(1, push("q").retry(3, Backoff::Fixed(50)));
    broker.restart(Limits::default());
    broker.says(
        2,
        fail_by(1, Proof::AnyLease),
        ["2 failed j1, retried 1050"],
    );
    broker.says(
        2,
        fail_by(1, Proof::AnyLease),
        ["2 refused: lease not held"],
    );
    broker.at(1_050, []);
    broker.says(
        2,
        fail_by(1, Proof::AnyLease),
        ["2 refused: lease not held"],
    );
    assert_eq!(broker.engine.job(JobId(1)).map(|job| job.failures), Some(1));
    broker.says(2, finish_by(1, Proof::AnyLease), ["2 finished j1"]);
}
