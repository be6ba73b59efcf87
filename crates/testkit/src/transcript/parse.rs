//! Parses the text of a transcript, line by line. `play` interprets the lines.

use super::pattern::{Part, Pattern};
use super::{Failure, Scene};

/// The action of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Open(String),
    Say {
        who: String,
        verb: String,
        arguments: Vec<Pattern>,
    },
    Hear {
        who: String,
        verb: String,
        arguments: Vec<Pattern>,
    },
    Nothing(String),
    Closed(String),
    HalfClose(String),
    Close(String),
    /// In milliseconds.
    Advance(u64),
    Stall,
    Resume,
}

pub(super) fn scenes(file: &str, text: &str) -> Result<Vec<Scene>, Failure> {
    let mut scenes: Vec<Scene> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = line.trim();
        let fail = |text| Failure {
            file: file.to_owned(),
            line: number,
            text,
        };
        if let Some(name) = line.strip_prefix("==") {
            let name = name.trim().to_owned();
            scenes.push(Scene {
                name,
                settings: Vec::new(),
                file: file.to_owned(),
                steps: Vec::new(),
            });
        } else if !line.is_empty() && !line.starts_with('#') {
            let scene = scenes
                .last_mut()
                .ok_or_else(|| fail("no scene has begun".to_owned()))?;
            add(scene, number, line).map_err(fail)?;
        }
    }
    Ok(scenes)
}

fn add(scene: &mut Scene, number: usize, line: &str) -> Result<(), String> {
    if let Some(setting) = line.strip_prefix("set ") {
        let (key, value) = setting
            .trim()
            .split_once(' ')
            .ok_or("set needs a key and a value")?;
        if !scene.steps.is_empty() {
            return Err("set must come before all messages".to_owned());
        }
        scene
            .settings
            .push((key.to_owned(), value.trim().to_owned()));
    } else {
        scene.steps.push((number, step(line)?));
    }
    Ok(())
}

fn step(line: &str) -> Result<Step, String> {
    let (first, rest) = word(line);
    let (second, arguments) = word(rest);
    match (first, second) {
        (who, way @ (">" | "<")) => {
            let (verb, arguments) = word(arguments);
            if verb.is_empty() {
                return Err("no message".to_owned());
            }
            let (who, verb, arguments) = (who.to_owned(), verb.to_owned(), patterns(arguments)?);
            Ok(if way == ">" {
                Step::Say {
                    who,
                    verb,
                    arguments,
                }
            } else {
                Step::Hear {
                    who,
                    verb,
                    arguments,
                }
            })
        }
        ("advance", time) => milliseconds(time).map(Step::Advance),
        ("stall", "") => Ok(Step::Stall),
        ("resume", "") => Ok(Step::Resume),
        ("open", who) => named(who).map(Step::Open),
        ("nothing", who) => named(who).map(Step::Nothing),
        ("closed", who) => named(who).map(Step::Closed),
        ("half-close", who) => named(who).map(Step::HalfClose),
        ("close", who) => named(who).map(Step::Close),
        _ => Err(format!("cannot be understood: {line}")),
    }
}

/// The first word, and the rest.
fn word(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    line.split_once(' ')
        .map_or((line, ""), |(word, rest)| (word, rest.trim_start()))
}

fn named(who: &str) -> Result<String, String> {
    if who.is_empty() {
        Err("who?".to_owned())
    } else {
        Ok(who.to_owned())
    }
}

fn milliseconds(time: &str) -> Result<u64, String> {
    let (digits, unit) = match (time.strip_suffix("ms"), time.strip_suffix('s')) {
        (Some(digits), _) => (digits, 1),
        (None, Some(digits)) => (digits, 1_000),
        (None, None) => return Err(format!("{time} is not a duration such as 60s or 500ms")),
    };
    digits
        .parse()
        .map(|n: u64| n * unit)
        .map_err(|error| format!("{time}: {error}"))
}

fn patterns(text: &str) -> Result<Vec<Pattern>, String> {
    let mut patterns = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (pattern, left) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (pattern, left) = parts(quoted, true)?;
                repeated(pattern, left)?
            }
            None => {
                let (word, left) = word(rest);
                (parts(word, false)?.0, left)
            }
        };
        patterns.push(pattern);
        if !left.is_empty() && !left.starts_with(' ') && rest.starts_with('"') {
            return Err(format!("no blank before {left}"));
        }
        rest = left.trim_start();
    }
    Ok(patterns)
}

/// `"x"*70`.
fn repeated(pattern: Pattern, left: &str) -> Result<(Pattern, &str), String> {
    let Some(times) = left.strip_prefix('*') else {
        return Ok((pattern, left));
    };
    let (times, left) = times.split_at(times.find(' ').unwrap_or(times.len()));
    let times: usize = times
        .parse()
        .map_err(|error| format!("*{times}: {error}"))?;
    let bytes: Vec<Part> = std::iter::repeat_n(pattern.0, times).flatten().collect();
    Ok((joined(bytes), left))
}

/// The parts of a word, or of a quoted text; the opening quote has been consumed.
fn parts(text: &str, quoted: bool) -> Result<(Pattern, &str), String> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let mut chars = rest.chars();
        let taken = match chars.next() {
            None if quoted => return Err("no closing quote".to_owned()),
            None => return Ok((joined(parts), rest)),
            Some('"') if quoted => return Ok((joined(parts), chars.as_str())),
            Some('\\') => {
                let (byte, taken) = escaped(chars.as_str())?;
                parts.push(Part::Literal(vec![byte]));
                1 + taken
            }
            Some('$') => {
                let (name, taken) = variable(chars.as_str())?;
                parts.push(Part::Variable(name.to_owned()));
                1 + taken
            }
            Some(other) => {
                parts.push(Part::Literal(other.to_string().into_bytes()));
                other.len_utf8()
            }
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
}

/// The byte of an escape, and how many bytes of the text it takes.
fn escaped(text: &str) -> Result<(u8, usize), String> {
    let byte = match text.bytes().next() {
        Some(b'0') => 0,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(byte @ (b'\\' | b'"' | b'$')) => byte,
        Some(b'x') => {
            let digits = text.get(1..3).ok_or("\\x needs two digits")?;
            return u8::from_str_radix(digits, 16)
                .map(|byte| (byte, 3))
                .map_err(|error| format!("\\x: {error}"));
        }
        _ => return Err(format!("unknown escape: \\{text}")),
    };
    Ok((byte, 1))
}

/// The name behind a dollar, in braces or not, and how many bytes of the text it takes.
fn variable(text: &str) -> Result<(&str, usize), String> {
    if let Some(braced) = text.strip_prefix('{') {
        let (name, _) = braced.split_once('}').ok_or("no closing brace")?;
        return Ok((name, name.len() + 2));
    }
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    match text.get(..end) {
        None | Some("") => Err("a dollar needs a name".to_owned()),
        Some(name) => Ok((name, end)),
    }
}

/// Merges adjacent bytes.
fn joined(parts: Vec<Part>) -> Pattern {
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        match (joined.last_mut(), part) {
            (Some(Part::Literal(before)), Part::Literal(bytes)) => before.extend(bytes),
            (_, part) => joined.push(part),
        }
    }
    Pattern(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(bytes: &[u8]) -> Pattern {
        Pattern(if bytes.is_empty() {
            Vec::new()
        } else {
            vec![Part::Literal(bytes.to_vec())]
        })
    }

    #[test]
    fn lines_are_parsed() {
        let say = |verb: &str, arguments| Step::Say {
            who: "C".to_owned(),
            verb: verb.to_owned(),
            arguments,
        };
        let table: [(&str, Step); 14] = [
            (r#"C > GRAB_JOB"#, say("GRAB_JOB", vec![])),
            (
                r#"C > ECHO "" "a b" c"#,
                say("ECHO", vec![literal(b""), literal(b"a b"), literal(b"c")]),
            ),
            (
                r#"C > ECHO "\0\n\r\t\\\"\$\xff""#,
                say("ECHO", vec![literal(b"\0\n\r\t\\\"$\xff")]),
            ),
            (
                r#"C > ECHO "ab"*3 x"#,
                say("ECHO", vec![literal(b"ababab"), literal(b"x")]),
            ),
            (
                r#"C > ECHO $h "<${h}s>""#,
                say(
                    "ECHO",
                    vec![
                        Pattern(vec![Part::Variable("h".to_owned())]),
                        Pattern(vec![
                            Part::Literal(b"<".to_vec()),
                            Part::Variable("h".to_owned()),
                            Part::Literal(b"s>".to_vec()),
                        ]),
                    ],
                ),
            ),
            (
                r#"C < NOOP"#,
                Step::Hear {
                    who: "C".to_owned(),
                    verb: "NOOP".to_owned(),
                    arguments: vec![],
                },
            ),
            ("advance 2s", Step::Advance(2_000)),
            ("advance 2ms", Step::Advance(2)),
            ("nothing C", Step::Nothing("C".to_owned())),
            ("half-close C", Step::HalfClose("C".to_owned())),
            ("close C", Step::Close("C".to_owned())),
            ("closed C", Step::Closed("C".to_owned())),
            ("stall", Step::Stall),
            ("resume", Step::Resume),
        ];
        for (line, expected) in table {
            assert_eq!(step(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        let table = [
            ("C > ECHO", 1, "no scene has begun"),
            ("== s\nC ECHO", 2, "cannot be understood: C ECHO"),
            ("== s\n\n# a comment\nC > ECHO \"a", 4, "no closing quote"),
            ("== s\nC > ECHO \"a\"b", 2, "no blank before b"),
            ("== s\nC > ECHO \"\\q\"", 2, "unknown escape: \\q\""),
            (
                "== s\nadvance soon",
                2,
                "soon is not a duration such as 60s or 500ms",
            ),
            ("== s\nclose", 2, "who?"),
            ("== s\nstall C", 2, "cannot be understood: stall C"),
            (
                "== s\nC > X\nset a b",
                3,
                "set must come before all messages",
            ),
        ];
        for (text, line, expected) in table {
            let failure = scenes("file", text).map(|_| ()).unwrap_err();
            assert_eq!((failure.line, &*failure.text), (line, expected), "{text}");
            assert_eq!(failure.to_string(), format!("file:{line}: {expected}"));
        }
    }
}
