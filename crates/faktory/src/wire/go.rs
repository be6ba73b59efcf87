//! Error texts for bad JSON. A value of a wrong kind is told as deployed servers do, which use Go's `encoding/json`. Text that
//! is no JSON at all, which no client sends, is told by its place.
//!
//! This runs after an error only, so it need not be fast.

#[cfg(test)]
mod tests;

use serde::Deserialize as _;
use serde::de::IgnoredAny;
use serde_json::error::Category;

use super::json::{self, DEPTH_MAX, Unexpected, is_too_deep};

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

/// What is wrong with a text that should have this type; `None` if Go accepts it.
pub(crate) fn explain(text: &str, expected: Type) -> Option<String> {
    malformed(text).or_else(|| wrong_kind(text.trim_ascii(), expected, &Path::Value))
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

/// Where a text is no JSON.
fn malformed(text: &str) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = IgnoredAny::deserialize(&mut reader).and_then(|_| reader.end());
    let Err(error) = read else {
        return is_too_deep(text, 0, DEPTH_MAX).then(|| "nested too deep".to_owned());
    };
    Some(match error.classify() {
        Category::Eof => "unexpected end of the text".to_owned(),
        Category::Io | Category::Syntax | Category::Data => {
            format!(
                "unexpected character at line {}, column {}",
                error.line(),
                error.column()
            )
        }
    })
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
