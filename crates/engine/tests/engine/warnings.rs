//! Warnings for an operator: one of each kind in a turn, with an example and a count.

use bytes::Bytes;
use windlass_engine::{
    Backoff, Capacity, Clash, ClientCommand, ClientId, Command, Context, LeaseCommand, LeaseTerms,
    Proof, Protocol, Refusal, Subscription, Tag, Timestamp, Warning, WarningKind,
};

use crate::common::*;
use crate::isolation::{broker, faktory, gearman, misfit};

/// The warnings since the last call: the kind, the count, and the first one's queue, name and failure.
fn noticed(broker: &mut Broker) -> Vec<(WarningKind, u64, String)> {
    let shown = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let rows = broker.warnings.drain(..);
    let about = |notice: &windlass_engine::Warning| {
        [&notice.queue, &notice.name, &notice.why]
            .map(shown)
            .join(" ")
    };
    rows.map(|notice| (notice.kind.clone(), notice.times, about(&notice)))
        .collect()
}

#[test]
fn a_dead_lettered_job_gives_a_notice() {
    let mut broker = Broker::new();
    broker.hear(1, push("mail").named("first").retry(1, Backoff::None));
    for failures in [0, 1] {
        broker.hear(2, take(["mail"]));
        assert_eq!(noticed(&mut broker), [], "{failures}: it is tried again");
        broker.hear(2, fail(1));
    }
    assert_eq!(
        noticed(&mut broker),
        [(WarningKind::Buried, 1, "mail first oops".to_owned())]
    );
    // A job without retries does not enter the dead-letter queue.
    broker.hear(1, push("mail").retry(0, Backoff::None));
    broker.hear(2, take(["mail"]));
    broker.hear(2, fail(2));
    assert_eq!(noticed(&mut broker), []);
}

#[test]
fn a_job_whose_workers_were_lost_too_often_gives_a_notice() {
    let table = [(3, WarningKind::Buried), (0, WarningKind::LostForGood)];
    for (failures_max, kind) in table {
        let mut broker = Broker::new();
        broker.hear(
            1,
            push("mail")
                .named("first")
                .retry(failures_max, Backoff::None)
                .losses(2),
        );
        let lost = (
            WarningKind::WorkerLost,
            1,
            "mail first a worker without a name".to_owned(),
        );
        for expected in [
            vec![lost.clone()],
            vec![lost, (kind.clone(), 1, "mail first ".to_owned())],
        ] {
            broker.open(7);
            broker.hear(7, take(["mail"]));
            broker.hear(7, ClientCommand::Close);
            assert_eq!(noticed(&mut broker), expected, "{kind:?}");
        }
    }
}

#[test]
fn a_conversion_error_gives_a_notice() {
    let mut broker = Broker::new();
    broker.hear(1, push("mail"));
    broker.hear(2, take(["mail"]));
    let why = name("base64: not one string");
    broker.hear(
        2,
        LeaseCommand::Unconvertible {
            job: id(1),
            proof: Proof::Connection,
            why,
        },
    );
    assert_eq!(
        noticed(&mut broker),
        [(
            WarningKind::Unfit { is_dead: true },
            1,
            "mail 1 base64: not one string".to_owned()
        )]
    );
}

#[test]
fn jobs_that_expire_in_one_turn_give_one_notice() {
    let mut broker = Broker::new();
    for name in ["first", "second", "third"] {
        broker.hear(1, push("mail").named(name).expires(2_000));
    }
    broker.at(2_000, []);
    assert_eq!(
        noticed(&mut broker),
        [(WarningKind::Expired, 3, "mail first ".to_owned())]
    );
}

#[test]
fn refused_jobs_give_notices() {
    let mut broker = Broker::limited(|limits| limits.name_bytes_max = 8);
    broker.hear(1, limit("mail", 1));
    for _ in 0..3 {
        broker.hear(1, push("mail"));
    }
    let full = WarningKind::Refused(Capacity::QueueJobs.exceeded(1_u32, 1_u32));
    let expected = (full, 1, "mail  ".to_owned());
    assert_eq!(
        noticed(&mut broker),
        [expected.clone(), expected],
        "each in its own turn"
    );
    broker.hear(1, push("much too long a name"));
    let too_long = WarningKind::Refused(Capacity::NameBytes.exceeded(20_u32, 8_u32));
    assert_eq!(
        noticed(&mut broker),
        [(too_long, 1, "much too long a name  ".to_owned())]
    );
    // `NotUnique` is the reply that the producer requested.
    broker.hear(1, push("other").unique("k", Clash::Refuse));
    broker.says(
        1,
        push("other").unique("k", Clash::Refuse),
        ["1 refused: job not unique"],
    );
    assert_eq!(noticed(&mut broker), []);
}

#[test]
fn refusals_of_one_turn_are_counted_by_their_reason() {
    let mut broker = Broker::limited(|limits| limits.name_bytes_max = 8);
    broker.hear(1, limit("mail", 1));
    broker.hear(1, push("mail"));
    let mut context = Context::new(Timestamp(broker.now), 1);
    for queue in [
        "mail",
        "a name of 18 bytes",
        "mail",
        "a name of 21 bytes...",
    ] {
        broker
            .engine
            .apply(ClientId(1), Tag(1), push(queue), &mut context);
    }
    for job in [
        push("mail").cycle(),
        push("mail").with(|job| job.durable = false),
        push("mail").cycle(),
    ] {
        broker.engine.apply(ClientId(1), Tag(1), job, &mut context);
    }
    let counted: Vec<_> = context
        .warnings
        .into_iter()
        .map(|warning| (warning.kind, warning.times))
        .collect();
    let full = WarningKind::Refused(Capacity::QueueJobs.exceeded(1_u32, 1_u32));
    let too_long = WarningKind::Refused(Capacity::NameBytes.exceeded(18_u32, 8_u32));
    let [wrong_kind, out_of_place] =
        [Refusal::WrongKind, Refusal::OutOfPlace].map(WarningKind::Refused);
    assert_eq!(
        counted,
        [(full, 2), (too_long, 2), (wrong_kind, 2), (out_of_place, 1)]
    );
}

#[test]
fn refused_runs_of_a_schedule_give_notices() {
    let mut broker = Broker::new();
    broker.hear(1, push("mail").unique("k", Clash::Refuse));
    broker.hear(
        1,
        every(1_000, push("mail").unique("k", Clash::Refuse)).key("nightly"),
    );
    broker.at(2_000, []);
    let expected = [(
        WarningKind::RunRefused(Refusal::NotUnique),
        1,
        "mail nightly ".to_owned(),
    )];
    assert_eq!(noticed(&mut broker), expected);
}

// ---- jobs of other protocols ----------------------------------------------------------------------------------------

fn warnings(broker: &mut Broker, client: u64, command: impl Into<Command>) -> Vec<Warning> {
    let mut context = Context::new(Timestamp(broker.now), 1);
    broker
        .engine
        .apply(ClientId(client), Tag::NONE, command.into(), &mut context);
    context.warnings
}

fn warn(queue: &'static str, kind: WarningKind) -> Warning {
    Warning {
        kind,
        times: 1,
        queue: name(queue),
        name: Default::default(),
        why: Default::default(),
    }
}

#[test]
fn unserved_jobs_beside_other_protocols_workers_are_noticed_once_a_minute() {
    let mut broker = broker();
    let unserved = warn(
        "q",
        WarningKind::Unserved {
            jobs: Protocol::FAKTORY,
            workers: vec![Protocol::GEARMAN],
        },
    );
    assert_eq!(warnings(&mut broker, 1, faktory("q")), []);
    assert_eq!(
        warnings(&mut broker, 11, serve("q")),
        std::slice::from_ref(&unserved)
    );
    assert_eq!(warnings(&mut broker, 1, faktory("q")), []);
    broker.now += 60_000;
    assert_eq!(
        warnings(&mut broker, 1, gearman("q")),
        std::slice::from_ref(&unserved)
    );
    broker.now += 60_000;
    // Once a client of the right protocol has connected, there is no warning.
    assert_eq!(warnings(&mut broker, 21, take(["q"])), []);
    assert_eq!(warnings(&mut broker, 1, faktory("q")), []);
    // A bridged queue never gets one.
    assert_eq!(warnings(&mut broker, 11, serve("b")), []);
    assert_eq!(warnings(&mut broker, 1, faktory("b")), []);
    // A client that is blocked in FETCH is also a worker.
    assert_eq!(warnings(&mut broker, 1, gearman("r")), []);
    let waits = warnings(&mut broker, 22, take(["r"]).forever());
    assert_eq!(
        waits,
        [warn(
            "r",
            WarningKind::Unserved {
                jobs: Protocol::GEARMAN,
                workers: vec![Protocol::FAKTORY]
            }
        )]
    );
}

#[test]
fn unserved_jobs_are_noticed_unless_a_client_takes_unclaimed_jobs() {
    let mut broker = broker();
    let (lease, unclaimed) = (LeaseTerms::CONNECTION, Some(Protocol::FAKTORY));
    broker.hear(
        3,
        ClientCommand::Serve(Subscription {
            queue: "other".into(),
            weight: 0,
            lease,
            unclaimed,
        }),
    );
    broker.hear(11, serve("q"));
    assert_eq!(warnings(&mut broker, 1, faktory("q")), []);
    broker.hear(3, ClientCommand::Close);
    let unserved = WarningKind::Unserved {
        jobs: Protocol::FAKTORY,
        workers: vec![Protocol::GEARMAN],
    };
    assert_eq!(
        warnings(&mut broker, 1, faktory("q")),
        [warn("q", unserved)]
    );
}

#[test]
fn unserved_jobs_of_several_queues_are_noticed_in_one_turn() {
    let mut broker = broker();
    let mut context = Context::new(Timestamp(broker.now), 1);
    for queue in ["q", "r"] {
        broker.hear(11, serve(queue));
        broker
            .engine
            .apply(ClientId(1), Tag::NONE, faktory(queue), &mut context);
    }
    let unserved = || WarningKind::Unserved {
        jobs: Protocol::FAKTORY,
        workers: vec![Protocol::GEARMAN],
    };
    assert_eq!(
        context.warnings,
        ["q", "r"].map(|queue| warn(queue, unserved()))
    );
}

#[test]
fn a_conversion_error_of_another_protocol_gives_a_notice() {
    let mut broker = broker();
    broker.hear(1, faktory("b"));
    broker.hear(11, take(["b"]));
    let why = name("conversion: no");
    let unfit = |queue, job, is_dead| Warning {
        name: name(job),
        why: why.clone(),
        ..warn(queue, WarningKind::Unfit { is_dead })
    };
    assert_eq!(
        warnings(&mut broker, 11, misfit(1, Proof::Connection)),
        [unfit("b", "1", false)]
    );
    broker.hear(1, faktory("q"));
    broker.hear(21, take(["q"]));
    assert_eq!(
        warnings(&mut broker, 21, misfit(2, Proof::Connection)),
        [unfit("q", "2", true)]
    );
}
