//! Items of a newer program, with parts that this one does not know.

use serde::{Serialize, Serializer};
use windlass_engine::{ClientId, Refusal, Tag};
use windlass_link::{
    Decoder, Encoder, FRAME_BYTES_MAX, Item, Rejection, ToEdge, ToLeader, VERSION,
};

/// A frame of items that are written as they are given.
fn frame(items: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![VERSION];
    for item in items {
        windlass_codec::put_bytes(&mut body, item);
    }
    let length = u32::try_from(body.len()).unwrap();
    [&length.to_le_bytes()[..], &body].concat()
}

fn written<T: Serialize>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    windlass_codec::encode(value, &mut out).unwrap();
    out
}

fn read<T: Item>(bytes: &[u8]) -> Vec<T> {
    let mut decoder = Decoder::new(FRAME_BYTES_MAX);
    decoder.input().extend_from_slice(bytes);
    std::iter::from_fn(|| decoder.next().unwrap()).collect()
}

/// [`ToLeader::Command`] as a newer program sends it: with a command that is new, and a field.
#[derive(Serialize)]
enum Newer {
    #[expect(dead_code, reason = "it has the first index")]
    Hello,
    #[expect(dead_code, reason = "it has the second index")]
    Open,
    Command {
        client: ClientId,
        tag: Tag,
        command: NewerCommand,
        more: u64,
    },
}

/// A command of which this program has no variant.
struct NewerCommand;

impl Serialize for NewerCommand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_variant("", 99, "", &[1_u8, 2, 3])
    }
}

#[test]
fn a_command_that_is_new_is_refused() {
    let newer = Newer::Command {
        client: ClientId(7),
        tag: Tag(9),
        command: NewerCommand,
        more: 5,
    };
    let known = ToLeader::Claimed;
    let read = read::<ToLeader>(&frame(&[written(&newer), written(&known)]));
    let expected = [
        ToLeader::Forbidden {
            client: ClientId(7),
            tag: Tag(9),
        },
        known,
    ];
    assert_eq!(format!("{read:?}"), format!("{expected:?}"));
}

#[test]
fn news_that_is_new_is_skipped() {
    let (first, last) = (ToEdge::Failed(true), ToEdge::Bye);
    let items = [written(&first), vec![0x7f, 1, 2, 3], written(&last)];
    assert_eq!(read::<ToEdge>(&frame(&items)), [first, last]);
}

#[test]
fn a_field_that_is_new_is_skipped() {
    #[derive(Serialize)]
    enum Newer {
        #[expect(dead_code, reason = "it has the first index")]
        Welcome,
        #[expect(dead_code, reason = "it has the second index")]
        Event,
        #[expect(dead_code, reason = "it has the third index")]
        OwnBytes,
        Durable {
            commit: u64,
            more: Refusal,
        },
    }
    let newer = Newer::Durable {
        commit: 300,
        more: Refusal::DiskFull,
    };
    let items = [
        written(&newer),
        written(&ToEdge::Refused(Rejection::Deposed(4))),
    ];
    let expected = [
        ToEdge::Durable { commit: 300 },
        ToEdge::Refused(Rejection::Deposed(4)),
    ];
    assert_eq!(read::<ToEdge>(&frame(&items)), expected);
}

#[test]
fn a_stream_of_another_format_is_refused() {
    let mut encoder = Encoder::new(FRAME_BYTES_MAX);
    encoder.push(&ToEdge::Bye).unwrap();
    let mut bytes = encoder.take();
    bytes[4] = VERSION - 1;
    let mut decoder = Decoder::<ToEdge>::new(FRAME_BYTES_MAX);
    decoder.input().extend_from_slice(&bytes);
    let error = decoder.next().unwrap_err().to_string();
    assert_eq!(
        error,
        "frame of version 5 of the link; this program reads version 6"
    );
}
