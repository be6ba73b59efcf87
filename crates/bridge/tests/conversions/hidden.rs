//! Arguments that are hidden from readers, in the bodies of all protocols.

use windlass_engine::Protocol;

use crate::columns::BRIDGE;

#[test]
fn each_protocol_has_its_arguments_hidden_wherever_a_body_has_them() {
    let table: [(Protocol, &str, Option<&str>); 8] = [
        (
            Protocol::FAKTORY,
            r#"{"jid":"j","args":[{"card":1,"to":2}],"custom":{"card":3}}"#,
            Some(r#"{"jid":"j","args":[{"card":"***","to":2}],"custom":{"card":"***"}}"#),
        ),
        (Protocol::FAKTORY, "{\"args\":[{\"card\"", None),
        (
            Protocol::EVENTMQ,
            r#"["run",{"path":"p","args":[{"card":1}],"kwargs":{"card":2},"class_args":[{"card":3}],"class_kwargs":{"card":4}}]"#,
            Some(
                r#"["run",{"path":"p","args":[{"card":"***"}],"kwargs":{"card":"***"},"class_args":[{"card":"***"}],"class_kwargs":{"card":"***"}}]"#,
            ),
        ),
        (
            Protocol::GEARMAN,
            r#"[{"card":1}]"#,
            Some(r#"[{"card":"***"}]"#),
        ),
        (
            Protocol::GEARMAN,
            r#"{"card":1}"#,
            Some(r#"{"card":"***"}"#),
        ),
        (Protocol::GEARMAN, "card=1", None),
        (Protocol::SPIDERQ, "[{\"card\":1}", None),
        (Protocol::HTTP, "\"card: 1\"", Some("\"***\"")),
    ];
    for (protocol, body, expected) in table {
        let shown = BRIDGE.hidden(protocol, body.as_bytes(), &["/0/card", "/card"]);
        assert_eq!(shown.as_deref(), expected, "{body}");
    }
}
