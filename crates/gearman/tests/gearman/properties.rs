//! What must hold for any bytes from any number of connections: cuts by TCP do not matter, and noise does no harm. The
//! engine checks itself after every call.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use windlass_config::ByteSize;
use windlass_engine::{Limits, Timestamp};
use windlass_gearman::config::{Gearman, OnTimeout};
use windlass_gearman::session::{GearmanSpeaker, Settings};
use windlass_gearman::wire::{
    AdminRequest, AssignForm, HandlePrefix, Priority, QueueLimits, Report, Request, Schedule,
    Submission,
};
use windlass_testkit::memory::MemoryHub;
use windlass_testkit::play::{Move, World, single_bytes};

/// Number of connections at the start.
const PEERS: usize = 3;

/// Few functions, so that peers meet.
fn function() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just("f"), Just("g"), Just("")].prop_map(Bytes::from)
}

fn unique() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just(""), Just("-"), Just("id"), Just("other")].prop_map(Bytes::from)
}

fn data() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        Just(Bytes::new()),
        Just(Bytes::from_static(b"d")),
        vec(any::<u8>(), 0..60).prop_map(Bytes::from)
    ]
}

fn handle() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        9 => (1..12u64).prop_map(|number| Bytes::copy_from_slice(&prefix().handle(number))),
        1 => Just(Bytes::from_static(b"H:elsewhere:1")),
    ]
}

fn submit() -> impl Strategy<Value = Request> {
    let job = (function(), unique(), data()).prop_map(|(function, unique, workload)| Submission {
        function,
        unique,
        workload,
    });
    let priority = prop_oneof![
        Just(Priority::High),
        Just(Priority::Normal),
        Just(Priority::Low)
    ];
    let minute = prop_oneof![Just(""), Just("*"), Just("14"), Just("x")];
    (job, priority, any::<bool>(), 0..7, minute).prop_map(
        |(job, priority, background, how, minute)| match how {
            0 => Request::SubmitEpoch {
                job,
                when_s: START_S + 2,
            },
            1 => Request::SubmitReduce {
                job,
                reducer: Bytes::from_static(b"r"),
                aggregate: Some(Bytes::new()),
                background,
            },
            2 => Request::SubmitSched {
                job,
                schedule: schedule(minute),
            },
            _ => Request::Submit {
                job,
                priority,
                background,
            },
        },
    )
}

/// Any minute, one that comes soon, or an invalid one.
fn schedule(minute: &'static str) -> Box<Schedule> {
    let any = Bytes::from_static(b"*");
    let (hour, day_of_month, month, day_of_week) = (any.clone(), any.clone(), any.clone(), any);
    Box::new(Schedule {
        minute: Bytes::from(minute),
        hour,
        day_of_month,
        month,
        day_of_week,
    })
}

fn worker() -> impl Strategy<Value = Request> {
    let form = prop_oneof![
        Just(AssignForm::Plain),
        Just(AssignForm::Unique),
        Just(AssignForm::All)
    ];
    prop_oneof![
        3 => function().prop_map(|function| Request::CanDo { function }),
        1 => (function(), 0..3_000u64)
            .prop_map(|(function, timeout_ms)| Request::CanDoTimeout { function, timeout_ms }),
        1 => function().prop_map(|function| Request::CantDo { function }),
        1 => Just(Request::ResetAbilities),
        4 => Just(Request::PreSleep),
        9 => form.prop_map(Request::Grab),
        1 => data().prop_map(|id| Request::SetClientId { id }),
    ]
}

fn work() -> impl Strategy<Value = Request> {
    let number =
        || prop_oneof![Just("1"), Just("x"), Just("18446744073709551616")].prop_map(Bytes::from);
    prop_oneof![
        3 => (handle(), data()).prop_map(|(handle, data)| Request::Work { handle, report: Report::Complete(data) }),
        1 => handle().prop_map(|handle| Request::Work { handle, report: Report::Fail }),
        1 => (handle(), data()).prop_map(|(handle, data)| Request::Work { handle, report: Report::Exception(data) }),
        1 => (handle(), data()).prop_map(|(handle, data)| Request::Work { handle, report: Report::Data(data) }),
        1 => (handle(), data()).prop_map(|(handle, data)| Request::Work { handle, report: Report::Warning(data) }),
        1 => (handle(), number(), number()).prop_map(|(handle, numerator, denominator)| {
            Request::Work { handle, report: Report::Status { numerator, denominator } }
        }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        6 => submit(),
        6 => worker(),
        4 => work(),
        1 => handle().prop_map(|handle| Request::GetStatus { handle }),
        1 => unique().prop_map(|unique| Request::GetStatusUnique { unique }),
        1 => data().prop_map(|data| Request::Echo { data }),
        1 => prop_oneof![Just("exceptions"), Just("nope")].prop_map(|name| Request::SetOption { name: Bytes::from(name) }),
    ]
}

fn line() -> impl Strategy<Value = AdminRequest> {
    let limits = QueueLimits {
        high: 1,
        normal: 2,
        low: 3,
    };
    prop_oneof![
        Just(AdminRequest::Status),
        Just(AdminRequest::PriorityStatus),
        Just(AdminRequest::Workers),
        Just(AdminRequest::ShowJobs),
        Just(AdminRequest::ShowUniqueJobs),
        Just(AdminRequest::Version),
        handle().prop_map(|handle| AdminRequest::CancelJob { handle }),
        function().prop_map(|function| AdminRequest::CreateFunction { function }),
        function().prop_map(|function| AdminRequest::DropFunction { function }),
        function().prop_map(move |function| AdminRequest::MaxQueue { function, limits }),
    ]
}

/// One message, or noise; an invalid message usually ends its connection.
fn message() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        30 => request().prop_map(|request| encoded(|out| request.encode(out))),
        6 => line().prop_map(|line| encoded(|out| line.encode(out))),
        1 => vec(any::<u8>(), 0..40),
        1 => (request(), 0..30usize).prop_map(|(request, bytes)| {
            let mut frame = encoded(|out| request.encode(out));
            frame.truncate(bytes);
            frame
        }),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let peer = || 0..PEERS;
    let one = prop_oneof![
        20 => (peer(), vec(message(), 1..8)).prop_map(|(peer, messages)| Move::Send(peer, messages.concat())),
        2 => peer().prop_map(Move::Replace),
        1 => peer().prop_map(Move::HalfClose),
        2 => (0..4_000u64).prop_map(Move::Wait),
        1 => Just(Move::Wait(60_000)),
    ];
    vec(one, 0..25)
}

fn encoded(encode: impl Fn(&mut BytesMut)) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(&mut out);
    out.to_vec()
}

const START_S: u64 = 1_700_000_000;

fn prefix() -> HandlePrefix {
    HandlePrefix::new(b"H:here").unwrap()
}

/// Plays moves on a server. Bytes sent are cut at these places, wherever they fall.
fn play(settings: Settings, moves: &[Move], cuts: &[Index]) -> Vec<String> {
    let hub = MemoryHub::new(Limits::default(), Timestamp(START_S * 1_000), 7);
    let settings = Arc::new(settings);
    let mut is_first = true;
    let greet = move |hub: &mut MemoryHub, _| {
        let settings = Arc::clone(&settings);
        let client = hub.open(|info| Box::new(GearmanSpeaker::session(settings, info)));
        // One worker, so that jobs are not only queued.
        if std::mem::take(&mut is_first) {
            for function in ["f", "g"].map(Bytes::from) {
                hub.send(
                    client,
                    &encoded(|out| {
                        Request::CanDo {
                            function: function.clone(),
                        }
                        .encode(out)
                    }),
                );
            }
        }
        client
    };
    World::new(hub, PEERS, greet).play(moves, |bytes| {
        cuts.iter().map(|cut| cut.index(bytes + 1)).collect()
    })
}

fn settings(requeue: bool, round_robin: bool, job_retries: u32) -> Settings {
    let on_timeout = if requeue {
        OnTimeout::Requeue
    } else {
        OnTimeout::Fail
    };
    let frame_bytes_max = ByteSize(4_096);
    let section = Gearman {
        on_timeout,
        round_robin,
        job_retries,
        frame_bytes_max,
        ..Gearman::default()
    };
    Settings {
        section,
        ..Settings::new(prefix())
    }
}

/// Cases whose outcome once depended on cuts.
#[test]
fn cuts_do_not_matter_in_past_failures() {
    let handle = Bytes::copy_from_slice(&prefix().handle(1));
    let job = Submission {
        function: Bytes::from("f"),
        unique: Bytes::new(),
        workload: Bytes::new(),
    };
    let submit = Request::Submit {
        job,
        priority: Priority::Normal,
        background: false,
    };
    let grab = Request::Grab(AssignForm::Plain);
    let exception = Request::Work {
        handle: handle.clone(),
        report: Report::Exception(Bytes::from("boom")),
    };
    let option = Request::SetOption {
        name: Bytes::from("exceptions"),
    };
    let fail = Request::Work {
        handle,
        report: Report::Fail,
    };
    let say = |requests: &[&Request]| {
        Move::Send(
            0,
            encoded(|out| requests.iter().for_each(|request| request.encode(out))),
        )
    };
    let table = [
        (
            "an option behind an exception",
            vec![say(&[&submit, &grab]), say(&[&exception, &option])],
        ),
        (
            "a failure behind an exception and a grab",
            vec![say(&[&submit, &grab]), say(&[&exception, &grab, &fail])],
        ),
        (
            "nonsense behind a list",
            vec![
                Move::Send(0, b"status\n\0\0".to_vec()),
                Move::Send(1, b"workers\n".to_vec()),
            ],
        ),
    ];
    for (name, moves) in table {
        let play = |moves: &[Move]| play(settings(false, false, 0), moves, &[]);
        assert_eq!(play(&moves), play(&single_bytes(&moves)), "{name}");
    }
}

proptest! {
    #[test]
    fn cuts_do_not_matter(
        moves in moves(),
        cuts in vec(any::<Index>(), 0..6),
        requeue: bool,
        round_robin: bool,
        job_retries in 0..3u32,
    ) {
        let play = |cuts: &[Index]| play(settings(requeue, round_robin, job_retries), &moves, cuts);
        prop_assert_eq!(play(&[]), play(&cuts));
    }

    #[test]
    fn single_bytes_give_the_same_result(moves in moves()) {
        let play = |moves: &[Move]| play(settings(false, false, 0), moves, &[]);
        prop_assert_eq!(play(&moves), play(&single_bytes(&moves)));
    }

    #[test]
    fn noise_does_no_harm(noise in vec((0..PEERS, vec(prop_oneof![Just(0), Just(b'\n'), any::<u8>()], 0..200)), 0..20)) {
        let moves: Vec<Move> = noise.into_iter().map(|(peer, bytes)| Move::Send(peer, bytes)).collect();
        play(settings(false, false, 0), &moves, &[]);
    }
}
