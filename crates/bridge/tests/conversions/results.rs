//! Results of workers, for clients of other protocols.

use std::borrow::Cow;

use windlass_engine::Protocol;

use super::result;

const OTHERS: [Protocol; 2] = [Protocol::GEARMAN, Protocol::FAKTORY];

#[test]
fn of_eventmq_workers() {
    let deep = format!(
        "{{\"value\":{}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let table = [
        (r#"{"value": "done"}"#, "done"),
        (r#" {"value":"a\n\u00e9\ud83d\ude00"} "#, "a\né😀"),
        (r#"{"value": ""}"#, ""),
        (r#"{"value": null}"#, ""),
        (r#"{"value": 1.50}"#, "1.50"),
        (r#"{"value": true}"#, "true"),
        (r#"{"value": 1e400}"#, "1e400"),
        (
            r#"{"value": {"a": [1, "x"], "a" : 2}}"#,
            r#"{"a": [1, "x"], "a" : 2}"#,
        ),
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
    assert_eq!(
        &*result(
            Protocol::EVENTMQ,
            Protocol::GEARMAN,
            b"{\"value\":\"\xff\"}"
        ),
        b"{\"value\":\"\xff\"}"
    );
}

/// The expected texts are the output of Python 3.11.
#[test]
fn for_eventmq_requesters() {
    let table: [(&[u8], &str); 7] = [
        (b"done", r#"{"value": "done"}"#),
        (b"", r#"{"value": null}"#),
        (b"null", r#"{"value": "null"}"#),
        (b"{\"value\": 1}", r#"{"value": "{\"value\": 1}"}"#),
        (
            "é😀\n\u{7f}/\u{0}".as_bytes(),
            r#"{"value": "\u00e9\ud83d\ude00\n\u007f/\u0000"}"#,
        ),
        (b"\xff\xfe\xfd", r#"{"value": "//79"}"#),
        (b"a\x80", r#"{"value": "YYA="}"#),
    ];
    for (said, expected) in table {
        for from in OTHERS {
            assert_eq!(
                String::from_utf8_lossy(&result(from, Protocol::EVENTMQ, said)),
                expected
            );
        }
    }
}

#[test]
fn results_of_other_protocols_are_not_parsed() {
    let (faktory, gearman, eventmq, spiderq) = (
        Protocol::FAKTORY,
        Protocol::GEARMAN,
        Protocol::EVENTMQ,
        Protocol::SPIDERQ,
    );
    let same = [
        (faktory, faktory),
        (gearman, gearman),
        (eventmq, eventmq),
        (spiderq, spiderq),
        (Protocol(9), Protocol(9)),
    ];
    let others = [
        (faktory, gearman),
        (gearman, faktory),
        (spiderq, eventmq),
        (eventmq, spiderq),
    ];
    for (from, to) in same.into_iter().chain(others) {
        for said in [&b"{\"value\": \"x\"}"[..], b"\xff", b""] {
            assert!(matches!(result(from, to, said), Cow::Borrowed(heard) if heard == said));
        }
    }
}
