//! Hostile bytes against the Gearman codec: any stream, cut anywhere, must decode to the same messages as in one piece
//! and keep to the limits. A message that is written decodes to the same message. Not tested here: the session's use of
//! the messages.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use windlass_gearman::wire::{
    AdminError, AdminRequest, DecodeError, Frames, HEADER_BYTES, HandlePrefix, Limits, Message,
    Request, Response,
};

/// Small, so that the fuzzer reaches them.
const LIMITS: Limits = Limits {
    frame_bytes_max: 4096,
    line_bytes_max: 256,
};

/// A stream, and the sizes of its pieces; the rest is the last piece.
#[derive(Debug)]
struct Input<'a> {
    piece_bytes: &'a [u8],
    stream: &'a [u8],
}

impl<'a> Arbitrary<'a> for Input<'a> {
    fn arbitrary(data: &mut Unstructured<'a>) -> Result<Self> {
        let pieces = usize::from(u8::arbitrary(data)? % 32).min(data.len());
        let piece_bytes = data.bytes(pieces)?;
        Ok(Self {
            piece_bytes,
            stream: data.bytes(data.len())?,
        })
    }

    fn arbitrary_take_rest(mut data: Unstructured<'a>) -> Result<Self> {
        Self::arbitrary(&mut data)
    }
}

fuzz_target!(|input: Input<'_>| {
    let (messages, error) = decode([input.stream]);
    assert_eq!(
        decode(pieces(&input)),
        (messages.clone(), error.clone()),
        "cut into pieces"
    );
    assert_eq!(
        decode(input.stream.chunks(1)),
        (messages.clone(), error),
        "cut into bytes"
    );
    messages.iter().for_each(read_twice);
});

fn pieces<'a>(input: &Input<'a>) -> Vec<&'a [u8]> {
    let mut rest = input.stream;
    let mut pieces = Vec::new();
    for bytes in input.piece_bytes {
        let (piece, left) = rest.split_at(usize::from(*bytes).min(rest.len()));
        pieces.push(piece);
        rest = left;
    }
    pieces.push(rest);
    pieces
}

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Message>, Option<DecodeError>) {
    let (mut frames, mut input, mut messages) = (Frames::new(LIMITS), BytesMut::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        let capacity = input.capacity();
        loop {
            match frames.decode(&mut input) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
        assert!(input.capacity() <= capacity, "the decoder allocated");
        assert!(frames.bytes_wanted() <= LIMITS.frame_bytes_max);
        assert!(input.len() < LIMITS.frame_bytes_max.max(LIMITS.line_bytes_max + 1));
    }
    (messages, None)
}

/// A decoded message must be written and decode to the same message.
fn read_twice(message: &Message) {
    match message {
        Message::Line(line) => {
            assert!(line.len() <= LIMITS.line_bytes_max);
            match AdminRequest::parse(line) {
                Ok(request) => {
                    let Message::Line(line) = rewritten(|out| request.encode(out)) else {
                        panic!("{request:?} was written as a packet");
                    };
                    assert_eq!(AdminRequest::parse(&line), Ok(request));
                }
                Err(error) => refuse(&error),
            }
        }
        Message::Packet(packet) => {
            assert!(packet.body.len() + HEADER_BYTES <= LIMITS.frame_bytes_max);
            handle(&packet.body);
            match Request::parse(packet) {
                Ok(request) => {
                    let Message::Packet(again) = rewritten(|out| request.encode(out)) else {
                        panic!("{request:?} was written as a line");
                    };
                    assert_eq!(again.kind, packet.kind);
                    assert_eq!(Request::parse(&again), Ok(request));
                }
                Err(refusal) => {
                    rewritten(|out| refusal.encode(out));
                }
            }
            if let Ok(response) = Response::parse(packet) {
                let Message::Packet(again) = rewritten(|out| response.encode(out)) else {
                    panic!("{response:?} was written as a line");
                };
                assert_eq!(Response::parse(&again), Ok(response));
            }
        }
    }
}

/// A refused line is answered with one line, or not at all.
fn refuse(error: &AdminError) {
    if let AdminError::Answer(reply) = error {
        assert!(reply.ends_with(b"\r\n"));
        assert_eq!(reply.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}

/// Bytes that are accepted as a handle are exactly the handle of that number.
fn handle(bytes: &[u8]) {
    let prefix = HandlePrefix::new(b"H:").expect("a valid prefix");
    if let Some(number) = prefix.parse(bytes) {
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
        assert_eq!(&*prefix.handle(number), bytes);
    }
}

/// The one message that was written.
fn rewritten(write: impl FnOnce(&mut BytesMut)) -> Message {
    let mut out = BytesMut::new();
    write(&mut out);
    // A number that was truncated in the input may be written with more digits.
    let limits = Limits {
        frame_bytes_max: 1 << 20,
        line_bytes_max: 1 << 20,
    };
    let message = Frames::new(limits)
        .decode(&mut out)
        .expect("what was written can be read");
    assert!(out.is_empty(), "more than one message was written");
    message.expect("a whole message")
}
