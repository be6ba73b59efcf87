//! Completions. The script of a shell asks `windlass complete` for the words that may stand next: they come from the
//! grammar, and from the running daemon, which knows its queues and jobs.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command, ValueEnum};
use windlass_operate::Operate;

use crate::arguments::{parse, valued};

/// The command whose options tell where the daemon is.
const STATUS: &str = "status";

/// The shells that have a script.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Fish,
    Zsh,
}

impl Shell {
    pub(crate) const fn script(self) -> &'static str {
        match self {
            Self::Bash => include_str!("windlass.bash"),
            Self::Fish => include_str!("windlass.fish"),
            Self::Zsh => include_str!("windlass.zsh"),
        }
    }
}

/// A word, and what it means.
pub(crate) type Candidate = (String, String);

/// What stands before the word that is being typed.
#[derive(Clone, Debug)]
pub(crate) struct Line<'a> {
    /// The innermost command.
    command: &'a Command,
    /// The option whose value comes next.
    option: Option<&'a Arg>,
    /// Words that are neither commands nor options.
    words: usize,
    /// The options, each with its value.
    options: Vec<Vec<&'a str>>,
}

impl<'a> Line<'a> {
    fn read(grammar: &'a Command, before: &'a [String]) -> Self {
        let mut line = Self {
            command: grammar,
            option: None,
            words: 0,
            options: Vec::new(),
        };
        for word in before {
            let command = line
                .command
                .find_subcommand(word)
                .filter(|_| line.words == 0);
            match (line.option.take(), command) {
                (Some(_), _) => line
                    .options
                    .last_mut()
                    .into_iter()
                    .for_each(|option| option.push(word)),
                (None, _) if word.starts_with('-') => {
                    line.option = valued(line.command, word).or_else(|| valued(grammar, word));
                    line.options.push(vec![word]);
                }
                (None, Some(command)) => line.command = command,
                (None, None) => line.words += 1,
            }
        }
        line
    }

    /// A command that asks the daemon which the options name.
    pub(crate) fn asker(&self, grammar: &Command) -> Option<Operate> {
        let status = grammar.find_subcommand(STATUS)?;
        // The option that is being typed has no value yet.
        let whole = self.options.len() - usize::from(self.option.is_some());
        let options = self.options.iter().take(whole).filter(|option| {
            option
                .first()
                .is_some_and(|it| valued(status, it.split('=').next().unwrap_or(it)).is_some())
        });
        let words = ["windlass", STATUS]
            .into_iter()
            .chain(options.flatten().copied());
        match parse(words.map(OsString::from)) {
            Ok(crate::arguments::Command::Operate(asker)) => Some(*asker),
            _ => None,
        }
    }

    /// The argument that the next word is.
    fn argument(&self) -> Option<&'a Arg> {
        let last = || {
            self.command
                .get_positionals()
                .last()
                .filter(|it| matches!(it.get_action(), ArgAction::Append))
        };
        self.command.get_positionals().nth(self.words).or_else(last)
    }

    fn commands(&self) -> Vec<Candidate> {
        let shown = self
            .command
            .get_subcommands()
            .filter(|command| !command.is_hide_set() && self.words == 0);
        let named = |command: &Command| {
            let about = meaning(command.get_about());
            let names = std::iter::once(command.get_name()).chain(command.get_visible_aliases());
            names
                .map(|name| (name.to_owned(), about.clone()))
                .collect::<Vec<_>>()
        };
        shown.flat_map(named).collect()
    }

    fn options(&self) -> Vec<Candidate> {
        let shown = self
            .command
            .get_arguments()
            .filter(|option| !option.is_hide_set());
        shown
            .filter_map(|option| {
                Some((
                    format!("--{}", option.get_long()?),
                    meaning(option.get_help()),
                ))
            })
            .collect()
    }
}

fn meaning(help: Option<&clap::builder::StyledStr>) -> String {
    let text = help.map(ToString::to_string).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

/// What may stand in the place of the last word. `names` has the daemon's names for the value of an argument, given the
/// line, the command, and the argument.
pub(crate) fn candidates(
    grammar: &Command,
    words: &[String],
    names: impl Fn(&Line<'_>, &str, &str) -> Vec<Candidate>,
) -> Vec<Candidate> {
    let Some((typed, before)) = words.split_last() else {
        return Vec::new();
    };
    let line = Line::read(grammar, before);
    let values = |of: &Arg| -> Vec<Candidate> {
        let values = of
            .get_possible_values()
            .into_iter()
            .filter(|value| !value.is_hide_set());
        let values: Vec<_> = values
            .map(|it| (it.get_name().to_owned(), meaning(it.get_help())))
            .collect();
        if values.is_empty() {
            names(&line, line.command.get_name(), of.get_id().as_str())
        } else {
            values
        }
    };
    let mut found = match (line.option, typed.split_once('=')) {
        (Some(option), _) => values(option),
        (None, Some((option, _))) if option.starts_with("--") => {
            let found = valued(line.command, option).map(values).unwrap_or_default();
            found
                .into_iter()
                .map(|(value, meaning)| (format!("{option}={value}"), meaning))
                .collect()
        }
        (None, _) if typed.starts_with('-') => line.options(),
        (None, _) => [
            line.commands(),
            line.argument().map(values).unwrap_or_default(),
        ]
        .concat(),
    };
    found.retain(|(word, _)| word.starts_with(typed.as_str()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::grammar;

    /// The words that are offered. The daemon has one name: `COMMAND.ARGUMENT`.
    fn found(line: &str) -> Vec<String> {
        let mut grammar = grammar();
        grammar.build();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let names = |_: &Line<'_>, command: &str, argument: &str| {
            vec![(format!("{command}.{argument}"), String::new())]
        };
        candidates(&grammar, &words, names)
            .into_iter()
            .map(|(word, _)| word)
            .collect()
    }

    #[test]
    fn the_next_word_comes_from_the_grammar_or_the_daemon() {
        let table: [(&str, &[&str]); 20] = [
            ("pau", &["pause"]),
            ("cro", &["cron"]),
            ("completio", &["completions"]),
            ("-c f stat", &["status"]),
            ("--set pause stat", &["status"]),
            ("-n shop queue", &["queues"]),
            ("-n ", &["windlass.namespace"]),
            ("namespace pause ", &["namespace.named"]),
            ("jobs --state de", &["dead"]),
            ("jobs --state=de", &["--state=dead"]),
            ("jobs --old", &["--older-than"]),
            ("-c f cron --log", &["--login"]),
            ("schedule ru", &["run"]),
            ("schedule run 1 ", &["schedule.ids"]),
            ("pause ", &["pause.queues"]),
            ("pause a b ", &["pause.queues"]),
            ("clear ", &["clear.queue"]),
            ("clear a ", &[]),
            ("-c f jobs --queue ", &["jobs.queue"]),
            ("jobs --queue a --state ready --lim", &["--limit"]),
        ];
        for (line, expected) in table {
            assert_eq!(found(line), expected, "{line}");
        }
    }

    #[test]
    fn the_daemon_is_the_one_that_the_line_names() {
        let (grammar, words) = (
            grammar(),
            ["-c", "f", "--json", "jobs", "--limit", "3", "--data-dir=d"],
        );
        let line = Line {
            command: &grammar,
            option: None,
            words: 0,
            options: Vec::new(),
        };
        assert!(line.asker(&grammar).is_some(), "none is named");
        let words = words.map(str::to_owned);
        let shown = format!("{:?}", Line::read(&grammar, &words).asker(&grammar));
        assert!(
            shown.contains("file: Some(\"f\")") && shown.contains("data_dir: Some(\"d\")"),
            "{shown}"
        );
    }
}
