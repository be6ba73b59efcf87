//! The trace of a job, as set by the producer.
//!
//! Spec: W3C Trace Context, `traceparent`. Stock clients of Faktory put it into a job's `custom`; the job
//! retains it, and the worker receives it.

use serde::Deserialize;
use windlass_engine::Protocol;

/// The relevant part of a Faktory job.
#[derive(Debug, Deserialize)]
struct Unit {
    #[serde(default)]
    custom: Option<Custom>,
}

#[derive(Debug, Deserialize)]
struct Custom {
    #[serde(default)]
    traceparent: Option<String>,
}

/// The `traceparent` of a job, if it has a valid one.
pub(crate) fn traceparent(protocol: Protocol, body: &[u8]) -> Option<String> {
    if protocol != Protocol::FAKTORY {
        return None;
    }
    let unit: Unit = serde_json::from_slice(body).ok()?;
    unit.custom?.traceparent.filter(|text| is_valid(text))
}

/// A version, a trace, a span and flags, in hexadecimal. Later versions may have more fields.
fn is_valid(text: &str) -> bool {
    let mut parts = text.split('-');
    let is_hex = |part: &str| {
        part.bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let mut next = |digits: usize| {
        parts
            .next()
            .filter(|part| part.len() == digits && is_hex(part))
    };
    let [version, trace, span, flags] = [next(2), next(32), next(16), next(2)];
    let is_set = |id: Option<&str>| id.is_some_and(|id| id.bytes().any(|byte| byte != b'0'));
    let is_over = parts.next().is_none();
    version.is_some_and(|version| version != "ff" && (is_over || version != "00"))
        && is_set(trace)
        && is_set(span)
        && flags.is_some()
        && text.len() <= 256
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_what_the_specification_permits() {
        assert!(is_valid(VALID) && is_valid(&format!("01{}-more", &VALID[2..])));
        let wrong = [
            String::new(),
            VALID.to_uppercase(),
            format!("ff{}", &VALID[2..]),
            format!("{VALID}-more"),
            VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            VALID.replace("00f067aa0ba902b7", "0f067aa0ba902b7"),
            format!("01{}-{}", &VALID[2..], "x".repeat(300)),
        ];
        for text in wrong {
            assert!(!is_valid(&text), "{text}");
        }
    }

    #[test]
    fn a_job_of_faktorys_shows_it() {
        let body = format!(
            r#"{{"jid":"a","jobtype":"T","args":[],"custom":{{"traceparent":"{VALID}","b":1}}}}"#
        );
        assert_eq!(
            traceparent(Protocol::FAKTORY, body.as_bytes()).as_deref(),
            Some(VALID)
        );
        assert_eq!(traceparent(Protocol::GEARMAN, body.as_bytes()), None);
        for body in [
            "",
            "[]",
            r#"{"custom":null}"#,
            r#"{"custom":{"traceparent":1}}"#,
            r#"{"custom":{"traceparent":""}}"#,
        ] {
            assert_eq!(
                traceparent(Protocol::FAKTORY, body.as_bytes()),
                None,
                "{body}"
            );
        }
    }
}
