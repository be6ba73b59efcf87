//! The command-line grammar and the `--help` text.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use windlass_bench::Alone;
use windlass_config::{Words, is_near};
use windlass_http::Grant;
#[cfg(feature = "migrate")]
use windlass_migrate::{Bridge, Import};
use windlass_operate::{Check, Export, Operate};

use crate::completion::Shell;
use crate::settings::Settings;

const AFTER_HELP: &str = "\
First questions:
  windlass status      how many jobs are there, and does the daemon work?
  windlass job ID      why does this job not run, and who has it?
  windlass queues      what waits, for how long, and who works on it?

`windlass --help` has examples, the environment, signals and exit codes.";

const AFTER_LONG_HELP: &str = include_str!("help/all.txt").trim_ascii_end();

/// A durable job queue that speaks the protocols of Gearman, Faktory, spiderq and EventMQ.
///
/// Without a command, it runs the daemon.
#[derive(Debug, Parser)]
#[command(
    name = "windlass",
    version = env!("BUILD"),
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = AFTER_HELP,
    after_long_help = AFTER_LONG_HELP
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

/// The options of `serve`.
#[derive(Debug, Default, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// If data is damaged or missing, set it aside and start with the rest.
    #[arg(long)]
    pub(crate) accept_loss: bool,
    /// For integration tests: free loopback ports, everything in memory, and one line of JSON with all
    /// addresses on standard output once they are served.
    #[arg(long, conflicts_with_all = ["accept_loss", "data_dir"])]
    pub(crate) ephemeral: bool,
}

/// A store that no daemon uses.
#[derive(Debug, Args)]
pub(crate) struct Stored {
    /// The data directory of a daemon that is not running, or its database (postgres://…).
    #[arg(value_name = "DIR|URL")]
    pub(crate) place: OsString,
    /// Set one key of the section `postgres`, as in --set postgres.password_file=FILE; may be repeated.
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// The options of `move`.
#[derive(Debug, Args)]
pub(crate) struct Move {
    /// The destination: a database (postgres://…) to move the data directory to; or a data directory to move the configured database to.
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) to: OsString,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// A login.
#[derive(Debug, Args)]
pub(crate) struct NewLogin {
    /// Its name.
    pub(crate) name: String,
    /// What it may do: read, operate or admin; or a list of the only namespaces that it sees, with a role in each, as in
    /// shop:operate,mail:read.
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Grant,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon in the foreground (the default).
    Serve(Serve),
    /// Check whether a daemon could start: the configuration, the names of addresses, the data directory. With --live,
    /// check the running daemon, with the exit codes of Nagios.
    Check(Box<Check>),
    /// Print every configuration key with its default and an explanation.
    Config,
    /// Check a data directory or a database, without starting a daemon or changing anything.
    Verify(Stored),
    /// Compact a data directory or a store in a database.
    Compact(Stored),
    /// Write all readable jobs of a data directory or a database to standard output, one line of JSON each, even if
    /// the daemon cannot start from it.
    Salvage(Stored),
    /// Move everything from the data directory to a database, or back, while the daemon is stopped. The old store is kept
    /// aside.
    Move(Box<Move>),
    /// Run with gearmand's options, as does a link to this program named gearmand.
    #[command(disable_help_flag = true)]
    Gearmand {
        /// gearmand's options; --help explains the effect of each.
        #[arg(
            value_name = "OPTION",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        words: Vec<OsString>,
    },
    /// Run with Faktory's options, variables and configuration, as does a link to this program named faktory.
    #[command(disable_help_flag = true)]
    Faktory {
        /// Faktory's options; -h explains the effect of each.
        #[arg(
            value_name = "OPTION",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        words: Vec<OsString>,
    },
    /// Benchmark a temporary daemon, or a running one with --at. Fails if any job is lost or
    /// duplicated.
    Bench(Alone),
    /// Print a line for the file http.logins: a person with a password, which is asked for, or read from standard
    /// input.
    Password(NewLogin),
    /// Print a line for the file http.logins: a program with a new token. The token itself is written to standard
    /// error, once.
    Token(NewLogin),
    /// Make a pair of keys for ZeroMQ's CURVE: the secret key goes to standard output, for curve_secret_key_file, and
    /// the public key, for the clients, to standard error.
    CurveKeypair,
    /// Explain an exit code, an error code, or why a job does not run; without a code, list all.
    Explain {
        /// The code: 4, lease_not_held, unserved.
        code: Option<String>,
    },
    /// Print shell completions.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the words that may stand next on a command line, for the scripts of shells.
    #[command(hide = true)]
    Complete {
        /// The words behind the program's name, up to the one that is being typed.
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// Write manual pages to a directory.
    Man {
        /// The directory, created if missing.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Write everything that a daemon keeps, as of one commit, one line of JSON each: a copy that `import jsonl`
    /// restores.
    Export(Box<Export>),
    /// Commands for the running daemon.
    #[command(flatten)]
    Operate(Box<Operate>),
    /// Import jobs from another server or from an export, while neither that server nor the daemon runs (schedules of
    /// EventMQ: while the daemon runs).
    #[cfg(feature = "migrate")]
    #[command(subcommand)]
    Import(Import),
    /// Move all jobs from another broker to this daemon while producers are still connected.
    #[cfg(feature = "migrate")]
    Bridge(Box<Bridge>),
}

/// The command to run, or clap's error, help or version text. Options may stand before their command.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    let parsed = Arguments::try_parse_from(command_first(words.into_iter().collect()));
    parsed
        .map(|Arguments { command, serve }| command.unwrap_or(Command::Serve(serve)))
        .map_err(without_far_tip)
}

/// Removes a tip that names an option which was hardly meant.
fn without_far_tip(mut mistake: clap::Error) -> clap::Error {
    if let (Some(ContextValue::String(given)), Some(ContextValue::String(tip))) = (
        mistake.get(ContextKind::InvalidArg),
        mistake.get(ContextKind::SuggestedArg),
    ) && !is_near(given.trim_start_matches('-'), tip.trim_start_matches('-'))
    {
        mistake.remove(ContextKind::SuggestedArg);
        // It has the option, too.
        mistake.remove(ContextKind::Usage);
    }
    mistake
}

/// The words with the command, and its own command if it has some, in front of the options before them.
fn command_first(mut words: Vec<OsString>) -> Vec<OsString> {
    let grammar = grammar();
    let (mut place, mut command) = (1, &grammar);
    while let Some(found) = words
        .iter()
        .enumerate()
        .skip(place)
        .find_map(is_no_option(&grammar))
    {
        let word = words.remove(found);
        let known = word.to_str().and_then(|name| command.find_subcommand(name));
        words.insert(place, word);
        place += 1;
        match known.filter(|known| known.has_subcommands()) {
            Some(known) => command = known,
            None => break,
        }
    }
    words
}

/// Finds the place of the first word that is neither an option nor an option's value.
fn is_no_option(grammar: &clap::Command) -> impl FnMut((usize, &OsString)) -> Option<usize> {
    let mut is_value = false;
    move |(place, word)| {
        let word = word.to_string_lossy();
        let is_option = word.starts_with('-');
        let found = !is_option && !is_value;
        is_value = is_option && !is_value && valued(grammar, &word).is_some();
        found.then_some(place)
    }
}

/// The option of this command, or of any below it, that the word is, if its value is the next word.
pub(crate) fn valued<'a>(command: &'a clap::Command, word: &str) -> Option<&'a clap::Arg> {
    let is_it = |option: &&clap::Arg| match (word.strip_prefix("--"), word.strip_prefix('-')) {
        (Some(long), _) => option.get_long() == Some(long),
        (None, short) => option.get_short().map(String::from).as_deref() == short,
    };
    let own = command
        .get_arguments()
        .find(|option| is_it(option) && option.get_action().takes_values());
    own.or_else(|| {
        command
            .get_subcommands()
            .find_map(|command| valued(command, word))
    })
}

/// The grammar, for completions and manual pages.
pub(crate) fn grammar() -> clap::Command {
    Arguments::command()
}

/// Prints clap's text and returns the exit code.
pub(crate) fn answer(said: &clap::Error) -> u8 {
    if !said.use_stderr() {
        // The user asked for help or the version. A closed standard output is not an error.
        let _ = said.print();
        return 0;
    }
    let _ = writeln!(io::stderr(), "windlass: {}", reason(said));
    2
}

/// What is wrong with a command line.
pub(crate) fn reason(mistake: &clap::Error) -> String {
    let text = mistake.render().to_string();
    Words::OPTION.of(text.strip_prefix("error: ").unwrap_or(&text))
}

/// Whether the words, which are no command, were meant as `check --live`.
pub(crate) fn is_live_check(words: impl IntoIterator<Item = OsString>) -> bool {
    let words: Vec<OsString> = words.into_iter().skip(1).collect();
    ["check", "--live"]
        .iter()
        .all(|part| words.iter().any(|word| word == part))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use windlass_engine::Protocol;

    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// The options are in a crate that has no list of protocols.
    #[test]
    fn only_takes_every_protocol_of_jobs() {
        let grammar = grammar();
        let mut arguments = grammar.get_arguments();
        let only = arguments.find(|it| it.get_id() == "only").unwrap();
        let values = only.get_possible_values();
        let known: BTreeSet<&str> = values.iter().map(|it| it.get_name()).collect();
        let all = Protocol::ALL.iter().filter(|row| row.id != Protocol::HTTP);
        assert_eq!(known, all.map(|row| row.name).collect());
    }

    fn parsed(line: &str) -> Result<Command, clap::Error> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn without_a_command_it_serves() {
        for line in [
            "windlass",
            "windlass -c f",
            "windlass --set a=b --data-dir d",
            "windlass serve --durability sync",
            "windlass --accept-loss",
            "windlass serve --accept-loss",
        ] {
            assert!(matches!(parsed(line), Ok(Command::Serve(_))), "{line}");
        }
        assert!(matches!(
            parsed("windlass check -c f"),
            Ok(Command::Check(_))
        ));
        assert!(matches!(parsed("windlass config"), Ok(Command::Config)));
    }

    #[test]
    fn options_may_stand_before_their_command() {
        for line in [
            "windlass -c f check",
            "windlass --data-dir check check --live",
            "windlass --live --age-warning 1h check",
        ] {
            assert!(matches!(parsed(line), Ok(Command::Check(_))), "{line}");
        }
        for line in [
            "windlass --json status",
            "windlass --url http://h --limit 3 jobs",
            "windlass --data-dir d push q body",
        ] {
            assert!(matches!(parsed(line), Ok(Command::Operate(_))), "{line}");
        }
        for line in [
            "windlass -c f cron",
            "windlass cron -c f",
            "windlass --set a=b schedules",
        ] {
            assert!(matches!(parsed(line), Ok(Command::Operate(_))), "{line}");
        }
        assert!(
            matches!(parsed("windlass --data-dir status"), Ok(Command::Serve(_))),
            "a value"
        );
        #[cfg(feature = "migrate")]
        assert!(matches!(
            parsed("windlass --data-dir d import jsonl f"),
            Ok(Command::Import(_))
        ));
    }

    #[test]
    fn a_mistake_behind_options_is_named() {
        let table = [
            (
                "windlass -c f retry abc",
                "invalid value 'abc' for '[IDS]...'",
            ),
            ("windlass -c f pause", "<QUEUES>..."),
            ("windlass -c f jobs --limit2 3", "'--limit'"),
            (
                "windlass --url http://127.0.0.1:7420 jobs --limit2 3",
                "'--limit'",
            ),
            ("windlass -c f status2", "'status'"),
            ("windlass push q --dely 5s", "'--delay'"),
            ("windlass --set=a=b status2", "'status'"),
            ("windlass --data-dir data top --help", "Usage: windlass top"),
            ("windlass -c f pause -h", "Usage: windlass pause"),
            ("windlass --json cron --help", "Usage: windlass schedules"),
        ];
        for (line, expected) in table {
            let text = parsed(line).expect_err(line).render().to_string();
            assert!(text.contains(expected), "{line}: {text}");
        }
    }

    #[test]
    fn reasons_are_in_words_and_tips_are_near() {
        let said = |line: &str| reason(&parsed(line).expect_err(line));
        assert!(
            said("windlass throttle q --concurrency many").contains("a whole number is expected")
        );
        assert!(said("windlass push q --priority 300").contains("300 is not between 0 and 255"));
        assert!(said("windlass top --every 5").contains("`5` has no unit"));
        let far = said("windlass push q --at tomorrow");
        assert!(
            far.starts_with("unexpected argument '--at' found") && !far.contains("--data-dir"),
            "{far}"
        );
    }

    #[test]
    fn help_of_a_client_begins_with_its_own_options() {
        let help = parsed("windlass push --help")
            .expect_err("help")
            .render()
            .to_string();
        let place = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text}: {help}"));
        assert!(
            place("--delay") < place("--json") && place("--retries") < place("The daemon:"),
            "{help}"
        );
        assert!(
            place("The daemon:") < place("--data-dir") && place("The daemon:") < place("--url"),
            "{help}"
        );
        for other in ["--only", "--durability", "--log-level", "--log-format"] {
            assert!(!help.contains(other), "{other}: {help}");
        }
        assert!(
            parsed("windlass --log-level warn status").is_ok(),
            "they are known, for the files of services"
        );
    }

    #[test]
    fn mistakes_are_refused() {
        let table = [
            "windlass swerve",
            "windlass -c",
            "windlass -c f config",
            "windlass config -c f",
            "windlass serve f",
            "windlass --durability maybe",
            "windlass --log-format xml",
        ];
        for line in table {
            assert!(
                parsed(line).is_err_and(|error| error.use_stderr()),
                "{line}"
            );
        }
    }

    #[test]
    fn help_fits_a_terminal() {
        for line in AFTER_LONG_HELP.lines() {
            assert!(line.len() <= 80, "{line}");
        }
    }
}
