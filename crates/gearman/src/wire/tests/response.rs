//! The server's responses, to the byte.

use bytes::BytesMut;

use super::{decode_one, packet};
use crate::wire::{ErrorReply, Kind, Magic, Report, Response, ResponseError, Status};

/// One line per response of the specification. Each is written and then parsed again.
#[test]
fn every_response_is_written_and_read() {
    let (handle, function, unique) = (b"H:lap:1".as_slice(), b"f".as_slice(), b"u".as_slice());
    let (reducer, workload, data) = (b"r".as_slice(), b"w\0x".as_slice(), b"d\0e".as_slice());
    let (numerator, denominator) = (b"3".as_slice(), b"1e9".as_slice());
    let unknown = Status::default();
    let running = Status {
        known: true,
        running: true,
        numerator: 3,
        denominator: u32::MAX,
    };
    let cases: &[(u32, &[u8], Response<'_>)] = &[
        (6, b"", Response::Noop),
        (8, b"H:lap:1", Response::JobCreated { handle }),
        (10, b"", Response::NoJob),
        (
            11,
            b"H:lap:1\0f\0w\0x",
            Response::JobAssign {
                handle,
                function,
                workload,
            },
        ),
        (
            12,
            b"H:lap:1\x003\x001e9",
            Response::Work {
                handle,
                report: Report::Status {
                    numerator,
                    denominator,
                },
            },
        ),
        (
            13,
            b"H:lap:1\0d\0e",
            Response::Work {
                handle,
                report: Report::Complete(data),
            },
        ),
        (
            13,
            b"H:lap:1\0",
            Response::Work {
                handle,
                report: Report::Complete(b""),
            },
        ),
        (
            14,
            b"H:lap:1",
            Response::Work {
                handle,
                report: Report::Fail,
            },
        ),
        (17, b"d\0e", Response::EchoRes { data }),
        (17, b"", Response::EchoRes { data: b"" }),
        (
            19,
            b"QUEUE_ERROR\0Job queue is full",
            Response::Error {
                code: b"QUEUE_ERROR",
                text: b"Job queue is full",
            },
        ),
        (
            20,
            b"H:lap:1\x000\x000\x000\x000",
            Response::StatusRes {
                handle,
                status: unknown,
            },
        ),
        (
            20,
            b"\x000\x000\x000\x000",
            Response::StatusRes {
                handle: b"",
                status: unknown,
            },
        ),
        (
            20,
            b"H:lap:1\x001\x001\x003\x004294967295",
            Response::StatusRes {
                handle,
                status: running,
            },
        ),
        (
            25,
            b"H:lap:1\0d\0e",
            Response::Work {
                handle,
                report: Report::Exception(data),
            },
        ),
        (
            27,
            b"exceptions\0",
            Response::OptionRes {
                name: b"exceptions\0",
            },
        ),
        (
            28,
            b"H:lap:1\0d\0e",
            Response::Work {
                handle,
                report: Report::Data(data),
            },
        ),
        (
            29,
            b"H:lap:1\0d\0e",
            Response::Work {
                handle,
                report: Report::Warning(data),
            },
        ),
        (
            31,
            b"H:lap:1\0f\0u\0w\0x",
            Response::JobAssignUniq {
                handle,
                function,
                unique,
                workload,
            },
        ),
        (
            40,
            b"H:lap:1\0f\0u\0r\0w\0x",
            Response::JobAssignAll {
                handle,
                function,
                unique,
                reducer,
                workload,
            },
        ),
        (
            42,
            b"u\x001\x001\x003\x004294967295\x002",
            Response::StatusResUnique {
                unique,
                status: running,
                clients: 2,
            },
        ),
    ];
    for (kind, body, response) in cases {
        let mut out = BytesMut::new();
        response.encode(&mut out);
        let written = decode_one(&out);
        assert_eq!(
            written,
            packet(Magic::Response, *kind, body),
            "{}",
            Kind(*kind)
        );
        assert_eq!(Response::parse(&written), Ok(*response));
    }
}

#[test]
fn packets_that_are_not_responses_are_refused() {
    let not = |kind| ResponseError::NotAResponse { kind: Kind(kind) };
    let few = |kind, found| ResponseError::TooFewArguments {
        kind: Kind(kind),
        found,
    };
    let cases: &[(Magic, u32, &[u8], ResponseError)] = &[
        (Magic::Request, 6, b"", not(6)),
        (Magic::Response, 5, b"", not(5)),
        (Magic::Response, 7, b"f\0u\0w", not(7)),
        (Magic::Response, 43, b"", not(43)),
        (Magic::Response, 11, b"h\0f", few(11, 2)),
        (Magic::Response, 12, b"h\x001", few(12, 2)),
        (Magic::Response, 13, b"h", few(13, 1)),
        (Magic::Response, 19, b"code", few(19, 1)),
        (Magic::Response, 20, b"h\x001\x001\x001", few(20, 4)),
        (Magic::Response, 31, b"h\0f\0u", few(31, 3)),
        (Magic::Response, 40, b"h\0f\0u\0r", few(40, 4)),
        (Magic::Response, 42, b"u\x001\x001\x001\x001", few(42, 5)),
    ];
    for (magic, kind, body, error) in cases {
        assert_eq!(
            Response::parse(&packet(*magic, *kind, body)),
            Err(*error),
            "{kind} {body:?}"
        );
    }
}

#[test]
fn refusals_of_a_session_are_those_of_gearmand() {
    let cases: &[(ErrorReply, &[u8])] = &[
        (ErrorReply::QUEUE_FULL, b"QUEUE_ERROR\0Job queue is full"),
        (ErrorReply::QUEUE_ERROR, b"QUEUE_ERROR\0QUEUE_ERROR"),
        (
            ErrorReply::UNKNOWN_OPTION,
            b"UNKNOWN_OPTION\0Server does not recognize given option",
        ),
        (
            ErrorReply::JOB_NOT_FOUND_FOR_RESULT,
            b"JOB_NOT_FOUND\0Job given in work result not found",
        ),
        (
            ErrorReply::JOB_NOT_FOUND_FOR_DATA,
            b"JOB_NOT_FOUND\0Job does not exist on server",
        ),
        (
            ErrorReply::JOB_NOT_FOUND_FOR_EXCEPTION,
            b"JOB_NOT_FOUND\0An exception was received for a job that does not exist",
        ),
    ];
    for (reply, body) in cases {
        let mut out = BytesMut::new();
        reply.encode(&mut out);
        assert_eq!(decode_one(&out), packet(Magic::Response, 19, body));
    }
}

#[test]
fn a_response_grows_its_buffer_once() {
    let workload = vec![7; 30_000];
    let mut out = BytesMut::new();
    Response::JobAssign {
        handle: b"H:lap:1",
        function: b"f",
        workload: &workload,
    }
    .encode(&mut out);
    assert_eq!(out.capacity(), out.len());
}
