//! Text commands and the lines that answer them, to the byte.

use bytes::{Bytes, BytesMut};

use crate::wire::{AdminError, AdminRequest, QueueLimits, reply};

fn b(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn max_queue(function: &str, high: u32, normal: u32, low: u32) -> AdminRequest {
    AdminRequest::MaxQueue {
        function: b(function),
        limits: QueueLimits { high, normal, low },
    }
}

#[test]
fn every_command_is_understood() {
    let cancel = |handle| AdminRequest::CancelJob { handle: b(handle) };
    let create = |function| AdminRequest::CreateFunction {
        function: b(function),
    };
    let drop = |function| AdminRequest::DropFunction {
        function: b(function),
    };
    let cases: &[(&str, AdminRequest)] = &[
        ("version", AdminRequest::Version),
        ("VERSION", AdminRequest::Version),
        ("version ", AdminRequest::Version),
        ("version  x y z", AdminRequest::Version),
        ("version\0", AdminRequest::Version),
        ("create function foo\0bar", create("foo")),
        ("getpid", AdminRequest::Pid),
        ("verbose", AdminRequest::Verbosity),
        ("status", AdminRequest::Status),
        ("Status", AdminRequest::Status),
        ("status now please", AdminRequest::Status),
        ("prioritystatus", AdminRequest::PriorityStatus),
        ("PriorityStatus x", AdminRequest::PriorityStatus),
        ("workers", AdminRequest::Workers),
        ("workers 1 2 3 4 5 6 7", AdminRequest::Workers),
        ("show jobs", AdminRequest::ShowJobs),
        ("SHOW   Jobs", AdminRequest::ShowJobs),
        ("show unique jobs", AdminRequest::ShowUniqueJobs),
        ("show dead jobs", AdminRequest::ShowDeadJobs),
        (
            "requeue job H:a:1",
            AdminRequest::RequeueJob { handle: b("H:a:1") },
        ),
        ("cancel job H:lap:1", cancel("H:lap:1")),
        ("Cancel  JOB  H:lap:1 ", cancel("H:lap:1")),
        ("create function foo", create("foo")),
        ("CREATE FUNCTION Foo", create("Foo")),
        ("drop function foo", drop("foo")),
        ("drop function ST_1", drop("ST_1")),
        ("shutdown", AdminRequest::Shutdown { graceful: false }),
        ("Shutdown ", AdminRequest::Shutdown { graceful: false }),
        (
            "shutdown graceful",
            AdminRequest::Shutdown { graceful: true },
        ),
        (
            "SHUTDOWN  Graceful",
            AdminRequest::Shutdown { graceful: true },
        ),
        ("maxqueue foo", max_queue("foo", 0, 0, 0)),
        ("maxqueue foo 2", max_queue("foo", 2, 2, 2)),
        ("maxqueue foo 1 0", max_queue("foo", 1, 0, 0)),
        ("maxqueue foo 1 2", max_queue("foo", 1, 2, 0)),
        ("maxqueue foo 1 0 5", max_queue("foo", 1, 0, 5)),
        ("maxqueue foo 1 2 3 4 5", max_queue("foo", 1, 2, 3)),
        ("maxqueue foo -1", max_queue("foo", 0, 0, 0)),
        ("maxqueue foo abc", max_queue("foo", 0, 0, 0)),
        ("maxqueue foo 1 -2 x", max_queue("foo", 1, 0, 0)),
        (
            "maxqueue foo 99999999999",
            max_queue("foo", u32::MAX, u32::MAX, u32::MAX),
        ),
    ];
    for (line, request) in cases {
        assert_eq!(
            AdminRequest::parse(&b(line)).as_ref(),
            Ok(request),
            "{line:?}"
        );
    }
}

/// The answers of a running gearmand, which takes HTTP for unknown commands.
#[test]
fn every_other_line_is_answered() {
    let incomplete =
        "ERR INVALID_ARGUMENTS An+incomplete+set+of+arguments+was+sent+to+this+command+";
    let unknown = "ERR UNKNOWN_COMMAND Unknown+server+command";
    let cases: &[(&str, Option<(&str, &str)>)] = &[
        ("maxqueue", Some((incomplete, "maxqueue"))),
        ("MaxQueue", Some((incomplete, "MaxQueue"))),
        ("create", Some((incomplete, "create"))),
        ("create function", Some((incomplete, "create"))),
        ("create function ", Some((incomplete, "create"))),
        ("create foo bar", Some((incomplete, "create"))),
        ("create function a b", Some((incomplete, "create"))),
        ("drop", Some((incomplete, "drop"))),
        ("drop function", Some((incomplete, "drop"))),
        ("drop x y", Some((incomplete, "drop"))),
        ("show foo", Some(("ERR UNKNOWN_SHOW_ARGUMENTS", ""))),
        ("show jobs foo", Some(("ERR UNKNOWN_SHOW_ARGUMENTS", ""))),
        ("show unique", Some(("ERR UNKNOWN_SHOW_ARGUMENTS", ""))),
        (
            "show unique jobs x",
            Some(("ERR UNKNOWN_SHOW_ARGUMENTS", "")),
        ),
        ("cancel foo bar", Some(("ERR UNKNOWN_ERROR", ""))),
        ("cancel job H:lap:1 extra", Some(("ERR UNKNOWN_ERROR", ""))),
        ("show", Some((unknown, "show"))),
        ("cancel", Some((unknown, "cancel"))),
        ("cancel job", Some((unknown, "cancel"))),
        ("cancel foo", Some((unknown, "cancel"))),
        ("shutdown now", Some((unknown, "shutdown"))),
        ("shutdown graceful x", Some((unknown, "shutdown"))),
        ("gladiator", Some((unknown, "gladiator"))),
        ("help", Some((unknown, "help"))),
        ("foo bar", Some((unknown, "foo"))),
        ("Foo bar", Some((unknown, "Foo"))),
        ("GET / HTTP/1.1", None),
        ("POST / HTTP/1.1", None),
        ("POST", None),
        ("PURGE /a HTTP/1.0", None),
        ("Host: 127.0.0.1:4730", None),
        ("Content-Length:9", None),
        ("get / http", Some((unknown, "get"))),
        ("", Some((unknown, ""))),
        ("   ", Some((unknown, ""))),
        (" version", Some((unknown, ""))),
        ("versions", Some((unknown, "versions"))),
        ("version\tx", Some((unknown, "version\tx"))),
        ("a b c d e f g h", Some((unknown, "a"))),
        ("a b c d e f g h i", None),
        ("version b c d e f g h i j k", None),
    ];
    for (line, reply) in cases {
        let line = b(line);
        let written = match AdminRequest::parse(&line).expect_err("an unknown line") {
            AdminError::Answer(reply) => Some(String::from_utf8(reply).unwrap()),
            AdminError::Close(_) => None,
        };
        let expected = reply.map(|(start, verb)| format!("{start}{verb}\r\n"));
        assert_eq!(written, expected, "{line:?}");
    }
}

#[test]
fn a_closed_connection_has_its_reason() {
    let cases = [
        ("GET / HTTP/1.1", "HTTP instead of a text command: b\"GET\""),
        ("a b c d e f g h i", "more than 8 words on a text line"),
    ];
    for (line, reason) in cases {
        assert_eq!(
            AdminRequest::parse(&b(line)),
            Err(AdminError::Close(reason.to_owned()))
        );
    }
}

#[test]
fn every_answer_is_written() {
    let value = |text: &'static str| move |out: &mut BytesMut| reply::value(out, text);
    let row = |name: &'static [u8], columns: &'static [u64]| {
        move |out: &mut BytesMut| reply::row(out, name, columns)
    };
    assert_eq!(written(value("1.1.20+ds")), "OK 1.1.20+ds\n");
    assert_eq!(written(row(b"st_1", &[4, 1, 2])), "st_1\t4\t1\t2\n");
    assert_eq!(written(row(b"", &[1, 0, 0])), "\t1\t0\t0\n");
    assert_eq!(written(row(b"st_1", &[1, 2, 3, 4])), "st_1\t1\t2\t3\t4\n");
    assert_eq!(written(row(b"H:vm:8", &[4, 0, 1])), "H:vm:8\t4\t0\t1\n");
    assert_eq!(written(row(b"u1", &[])), "u1\n");
    assert_eq!(written(row(b"", &[])), "\n");
    assert_eq!(reply::END, b".\n");
    assert_eq!(reply::DONE, b"OK\r\n");
    assert_eq!(reply::UNKNOWN_JOB, b"ERR UNKNOWN_JOB\r\n");
    assert_eq!(reply::FUNCTION_NOT_FOUND, b"ERR function not found\r\n");
    assert_eq!(
        reply::FUNCTION_BUSY,
        b"ERR there are still connected workers or executing clients\r\n"
    );
}

#[test]
fn workers_are_listed_with_their_functions() {
    let cases: &[(u64, &str, &str, &[&str], &str)] = &[
        (36, "127.0.0.1", "-", &[], "36 127.0.0.1 - :\n"),
        (37, "127.0.0.1", "", &[], "37 127.0.0.1  :\n"),
        (
            37,
            "::1",
            "my-worker id",
            &["st_1", "st_1_b", "st_1"],
            "37 ::1 my-worker id : st_1 st_1_b st_1\n",
        ),
        (38, "127.0.0.1", "-", &[""], "38 127.0.0.1 - : \n"),
    ];
    for (fd, address, id, functions, line) in cases {
        let mut out = BytesMut::new();
        reply::worker_row_begin(&mut out, *fd, address, id.as_bytes());
        reply::worker_row_functions(&mut out, *functions);
        reply::worker_row_end(&mut out);
        assert_eq!(out, line.as_bytes());
    }
}

fn written(write: impl FnOnce(&mut BytesMut)) -> String {
    let mut out = BytesMut::new();
    write(&mut out);
    String::from_utf8(out.to_vec()).unwrap()
}
