//! Jobs for FWP workers.

use windlass_bridge::Codec::{Base64, Json, Text};
use windlass_bridge::json::DEPTH_MAX;
use windlass_bridge::{Codec, Job};
use windlass_engine::{Priority, Protocol};
use windlass_faktory::bridge::Unit;

use super::columns::BRIDGE;
use super::{of, unit};

/// Jobtype, arguments and `custom`, or the error.
fn made(job: &Job<'_>) -> String {
    match unit(job) {
        Ok(Unit {
            jobtype,
            args,
            custom,
        }) => {
            format!(
                "{jobtype} {} {}",
                String::from_utf8_lossy(&args),
                String::from_utf8_lossy(&custom)
            )
        }
        Err(misfit) => misfit.to_string(),
    }
}

#[test]
fn of_workloads() {
    let plain = r#"{"_origin":"gearman"}"#;
    let bytes = r#"{"_origin":"gearman","_encoding":"base64"}"#;
    let no_json = "conversion: gearman to faktory, codec json: invalid JSON, or nested deeper than 128 levels";
    let table: [(Codec, &[u8], &str, &str); 23] = [
        (Text, b"a b", r#"["a b"]"#, plain),
        (Text, b"", r#"[""]"#, plain),
        (Text, b"[1, 2]", r#"["[1, 2]"]"#, plain),
        (
            Text,
            "\"\\\n\u{0}\u{7f}é😀/".as_bytes(),
            "[\"\\\"\\\\\\n\\u0000\u{7f}é😀/\"]",
            plain,
        ),
        (Text, b"\xff\xfe\xfd", r#"["//79"]"#, bytes),
        (Text, b"a\x80", r#"["YYA="]"#, bytes),
        (Text, b"\xed\xa0\x80", r#"["7aCA"]"#, bytes),
        (Json, b"[1, 2]", "[1, 2]", plain),
        (
            Json,
            b" [1.50, 1e400,\n{\"a\":1,\"a\":2}]\n",
            "[1.50, 1e400,\n{\"a\":1,\"a\":2}]",
            plain,
        ),
        (Json, b"[]", "[]", plain),
        (Json, b"{\"a\" : -0.0}", "[{\"a\" : -0.0}]", plain),
        (Json, b" null ", "[null]", plain),
        (Json, br#""\ud800""#, r#"["\ud800"]"#, plain),
        (
            Json,
            b"123456789012345678901234567890",
            "[123456789012345678901234567890]",
            plain,
        ),
        (Json, b"", "", no_json),
        (Json, b"resize", "", no_json),
        (Json, b"[1] 2", "", no_json),
        (Json, b"[NaN]", "", no_json),
        (Json, b"\"\xff\"", "", no_json),
        (Json, b"\xef\xbb\xbf[]", "", no_json),
        (Base64, b"hi", r#"["aGk="]"#, bytes),
        (Base64, b"", r#"[""]"#, bytes),
        (Base64, b"\xff\xfe\xfd", r#"["//79"]"#, bytes),
    ];
    for (codec, body, args, custom) in table {
        let expected = if args.is_empty() {
            custom.to_owned()
        } else {
            format!("q {args} {custom}")
        };
        assert_eq!(
            made(&of(Protocol::GEARMAN, codec, body)),
            expected,
            "{codec:?} {}",
            body.escape_ascii()
        );
    }
}

#[test]
fn deep_workloads() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    for (depth, fits) in [
        (DEPTH_MAX, true),
        (DEPTH_MAX + 1, false),
        (1_000_000, false),
    ] {
        let body = nested(depth);
        assert_eq!(
            unit(&of(Protocol::GEARMAN, Json, body.as_bytes())).is_ok(),
            fits,
            "{depth}"
        );
        assert!(
            unit(&of(Protocol::GEARMAN, Text, body.as_bytes())).is_ok(),
            "text has no depth"
        );
    }
}

#[test]
fn names() {
    let job = |queue| Job {
        queue,
        ..of(Protocol::GEARMAN, Text, b"")
    };
    assert_eq!(unit(&job(b"a.b-c_9")).unwrap().jobtype, "a.b-c_9");
    let expected = "conversion: gearman to faktory, codec text: the queue's name is not UTF-8";
    assert_eq!(made(&job(b"\xff")), expected);
}

#[test]
fn of_messages() {
    let none = r#"{"kwargs":{},"class_args":[],"class_kwargs":{}}"#;
    let no = "conversion: eventmq to faktory: the body is no EventMQ job";
    let table = [
        (r#"["run", {"path": "m", "callable": "f"}]"#, "m.f []", none),
        (
            r#"["run",{"callable":"f","path":"p.m:C","args":[ 1.50 ]}]"#,
            "p.m:C.f [ 1.50 ]",
            none,
        ),
        (
            r#"["r\u0075n",{"p\u0061th":"\u006d","callable":"f","args":null}]"#,
            "m.f []",
            none,
        ),
        (
            r#"["run",{"path":"m","callable":"f","args":["a",1e400],"kwargs":{"b": 1,"b":2},"class_args":[0],"class_kwargs":{"c":-0}}]"#,
            r#"m.f ["a",1e400]"#,
            r#"{"kwargs":{"b": 1,"b":2},"class_args":[0],"class_kwargs":{"c":-0}}"#,
        ),
        (
            r#"["run",{"x\n":1.0,"path":"m","callable":"f","kwargs":null,"y":{"z": []}}]"#,
            "m.f []",
            r#"{"kwargs":{},"class_args":[],"class_kwargs":{},"x\n":1.0,"y":{"z": []}}"#,
        ),
        (
            r#"["run",{"path":1,"path":"m","callable":"g","callable":"f","args":1,"args":[2]}]"#,
            "m.f [2]",
            none,
        ),
        ("", "", no),
        ("[]", "", no),
        (r#"["run"]"#, "", no),
        (r#"["run",[]]"#, "", no),
        (r#"["run",{}]"#, "", no),
        (r#"["walk",{"path":"m","callable":"f"}]"#, "", no),
        (r#"[1,{"path":"m","callable":"f"}]"#, "", no),
        (r#"["run",{"path":"m","callable":"f"},1]"#, "", no),
        (r#"{"path":"m","callable":"f"}"#, "", no),
        (r#"["run",{"path":"m"}]"#, "", no),
        (r#"["run",{"path":"m","callable":null}]"#, "", no),
        (r#"["run",{"path":"","callable":"f"}]"#, "", no),
        (r#"["run",{"path":"m","callable":""}]"#, "", no),
        (r#"["run",{"path":"\ud800","callable":"f"}]"#, "", no),
        (r#"["run",{"path":["m"],"callable":"f"}]"#, "", no),
        (r#"["run",{"path":"m","callable":"f","args":{}}]"#, "", no),
        (r#"["run",{"path":"m","callable":"f","args":"ab"}]"#, "", no),
        (r#"["run",{"path":"m","callable":"f","kwargs":[]}]"#, "", no),
        (
            r#"["run",{"path":"m","callable":"f","class_args":1}]"#,
            "",
            no,
        ),
        (
            r#"["run",{"path":"m","callable":"f","class_kwargs":true}]"#,
            "",
            no,
        ),
        (
            r#"["run",{"path":"m","callable":"f","args":[NaN]}]"#,
            "",
            no,
        ),
        (r#"["run",{"path":"m","callable":"f","args":[}]"#, "", no),
    ];
    for (body, parts, eventmq) in table {
        let custom = format!("{{\"_origin\":\"eventmq\",\"eventmq\":{eventmq}}}");
        let expected = if parts.is_empty() {
            eventmq.to_owned()
        } else {
            format!("{parts} {custom}")
        };
        for codec in [Text, Json] {
            assert_eq!(
                made(&of(Protocol::EVENTMQ, codec, body.as_bytes())),
                expected,
                "{body}"
            );
        }
        assert_eq!(
            made(&of(Protocol::EVENTMQ, Base64, body.as_bytes())),
            "conversion: eventmq to faktory, codec base64: the queue's codec cannot convert this body"
        );
    }
    let not_text = br#"["run",{"path":"m","callable":"f","args":["%"]}]"#
        .map(|byte| if byte == b'%' { 255 } else { byte });
    assert_eq!(made(&of(Protocol::EVENTMQ, Text, &not_text)), no);
}

#[test]
fn keys_and_priorities_go_to_custom() {
    let run: &[u8] = br#"["run",{"path":"m","callable":"f"}]"#;
    let gearman = of(Protocol::GEARMAN, Text, b"x");
    let eventmq = of(Protocol::EVENTMQ, Text, run);
    let table = [
        (gearman, ""),
        (
            Job {
                key: "é\"".as_bytes(),
                ..gearman
            },
            r#","_unique":"é\"""#,
        ),
        (
            Job {
                key: b"\xff\xfe\xfd",
                ..gearman
            },
            r#","_unique":"//79""#,
        ),
        (
            Job {
                priority: Priority::clamped(7),
                ..gearman
            },
            r#","_priority":7"#,
        ),
        (
            Job {
                body: b"\xff",
                key: b"k",
                priority: Priority::MIN,
                ..gearman
            },
            r#","_encoding":"base64","_unique":"k","_priority":1"#,
        ),
        (
            Job {
                key: b"3f",
                priority: Priority::MAX,
                ..eventmq
            },
            r#","_unique":"3f","_priority":9,"eventmq":{"kwargs":{},"class_args":[],"class_kwargs":{}}"#,
        ),
    ];
    for (job, more) in table {
        let custom = unit(&job).unwrap().custom;
        let expected = format!("{{\"_origin\":\"{}\"{more}}}", BRIDGE.name(job.protocol));
        assert_eq!(String::from_utf8_lossy(&custom), expected);
    }
}

#[test]
fn fwp_jobs_keep_their_parts() {
    let table = [
        (
            r#"{"retry":1,"custom":{"a": 1},"jobtype":"t","args":[1, 1e400]}"#,
            r#"t [1, 1e400] {"a": 1}"#,
        ),
        (r#"{"jobtype":"t","args":[]}"#, "t [] {}"),
        (
            r#"{"jobtype":"t"}"#,
            "conversion: faktory to faktory: the body is no FWP job",
        ),
    ];
    for (body, expected) in table {
        let job = Job {
            key: b"k",
            priority: Priority::MAX,
            ..of(Protocol::FAKTORY, Base64, body.as_bytes())
        };
        assert_eq!(made(&job), expected);
    }
}

#[test]
fn other_protocols_are_refused() {
    for (protocol, name) in [(Protocol::SPIDERQ, "spiderq"), (Protocol(0), "unknown")] {
        let expected = format!("conversion: {name} to faktory: these protocols do not share jobs");
        assert_eq!(made(&of(protocol, Text, b"[]")), expected);
    }
}
