//! Hostile frames against the codec of EventMQ: a decoded message is encoded and decodes to the same message, and
//! values decoded from single frames keep to the limits and can be encoded again.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use windlass_engine::Timestamp;
use windlass_eventmq::wire::{
    Command, Headers, Packet, QUEUES_MAX, Queue, When, identity, is_time_out, queues,
};
use windlass_session::cron::croniter;
use windlass_zmtp::Message;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    /// An existing command, so that its frames are decoded.
    command: Option<u8>,
    frames: Vec<&'a [u8]>,
    rest: &'a [u8],
}

const COMMANDS: [&str; 17] = [
    "INFORM",
    "ACK",
    "HEARTBEAT",
    "READY",
    "REQUEST",
    "REPLY",
    "SCHEDULE",
    "UNSCHEDULE",
    "PUBLISH",
    "DISCONNECT",
    "KBYE",
    "KBAI",
    "STATUS",
    "ROUTER_SHOW_WORKERS",
    "ROUTER_SHOW_SCHEDULERS",
    "HELLO",
    "hello",
];

fuzz_target!(|data: &[u8]| {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(data)) else {
        return;
    };
    let command = input
        .command
        .map(|number| COMMANDS[usize::from(number) % COMMANDS.len()]);
    let head = command.map_or(vec![], |command| {
        vec![&b""[..], b"eMQP/1.0", command.as_bytes()]
    });
    let message = Message::new(
        head.into_iter()
            .chain(input.frames.iter().copied())
            .chain([input.rest]),
    );
    if let Ok(packet) = Packet::decode(&message) {
        let again = Message::new(packet.frames());
        assert_eq!(Packet::decode(&again), Ok(packet));
        contents(&packet.command);
    }
    frame(input.rest);
});

fn contents(command: &Command<'_>) {
    match command {
        Command::Schedule(plan) | Command::Unschedule(plan) => {
            headers(plan.headers);
            if let Ok(When::Cron(text)) = plan.when() {
                cron(text);
            }
        }
        Command::Request(request) => headers(request.headers),
        _ => {}
    }
}

/// Decodes any frame as every type.
fn frame(text: &[u8]) {
    cron(text);
    headers(Headers(text));
    assert!(!is_time_out(text) || text.len() <= 64);
    if let Ok(list) = queues(text) {
        assert!(list.len() <= QUEUES_MAX);
        assert_eq!(queues(&informed(&list)), Ok(list));
    }
    let known = identity(text);
    // Other JSON of the same job has the same identity. Some spellings of numbers are distinguished only by Python.
    if let Ok(job) = serde_json::from_slice::<Value>(text)
        && !has_number(&job)
        && let Value::Array(call) = &job
        && let Some(Value::Object(_)) = call.get(1)
    {
        assert!(known.is_ok(), "{known:?}");
        assert_eq!(identity(&serde_json::to_vec_pretty(&job).unwrap()), known);
    }
}

fn headers(headers: Headers<'_>) {
    let said = |headers: Headers<'_>| {
        let (timeout, retry) = (headers.timeout_secs(), headers.retry_count());
        (
            timeout,
            retry,
            headers.guarantee(),
            headers.nohaste(),
            headers.run_count(),
        )
    };
    let more = headers.with_reply_requested();
    assert!(more.starts_with(headers.0) && Headers(&more).reply_requested());
    assert_eq!(Headers(&more).with_reply_requested(), more);
    assert_eq!(said(Headers(&more)), said(headers));
}

fn cron(text: &[u8]) {
    if let Ok(cron) = croniter::parse(text) {
        let next = cron.next_after(Timestamp(1_700_000_000_000));
        assert_eq!(next < Timestamp::NEVER, cron.can_match(), "{cron}");
    }
}

/// Queues in a worker's `INFORM`.
fn informed(queues: &[Queue]) -> Vec<u8> {
    let mut text = b"[".to_vec();
    for (index, queue) in queues.iter().enumerate() {
        text.extend_from_slice(if index == 0 { b"[" } else { b", [" });
        text.extend_from_slice(format!("{}, \"", queue.weight).as_bytes());
        for byte in &queue.name {
            match byte {
                b'"' | b'\\' => text.extend_from_slice(&[b'\\', *byte]),
                0..0x20 => text.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                _ => text.push(*byte),
            }
        }
        text.extend_from_slice(b"\"]");
    }
    text.push(b']');
    text
}

fn has_number(value: &Value) -> bool {
    match value {
        Value::Number(_) => true,
        Value::Array(list) => list.iter().any(has_number),
        Value::Object(map) => map.values().any(has_number),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}
