//! JSON that is searched, not parsed into values: values stay text. Of two equal keys the last counts.

use std::borrow::Cow;
use std::fmt;
use std::io;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::ser::{Formatter, Serializer};
use serde_json::value::RawValue;
use windlass_engine::BODY_READ_MAX;

/// How deep converted JSON may be nested, the outermost value included. This code does not recurse, but the next reader
/// may, and was written for its own protocol's depth.
pub const DEPTH_MAX: usize = 128;

/// The text is not of the expected kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unexpected;

/// The text's only value, without surrounding blanks.
pub fn value(text: &[u8]) -> Option<&RawValue> {
    let text = std::str::from_utf8(text).ok()?;
    if is_too_deep(text, 0, DEPTH_MAX) {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// Calls `each` for every member of an object, in order.
///
/// # Errors
///
/// The value is not an object, or `each` failed.
pub fn members<'a>(
    object: &'a RawValue,
    each: impl FnMut(&str, &'a RawValue) -> Result<(), Unexpected>,
) -> Result<(), Unexpected> {
    serde_json::Deserializer::from_str(object.get())
        .deserialize_map(Members(each))
        .map_err(|_| Unexpected)
}

/// The item of a list with one item.
pub fn only(list: &RawValue) -> Option<&RawValue> {
    serde_json::from_str(list.get())
        .ok()
        .map(|[item]: [&RawValue; 1]| item)
}

/// The items of a list of two.
pub fn pair(list: &RawValue) -> Option<[&RawValue; 2]> {
    serde_json::from_str(list.get()).ok()
}

/// The content of a string. `None` for any other value, and for half a surrogate pair, which is not text.
pub fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str(value.get())
        .ok()
        .map(|Text(text)| text)
}

/// The value at a JSON pointer (RFC 6901).
pub fn at<'a>(value: &'a RawValue, pointer: &str) -> Option<&'a RawValue> {
    let mut at = value;
    for token in tokens(pointer) {
        let mut found = None;
        if is_list(at) {
            let items: Vec<&RawValue> = serde_json::from_str(at.get()).ok()?;
            found = items.get(token.parse::<usize>().ok()?).copied();
        } else {
            members(at, |name, value| {
                found = if name == token { Some(value) } else { found };
                Ok(())
            })
            .ok()?;
        }
        at = found?;
    }
    Some(at)
}

/// What a hidden value is replaced with.
pub const HIDDEN: &str = "***";

/// Tokens of a JSON pointer (RFC 6901).
pub fn tokens(pointer: &str) -> Vec<String> {
    let unescaped = |token: &str| token.replace("~1", "/").replace("~0", "~");
    pointer.split('/').skip(1).map(unescaped).collect()
}

/// Appends a value in which everything is replaced that stands where one of the paths ends. The token `*` stands for every
/// member of an object and every item of a list. A path that goes on inside of a
/// string hides all of it, because the string may be JSON of its own.
pub fn put_hidden(value: &RawValue, paths: &[&[String]], out: &mut String) {
    let text = value.get();
    let kind = text.as_bytes().first();
    let is_string = kind == Some(&b'"');
    if paths.is_empty() {
        out.push_str(text);
    } else if is_string || paths.iter().any(|path| path.is_empty()) {
        out.extend(["\"", HIDDEN, "\""]);
    } else if kind == Some(&b'[') {
        let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
        out.push('[');
        for (n, item) in items.into_iter().enumerate() {
            out.push_str(if n > 0 { "," } else { "" });
            put_hidden(item, &inside(paths, &n.to_string()), out);
        }
        out.push(']');
    } else if kind == Some(&b'{') {
        out.push('{');
        let mut between = "";
        // The value was parsed before, so this reads all members.
        let _ = members(value, |name, member| {
            out.push_str(between);
            between = ",";
            out.push_str(&serde_json::to_string(name).map_err(|_| Unexpected)?);
            out.push(':');
            put_hidden(member, &inside(paths, name), out);
            Ok(())
        });
        out.push('}');
    } else {
        out.push_str(text);
    }
}

/// What is left of paths inside of a member or an item.
fn inside<'p>(paths: &[&'p [String]], name: &str) -> Vec<&'p [String]> {
    let rest = |path: &&'p [String]| {
        let (token, rest) = path.split_first()?;
        (token == "*" || token == name).then_some(rest)
    };
    paths.iter().filter_map(rest).collect()
}

/// What stands at a JSON pointer in a text, as a key: the content of a string, or a number or a truth value as written. Of a
/// text that is longer than [`BODY_READ_MAX`] bytes it must stand before that.
pub fn key(body: &[u8], pointer: &str) -> Option<Vec<u8>> {
    let found = leaf(body, pointer)?;
    match found.get().as_bytes().first()? {
        b'"' => Some(text(found)?.into_owned().into_bytes()),
        b'{' | b'[' | b'n' => None,
        _ => Some(found.get().into()),
    }
}

/// The content of a string at a JSON pointer in a text, as [`key`] finds it; nothing if there is no string.
pub fn text_at<'a>(body: &'a [u8], pointer: &str) -> Cow<'a, [u8]> {
    match leaf(body, pointer).and_then(text) {
        Some(Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
        Some(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
        None => Cow::Borrowed(&[]),
    }
}

fn leaf<'a>(body: &'a [u8], pointer: &str) -> Option<&'a RawValue> {
    match body
        .get(..BODY_READ_MAX)
        .filter(|_| body.len() > BODY_READ_MAX)
    {
        Some(begin) => early(begin, pointer),
        None => at(value(body)?, pointer),
    }
}

/// The value at a JSON pointer in the beginning of a text. If an object has a name twice, the first counts.
fn early<'a>(begin: &'a [u8], pointer: &str) -> Option<&'a RawValue> {
    let tokens = tokens(pointer);
    let mut found = None;
    // It ends with an error, because the rest is not read.
    let _ = Walk {
        tokens: &tokens,
        found: &mut found,
    }
    .deserialize(&mut serde_json::Deserializer::from_slice(begin));
    found
}

/// Walks along a pointer, and stops where it ends.
struct Walk<'t, 'f, 'a> {
    tokens: &'t [String],
    found: &'f mut Option<&'a RawValue>,
}

impl<'a> DeserializeSeed<'a> for Walk<'_, '_, 'a> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'a>>(self, from: D) -> Result<(), D::Error> {
        if self.tokens.is_empty() {
            *self.found = Some(<&RawValue>::deserialize(from)?);
            return Ok(());
        }
        from.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Walk<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        let Some((token, tokens)) = self.tokens.split_first() else {
            return Ok(());
        };
        while let Some(Text(name)) = map.next_key()? {
            if name == **token {
                map.next_value_seed(Walk {
                    tokens,
                    found: self.found,
                })?;
                break;
            }
            map.next_value::<IgnoredAny>()?;
        }
        Err(M::Error::custom("the rest is not read"))
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut list: S) -> Result<(), S::Error> {
        let Some((token, tokens)) = self.tokens.split_first() else {
            return Ok(());
        };
        for _ in 0..token.parse().unwrap_or(usize::MAX) {
            if list.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        list.next_element_seed(Walk {
            tokens,
            found: self.found,
        })?;
        Err(S::Error::custom("the rest is not read"))
    }
}

/// Whether a value is a list.
pub fn is_list(value: &RawValue) -> bool {
    value.get().starts_with('[')
}

/// Whether a value is an object.
pub fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

/// Appends a string in quotes, with only the escapes that JSON requires.
pub fn quote(text: &str, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}

/// Appends a string in quotes as Python does, in ASCII only.
pub fn quote_ascii(text: &str, out: &mut Vec<u8>) {
    // As above.
    let _ = serde::Serialize::serialize(text, &mut Serializer::with_formatter(out, Ascii));
}

/// A string, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Visits the members of an object, in order. Where `null` is allowed, it has none.
#[derive(Debug)]
pub struct Members<F>(pub F);

impl<'de, F: FnMut(&str, &'de RawValue) -> Result<(), Unexpected>> Visitor<'de> for Members<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<(), M::Error> {
        while let Some((Text(key), value)) = map.next_entry::<_, &'de RawValue>()? {
            (self.0)(&key, value).map_err(|_| M::Error::custom("unexpected"))?;
        }
        Ok(())
    }
}

struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(|each| !matches!(each, ' '..='~')) {
            let (plain, other) = rest.split_at(at);
            out.write_all(plain.as_bytes())?;
            let mut chars = other.chars();
            for unit in chars
                .next()
                .into_iter()
                .flat_map(|each| each.encode_utf16(&mut [0; 2]).to_vec())
            {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = chars.as_str();
        }
        out.write_all(rest.as_bytes())
    }
}

/// Whether a value at depth `outside` is nested deeper than `depth_max`.
pub fn is_too_deep(value: &str, outside: usize, depth_max: usize) -> bool {
    // A level takes at least one byte.
    if value.len() + outside <= depth_max {
        return false;
    }
    let (mut depth, mut deepest) = (outside, outside);
    let mut rest = value.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => rest = rest.get(string_end(rest)..).unwrap_or_default(),
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest > depth_max
}

/// The end of a string, behind its closing quote. `rest` begins behind the opening quote.
pub fn string_end(rest: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'"', b'\\', rest.get(at..).unwrap_or_default()) {
        at += found;
        match rest.get(at) {
            Some(b'\\') => at += 2,
            _ => return at + 1,
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        value(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_key_is_found_at_a_pointer() {
        let body = br#"[{"a":{"b/c":"x","n":17,"t":true,"o":{},"z":null,"d":1,"d":2}},["y"]]"#;
        let table = [
            ("/0/a/b~1c", Some("x")),
            ("/0/a/n", Some("17")),
            ("/0/a/t", Some("true")),
            ("/0/a/d", Some("2")),
            ("/1/0", Some("y")),
            ("/0/a/o", None),
            ("/0/a/z", None),
            ("/0/a", None),
            ("/0/a/n/more", None),
            ("/2", None),
            ("/x", None),
            ("", None),
        ];
        for (pointer, expected) in table {
            assert_eq!(
                key(body, pointer),
                expected.map(|key| key.as_bytes().to_vec()),
                "{pointer}"
            );
        }
        assert_eq!(key(b"no json", "/0"), None);
        assert_eq!(key("[".repeat(1 << 20).as_bytes(), "/0"), None);
        assert_eq!(key(br#""whole""#, ""), Some(b"whole".to_vec()));
    }

    #[test]
    fn values() {
        for (text, expected) in [
            (" [1, 2]\n", "[1, 2]"),
            ("1e400", "1e400"),
            ("\"\\ud800\"", "\"\\ud800\""),
        ] {
            assert_eq!(raw(text).get(), expected);
        }
        let bad: [&[u8]; 12] = [
            b"",
            b" ",
            b"[",
            b"[1,]",
            b"{\"a\"}",
            b"01",
            b"NaN",
            b"1 2",
            b"\xff",
            b"\"\xff\"",
            b"\"",
            b"\xef\xbb\xbf1",
        ];
        for text in bad {
            assert!(value(text).is_none(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn depth() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(value(nested(DEPTH_MAX).as_bytes()).is_some());
        assert!(value(nested(DEPTH_MAX + 1).as_bytes()).is_none());
        assert!(value("[".repeat(1_000_000).as_bytes()).is_none());
        assert!(
            value(format!("[{}1]", "[],".repeat(1_000)).as_bytes()).is_some(),
            "side by side"
        );
        assert!(
            value(format!("\"\\\"{}\"", "[".repeat(1_000)).as_bytes()).is_some(),
            "in a string"
        );
    }

    #[test]
    fn objects() {
        let listed = |text: &'static str| {
            let mut found = Vec::new();
            let end = members(raw(text), |key, value| {
                found.push(format!("{key}={}", value.get()));
                Ok(())
            });
            end.map(|()| found.join(" "))
        };
        assert_eq!(listed("{}").as_deref(), Ok(""));
        assert_eq!(
            listed(r#"{"a":1,"\u0062": [1.0 ,2], "a":"x"}"#).as_deref(),
            Ok("a=1 b=[1.0 ,2] a=\"x\"")
        );
        for text in ["[]", "1", "null", r#"{"\ud800":1}"#] {
            assert_eq!(listed(text), Err(Unexpected), "{text}");
        }
    }

    #[test]
    fn hidden_values() {
        let hidden = |text: &'static str, pointers: &[&str]| {
            let paths: Vec<Vec<String>> = pointers.iter().map(|it| tokens(it)).collect();
            let paths: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
            let mut out = String::new();
            put_hidden(raw(text), &paths, &mut out);
            out
        };
        let card = r#"[{"card": "4111", "to": 1.0}, 7]"#;
        let table: [(&str, &[&str], &str); 12] = [
            (card, &["/0/card"], r#"[{"card":"***","to":1.0},7]"#),
            (card, &["/0"], r#"["***",7]"#),
            (
                card,
                &["/0/card", "/1"],
                r#"[{"card":"***","to":1.0},"***"]"#,
            ),
            (card, &[""], "\"***\""),
            (card, &["/*/card"], r#"[{"card":"***","to":1.0},7]"#),
            (card, &["/0/*"], r#"[{"card":"***","to":"***"},7]"#),
            (
                card,
                &["/2", "/0/other", "/1/card"],
                r#"[{"card":"4111","to":1.0},7]"#,
            ),
            // Of two members of a name none is seen, however a reader treats them.
            (
                r#"{"a":1,"a":2,"\u0061":3}"#,
                &["/a"],
                r#"{"a":"***","a":"***","a":"***"}"#,
            ),
            (
                r#"{"a/b~":{"":1}}"#,
                &["/a~1b~0/"],
                r#"{"a/b~":{"":"***"}}"#,
            ),
            // A string may be JSON of its own, of which nobody looks at the members.
            (r#"["{\"card\":1}"]"#, &["/0/card"], r#"["***"]"#),
            (
                r#"{"a":null,"b":[]}"#,
                &["/a/x", "/b/0"],
                r#"{"a":null,"b":[]}"#,
            ),
            (r#"{"a":{}}"#, &["/a"], r#"{"a":"***"}"#),
        ];
        for (text, pointers, expected) in table {
            assert_eq!(hidden(text, pointers), expected, "{text} {pointers:?}");
        }
    }

    #[test]
    fn lists() {
        assert_eq!(only(raw("[ 1.0 ]")).map(RawValue::get), Some("1.0"));
        for text in ["[]", "[1,2]", "1", "{\"a\":1}"] {
            assert!(only(raw(text)).is_none(), "{text}");
        }
        assert_eq!(
            pair(raw("[1, [2]]")).map(|pair| pair.map(RawValue::get)),
            Some(["1", "[2]"])
        );
        for text in ["[]", "[1]", "[1,2,3]", "\"ab\""] {
            assert!(pair(raw(text)).is_none(), "{text}");
        }
    }

    #[test]
    fn texts() {
        for (json, expected) in [
            (r#""""#, ""),
            (r#""a""#, "a"),
            (r#""\u00e9\n\ud83d\ude00""#, "é\n😀"),
        ] {
            assert_eq!(text(raw(json)).as_deref(), Some(expected));
        }
        for json in ["1", "null", "[\"a\"]", r#""\ud800""#] {
            assert_eq!(text(raw(json)), None, "{json}");
        }
    }

    #[test]
    fn quotes() {
        let table = [
            ("", r#""""#, r#""""#),
            (
                "a\"\\/\n\u{1}",
                r#""a\"\\/\n\u0001""#,
                r#""a\"\\/\n\u0001""#,
            ),
            (
                "\u{7f}é😀~ z",
                "\"\u{7f}é😀~ z\"",
                r#""\u007f\u00e9\ud83d\ude00~ z""#,
            ),
        ];
        for (text, plain, ascii) in table {
            let (mut out, mut out_ascii) = (Vec::new(), Vec::new());
            quote(text, &mut out);
            quote_ascii(text, &mut out_ascii);
            assert_eq!(
                (String::from_utf8(out), String::from_utf8(out_ascii)),
                (Ok(plain.into()), Ok(ascii.into()))
            );
        }
    }

    #[test]
    fn a_key_in_a_long_text_stands_in_its_beginning() {
        let long = "x".repeat(BODY_READ_MAX);
        let text = format!(
            r#"{{"skip":[{{"a":1}},"é"],"args":[7,{{"a/b":"ke\ty"}},"{long}"],"late":"k"}}"#
        );
        let table: [(&str, Option<&[u8]>); 6] = [
            ("/args/1/a~1b", Some(b"ke\ty")),
            ("/args/0", Some(b"7")),
            ("/skip/0/a", Some(b"1")),
            ("/args/2", None),
            ("/late", None),
            ("/args/0/a", None),
        ];
        for (pointer, expected) in table {
            assert_eq!(
                key(text.as_bytes(), pointer).as_deref(),
                expected,
                "{pointer}"
            );
        }
        assert_eq!(text_at(text.as_bytes(), "/args/1/a~1b"), &b"ke\ty"[..]);
        assert_eq!(
            (&*text_at(b"[7]", "/0"), &*text_at(br#"["a|b"]"#, "/0")),
            (&b""[..], &b"a|b"[..])
        );
        // No value is read deeper than conversions allow.
        let deep = [vec![b'['; 1 << 12], long.into_bytes()].concat();
        assert_eq!(key(&deep, "/0/0"), None);
    }
}
