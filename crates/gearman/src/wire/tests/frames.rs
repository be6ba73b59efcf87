//! Cutting a stream into messages, and the errors that end it.

use bytes::{Bytes, BytesMut};

use super::super::frames::FRAME_BYTES_CEILING;
use super::{LIMITS, decode, decode_whole, frame, packet};
use crate::wire::{DecodeError, Frames, HEADER_BYTES, Limits, Magic, Message};

fn line(text: &'static str) -> Message {
    Message::Line(Bytes::from_static(text.as_bytes()))
}

#[test]
fn messages_follow_each_other_in_any_mixture() {
    let request = |kind, body: &[u8]| Message::Packet(packet(Magic::Request, kind, body));
    let response = |kind, body: &[u8]| Message::Packet(packet(Magic::Response, kind, body));
    let cases: &[(&str, &[u8], &[Message])] = &[
        ("nothing", b"", &[]),
        ("no body", b"\0REQ\0\0\0\x09\0\0\0\0", &[request(9, b"")]),
        (
            "body",
            b"\0REQ\0\0\0\x10\0\0\0\x05a\0b\nc",
            &[request(16, b"a\0b\nc")],
        ),
        (
            "unused type is for the session",
            b"\0REQ\0\0\0\x05\0\0\0\0",
            &[request(5, b"")],
        ),
        (
            "response magic is for the session",
            b"\0RES\0\0\0\x10\0\0\0\x02hi",
            &[response(16, b"hi")],
        ),
        ("lf", b"version\n", &[line("version")]),
        ("crlf", b"version\r\n", &[line("version")]),
        ("one cr is cut", b"version\r\r\n", &[line("version\r")]),
        ("cr alone ends nothing", b"a\rb\n", &[line("a\rb")]),
        ("empty lines", b"\n\r\n", &[line(""), line("")]),
        ("nul inside a line", b"a\0REQ\n", &[line("a\0REQ")]),
        (
            "two lines in one piece",
            b"version\nverbose\n",
            &[line("version"), line("verbose")],
        ),
        (
            "text, packet, text",
            b"version\n\0REQ\0\0\0\x10\0\0\0\x01xstatus\r\n",
            &[line("version"), request(16, b"x"), line("status")],
        ),
        (
            "unfinished header",
            b"a\n\0REQ\0\0\0\x10\0\0\0",
            &[line("a")],
        ),
        (
            "unfinished body",
            b"a\n\0REQ\0\0\0\x10\0\0\0\x05abcd",
            &[line("a")],
        ),
        ("unfinished line", b"a\nvers", &[line("a")]),
    ];
    for (name, stream, messages) in cases {
        let decoded = decode_whole(stream);
        assert_eq!(decoded.messages, *messages, "{name}");
        assert_eq!(decoded.error, None, "{name}");
    }
}

#[test]
fn an_unreadable_stream_ends_the_connection() {
    let unknown = |kind: u32| format!("unknown packet type {kind}");
    let too_large = |frame_bytes: u64| {
        format!(
            "SUBMIT_JOB_BG(18) packet of {frame_bytes} bytes, {} allowed",
            LIMITS.frame_bytes_max
        )
    };
    let bad_magic =
        |offset: usize, byte: u8| format!("byte {offset} of a packet's magic is {byte:#04x}");
    let cases: &[(&str, &[u8], String)] = &[
        ("magic, second byte", b"\0X", bad_magic(1, b'X')),
        (
            "magic, second byte, whole",
            b"\0XXX\0\0\0\0\0\0\0\0",
            bad_magic(1, b'X'),
        ),
        ("magic, third byte", b"\0Req", bad_magic(2, b'e')),
        (
            "magic, last byte",
            b"\0REP\0\0\0\x01\0\0\0\0",
            bad_magic(3, b'P'),
        ),
        ("type 0", b"\0REQ\0\0\0\0\0\0\0\0", unknown(0)),
        ("type 43", b"\0REQ\0\0\0\x2b\0\0\0\0", unknown(43)),
        ("type 100", b"\0REQ\0\0\0\x64\0\0\0\0", unknown(100)),
        (
            "type 2^31 - 1",
            b"\0REQ\x7f\xff\xff\xff\0\0\0\0",
            unknown(0x7fff_ffff),
        ),
        (
            "type 2^31",
            b"\0REQ\x80\0\0\0\0\0\0\0",
            unknown(0x8000_0000),
        ),
        (
            "type 2^32 - 1",
            b"\0REQ\xff\xff\xff\xff\0\0\0\0",
            unknown(u32::MAX),
        ),
        (
            "unknown type of a response",
            b"\0RES\0\0\0\x2b\0\0\0\0",
            unknown(43),
        ),
        (
            "unknown type, size still to come",
            b"\0REQ\0\0\0\x2b",
            unknown(43),
        ),
        (
            "size 2^31 - 1",
            b"\0REQ\0\0\0\x12\x7f\xff\xff\xfff\0u\0",
            too_large(0x8000_000b),
        ),
        (
            "size 2^32 - 1",
            b"\0REQ\0\0\0\x12\xff\xff\xff\xff",
            too_large(0x1_0000_000b),
        ),
        (
            "one byte too many",
            b"\0REQ\0\0\0\x12\0\0\xff\xf5",
            too_large(0x1_0001),
        ),
        (
            "line without an end",
            &[b'x'; 101],
            "text line of more than 100 bytes".to_owned(),
        ),
    ];
    for (name, stream, error) in cases {
        let error = || Some(DecodeError(error.clone()));
        let decoded = decode_whole(stream);
        assert_eq!(
            (decoded.messages, decoded.error),
            (vec![], error()),
            "{name}"
        );
        let bytewise = decode(LIMITS, stream.chunks(1));
        assert_eq!(
            (bytewise.messages, bytewise.error),
            (vec![], error()),
            "{name}, byte by byte"
        );
    }
}

#[test]
fn messages_of_exactly_the_limit_are_accepted() {
    let body_bytes_max = LIMITS.frame_bytes_max - HEADER_BYTES;
    let packet = decode_whole(&frame(b"\0REQ", 16, &vec![0; body_bytes_max]));
    assert_eq!((packet.messages.len(), packet.error), (1, None));

    let too_long = || Some(DecodeError("text line of more than 100 bytes".to_owned()));
    for (bytes, ending, error) in [
        (100, "\n", None),
        (99, "\r\n", None),
        (101, "\n", too_long()),
        (100, "\r\n", too_long()),
    ] {
        let line = ["x".repeat(bytes).as_bytes(), ending.as_bytes()].concat();
        let decoded = decode_whole(&line);
        assert_eq!(decoded.error, error, "{bytes} bytes and {ending:?}");
        assert_eq!(
            decoded.messages.len(),
            usize::from(error.is_none()),
            "{bytes} bytes and {ending:?}"
        );
        assert_eq!(
            decode(LIMITS, line.chunks(1)).error,
            error,
            "{bytes} bytes and {ending:?}, in bytes"
        );
    }
}

#[test]
fn the_ceiling_bounds_every_configured_limit() {
    let limits = Limits {
        frame_bytes_max: usize::MAX,
        line_bytes_max: usize::MAX,
    };
    let header = |body_bytes: usize| {
        let size = u32::try_from(body_bytes).unwrap();
        [b"\0REQ\0\0\0\x10".as_slice(), &size.to_be_bytes()].concat()
    };
    let largest = FRAME_BYTES_CEILING - HEADER_BYTES;
    assert_eq!(decode(limits, [header(largest).as_slice()]).error, None);
    let error = decode(limits, [header(largest + 1).as_slice()])
        .error
        .expect("a packet that is too large");
    assert!(
        error
            .to_string()
            .ends_with(&format!(", {FRAME_BYTES_CEILING} allowed")),
        "{error}"
    );
}

#[test]
fn the_decoder_returns_how_many_bytes_it_still_needs() {
    let cases: &[(&str, &[u8], usize)] = &[
        ("nothing", b"", 0),
        ("between messages", b"version\n", 0),
        ("first byte", b"\0", 11),
        ("magic", b"\0REQ", 8),
        ("header but a byte", b"\0REQ\0\0\0\x10\0\0\x10", 1),
        ("header", b"\0REQ\0\0\0\x10\0\0\x10\0", 4096),
        ("part of a body", b"\0REQ\0\0\0\x10\0\0\x10\0abc", 4093),
        ("line", b"vers", 1),
        ("line after a packet", b"\0REQ\0\0\0\x10\0\0\0\x01xvers", 1),
    ];
    for (name, stream, wanted) in cases {
        let (mut frames, mut input) = (Frames::new(LIMITS), BytesMut::from(*stream));
        while frames.decode(&mut input).unwrap().is_some() {}
        assert_eq!(frames.bytes_wanted(), *wanted, "{name}");
    }
}

#[test]
fn a_large_body_in_small_pieces_is_linear_work_and_one_allocation() {
    const BODY_BYTES: usize = 64 << 20;
    let mut frames = Frames::new(Limits::new(BODY_BYTES + HEADER_BYTES));
    let mut input = BytesMut::from(b"\0REQ\0\0\0\x10\x04\0\0\0".as_slice());
    assert_eq!(frames.decode(&mut input), Ok(None));
    assert_eq!(frames.bytes_wanted(), BODY_BYTES);
    input.reserve(frames.bytes_wanted());

    let piece = [7; 4096];
    for pieces in 1..BODY_BYTES / piece.len() {
        input.extend_from_slice(&piece);
        assert_eq!(frames.decode(&mut input), Ok(None));
        assert_eq!(frames.bytes_wanted(), BODY_BYTES - pieces * piece.len());
    }
    let memory = input.as_ptr();
    input.extend_from_slice(&piece);
    let Ok(Some(Message::Packet(packet))) = frames.decode(&mut input) else {
        panic!("no packet")
    };
    assert_eq!(
        (packet.body.len(), packet.body.as_ptr()),
        (BODY_BYTES, memory),
        "copied"
    );
    assert_eq!(
        frames.bytes_examined, HEADER_BYTES,
        "the decoder does not scan bodies"
    );
}

#[test]
fn a_long_line_in_single_bytes_is_linear_work() {
    const LINE_BYTES: usize = 100_000;
    let limits = Limits {
        frame_bytes_max: 100,
        line_bytes_max: LINE_BYTES,
    };
    let (mut frames, mut input) = (Frames::new(limits), BytesMut::with_capacity(LINE_BYTES + 5));
    for _ in 0..LINE_BYTES {
        input.extend_from_slice(b"x");
        assert_eq!(frames.decode(&mut input), Ok(None));
    }
    let memory = input.as_ptr();
    input.extend_from_slice(b"\nrest");
    let Ok(Some(Message::Line(line))) = frames.decode(&mut input) else {
        panic!("no line")
    };
    assert_eq!((line.len(), line.as_ptr()), (LINE_BYTES, memory), "copied");
    assert_eq!(frames.bytes_examined, LINE_BYTES + 1);
}
