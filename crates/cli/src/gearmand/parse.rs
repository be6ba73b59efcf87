//! Parses gearmand's command line: arguments to options with their values, with gearmand's error texts.
//!
//! `--name=value`, `--name value`, `-n value`, `-nvalue`, letters without a value together (`-dR`); each option once.

use super::options::{Opt, Takes};

/// The given options. If two sources give an option, the first source counts.
#[derive(Debug, Default)]
pub(super) struct Given {
    values: Vec<(&'static Opt, String)>,
}

/// How to treat an argument that is not an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loose {
    /// An error, on a command line.
    Refused,
    /// Skipped, in a file.
    Skipped,
}

impl Given {
    /// Parses the arguments of one source.
    ///
    /// # Errors
    /// gearmand's sentence for the first mistake.
    pub(super) fn parse(words: &[String], loose: Loose) -> Result<Self, String> {
        let mut given = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match (word.strip_prefix("--"), word.strip_prefix('-')) {
                (Some(""), _) => return given.rest(words.next(), loose),
                (Some(long), _) => given.long(word, long, &mut words)?,
                (None, Some(letters)) if !letters.is_empty() => given.letters(word, letters, &mut words)?,
                _ if loose == Loose::Skipped => {}
                _ => return Err(unrecognised(word)),
            }
        }
        Ok(given)
    }

    /// Arguments behind `--` are not options.
    fn rest(self, word: Option<&String>, loose: Loose) -> Result<Self, String> {
        match word {
            Some(word) if loose == Loose::Refused => Err(unrecognised(word)),
            _ => Ok(self),
        }
    }

    fn long<'a>(&mut self, word: &str, long: &str, words: &mut impl Iterator<Item = &'a String>) -> Result<(), String> {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        let option = Opt::named(name).ok_or_else(|| unrecognised(word))?;
        match (option.takes, value) {
            (Takes::Nothing, None) => self.push(option, ""),
            (Takes::Nothing, Some(_)) => Err(format!("option '--{name}' does not take any arguments")),
            (_, Some("")) => {
                Err(format!("the argument for option '--{name}' should follow immediately after the equal sign"))
            }
            (_, Some(value)) => self.push(option, value),
            (_, None) => self.push_next(option, words),
        }
    }

    fn letters<'a>(
        &mut self,
        word: &str,
        letters: &str,
        words: &mut impl Iterator<Item = &'a String>,
    ) -> Result<(), String> {
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            let option = Opt::lettered(letter).ok_or_else(|| unrecognised(word))?;
            match (option.takes, rest.as_str()) {
                (Takes::Nothing, _) => self.push(option, "")?,
                (_, "") => self.push_next(option, words)?,
                (_, value) => return self.push(option, value),
            }
        }
        Ok(())
    }

    /// The next argument is the value, even if it looks like an option.
    fn push_next<'a>(
        &mut self,
        option: &'static Opt,
        words: &mut impl Iterator<Item = &'a String>,
    ) -> Result<(), String> {
        match words.next() {
            Some(value) => self.push(option, value),
            None => Err(format!("the required argument for option '--{}' is missing", option.long)),
        }
    }

    fn push(&mut self, option: &'static Opt, value: &str) -> Result<(), String> {
        if option.takes == Takes::Number && number(value).is_none() {
            return Err(invalid(option.long, value));
        }
        if option.long != "set" && self.has(option.long) {
            return Err(format!("option '--{}' cannot be specified more than once", option.long));
        }
        self.values.push((option, value.to_owned()));
        Ok(())
    }

    /// Adds the options of another source, except those already given.
    pub(super) fn fill_from(&mut self, other: Self) {
        let new: Vec<_> = other.values.into_iter().filter(|(option, _)| !self.has(option.long)).collect();
        self.values.extend(new);
    }

    /// All options, in the order given.
    pub(super) fn options(&self) -> impl Iterator<Item = (&'static Opt, &str)> {
        self.values.iter().map(|(option, value)| (*option, value.as_str()))
    }

    pub(super) fn has(&self, long: &str) -> bool {
        self.text(long).is_some()
    }

    pub(super) fn text(&self, long: &str) -> Option<&str> {
        self.all(long).next()
    }

    pub(super) fn all(&self, long: &str) -> impl Iterator<Item = &str> {
        self.options().filter(move |(option, _)| option.long == long).map(|(_, value)| value)
    }

    pub(super) fn number(&self, long: &str) -> Option<i64> {
        self.text(long).and_then(number)
    }
}

fn number(text: &str) -> Option<i64> {
    text.parse().ok()
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

    fn parse(line: &str, loose: Loose) -> Result<String, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let given = Given::parse(&words, loose)?;
        Ok(given.options().map(|(option, value)| format!("{}={value} ", option.long)).collect())
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
            assert_eq!(parse(line, Loose::Refused).as_deref(), Ok(expected), "{line}");
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
            ("--port", "the required argument for option '--port' is missing"),
            ("-p", "the required argument for option '--port' is missing"),
            ("--port=", "the argument for option '--port' should follow immediately after the equal sign"),
            ("--daemon=yes", "option '--daemon' does not take any arguments"),
            ("--threads=x", "the argument ('x') for option '--threads' is invalid"),
            ("-R -R", "option '--round-robin' cannot be specified more than once"),
            ("--port 1 -p 2", "option '--port' cannot be specified more than once"),
        ];
        for (line, expected) in table {
            assert_eq!(parse(line, Loose::Refused), Err(expected.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_file_may_have_words_that_are_not_options() {
        assert_eq!(parse("# a port --port=1 port=2 - \n -R", Loose::Skipped).as_deref(), Ok("port=1 round-robin= "));
        assert_eq!(parse("--nonsense", Loose::Skipped), Err("unrecognised option '--nonsense'".to_owned()));
    }

    #[test]
    fn the_command_line_overrides_the_file() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut given = Given::parse(&words("--port 1 -R"), Loose::Refused).unwrap();
        given.fill_from(Given::parse(&words("--port 2 --threads 3"), Loose::Skipped).unwrap());
        assert_eq!((given.text("port"), given.number("threads"), given.has("daemon")), (Some("1"), Some(3), false));
    }
}
