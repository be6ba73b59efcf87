//! Cases that transcripts cannot produce: lists of several pages with changes in between, limits that guard memory, a
//! store that fails. Conversations are in `tests/transcripts`.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use windlass_engine::{
    Capacity, ClientCommand, ClientId, ClientInfo, ClientRow, Command, Context, Cursor, End,
    Engine, Event, JobCommand, JobId, Limits, Note, Notice, Payload, Priority, Protocol, Protocols,
    Query, QueueCommand, QueueKind, QueueRow, QueueRules, Refusal, Reply, Tag, Thing, Timestamp,
};
use windlass_session::{Item, LARGE_BYTES, Outbox, Question, Reason, Session};

use super::ask::Ask;
use super::{GearmanSession, GearmanSpeaker, HELD_BYTES_MAX, Settings};
use crate::config::OnTimeout;
use crate::wire::{
    AssignForm, ErrorReply, HandlePrefix, Priority as Urgency, Report, Request, Response,
    Submission,
};

const NOW: Timestamp = Timestamp(1);

/// A session and its input. The test plays the driver's part.
struct Bench {
    session: GearmanSession,
    input: BytesMut,
    out: Outbox,
}

impl Bench {
    fn new() -> Self {
        Self::with(Settings::new(HandlePrefix::new(b"H:here").unwrap()))
    }

    fn with(settings: Settings) -> Self {
        let session = GearmanSpeaker::session(Arc::new(settings), ClientInfo::default());
        let mut bench = Self {
            session,
            input: BytesMut::new(),
            out: Outbox::default(),
        };
        bench.session.on_open(NOW, &mut bench.out);
        assert_eq!(bench.commands().len(), 2);
        bench
    }

    fn say(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.session.on_bytes(NOW, &mut self.input, &mut self.out);
    }

    fn request(&mut self, request: &Request) {
        self.say(&encoded(request));
    }

    fn event(&mut self, event: Event) {
        self.session.on_event(NOW, event, &mut self.out);
    }

    /// The commands for the engine; the session must not send bytes.
    fn commands(&mut self) -> Vec<(Tag, Command)> {
        let command = |item| match item {
            Item::Command(tag, command) => (tag, command),
            Item::Forbidden(_) | Item::Bytes(_) | Item::Publish(..) => panic!("sent {item:?}"),
        };
        self.out.drain().map(command).collect()
    }

    fn command(&mut self) -> (Tag, Command) {
        let mut commands = self.commands();
        assert_eq!(commands.len(), 1, "{commands:?}");
        commands.remove(0)
    }

    /// The bytes for the peer; the session must not have commands for the engine.
    fn said(&mut self) -> String {
        let bytes = |item| match item {
            Item::Bytes(bytes) => bytes,
            Item::Command(..) | Item::Forbidden(_) | Item::Publish(..) => {
                panic!("unexpected {item:?}")
            }
        };
        self.out
            .drain()
            .map(bytes)
            .map(|bytes| bytes.escape_ascii().to_string())
            .collect()
    }
}

fn encoded(request: &Request) -> BytesMut {
    let mut bytes = BytesMut::new();
    request.encode(&mut bytes);
    bytes
}

fn reply(reply: ErrorReply) -> String {
    let mut bytes = BytesMut::new();
    reply.encode(&mut bytes);
    bytes.escape_ascii().to_string()
}

fn response(response: &Response<'_>) -> String {
    let mut bytes = BytesMut::new();
    response.encode(&mut bytes);
    bytes.escape_ascii().to_string()
}

fn queue(name: &'static str) -> QueueRow {
    QueueRow {
        namespace: bytes::Bytes::new(),
        name: Bytes::from_static(name.as_bytes()),
        kind: QueueKind::Work,
        paused: Protocols::NONE,
        paused_at: None,
        jobs_max: [None; Priority::COUNT],
        jobs_max_of: None,
        throttle: None,
        bridged: false,
        rules: QueueRules::default(),
        slots_held: 0,
        ready: [0; Priority::COUNT],
        places: [0; 7],
        workers: 0,
        oldest_ready_at: None,
        waiting: None,
        policy: None,
    }
}

fn page(tag: Tag, names: &[&'static str], next: Option<u64>) -> Event {
    Event::Reply(
        tag,
        Reply::Queues {
            rows: names.iter().map(|name| queue(name)).collect(),
            next: next.map(|at| Cursor(at, 0)),
        },
    )
}

#[test]
fn packets_wait_for_the_end_of_a_list() {
    let mut bench = Bench::new();
    bench.say(b"status\nversion\n");
    let (tag, command) = bench.command();
    assert!(matches!(
        command,
        Command::Query(Query::Queues {
            after: Cursor(0, 0),
            ..
        })
    ));
    // No line has been sent yet.
    bench.event(Event::Notice(Notice::WorkAvailable));
    assert_eq!(bench.said(), response(&Response::Noop));
    bench.event(page(tag, &["f", "g"], Some(7)));
    assert_eq!(
        bench.out.take_leading_bytes().as_deref(),
        Some(&b"f\t0\t0\t0\ng\t0\t0\t0\n"[..])
    );
    let (tag, command) = bench.command();
    assert!(matches!(
        command,
        Command::Query(Query::Queues {
            after: Cursor(7, 0),
            ..
        })
    ));
    bench.event(Event::Notice(Notice::Progress {
        job: JobId(3),
        note: Note::Data(Bytes::from_static(b"d")),
    }));
    bench.event(Event::Notice(Notice::Ended {
        job: JobId(3),
        end: End::Cancelled,
    }));
    assert_eq!(bench.said(), "");
    bench.event(page(tag, &["h"], None));
    let data = response(&Response::Work {
        handle: b"H:here:3",
        report: Report::Data(b"d"),
    });
    let fail = response(&Response::Work {
        handle: b"H:here:3",
        report: Report::Fail,
    });
    assert_eq!(bench.said(), format!(r"h\t0\t0\t0\n.\n{data}{fail}"));
    // The next command has waited for the end of the list.
    bench.say(b"");
    assert_eq!(bench.said(), r"OK 1.1.20\n");
    bench.event(Event::Notice(Notice::WorkAvailable));
    assert_eq!(bench.said(), response(&Response::Noop));
}

#[test]
fn packets_that_wait_for_a_list_are_bounded() {
    let mut bench = Bench::new();
    bench.say(b"status\n");
    let (tag, _) = bench.command();
    bench.event(page(tag, &["f"], Some(7)));
    bench.out.drain();
    for _ in 0..3 {
        let data = Bytes::from(vec![0; HELD_BYTES_MAX / 2]);
        bench.event(Event::Notice(Notice::Progress {
            job: JobId(3),
            note: Note::Data(data),
        }));
    }
    assert_eq!(
        bench.out.take_reason(),
        Some(Reason::Limit("held_bytes_max"))
    );
}

#[test]
fn a_function_is_searched_for_on_all_pages() {
    let drop = |typed: &[u8], second: &[&'static str]| {
        let mut bench = Bench::new();
        bench.say(typed);
        let (tag, _) = bench.command();
        bench.event(page(tag, &["FOO", "x"], Some(2)));
        let (tag, _) = bench.command();
        bench.event(page(tag, second, None));
        bench
    };
    // An exact match on a later page takes precedence over another case on an earlier one.
    let mut bench = drop(b"drop function foo\n", &["y", "foo"]);
    let (
        _,
        Command::Queue(QueueCommand::Remove {
            queue,
            only_idle: true,
        }),
    ) = bench.command()
    else {
        panic!("another command")
    };
    assert_eq!(queue, "foo");
    let mut bench = drop(b"drop function foo\n", &["y"]);
    let (
        tag,
        Command::Queue(QueueCommand::Remove {
            queue,
            only_idle: true,
        }),
    ) = bench.command()
    else {
        panic!("another command")
    };
    assert_eq!(queue, "FOO");
    bench.event(Event::Reply(tag, Reply::Done));
    assert_eq!(bench.said(), r"OK\r\n");
    let mut bench = drop(b"maxqueue foo 3\n", &["foo"]);
    let (_, Command::Queue(QueueCommand::Limit { queue, jobs_max })) = bench.command() else {
        panic!("another command")
    };
    assert_eq!((&*queue, jobs_max), (&b"foo"[..], [Some(3); 9]));
    // All other commands match exactly.
    assert_eq!(drop(b"maxqueue foo 3\n", &["y"]).said(), r"OK\r\n");
}

#[test]
fn each_command_has_its_own_error_for_a_refusal() {
    let full = Capacity::QueueJobs.exceeded(2_u32, 2_u32);
    let submission = |function: &'static str| {
        let (unique, workload) = (Bytes::new(), Bytes::new());
        Submission {
            function: Bytes::from_static(function.as_bytes()),
            unique,
            workload,
        }
    };
    let submit = Request::Submit {
        job: submission("f"),
        priority: Urgency::Normal,
        background: true,
    };
    let function = Bytes::from_static(b"f");
    let handle = Bytes::from_static(b"H:here:1");
    let complete = Request::Work {
        handle: handle.clone(),
        report: Report::Complete(Bytes::new()),
    };
    let table = [
        (&submit, full, ErrorReply::QUEUE_FULL),
        (
            &submit,
            Capacity::Jobs.exceeded(1_u32, 1_u32),
            ErrorReply::QUEUE_FULL,
        ),
        (
            &submit,
            Capacity::JobBytes.exceeded(1_u32, 1_u32),
            ErrorReply::QUEUE_FULL,
        ),
        (&submit, Refusal::Unavailable, ErrorReply::QUEUE_ERROR),
        (&submit, Refusal::Unknown, ErrorReply::QUEUE_ERROR),
        (
            &submit,
            Capacity::NameBytes.exceeded(9_u32, 8_u32),
            ErrorReply::FUNCTION_TOO_LARGE,
        ),
        (
            &submit,
            Capacity::BodyBytes.exceeded(9_u32, 8_u32),
            super::refusal::WORKLOAD_TOO_LARGE,
        ),
        (
            &submit,
            Capacity::Queues.exceeded(1_u32, 1_u32),
            super::refusal::FUNCTIONS_FULL,
        ),
        (&submit, Refusal::WrongKind, super::refusal::WRONG_KIND),
        (
            &Request::CanDo { function },
            Capacity::Subscriptions.exceeded(1_u32, 1_u32),
            super::refusal::FUNCTIONS_FULL,
        ),
        (
            &complete,
            Refusal::NotHeld,
            ErrorReply::JOB_NOT_FOUND_FOR_RESULT,
        ),
        (
            &complete,
            Refusal::NotFound(Thing::Job),
            ErrorReply::JOB_NOT_FOUND_FOR_RESULT,
        ),
        (
            &Request::Work {
                handle: handle.clone(),
                report: Report::Warning(Bytes::new()),
            },
            Refusal::NotHeld,
            ErrorReply::JOB_NOT_FOUND_FOR_DATA,
        ),
        (
            &Request::Work {
                handle,
                report: Report::Exception(Bytes::new()),
            },
            Refusal::NotHeld,
            ErrorReply::JOB_NOT_FOUND_FOR_EXCEPTION,
        ),
    ];
    for (request, why, expected) in table {
        let mut bench = Bench::new();
        bench.request(request);
        let (tag, _) = bench.command();
        bench.event(Event::Reply(tag, Reply::Refused(why)));
        assert_eq!(bench.said(), reply(expected), "{request:?} {why}");
    }
}

#[test]
fn a_refused_text_command_is_answered_in_one_line() {
    let table = [
        (
            Refusal::InUse,
            r"ERR there are still connected workers or executing clients\r\n",
        ),
        (
            Refusal::NotFound(Thing::Queue),
            r"ERR function not found\r\n",
        ),
        (Refusal::NotFound(Thing::Job), r"ERR UNKNOWN_JOB\r\n"),
        (
            Refusal::Unavailable,
            r"ERR QUEUE_ERROR store+unavailable\r\n",
        ),
        (
            Capacity::Queues.exceeded(3_u32, 3_u32),
            r"ERR QUEUE_ERROR limit+of+queues+reached:+3\r\n",
        ),
    ];
    for (why, expected) in table {
        let mut bench = Bench::new();
        bench.say(b"create function f\nversion\n");
        let (tag, _) = bench.command();
        bench.event(Event::Reply(tag, Reply::Refused(why)));
        assert_eq!(bench.said(), expected);
        bench.say(b"");
        assert!(
            bench.said().starts_with("OK"),
            "{why}: the next command was not read"
        );
    }
}

#[test]
fn grabs_without_an_answer_are_bounded() {
    let mut bench = Bench::new();
    let grab = encoded(&Request::Grab(AssignForm::Plain));
    for _ in 0..=Ask::WEIGHT_MAX {
        bench.say(&grab);
    }
    let mut open = bench.commands();
    assert_eq!(open.len(), Ask::WEIGHT_MAX);
    assert_eq!(bench.input, grab);
    bench.say(b"");
    assert!(bench.commands().is_empty());
    bench.event(Event::Reply(open.remove(0).0, Reply::Empty));
    assert_eq!(bench.said(), response(&Response::NoJob));
    bench.say(b"");
    assert_eq!(bench.commands().len(), 1);
    assert!(bench.input.is_empty());
}

#[test]
fn end_of_input_waits_for_open_answers() {
    // A list, an unread command after it, and a packet cut short.
    let mut bench = Bench::new();
    bench.say(b"status\nworkers\n\0REQ");
    bench.session.on_eof(NOW, &mut bench.out);
    assert_eq!(bench.out.take_reason(), None);
    let (tag, _) = bench.command();
    bench.event(page(tag, &[], None));
    assert_eq!(bench.out.take_reason(), None);
    assert_eq!(bench.said(), r".\n");
    bench.say(b"");
    let (tag, _) = bench.command();
    let row = ClientRow {
        namespace: bytes::Bytes::new(),
        id: windlass_engine::ClientId(1),
        number: 9,
        address: "".into(),
        label: Bytes::new(),
        protocol: Some(Protocol::EVENTMQ),
        subscriptions: vec![Bytes::from_static(b"f")],
        is_continued: false,
        goes_on: false,
        held: 0,
        waits: false,
    };
    let idle = ClientRow {
        subscriptions: Vec::new(),
        ..row.clone()
    };
    bench.event(Event::Reply(
        tag,
        Reply::Clients {
            rows: vec![row, idle],
            next: None,
        },
    ));
    assert_eq!(bench.out.take_reason(), None);
    assert_eq!(bench.said(), r"9 - - : f\n.\n");
    bench.say(b"");
    assert_eq!(bench.out.take_reason(), Some(Reason::PeerClosed));
    assert!(bench.input.is_empty());

    // Nothing left to read.
    let mut bench = Bench::new();
    bench.say(b"status\n");
    bench.session.on_eof(NOW, &mut bench.out);
    assert_eq!(bench.out.take_reason(), None);
    let (tag, _) = bench.command();
    bench.event(page(tag, &[], None));
    assert_eq!(bench.said(), r".\n");
    assert_eq!(bench.out.take_reason(), Some(Reason::PeerClosed));
}

#[test]
fn retries_are_left_to_the_queue() {
    for background in [true, false] {
        let mut bench = Bench::new();
        let job = Submission {
            function: Bytes::from_static(b"f"),
            unique: Bytes::new(),
            workload: Bytes::from_static(b"w"),
        };
        bench.say(&encoded(&Request::Submit {
            job,
            priority: Urgency::Normal,
            background,
        }));
        let (_, Command::Job(JobCommand::Push(job))) = bench.command() else {
            panic!("no push")
        };
        assert!(job.retry_default, "background: {background}");
    }
}

#[test]
fn a_job_does_not_keep_its_read_buffer_alive() {
    let submit = |bytes: usize| Request::Submit {
        job: Submission {
            function: Bytes::from_static(b"f"),
            unique: Bytes::new(),
            workload: Bytes::from(vec![7; bytes]),
        },
        priority: Urgency::Normal,
        background: true,
    };
    let body = |bench: &mut Bench| match bench.command() {
        (_, Command::Job(JobCommand::Push(job))) => job.body,
        other => panic!("{other:?}"),
    };
    // A workload that the engine does not copy, with others in the buffer.
    let mut bench = Bench::new();
    let bytes = Payload::COPY_MAX + 1;
    bench.say(
        &[
            encoded(&submit(bytes)),
            encoded(&Request::Echo { data: Bytes::new() }),
        ]
        .concat(),
    );
    let Some(Item::Command(_, Command::Job(JobCommand::Push(job)))) = bench.out.drain().next()
    else {
        panic!("no push")
    };
    assert_eq!(job.body.try_into_mut().unwrap().capacity(), bytes);
    // A large workload that came at once.
    let mut bench = Bench::new();
    bench.say(&encoded(&submit(LARGE_BYTES)));
    let kept = body(&mut bench);
    bench.input = BytesMut::new();
    assert_eq!(kept.try_into_mut().unwrap().capacity(), LARGE_BYTES);
    // A large workload that came in pieces: its buffer holds nothing else.
    let mut bench = Bench::new();
    let frame = encoded(&submit(LARGE_BYTES));
    bench.say(
        &[
            &encoded(&Request::Echo {
                data: Bytes::from(vec![0; 50_000]),
            }),
            &frame[..2_000],
        ]
        .concat(),
    );
    bench.out.drain();
    frame[2_000..]
        .chunks(64 << 10)
        .for_each(|piece| bench.say(piece));
    let kept = body(&mut bench);
    bench.input = BytesMut::new();
    assert_eq!(kept, vec![7; LARGE_BYTES]);
    assert!(kept.try_into_mut().unwrap().capacity() <= 2 * LARGE_BYTES);
}

#[test]
fn results_never_ask_to_be_acknowledged() {
    let mut bench = Bench::new();
    let (handle, data) = (Bytes::from_static(b"H:here:1"), Bytes::new());
    let requests = [
        Request::Work {
            handle: handle.clone(),
            report: Report::Complete(data.clone()),
        },
        Request::Work {
            handle: handle.clone(),
            report: Report::Fail,
        },
        Request::Work {
            handle: handle.clone(),
            report: Report::Data(data.clone()),
        },
        Request::Work {
            handle: handle.clone(),
            report: Report::Warning(data.clone()),
        },
        Request::Work {
            handle: handle.clone(),
            report: Report::Exception(data.clone()),
        },
        Request::Work {
            handle,
            report: Report::Status {
                numerator: data.clone(),
                denominator: data.clone(),
            },
        },
        Request::CanDo {
            function: data.clone(),
        },
        Request::CanDoTimeout {
            function: data.clone(),
            timeout_ms: 1,
        },
        Request::CantDo {
            function: data.clone(),
        },
        Request::ResetAbilities,
        Request::PreSleep,
        Request::SetClientId { id: data },
    ];
    for request in requests {
        bench.request(&request);
        let (tag, _) = bench.command();
        assert!(!tag.wants_answer(), "{request:?}");
    }
}

#[test]
fn a_large_result_is_sent_without_a_copy() {
    for bytes in [LARGE_BYTES - 1, LARGE_BYTES] {
        let mut bench = Bench::new();
        let result = Bytes::from(vec![7; bytes]);
        let end = End::Succeeded {
            result: result.clone(),
            by: None,
        };
        bench.event(Event::Notice(Notice::Ended { job: JobId(1), end }));
        let mut expected = BytesMut::new();
        Response::Work {
            handle: b"H:here:1",
            report: Report::Complete(&result),
        }
        .encode(&mut expected);
        let pieces: Vec<_> = bench.out.drain().collect();
        let pieces: Vec<&Bytes> = pieces
            .iter()
            .map(|item| match item {
                Item::Bytes(bytes) => bytes,
                Item::Command(..) | Item::Forbidden(_) | Item::Publish(..) => {
                    panic!("unexpected {item:?}")
                }
            })
            .collect();
        assert_eq!(
            pieces
                .iter()
                .map(|piece| piece.as_ref())
                .collect::<Vec<_>>()
                .concat(),
            expected
        );
        assert_eq!(
            pieces.iter().any(|piece| piece.as_ptr() == result.as_ptr()),
            bytes == LARGE_BYTES
        );
    }
}

#[test]
fn a_job_has_no_time_limit_if_its_worker_sleeps_before_it_gets_it() {
    let mut settings = Settings::new(HandlePrefix::new(b"H:here").unwrap());
    settings.section.on_timeout = OnTimeout::Requeue;
    let mut bench = Bench::with(settings);
    let (worker, mut engine) = (ClientId(1), Engine::new(Limits::default(), 1));
    let mut context = Context::new(NOW, 1);
    engine.apply(
        worker,
        Tag::NONE,
        ClientCommand::Open(ClientInfo::default()),
        &mut context,
    );
    let function = Bytes::from_static(b"f");
    let job = Submission {
        function: function.clone(),
        unique: Bytes::new(),
        workload: Bytes::new(),
    };
    bench.request(&Request::CanDoTimeout {
        function,
        timeout_ms: 1_500,
    });
    bench.request(&Request::Submit {
        job,
        priority: Urgency::Normal,
        background: true,
    });
    bench.request(&Request::Grab(AssignForm::Plain));
    bench.request(&Request::PreSleep);
    for (tag, command) in bench.commands() {
        engine.apply(worker, tag, command, &mut context);
    }
    let job = engine.jobs().next().unwrap().id;
    assert_eq!(
        engine.jobs().next().unwrap().lease().unwrap().until,
        NOW.after_ms(1_500)
    );
    context
        .events
        .drain(..)
        .for_each(|(_, event)| bench.event(event));
    let commands: Vec<_> = bench
        .out
        .drain()
        .filter(|item| matches!(item, Item::Command(..)))
        .collect();
    let [Item::Command(tag, Command::Lease(lifted))] = commands.as_slice() else {
        panic!("{commands:?}")
    };
    engine.apply(worker, *tag, lifted.clone(), &mut context);
    let until = NOW.after_ms(Limits::default().lease_ms_max);
    assert_eq!(
        engine.job(job).unwrap().lease().unwrap().until,
        until,
        "as late as any"
    );
}
