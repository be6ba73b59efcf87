//! Which objects of another protocol a client reaches: commands × protocols × isolated or bridged.

use crate::common::*;
use bytes::Bytes;
use windlass_engine::{
    BatchCommand, Bridge, BulkCommand, Clash, ClientCommand, ClientInfo, Command, Cursor,
    JobCommand, JobRef, JobStateKind, Mutation, NewBatch, Proof, Protocol, Query, QueueCommand,
    QueueKind, QueueRules, ScheduleCommand, ScheduleRef, TakeCommand,
};

/// The clients and their protocols. Client 1 is an operator.
const CLIENTS: [(u64, Option<Protocol>); 6] = [
    (1, None),
    (21, Some(Protocol::FAKTORY)),
    (11, Some(Protocol::GEARMAN)),
    (31, Some(Protocol::SPIDERQ)),
    (41, Some(Protocol::EVENTMQ)),
    (51, Some(Protocol::HTTP)),
];

fn broker(bridged: &[&'static str]) -> Broker {
    let mut broker = Broker::new();
    for (client, protocol) in CLIENTS.into_iter().skip(1) {
        broker.hear(
            client,
            ClientCommand::Open(ClientInfo {
                protocol,
                ..ClientInfo::default()
            }),
        );
    }
    bridge(&mut broker, bridged);
    broker
}

fn bridge(broker: &mut Broker, queues: &[&'static str]) {
    let patterns = queues.iter().map(|queue| name(queue)).collect();
    broker.says(
        1,
        QueueCommand::Bridge(Box::new(Bridge {
            patterns,
            ..Bridge::default()
        })),
        ["1 done"],
    );
}

fn faktory() -> Push {
    push("q").with(|job| job.protocol = Protocol::FAKTORY)
}

/// Faktory's objects: in `q` a ready job j1 and a leased job j2, a schedule s3, a batch.
fn fleet(bridged: bool) -> Broker {
    let mut broker = broker(if bridged { &["q"] } else { &[] });
    broker.says(21, faktory().priority(9), ["21 new j1"]);
    broker.says(21, take(["q"]), ["21 took j1.1"]);
    broker.says(21, release(1, false), ["21 done"]);
    broker.says(
        21,
        faktory().named("n").unique("k", Clash::Keep).priority(1),
        ["21 new j2"],
    );
    broker.says(21, every(60_000, faktory()).key("s"), ["21 schedule s3"]);
    let batch = NewBatch {
        protocol: Protocol::FAKTORY,
        name: name("b"),
        parent: None,
        about: Bytes::new(),
        meta: Bytes::new(),
        complete: None,
        success: None,
        expires_ms: 60_000,
    };
    broker.says(21, BatchCommand::New(Box::new(batch)), ["21 done"]);
    broker.says(21, take(["q"]), ["21 took j1.2"]);
    broker
}

fn by_keyed_name() -> JobRef {
    JobRef::key(name("q"), Protocol::FAKTORY, name("k"))
}

fn preview(action: Mutation) -> Command {
    Command::Query(Query::Preview {
        filter: all().into(),
        action,
        after: Cursor::default(),
        limit: 100,
    })
}

fn flush(protocol: Protocol) -> Command {
    BulkCommand::Flush {
        protocol,
        after: Cursor::default(),
        limit: 100,
    }
    .into()
}

fn track(job: JobRef) -> Command {
    JobCommand::Track {
        job,
        progress: Some((1, 2)),
        text: None,
        until: None,
    }
    .into()
}

fn replace(job: JobRef) -> Command {
    JobCommand::Replace {
        job,
        body: name("new"),
    }
    .into()
}

/// Which protocols can reach an object when the queue is bridged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shared {
    /// All protocols.
    Yes,
    /// Still the protocol's that made it.
    No,
}

/// The command, the reply to a client that reaches Faktory's objects, the reply to any other client.
type Row = (Shared, fn() -> Command, &'static str, &'static str);

const UNKNOWN_JOB: &str = "refused: job unknown";
const UNKNOWN_SCHEDULE: &str = "refused: schedule unknown";
const UNKNOWN_BATCH: &str = "refused: batch unknown";

fn queries() -> Vec<Row> {
    vec![
        (
            Shared::Yes,
            || look(2),
            "sees j2 ready in q",
            "sees nothing",
        ),
        (
            Shared::Yes,
            || Query::Job(by_name("n")).into(),
            "sees j2 ready in q",
            "sees nothing",
        ),
        (
            Shared::Yes,
            || Query::Job(by_keyed_name()).into(),
            "sees j2 ready in q",
            "sees nothing",
        ),
        (
            Shared::Yes,
            || look(3),
            "sees s3 in q at 61000",
            "sees nothing",
        ),
        (
            Shared::Yes,
            || Query::Why(id(2)).into(),
            "Behind { jobs: 0, more: false }",
            UNKNOWN_JOB,
        ),
        (
            Shared::Yes,
            || Query::Queue { queue: name("q") }.into(),
            "queues q",
            "queues",
        ),
        (Shared::Yes, list_queues, "queues q", "queues"),
        (Shared::Yes, || list_jobs(all()), "jobs j2 j1", "jobs"),
        (
            Shared::Yes,
            || list_jobs(in_queue("q", JobStateKind::Ready)),
            "jobs j2",
            "jobs",
        ),
        (
            Shared::Yes,
            || list_jobs(with_names(["n"])),
            "jobs j2",
            "jobs",
        ),
        (
            Shared::Yes,
            || preview(Mutation::Cancel),
            "counted 2",
            "counted 0",
        ),
        (
            Shared::Yes,
            || list_schedules(0, 100),
            "schedules s3",
            "schedules",
        ),
        (
            Shared::No,
            || {
                Query::Batches {
                    after: Cursor::default(),
                    limit: 9,
                }
                .into()
            },
            "batches b",
            "batches",
        ),
        (
            Shared::No,
            || Query::Batch { batch: name("b") }.into(),
            "sees batch b",
            UNKNOWN_BATCH,
        ),
    ]
}

fn changes() -> Vec<Row> {
    vec![
        (
            Shared::Yes,
            || JobCommand::Cancel(id(1)).into(),
            "done",
            UNKNOWN_JOB,
        ),
        (
            Shared::Yes,
            || JobCommand::Cancel(by_name("n")).into(),
            "done",
            UNKNOWN_JOB,
        ),
        (Shared::Yes, || track(id(1)), "done", UNKNOWN_JOB),
        (Shared::Yes, || replace(id(2)), "done", UNKNOWN_JOB),
        (
            Shared::Yes,
            || finish_by(1, Proof::AnyLease),
            "finished j1",
            UNKNOWN_JOB,
        ),
        (
            Shared::Yes,
            || fail_by(1, Proof::AnyLease),
            "failed j1, discarded",
            UNKNOWN_JOB,
        ),
        (
            Shared::Yes,
            || mutate(all(), Mutation::Cancel),
            "mutated 2",
            "mutated 0",
        ),
        (
            Shared::Yes,
            || mutate(in_queue("q", JobStateKind::Ready), Mutation::Discard),
            "mutated 1",
            "mutated 0",
        ),
        (
            Shared::Yes,
            || mutate(with_names(["n"]), Mutation::Kill),
            "mutated 1",
            "mutated 0",
        ),
        (
            Shared::Yes,
            || remove_queue("q", false),
            "done",
            "refused: queue unknown",
        ),
        (Shared::Yes, || remove_schedule(3), "done", UNKNOWN_SCHEDULE),
        (
            Shared::Yes,
            || ScheduleCommand::Run(schedule()).into(),
            "new j5",
            UNKNOWN_SCHEDULE,
        ),
        (
            Shared::Yes,
            || pause_schedule(true),
            "done",
            UNKNOWN_SCHEDULE,
        ),
        (
            Shared::No,
            || flush(Protocol::FAKTORY),
            "mutated 1 and more",
            "refused: not allowed in this state",
        ),
        (
            Shared::No,
            || {
                BatchCommand::Open {
                    batch: name("b"),
                    hold_ms: 9,
                }
                .into()
            },
            "done",
            UNKNOWN_BATCH,
        ),
        (
            Shared::No,
            || BatchCommand::Commit { batch: name("b") }.into(),
            "done",
            UNKNOWN_BATCH,
        ),
    ]
}

fn schedule() -> ScheduleRef {
    ScheduleRef::Id(windlass_engine::JobId(3))
}

fn pause_schedule(paused: bool) -> Command {
    ScheduleCommand::Pause {
        schedule: schedule(),
        paused,
    }
    .into()
}

#[test]
fn a_command_reaches_what_its_protocol_has_made_and_what_is_bridged() {
    for (shared, command, reached, other) in queries().into_iter().chain(changes()) {
        for bridged in [false, true] {
            for (client, protocol) in CLIENTS {
                let is_own = protocol.is_none_or(|own| own == Protocol::FAKTORY);
                let expected = if is_own || bridged && shared == Shared::Yes {
                    reached
                } else {
                    other
                };
                let mut broker = fleet(bridged);
                let said = words(&broker.hear(client, command()));
                broker.engine.check();
                // Other clients may be notified of the change, too.
                let said = said.last().map(String::as_str).unwrap_or_default();
                let what = format!("{protocol:?} {:?}, bridged: {bridged}", command());
                assert_eq!(said, format!("{client} {expected}"), "{what}");
                if expected == other {
                    assert_eq!(
                        words(&broker.hear(1, list_jobs(all()))),
                        ["1 jobs j2 j1"],
                        "{what}"
                    );
                    assert_eq!(broker.place(1), "leased", "{what}");
                }
            }
        }
    }
}

#[test]
fn a_name_means_a_job_that_the_client_sees() {
    let mut broker = broker(&[]);
    broker.says(11, push("q").named("n"), ["11 new j1"]);
    broker.says(21, faktory().named("n"), ["21 new j2"]);
    broker.says(11, take(["q"]), ["11 took j1.1"]);
    // The leased job would be first.
    broker.says(1, Query::Job(by_name("n")), ["1 sees j1 leased in q"]);
    broker.says(21, Query::Job(by_name("n")), ["21 sees j2 ready in q"]);
    broker.says(21, JobCommand::Cancel(by_name("n")), ["21 done"]);
    broker.says(11, finish(1), ["11 finished j1"]);
}

#[test]
fn a_worker_ends_a_job_whose_queue_is_bridged_no_more() {
    for named in [false, true] {
        let mut broker = broker(&["q"]);
        broker.says(21, enlist("w"), ["21 done"]);
        broker.says(11, push("q"), ["11 new j1"]);
        broker.says(
            21,
            take(["q"]).worker(if named { "w" } else { "" }),
            ["21 took j1.1"],
        );
        bridge(&mut broker, &[]);
        broker.says(21, look(1), ["21 sees nothing"]);
        // Faktory's workers report without a token, and over any of their connections.
        broker.says(
            41,
            finish_by(1, Proof::AnyLease),
            ["41 refused: job unknown"],
        );
        broker.says(21, finish_by(1, Proof::AnyLease), ["21 finished j1"]);
    }
}

#[test]
fn a_cycle_queue_is_of_spiderq_alone() {
    let rules = || QueueRules {
        body_bytes_max: Some(1),
        ..QueueRules::default()
    };
    let unknown = "refused: queue unknown";
    let wrong = "refused: queue of the other kind";
    let look = || Query::Queue { queue: name("c") };
    // The command and the reply to a client of another protocol.
    let table: [(Command, &str); 14] = [
        (remove_queue("c", false), unknown),
        (remove_queue("c", true), unknown),
        (pause("c", true), "done"),
        (limit("c", 1), wrong),
        (throttle("c", Some(0), None, None), wrong),
        (
            QueueCommand::SetRules {
                queue: name("c"),
                rules: rules().into(),
            }
            .into(),
            wrong,
        ),
        (create("c", QueueKind::Work), wrong),
        (push("c").into(), wrong),
        (look().into(), "queues"),
        (list_queues(), "queues"),
        (list_jobs(all()), "jobs"),
        (mutate(all(), Mutation::Cancel), "mutated 0"),
        (JobCommand::Cancel(id(1)).into(), UNKNOWN_JOB),
        (
            flush(Protocol::SPIDERQ),
            "refused: not allowed in this state",
        ),
    ];
    for (command, expected) in table {
        for (client, protocol) in CLIENTS
            .into_iter()
            .filter(|(_, of)| of.is_some_and(|of| of != Protocol::SPIDERQ))
        {
            // The daemon has created the queue, for all; and an operator has bridged everything.
            let mut broker = broker(&["*"]);
            broker.says(1, create("c", QueueKind::Cycle), ["1 done"]);
            let entry = || {
                push("c")
                    .cycle()
                    .with(|job| job.protocol = Protocol::SPIDERQ)
            };
            broker.says(31, entry(), ["31 new j1"]);
            broker.says(31, entry(), ["31 new j2"]);
            let said = words(&broker.hear(client, command.clone()));
            assert_eq!(
                said,
                [format!("{client} {expected}")],
                "{protocol:?} {command:?}"
            );
            broker.engine.check();
            broker.says(31, look(), ["31 queues c"]);
            broker.says(31, take_round("c"), ["31 took j1.3"]);
            broker.says(31, entry(), ["31 new j3"]);
        }
    }
    // Clients of spiderq and operators can reach it.
    for client in [1, 31] {
        let mut broker = broker(&[]);
        broker.says(
            31,
            push("c")
                .cycle()
                .with(|job| job.protocol = Protocol::SPIDERQ),
            ["31 new j1"],
        );
        broker.says(client, pause("c", true), [&*format!("{client} done")]);
        broker.says(31, take_round("c"), ["31 empty"]);
        broker.says(
            client,
            remove_queue("c", false),
            [&*format!("{client} done")],
        );
        assert_eq!(broker.engine.job_count(), 0);
    }
}

#[test]
fn a_listing_of_connections_shows_the_queues_that_the_client_sees() {
    for bridged in [&[][..], &["q"]] {
        let mut broker = broker(bridged);
        broker.says(21, serve("q"), []);
        broker.says(21, Command::Take(TakeCommand::WaitForWork), []);
        let served = |broker: &mut Broker, client| {
            let events = broker.hear(
                client,
                Query::Clients {
                    after: Cursor(21, 0),
                    limit: 1,
                },
            );
            let [
                (_, windlass_engine::Event::Reply(_, windlass_engine::Reply::Clients { rows, .. })),
            ] = &*events
            else {
                panic!("{events:?}")
            };
            rows[0].subscriptions.clone()
        };
        assert_eq!(served(&mut broker, 21), ["q"]);
        assert_eq!(served(&mut broker, 1), ["q"]);
        assert_eq!(served(&mut broker, 11), bridged);
    }
}
