//! The parts of a job's body that the daemon reads. Otherwise it passes a body on verbatim.

use sha1::{Digest, Sha1};

use super::Fault;
use super::python::Value;

/// Bytes of a body in a schedule. Parsing takes a multiple of them for a moment.
pub const JOB_BYTES_MAX: usize = 8 << 20;

/// The identity of a scheduled job: SHA-1 of its callable and arguments. Queue, headers and interval are not part of
/// it, so a `SCHEDULE` of the same job replaces the earlier one. Displayed in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Identity(pub [u8; 20]);

/// The body is JSON, but not `["run", {…}]`.
const NOT_A_JOB: &str = "the body is not a list with a job in its second place";

/// The identity of the job in a body, the same as the released scheduler's. A missing key counts as `null` (the
/// released scheduler fails then).
///
/// # Errors
/// The body is too long, not JSON, or not a list with a job in its second place.
pub fn identity(body: &[u8]) -> Result<Identity, Fault> {
    /// In the order of the text.
    const KEYS: [&str; 6] = [
        "args",
        "callable",
        "class_args",
        "class_kwargs",
        "kwargs",
        "path",
    ];

    if body.len() > JOB_BYTES_MAX {
        let given = body.len();
        return Err(Fault(format!(
            "a scheduled job has {given} bytes: the limit is {JOB_BYTES_MAX}"
        )));
    }
    let Value::List(call) = Value::read(body)? else {
        return Err(NOT_A_JOB.into());
    };
    let Some(Value::Map(mut job)) = call.into_iter().nth(1) else {
        return Err(NOT_A_JOB.into());
    };
    let named = KEYS.map(|key| {
        (
            key.as_bytes().to_vec(),
            job.remove(key.as_bytes()).unwrap_or(Value::NULL),
        )
    });
    let mut text = Vec::new();
    Value::Map(named.into()).write(&mut text);
    Ok(Identity(Sha1::digest(&text).into()))
}

/// A worker's reply with this text as the value: `{"value": "…"}`, in the spelling of the released programs.
pub fn value_text(words: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let value = Value::Text(words.to_vec());
    Value::Map([(b"value".to_vec(), value)].into()).write(&mut text);
    text
}

/// Whether a `REPLY` reports that the worker has stopped the job at its time limit. An exception of the same name looks
/// the same: eMQP has no other report of failure.
pub fn is_time_out(reply: &[u8]) -> bool {
    /// Bytes with blanks. Longer texts are results, and are not parsed.
    const BYTES_MAX: usize = 64;

    if reply.len() > BYTES_MAX {
        return false;
    }
    let Ok(Value::Map(reply)) = Value::read(reply) else {
        return false;
    };
    matches!(reply.get(&b"value"[..]), Some(Value::Text(text)) if text == b"TimeoutError")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the released scheduler's own test.
    const JOB: &str = r#"{"args": [33, "asdf"], "callable": "do_the_thing", "class_args": [0],
        "class_kwargs": {"apple": false, "donkey": true}, "kwargs": {"alpha": "\u03b1", "zeta": "Z"}, "path": "test"}"#;

    fn hash(body: &str) -> String {
        let hex =
            |Identity(bytes): Identity| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        identity(body.as_bytes()).map_or_else(|fault| fault.to_string(), hex)
    }

    #[test]
    fn identities() {
        let known = "4658982cab9d32bf1ef9113a9d8bdec01775e2bc";
        assert_eq!(hash(&format!("[\"run\", {JOB}]")), known);
        let other_order = r#"["run",{"path":"test","kwargs":{"zeta":"Z","alpha":"α"},"class_kwargs":{"donkey":true,"apple":false},
            "class_args":[0],"args":[33,"asdf"],"more":"is no part of it","callable":"x","callable":"do_the_thing"}]"#;
        assert_eq!(hash(other_order), known);
        assert_ne!(
            hash(&format!("[\"run\", {}]", JOB.replace("33", "34"))),
            known
        );
        let nulls = r#"["run",{"args":null,"callable":null,"class_args":null,"class_kwargs":null,"kwargs":null,"path":null}]"#;
        assert_eq!(hash("[\"run\",{}]"), hash(nulls));
    }

    #[test]
    fn bodies_without_a_job() {
        for body in ["{}", "[]", "[\"run\"]", "[{}]", "[\"run\",[]]", "1"] {
            assert_eq!(identity(body.as_bytes()), Err(NOT_A_JOB.into()), "{body}");
        }
        assert_eq!(
            identity(b"[\"run\",{}"),
            Err("the body is not JSON, or nested deeper than 128, from byte 9".into())
        );
        let long = vec![b' '; JOB_BYTES_MAX + 1];
        assert_eq!(
            identity(&long),
            Err(Fault(format!(
                "a scheduled job has {} bytes: the limit is {JOB_BYTES_MAX}",
                JOB_BYTES_MAX + 1
            )))
        );
    }

    #[test]
    fn time_outs() {
        let table = [
            (r#"{"value": "TimeoutError"}"#, true),
            (r#" {"value":"TimeoutError"} "#, true),
            (r#"{"value": "TimeoutError: no"}"#, false),
            (r#"{"value": ["TimeoutError"]}"#, false),
            (r#"{"valu": "TimeoutError"}"#, false),
            (r#""TimeoutError""#, false),
            ("TimeoutError", false),
            ("", false),
        ];
        for (reply, expected) in table {
            assert_eq!(is_time_out(reply.as_bytes()), expected, "{reply}");
        }
        assert!(!is_time_out(
            format!("{{\"value\": \"TimeoutError\"{}}}", " ".repeat(64)).as_bytes()
        ));
    }
}
