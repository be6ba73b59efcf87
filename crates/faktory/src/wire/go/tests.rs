//! Error texts, compared with those of Go.

use super::*;

#[test]
fn text_that_is_no_json_is_told_by_its_place() {
    let early = "unexpected end of the text";
    let deep = "[".repeat(DEPTH_MAX + 1) + &"]".repeat(DEPTH_MAX + 1);
    let table = [
        ("", early),
        ("{", early),
        ("[1,", early),
        ("\"a", early),
        ("x", "unexpected character at line 1, column 1"),
        (
            "{\"a\":1} trailing",
            "unexpected character at line 1, column 9",
        ),
        ("{\"a\":[],}", "unexpected character at line 1, column 9"),
        ("[1 2]", "unexpected character at line 1, column 4"),
        ("\"\\q\"", "unexpected character at line 1, column 3"),
        (&deep, "nested too deep"),
    ];
    for (text, error) in table {
        let shown = text.get(..20).unwrap_or(text);
        assert_eq!(explain(text, Type::Any).as_deref(), Some(error), "{shown}");
    }
    assert_eq!(explain("[{\"a\":[1.5e3,null]}]", Type::Any), None);
}

#[test]
fn depth_has_its_limit() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!(explain(&nested(DEPTH_MAX), Type::Any), None);
    let expected = "nested too deep";
    assert_eq!(
        explain(&nested(DEPTH_MAX + 1), Type::Any).as_deref(),
        Some(expected)
    );
}

#[test]
fn errors_name_the_position_of_a_value_of_a_wrong_kind() {
    let job = Type::Struct(&JOB);
    let table = [
        ("[]", job, "array into Go value of type client.Job"),
        (
            "{}",
            Type::StructSlice(&JOB),
            "object into Go value of type []client.Job",
        ),
        (
            "[1]",
            Type::StructSlice(&JOB),
            "number into Go value of type client.Job",
        ),
        (
            "[{},{\"jid\":true}]",
            Type::StructSlice(&JOB),
            "bool into Go struct field Job.jid of type string",
        ),
        (
            "{\"JID\":1}",
            job,
            "number into Go struct field Job.jid of type string",
        ),
        (
            "{\"x\":{\"jid\":1},\"retry\":1.5,\"jid\":1}",
            job,
            "number 1.5 into Go struct field Job.retry of type int",
        ),
        (
            "{\"args\":{}}",
            job,
            "object into Go struct field Job.args of type []interface {}",
        ),
        (
            "{\"custom\":[1]}",
            job,
            "array into Go struct field Job.custom of type map[string]interface {}",
        ),
        (
            "{\"failure\":[]}",
            job,
            "array into Go struct field Job.failure of type client.Failure",
        ),
        (
            "{\"failure\":{\"retry_count\":\"x\"}}",
            job,
            "string into Go struct field Failure.failure.retry_count of type int",
        ),
        (
            "{\"filter\":{\"jids\":\"x\"}}",
            Type::Struct(&MUTATION),
            "string into Go struct field JobFilter.filter.jids of type []string",
        ),
        (
            "{\"filter\":{\"jids\":[\"a\",1]}}",
            Type::Struct(&MUTATION),
            "number into Go struct field JobFilter.filter.jids of type string",
        ),
    ];
    for (text, expected, error) in table {
        assert_eq!(
            explain(text, expected),
            Some(format!("json: cannot unmarshal {error}")),
            "{text}"
        );
    }
    assert_eq!(
        explain(
            "{\"jid\":null,\"args\":null,\"failure\":null,\"retry\":-7,\"y\":1.5}",
            job
        ),
        None
    );
}

#[test]
fn quoted_as_go_quotes() {
    assert_eq!(
        quote("föö \"x\"\\ \n\u{1}"),
        "\"föö \\\"x\\\"\\\\ \\n\\x01\""
    );
}
