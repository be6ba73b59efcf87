//! Payloads as each protocol submits them, and as workers of each protocol receive them: the tables of
//! `crates/bridge/README.md`, with stock clients at both ends.

use super::peers::Protocol::{self, Eventmq, Faktory, Gearman};
use super::peers::Word;

/// A payload and its converted form.
#[derive(Debug, Clone, Copy)]
pub struct Payload {
    /// The workload; `args`; the message.
    pub sent: &'static [u8],
    pub seen: Seen,
}

/// The form that a worker receives.
#[derive(Debug, Clone, Copy)]
pub enum Seen {
    /// These bytes.
    Bytes(&'static [u8]),
    /// A work unit that contains these texts. `{queue}` and `{id}` stand for the queue's name and the producer's
    /// identifier of the job.
    Unit(&'static [&'static str]),
    /// The worker never gets it.
    Nothing,
}

impl Payload {
    /// Asserts that a worker received this form.
    pub fn is_seen(&self, word: &Word, queue: &str, id: &str) {
        match self.seen {
            Seen::Bytes(bytes) => {
                assert_eq!(
                    word.bytes().escape_ascii().to_string(),
                    bytes.escape_ascii().to_string()
                );
            }
            Seen::Unit(parts) => {
                let unit = word.text();
                for part in parts {
                    let part = part.replace("{queue}", queue).replace("{id}", id);
                    assert!(unit.contains(&part), "no {part} in {unit}");
                }
            }
            Seen::Nothing => panic!("the worker got {word}"),
        }
    }
}

use Seen::{Bytes, Nothing, Unit};

/// In the format of Python's `json`, which the stock client uses.
const RUN: &[u8] = br#"["run", {"callable": "bake", "path": "cakes.oven", "args": ["a cake", 2], "kwargs": {"hot": true}, "class_args": [], "class_kwargs": {}}]"#;
/// Another job.
const RUN_EGG: &[u8] = br#"["run", {"callable": "bake", "path": "cakes.oven", "args": ["an egg"], "kwargs": {}, "class_args": [], "class_kwargs": {}}]"#;
const TEXT: &str = "a cake, größer";

const OF_GEARMAN: &str = r#""_origin":"gearman""#;
const JOBTYPE: &str = r#""jobtype":"cakes.oven.bake""#;

/// The job of most rows.
pub const fn ordinary(from: Protocol, to: Protocol) -> Payload {
    let (sent, seen) = match (from, to) {
        (Gearman, Gearman) => (TEXT.as_bytes(), Bytes(TEXT.as_bytes())),
        (Gearman, Faktory) => (
            TEXT.as_bytes(),
            Unit(&[r#""jobtype":"{queue}""#, r#""queue":"{queue}""#, r#""args":["a cake, größer"]"#, OF_GEARMAN]),
        ),
        (Gearman | Eventmq, Eventmq) | (Eventmq, Gearman) => (RUN, Bytes(RUN)),
        (Faktory, Gearman) => (br#"["a cake"]"#.as_slice(), Bytes(b"a cake")),
        (Faktory, Faktory) => {
            (br#"["a cake", 2]"#.as_slice(), Unit(&[JOBTYPE, r#""args":["a cake",2]"#, r#""custom":{"track":1"#]))
        }
        (Faktory, Eventmq) => (
            br#"["a cake", 2]"#.as_slice(),
            Bytes(br#"["run", {"callable": "bake", "path": "cakes.oven", "args": ["a cake",2], "kwargs": {}, "class_args": [], "class_kwargs": {}}]"#),
        ),
        (Eventmq, Faktory) => (
            RUN,
            Unit(&[
                JOBTYPE,
                r#""args":["a cake",2]"#,
                r#""_origin":"eventmq""#,
                r#""_unique":"{id}""#,
                r#""eventmq":{"kwargs":{"hot":true},"class_args":[],"class_kwargs":{}}"#,
            ]),
        ),
    };
    Payload { sent, seen }
}

/// Another job, which shows that there is no more of the first.
pub const fn another(from: Protocol, to: Protocol) -> Payload {
    let (sent, seen) = match (from, to) {
        (Gearman, Gearman) => (b"an egg".as_slice(), Bytes(b"an egg")),
        (Gearman, Faktory) => (b"an egg".as_slice(), Unit(&[r#""args":["an egg"]"#])),
        (Gearman | Eventmq, Eventmq) | (Eventmq, Gearman) => (RUN_EGG, Bytes(RUN_EGG)),
        (Faktory, Gearman) => (br#"["an egg"]"#.as_slice(), Bytes(b"an egg")),
        (Faktory, Eventmq) => (br#"["an egg"]"#.as_slice(), Bytes(RUN_EGG)),
        (Faktory | Eventmq, Faktory) => (
            if matches!(from, Faktory) {
                br#"["an egg"]"#.as_slice()
            } else {
                RUN_EGG
            },
            Unit(&[r#""args":["an egg"]"#]),
        ),
    };
    Payload { sent, seen }
}

/// Neither text nor an EventMQ job.
const OCTETS: &[u8] = b"\x00\xff\r\n\x80cake\\";
/// The same in base64, as FWP's jobs carry it, inside `args`.
const IN_BASE64: &[u8] = br#"["AP8NCoBjYWtlXA=="]"#;
/// A message that no library would send.
const OCTET_MESSAGE: &[u8] = b"[\"run\", {\"path\": \"\xff\x00\"}";

/// The hardest job to convert that its protocol allows.
pub const fn binary(from: Protocol, to: Protocol) -> Payload {
    let (sent, seen) = match (from, to) {
        (Gearman, Gearman) => (OCTETS, Bytes(OCTETS)),
        (Gearman, Faktory) => {
            (OCTETS, Unit(&[r#""args":["AP8NCoBjYWtlXA=="]"#, r#""_origin":"gearman""#, r#""_encoding":"base64""#]))
        }
        (Gearman, Eventmq) => (OCTETS, Nothing),
        (Faktory, Gearman) => (IN_BASE64, Bytes(OCTETS)),
        // Numbers and escapes stay as they were. Blanks between them may change.
        (Faktory, Faktory) => (
            b"[ 1e400,\"\\u00fc\\ud800\" ,123456789012345678901234567890]".as_slice(),
            Unit(&["[1e400,\"\\u00fc\\ud800\",123456789012345678901234567890]"]),
        ),
        (Faktory, Eventmq) => (
            br#"[ 1e400, "\ud800" ]"#.as_slice(),
            Bytes(br#"["run", {"callable": "bake", "path": "cakes.oven", "args": [1e400,"\ud800"], "kwargs": {}, "class_args": [], "class_kwargs": {}}]"#),
        ),
        (Eventmq, Gearman | Eventmq) => (OCTET_MESSAGE, Bytes(OCTET_MESSAGE)),
        (Eventmq, Faktory) => (OCTET_MESSAGE, Nothing),
    };
    Payload { sent, seen }
}
