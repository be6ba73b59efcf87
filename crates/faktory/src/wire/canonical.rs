//! The canonical form of JSON: equal values have the same text, however clients spell them.
//!
//! Rules: blanks are dropped, strings have as few escapes as JSON allows, and numbers are compared by value, exactly:
//! no float rounds them. Objects are sorted by key, and the last of two equal keys counts, as in every client's
//! library. Numbers are written as in ECMAScript (`1`, `1.5`, `1e+21`), but with all their digits. So the text that
//! most clients send is its own canonical form.
//!
//! Two passes: the first writes everything in its canonical spelling and keeps the order. The second, which most values
//! do not need, sorts the members of objects. The time is proportional to the length of the text, but for the sorting,
//! at any depth of nesting. The memory is a few times the length; the caller limits it.

use std::borrow::Cow;
use std::ops::Range;

use super::json::{escape_inner, string_end};

/// Largest numbers of digits before the point, and of zeros behind it, of a number without an exponent. As in
/// ECMAScript.
const PLAIN_DIGITS: i64 = 21;
const PLAIN_FRACTION_ZEROS: i64 = 6;

/// Digits that an exponent may have. A number with more of them keeps its spelling.
const EXPONENT_DIGITS_MAX: usize = 17;

/// The canonical form of a value. The value must be valid JSON; the result for other text is unspecified, but never a
/// panic.
pub fn canonical(value: &str) -> Vec<u8> {
    let mut form = Form {
        out: Vec::with_capacity(value.len()),
        ..Form::default()
    };
    form.write(value.as_bytes());
    if form.unsorted.is_empty() {
        form.out
    } else {
        form.in_order()
    }
}

/// The position of an object's member in the text.
#[derive(Debug, Clone, Copy)]
struct Member {
    start: usize,
    key_end: usize,
    end: usize,
}

/// An object whose members are not in order.
#[derive(Debug)]
struct Unsorted {
    /// Includes the brackets.
    span: Range<usize>,
    /// Its sorted members: a range of [`Form::ordered`].
    members: Range<usize>,
}

/// An open array or object.
#[derive(Debug, Clone, Copy)]
enum Open {
    Array,
    Object {
        start: usize,
        /// Index of its first member in [`Form::members`].
        first: usize,
        /// The next string is a key.
        at_key: bool,
    },
}

#[derive(Debug, Default)]
struct Form {
    out: Vec<u8>,
    open: Vec<Open>,
    /// Members of the open objects.
    members: Vec<Member>,
    ordered: Vec<Member>,
    unsorted: Vec<Unsorted>,
}

impl Form {
    /// The first pass.
    fn write(&mut self, text: &[u8]) {
        let mut rest = text;
        while let Some((byte, after)) = rest.split_first() {
            let mut end = 1;
            match byte {
                b' ' | b'\n' | b'\t' | b'\r' => {}
                b'"' => {
                    end += string_end(after);
                    self.string(rest.get(1..end - 1).unwrap_or_default());
                }
                b'{' => {
                    self.open.push(Open::Object {
                        start: self.out.len(),
                        first: self.members.len(),
                        at_key: true,
                    });
                    self.out.push(b'{');
                }
                b'[' => {
                    self.open.push(Open::Array);
                    self.out.push(b'[');
                }
                b'}' | b']' => self.close(*byte),
                b',' => {
                    self.end_member();
                    if let Some(Open::Object { at_key, .. }) = self.open.last_mut() {
                        *at_key = true;
                    }
                    self.out.push(b',');
                }
                b'-' | b'0'..=b'9' => {
                    end = rest
                        .iter()
                        .position(|byte| !is_of_number(*byte))
                        .unwrap_or(rest.len());
                    self.out
                        .extend_from_slice(&number(rest.get(..end).unwrap_or_default()));
                }
                // A colon, or a letter of `true`, `false` or `null`.
                _ => self.out.push(*byte),
            }
            rest = rest.get(end..).unwrap_or_default();
        }
    }

    fn string(&mut self, inner: &[u8]) {
        let start = self.out.len();
        self.out.push(b'"');
        string_inner(inner, &mut self.out);
        self.out.push(b'"');
        if let Some(Open::Object {
            at_key: at_key @ true,
            ..
        }) = self.open.last_mut()
        {
            *at_key = false;
            self.members.push(Member {
                start,
                key_end: self.out.len(),
                end: self.out.len(),
            });
        }
    }

    /// Ends a value, and the member that it belongs to.
    fn end_member(&mut self) {
        let end = self.out.len();
        if let (Some(Open::Object { .. }), Some(member)) =
            (self.open.last(), self.members.last_mut())
        {
            member.end = end;
        }
    }

    fn close(&mut self, bracket: u8) {
        let Some(Open::Object { start, first, .. }) = self.open.last().copied() else {
            self.open.pop();
            return self.out.push(bracket);
        };
        // In an empty object the last member belongs to another object.
        if self.members.len() > first {
            self.end_member();
        }
        self.open.pop();
        self.out.push(bracket);
        let out = &self.out;
        let key = |member: &Member| out.get(member.start..member.key_end).unwrap_or_default();
        let own = self.members.get_mut(first..).unwrap_or_default();
        if !own.is_sorted_by(|one, next| key(one) < key(next)) {
            // The sort is stable: the last of equal keys remains last.
            own.sort_by(|one, other| key(one).cmp(key(other)));
            let from = self.ordered.len();
            let nexts = own.iter().skip(1).map(Some).chain([None]);
            let last = own
                .iter()
                .zip(nexts)
                .filter(|(member, next)| next.is_none_or(|next| key(next) != key(member)));
            self.ordered.extend(last.map(|(member, _)| *member));
            self.unsorted.push(Unsorted {
                span: start..self.out.len(),
                members: from..self.ordered.len(),
            });
        }
        self.members.truncate(first);
    }

    /// The second pass.
    fn in_order(mut self) -> Vec<u8> {
        self.unsorted
            .sort_unstable_by_key(|object| object.span.start);
        let mut sorted = Vec::with_capacity(self.out.len());
        // A stack of the parts that remain.
        let mut todo = vec![Todo::Part(0..self.out.len())];
        while let Some(next) = todo.pop() {
            let Todo::Part(part) = next else {
                sorted.push(b',');
                continue;
            };
            let at = self
                .unsorted
                .partition_point(|object| object.span.start < part.start);
            let Some(Unsorted { span, members }) =
                self.unsorted.get(at).filter(|it| it.span.end <= part.end)
            else {
                sorted.extend_from_slice(self.out.get(part).unwrap_or_default());
                continue;
            };
            // Write up to the opening bracket; the remaining part begins with the closing one.
            sorted.extend_from_slice(self.out.get(part.start..=span.start).unwrap_or_default());
            todo.push(Todo::Part(span.end - 1..part.end));
            let members = self.ordered.get(members.clone()).unwrap_or_default();
            for (place, member) in members.iter().enumerate().rev() {
                todo.push(Todo::Part(member.start..member.end));
                todo.extend((place > 0).then_some(Todo::Comma));
            }
        }
        sorted
    }
}

enum Todo {
    Part(Range<usize>),
    Comma,
}

// ---- strings -------------------------------------------------------------------------------------------------------

/// The text between the quotes.
fn string_inner(mut inner: &[u8], out: &mut Vec<u8>) {
    while let Some(at) = memchr::memchr(b'\\', inner) {
        let (plain, escape) = inner.split_at(at);
        out.extend_from_slice(plain);
        let (meant, bytes) = unescaped(escape);
        match meant {
            Meant::Char(char) => escape_inner(char.encode_utf8(&mut [0; 4]), out),
            // Half of a surrogate pair is not a character: keep it as an escape.
            Meant::Half(code) => out.extend_from_slice(format!("\\u{code:04x}").as_bytes()),
        }
        inner = escape.get(bytes..).unwrap_or_default();
    }
    out.extend_from_slice(inner);
}

enum Meant {
    Char(char),
    Half(u32),
}

/// The meaning of an escape at the front, and its length.
fn unescaped(escape: &[u8]) -> (Meant, usize) {
    let char = match escape.get(1) {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode(escape),
        Some(other) => char::from(*other),
        None => return (Meant::Char('\\'), 1),
    };
    (Meant::Char(char), 2)
}

/// `\u` and four digits, or a surrogate pair of two such escapes.
fn unicode(escape: &[u8]) -> (Meant, usize) {
    let digits = |at: usize| {
        let digits = escape.get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |code, digit| {
            Some(code << 4 | char::from(*digit).to_digit(16)?)
        })
    };
    let code = digits(0).unwrap_or(u32::from('\u{fffd}'));
    let low =
        digits(6).filter(|low| (0xd800..0xdc00).contains(&code) && (0xdc00..0xe000).contains(low));
    let both =
        low.and_then(|low| char::from_u32(0x1_0000 + (((code - 0xd800) << 10) | (low - 0xdc00))));
    match (both, char::from_u32(code)) {
        (Some(char), _) => (Meant::Char(char), 12),
        (None, Some(char)) => (Meant::Char(char), 6),
        (None, None) => (Meant::Half(code), 6),
    }
}

// ---- numbers -------------------------------------------------------------------------------------------------------

const fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
}

/// The canonical form of a number.
fn number(text: &[u8]) -> Cow<'_, [u8]> {
    let (sign, unsigned): (&[u8], _) = text
        .strip_prefix(b"-")
        .map_or((b"", text), |rest| (b"-", rest));
    let is_plain = unsigned.len() as i64 <= PLAIN_DIGITS && unsigned.iter().all(u8::is_ascii_digit);
    // The common case. The number 0 must have no sign.
    if is_plain && (sign.is_empty() || unsigned != b"0") {
        return Cow::Borrowed(text);
    }
    let mantissa_end = unsigned
        .iter()
        .position(|byte| matches!(byte, b'e' | b'E'))
        .unwrap_or(unsigned.len());
    let (mantissa, exponent) = unsigned.split_at(mantissa_end);
    let point = mantissa
        .iter()
        .position(|byte| *byte == b'.')
        .unwrap_or(mantissa.len());
    let (whole, fraction) = mantissa.split_at(point);
    let digits = [whole, fraction.strip_prefix(b".").unwrap_or_default()].concat();
    let leading = digits.iter().take_while(|digit| **digit == b'0').count();
    let trailing = digits
        .iter()
        .rev()
        .take_while(|digit| **digit == b'0')
        .count();
    let Some(significant) = digits
        .get(leading..digits.len() - trailing)
        .filter(|digits| !digits.is_empty())
    else {
        return Cow::Borrowed(b"0");
    };
    let Some(exponent) = exponent_of(exponent) else {
        return Cow::Borrowed(text);
    };
    // Position of the point, counted from the first significant digit.
    let point = exponent + (point as i64) - (leading as i64);
    let mut out = sign.to_vec();
    put_number(significant, point, &mut out);
    Cow::Owned(out)
}

/// `None` if it has too many digits.
fn exponent_of(text: &[u8]) -> Option<i64> {
    let Some((_, text)) = text.split_first() else {
        return Some(0);
    };
    let (sign, digits) = match text.split_first() {
        Some((b'-', digits)) => (-1, digits),
        Some((b'+', digits)) => (1, digits),
        _ => (1, text),
    };
    let leading = digits.iter().take_while(|digit| **digit == b'0').count();
    let digits = digits
        .get(leading..)
        .filter(|digits| digits.len() <= EXPONENT_DIGITS_MAX)?;
    Some(
        sign * digits.iter().fold(0, |value, digit| {
            value * 10 + i64::from(digit.wrapping_sub(b'0'))
        }),
    )
}

/// Writes digits that neither begin nor end with 0; `point` is the position of the point among them.
fn put_number(digits: &[u8], point: i64, out: &mut Vec<u8>) {
    let many = digits.len() as i64;
    let zeros = |count: i64| std::iter::repeat_n(b'0', usize::try_from(count).unwrap_or(0));
    let split = |at: i64| digits.split_at(usize::try_from(at).unwrap_or(0).min(digits.len()));
    if point > PLAIN_DIGITS || point <= -PLAIN_FRACTION_ZEROS {
        let (first, others) = split(1);
        out.extend_from_slice(first);
        out.extend((!others.is_empty()).then_some(b'.'));
        out.extend_from_slice(others);
        out.extend_from_slice(format!("e{:+}", point - 1).as_bytes());
    } else if point <= 0 {
        out.extend_from_slice(b"0.");
        out.extend(zeros(-point));
        out.extend_from_slice(digits);
    } else {
        let (whole, fraction) = split(point);
        out.extend_from_slice(whole);
        out.extend(zeros(point - many));
        out.extend((!fraction.is_empty()).then_some(b'.'));
        out.extend_from_slice(fraction);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> String {
        String::from_utf8(canonical(text)).unwrap()
    }

    #[test]
    fn spellings_of_one_value_have_one_form() {
        let table: [(&str, &[&str]); 17] = [
            ("[]", &["[ ]", " [\n]\t"]),
            (r#"["é"]"#, &[r#"["\u00e9"]"#, r#"[ "\u00E9" ]"#]),
            (r#"["a/b"]"#, &[r#"["a\/b"]"#, r#"["\u0061\u002fb"]"#]),
            (r#"["😀"]"#, &[r#"["\ud83d\ude00"]"#, r#"["\uD83D\uDE00"]"#]),
            (
                r#"["\"\\\n\t\b\f\r\u0001"]"#,
                &[r#"["\u0022\u005c\u000a\u0009\u0008\u000C\u000d\u0001"]"#],
            ),
            (r#"["<&>\u2028"]"#, &[r#"["\u003c\u0026\u003e\u2028"]"#]),
            (
                r#"["\ud800","\udc00a","\ud800\u0000"]"#,
                &[r#"["\uD800","\uDC00\u0061","\uD800\u0000"]"#],
            ),
            (
                r#"{"a":1,"b":[2]}"#,
                &[
                    r#"{"b":[2],"a":1}"#,
                    r#"{"b":0,"\u0061":0,"a":1.0,"b":[2]}"#,
                ],
            ),
            (
                r#"{"":{"x":{},"y":{"a":[],"z":0}},"b":1}"#,
                &[r#"{"b":1,"":{"y":{"z":0,"a":[]},"x":{}}}"#],
            ),
            (
                r#"[{"a":1,"b":2},{"c":3,"d":4}]"#,
                &[r#"[{"b":2,"a":1},{"d":4,"c":3}]"#],
            ),
            (
                "[1]",
                &[
                    "[1.0]",
                    "[1e0]",
                    "[1.000]",
                    "[10e-1]",
                    "[0.1E+1]",
                    "[0.01e2]",
                    "[1e-00000000000000000000]",
                ],
            ),
            (
                "[0]",
                &["[-0]", "[0.0]", "[-0.0e9]", "[0e99999999999999999999]"],
            ),
            ("[-1.5]", &["[-15e-1]", "[-1.50]", "[-0.15e1]"]),
            (
                "[100000000000000000000]",
                &["[1e20]", "[1e+20]", "[100000000000000000000.0]"],
            ),
            (
                "[1e+21]",
                &[
                    "[1E21]",
                    "[1000000000000000000000]",
                    "[1000000000000000000000.000]",
                ],
            ),
            ("[0.000001,1e-7]", &["[1e-6,0.0000001]"]),
            (
                "[1.234567890123456789012345e-300]",
                &["[1234567890123456789012345e-324]"],
            ),
        ];
        for (one, others) in table {
            // The left spelling is its own canonical form, except for characters that JSON requires to be escaped.
            let expected = form(one);
            assert_eq!(form(&expected), expected);
            for other in others {
                assert_eq!(form(other), expected, "{other}");
            }
        }
    }

    #[test]
    fn common_spellings_are_canonical() {
        for text in [
            r#"[1,"two",{"a":[true,false,null],"b":{}},-3,4.5,1e+21,12345678901234567890]"#,
            "[]",
            r#"["é/\"\\\n"]"#,
        ] {
            assert_eq!(form(text), text);
        }
    }

    #[test]
    fn different_values_differ() {
        let values = [
            "[]",
            "{}",
            "[[]]",
            "[{}]",
            "[null]",
            "[0]",
            "[1]",
            "[-1]",
            "[10]",
            "[1.5]",
            "[\"1\"]",
            "[true]",
            "[false]",
            "[9007199254740992]",
            "[9007199254740993]",
            "[12345678901234567890]",
            "[12345678901234567891]",
            "[0.1]",
            "[0.10000000000000001]",
            "[1e400]",
            "[1e401]",
            "[1e99999999999999999999]",
            "[1e99999999999999999998]",
            "[\"\"]",
            "[\"é\"]",
            "[\"e\u{301}\"]",
            "[\"\\\\u00e9\"]",
            "[\"\\ud800\"]",
            "[\"\\ud801\"]",
            "[1,2]",
            "[2,1]",
            "[12]",
            r#"{"a":1}"#,
            r#"{"a":2}"#,
            r#"{"A":1}"#,
            r#"{"a":1,"b":1}"#,
            r#"[{"a":1}]"#,
            r#"["a",1]"#,
        ];
        for (at, one) in values.iter().enumerate() {
            for other in values.iter().skip(at + 1) {
                assert_ne!(form(one), form(other), "{one} {other}");
            }
        }
    }

    /// A form that copied an object once for each level around it would take minutes.
    #[test]
    fn the_time_does_not_depend_on_depth() {
        let depth = 9_000;
        let text = r#"{"b":0,"a":"#.repeat(depth)
            + "\""
            + &"x".repeat(1 << 20)
            + "\""
            + &"}".repeat(depth);
        let sorted = r#"{"a":"#.repeat(depth)
            + "\""
            + &"x".repeat(1 << 20)
            + "\""
            + &r#","b":0}"#.repeat(depth);
        assert!(form(&text) == sorted);
    }

    #[test]
    fn invalid_text_does_not_panic() {
        for text in [
            "",
            "\"",
            "\"\\",
            "\"\\u12",
            "[\"\\ud800\\u",
            "}}]]",
            ",",
            "{,}",
            "{\"a\"",
            "-",
            "1e",
            ".",
            "-.e-",
            "{\"a\":}]",
        ] {
            drop(canonical(text));
        }
    }
}
