//! What must hold for any bytes: decoding reverses encoding, cuts of the stream do not matter, and noise neither panics
//! nor allocates past the limit.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{Decoded, LIMITS, decode, decode_one, decode_whole};
use crate::wire::{
    AdminRequest, AssignForm, HandlePrefix, Magic, Message, Priority, QueueLimits, Report, Request,
    Response, Schedule, Status, Submission,
};

/// Any bytes, with significant ones more often than by chance.
fn bytes(bytes_max: usize) -> impl Strategy<Value = Bytes> {
    let byte = prop_oneof![3 => any::<u8>(), 1 => Just(0), 1 => Just(b'\n'), 1 => Just(b' ')];
    vec(byte, 0..=bytes_max).prop_map(Bytes::from)
}

/// Any argument that a NUL may end.
fn argument(bytes_max: usize) -> impl Strategy<Value = Bytes> {
    vec(1..=u8::MAX, 0..=bytes_max).prop_map(Bytes::from)
}

/// A word of a text line.
fn word() -> impl Strategy<Value = Bytes> {
    let byte = any::<u8>().prop_filter("ends the word", |byte| !b" \n\0".contains(byte));
    vec(byte, 1..30).prop_map(Bytes::from)
}

fn submission() -> impl Strategy<Value = Submission> {
    (argument(40), argument(64), bytes(200)).prop_map(|(function, unique, workload)| Submission {
        function,
        unique,
        workload,
    })
}

fn priority() -> impl Strategy<Value = Priority> {
    prop_oneof![
        Just(Priority::High),
        Just(Priority::Normal),
        Just(Priority::Low)
    ]
}

fn form() -> impl Strategy<Value = AssignForm> {
    prop_oneof![
        Just(AssignForm::Plain),
        Just(AssignForm::Unique),
        Just(AssignForm::All)
    ]
}

fn schedule() -> impl Strategy<Value = Box<Schedule>> {
    [
        argument(3),
        argument(3),
        argument(3),
        argument(3),
        argument(3),
    ]
    .prop_map(|[minute, hour, day_of_month, month, day_of_week]| {
        Box::new(Schedule {
            minute,
            hour,
            day_of_month,
            month,
            day_of_week,
        })
    })
}

fn submit() -> impl Strategy<Value = Request> {
    prop_oneof![
        (submission(), priority(), any::<bool>()).prop_map(|(job, priority, background)| {
            Request::Submit {
                job,
                priority,
                background,
            }
        }),
        (submission(), schedule())
            .prop_map(|(job, schedule)| Request::SubmitSched { job, schedule }),
        (submission(), 0..=i64::MAX as u64)
            .prop_map(|(job, when_s)| Request::SubmitEpoch { job, when_s }),
        (submission(), argument(64), argument(9), any::<bool>()).prop_map(
            |(job, reducer, aggregate, background)| {
                let aggregate = Some(aggregate);
                Request::SubmitReduce {
                    job,
                    reducer,
                    aggregate,
                    background,
                }
            }
        ),
        (submission(), argument(64), argument(9), any::<bool>()).prop_map(
            |(job, reducer, workload, background)| {
                let job = Submission { workload, ..job };
                Request::SubmitReduce {
                    job,
                    reducer,
                    aggregate: None,
                    background,
                }
            }
        ),
    ]
}

fn work() -> impl Strategy<Value = Request> {
    let work = || (argument(63), bytes(200));
    prop_oneof![
        (argument(63), argument(9), bytes(9)).prop_map(|(handle, numerator, denominator)| {
            Request::Work {
                handle,
                report: Report::Status {
                    numerator,
                    denominator,
                },
            }
        }),
        work().prop_map(|(handle, data)| Request::Work {
            handle,
            report: Report::Data(data)
        }),
        work().prop_map(|(handle, data)| Request::Work {
            handle,
            report: Report::Warning(data)
        }),
        work().prop_map(|(handle, data)| Request::Work {
            handle,
            report: Report::Complete(data)
        }),
        work().prop_map(|(handle, data)| Request::Work {
            handle,
            report: Report::Exception(data)
        }),
        argument(63).prop_map(|handle| Request::Work {
            handle,
            report: Report::Fail
        }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        2 => submit(),
        2 => work(),
        1 => bytes(40).prop_map(|function| Request::CanDo { function }),
        1 => bytes(40).prop_map(|function| Request::CantDo { function }),
        1 => (argument(40), any::<u64>())
            .prop_map(|(function, timeout_ms)| Request::CanDoTimeout { function, timeout_ms }),
        1 => prop_oneof![Just(Request::ResetAbilities), Just(Request::PreSleep), Just(Request::AllYours)],
        1 => form().prop_map(Request::Grab),
        1 => argument(63).prop_map(|handle| Request::GetStatus { handle }),
        1 => argument(64).prop_map(|unique| Request::GetStatusUnique { unique }),
        1 => bytes(200).prop_map(|data| Request::Echo { data }),
        1 => bytes(63).prop_map(|name| Request::SetOption { name }),
        1 => argument(127).prop_map(|id| Request::SetClientId { id }),
    ]
}

fn admin() -> impl Strategy<Value = AdminRequest> {
    prop_oneof![
        prop_oneof![
            Just(AdminRequest::Version),
            Just(AdminRequest::Pid),
            Just(AdminRequest::Verbosity),
            Just(AdminRequest::Status),
            Just(AdminRequest::PriorityStatus),
            Just(AdminRequest::Workers),
            Just(AdminRequest::ShowJobs),
            Just(AdminRequest::ShowUniqueJobs),
            Just(AdminRequest::ShowDeadJobs),
            word().prop_map(|handle| AdminRequest::RequeueJob { handle }),
            Just(AdminRequest::Shutdown { graceful: false }),
            Just(AdminRequest::Shutdown { graceful: true }),
        ],
        word().prop_map(|handle| AdminRequest::CancelJob { handle }),
        word().prop_map(|function| AdminRequest::CreateFunction { function }),
        word().prop_map(|function| AdminRequest::DropFunction { function }),
        (word(), any::<[u32; 3]>()).prop_map(|(function, [high, normal, low])| {
            AdminRequest::MaxQueue {
                function,
                limits: QueueLimits { high, normal, low },
            }
        }),
    ]
}

fn status() -> impl Strategy<Value = Status> {
    any::<(bool, bool, u32, u32)>().prop_map(|(known, running, numerator, denominator)| Status {
        known,
        running,
        numerator,
        denominator,
    })
}

/// A stream: messages, pieces of messages and noise.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        4 => request().prop_map(|request| encoded(|out| request.encode(out))),
        2 => admin().prop_map(|request| encoded(|out| request.encode(out))),
        1 => bytes(150).prop_map(|noise| noise.to_vec()),
        1 => (any::<bool>(), 0u32..50, 0u32..100, bytes(100)).prop_map(|(ours, kind, size, body)| {
            let magic = if ours { Magic::Request } else { Magic::Response };
            [&magic.bytes(), &kind.to_be_bytes(), &size.to_be_bytes(), &*body].concat()
        }),
        1 => (request(), 0..40usize).prop_map(|(request, bytes)| {
            let mut frame = encoded(|out| request.encode(out));
            frame.truncate(bytes);
            frame
        }),
    ];
    vec(part, 0..8).prop_map(|parts| parts.concat())
}

fn encoded(encode: impl Fn(&mut BytesMut)) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(&mut out);
    out.to_vec()
}

/// Parses a message, writes the result, and asserts that parsing that again gives the same.
fn read_twice(message: &Message) {
    match message {
        Message::Line(line) => {
            if let Ok(request) = AdminRequest::parse(line) {
                let again = decode_whole(&encoded(|out| request.encode(out)));
                let [Message::Line(line)] = again.messages.as_slice() else {
                    panic!("{again:?}")
                };
                assert_eq!(AdminRequest::parse(line), Ok(request));
            }
        }
        Message::Packet(packet) => {
            if let Ok(request) = Request::parse(packet) {
                let again = decode_one(&encoded(|out| request.encode(out)));
                assert_eq!(Request::parse(&again), Ok(request));
            }
            if let Ok(response) = Response::parse(packet) {
                let again = decode_one(&encoded(|out| response.encode(out)));
                assert_eq!(Response::parse(&again), Ok(response));
            }
        }
    }
}

proptest! {
    #[test]
    fn requests_decode_to_what_was_encoded(request in request()) {
        let packet = decode_one(&encoded(|out| request.encode(out)));
        prop_assert_eq!(Request::parse(&packet), Ok(request));
    }

    #[test]
    fn admin_commands_decode_to_what_was_encoded(request in admin()) {
        let decoded = decode_whole(&encoded(|out| request.encode(out)));
        let [Message::Line(line)] = decoded.messages.as_slice() else { panic!("{decoded:?}") };
        prop_assert_eq!(AdminRequest::parse(line), Ok(request));
    }

    #[test]
    fn responses_decode_to_what_was_encoded(
        handle in argument(63),
        function in argument(40),
        unique in argument(64),
        data in bytes(200),
        status in status(),
        clients in any::<u32>(),
    ) {
        let (handle, function, unique, data) = (&*handle, &*function, &*unique, &*data);
        let responses = [
            Response::Noop,
            Response::NoJob,
            Response::JobCreated { handle },
            Response::JobAssign { handle, function, workload: data },
            Response::JobAssignUniq { handle, function, unique, workload: data },
            Response::JobAssignAll { handle, function, unique, reducer: unique, workload: data },
            Response::Work { handle, report: Report::Status { numerator: unique, denominator: data } },
            Response::Work { handle, report: Report::Data(data) },
            Response::Work { handle, report: Report::Warning(data) },
            Response::Work { handle, report: Report::Complete(data) },
            Response::Work { handle, report: Report::Exception(data) },
            Response::Work { handle, report: Report::Fail },
            Response::StatusRes { handle, status },
            Response::StatusResUnique { unique, status, clients },
            Response::EchoRes { data },
            Response::OptionRes { name: data },
            Response::Error { code: handle, text: data },
        ];
        for response in responses {
            let packet = decode_one(&encoded(|out| response.encode(out)));
            prop_assert_eq!(Response::parse(&packet), Ok(response));
        }
    }

    #[test]
    fn handles_parse_to_their_number(prefix in "[!-~]{1,42}", number: u64, noise in bytes(30)) {
        let prefix = HandlePrefix::new(prefix.as_bytes()).unwrap();
        let handle = prefix.handle(number);
        prop_assert_eq!(prefix.parse(&handle), Some(number));
        let text = [&handle[..handle.len() - number.to_string().len()], &noise].concat();
        if let Some(number) = prefix.parse(&text) {
            let text = text.strip_suffix(b"\0").unwrap_or(&text);
            prop_assert_eq!(&*prefix.handle(number), text);
        }
    }

    #[test]
    fn cuts_do_not_matter(stream in stream(), cuts in vec(any::<Index>(), 0..20)) {
        let whole = decode(LIMITS, [&*stream]);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([stream.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let pieces = starts.zip(ends).map(|(start, end)| &stream[start..end]);
        prop_assert_eq!(&decode(LIMITS, pieces), &whole);
        prop_assert_eq!(&decode(LIMITS, stream.chunks(1)), &whole);
    }

    #[test]
    fn noise_does_no_harm(stream in stream()) {
        // `decode` itself asserts that nothing is allocated and that the hint stays within the limit.
        let Decoded { messages, .. } = decode_whole(&stream);
        let bytes: usize = messages.iter().map(|message| match message {
            Message::Packet(packet) => packet.body.len(),
            Message::Line(line) => line.len() + 1,
        }).sum();
        prop_assert!(bytes <= stream.len());
        messages.iter().for_each(read_twice);
    }
}
