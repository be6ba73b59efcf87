//! Parsing requests, and refusing malformed ones.

use bytes::{Bytes, BytesMut};

use super::{decode_one, packet};
use crate::wire::{
    AssignForm, ErrorReply, Kind, Magic, Priority, Report, Request, Response, Schedule, Submission,
    is_exceptions, status_number,
};

fn b(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

fn submission(function: &str, unique: &str, workload: &[u8]) -> Submission {
    Submission {
        function: b(function.as_bytes()),
        unique: b(unique.as_bytes()),
        workload: b(workload),
    }
}

fn submit(priority: Priority, background: bool) -> Request {
    Request::Submit {
        job: submission("f", "u", b"w\0x"),
        priority,
        background,
    }
}

fn parse(kind: u32, body: &[u8]) -> Result<Request, ErrorReply> {
    Request::parse(&packet(Magic::Request, kind, body))
}

/// One line per request of the specification. Each is parsed and then written again.
#[test]
fn every_request_is_read_and_written() {
    let cases: &[(u32, &[u8], Request)] = &[
        (
            1,
            b"reverse",
            Request::CanDo {
                function: b(b"reverse"),
            },
        ),
        (1, b"", Request::CanDo { function: b(b"") }),
        (
            1,
            b"a\0b",
            Request::CanDo {
                function: b(b"a\0b"),
            },
        ),
        (
            2,
            b"reverse",
            Request::CantDo {
                function: b(b"reverse"),
            },
        ),
        (3, b"", Request::ResetAbilities),
        (4, b"", Request::PreSleep),
        (7, b"f\0u\0w\0x", submit(Priority::Normal, false)),
        (9, b"", Request::Grab(AssignForm::Plain)),
        (
            12,
            b"H:lap:1\x003\x0010",
            Request::Work {
                handle: b(b"H:lap:1"),
                report: Report::Status {
                    numerator: b(b"3"),
                    denominator: b(b"10"),
                },
            },
        ),
        (
            13,
            b"H:lap:1\0a\0b",
            Request::Work {
                handle: b(b"H:lap:1"),
                report: Report::Complete(b(b"a\0b")),
            },
        ),
        (
            13,
            b"H:lap:1\0",
            Request::Work {
                handle: b(b"H:lap:1"),
                report: Report::Complete(b(b"")),
            },
        ),
        (
            14,
            b"H:lap:1",
            Request::Work {
                handle: b(b"H:lap:1"),
                report: Report::Fail,
            },
        ),
        (
            15,
            b"H:lap:1",
            Request::GetStatus {
                handle: b(b"H:lap:1"),
            },
        ),
        (
            16,
            b"a\0b\0c",
            Request::Echo {
                data: b(b"a\0b\0c"),
            },
        ),
        (16, b"", Request::Echo { data: b(b"") }),
        (18, b"f\0u\0w\0x", submit(Priority::Normal, true)),
        (21, b"f\0u\0w\0x", submit(Priority::High, false)),
        (
            22,
            b"my worker",
            Request::SetClientId {
                id: b(b"my worker"),
            },
        ),
        (22, b"", Request::SetClientId { id: b(b"") }),
        (
            23,
            b"f\x001500",
            Request::CanDoTimeout {
                function: b(b"f"),
                timeout_ms: 1500,
            },
        ),
        (24, b"", Request::AllYours),
        (
            25,
            b"H:lap:1\0boom",
            Request::Work {
                handle: b(b"H:lap:1"),
                report: Report::Exception(b(b"boom")),
            },
        ),
        (
            26,
            b"exceptions",
            Request::SetOption {
                name: b(b"exceptions"),
            },
        ),
        (
            26,
            b"exceptions\0",
            Request::SetOption {
                name: b(b"exceptions\0"),
            },
        ),
        (
            28,
            b"H:lap:1\0a\0b",
            Request::Work {
                handle: b(b"H:lap:1"),
                report: Report::Data(b(b"a\0b")),
            },
        ),
        (
            29,
            b"H:lap:1\0warn",
            Request::Work {
                handle: b(b"H:lap:1"),
                report: Report::Warning(b(b"warn")),
            },
        ),
        (30, b"", Request::Grab(AssignForm::Unique)),
        (32, b"f\0u\0w\0x", submit(Priority::High, true)),
        (33, b"f\0u\0w\0x", submit(Priority::Low, false)),
        (34, b"f\0u\0w\0x", submit(Priority::Low, true)),
        (
            35,
            b"f\0u\x000\x0023\x001\x0012\x006\0w\0x",
            Request::SubmitSched {
                job: submission("f", "u", b"w\0x"),
                schedule: Box::new(Schedule {
                    minute: b(b"0"),
                    hour: b(b"23"),
                    day_of_month: b(b"1"),
                    month: b(b"12"),
                    day_of_week: b(b"6"),
                }),
            },
        ),
        (
            36,
            b"f\0u\x001795235594\0later",
            Request::SubmitEpoch {
                job: submission("f", "u", b"later"),
                when_s: 1_795_235_594,
            },
        ),
        (
            37,
            b"f\0u\0r\x001\0w\0x",
            reduce(Some(b"1"), b"w\0x", false),
        ),
        (37, b"f\0u\0r\0w", reduce(None, b"w", false)),
        (38, b"f\0u\0r\0\0w", reduce(Some(b""), b"w", true)),
        (38, b"f\0u\0r\0w", reduce(None, b"w", true)),
        (38, b"f\0u\0r\0", reduce(None, b"", true)),
        (39, b"", Request::Grab(AssignForm::All)),
        (41, b"u", Request::GetStatusUnique { unique: b(b"u") }),
    ];
    for (kind, body, request) in cases {
        assert_eq!(parse(*kind, body).as_ref(), Ok(request), "{}", Kind(*kind));
        let mut out = BytesMut::new();
        request.encode(&mut out);
        assert_eq!(decode_one(&out), packet(Magic::Request, *kind, body));
    }
}

fn reduce(aggregate: Option<&[u8]>, workload: &[u8], background: bool) -> Request {
    let job = submission("f", "u", workload);
    Request::SubmitReduce {
        job,
        reducer: b(b"r"),
        aggregate: aggregate.map(b),
        background,
    }
}

/// Deviations that real peers send.
#[test]
fn sloppy_requests_are_understood() {
    let id = [b'i'; 127];
    let cases: &[(&str, u32, &[u8], Request)] = &[
        (
            "body where none belongs",
            9,
            b"xyz",
            Request::Grab(AssignForm::Plain),
        ),
        ("body where none belongs", 24, b"\0", Request::AllYours),
        (
            "handle and nul",
            14,
            b"H:lap:1\0",
            Request::Work {
                handle: b(b"H:lap:1"),
                report: Report::Fail,
            },
        ),
        (
            "handle and nul",
            15,
            b"H:lap:1\0",
            Request::GetStatus {
                handle: b(b"H:lap:1"),
            },
        ),
        (
            "handle, nul and more",
            15,
            b"H:lap:1\0x",
            Request::GetStatus {
                handle: b(b"H:lap:1"),
            },
        ),
        (
            "empty handle",
            15,
            b"",
            Request::GetStatus { handle: b(b"") },
        ),
        (
            "unique and nul",
            41,
            b"u\0",
            Request::GetStatusUnique { unique: b(b"u") },
        ),
        (
            "id and nul",
            22,
            b"nul\0tail",
            Request::SetClientId { id: b(b"nul") },
        ),
        (
            "long id",
            22,
            &[b'i'; 200],
            Request::SetClientId { id: b(&id) },
        ),
        (
            "timeout 0",
            23,
            b"f\x000",
            Request::CanDoTimeout {
                function: b(b"f"),
                timeout_ms: 0,
            },
        ),
        (
            "timeout -1",
            23,
            b"f\0-1",
            Request::CanDoTimeout {
                function: b(b"f"),
                timeout_ms: 0,
            },
        ),
        (
            "timeout abc",
            23,
            b"f\0abc",
            Request::CanDoTimeout {
                function: b(b"f"),
                timeout_ms: 0,
            },
        ),
        (
            "no timeout",
            23,
            b"f\0",
            Request::CanDoTimeout {
                function: b(b"f"),
                timeout_ms: 0,
            },
        ),
        (
            "timeout beyond 64 bits",
            23,
            b"f\x0099999999999999999999",
            Request::CanDoTimeout {
                function: b(b"f"),
                timeout_ms: 0,
            },
        ),
        ("epoch 0", 36, b"f\0u\x000\0w", epoch(0)),
        ("epoch abc", 36, b"f\0u\0abc\0w", epoch(0)),
        ("epoch -5", 36, b"f\0u\0-5\0w", epoch(0)),
        (
            "epoch with blanks and letters",
            36,
            b"f\0u\0 +12x\0w",
            epoch(12),
        ),
        (
            "largest epoch",
            36,
            b"f\0u\x009223372036854775807\0w",
            epoch(i64::MAX as u64),
        ),
    ];
    for (name, kind, body, request) in cases {
        assert_eq!(parse(*kind, body).as_ref(), Ok(request), "{name}");
    }
}

fn epoch(when_s: u64) -> Request {
    Request::SubmitEpoch {
        job: submission("f", "u", b"w"),
        when_s,
    }
}

#[test]
fn arguments_that_run_short_fail_one_packet() {
    let cases: &[(u32, &[u8])] = &[
        (7, b""),
        (7, b"f"),
        (7, b"f\0u"),
        (18, b"funconly"),
        (18, b"func\0uniq"),
        (21, b"f\0u"),
        (32, b"f\0u"),
        (33, b"f\0u"),
        (34, b"f\0u"),
        (12, b"H:lap:1"),
        (12, b"H:lap:1\x001"),
        (23, b"f"),
        (35, b"f\0u\x001\x002\x003\x004\x005"),
        (36, b"f\0u\x001"),
        (37, b"f\0u\0r"),
        (38, b"f\0u"),
    ];
    for (kind, body) in cases {
        assert_eq!(
            parse(*kind, body),
            Err(ErrorReply::TOO_FEW_ARGUMENTS),
            "{} {body:?}",
            Kind(*kind)
        );
    }
}

#[test]
fn a_work_packet_may_be_a_handle_alone() {
    let (handle, data) = (Bytes::from_static(b"H:lap:1"), Bytes::new());
    assert_eq!(
        parse(13, b"H:lap:1"),
        Ok(Request::Work {
            handle: handle.clone(),
            report: Report::Complete(data.clone())
        })
    );
    assert_eq!(
        parse(25, b"H:lap:1"),
        Ok(Request::Work {
            handle: handle.clone(),
            report: Report::Exception(data.clone())
        })
    );
    assert_eq!(
        parse(28, b"H:lap:1"),
        Ok(Request::Work {
            handle: handle.clone(),
            report: Report::Data(data.clone())
        })
    );
    assert_eq!(
        parse(29, b"H:lap:1"),
        Ok(Request::Work {
            handle,
            report: Report::Warning(data)
        })
    );
}

#[test]
fn arguments_too_large_fail_one_packet() {
    let long = |bytes| [b'x'].repeat(bytes);
    let with = |before: &[u8], bytes, after: &[u8]| [before, &long(bytes), after].concat();
    let (unique, reducer) = (ErrorReply::UNIQUE_TOO_LARGE, ErrorReply::UNIQUE_TOO_LARGE);
    let (handle, option) = (ErrorReply::HANDLE_TOO_LARGE, ErrorReply::UNKNOWN_OPTION);
    let (function, epoch) = (
        ErrorReply::FUNCTION_TOO_LARGE,
        ErrorReply::EPOCH_OUT_OF_RANGE,
    );
    let cases: &[(&str, u32, Vec<u8>, Option<ErrorReply>)] = &[
        ("unique of 64", 7, with(b"f\0", 64, b"\0w"), None),
        ("unique of 65", 7, with(b"f\0", 65, b"\0w"), Some(unique)),
        (
            "unique of 65, background",
            18,
            with(b"f\0", 65, b"\0w"),
            Some(unique),
        ),
        (
            "unique of 65, epoch",
            36,
            with(b"f\0", 65, b"\x000\0w"),
            Some(unique),
        ),
        (
            "unique of 65, calendar",
            35,
            with(b"f\0", 65, b"\0\0\0\0\0\0w"),
            Some(unique),
        ),
        (
            "unique of 65, reduce",
            37,
            with(b"f\0", 65, b"\0r\0\0w"),
            Some(unique),
        ),
        ("reducer of 64", 37, with(b"f\0u\0", 64, b"\0\0w"), None),
        (
            "reducer of 65",
            37,
            with(b"f\0u\0", 65, b"\0\0w"),
            Some(reducer),
        ),
        ("status of a unique of 64", 41, long(64), None),
        (
            "status of a unique of 64 and nul",
            41,
            with(b"", 64, b"\0"),
            None,
        ),
        ("status of a unique of 65", 41, long(65), Some(unique)),
        ("status of a handle of 63", 15, long(63), None),
        (
            "status of a handle of 63 and nul",
            15,
            with(b"", 63, b"\0"),
            None,
        ),
        ("status of a handle of 64", 15, long(64), Some(handle)),
        (
            "failure of a handle of 63 and nul",
            14,
            with(b"", 63, b"\0"),
            None,
        ),
        ("failure of a handle of 64", 14, long(64), Some(handle)),
        (
            "completion of a handle of 64 is not found later",
            13,
            with(b"", 64, b"\0w"),
            None,
        ),
        ("option of 63", 26, long(63), None),
        ("option of 64", 26, long(64), Some(option)),
        ("function of 8192", 1, long(8192), None),
        ("function of 8193", 1, long(8193), Some(function)),
        (
            "function of 8193, not any more",
            2,
            long(8193),
            Some(function),
        ),
        (
            "function of 8193, timeout",
            23,
            with(b"", 8193, b"\x001"),
            Some(function),
        ),
        ("function of 8192, job", 7, with(b"", 8192, b"\0\0w"), None),
        (
            "function of 8193, job",
            7,
            with(b"", 8193, b"\0\0w"),
            Some(function),
        ),
        (
            "epoch beyond 63 bits",
            36,
            b"f\0u\x009223372036854775808\0w".to_vec(),
            Some(epoch),
        ),
        (
            "epoch beyond 64 bits",
            36,
            b"f\0u\x0099999999999999999999\0w".to_vec(),
            Some(epoch),
        ),
    ];
    for (name, kind, body, error) in cases {
        assert_eq!(parse(*kind, body).err(), *error, "{name}");
    }
}

#[test]
fn packets_of_servers_are_refused() {
    for kind in [5, 6, 8, 10, 11, 17, 19, 20, 27, 31, 40, 42] {
        assert_eq!(
            parse(kind, b"h\0f\0u\0r\0d"),
            Err(ErrorReply::INVALID_COMMAND)
        );
    }
    for kind in 1..=42 {
        let packet = packet(Magic::Response, kind, b"");
        assert_eq!(Request::parse(&packet), Err(ErrorReply::INVALID_MAGIC));
    }
}

#[test]
fn refusals_have_the_text_of_gearmand() {
    let cases: &[(ErrorReply, &str, &str)] = &[
        (
            ErrorReply::INVALID_MAGIC,
            "INVALID_MAGIC",
            "Request magic expected",
        ),
        (
            ErrorReply::INVALID_COMMAND,
            "INVALID_COMMAND",
            "Command not expected",
        ),
        (
            ErrorReply::TOO_FEW_ARGUMENTS,
            "INVALID_ARGUMENTS",
            "Packet has too few arguments",
        ),
        (
            ErrorReply::UNIQUE_TOO_LARGE,
            "ARGUMENT_TOO_LARGE",
            "Unique value too large",
        ),
        (
            ErrorReply::HANDLE_TOO_LARGE,
            "ARGUMENT_TOO_LARGE",
            "Error occurred due to GEARMAND_JOB_HANDLE_SIZE being too small from snprintf",
        ),
        (
            ErrorReply::FUNCTION_TOO_LARGE,
            "ARGUMENT_TOO_LARGE",
            "Function name too large",
        ),
        (
            ErrorReply::UNKNOWN_OPTION,
            "UNKNOWN_OPTION",
            "Server does not recognize given option",
        ),
        (
            ErrorReply::EPOCH_OUT_OF_RANGE,
            "INVALID_ARGUMENTS",
            "Epoch time out of range",
        ),
    ];
    for (refusal, code, text) in cases {
        let mut out = BytesMut::new();
        refusal.encode(&mut out);
        let packet = decode_one(&out);
        let expected = Response::Error {
            code: code.as_bytes(),
            text: text.as_bytes(),
        };
        assert_eq!(Response::parse(&packet), Ok(expected));
    }
}

#[test]
fn there_is_one_option() {
    let cases: &[(&[u8], bool)] = &[
        (b"exceptions", true),
        (b"EXCEPTIONS", true),
        (b"exceptions\0", true),
        (b"exception", false),
        (b"exceptions ", false),
        (b"nope", false),
        (b"", false),
    ];
    for (name, known) in cases {
        assert_eq!(is_exceptions(name), *known, "{name:?}");
    }
}

#[test]
fn numbers_of_a_status_are_read_as_c_does() {
    let cases: &[(&[u8], u32)] = &[
        (b"0", 0),
        (b"10", 10),
        (b" \t7", 7),
        (b"+7", 7),
        (b"-7", 0),
        (b"7.5", 7),
        (b"x", 0),
        (b"", 0),
        (b"4294967295", u32::MAX),
        (b"4294967296", u32::MAX),
        (b"99999999999999999999999", u32::MAX),
    ];
    for (text, number) in cases {
        assert_eq!(status_number(text), *number, "{text:?}");
    }
}

#[test]
fn a_workload_with_nuls_survives_a_reduce_without_aggregate() {
    let mut out = BytesMut::new();
    reduce(None, b"w\0x", true).encode(&mut out);
    assert_eq!(
        Request::parse(&decode_one(&out)),
        Ok(reduce(Some(b""), b"w\0x", true))
    );
}

#[test]
fn fields_are_views_into_the_packet() {
    let packet = packet(Magic::Request, 7, b"f\0u\0workload");
    let Ok(Request::Submit { job, .. }) = Request::parse(&packet) else {
        panic!("no job")
    };
    assert_eq!(job.function.as_ptr(), packet.body.as_ptr());
    assert_eq!(job.workload.as_ptr(), packet.body[4..].as_ptr());
}
