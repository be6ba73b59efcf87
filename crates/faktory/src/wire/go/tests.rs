//! Error texts, compared with those of Go.

use super::*;

#[test]
fn syntax_errors_have_the_texts_of_go() {
    let table = [
        ("", END),
        ("{", END),
        ("[1,", END),
        ("\"a", END),
        ("tru", END),
        ("x", "invalid character 'x' looking for beginning of value"),
        (
            "{\"a\":1} trailing",
            "invalid character 't' after top-level value",
        ),
        (
            "{\"a\":[],}",
            "invalid character '}' looking for beginning of object key string",
        ),
        (
            "{a",
            "invalid character 'a' looking for beginning of object key string",
        ),
        ("{\"a\" 1}", "invalid character '1' after object key"),
        (
            "{\"a\":1 \"b\"}",
            "invalid character '\"' after object key:value pair",
        ),
        ("[1 2]", "invalid character '2' after array element"),
        (
            "[1,]",
            "invalid character ']' looking for beginning of value",
        ),
        ("[1}", "invalid character '}' after array element"),
        ("\"\\q\"", "invalid character 'q' in string escape code"),
        (
            "\"\\u00g0\"",
            "invalid character 'g' in \\u hexadecimal character escape",
        ),
        ("\"\u{1}\"", "invalid character '\\x01' in string literal"),
        ("\"\t\"", "invalid character '\\t' in string literal"),
        ("-x", "invalid character 'x' in numeric literal"),
        (
            "1.x",
            "invalid character 'x' after decimal point in numeric literal",
        ),
        (
            "1ex",
            "invalid character 'x' in exponent of numeric literal",
        ),
        ("01", "invalid character '1' after top-level value"),
        (
            "trux",
            "invalid character 'x' in literal true (expecting 'e')",
        ),
        (
            "'",
            "invalid character '\\'' looking for beginning of value",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(
            explain(text, Type::Any).as_deref(),
            Some(expected),
            "{text}"
        );
    }
    for good in [
        "{}",
        "[]",
        " [ { \"a\" : [ ] , \"b\" : -0.5e+7 } , null , true , false , \"\\u00e9\" ] ",
        "0",
    ] {
        assert_eq!(explain(good, Type::Any), None, "{good}");
    }
}

#[test]
fn depth_has_its_limit() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!(explain(&nested(DEPTH_MAX), Type::Any), None);
    let expected = "invalid character '[' exceeded max depth";
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
