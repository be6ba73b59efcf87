//! Properties for all bytes: a job's own protocol gets the bytes back unchanged, a job that crosses and comes back is
//! the same job, and no input panics.

use std::borrow::Cow;

use proptest::prelude::*;
use windlass_bridge::{Codec, Job};
use windlass_engine::{Priority, Protocol};
use windlass_faktory::bridge::Unit;

use super::{message, result, unit, workload};

const WORK: [Protocol; 3] = [Protocol::FAKTORY, Protocol::GEARMAN, Protocol::EVENTMQ];

fn codecs() -> impl Strategy<Value = Codec> {
    prop::sample::select(vec![Codec::Text, Codec::Json, Codec::Base64])
}

fn protocols() -> impl Strategy<Value = Protocol> {
    (0_u8..6).prop_map(Protocol)
}

/// Bytes, text, and JSON of every shape the crate looks for, sometimes with a byte changed.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..64);
    let fwp = (values(), values(), ".{0,8}").prop_map(|(args, custom, jobtype)| {
        format!(
            r#"{{"custom":{custom},"jobtype":{},"args":[{args}]}}"#,
            serde_json::Value::from(jobtype)
        )
    });
    let reply = values().prop_map(|value| format!("{{\"value\": {value}}}"));
    let text = prop_oneof![
        ".{0,32}".prop_map(String::from),
        values(),
        fwp,
        calls(),
        reply
    ];
    let bent = (text, any::<prop::sample::Index>(), any::<u8>(), 0_u8..4).prop_map(
        |(text, at, byte, bend)| {
            let mut body = text.into_bytes();
            let at = at.index(body.len().max(1));
            if let (0, Some(place)) = (bend, body.get_mut(at)) {
                *place = byte;
            }
            body
        },
    );
    prop_oneof![bytes, bent]
}

/// JSON texts that re-serializing would change: blanks, numbers, equal keys, escapes.
fn values() -> impl Strategy<Value = String> {
    let words = [
        "null",
        "true",
        "1.50",
        "1e400",
        "-0",
        "123456789012345678901234567890",
        r#""""#,
        r#""a\/\u00e9""#,
        r#""\ud800""#,
    ];
    let more = [r#""aGk=""#, r#""base64""#, r#"{"_encoding":"base64"}"#];
    let leaf = prop::sample::select([&words[..], &more].concat()).prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop::sample::select(vec![
            "a",
            "kwargs",
            "class_args",
            "eventmq",
            "_encoding",
            "value",
            r"\ud800",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(" , "))),
            prop::collection::vec((key, inner), 0..4).prop_map(|members| {
                let members: Vec<_> = members
                    .iter()
                    .map(|(key, value)| format!("\"{key}\" :{value}"))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

/// EventMQ jobs, most of them valid.
fn calls() -> impl Strategy<Value = String> {
    let word = "[a-z:é]{1,4}";
    (word, "[a-z]{1,4}", values(), values(), values(), any::<bool>()).prop_map(|(path, callable, a, b, c, listed)| {
        let args = if listed { format!("[{a}]") } else { a };
        format!(
            r#"["run", {{"path":"{path}","callable":"{callable}","args":{args},"kwargs":{{"k":{b}}},"class_args":[{c}],"new":{c}}}]"#
        )
    })
}

fn job<'a>(protocol: Protocol, codec: Codec, body: &'a [u8]) -> Job<'a> {
    Job {
        protocol,
        queue: b"q",
        body,
        codec,
        key: b"",
        priority: Priority::NORMAL,
    }
}

/// The body of a job that an FWP worker pushes with the parts it received.
fn pushed_on(unit: &Unit<'_>) -> Vec<u8> {
    let mut body = b"{\"retry\":25,\"custom\":".to_vec();
    body.extend_from_slice(&unit.custom);
    body.extend_from_slice(b",\"jid\":\"0123456789\",\"queue\":\"q\",\"jobtype\":");
    body.extend_from_slice(
        serde_json::Value::from(&*unit.jobtype)
            .to_string()
            .as_bytes(),
    );
    body.extend_from_slice(b",\"args\":");
    body.extend_from_slice(&unit.args);
    body.push(b'}');
    body
}

/// The JSON text, or nothing if it is invalid.
fn json(text: &[u8]) -> &str {
    serde_json::from_slice::<&serde_json::value::RawValue>(text).map_or("", |value| value.get())
}

proptest! {
    #[test]
    fn a_jobs_own_protocol_gets_its_bytes(body in bodies(), codec in codecs(), key in prop::collection::vec(any::<u8>(), 0..4)) {
        let own = |protocol| Job { key: &key, priority: Priority::MAX, ..job(protocol, codec, &body) };
        prop_assert!(matches!(workload(&own(Protocol::GEARMAN)), Ok(Cow::Borrowed(same)) if same == body));
        prop_assert!(matches!(message(&own(Protocol::EVENTMQ), true), Ok(Cow::Borrowed(same)) if same == body));
        for protocol in (0..6).map(Protocol) {
            prop_assert!(matches!(result(protocol, protocol, &body), Cow::Borrowed(same) if same == body));
        }
    }

    #[test]
    fn gearmans_bytes_come_back_from_fwp(body in bodies(), key in prop::collection::vec(any::<u8>(), 0..4)) {
        for codec in [Codec::Text, Codec::Base64] {
            let there = unit(&Job { key: &key, ..job(Protocol::GEARMAN, codec, &body) }).unwrap();
            let pushed = pushed_on(&there);
            let back = workload(&job(Protocol::FAKTORY, codec, &pushed)).unwrap();
            prop_assert_eq!(&*back, &*body);
        }
    }

    #[test]
    fn gearmans_json_comes_back_from_fwp(body in values(), blanks in "[ \n\t]{0,2}") {
        let padded = format!("{blanks}{body}{blanks}");
        let there = unit(&job(Protocol::GEARMAN, Codec::Json, padded.as_bytes())).unwrap();
        let pushed = pushed_on(&there);
        let back = workload(&job(Protocol::FAKTORY, Codec::Json, &pushed)).unwrap();
        let expected = if body.starts_with('[') { body } else { format!("[{body}]") };
        prop_assert_eq!(String::from_utf8_lossy(&back), expected);
    }

    /// Each part of the call is the same text.
    #[test]
    fn eventmqs_jobs_come_back_from_fwp(body in calls(), codec in prop::sample::select(vec![Codec::Text, Codec::Json])) {
        let given = job(Protocol::EVENTMQ, codec, body.as_bytes());
        let Ok(there) = unit(&given) else { return Ok(()) };
        let pushed = pushed_on(&there);
        let back = message(&job(Protocol::FAKTORY, codec, &pushed), false).unwrap();
        let again = unit(&job(Protocol::EVENTMQ, codec, &back)).unwrap();
        prop_assert_eq!(&again, &there);
    }

    #[test]
    fn conversions_are_json(body in bodies(), key in prop::collection::vec(any::<u8>(), 0..4), codec in codecs(), priority: u8) {
        for protocol in WORK {
            let job = Job { key: &key, priority: Priority::clamped(priority), ..job(protocol, codec, &body) };
            if let Ok(unit) = unit(&job) {
                let is_list = json(&unit.args).starts_with('[');
                let is_object = json(&unit.custom).starts_with('{');
                prop_assert!(is_list && is_object);
            }
            if let Ok(message) = message(&job, false) && protocol != Protocol::EVENTMQ {
                let gearman = Job { protocol: Protocol::GEARMAN, body: &message, ..job };
                prop_assert!(super::message(&gearman, false).is_ok(), "an EventMQ job");
            }
        }
        for from in [Protocol::GEARMAN, Protocol::FAKTORY] {
            let reply = result(from, Protocol::EVENTMQ, &body);
            prop_assert!(!json(&reply).is_empty() && reply.is_ascii());
            let heard = result(Protocol::EVENTMQ, from, &reply);
            if std::str::from_utf8(&body).is_ok() {
                prop_assert_eq!(&*heard, &*body);
            }
        }
    }

    #[test]
    fn nothing_panics(
        body in bodies(),
        queue in prop::collection::vec(any::<u8>(), 0..4),
        (codec, protocol, to) in (codecs(), protocols(), protocols()),
    ) {
        let job = Job { queue: &queue, key: &queue, ..job(protocol, codec, &body) };
        let sizes = [
            workload(&job).map(|made| made.len()),
            message(&job, false).map(|made| made.len()),
            unit(&job).map(|made| made.args.len() + made.custom.len() + made.jobtype.len()),
            Ok(result(protocol, to, &body).len()),
        ];
        for size in sizes.into_iter().flatten() {
            prop_assert!(size <= 256 + 6 * (body.len() + queue.len()), "{size} of {}", body.len());
        }
    }
}
