//! Shared parts of FWP's JSON: objects with case-insensitive keys, and values that keep their spelling.
//!
//! Rules: those of Go's `encoding/json`, which every deployed server uses. The last of two equal keys counts, `null`
//! means absent, and unknown keys are skipped.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use windlass_bridge::json::Members;
pub(crate) use windlass_bridge::json::{
    Unexpected, is_list as is_array, is_object, is_too_deep, quote as escape_into, string_end,
};

/// Levels of nesting, the outermost value included. Go's own limit.
pub(crate) const DEPTH_MAX: usize = 10_000;

/// Calls `each` for every key of an object. `null` counts as an empty object.
pub(crate) fn for_each<'a>(
    text: &'a str,
    each: impl FnMut(&str, &'a RawValue) -> Result<(), Unexpected>,
) -> Result<(), Unexpected> {
    let mut from = serde_json::Deserializer::from_str(text);
    from.deserialize_any(Members(each))
        .map_err(|_| Unexpected)?;
    from.end().map_err(|_| Unexpected)
}

/// The values of these keys of an object, in any case. A missing value, or `null`, is `None`.
pub(crate) fn members<'a, const N: usize>(
    text: &'a str,
    names: &[&str; N],
) -> Result<[Option<&'a RawValue>; N], Unexpected> {
    let mut from = serde_json::Deserializer::from_str(text);
    let found = Wanted(names)
        .deserialize(&mut from)
        .map_err(|_| Unexpected)?;
    from.end().map_err(|_| Unexpected)?;
    Ok(found)
}

/// Calls `each` for every object of a list, with the values of these keys. `null` is an empty list.
pub(crate) fn elements<'a, const N: usize>(
    text: &'a str,
    names: &[&str; N],
    each: impl FnMut([Option<&'a RawValue>; N]) -> Result<(), Unexpected>,
) -> Result<(), Unexpected> {
    let mut from = serde_json::Deserializer::from_str(text);
    from.deserialize_any(Elements { names, each })
        .map_err(|_| Unexpected)?;
    from.end().map_err(|_| Unexpected)
}

struct Wanted<'n, const N: usize>(&'n [&'n str; N]);

impl<'de, const N: usize> DeserializeSeed<'de> for Wanted<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        let mut found = [None; N];
        let each = |key: &str, value: &'de RawValue| {
            if let Some(place) = place_of(key, self.0).and_then(|index| found.get_mut(index))
                && value.get() != "null"
            {
                *place = Some(value);
            }
            Ok(())
        };
        from.deserialize_any(Members(each))?;
        Ok(found)
    }
}

struct Elements<'n, const N: usize, F> {
    names: &'n [&'n str; N],
    each: F,
}

impl<'de, const N: usize, F> Visitor<'de> for Elements<'_, N, F>
where
    F: FnMut([Option<&'de RawValue>; N]) -> Result<(), Unexpected>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(mut self, mut seq: S) -> Result<(), S::Error> {
        while let Some(found) = seq.next_element_seed(Wanted(self.names))? {
            (self.each)(found).map_err(|_| S::Error::custom("unexpected"))?;
        }
        Ok(())
    }
}

/// The index of a key among the names.
pub(crate) fn place_of(key: &str, names: &[&str]) -> Option<usize> {
    let exact = names.iter().position(|name| *name == key);
    exact.or_else(|| names.iter().position(|name| name.eq_ignore_ascii_case(key)))
}

/// A string, borrowed if it has no escapes.
pub(crate) fn text(value: &RawValue) -> Result<Cow<'_, str>, Unexpected> {
    let inner = value
        .get()
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .ok_or(Unexpected)?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Ok(Cow::Borrowed(inner));
    }
    serde_json::from_str(value.get())
        .map(Cow::Owned)
        .map_err(|_| Unexpected)
}

/// A string; empty if it is absent.
pub(crate) fn text_or_empty(value: Option<&RawValue>) -> Result<String, Unexpected> {
    value.map_or(Ok(String::new()), |value| text(value).map(String::from))
}

/// A 64-bit integer.
pub(crate) fn int(value: &RawValue) -> Result<i64, Unexpected> {
    value.get().parse().map_err(|_| Unexpected)
}

/// A finite number.
pub(crate) fn number(value: &RawValue) -> Result<f64, Unexpected> {
    let digits = value
        .get()
        .bytes()
        .next()
        .is_some_and(|byte| byte == b'-' || byte.is_ascii_digit());
    let number: f64 = value.get().parse().map_err(|_| Unexpected)?;
    if digits && number.is_finite() {
        Ok(number)
    } else {
        Err(Unexpected)
    }
}

/// The first strings of a list, and the length of the whole list. As in Go, `null` in it is an empty string.
pub(crate) fn texts(value: &RawValue, keep_max: usize) -> Result<(Vec<String>, usize), Unexpected> {
    struct Texts(usize);
    impl<'de> Visitor<'de> for Texts {
        type Value = (Vec<String>, usize);

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of strings")
        }

        fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Self::Value, S::Error> {
            let (mut kept, mut count) = (Vec::new(), 0);
            while let Some(text) = seq.next_element::<Option<Cow<'de, str>>>()? {
                count += 1;
                if kept.len() < self.0 {
                    kept.push(text.unwrap_or_default().into_owned());
                }
            }
            Ok((kept, count))
        }
    }
    serde_json::Deserializer::from_str(value.get())
        .deserialize_seq(Texts(keep_max))
        .map_err(|_| Unexpected)
}

/// Appends a value without the blanks between its parts. Strings and numbers keep their spelling.
pub(crate) fn compact_into(value: &str, out: &mut Vec<u8>) {
    let bytes = value.as_bytes();
    if memchr::memchr3(b' ', b'\n', b'\t', bytes).is_none()
        && memchr::memchr(b'\r', bytes).is_none()
    {
        return out.extend_from_slice(bytes);
    }
    let mut rest = bytes;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b' ' | b'\n' | b'\t' | b'\r' => {}
            b'"' => {
                let (string, after) = rest.split_at(string_end(rest));
                out.push(b'"');
                out.extend_from_slice(string);
                rest = after;
            }
            _ => out.push(*byte),
        }
    }
}

/// The element at this offset, or behind the comma there, and its end.
pub(crate) fn element(text: &str, from: usize) -> Option<(&str, usize)> {
    let rest = text.get(from..)?;
    let value = rest.trim_start_matches([',', ' ', '\t', '\r', '\n']);
    let begin = text.len() - value.len();
    let bytes = value_end(value.as_bytes());
    let value = value.get(..bytes).filter(|value| !value.is_empty())?;
    Some((value, begin + bytes))
}

/// Bytes of the value at the front.
pub(crate) fn value_end(text: &[u8]) -> usize {
    let mut at = 0;
    let mut depth = 0_usize;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at += string_end(text.get(at + 1..).unwrap_or_default()),
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth == 0 => return at,
            b']' | b'}' => depth -= 1,
            b',' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
        if depth == 0 && matches!(byte, b'"' | b']' | b'}') {
            return at;
        }
    }
    text.len()
}

/// Appends the text between the quotes of a string, with no more escapes than JSON requires.
pub(crate) fn escape_inner(text: &str, out: &mut Vec<u8>) {
    let before = out.len();
    escape_into(text, out);
    out.pop();
    out.remove(before);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_values() {
        let table = [
            ("1,2", 1),
            ("\"a,\\\"]\",2", 7),
            ("[1,[2,\"]\"],{}],3", 14),
            ("{\"a\":{\"b\":[]}}", 14),
            ("true}", 4),
            ("null", 4),
            ("\"\"", 2),
        ];
        for (text, end) in table {
            assert_eq!(value_end(text.as_bytes()), end, "{text}");
        }
    }

    #[test]
    fn compacting_removes_blanks_only() {
        let table = [
            ("[1,2]", "[1,2]"),
            ("[ 1 ,\t2.0 ]", "[1,2.0]"),
            ("{ \"a b\" : \" \\\" \" }", "{\"a b\":\" \\\" \"}"),
            (
                "[12345678901234567890, 1e400, \"<\\/>\"]",
                "[12345678901234567890,1e400,\"<\\/>\"]",
            ),
        ];
        for (text, expected) in table {
            let mut out = Vec::new();
            compact_into(text, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn keys_match_in_any_case_and_the_last_counts() {
        let names = ["jid", "at"];
        let found = |text: &'static str| {
            members(text, &names).map(|found| found.map(|value| value.map_or("-", RawValue::get)))
        };
        assert_eq!(found("null"), Ok(["-", "-"]));
        assert_eq!(found("{}"), Ok(["-", "-"]));
        assert_eq!(found(r#"{"JID":1,"jid":2,"x":[{}]}"#), Ok(["2", "-"]));
        assert_eq!(
            found(r#"{"jid":1,"Jid":null,"\u0061t": "x" }"#),
            Ok(["1", "\"x\""])
        );
        for bad in ["", "[]", "1", "{", "{}x", "{\"a\":}", "{\"a\":1,}"] {
            assert_eq!(found(bad), Err(Unexpected), "{bad}");
        }
    }

    #[test]
    fn strings_have_as_few_escapes_as_possible() {
        let mut out = Vec::new();
        escape_into("a\"\\\n\u{1}</é\u{1f}", &mut out);
        assert_eq!(
            String::from_utf8_lossy(&out),
            "\"a\\\"\\\\\\n\\u0001</é\\u001f\""
        );
        let back: String = serde_json::from_slice(&out).unwrap();
        assert_eq!(back, "a\"\\\n\u{1}</é\u{1f}");
    }

    #[test]
    fn depth_is_counted() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(!is_too_deep(&nested(DEPTH_MAX - 1), 1, DEPTH_MAX));
        assert!(is_too_deep(&nested(DEPTH_MAX), 1, DEPTH_MAX));
        let flat = format!("[{}\"[[[\"]", "[],".repeat(DEPTH_MAX));
        assert!(!is_too_deep(&flat, 1, DEPTH_MAX));
    }
}
