//! Parses gearmand's command line: arguments to options with their values, with gearmand's error texts.
//!
//! `--name=value`, `--name value`, `-n value`, `-nvalue`, letters without a value together (`-dR`); each option once.

use super::options::{NUMBER, lettered, named};
use crate::foreign::{Given, Item};

/// How to treat an argument that is not an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loose {
    /// An error, on a command line.
    Refused,
    /// Skipped, in a file.
    Skipped,
}

/// Parses the arguments of one source.
///
/// # Errors
/// gearmand's sentence for the first mistake.
pub(super) fn parse(words: &[String], loose: Loose) -> Result<Given, String> {
    let mut given = Given::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match (word.strip_prefix("--"), word.strip_prefix('-')) {
            // Arguments behind `--` are not options.
            (Some(""), _) => match words.next() {
                Some(word) if loose == Loose::Refused => return Err(unrecognised(word)),
                _ => return Ok(given),
            },
            (Some(name), _) => long(&mut given, word, name, &mut words)?,
            (None, Some(rest)) if !rest.is_empty() => letters(&mut given, word, rest, &mut words)?,
            _ if loose == Loose::Skipped => {}
            _ => return Err(unrecognised(word)),
        }
    }
    Ok(given)
}

/// The arguments that follow.
type Words<'a> = std::slice::Iter<'a, String>;

fn long(given: &mut Given, word: &str, text: &str, words: &mut Words<'_>) -> Result<(), String> {
    let (name, value) = text
        .split_once('=')
        .map_or((text, None), |(name, value)| (name, Some(value)));
    let option = named(name).ok_or_else(|| unrecognised(word))?;
    match (option.argument, value) {
        ("", None) => push(given, option, ""),
        ("", Some(_)) => Err(format!("option '--{name}' does not take any arguments")),
        (_, Some("")) => Err(format!(
            "the argument for option '--{name}' should follow immediately after the equal sign"
        )),
        (_, Some(value)) => push(given, option, value),
        (_, None) => push_next(given, option, words),
    }
}

fn letters(
    given: &mut Given,
    word: &str,
    letters: &str,
    words: &mut Words<'_>,
) -> Result<(), String> {
    let mut rest = letters.chars();
    while let Some(letter) = rest.next() {
        let option = lettered(letter).ok_or_else(|| unrecognised(word))?;
        match (option.argument, rest.as_str()) {
            ("", _) => push(given, option, "")?,
            (_, "") => push_next(given, option, words)?,
            (_, value) => return push(given, option, value),
        }
    }
    Ok(())
}

/// The next argument is the value, even if it looks like an option.
fn push_next(
    given: &mut Given,
    option: &'static Item,
    words: &mut Words<'_>,
) -> Result<(), String> {
    let value = words.next();
    let value = value.ok_or_else(|| {
        format!(
            "the required argument for option '--{}' is missing",
            option.name
        )
    })?;
    push(given, option, value)
}

fn push(given: &mut Given, option: &'static Item, value: &str) -> Result<(), String> {
    if option.argument == NUMBER && value.parse::<i64>().is_err() {
        return Err(invalid(option.name, value));
    }
    if option.name != "set" && given.has(option.name) {
        return Err(format!(
            "option '--{}' cannot be specified more than once",
            option.name
        ));
    }
    given.push(option, value);
    Ok(())
}

/// Adds the options of another source, except those already given.
pub(super) fn fill(given: &mut Given, other: &Given) {
    let new: Vec<_> = other
        .options()
        .filter(|(option, _)| !given.has(option.name))
        .collect();
    new.into_iter()
        .for_each(|(option, value)| given.push(option, value));
}

/// The value of an option that takes a number.
pub(super) fn number(given: &Given, long: &str) -> Option<i64> {
    given.text(long)?.parse().ok()
}

fn unrecognised(word: &str) -> String {
    format!("unrecognised option '{word}'")
}

/// The text for a value that does not fit its option.
pub(super) fn invalid(long: &str, value: &str) -> String {
    format!("the argument ('{value}') for option '--{long}' is invalid")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str, loose: Loose) -> Result<String, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let given = parse(&words, loose)?;
        Ok(given
            .options()
            .map(|(option, value)| format!("{}={value} ", option.name))
            .collect())
    }

    #[test]
    fn every_way_to_write_an_option() {
        let table = [
            ("", ""),
            ("--port=1", "port=1 "),
            ("--port 1 --daemon", "port=1 daemon= "),
            ("-p 1 -d", "port=1 daemon= "),
            ("-p1 -dR", "port=1 daemon= round-robin= "),
            ("-dRp1", "daemon= round-robin= port=1 "),
            ("-dRp 1", "daemon= round-robin= port=1 "),
            ("--job-retries -1", "job-retries=-1 "),
            ("--log-file --port", "log-file=--port "),
            ("--job-handle-prefix=a=b", "job-handle-prefix=a=b "),
            ("--set a=1 --set b=2", "set=a=1 set=b=2 "),
            ("--", ""),
        ];
        for (line, expected) in table {
            assert_eq!(
                parsed(line, Loose::Refused).as_deref(),
                Ok(expected),
                "{line}"
            );
        }
    }

    #[test]
    fn mistakes_in_gearmands_words() {
        let table = [
            ("--x", "unrecognised option '--x'"),
            ("--verb=ERROR", "unrecognised option '--verb=ERROR'"),
            ("-Z", "unrecognised option '-Z'"),
            ("-dX", "unrecognised option '-dX'"),
            ("-d=1", "unrecognised option '-d=1'"),
            ("foo", "unrecognised option 'foo'"),
            ("-", "unrecognised option '-'"),
            ("-- --version", "unrecognised option '--version'"),
            (
                "--port",
                "the required argument for option '--port' is missing",
            ),
            ("-p", "the required argument for option '--port' is missing"),
            (
                "--port=",
                "the argument for option '--port' should follow immediately after the equal sign",
            ),
            (
                "--daemon=yes",
                "option '--daemon' does not take any arguments",
            ),
            (
                "--threads=x",
                "the argument ('x') for option '--threads' is invalid",
            ),
            (
                "-R -R",
                "option '--round-robin' cannot be specified more than once",
            ),
            (
                "--port 1 -p 2",
                "option '--port' cannot be specified more than once",
            ),
        ];
        for (line, expected) in table {
            assert_eq!(
                parsed(line, Loose::Refused),
                Err(expected.to_owned()),
                "{line}"
            );
        }
    }

    #[test]
    fn a_file_may_have_words_that_are_not_options() {
        assert_eq!(
            parsed("# a port --port=1 port=2 - \n -R", Loose::Skipped).as_deref(),
            Ok("port=1 round-robin= ")
        );
        assert_eq!(
            parsed("--nonsense", Loose::Skipped),
            Err("unrecognised option '--nonsense'".to_owned())
        );
    }

    #[test]
    fn the_command_line_overrides_the_file() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut given = parse(&words("--port 1 -R"), Loose::Refused).unwrap();
        fill(
            &mut given,
            &parse(&words("--port 2 --threads 3"), Loose::Skipped).unwrap(),
        );
        assert_eq!(
            (
                given.text("port"),
                number(&given, "threads"),
                given.has("daemon")
            ),
            (Some("1"), Some(3), false)
        );
    }
}
