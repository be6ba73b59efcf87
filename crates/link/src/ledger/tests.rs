//! The ledger of some conversations.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the rest of the kinds is shown as it is"
)]

mod beside;
mod waits;

use std::collections::BTreeSet;

use bytes::Bytes;
use windlass_engine::{
    Claim, ClientCommand, ClientInfo, End, Event, From, Held, JobCommand, JobId, JobRef,
    LeaseCommand, LeaseTerms, Listen, NewJob, Notice, Proof, Protocol, Pushed, Query, Refusal,
    Reply, Select, Subscription, Take, TakeCommand, Taken, Timestamp, Token, Wait, Watched,
    WorkerCommand, WorkerState,
};

use super::waits::command;
use super::*;

const BOUNDS: Bounds = Bounds {
    bytes_max: 1 << 20,
    client_bytes_max: 1 << 20,
};
const ONE: ClientId = ClientId(1);

// ---- conversations ------------------------------------------------------------------------------------------------

/// A step of a conversation with one client.
enum Step {
    /// It sends a command.
    ToLeader(u64, Command),
    /// This many commands take effect.
    Applied(u32),
    Reply(u64, Reply),
    Notice(Notice),
}

use Step::{Applied, Reply as Replied, ToLeader as Asked};

fn ask(tag: u64, command: impl Into<Command>) -> Step {
    Asked(tag, command.into())
}

fn open_one() -> Step {
    ask(0, ClientCommand::Open(ClientInfo::default()))
}

fn subscription(queue: &'static str) -> Subscription {
    Subscription {
        queue: queue.into(),
        weight: 0,
        lease: LeaseTerms::CONNECTION,
        unclaimed: None,
    }
}

fn serve(queue: &'static str) -> Step {
    ask(0, ClientCommand::Serve(subscription(queue)))
}

fn take_of(wait: Wait) -> TakeCommand {
    TakeCommand::Take(Take {
        from: From::Subscriptions,
        select: Select::BestPriority,
        wait,
        worker: Bytes::new(),
    })
}

fn job(durable: bool) -> NewJob {
    let job = NewJob::new(Protocol::GEARMAN, "q".into(), "body".into());
    NewJob {
        durable,
        listen: Listen::Yes,
        ..job
    }
}

fn push(tag: u64, durable: bool) -> Step {
    ask(tag, JobCommand::Push(Box::new(job(durable))))
}

fn pushed(tag: u64, number: u64, how: Pushed, durable: bool) -> Step {
    Replied(
        tag,
        Reply::Pushed {
            job: JobId(number),
            how,
            durable,
        },
    )
}

fn taken(number: u64, connection_bound: bool) -> Box<Taken> {
    Box::new(Taken {
        id: JobId(number),
        token: Token(3),
        queue: "q".into(),
        protocol: Protocol::GEARMAN,
        priority: windlass_engine::Priority::NORMAL,
        body: "body".into(),
        stored: None,
        codec: windlass_engine::Codec::Text,
        name: "name".into(),
        meta: Bytes::new(),
        key: "key".into(),
        attempts: 3,
        failures: 0,
        failures_max: 0,
        failure: None,
        ready_at: Timestamp(1),
        until: Timestamp(99),
        connection_bound,
        heard: false,
    })
}

fn ended(number: u64) -> Step {
    Step::Notice(Notice::Ended {
        job: JobId(number),
        end: End::Cancelled,
    })
}

fn finish(job: JobRef) -> Command {
    LeaseCommand::Finish {
        job,
        proof: Proof::Connection,
        result: Bytes::new(),
    }
    .into()
}

fn ledger_of(steps: Vec<Step>) -> Ledger {
    let mut ledger = Ledger::new(BOUNDS);
    ledger.sent(&ToLeader::Open {
        client: ONE,
        room: 1_000,
    });
    for step in steps {
        let event = |event| ToEdge::Event {
            client: ONE,
            gate: 0,
            event,
        };
        match step {
            Asked(tag, command) => ledger.sent(&ToLeader::Command {
                client: ONE,
                tag: Tag(tag),
                command,
            }),
            Applied(count) => ledger.received(&ToEdge::Applied { client: ONE, count }),
            Replied(tag, reply) => ledger.received(&event(Event::Reply(Tag(tag), reply))),
            Step::Notice(notice) => ledger.received(&event(Event::Notice(notice))),
        }
    }
    ledger
}

/// What is claimed, in short.
fn claimed(to_leader: &[ToLeader]) -> Vec<String> {
    to_leader.iter().map(short).collect()
}

fn short(item: &ToLeader) -> String {
    match item {
        ToLeader::Open { room, .. } => format!("room {room}"),
        ToLeader::Command { tag, command, .. } => {
            let command = match command {
                Command::Client(ClientCommand::Open(_)) => "open".to_owned(),
                Command::Client(ClientCommand::SetName(name)) => {
                    format!("name {}", name.escape_ascii())
                }
                Command::Client(ClientCommand::Serve(served)) => {
                    format!("serve {}", served.queue.escape_ascii())
                }
                Command::Client(ClientCommand::Watch { room, .. }) => format!("watch {room}"),
                Command::Take(TakeCommand::Take(_)) => "take".to_owned(),
                Command::Take(TakeCommand::WaitForWork) => "sleep".to_owned(),
                Command::Take(TakeCommand::Credit { credits, .. }) => format!("credit {credits}"),
                Command::Worker(WorkerCommand::Register { worker, .. }) => {
                    format!("worker {}", worker.escape_ascii())
                }
                Command::Worker(WorkerCommand::SetState { state, .. }) => format!("{state:?}"),
                other => format!("{other:?}"),
            };
            if *tag == Tag::NONE {
                command
            } else {
                format!("{command} {}", tag.0)
            }
        }
        ToLeader::Claim {
            claim: Claim::Holds { job, held },
            ..
        } => format!("holds {}.{}", job.0, held.token.0),
        ToLeader::Claim {
            claim: Claim::Hears { job },
            ..
        } => format!("hears {}", job.0),
        ToLeader::Claim {
            claim: Claim::Pushed { job, .. },
            ..
        } => format!("pushed {}", job.0),
        ToLeader::Claimed => "claimed".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_report_is_about_the_lease_that_the_client_knows() {
    let delivered = || Step::Notice(Notice::Delivered(taken(7, true)));
    let by_id = || JobRef::Id(JobId(7));
    let (known, none) = (Proof::Token(Token(3)), Proof::Token(Token(u64::MAX)));
    let table = [
        (
            "its job",
            vec![delivered()],
            by_id(),
            Proof::Connection,
            known,
        ),
        (
            "its job, by name",
            vec![delivered()],
            JobRef::Name("name".into()),
            Proof::Connection,
            known,
        ),
        (
            "a job that it has not heard of",
            vec![take_of_4()],
            by_id(),
            Proof::Connection,
            none,
        ),
        (
            "a job whose end has taken effect",
            vec![delivered(), end_of_7(), Applied(1)],
            by_id(),
            Proof::Connection,
            none,
        ),
        (
            "another job",
            vec![delivered()],
            JobRef::Name("other".into()),
            Proof::Connection,
            none,
        ),
        (
            "an earlier lease",
            vec![delivered()],
            by_id(),
            Proof::Token(Token(2)),
            Proof::Token(Token(2)),
        ),
        (
            "any lease",
            vec![delivered()],
            by_id(),
            Proof::AnyLease,
            Proof::AnyLease,
        ),
    ];
    for (what, steps, job, proof, expected) in table {
        let mut command = Command::from(LeaseCommand::Finish {
            job,
            proof,
            result: Bytes::new(),
        });
        ledger_of(steps).prove(ONE, &mut command);
        let Command::Lease(LeaseCommand::Finish { proof, .. }) = command else {
            panic!("{command:?}")
        };
        assert_eq!(proof, expected, "{what}");
    }
    let mut command = finish(by_id());
    Ledger::new(BOUNDS).prove(ONE, &mut command);
    assert!(
        matches!(
            command,
            Command::Lease(LeaseCommand::Finish {
                proof: Proof::Connection,
                ..
            })
        ),
        "a lost client"
    );
}

fn take_of_4() -> Step {
    ask(4, take_of(Wait::Forever))
}

fn end_of_7() -> Step {
    Asked(Tag::silent(5).0, finish(JobRef::Id(JobId(7))))
}

#[test]
fn what_a_client_has_is_claimed() {
    let register = |worker: &'static str| {
        ask(
            0,
            WorkerCommand::Register {
                worker: worker.into(),
                about: Bytes::new(),
            },
        )
    };
    let watch = |room| {
        ask(
            0,
            ClientCommand::Watch {
                queue: None,
                text: Bytes::new(),
                room,
            },
        )
    };
    let watched = || Step::Notice(Notice::Watched(Watched::Missed(1)));
    let delivered = |number| Step::Notice(Notice::Delivered(taken(number, true)));
    let credit = |credits| {
        ask(
            0,
            TakeCommand::Credit {
                credits,
                select: Select::Weighted,
            },
        )
    };
    let take = |tag| ask(tag, take_of(Wait::Forever));
    let sleep = || ask(0, TakeCommand::WaitForWork);
    let end = |tag, job| Asked(tag, finish(job));
    let refused = |tag, why| Replied(tag, Reply::Refused(why));
    let unserve = |requeue| {
        ask(
            0,
            ClientCommand::Unserve {
                queue: "q".into(),
                requeue,
            },
        )
    };
    let silent = Tag::silent(5).0;
    let by_id = || JobRef::Id(JobId(7));
    let table: Vec<(&str, Vec<Step>, &str)> = vec![
        (
            "a name, of which the last counts",
            vec![
                ask(0, ClientCommand::SetName("a".into())),
                ask(0, ClientCommand::SetName("b".into())),
                Applied(1),
            ],
            "name b",
        ),
        (
            "what it serves, in order",
            vec![serve("q"), serve("r"), serve("q"), Applied(3)],
            "serve q, serve r, serve q",
        ),
        (
            "what it serves no more",
            vec![
                serve("q"),
                serve("r"),
                serve("q"),
                unserve(false),
                Applied(4),
            ],
            "serve r",
        ),
        (
            "nothing",
            vec![
                serve("q"),
                ask(0, ClientCommand::UnserveAll { requeue: false }),
            ],
            "",
        ),
        (
            "as many registrations as count",
            (0..20).map(|_| serve("q")).collect(),
            "serve q, serve q, serve q, serve q, serve q, serve q, serve q, serve q",
        ),
        (
            "a worker",
            vec![register("w"), register("other"), Applied(2)],
            "worker w",
        ),
        (
            "a quiet worker",
            vec![
                register("w"),
                Applied(1),
                Replied(9, Reply::Beaten(WorkerState::Quiet)),
            ],
            "worker w, Quiet",
        ),
        (
            "a watcher's room",
            vec![watch(3), watch(2), Applied(2), watched(), watched()],
            "watch 3",
        ),
        ("a take that waits", vec![take(4), Applied(1)], "take 4"),
        ("a take on its way", vec![take(4)], "take 4"),
        (
            "takes, in order",
            vec![take(4), take(5), Applied(2), Replied(4, Reply::Empty)],
            "take 5",
        ),
        (
            "a take that got a job",
            vec![
                take(4),
                Applied(1),
                Replied(4, Reply::Taken(taken(7, true))),
            ],
            "holds 7.3",
        ),
        (
            "a job under a lease by time",
            vec![
                take(4),
                Applied(1),
                Replied(4, Reply::Taken(taken(7, false))),
            ],
            "",
        ),
        (
            "a job that it got again, under a lease by time",
            vec![
                delivered(7),
                take(4),
                Applied(1),
                Replied(4, Reply::Taken(taken(7, false))),
            ],
            "",
        ),
        (
            "a job whose earlier lease, by time, the client reports on",
            vec![
                take(4),
                Applied(1),
                Replied(4, Reply::Taken(taken(7, true))),
                ask(
                    5,
                    LeaseCommand::Finish {
                        job: by_id(),
                        proof: Proof::Token(Token(2)),
                        result: Bytes::new(),
                    },
                ),
                Applied(1),
                refused(5, Refusal::NotHeld),
            ],
            "holds 7.3",
        ),
        (
            "a take that was refused",
            vec![take(4), Applied(1), refused(4, Refusal::OutOfPlace)],
            "",
        ),
        ("a sleeper", vec![sleep(), Applied(1)], "sleep"),
        (
            "one that was woken",
            vec![sleep(), Applied(1), Step::Notice(Notice::WorkAvailable)],
            "",
        ),
        (
            "one that then takes",
            vec![sleep(), take(4), Applied(2)],
            "take 4",
        ),
        (
            "one that cannot sleep",
            vec![take(4), sleep(), Applied(2)],
            "take 4",
        ),
        (
            "credits left",
            vec![credit(3), Applied(1), delivered(7), credit(2), Applied(1)],
            "holds 7.3, credit 4",
        ),
        (
            "credits that took effect later",
            vec![
                credit(3),
                Applied(1),
                ask(0, TakeCommand::Unwait),
                credit(2),
                delivered(7),
                Applied(2),
            ],
            "holds 7.3, credit 2",
        ),
        (
            "no wait",
            vec![take(4), credit(3), Applied(2), ask(0, TakeCommand::Unwait)],
            "",
        ),
        (
            "a job that it finished",
            vec![delivered(7), end(silent, by_id()), Applied(1)],
            "",
        ),
        (
            "a job whose end is on its way",
            vec![delivered(7), end(silent, by_id())],
            "",
        ),
        (
            "a job that it finished by name",
            vec![
                delivered(7),
                end(4, JobRef::Name("name".into())),
                Applied(1),
            ],
            "",
        ),
        (
            "a job that it finished by key",
            vec![
                delivered(7),
                end(4, JobRef::key("q".into(), Protocol::GEARMAN, "key".into())),
                Applied(1),
            ],
            "",
        ),
        (
            "another job",
            vec![
                delivered(7),
                end(4, JobRef::Name("other".into())),
                Applied(1),
            ],
            "holds 7.3",
        ),
        (
            "a job whose end the store could not take",
            vec![
                delivered(7),
                end(4, by_id()),
                Applied(1),
                refused(4, Refusal::Unavailable),
            ],
            "holds 7.3",
        ),
        (
            "a job that it got again, and whose earlier end the store could not take",
            vec![
                delivered(7),
                end(4, by_id()),
                Applied(1),
                Step::Notice(Notice::Delivered(Box::new(Taken {
                    token: Token(5),
                    ..*taken(7, true)
                }))),
                refused(4, Refusal::Unavailable),
            ],
            "holds 7.5",
        ),
        (
            "a job that it did not hold",
            vec![
                delivered(7),
                end(4, by_id()),
                Applied(1),
                refused(4, Refusal::NotHeld),
            ],
            "",
        ),
        (
            "a job that it gave back",
            vec![serve("q"), delivered(7), unserve(true), Applied(2)],
            "",
        ),
        (
            "a job that it kept",
            vec![serve("q"), delivered(7), unserve(false), Applied(2)],
            "holds 7.3",
        ),
        (
            "a job that it listens to",
            vec![push(4, true), Applied(1), pushed(4, 8, Pushed::New, true)],
            "hears 8",
        ),
        (
            "a job that lives while it listens",
            vec![push(4, false), Applied(1), pushed(4, 8, Pushed::New, false)],
            "pushed 8",
        ),
        (
            "a job that lives on its own by now",
            vec![
                push(4, false),
                Applied(1),
                pushed(4, 8, Pushed::Attached, true),
            ],
            "hears 8",
        ),
        (
            "a job of two pushes",
            vec![
                push(4, false),
                push(5, false),
                Applied(2),
                pushed(4, 8, Pushed::New, false),
                pushed(5, 8, Pushed::Attached, false),
            ],
            "pushed 8, hears 8",
        ),
        (
            "a job that ended for one of them",
            vec![
                push(4, false),
                push(5, false),
                Applied(2),
                pushed(4, 8, Pushed::New, false),
                pushed(5, 8, Pushed::Attached, false),
                ended(8),
            ],
            "pushed 8",
        ),
        (
            "a job that ended",
            vec![
                push(4, true),
                Applied(1),
                pushed(4, 8, Pushed::New, true),
                ended(8),
            ],
            "",
        ),
        (
            "a job that ended before the answer",
            vec![
                push(4, true),
                Applied(1),
                ended(8),
                pushed(4, 8, Pushed::New, true),
            ],
            "",
        ),
        (
            "a push that kept another job",
            vec![push(4, true), Applied(1), pushed(4, 8, Pushed::Kept, true)],
            "",
        ),
        (
            "a push that was refused",
            vec![push(4, false), Applied(1), refused(4, Refusal::NotUnique)],
            "",
        ),
        (
            "a push without an answer",
            vec![push(4, false), Applied(1)],
            "",
        ),
    ];
    for (name, steps, expected) in table {
        let mut ledger = ledger_of([vec![open_one(), Applied(1)], steps].concat_steps());
        let to_leader = ledger.claims(Some(u64::MAX));
        let words = claimed(&to_leader);
        let inner = words[2..words.len() - 1].join(", ");
        assert_eq!(inner, expected, "{name}: {words:?}");
        assert!(
            words[0].starts_with("room")
                && words[1] == "open"
                && words.last().unwrap() == "claimed",
            "{words:?}"
        );
        // The ledger has exactly what was claimed.
        let again = ledger.claims(Some(u64::MAX));
        assert_eq!(
            format!("{again:?}"),
            format!("{to_leader:?}"),
            "{name}, again"
        );
        ledger.sent(&ToLeader::Close { client: ONE });
        assert_eq!(ledger.bytes(), 0, "{name}: everything is counted");
    }
}

/// Joins lists of steps, which cannot be cloned.
trait Concat {
    fn concat_steps(self) -> Vec<Step>;
}

impl<const N: usize> Concat for [Vec<Step>; N] {
    fn concat_steps(self) -> Vec<Step> {
        self.into_iter().flatten().collect()
    }
}

#[test]
fn waits_are_claimed_in_their_order() {
    let mut ledger = Ledger::new(BOUNDS);
    let take = |wait| Command::from(take_of(wait));
    let credit = Command::from(TakeCommand::Credit {
        credits: 2,
        select: Select::Weighted,
    });
    let waits = [
        (3, take(Wait::Forever)),
        (1, TakeCommand::WaitForWork.into()),
        (2, credit),
        (3, take(Wait::Forever)),
    ];
    for client in 1..=3 {
        ledger.sent(&ToLeader::Open {
            client: ClientId(client),
            room: 0,
        });
        ledger.sent(&command(
            ClientId(client),
            Tag::NONE,
            ClientCommand::Open(ClientInfo::default()),
        ));
        ledger.received(&ToEdge::Applied {
            client: ClientId(client),
            count: 1,
        });
    }
    for (tag, (client, wait)) in (1..).zip(waits) {
        ledger.sent(&command(ClientId(client), Tag(tag), wait));
        ledger.received(&ToEdge::Applied {
            client: ClientId(client),
            count: 1,
        });
    }
    // A client goes behind its equals when it has got a job.
    let event = Event::Notice(Notice::Delivered(taken(7, true)));
    ledger.received(&ToEdge::Event {
        client: ClientId(2),
        gate: 0,
        event,
    });
    let to_leader = ledger.claims(Some(u64::MAX));
    let order: Vec<_> = to_leader
        .iter()
        .rev()
        .skip(1)
        .take(4)
        .map(|item| (item.client().unwrap().0, short(item)))
        .collect();
    let expected = [(2, "credit 1"), (3, "take 4"), (1, "sleep"), (3, "take 1")];
    assert_eq!(
        order,
        expected.map(|(client, wait)| (client, wait.to_owned()))
    );
}

#[test]
fn room_is_what_is_left() {
    let listing = Replied(4, Reply::Taken(taken(7, false)));
    let bytes = Event::Reply(Tag(4), Reply::Taken(taken(7, false))).bytes() as u64;
    let mut ledger = ledger_of(vec![open_one(), listing]);
    ledger.sent(&ToLeader::Room {
        client: ONE,
        bytes: 1,
    });
    assert_eq!(
        short(&ledger.claims(Some(u64::MAX))[0]),
        format!("room {}", 1_001 - bytes)
    );
}

#[test]
fn commands_without_an_answer_yet_are_known() {
    let mut ledger = ledger_of(vec![
        open_one(),
        serve("q"),
        push(4, true),
        ask(5, take_of(Wait::Forever)),
        ask(6, Query::Stats),
        Asked(Tag::silent(7).0, finish(JobRef::Id(JobId(1)))),
        ask(8, Command::Barrier),
        Applied(4),
        pushed(4, 8, Pushed::New, true),
    ]);
    ledger.sent(&ToLeader::Forbidden {
        client: ONE,
        tag: Tag(9),
    });
    assert_eq!(ledger.unanswered(), [6, 8, 9].map(|tag| (ONE, Tag(tag))));
    assert_eq!(ledger.unanswered(), []);
}

#[test]
fn a_client_that_has_too_much_is_lost() {
    let bounds = Bounds {
        client_bytes_max: 2_000,
        bytes_max: 5_000,
    };
    let mut ledger = Ledger::new(bounds);
    let fill = |ledger: &mut Ledger, client: ClientId, bytes: usize| {
        ledger.sent(&ToLeader::Open { client, room: 0 });
        ledger.sent(&command(
            client,
            Tag::NONE,
            ClientCommand::Open(ClientInfo::default()),
        ));
        ledger.sent(&command(
            client,
            Tag::NONE,
            ClientCommand::SetName(vec![b'n'; bytes].into()),
        ));
    };
    fill(&mut ledger, ClientId(1), 1_000);
    fill(&mut ledger, ClientId(2), 2_000);
    assert_eq!(ledger.lost().collect::<Vec<_>>(), [ClientId(2)]);
    (3..10).for_each(|client| fill(&mut ledger, ClientId(client), 1_000));
    assert!(ledger.bytes() <= bounds.bytes_max && ledger.clients().count() >= 2);
    let kept: Vec<_> = ledger.clients().collect();
    let to_leader = ledger.claims(Some(u64::MAX));
    let claimed: BTreeSet<_> = to_leader.iter().filter_map(ToLeader::client).collect();
    assert_eq!(claimed.into_iter().collect::<Vec<_>>(), kept);
    for client in 1..10 {
        ledger.sent(&ToLeader::Close {
            client: ClientId(client),
        });
    }
    assert_eq!(ledger.bytes(), 0);
}

#[test]
fn claims_survive_the_link() {
    let delivered = Step::Notice(Notice::Delivered(taken(7, true)));
    let mut ledger = ledger_of(vec![
        open_one(),
        push(4, false),
        Applied(2),
        pushed(4, 8, Pushed::New, false),
        delivered,
    ]);
    let to_leader = ledger.claims(Some(u64::MAX));
    let (mut encoder, mut decoder) = (
        crate::Encoder::new(1 << 20),
        crate::Decoder::<ToLeader>::new(1 << 20),
    );
    to_leader
        .iter()
        .for_each(|item| encoder.push(item).unwrap());
    decoder.input().extend_from_slice(&encoder.take());
    let read: Vec<ToLeader> = std::iter::from_fn(|| decoder.next().unwrap()).collect();
    assert_eq!(format!("{read:?}"), format!("{to_leader:?}"));
    let held = Held {
        token: Token(3),
        until: Timestamp(99),
        protocol: Protocol::GEARMAN,
        queue: "q".into(),
        name: "name".into(),
        key: "key".into(),
    };
    assert!(
        matches!(&read[2], ToLeader::Claim { claim: Claim::Holds { held: read, .. }, .. } if *read == held)
    );
}

/// A link was cut and made again.
#[test]
fn an_edge_with_another_number_claims_the_same_under_that_number() {
    let claims = |number: Option<u32>| {
        let mut ledger = Ledger::new(BOUNDS);
        let one = ClientId(Edge::new(7).unwrap().first_client().0 | 1);
        ledger.sent(&ToLeader::Open {
            client: one,
            room: 9,
        });
        for command in [
            ClientCommand::Open(ClientInfo::default()),
            ClientCommand::Serve(subscription("q")),
        ] {
            ledger.sent(&ToLeader::Command {
                client: one,
                tag: Tag::NONE,
                command: command.into(),
            });
        }
        ledger.received(&ToEdge::Applied {
            client: one,
            count: 2,
        });
        number
            .into_iter()
            .for_each(|number| ledger.renumber(Edge::new(number).unwrap()));
        let claims = ledger.claims(Some(u64::MAX));
        let clients: BTreeSet<_> = claims.iter().filter_map(ToLeader::client).collect();
        (
            claims.len(),
            clients
                .into_iter()
                .map(|it| (it.daemon(), it.0 & 0xff))
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        (claims(None), claims(Some(8))),
        ((4, vec![(7, 1)]), (4, vec![(8, 1)]))
    );
}
