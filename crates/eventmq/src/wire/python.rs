//! JSON as Python reads it, and as its `json.dumps(…, sort_keys=True)` writes it: the text that a schedule's identity
//! is made of.

use std::collections::BTreeMap;

use super::Fault;
use super::scanner::{Scanner, Unexpected};

/// A value, with all that is needed to write it again.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value<'a> {
    /// A constant or an integer, which keeps its spelling.
    Word(&'a [u8]),
    Float(f64),
    /// Any bytes; need not be UTF-8.
    Text(Vec<u8>),
    List(Vec<Self>),
    /// The last of two equal keys counts.
    Map(BTreeMap<Vec<u8>, Self>),
}

impl<'a> Value<'a> {
    /// Levels of nesting, the outermost value included.
    pub(super) const DEPTH_MAX: usize = 128;
    pub(super) const NULL: Self = Self::Word(b"null");

    /// Parses a whole text.
    pub(super) fn read(text: &'a [u8]) -> Result<Self, Fault> {
        let mut from = Scanner::new(text);
        let value = Self::read_at(&mut from, Self::DEPTH_MAX);
        match (value, from.peek()) {
            (Ok(value), None) => Ok(value),
            _ => {
                let (at, depth_max) = (from.at(), Self::DEPTH_MAX);
                Err(Fault(format!(
                    "the body is not JSON, or nested deeper than {depth_max}, from byte {at}"
                )))
            }
        }
    }

    fn read_at(from: &mut Scanner<'a>, depth_left: usize) -> Result<Self, Unexpected> {
        let depth_left = depth_left.checked_sub(1).ok_or(Unexpected)?;
        match from.peek().ok_or(Unexpected)? {
            b'"' => from.string(b'"').map(Self::Text),
            b'[' => {
                let mut list = Vec::new();
                items(from, [b'[', b']'], |from| {
                    list.push(Self::read_at(from, depth_left)?);
                    Ok(())
                })?;
                Ok(Self::List(list))
            }
            b'{' => {
                let mut map = BTreeMap::new();
                items(from, [b'{', b'}'], |from| {
                    from.peek();
                    let key = from.string(b'"')?;
                    from.take(b':')?;
                    map.insert(key, Self::read_at(from, depth_left)?);
                    Ok(())
                })?;
                Ok(Self::Map(map))
            }
            _ => word(from.word()),
        }
    }

    /// Appends the value as Python does: keys sorted, a blank behind every comma and colon, ASCII only.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Word(word) => out.extend_from_slice(word),
            Self::Float(number) => out.extend_from_slice(repr(*number).as_bytes()),
            Self::Text(text) => quote(text, out),
            Self::List(list) => {
                out.push(b'[');
                for (index, value) in list.iter().enumerate() {
                    separate(index, out);
                    value.write(out);
                }
                out.push(b']');
            }
            Self::Map(map) => {
                out.push(b'{');
                for (index, (key, value)) in map.iter().enumerate() {
                    separate(index, out);
                    quote(key, out);
                    out.extend_from_slice(b": ");
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }
}

/// Calls `each` for every item, between these brackets.
fn items<'a>(
    from: &mut Scanner<'a>,
    [open, close]: [u8; 2],
    mut each: impl FnMut(&mut Scanner<'a>) -> Result<(), Unexpected>,
) -> Result<(), Unexpected> {
    from.take(open)?;
    if from.takes(close) {
        return Ok(());
    }
    loop {
        each(from)?;
        if !from.takes(b',') {
            return from.take(close);
        }
    }
}

/// A constant or a number, of JSON or of Python's extensions.
fn word(word: &[u8]) -> Result<Value<'_>, Unexpected> {
    if matches!(
        word,
        b"null" | b"true" | b"false" | b"NaN" | b"Infinity" | b"-Infinity"
    ) {
        return Ok(Value::Word(word));
    }
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let whole = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (whole, rest) = digits.split_at(whole);
    if whole.is_empty() || (whole.len() > 1 && whole.starts_with(b"0")) {
        return Err(Unexpected);
    }
    if rest.is_empty() {
        return Ok(Value::Word(if word == b"-0" { b"0" } else { word }));
    }
    // Rust parses floats that JSON has not: only `1.`, with or without an exponent.
    if rest == b"." || rest.starts_with(b".e") || rest.starts_with(b".E") {
        return Err(Unexpected);
    }
    let number = std::str::from_utf8(word)
        .ok()
        .and_then(|word| word.parse().ok())
        .ok_or(Unexpected)?;
    Ok(Value::Float(number))
}

fn separate(index: usize, out: &mut Vec<u8>) {
    if index > 0 {
        out.extend_from_slice(b", ");
    }
}

/// The shortest number that parses as this one, in Python's form.
fn repr(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .to_owned();
    }
    let (digits, exponent) = scientific(&format!("{number:e}"));
    let behind_point = digits.saturating_sub(1);
    if (-4..16).contains(&exponent) {
        let behind_point = i32::try_from(behind_point)
            .unwrap_or_default()
            .saturating_sub(exponent)
            .max(1);
        return format!(
            "{number:.*}",
            usize::try_from(behind_point).unwrap_or_default()
        );
    }
    // Formatted again to this length: of two equally near numbers Rust's shortest form is the greater one, Python's the
    // even one.
    let text = format!("{number:.behind_point$e}");
    let (mantissa, _) = text.split_once('e').unwrap_or((&text, ""));
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// The number of digits before the exponent, and the exponent.
fn scientific(text: &str) -> (usize, i32) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    (
        mantissa.bytes().filter(u8::is_ascii_digit).count(),
        exponent.parse().unwrap_or_default(),
    )
}

/// Appends a string in quotes. Invalid UTF-8 becomes surrogates, as in Python's `surrogateescape`: `\udc80` and on.
fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        chunk.valid().chars().for_each(|each| escape(each, out));
        chunk
            .invalid()
            .iter()
            .for_each(|byte| unit(0xdc00 | u16::from(*byte), out));
    }
    out.push(b'"');
}

fn escape(each: char, out: &mut Vec<u8>) {
    let short = match each {
        '"' => b'"',
        '\\' => b'\\',
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        '\u{8}' => b'b',
        '\u{c}' => b'f',
        ' '..='~' => return out.extend(u8::try_from(each).ok()),
        _ => {
            return each
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|code| unit(*code, out));
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

fn unit(code: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("\\u{code:04x}").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are from Python 3.11.
    #[test]
    fn as_python_writes() {
        let table = [
            ("null", "null"),
            ("[true,false]", "[true, false]"),
            ("[]", "[]"),
            ("{ }", "{}"),
            (
                "{\"b\":1,\"a\":{\"c\":[1,\"x\"]}}",
                "{\"a\": {\"c\": [1, \"x\"]}, \"b\": 1}",
            ),
            ("{\"a\":1,\"a\":2}", "{\"a\": 2}"),
            (
                "{\"\u{10000}\":1,\"\u{e000}\":2,\"B\":3,\"a\":4}",
                r#"{"B": 3, "a": 4, "\ue000": 2, "\ud800\udc00": 1}"#,
            ),
            (
                "\"\\u00e9é\\/\\n\\u0001\\u007f\"",
                r#""\u00e9\u00e9/\n\u0001\u007f""#,
            ),
            (
                "123456789012345678901234567890",
                "123456789012345678901234567890",
            ),
            ("[-0, -0.0, 0.0]", "[0, -0.0, 0.0]"),
            (
                "[1.0, 1.50, 1e3, 1E+2, 100e-2]",
                "[1.0, 1.5, 1000.0, 100.0, 1.0]",
            ),
            (
                "[1e15, 1e16, 123456789012345680.0]",
                "[1000000000000000.0, 1e+16, 1.2345678901234568e+17]",
            ),
            (
                "[0.0001, 0.00001, 1.5e-7, 1e100]",
                "[0.0001, 1e-05, 1.5e-07, 1e+100]",
            ),
            (
                "[1658244675791227.25, 8.5e15, 9007199254740994.0]",
                "[1658244675791227.2, 8500000000000000.0, 9007199254740994.0]",
            ),
            (
                "[5e-324, 1.7976931348623157e308, -2.5e-5]",
                "[5e-324, 1.7976931348623157e+308, -2.5e-05]",
            ),
            (
                "[NaN, Infinity, -Infinity, 1e400, -1e400]",
                "[NaN, Infinity, -Infinity, Infinity, -Infinity]",
            ),
        ];
        for (text, expected) in table {
            let mut out = Vec::new();
            Value::read(text.as_bytes()).unwrap().write(&mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn invalid_json() {
        let bad = [
            "",
            "nul",
            "[",
            "[1",
            "[1,]",
            "{\"a\"}",
            "{a:1}",
            "{\"a\":1,}",
            "01",
            "-",
            "1.",
            "1.e3",
            "1e",
            ".5",
            "+1",
            "1 2",
            "'a'",
            "\"",
            "nan",
            "1.5.2",
        ];
        for text in bad {
            assert!(Value::read(text.as_bytes()).is_err(), "{text}");
        }
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Value::read(nested(Value::DEPTH_MAX).as_bytes()).is_ok());
        assert!(Value::read(nested(Value::DEPTH_MAX + 1).as_bytes()).is_err());
        assert!(Value::read("[".repeat(1_000_000).as_bytes()).is_err());
    }
}
