//! Which clients may take which jobs: in isolated queues, in bridged queues, and after conversion errors.

use windlass_engine::{
    Backoff, Bridge, ClientCommand, ClientInfo, Codec, Command, Event, JobCommand, JobStateKind,
    LeaseCommand, LeaseTerms, MISFIT, Mutation, Proof, Protocol, Query, QueueCommand, QueueKind,
    QueueRow, QueueRules, QueueSettings, Reply, Select, Subscription, TakeCommand,
};

use crate::common::*;

fn bridge(queues: &[&'static str]) -> Command {
    let patterns = queues.iter().map(|queue| name(queue)).collect();
    Command::Queue(QueueCommand::Bridge(Box::new(Bridge {
        patterns,
        ..Bridge::default()
    })))
}

/// Clients 11 and 12 use Gearman's protocol, 21 and 22 Faktory's; 1 to 4 have no protocol. `b` and all queues that
/// begin with `b-` are bridged.
pub(crate) fn broker() -> Broker {
    let mut broker = Broker::new();
    for (client, protocol) in [
        (11, Protocol::GEARMAN),
        (12, Protocol::GEARMAN),
        (21, Protocol::FAKTORY),
        (22, Protocol::FAKTORY),
    ] {
        broker.hear(
            client,
            ClientCommand::Open(ClientInfo {
                protocol: Some(protocol),
                ..ClientInfo::default()
            }),
        );
    }
    broker.says(1, bridge(&["b", "b-*"]), ["1 done"]);
    broker
}

pub(crate) fn gearman(queue: &'static str) -> Push {
    push(queue)
}

pub(crate) fn faktory(queue: &'static str) -> Push {
    push(queue).with(|job| job.protocol = Protocol::FAKTORY)
}

#[test]
fn each_protocol_has_its_own_jobs_in_their_own_order() {
    let mut broker = broker();
    broker.says(1, gearman("q"), ["1 new j1"]);
    broker.says(1, faktory("q"), ["1 new j2"]);
    broker.says(1, faktory("q").priority(9), ["1 new j3"]);
    broker.says(1, gearman("q").front(), ["1 new j4"]);
    broker.says(1, gearman("q"), ["1 new j5"]);
    broker.says(21, take(["q"]), ["21 took j3.1"]);
    broker.says(11, take(["q"]), ["11 took j4.1"]);
    broker.says(11, take(["q"]), ["11 took j1.1"]);
    // A returned job is at the original position among the jobs of the same protocol.
    broker.says(11, release(1, false), ["11 done"]);
    broker.says(11, take(["q"]), ["11 took j1.2"]);
    broker.says(21, take(["q"]), ["21 took j2.1"]);
    broker.says(21, take(["q"]), ["21 empty"]);
    // A client without a protocol gets all jobs.
    broker.says(21, release(3, false), ["21 done"]);
    broker.says(4, take(["q"]), ["4 took j3.2"]);
    broker.says(4, take(["q"]), ["4 took j5.1"]);
}

#[test]
fn a_take_skips_queues_without_visible_jobs() {
    let table = [
        Select::ListOrder,
        Select::BestPriority,
        Select::RoundRobin,
        Select::Weighted,
    ];
    for select in table {
        let mut broker = broker();
        broker.says(1, gearman("q").priority(9), ["1 new j1"]);
        broker.says(1, faktory("r"), ["1 new j2"]);
        broker.says(21, take(["q", "r"]).select(select), ["21 took j2.1"]);
    }
}

#[test]
fn no_client_is_served_or_woken_for_jobs_it_does_not_see() {
    // The way of waiting, and which client gets a Gearman job and then a Faktory one.
    let served = |broker: &mut Broker, expected: [&str; 2]| {
        for (job, expected) in [gearman("q"), faktory("q")].into_iter().zip(expected) {
            let said: Vec<_> = broker
                .hear(1, job)
                .into_iter()
                .filter(|(client, _)| client.0 != 1)
                .collect();
            broker.engine.check();
            assert_eq!(words(&said).join(", "), expected);
        }
    };
    // Blocked: Faktory's client was first.
    let mut waiting = broker();
    waiting.says(21, take(["q"]).forever(), []);
    waiting.says(11, take(["q"]).forever(), []);
    served(&mut waiting, ["11 took j1.1", "21 took j2.1"]);
    // Asleep.
    let mut waiting = broker();
    for client in [21, 22, 11] {
        waiting.says(client, serve("q"), []);
        waiting.says(client, Command::Take(TakeCommand::WaitForWork), []);
    }
    served(&mut waiting, ["11 woken", "21 woken"]);
    waiting.says(11, Command::Take(TakeCommand::WaitForWork), ["11 woken"]);
    waiting.says(12, serve("q"), []);
    waiting.says(12, take_served(), ["12 took j1.1"]);
    waiting.says(11, take_served(), ["11 empty"]);
    waiting.says(11, Command::Take(TakeCommand::WaitForWork), []);
    // On credit.
    let mut waiting = broker();
    for client in [21, 11] {
        waiting.says(client, serve("q"), []);
        waiting.says(client, credit(1), []);
    }
    served(&mut waiting, ["11 took j1.1", "21 took j2.1"]);
    // A woken client that sees all jobs may take any of them. The remaining jobs are for the others.
    let mut waiting = broker();
    for client in [4, 11] {
        waiting.says(client, serve("q"), []);
        waiting.says(client, Command::Take(TakeCommand::WaitForWork), []);
    }
    served(&mut waiting, ["4 woken", ""]);
    waiting.says(1, gearman("q"), ["11 woken", "1 new j3"]);
    waiting.says(4, take_served(), ["4 took j1.1"]);
}

#[test]
fn strays_are_jobs_that_no_client_of_their_audience_serves() {
    let unclaimed = |protocol| Subscription {
        queue: name("default"),
        weight: 0,
        lease: LeaseTerms::CONNECTION,
        unclaimed: Some(protocol),
    };
    let mut broker = broker();
    // Gearman's jobs are served, by a worker that sees no others.
    broker.says(11, serve("q"), []);
    broker.says(1, gearman("q"), ["1 new j1"]);
    broker.says(1, faktory("q"), ["1 new j2"]);
    broker.says(1, faktory("q"), ["1 new j3"]);
    broker.says(
        21,
        Command::Client(ClientCommand::Serve(unclaimed(Protocol::FAKTORY))),
        [],
    );
    broker.says(21, credit(1), ["21 took j2.1"]);
    // A client of another protocol gets none of them.
    broker.says(
        12,
        Command::Client(ClientCommand::Serve(unclaimed(Protocol::FAKTORY))),
        [],
    );
    broker.says(12, credit(1), []);
    broker.says(21, credit(1), ["21 took j3.1"]);
    // No client serves Gearman's jobs now, so they are unclaimed too, for clients that take
    // unclaimed jobs.
    broker.says(11, unserve("q", false), []);
    broker.says(21, credit(1), []);
    broker.says(
        4,
        Command::Client(ClientCommand::Serve(unclaimed(Protocol::GEARMAN))),
        [],
    );
    broker.says(4, credit(1), ["4 took j1.1"]);
    // Each protocol has a separate first job, which is not affected by the other's.
    broker.says(1, gearman("q"), ["1 new j4"]);
    broker.says(1, faktory("q"), ["1 new j5", "21 took j5.1"]);
    // In a bridged queue, unclaimed jobs have the protocol of the first job.
    broker.says(1, bridge(&["q"]), ["1 done"]);
    broker.says(1, faktory("q"), ["1 new j6"]);
    broker.says(4, credit(1), ["4 took j4.1", "12 took j6.1"]);
}

#[test]
fn a_queue_is_bridged_and_isolated_again_while_in_use() {
    let mut broker = broker();
    broker.says(21, take(["q"]).forever(), []);
    broker.says(1, gearman("q"), ["1 new j1"]);
    broker.says(1, gearman("q"), ["1 new j2"]);
    // It is waiting for jobs of other protocols; now there are none.
    broker.says(1, bridge(&["q"]), ["21 took j1.1", "1 done"]);
    broker.says(21, serve("q"), []);
    broker.says(21, Command::Take(TakeCommand::WaitForWork), ["21 woken"]);
    broker.says(11, serve("q"), []);
    broker.says(11, Command::Take(TakeCommand::WaitForWork), ["11 woken"]);
    broker.says(12, serve("q"), []);
    broker.says(1, bridge(&[]), ["1 done"]);
    // The client that was woken for jobs that it no longer sees.
    broker.says(21, take_served(), ["21 empty"]);
    broker.says(21, release(1, false), ["21 done"]);
    broker.says(12, take_served(), ["12 took j1.2"]);
    broker.says(11, take_served(), ["11 took j2.1"]);
}

/// The rows of a client's listing: name, jobs ready, workers, whether it is paused, and the limit of a normal job.
fn rows(broker: &mut Broker, client: u64) -> Vec<(String, u32, u32, bool, Option<u32>)> {
    let events = broker.hear(client, list_queues());
    let [(_, Event::Reply(_, Reply::Queues { rows, .. }))] = events.as_slice() else {
        panic!("{events:?}")
    };
    let row = |row: &QueueRow| {
        assert_eq!(
            row.ready.iter().sum::<u32>(),
            row.jobs(JobStateKind::Ready),
            "{row:?}"
        );
        assert_eq!(
            row.oldest_ready_at.is_some(),
            row.jobs(JobStateKind::Ready) > 0,
            "{row:?}"
        );
        let name = String::from_utf8(row.name.to_vec()).unwrap();
        (
            name,
            row.jobs(JobStateKind::Ready),
            row.workers,
            row.is_paused(),
            row.jobs_max[4],
        )
    };
    rows.iter().map(row).collect()
}

#[test]
fn a_listing_has_the_part_of_the_clients_protocol() {
    let mut broker = broker();
    broker.says(1, gearman("q"), ["1 new j1"]);
    broker.says(1, faktory("q").priority(9), ["1 new j2"]);
    broker.says(1, faktory("q"), ["1 new j3"]);
    broker.says(1, faktory("f"), ["1 new j4"]);
    broker.says(1, faktory("b"), ["1 new j5"]);
    broker.says(11, serve("q"), []);
    let row = |name: &str, ready, workers| (name.to_owned(), ready, workers, false, None);
    assert_eq!(rows(&mut broker, 11), [row("q", 1, 1), row("b", 1, 0)]);
    assert_eq!(
        rows(&mut broker, 21),
        [row("q", 2, 0), row("f", 1, 0), row("b", 1, 0)]
    );
    assert_eq!(
        rows(&mut broker, 1),
        [row("q", 3, 1), row("f", 1, 0), row("b", 1, 0)]
    );
    // The record that a protocol has used a queue remains after the last job.
    broker.says(11, take(["q"]), ["11 took j1.1"]);
    broker.says(11, finish(1), ["11 finished j1"]);
    assert_eq!(rows(&mut broker, 11)[0], row("q", 0, 1));
    // A listing sorts jobs by their order in the full queue, for any client.
    broker.says(
        1,
        list_jobs(in_queue("q", JobStateKind::Ready)),
        ["1 jobs j2 j3"],
    );
}

#[test]
fn a_pause_holds_back_the_jobs_of_the_clients_protocol() {
    let mut broker = broker();
    broker.says(1, faktory("q"), ["1 new j1"]);
    broker.says(1, gearman("q"), ["1 new j2"]);
    broker.says(21, pause("q", true), ["21 done"]);
    broker.says(22, take(["q"]).forever(), []);
    broker.says(11, take(["q"]), ["11 took j2.1"]);
    broker.says(4, take(["q"]), ["4 empty"]);
    let paused = |broker: &mut Broker| [11, 21, 1].map(|client| rows(broker, client)[0].3);
    assert_eq!(paused(&mut broker), [false, true, true]);
    // A client without a protocol pauses all jobs, and each protocol resumes only those of that
    // protocol.
    broker.says(1, pause("q", true), ["1 done"]);
    assert_eq!(paused(&mut broker), [true, true, true]);
    broker.says(21, pause("q", false), ["22 took j1.1", "21 done"]);
    assert_eq!(paused(&mut broker), [true, false, true]);
    broker.says(1, gearman("q"), ["1 new j3"]);
    broker.says(11, take(["q"]), ["11 empty"]);
    broker.says(1, pause("q", false), ["1 done"]);
    broker.says(11, take(["q"]), ["11 took j3.1"]);
}

#[test]
fn a_pause_of_a_bridged_queue_is_for_all() {
    let mut broker = broker();
    broker.says(21, pause("b", true), ["21 done"]);
    broker.says(1, faktory("b"), ["1 new j1"]);
    broker.says(21, pause("b", true), ["21 done"]);
    broker.says(11, take(["b"]), ["11 empty"]);
    broker.says(12, pause("b", false), ["12 done"]);
    broker.says(11, take(["b"]), ["11 took j1.1"]);
}

#[test]
fn a_limit_counts_the_jobs_of_the_clients_protocol() {
    let mut broker = broker();
    broker.says(11, limit("q", 1), ["11 done"]);
    broker.says(1, faktory("q"), ["1 new j1"]);
    broker.says(1, faktory("q"), ["1 new j2"]);
    broker.says(1, gearman("q"), ["1 new j3"]);
    broker.says(
        1,
        gearman("q"),
        ["1 refused: queue is full: jobs 1, limit 1"],
    );
    let limits = |broker: &mut Broker| [11, 21, 1].map(|client| rows(broker, client)[0].4);
    assert_eq!(limits(&mut broker), [Some(1), None, Some(1)]);
    // The limit of a client without a protocol is for all.
    broker.says(1, limit("q", 3), ["1 done"]);
    assert_eq!(limits(&mut broker), [Some(3), Some(3), Some(3)]);
    broker.says(
        1,
        faktory("q"),
        ["1 refused: queue is full: jobs 3, limit 3"],
    );
    broker.says(1, remove_queue("q", false), ["1 done"]);
    assert_eq!(broker.engine.job_count(), 0);
}

#[test]
fn a_cycle_queue_is_never_bridged() {
    let mut broker = Broker::new();
    broker.says(1, create("c", QueueKind::Cycle), ["1 done"]);
    broker.says(1, bridge(&["*"]), ["1 done"]);
    broker.says(1, faktory("c").cycle(), ["1 new j1"]);
    broker.hear(
        11,
        ClientCommand::Open(ClientInfo {
            protocol: Some(Protocol::GEARMAN),
            ..ClientInfo::default()
        }),
    );
    broker.says(11, take_round("c"), ["11 took j1.2"]);
}

// ---- conversion errors ---------------------------------------------------------------------------------------------

pub(crate) fn misfit(job: u64, proof: Proof) -> Command {
    Command::Lease(LeaseCommand::Unconvertible {
        job: id(job),
        proof,
        why: name("conversion: no"),
    })
}

/// The state of a job, its deliveries, and its failures.
fn place(broker: &Broker, job: u64) -> (JobStateKind, u32, u32) {
    let job = broker.engine.job(windlass_engine::JobId(job)).unwrap();
    (job.state.kind(), job.attempts, job.failures)
}

#[test]
fn after_a_conversion_error_a_job_waits_at_its_position_for_another_protocol() {
    let mut broker = broker();
    broker.says(1, faktory("b"), ["1 new j1"]);
    broker.says(1, faktory("b"), ["1 new j2"]);
    broker.says(11, take(["b"]), ["11 took j1.1"]);
    broker.says(11, misfit(1, Proof::Connection), ["11 done"]);
    assert_eq!(place(&broker, 1), (JobStateKind::Ready, 1, 0));
    // That protocol never sees the job again, but gets all other jobs.
    broker.says(12, take(["b"]), ["12 took j2.1"]);
    broker.says(11, take(["b"]).forever(), []);
    broker.says(11, Command::Take(TakeCommand::Unwait), []);
    broker.says(12, serve("b"), []);
    broker.says(12, Command::Take(TakeCommand::WaitForWork), []);
    broker.says(12, Command::Take(TakeCommand::Unwait), []);
    broker.says(12, credit(1), []);
    broker.says(12, Command::Take(TakeCommand::Unwait), []);
    // For another protocol it is still the first.
    broker.says(12, release(2, false), ["12 done"]);
    broker.says(21, take(["b"]), ["21 took j1.2"]);
    let totals = broker.engine.meta().totals;
    assert_eq!(
        (totals.misfits, totals.buried, totals.failed, totals.lost),
        (1, 0, 0, 0)
    );
}

#[test]
fn after_a_conversion_error_a_waiting_client_of_another_protocol_gets_the_job() {
    let mut broker = broker();
    for foreground in [false, true] {
        broker.says(11, take(["b"]).forever(), []);
        let job = if foreground {
            faktory("b").foreground()
        } else {
            faktory("b")
        };
        let said = broker.hear(1, job);
        assert_eq!(said.len(), 2, "{said:?}");
        broker.says(21, take(["b"]).forever(), []);
        let job = if foreground { 2 } else { 1 };
        broker.says(
            11,
            misfit(job, Proof::Connection),
            [&*format!("21 took j{job}.2"), "11 done"],
        );
    }
}

#[test]
fn a_job_that_no_protocol_can_express_is_dead_lettered() {
    // Isolated: there is only one protocol.
    let mut broker = broker();
    broker.says(1, faktory("q").retry(25, Backoff::None), ["1 new j1"]);
    broker.says(21, take(["q"]), ["21 took j1.1"]);
    broker.says(21, misfit(1, Proof::Connection), ["21 done"]);
    assert_eq!(place(&broker, 1), (JobStateKind::Dead, 1, 0));
    // Bridged: all protocols have tried.
    broker.hear(
        31,
        ClientCommand::Open(ClientInfo {
            protocol: Some(Protocol::EVENTMQ),
            ..ClientInfo::default()
        }),
    );
    broker.says(1, gearman("b"), ["1 new j2"]);
    for (round, (client, expected)) in [
        (21, JobStateKind::Ready),
        (31, JobStateKind::Ready),
        (11, JobStateKind::Dead),
    ]
    .into_iter()
    .enumerate()
    {
        broker.says(
            client,
            take(["b"]),
            [&*format!("{client} took j2.{}", round + 1)],
        );
        broker.says(
            client,
            misfit(2, Proof::Connection),
            [&*format!("{client} done")],
        );
        assert_eq!(place(&broker, 2).0, expected);
    }
    let failure = broker
        .engine
        .job(windlass_engine::JobId(2))
        .unwrap()
        .extra
        .as_deref()
        .unwrap()
        .failure
        .clone();
    assert_eq!(&*failure.unwrap().kind, MISFIT);
    // A retry tries all protocols again.
    broker.hear(1, mutate(placed(JobStateKind::Dead), Mutation::Requeue));
    broker.says(21, take(["b"]), ["21 took j2.4"]);
}

#[test]
fn a_new_body_or_codec_clears_conversion_errors() {
    let changes: [fn() -> Command; 3] = [
        || {
            Command::Job(JobCommand::Replace {
                job: id(1),
                body: name("b"),
            })
        },
        || {
            let rules = QueueRules {
                codec: Codec::Json,
                ..QueueRules::default()
            };
            Command::Queue(QueueCommand::SetRules {
                queue: name("b"),
                rules: rules.into(),
            })
        },
        || {
            let rules = QueueRules {
                codec: Codec::Json,
                ..QueueRules::default()
            };
            let json = QueueSettings {
                rules,
                ..QueueSettings::default()
            };
            Command::Queue(QueueCommand::SetPatterns(Box::new(
                [(name("b*"), json)].into_iter().collect(),
            )))
        },
    ];
    for change in changes {
        let mut broker = broker();
        broker.says(1, faktory("b"), ["1 new j1"]);
        broker.says(11, take(["b"]), ["11 took j1.1"]);
        broker.says(11, misfit(1, Proof::Connection), ["11 done"]);
        broker.says(11, take(["b"]).forever(), []);
        broker.says(1, change(), ["11 took j1.2", "1 done"]);
    }
}

#[test]
fn after_the_bridge_is_removed_each_protocol_sees_its_own_jobs() {
    let mut broker = broker();
    broker.says(1, faktory("b-x"), ["1 new j1"]);
    broker.says(11, take(["b-x"]), ["11 took j1.1"]);
    broker.says(11, misfit(1, Proof::Connection), ["11 done"]);
    broker.says(1, bridge(&[]), ["1 done"]);
    broker.says(11, take(["b-x"]), ["11 empty"]);
    broker.says(21, take(["b-x"]), ["21 took j1.2"]);
}

#[test]
fn a_client_removes_the_part_of_its_protocol_from_an_isolated_queue() {
    for (queue, left) in [
        ("q", vec![("q".to_owned(), 1, 0, false, Some(5))]),
        ("b", Vec::new()),
    ] {
        let mut broker = broker();
        broker.says(1, gearman(queue), ["1 new j1"]);
        broker.says(1, faktory(queue), ["1 new j2"]);
        broker.says(11, limit(queue, 5), ["11 done"]);
        broker.says(21, pause(queue, true), ["21 done"]);
        broker.says(21, remove_queue(queue, true), ["21 refused: queue in use"]);
        broker.says(21, remove_queue(queue, false), ["21 done"]);
        assert_eq!(rows(&mut broker, 11), left);
        assert_eq!(rows(&mut broker, 21), []);
        broker.says(
            21,
            remove_queue(queue, false),
            ["21 refused: queue unknown"],
        );
    }
    // Idle as seen by the client. The limit is removed with the protocol that set it.
    let mut broker = broker();
    broker.says(11, serve("q"), []);
    broker.says(11, limit("q", 5), ["11 done"]);
    broker.says(1, faktory("q"), ["1 new j1"]);
    broker.says(11, remove_queue("q", true), ["11 refused: queue in use"]);
    broker.says(11, unserve("q", true), []);
    broker.says(11, remove_queue("q", true), ["11 done"]);
    assert_eq!(rows(&mut broker, 1), [("q".to_owned(), 1, 0, false, None)]);
    broker.says(1, remove_queue("q", false), ["1 done"]);
    assert_eq!(broker.engine.queues().count(), 0);
}

#[test]
fn a_queue_that_no_protocol_has_made_its_own_goes_with_the_first_that_removes_it() {
    let mut broker = broker();
    broker.says(1, create("q", QueueKind::Work), ["1 done"]);
    broker.says(21, remove_queue("q", false), ["21 done"]);
    assert_eq!(broker.engine.queues().count(), 0);
    broker.says(1, create("q", QueueKind::Work), ["1 done"]);
    broker.says(11, serve("q"), []);
    broker.says(21, remove_queue("q", false), ["21 done"]);
    assert_eq!(rows(&mut broker, 11), [("q".to_owned(), 0, 1, false, None)]);
}

// ---- fairness between protocols ------------------------------------------------------------------------------------

#[test]
fn between_protocols_the_longest_wait_is_served_first_regardless_of_weights() {
    let heavy = |weight| Subscription {
        queue: name("b"),
        weight,
        lease: LeaseTerms::CONNECTION,
        unclaimed: None,
    };
    let mut broker = broker();
    for client in [31, 32] {
        broker.hear(
            client,
            ClientCommand::Open(ClientInfo {
                protocol: Some(Protocol::EVENTMQ),
                ..ClientInfo::default()
            }),
        );
    }
    broker.says(21, take(["b"]).forever(), []);
    broker.says(31, Command::Client(ClientCommand::Serve(heavy(10))), []);
    broker.says(31, credit(3), []);
    broker.says(32, Command::Client(ClientCommand::Serve(heavy(20))), []);
    broker.says(32, credit(1), []);
    broker.says(22, take(["b"]).forever(), []);
    let said = |broker: &mut Broker| {
        let all = broker.hear(1, gearman("b"));
        all.iter()
            .filter(|(client, _)| client.0 != 1)
            .map(|(client, _)| client.0)
            .collect::<Vec<_>>()
    };
    // Faktory's client first; then EventMQ's heaviest; then Faktory's second, which waited before the next turn of
    // EventMQ's other.
    assert_eq!(
        [21, 32, 31, 22, 31].map(|_| said(&mut broker)),
        [[21], [32], [31], [22], [31]]
    );
}

#[test]
fn sleepers_have_their_turn_among_clients_of_other_protocols() {
    let mut broker = broker();
    broker.hear(
        31,
        ClientCommand::Open(ClientInfo {
            protocol: Some(Protocol::EVENTMQ),
            ..ClientInfo::default()
        }),
    );
    for client in [11, 31] {
        broker.says(client, serve("b"), []);
    }
    broker.says(11, TakeCommand::WaitForWork, []);
    broker.says(21, take(["b"]).forever(), []);
    broker.says(31, credit(1), []);
    // Each worker finishes a job and waits again, so they take turns.
    for job in [1, 4, 7] {
        let [first, second, third] = [job, job + 1, job + 2];
        broker.says(1, gearman("b"), ["11 woken", &format!("1 new j{first}")]);
        broker.says(11, take_served(), [&*format!("11 took j{first}.1")]);
        broker.says(11, finish(first), [&*format!("11 finished j{first}")]);
        broker.says(11, TakeCommand::WaitForWork, []);
        broker.says(
            1,
            faktory("b"),
            [
                &*format!("21 took j{second}.1"),
                &format!("1 new j{second}"),
            ],
        );
        broker.says(21, finish(second), [&*format!("21 finished j{second}")]);
        broker.says(21, take(["b"]).forever(), []);
        broker.says(
            1,
            gearman("b"),
            [&*format!("31 took j{third}.1"), &format!("1 new j{third}")],
        );
        broker.says(31, finish(third), [&*format!("31 finished j{third}")]);
        broker.says(31, credit(1), []);
    }
}

#[test]
fn a_client_sees_how_many_serve_a_queue_beside_its_own_jobs() {
    let mut broker = broker();
    broker.says(1, gearman("q"), ["1 new j1"]);
    broker.says(1, faktory("q"), ["1 new j2"]);
    broker.says(1, pause("q", true), ["1 done"]);
    for client in [11, 21, 22, 4] {
        broker.says(client, take(["q"]).forever(), []);
    }
    broker.says(12, serve("q"), []);
    broker.says(12, TakeCommand::WaitForWork, []);
    for (client, workers) in [(11, 3), (21, 3), (3, 5)] {
        let events = broker.hear(client, Query::Queue { queue: "q".into() });
        let [(_, Event::Reply(_, Reply::Queues { rows, .. }))] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert_eq!(
            (rows[0].workers, rows[0].waiting),
            (workers, Some(workers)),
            "{client}"
        );
    }
}
