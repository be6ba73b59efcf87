//! Hostile bodies against the bridge: for workers of every protocol, under every codec. Output that must be JSON is
//! JSON, and is not larger than its rule allows. A job that is converted and pushed on must come back the same.
#![no_main]

#[path = "../../crates/bridge/tests/conversions/columns.rs"]
mod columns;

use std::borrow::Cow;

use arbitrary::Arbitrary;
use columns::{message, result, unit, workload};
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;
use windlass_bridge::{Codec, Job};
use windlass_engine::{Priority, Protocol};
use windlass_faktory::bridge::Unit;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    codec: u8,
    priority: u8,
    key: &'a [u8],
    body: Body<'a>,
}

/// Bytes, or fragments that the bridge recognises, so that the fuzzer need not find them.
#[derive(Debug, Arbitrary)]
enum Body<'a> {
    Bytes(&'a [u8]),
    Unit {
        jobtype: &'a str,
        args: &'a str,
        custom: &'a str,
    },
    Call {
        path: &'a str,
        callable: &'a str,
        more: &'a str,
    },
    Value(&'a str),
}

fuzz_target!(|input: Input<'_>| {
    let body = body(&input.body);
    let codec = [Codec::Text, Codec::Json, Codec::Base64][usize::from(input.codec % 3)];
    let priority = Priority::clamped(input.priority);
    let job = |protocol| Job {
        protocol,
        queue: b"q",
        body: &body,
        codec,
        key: input.key,
        priority,
    };

    for protocol in (0..6).map(Protocol) {
        convert(&job(protocol));
        for to in (0..6).map(Protocol) {
            let heard = result(protocol, to, &body);
            assert!(protocol != to || matches!(heard, Cow::Borrowed(same) if same == body));
            assert!(heard.len() <= 16 + 6 * body.len());
        }
    }
    if let Ok(there) = unit(&job(Protocol::GEARMAN)) {
        let back = workload(&Job {
            protocol: Protocol::FAKTORY,
            body: &pushed_on(&there),
            ..job(Protocol::GEARMAN)
        })
        .map(Cow::into_owned);
        match codec {
            Codec::Text | Codec::Base64 => assert_eq!(back.as_deref(), Ok(&*body)),
            // A list of its own makes it one level deeper, and a job another one.
            Codec::Json => assert!(back.is_err() || back.as_deref() == Ok(&*there.args)),
        }
    }
    if let Ok(there) = unit(&job(Protocol::EVENTMQ)) {
        let pushed = pushed_on(&there);
        if let Ok(back) = message(
            &Job {
                protocol: Protocol::FAKTORY,
                body: &pushed,
                ..job(Protocol::FAKTORY)
            },
            false,
        ) {
            let again = unit(&Job {
                body: &back,
                ..job(Protocol::EVENTMQ)
            });
            assert_eq!(
                again.map(|unit| unit.args.into_owned()),
                Ok(there.args.into_owned())
            );
        }
    }
});

fn body(body: &Body<'_>) -> Vec<u8> {
    match body {
        Body::Bytes(bytes) => bytes.to_vec(),
        Body::Unit {
            jobtype,
            args,
            custom,
        } => format!(
            "{{\"custom\":{custom},\"jobtype\":{},\"args\":[{args}]}}",
            quoted(jobtype)
        )
        .into_bytes(),
        Body::Call {
            path,
            callable,
            more,
        } => {
            let (path, callable) = (quoted(path), quoted(callable));
            format!("[\"run\", {{\"path\":{path},\"callable\":{callable},{more}}}]").into_bytes()
        }
        Body::Value(value) => format!("{{\"value\": {value}}}").into_bytes(),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn convert(job: &Job<'_>) {
    let bytes = 256 + 6 * (job.body.len() + job.key.len());
    if let Ok(workload) = workload(job) {
        assert!(workload.len() <= bytes);
        assert!(
            job.protocol != Protocol::GEARMAN
                || matches!(workload, Cow::Borrowed(same) if same == job.body)
        );
    }
    if let Ok(message) = message(job, false) {
        assert!(message.len() <= bytes);
        assert!(
            job.protocol != Protocol::EVENTMQ
                || matches!(message, Cow::Borrowed(same) if same == job.body)
        );
        assert!(job.protocol == Protocol::EVENTMQ || is_json(&message));
    }
    if let Ok(unit) = unit(job) {
        assert!(unit.args.len() + unit.custom.len() + unit.jobtype.len() <= bytes);
        assert!(unit.args.starts_with(b"[") && is_json(&unit.args));
        assert!(unit.custom.starts_with(b"{") && is_json(&unit.custom));
    }
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// The body of a job in which an FWP worker pushes on its own input.
fn pushed_on(unit: &Unit<'_>) -> Vec<u8> {
    let jobtype = quoted(&unit.jobtype);
    let head: [&[u8]; 5] = [
        b"{\"custom\":",
        &unit.custom,
        b",\"jobtype\":",
        jobtype.as_bytes(),
        b",\"args\":",
    ];
    [&head.concat(), &*unit.args, b"}"].concat()
}
