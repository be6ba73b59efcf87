//! Error texts for bad JSON, the same as those of deployed servers, which use Go's `encoding/json`.
//!
//! This runs after an error only, so it need not be fast. Go looks for syntax errors in the whole text first, then for
//! the first value of a wrong kind.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use super::json::{self, DEPTH_MAX, Unexpected};

/// The type into which Go decodes a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Type {
    Str,
    Int,
    /// Any elements.
    Slice,
    /// Elements that are strings.
    StrSlice,
    /// Any values, by strings.
    Map,
    Struct(&'static Struct),
    /// Elements of this struct.
    StructSlice(&'static Struct),
    Any,
}

/// A Go struct, as far as errors name it.
#[derive(Debug)]
pub(crate) struct Struct {
    /// Its name, without and with its package.
    pub(crate) names: (&'static str, &'static str),
    pub(crate) fields: &'static [(&'static str, Type)],
}

/// The failure in a job.
const FAILURE: Struct = Struct {
    names: ("Failure", "client.Failure"),
    fields: &[
        ("retry_count", Type::Int),
        ("remaining", Type::Int),
        ("failed_at", Type::Str),
        ("next_at", Type::Str),
        ("message", Type::Str),
        ("errtype", Type::Str),
        ("backtrace", Type::StrSlice),
    ],
};

/// A job.
pub(crate) const JOB: Struct = Struct {
    names: ("Job", "client.Job"),
    fields: &[
        ("jid", Type::Str),
        ("queue", Type::Str),
        ("jobtype", Type::Str),
        ("args", Type::Slice),
        ("created_at", Type::Str),
        ("enqueued_at", Type::Str),
        ("at", Type::Str),
        ("reserve_for", Type::Int),
        ("retry", Type::Int),
        ("backtrace", Type::Int),
        ("failure", Type::Struct(&FAILURE)),
        ("custom", Type::Map),
    ],
};

/// The argument of MUTATE.
pub(crate) const MUTATION: Struct = Struct {
    names: ("MutateOperation", "client.MutateOperation"),
    fields: &[
        ("cmd", Type::Str),
        ("target", Type::Str),
        ("filter", Type::Struct(&FILTER)),
    ],
};

const FILTER: Struct = Struct {
    names: ("JobFilter", "client.JobFilter"),
    fields: &[
        ("jids", Type::StrSlice),
        ("regexp", Type::Str),
        ("jobtype", Type::Str),
    ],
};

/// Go's error for a text that should have this type; `None` if Go accepts it.
pub(crate) fn explain(text: &str, expected: Type) -> Option<String> {
    match (Scanner {
        rest: text.as_bytes(),
    })
    .document()
    {
        Err(error) => Some(error),
        Ok(()) => wrong_kind(text.trim_ascii(), expected, &Path::Value),
    }
}

/// A Go string literal, as `%q` prints it.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => {
                quoted.push_str(&format!("\\x{:02x}", u32::from(c)))
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

const END: &str = "unexpected end of JSON input";

/// Finds syntax errors.
struct Scanner<'a> {
    rest: &'a [u8],
}

type Scanned = Result<(), String>;

impl Scanner<'_> {
    fn document(&mut self) -> Scanned {
        self.blanks();
        self.value()?;
        self.blanks();
        match self.rest.first() {
            None => Ok(()),
            Some(byte) => bad(*byte, "after top-level value"),
        }
    }

    /// Scans a whole value. Iterative, because the peer chooses the depth.
    fn value(&mut self) -> Scanned {
        // Open brackets: true for an object.
        let mut open: Vec<bool> = Vec::new();
        loop {
            self.blanks();
            let mut begun = false;
            match self.next()? {
                byte @ (b'[' | b'{') => {
                    if open.len() >= DEPTH_MAX {
                        return bad(byte, "exceeded max depth");
                    }
                    open.push(byte == b'{');
                    begun = true;
                }
                b'"' => self.string()?,
                b't' => self.word("true")?,
                b'f' => self.word("false")?,
                b'n' => self.word("null")?,
                b'-' => match self.next()? {
                    b'0' => self.fraction()?,
                    b'1'..=b'9' => self.digits_then_fraction()?,
                    byte => return bad(byte, "in numeric literal"),
                },
                b'0' => self.fraction()?,
                b'1'..=b'9' => self.digits_then_fraction()?,
                byte => return bad(byte, "looking for beginning of value"),
            }
            // Go to the next value, and close the brackets that end here.
            loop {
                let Some(object) = open.last().copied() else {
                    return Ok(());
                };
                self.blanks();
                let byte = self.peek()?;
                match (object, byte) {
                    (true, b'}') | (false, b']') => {
                        self.next()?;
                        open.pop();
                        begun = false;
                    }
                    (true, _) if begun => {
                        self.key()?;
                        break;
                    }
                    (false, _) if begun => break,
                    (true, b',') => {
                        self.next()?;
                        self.blanks();
                        self.key()?;
                        break;
                    }
                    (false, b',') => {
                        self.next()?;
                        break;
                    }
                    (true, byte) => return bad(byte, "after object key:value pair"),
                    (false, byte) => return bad(byte, "after array element"),
                }
            }
        }
    }

    fn key(&mut self) -> Scanned {
        match self.next()? {
            b'"' => self.string()?,
            byte => return bad(byte, "looking for beginning of object key string"),
        }
        self.blanks();
        match self.next()? {
            b':' => Ok(()),
            byte => bad(byte, "after object key"),
        }
    }

    fn string(&mut self) -> Scanned {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.next()?;
                            if !byte.is_ascii_hexdigit() {
                                return bad(byte, "in \\u hexadecimal character escape");
                            }
                        }
                    }
                    byte => return bad(byte, "in string escape code"),
                },
                byte @ 0..=0x1f => return bad(byte, "in string literal"),
                _ => {}
            }
        }
    }

    fn word(&mut self, word: &str) -> Scanned {
        for expected in word.chars().skip(1) {
            let byte = self.next()?;
            if char::from(byte) != expected {
                return bad(byte, &format!("in literal {word} (expecting '{expected}')"));
            }
        }
        Ok(())
    }

    fn digits_then_fraction(&mut self) -> Scanned {
        self.digits();
        self.fraction()
    }

    fn fraction(&mut self) -> Scanned {
        if self.rest.first() == Some(&b'.') {
            self.next()?;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.rest.first(), Some(b'e' | b'E')) {
            self.next()?;
            if matches!(self.peek()?, b'+' | b'-') {
                self.next()?;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, context: &str) -> Scanned {
        match self.next()? {
            b'0'..=b'9' => Ok(()),
            byte => bad(byte, context),
        }
    }

    fn digits(&mut self) {
        let digits = self
            .rest
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        self.rest = self.rest.get(digits..).unwrap_or_default();
    }

    fn blanks(&mut self) {
        let blanks = self
            .rest
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
            .count();
        self.rest = self.rest.get(blanks..).unwrap_or_default();
    }

    fn peek(&self) -> Result<u8, String> {
        self.rest.first().copied().ok_or_else(|| END.to_owned())
    }

    fn next(&mut self) -> Result<u8, String> {
        let (byte, rest) = self.rest.split_first().ok_or_else(|| END.to_owned())?;
        self.rest = rest;
        Ok(*byte)
    }
}

fn bad<T>(byte: u8, context: &str) -> Result<T, String> {
    let shown: Cow<'_, str> = match byte {
        b'\'' => Cow::Borrowed("'\\''"),
        b'"' => Cow::Borrowed("'\"'"),
        byte => {
            let quoted = quote(&char::from(byte).to_string());
            let inner = quoted
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'))
                .unwrap_or_default();
            Cow::Owned(format!("'{inner}'"))
        }
    };
    Err(format!("invalid character {shown} {context}"))
}

/// The position of a value.
enum Path {
    /// Outside of any struct.
    Value,
    /// In the innermost struct, which has this name, under these keys.
    Field(&'static str, String),
}

/// The error for the first value of a wrong kind in a text with valid syntax.
fn wrong_kind(text: &str, expected: Type, path: &Path) -> Option<String> {
    match (text.as_bytes().first()?, expected) {
        (b'{', Type::Struct(of)) => wrong_member(text, of, path),
        (b'[', Type::StructSlice(of)) => {
            elements(text).find_map(|value| wrong_kind(value, Type::Struct(of), path))
        }
        (b'[', Type::StrSlice) => {
            elements(text).find_map(|value| wrong_kind(value, Type::Str, path))
        }
        _ => mismatch(text, expected).map(|kind| mistake(&kind, expected, path)),
    }
}

fn wrong_member(text: &str, of: &'static Struct, path: &Path) -> Option<String> {
    let names: Vec<&str> = of.fields.iter().map(|(name, _)| *name).collect();
    let mut wrong = None;
    let all_fit = json::for_each(text, |key, value| {
        let Some((name, expected)) =
            json::place_of(key, &names).and_then(|index| of.fields.get(index))
        else {
            return Ok(());
        };
        let keys = match path {
            Path::Value => (*name).to_owned(),
            Path::Field(_, keys) => format!("{keys}.{name}"),
        };
        wrong = wrong_kind(value.get(), *expected, &Path::Field(of.names.0, keys));
        if wrong.is_some() {
            Err(Unexpected)
        } else {
            Ok(())
        }
    });
    all_fit.err().and(wrong)
}

/// The elements of a list.
fn elements(list: &str) -> impl Iterator<Item = &str> {
    let mut at = 1;
    std::iter::from_fn(move || {
        let (value, end) = json::element(list, at)?;
        at = end;
        Some(value)
    })
}

fn mistake(kind: &str, expected: Type, path: &Path) -> String {
    let name = match expected {
        Type::Str => "string",
        Type::Int => "int",
        Type::Slice => "[]interface {}",
        Type::StrSlice => "[]string",
        Type::Map => "map[string]interface {}",
        Type::Struct(inner) => inner.names.1,
        Type::StructSlice(inner) => &format!("[]{}", inner.names.1),
        Type::Any => "interface {}",
    };
    let place = match path {
        Path::Value => "value".to_owned(),
        Path::Field(of, keys) => format!("struct field {of}.{keys}"),
    };
    format!("json: cannot unmarshal {kind} into Go {place} of type {name}")
}

/// The kind of a value that differs from the expected kind. `null` fits all kinds.
fn mismatch(text: &str, expected: Type) -> Option<String> {
    let first = text.as_bytes().first()?;
    let kind = match first {
        b'n' => return None,
        b'"' => "string",
        b't' | b'f' => "bool",
        b'[' => "array",
        b'{' => "object",
        _ => "number",
    };
    let fits = match expected {
        Type::Any => true,
        Type::Str => kind == "string",
        Type::Slice | Type::StrSlice | Type::StructSlice(_) => kind == "array",
        Type::Map | Type::Struct(_) => kind == "object",
        Type::Int if kind == "number" => {
            // Cut to a readable length.
            return text
                .parse::<i64>()
                .is_err()
                .then(|| format!("number {}", text.get(..100).unwrap_or(text)));
        }
        Type::Int => false,
    };
    (!fits).then(|| kind.to_owned())
}
