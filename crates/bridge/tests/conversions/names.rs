//! What a job calls, as its body shows it.

use windlass_bridge::CALL_READ_MAX;
use windlass_engine::{Calls, Protocol};

use crate::columns::BRIDGE;

const FAKTORY: Protocol = Protocol::FAKTORY;
const EVENTMQ: Protocol = Protocol::EVENTMQ;

#[test]
fn bodies_show_what_their_jobs_call() {
    let named = |name: &'static str| Calls::Named(name.into());
    let table: [(Protocol, &str, Calls<'_>); 16] = [
        (
            FAKTORY,
            r#"{"retry":25,"jid":"jid00000001","queue":"q","jobtype":"Mail","args":[]}"#,
            named("Mail"),
        ),
        (
            FAKTORY,
            r#"{"retry":25,"queue":"q","jobtype":"Mail","args":[]}"#,
            named("Mail"),
        ),
        (
            FAKTORY,
            r#"{"retry":-1,"failure":{"errtype":"E"},"custom":{"jobtype":"no","a":"}\""},"jid":"j","queue":"q","jobtype":"A::B \"c\"","args":["#,
            named("A::B \"c\""),
        ),
        (
            FAKTORY,
            r#"{"retry":25,"jid":"j","queue":"q","jobtype":7,"args":[]}"#,
            Calls::Unknown,
        ),
        (FAKTORY, r#"{"jobtype":"Mail","args":[]}"#, Calls::Unknown),
        (FAKTORY, "", Calls::Unknown),
        (
            EVENTMQ,
            r#"["run", {"path": "shop.mail", "callable": "send", "args": [1]}]"#,
            named("shop.mail.send"),
        ),
        (
            EVENTMQ,
            r#"["run",{"args":["\"callable\""],"callable":"send","kwargs":{},"path":"a:B"}]"#,
            named("a:B.send"),
        ),
        // What comes behind the names is not read.
        (
            EVENTMQ,
            r#"["run", {"path": "m", "callable": "f", "args": "#,
            named("m.f"),
        ),
        (
            EVENTMQ,
            r#"["run", {"path": "", "callable": "f"}]"#,
            Calls::Unknown,
        ),
        (
            EVENTMQ,
            r#"["run", {"path": "m", "callable": null}]"#,
            Calls::Unknown,
        ),
        (
            EVENTMQ,
            r#"["halt", {"path": "m", "callable": "f"}]"#,
            Calls::Unknown,
        ),
        (EVENTMQ, r#"{"path": "m", "callable": "f"}"#, Calls::Unknown),
        (EVENTMQ, "\u{0}", Calls::Unknown),
        (Protocol::GEARMAN, r#"{"jobtype":"Mail"}"#, Calls::Queue),
        (Protocol::SPIDERQ, "entry", Calls::Queue),
    ];
    for (protocol, body, expected) in table {
        assert_eq!(BRIDGE.calls(protocol, body.as_bytes()), expected, "{body}");
    }
}

#[test]
fn a_name_far_behind_is_not_looked_for() {
    let body = |bytes: usize| {
        let text = "x".repeat(bytes);
        format!(
            r#"{{"retry":25,"custom":{{"a":"{text}"}},"jid":"j","queue":"q","jobtype":"Mail","args":[]}}"#
        )
    };
    assert_eq!(
        BRIDGE.calls(FAKTORY, body(CALL_READ_MAX / 2).as_bytes()),
        Calls::Named("Mail".into())
    );
    assert_eq!(
        BRIDGE.calls(FAKTORY, body(CALL_READ_MAX).as_bytes()),
        Calls::Unknown
    );
}
