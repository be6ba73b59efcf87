//! The command line: its grammar, and everything `--help` says.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::import::Import;
use crate::settings::Settings;

const AFTER_HELP: &str = "`windlass --help` has examples, the environment, signals and exit codes.";

const AFTER_LONG_HELP: &str = "\
Examples:
  windlass
      Serve Gearman on 127.0.0.1:4730, Faktory on 7419, spiderq on 5555 and
      EventMQ on 47290 and 47291, with the data in ./windlass-data.
  windlass serve -c /etc/windlass.toml
      Serve what a file says.
  windlass --set 'gearman.listen=[\"0.0.0.0:4730\", \"unix:/run/gearman\"]'
      Serve elsewhere, without a file.
  windlass config > windlass.toml
      Begin a file of your own: every key, at its default, explained.
  windlass check -c windlass.toml
      Look a file over before a daemon is started with it.
  windlass verify /var/lib/windlass
      Say whether a daemon would start from this data with all of it.
  windlass salvage /var/lib/windlass > jobs.jsonl
      Save what can be read of a damaged data directory (exit code 4).
  windlass import jsonl jobs.jsonl
      Take back what was saved, or jobs of your own.
  windlass serve --accept-loss
      Start with what can be read, and set the damaged data aside.
  windlass gearmand --listen=localhost --pid-file=/run/gearman/gearmand.pid -d
      Serve with the command line that gearmand was started with.
  windlass faktory -b :7419 -e production
      Serve with the command line that Faktory was started with.
  windlass import gearmand-sqlite /var/spool/gearmand/queue.sqlite3
      Take over the jobs of a gearmand that has been stopped.
  windlass import faktory-redis unix:///tmp/faktory.sock
      Take over the jobs of a Faktory that has been stopped.
  windlass import spiderq-snapshot spiderq/snapshot
      Take over the keys of a spiderq that has been stopped.
  windlass --set spiderq.listen=ipc:///run/spiderq.ipc
      Serve where spiderq did.

Configuration:
  Every key is optional. No file is read unless -c names it. The environment
  overrides the file, --set the environment, the other options --set.

Environment:
  WINDLASS_<SECTION>_<KEY>
      Any key: WINDLASS_LOG_LEVEL=debug, WINDLASS_DATA_DIR=/var/lib/windlass,
      WINDLASS_GEARMAN_LISTEN=0.0.0.0:4730,unix:/run/gearman
      A variable that starts like this and is no key is an error, unless it is
      one of WINDLASS_TEST_*, WINDLASS_SIM_* and WINDLASS_BENCH_* (our tests)
      or one that Kubernetes sets for a service of this name.
  NO_COLOR=1
      No colours in the log. There are none but on a terminal.
  RUST_BACKTRACE=1
      A stack trace with a panic.

Signals:
  SIGTERM, SIGINT
      Stop: accept no more, send what is owed, commit, exit with 0. Whoever
      takes nothing of it for a second is hung up on, and whoever has not gone
      within server.shutdown_timeout.
  SIGUSR1
      Stop gracefully: accept no more, and stop when no connection works on a
      job or waits for the result of one. What is only queued is on the disk
      and is not waited for. A second signal to stop: now.
  SIGHUP
      Open log.file again, and read the files of TLS again: new connections get
      the new certificate.
  SIGTTIN
      Log connections, queues and threads.
  SIGKILL loses nothing that was acknowledged (durability = \"sync\").

Exit codes:
  0   stopped as told, or done
  1   could not go on (the store is dead, or a bug); starting again is safe
  2   bad usage or configuration
  3   cannot listen on an address, for instance because it is in use
  4   the data directory cannot be opened: another daemon has it, it is
      damaged, or may not be accessed
  5   not all of an import could be taken; what was is in the data directory.
      Not all could be salvaged; what could is on standard output
  The reason is on standard error, in a line that starts with `windlass: `.";

/// A job server for clients that nobody will rewrite: Gearman, Faktory, spiderq and EventMQ over one durable queue.
///
/// Without a command it serves.
#[derive(Debug, Parser)]
#[command(
    name = "windlass",
    version,
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

/// How the daemon is started.
#[derive(Debug, Default, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// If part of the data is lost, start with the rest; the damaged data is set aside.
    #[arg(long)]
    pub(crate) accept_loss: bool,
}

/// What the binary can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon in the foreground (the default).
    Serve(Serve),
    /// Say whether the configuration can be used and what would be served, and start nothing.
    Check(Settings),
    /// Print every configuration key, at its default, explained.
    Config,
    /// Say whether a data directory is in order, without starting a daemon or changing anything.
    Verify {
        /// The data directory of a daemon that is not running.
        #[arg(value_name = "DIR")]
        data_dir: PathBuf,
    },
    /// Make a data directory as small as it can be.
    Compact {
        /// The data directory of a daemon that is not running.
        #[arg(value_name = "DIR")]
        data_dir: PathBuf,
    },
    /// Write every job that can be read from a data directory to standard output, a line of JSON each, even if the daemon cannot start from it.
    Salvage {
        /// The data directory of a daemon that is not running.
        #[arg(value_name = "DIR")]
        data_dir: PathBuf,
    },
    /// Serve in gearmand's place, with gearmand's options; so does a link to this program that is named gearmand.
    #[command(disable_help_flag = true)]
    Gearmand {
        /// Options as gearmand takes them; --help explains what becomes of each.
        #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Serve in Faktory's place, with Faktory's options, variables and configuration; so does a link to this program that is named faktory.
    #[command(disable_help_flag = true)]
    Faktory {
        /// Options as Faktory takes them; -h explains what becomes of each.
        #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Take jobs over from another server, or back from an export, while neither it nor the daemon runs.
    #[command(subcommand)]
    Import(Import),
}

/// What is to be done, or what clap has to say instead.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    let Arguments { command, serve } = Arguments::try_parse_from(words)?;
    Ok(command.unwrap_or(Command::Serve(serve)))
}

/// Prints what clap has to say, and gives back what to exit with.
pub(crate) fn answer(said: &clap::Error) -> u8 {
    if !said.use_stderr() {
        // Help and version were asked for. A reader that has gone away has read enough.
        let _ = said.print();
        return 0;
    }
    let text = said.render().to_string();
    let reason = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let _ = writeln!(io::stderr(), "windlass: {reason}");
    2
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Arguments::command().debug_assert();
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
        assert!(matches!(parsed("windlass check -c f"), Ok(Command::Check(_))));
        assert!(matches!(parsed("windlass config"), Ok(Command::Config)));
    }

    #[test]
    fn mistakes_are_refused() {
        let table = [
            "windlass swerve",
            "windlass -c",
            "windlass -c f check",
            "windlass config -c f",
            "windlass serve f",
            "windlass --durability maybe",
            "windlass --log-format xml",
        ];
        for line in table {
            assert!(parsed(line).is_err_and(|error| error.use_stderr()), "{line}");
        }
    }

    #[test]
    fn help_fits_a_terminal() {
        for line in AFTER_LONG_HELP.lines() {
            assert!(line.len() <= 80, "{line}");
        }
    }
}
