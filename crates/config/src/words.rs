//! Words for people, in place of those of libraries and of our language. All such texts pass here: of the
//! configuration, of options, of the API's parameters and of JSON.

use std::io;

use serde::de::DeserializeOwned;

/// How readers of a text call what is in it.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// What has a name.
    name: &'static str,
    /// What has names in it.
    table: &'static str,
}

/// Unknown names are answered with all known ones, up to this many.
const NAMES_MAX: usize = 6;

/// Reasons that have no parts, in any text.
const PHRASES: [(&str, &str); 9] = [
    (
        "invalid digit found in string",
        "a whole number is expected",
    ),
    (
        "cannot parse integer from empty string",
        "a whole number is expected",
    ),
    (
        "number too large to fit in target type",
        "the number is too large",
    ),
    (
        "number too small to fit in target type",
        "the number is too small",
    ),
    (
        "number would be zero for non-zero type",
        "the number must be more than 0",
    ),
    ("invalid float literal", "a number is expected"),
    (
        "provided string was not `true` or `false`",
        "true or false is expected",
    ),
    ("too many characters in string", "one character is expected"),
    (", expected literal string", ""),
];

impl Words {
    /// Of a configuration.
    pub const TOML: Self = Self {
        name: "key",
        table: "a table",
    };
    /// Of JSON.
    pub const JSON: Self = Self {
        name: "key",
        table: "an object",
    };
    /// Of a command line.
    pub const OPTION: Self = Self {
        name: "option",
        table: "several values",
    };
    /// Of a request.
    pub const QUERY: Self = Self {
        name: "parameter",
        table: "several values",
    };

    /// A library's reason in these words. What it does not know stays.
    pub fn of(self, reason: &str) -> String {
        type Form = (&'static str, fn(Words, &str) -> Option<String>);
        const FORMS: [Form; 8] = [
            ("unknown field ", Words::unknown_name),
            ("unknown variant ", |_, rest| unknown_value(rest)),
            ("invalid type: ", Words::unlike),
            ("invalid value: ", Words::unlike),
            ("invalid length ", |words, rest| {
                words.unlike(&format!("length {rest}"))
            }),
            ("expected ", Words::unfound),
            ("missing field ", |words, rest| {
                Some(format!("the {} {rest} is missing", words.name))
            }),
            ("duplicate field ", |words, rest| {
                Some(format!("the {} {rest} is there twice", words.name))
            }),
        ];
        let reason = reason.trim();
        let translated = FORMS.iter().find_map(|(start, form)| {
            let (before, rest) = reason
                .split_once(start)
                .filter(|(before, _)| is_context(before))?;
            Some(format!("{before}{}", form(self, rest)?))
        });
        translated.unwrap_or_else(|| without_range(&without_phrases(reason)))
    }

    fn unknown_name(self, rest: &str) -> Option<String> {
        let (unknown, known) = named(rest)?;
        let name = self.name;
        Some(match known.len() {
            0 => format!("unknown {name} `{unknown}`"),
            1 => format!("unknown {name} `{unknown}`: there is {}", listed(&known)),
            2..=NAMES_MAX => format!("unknown {name} `{unknown}`: there are {}", listed(&known)),
            _ => format!(
                "unknown {name} `{unknown}`; the nearest is `{}`",
                nearest(unknown, known.into_iter())?
            ),
        })
    }

    /// `integer `5`, expected struct Rate`: the value, and what it is not.
    fn unlike(self, rest: &str) -> Option<String> {
        let (found, expected) = rest.rsplit_once(", expected ")?;
        Some(format!(
            "expected {}, not {}",
            self.thing(expected),
            self.value(found)
        ))
    }

    /// `table, found boolean`.
    fn unfound(self, rest: &str) -> Option<String> {
        let (expected, found) = rest.split_once(", found ")?;
        Some(format!(
            "expected {}, not {}",
            self.thing(expected),
            self.value(found)
        ))
    }

    /// What a value must be.
    fn thing(self, expected: &str) -> String {
        let known = match expected {
            "a string" | "string" | "a borrowed string" => "a string",
            "a boolean" | "boolean" => "true or false",
            "a sequence" | "sequence" | "array" => "a list",
            "a map" | "map" | "table" => self.table,
            "a character" => "one character",
            "path string" => "a path",
            "u64" | "usize" | "i64" | "i32" | "integer" => "a whole number",
            "u32" => "a whole number below 2^32",
            "u16" => "a whole number below 65536",
            "u8" => "a whole number below 256",
            "f64" | "f32" | "float" => "a number",
            _ if expected.starts_with("struct ") => self.table,
            _ if expected.starts_with("a nonzero ") => "a whole number above 0",
            other => other,
        };
        known.to_owned()
    }

    /// What a value is.
    fn value(self, found: &str) -> String {
        let (kind, shown) = found.split_once(' ').unwrap_or((found, ""));
        let shown = shown.trim_matches('`');
        match (kind, shown) {
            ("integer" | "floating", _) => {
                format!("the number {}", shown.trim_start_matches("point `"))
            }
            ("boolean", "") => "true or false".to_owned(),
            ("boolean" | "character", _) => shown.to_owned(),
            ("string", _) => format!("the string {shown}").trim_end().to_owned(),
            ("sequence" | "array", _) => "a list".to_owned(),
            ("map" | "table", _) => self.table.to_owned(),
            ("null" | "unit", _) => "null".to_owned(),
            (_, _) => found.to_owned(),
        }
    }
}

/// Reads JSON.
///
/// # Errors
///
/// What is wrong, with the key or the place, in words for people.
pub fn json<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    use serde_json::error::Category;
    let place = |error: &serde_json::Error| match error.classify() {
        Category::Eof => "the JSON ends too early".to_owned(),
        Category::Syntax => format!(
            "invalid JSON at line {}, column {}",
            error.line(),
            error.column()
        ),
        Category::Data | Category::Io => {
            let reason = error.to_string();
            Words::JSON.of(reason
                .rsplit_once(" at line ")
                .map_or(&*reason, |(reason, _)| reason))
        }
    };
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let reason = place(error.inner());
        // A path ends in the name itself if that is unknown.
        let is_named = error.inner().is_data() && path != "." && !reason.starts_with("unknown key");
        if is_named {
            format!("{path}: {reason}")
        } else {
            reason
        }
    })?;
    reader.end().map_err(|error| place(&error))?;
    Ok(value)
}

/// An error of the system, without its number.
pub fn system(why: &io::Error) -> String {
    let text = why.to_string();
    match text.split_once(" (os error") {
        Some((reason, _)) => reason.to_lowercase(),
        None => text,
    }
}

/// The name that differs least from this one.
pub fn nearest<S: AsRef<str>>(name: &str, among: impl Iterator<Item = S>) -> Option<S> {
    among.min_by_key(|known| strsim::damerau_levenshtein(name, known.as_ref()))
}

/// Whether a name may be a slip of the pen for the other: at most a third of it differs.
pub fn is_near(name: &str, other: &str) -> bool {
    3 * strsim::damerau_levenshtein(name, other) <= name.chars().count().max(other.chars().count())
}

/// Whether this is only where a reason belongs to, as in `entry 1: `.
fn is_context(before: &str) -> bool {
    before.is_empty() || before.ends_with(": ")
}

fn without_phrases(reason: &str) -> String {
    PHRASES
        .iter()
        .fold(reason.to_owned(), |text, (theirs, ours)| {
            text.replace(theirs, ours)
        })
}

/// `300 is not in 1..=9` of options.
fn without_range(reason: &str) -> String {
    let parts = || {
        let (before, rest) = reason.split_once(" is not in ")?;
        let (range, after) = rest.split_at(rest.find('\n').unwrap_or(rest.len()));
        let (least, most) = range.split_once("..")?;
        let most = most.trim_start_matches('=');
        Some(match most {
            "" => format!("{before} is less than {least}{after}"),
            _ => format!("{before} is not between {least} and {most}{after}"),
        })
    };
    parts().unwrap_or_else(|| reason.to_owned())
}

fn unknown_value(rest: &str) -> Option<String> {
    let (unknown, known) = named(rest)?;
    Some(format!("`{unknown}` is not one of {}", listed(&known)))
}

/// The unknown name, and those that are known.
fn named(rest: &str) -> Option<(&str, Vec<&str>)> {
    let (unknown, known) = rest.strip_prefix('`')?.split_once("`, ")?;
    Some((unknown, known.split('`').skip(1).step_by(2).collect()))
}

fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[test]
    fn reasons_of_libraries_become_words() {
        let table = [
            (
                "unknown field `sort`, expected `limit` or `cursor`",
                "unknown key `sort`: there are `limit` and `cursor`",
            ),
            (
                "unknown field `a`, expected `b`",
                "unknown key `a`: there is `b`",
            ),
            ("unknown field `a`, there are no fields", "unknown key `a`"),
            (
                "unknown variant `maybe`, expected `sync` or `interval`",
                "`maybe` is not one of `sync` and `interval`",
            ),
            (
                "unknown field `thread`, expected one of `threads`, `a`, `b`, `c`, `d`, `e`, `f`",
                "unknown key `thread`; the nearest is `threads`",
            ),
            (
                "invalid type: string \"4730\", expected a sequence",
                "expected a list, not the string \"4730\"",
            ),
            (
                "invalid type: integer `5`, expected struct Rate",
                "expected a table, not the number 5",
            ),
            (
                "invalid type: floating point `1.5`, expected u16",
                "expected a whole number below 65536, not the number 1.5",
            ),
            (
                "invalid type: map, expected a boolean",
                "expected true or false, not a table",
            ),
            (
                "invalid value: integer `0`, expected a nonzero u32",
                "expected a whole number above 0, not the number 0",
            ),
            (
                "invalid value: string \"ab\", expected a character",
                "expected one character, not the string \"ab\"",
            ),
            (
                "invalid length 3, expected 2 values",
                "expected 2 values, not length 3",
            ),
            (
                "entry 1: invalid type: boolean `true`, expected a string",
                "entry 1: expected a string, not true",
            ),
            (
                "expected table, found boolean",
                "expected a table, not true or false",
            ),
            ("missing field `per`", "the key `per` is missing"),
            ("duplicate field `per`", "the key `per` is there twice"),
            (
                "limit: invalid digit found in string",
                "limit: a whole number is expected",
            ),
            (
                "`10` has no unit, expected a number of ms",
                "`10` has no unit, expected a number of ms",
            ),
            ("duplicate key", "duplicate key"),
            (
                "'--limit': 300 is not in 1..=9\n\nMore",
                "'--limit': 300 is not between 1 and 9\n\nMore",
            ),
            ("0 is not in 1..", "0 is less than 1"),
        ];
        for (theirs, ours) in table {
            assert_eq!(Words::TOML.of(theirs), ours);
        }
        assert_eq!(
            Words::QUERY.of("missing field `q`"),
            "the parameter `q` is missing"
        );
    }

    #[test]
    fn mistakes_in_json_are_named() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Rate {
            #[expect(dead_code, reason = "only read")]
            jobs: u32,
        }
        let table = [
            ("", "the JSON ends too early"),
            ("{", "the JSON ends too early"),
            ("rate=10", "invalid JSON at line 1, column 1"),
            ("{} x", "invalid JSON at line 1, column 4"),
            ("{\"a\": 5}", "a: expected an object, not the number 5"),
            (
                "{\"a\": {\"jobs\": \"many\"}}",
                "a.jobs: expected a whole number below 2^32, not the string \"many\"",
            ),
            (
                "{\"a\": {\"job\": 1}}",
                "unknown key `job`: there is `jobs`",
            ),
            ("{\"a\": {}}", "a: the key `jobs` is missing"),
            ("[]", "expected an object, not a list"),
        ];
        for (text, expected) in table {
            assert_eq!(
                json::<BTreeMap<String, Rate>>(text.as_bytes()).unwrap_err(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn a_slip_of_the_pen_is_near() {
        let table = [
            ("rep", "reports", false),
            ("report", "reports", true),
            ("at", "data-dir", false),
            ("report5", "reports", true),
        ];
        for (name, other, expected) in table {
            assert_eq!(is_near(name, other), expected, "{name} {other}");
        }
    }
}
