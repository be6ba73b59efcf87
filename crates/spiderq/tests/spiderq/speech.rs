//! spiderq's vocabulary in transcripts.

use super::client;
use bytes::{Bytes, BytesMut};
use windlass_spiderq::wire::{Dialect, Mode, Patience, Reply, Request, Status};
use windlass_testkit::transcript::{Said, Speech, Spoken};

/// Requests and replies. Numbers are decimal; an error is its bytes in hexadecimal digits.
pub(crate) struct Spiderq;

impl Speech for Spiderq {
    fn encode(&self, verb: &str, arguments: &[Bytes]) -> Result<Said, String> {
        let arguments: Vec<&[u8]> = arguments.iter().map(|argument| &argument[..]).collect();
        let request = match (verb, &arguments[..]) {
            ("PING", []) => Request::Ping,
            ("COUNT", []) => Request::Count,
            ("STATS", []) => Request::Stats,
            ("FLUSH", []) => Request::Flush,
            ("TERMINATE", []) => Request::Terminate,
            ("ADD", [key, value]) => Request::Add {
                key,
                value,
                mode: None,
            },
            ("ADD", [key, value, b"head"]) => Request::Add {
                key,
                value,
                mode: Some(Mode::Head),
            },
            ("ADD", [key, value, b"tail"]) => Request::Add {
                key,
                value,
                mode: Some(Mode::Tail),
            },
            ("UPDATE", [key, value]) => Request::Update { key, value },
            ("LOOKUP", [key]) => Request::Lookup { key },
            ("REMOVE", [key]) => Request::Remove { key },
            ("LEND", [ms, b"block"]) => Request::Lend {
                timeout_ms: number(ms)?,
                patience: Patience::Block,
            },
            ("LEND", [ms, b"poll"]) => Request::Lend {
                timeout_ms: number(ms)?,
                patience: Patience::Poll,
            },
            ("HEARTBEAT", [lend_key, key, ms]) => Request::Heartbeat {
                lend_key: number(lend_key)?,
                key,
                timeout_ms: number(ms)?,
            },
            ("REPAY", [lend_key, key, value, status]) => Request::Repay {
                lend_key: number(lend_key)?,
                key,
                value,
                status: self::status(status)?,
            },
            _ => {
                return Err(format!(
                    "no request {verb} with {} arguments",
                    arguments.len()
                ));
            }
        };
        let mut bytes = BytesMut::new();
        client::encode(&request, &mut bytes);
        Ok(Said {
            bytes: bytes.freeze(),
            whole: true,
        })
    }

    fn decode(&self, input: &mut BytesMut) -> Result<Option<Spoken>, String> {
        if input.is_empty() {
            return Ok(None);
        }
        let bytes = input.clone();
        let (reply, length) =
            client::decode(&bytes).map_err(|_| format!("no reply: {}", hex::encode(&bytes)))?;
        let spoken = words(&reply);
        drop(input.split_to(length));
        Ok(Some(spoken))
    }

    fn barrier(&self, _number: u64) -> (Bytes, Spoken) {
        (Bytes::from_static(b"\x0b"), words(&Reply::Pong))
    }
}

fn words(reply: &Reply<'_>) -> Spoken {
    let text = |n: u64| Bytes::from(n.to_string());
    let (verb, arguments) = match *reply {
        Reply::Counted(count) => ("COUNTED", vec![text(count.into())]),
        Reply::Lent {
            lend_key,
            key,
            value,
        } => (
            "LENT",
            vec![
                text(lend_key),
                Bytes::copy_from_slice(key),
                Bytes::copy_from_slice(value),
            ],
        ),
        Reply::ValueFound(value) => ("FOUND", vec![Bytes::copy_from_slice(value)]),
        Reply::Trouble(text) => ("TROUBLE", vec![Bytes::copy_from_slice(text)]),
        Reply::Error(_) => {
            let mut bytes = BytesMut::new();
            reply.encode(&mut bytes);
            ("ERROR", vec![Bytes::from(hex::encode(&bytes))])
        }
        Reply::StatsGot(c, dialect) => {
            let places = (0..)
                .zip(c)
                .filter(|(at, _)| dialect == Dialect::V1_4 || ![0, 5].contains(at));
            let counters: Vec<u64> = places.map(|(_, count)| count).collect();
            (
                "STATS",
                counters.iter().map(|counter| text(*counter)).collect(),
            )
        }
        Reply::Added => ("ADDED", vec![]),
        Reply::Kept => ("KEPT", vec![]),
        Reply::Updated => ("UPDATED", vec![]),
        Reply::NotFound => ("NOT_FOUND", vec![]),
        Reply::Repaid => ("REPAID", vec![]),
        Reply::Heartbeaten => ("HEARTBEATEN", vec![]),
        Reply::Skipped => ("SKIPPED", vec![]),
        Reply::Terminated => ("TERMINATED", vec![]),
        Reply::ValueNotFound => ("VALUE_NOT_FOUND", vec![]),
        Reply::Flushed => ("FLUSHED", vec![]),
        Reply::QueueEmpty => ("EMPTY", vec![]),
        Reply::Pong => ("PONG", vec![]),
        Reply::Removed => ("REMOVED", vec![]),
        Reply::NotRemoved => ("NOT_REMOVED", vec![]),
    };
    Spoken {
        verb: verb.to_owned(),
        arguments,
    }
}

fn number(text: &[u8]) -> Result<u64, String> {
    let text = String::from_utf8_lossy(text);
    text.parse()
        .map_err(|_| format!("{text:?} is not a number"))
}

fn status(text: &[u8]) -> Result<Status, String> {
    match text {
        b"penalty" => Ok(Status::Penalty),
        b"reward" => Ok(Status::Reward),
        b"front" => Ok(Status::Front),
        b"drop" => Ok(Status::Drop),
        _ => Err(format!("no status {:?}", String::from_utf8_lossy(text))),
    }
}
