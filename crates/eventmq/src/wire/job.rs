//! What has to be known of a job's body, which is the client's and is otherwise handed on as it came.

use std::fmt;

use sha1::{Digest, Sha1};

use super::Fault;
use super::python::Value;

/// A body that is to be scheduled may have so many bytes: reading it takes a multiple of them for a moment.
pub const JOB_BYTES_MAX: usize = 8 << 20;

/// Which job a schedule is for: SHA-1 of what is called and with what. Queue, headers and interval are no part of it, so a
/// `SCHEDULE` of the same job replaces the one before. Shown in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Identity(pub [u8; 20]);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The identity of the job in a body, the same that the released scheduler gives it. What the job does not say counts as
/// `null` (there the released scheduler fails).
///
/// # Errors
/// A body that is too long, no JSON, or not a list with a job in its second place.
pub fn identity(body: &[u8]) -> Result<Identity, Fault> {
    /// In the order they are written in.
    const KEYS: [&str; 6] = ["args", "callable", "class_args", "class_kwargs", "kwargs", "path"];

    if body.len() > JOB_BYTES_MAX {
        return Err(Fault::JobTooLong { max: JOB_BYTES_MAX, given: body.len() });
    }
    let Value::List(call) = Value::read(body)? else { return Err(Fault::NotAJob) };
    let Some(Value::Map(mut job)) = call.into_iter().nth(1) else { return Err(Fault::NotAJob) };
    let named = KEYS.map(|key| (key.as_bytes().to_vec(), job.remove(key.as_bytes()).unwrap_or(Value::NULL)));
    let mut text = Vec::new();
    Value::Map(named.into()).write(&mut text);
    Ok(Identity(Sha1::digest(&text).into()))
}

/// What a worker would reply whose job ended with these words: `{"value": "…"}`, as the released programs write it.
#[must_use]
pub fn value_text(words: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let value = Value::Text(words.to_vec());
    Value::Map([(b"value".to_vec(), value)].into()).write(&mut text);
    text
}

/// Whether a worker's `REPLY` says that it gave up on the job when its time was over. An exception of that name cannot be told
/// from it, for nothing else says that a job failed.
#[must_use]
pub fn is_time_out(reply: &[u8]) -> bool {
    /// Blanks and all. Longer ones are results, and are not read.
    const BYTES_MAX: usize = 64;

    if reply.len() > BYTES_MAX {
        return false;
    }
    let Ok(Value::Map(reply)) = Value::read(reply) else { return false };
    matches!(reply.get(&b"value"[..]), Some(Value::Text(text)) if text == b"TimeoutError")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The released scheduler's own test has it.
    const JOB: &str = r#"{"args": [33, "asdf"], "callable": "do_the_thing", "class_args": [0],
        "class_kwargs": {"apple": false, "donkey": true}, "kwargs": {"alpha": "\u03b1", "zeta": "Z"}, "path": "test"}"#;

    fn hash(body: &str) -> String {
        identity(body.as_bytes()).map_or_else(|fault| fault.to_string(), |identity| identity.to_string())
    }

    #[test]
    fn identities() {
        let known = "4658982cab9d32bf1ef9113a9d8bdec01775e2bc";
        assert_eq!(hash(&format!("[\"run\", {JOB}]")), known);
        let other_order = r#"["run",{"path":"test","kwargs":{"zeta":"Z","alpha":"α"},"class_kwargs":{"donkey":true,"apple":false},
            "class_args":[0],"args":[33,"asdf"],"more":"is no part of it","callable":"x","callable":"do_the_thing"}]"#;
        assert_eq!(hash(other_order), known);
        assert_ne!(hash(&format!("[\"run\", {}]", JOB.replace("33", "34"))), known);
        let nulls =
            r#"["run",{"args":null,"callable":null,"class_args":null,"class_kwargs":null,"kwargs":null,"path":null}]"#;
        assert_eq!(hash("[\"run\",{}]"), hash(nulls));
    }

    #[test]
    fn what_is_no_job() {
        for body in ["{}", "[]", "[\"run\"]", "[{}]", "[\"run\",[]]", "1"] {
            assert_eq!(identity(body.as_bytes()), Err(Fault::NotAJob), "{body}");
        }
        assert_eq!(identity(b"[\"run\",{}"), Err(Fault::Json { at: 9, depth_max: Value::DEPTH_MAX }));
        let long = vec![b' '; JOB_BYTES_MAX + 1];
        assert_eq!(identity(&long), Err(Fault::JobTooLong { max: JOB_BYTES_MAX, given: JOB_BYTES_MAX + 1 }));
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
        assert!(!is_time_out(format!("{{\"value\": \"TimeoutError\"{}}}", " ".repeat(64)).as_bytes()));
    }
}
