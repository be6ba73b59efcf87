//! Tests of the codec: tables first (`frames`, `request`, `response`, `admin`, `handle`), the
//! specification's example and recorded traffic in `recorded`, properties in `properties`.

mod admin;
mod frames;
mod handle;
mod properties;
mod recorded;
mod request;
mod response;

use bytes::{Bytes, BytesMut};

use super::{DecodeError, Frames, Kind, Limits, Magic, Message, Packet};

/// Small, so that the tests reach them.
const LIMITS: Limits = Limits {
    frame_bytes_max: 64 * 1024,
    line_bytes_max: 100,
};

fn packet(magic: Magic, kind: u32, body: &[u8]) -> Packet {
    Packet {
        magic,
        kind: Kind(kind),
        body: Bytes::copy_from_slice(body),
    }
}

fn frame(magic: &[u8; 4], kind: u32, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).unwrap();
    [
        magic.as_slice(),
        &kind.to_be_bytes(),
        &size.to_be_bytes(),
        body,
    ]
    .concat()
}

/// The result of decoding a stream that arrives in these pieces, and the unread rest.
#[derive(Debug, PartialEq)]
struct Decoded {
    messages: Vec<Message>,
    error: Option<DecodeError>,
}

fn decode<'a>(limits: Limits, pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let (mut frames, mut input) = (Frames::new(limits), BytesMut::new());
    let mut messages = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        let capacity = input.capacity();
        loop {
            match frames.decode(&mut input) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(
                        frames.decode(&mut input),
                        Err(error.clone()),
                        "an error is permanent"
                    );
                    return Decoded {
                        messages,
                        error: Some(error),
                    };
                }
            }
        }
        assert!(input.capacity() <= capacity, "the decoder allocated");
        assert!(frames.bytes_wanted() <= limits.frame_bytes_max.max(super::HEADER_BYTES));
    }
    Decoded {
        messages,
        error: None,
    }
}

fn decode_whole(stream: &[u8]) -> Decoded {
    decode(LIMITS, [stream])
}

fn decode_one(stream: &[u8]) -> Packet {
    let decoded = decode_whole(stream);
    match decoded.messages.as_slice() {
        [Message::Packet(packet)] if decoded.error.is_none() => packet.clone(),
        _ => panic!("not one packet: {decoded:?}"),
    }
}
