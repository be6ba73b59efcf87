//! Converts a worker's result to the job's own protocol.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use windlass_engine::Protocol;

use crate::json;

/// Converts the result of a worker of protocol `from` for the clients of a job of protocol `to`. EventMQ's results are
/// `{"value": …}`; those of all other protocols are bytes.
#[must_use]
pub fn result(from: Protocol, to: Protocol, result: &[u8]) -> Cow<'_, [u8]> {
    match (from, to) {
        (Protocol::EVENTMQ, Protocol::GEARMAN | Protocol::FAKTORY) => unwrapped(result),
        (Protocol::GEARMAN | Protocol::FAKTORY, Protocol::EVENTMQ) => Cow::Owned(wrapped(result)),
        _ => Cow::Borrowed(result),
    }
}

/// A string's own bytes, nothing for `null`, the JSON text of any other value. Input other than `{"value": …}` stays as it is.
fn unwrapped(result: &[u8]) -> Cow<'_, [u8]> {
    let Some(value) = value_of(result) else { return Cow::Borrowed(result) };
    match json::text(value) {
        Some(Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
        Some(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
        None if value.get() == "null" => Cow::Borrowed(b""),
        None => Cow::Borrowed(value.get().as_bytes()),
    }
}

fn value_of(result: &[u8]) -> Option<&RawValue> {
    let mut found = None;
    let each = |key: &str, value| {
        found = Some(value);
        if key == "value" { Ok(()) } else { Err(json::Unexpected) }
    };
    json::members(json::value(result)?, each).ok()?;
    found
}

/// `{"value": …}` as Python writes it. Bytes that are not text are base64.
fn wrapped(result: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + result.len());
    out.extend_from_slice(b"{\"value\": ");
    match std::str::from_utf8(result) {
        Ok("") => out.extend_from_slice(b"null"),
        Ok(text) => json::quote_ascii(text, &mut out),
        Err(_) => json::quote_ascii(&STANDARD.encode(result), &mut out),
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: [Protocol; 2] = [Protocol::GEARMAN, Protocol::FAKTORY];

    #[test]
    fn of_eventmq_workers() {
        let deep = format!("{{\"value\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let table = [
            (r#"{"value": "done"}"#, "done"),
            (r#" {"value":"a\n\u00e9\ud83d\ude00"} "#, "a\né😀"),
            (r#"{"value": ""}"#, ""),
            (r#"{"value": null}"#, ""),
            (r#"{"value": 1.50}"#, "1.50"),
            (r#"{"value": true}"#, "true"),
            (r#"{"value": 1e400}"#, "1e400"),
            (r#"{"value": {"a": [1, "x"], "a" : 2}}"#, r#"{"a": [1, "x"], "a" : 2}"#),
            (r#"{"value": "\ud800"}"#, r#""\ud800""#),
            (r#"{"value": 1, "v\u0061lue": "last"}"#, "last"),
            // Other shapes stay as they are.
            ("", ""),
            ("done", "done"),
            ("null", "null"),
            ("{}", "{}"),
            (r#""done""#, r#""done""#),
            (r#"{"valu": 1}"#, r#"{"valu": 1}"#),
            (r#"{"value": 1, "more": 2}"#, r#"{"value": 1, "more": 2}"#),
            (r#"{"value": NaN}"#, r#"{"value": NaN}"#),
            (r#"{"value": "done""#, r#"{"value": "done""#),
            (&deep, &deep),
        ];
        for (said, expected) in table {
            for to in OTHERS {
                let heard = result(Protocol::EVENTMQ, to, said.as_bytes());
                assert_eq!(String::from_utf8_lossy(&heard), expected);
            }
        }
        assert_eq!(&*result(Protocol::EVENTMQ, Protocol::GEARMAN, b"{\"value\":\"\xff\"}"), b"{\"value\":\"\xff\"}");
    }

    /// The expected texts are the output of Python 3.11.
    #[test]
    fn for_eventmq_requesters() {
        let table: [(&[u8], &str); 7] = [
            (b"done", r#"{"value": "done"}"#),
            (b"", r#"{"value": null}"#),
            (b"null", r#"{"value": "null"}"#),
            (b"{\"value\": 1}", r#"{"value": "{\"value\": 1}"}"#),
            ("é😀\n\u{7f}/\u{0}".as_bytes(), r#"{"value": "\u00e9\ud83d\ude00\n\u007f/\u0000"}"#),
            (b"\xff\xfe\xfd", r#"{"value": "//79"}"#),
            (b"a\x80", r#"{"value": "YYA="}"#),
        ];
        for (said, expected) in table {
            for from in OTHERS {
                assert_eq!(String::from_utf8_lossy(&result(from, Protocol::EVENTMQ, said)), expected);
            }
        }
    }

    #[test]
    fn results_of_other_protocols_are_not_parsed() {
        let (faktory, gearman, eventmq, spiderq) =
            (Protocol::FAKTORY, Protocol::GEARMAN, Protocol::EVENTMQ, Protocol::SPIDERQ);
        let same = [
            (faktory, faktory),
            (gearman, gearman),
            (eventmq, eventmq),
            (spiderq, spiderq),
            (Protocol(9), Protocol(9)),
        ];
        let others = [(faktory, gearman), (gearman, faktory), (spiderq, eventmq), (eventmq, spiderq)];
        for (from, to) in same.into_iter().chain(others) {
            for said in [&b"{\"value\": \"x\"}"[..], b"\xff", b""] {
                assert!(matches!(result(from, to, said), Cow::Borrowed(heard) if heard == said));
            }
        }
    }
}
