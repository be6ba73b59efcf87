//! The command line of `windlass-bench`: which cases, which servers, how often.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use crate::cases::Case;
use crate::comparison::{CaseResult, Comparison, Setup};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::peers::{Durability, Peer};
use crate::report::{self, Report};
use crate::{cases, table, tenants};

/// Compare job servers under load: each gets the same work in turn; prints the ratios at the end.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    /// Whose cases to run.
    cases_of: Set,
    /// Cases and groups of cases; --list names them.
    #[arg(
        long = "case",
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "default"
    )]
    cases: Vec<String>,
    /// Servers to compare: windlass, windlass-unix (over a Unix socket), windlass-watched (while it is scraped),
    /// windlass-fair (100,000 keys take turns), windlass-history (it keeps a history), gearmand, gearmand-tN (N threads), gearmand-sqlite,
    /// redis-{no,everysec,always}, beanstalkd, beanstalkd-{no,50ms,always}, router [default: all that are installed].
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    peers: Vec<String>,
    /// The durability settings to run windlass with.
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "sync,interval"
    )]
    durability: Vec<Durability>,
    #[command(flatten)]
    setup: Setup,
    /// Write every sample as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables as Markdown.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// List cases and groups, and exit.
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Set {
    /// Gearman: windlass and gearmand; also redis and beanstalkd.
    Gearman,
    /// Faktory's work protocol: windlass alone.
    Faktory,
    /// spiderq over ZeroMQ's transport: windlass alone.
    Spiderq,
    /// EventMQ over ZeroMQ's transport: windlass and the released router.
    Eventmq,
    /// The rows that show where windlass stands, with all peers, also over a Unix socket.
    Summary,
    /// Gearman: what a hostile tenant costs another of windlass; a case for each way to be hostile.
    Tenants,
}

/// All peers; a case has those that speak its protocol.
const PEERS: &str = "windlass,gearmand-t0,gearmand-t1,gearmand-t4,gearmand-sqlite,redis-no,redis-everysec,redis-always,\
                     beanstalkd,beanstalkd-no,beanstalkd-50ms,beanstalkd-always,router";

impl Cli {
    fn all_cases(&self) -> Vec<Case> {
        match self.cases_of {
            Set::Gearman => table::gearman(),
            Set::Faktory => table::faktory(),
            Set::Spiderq => table::spiderq(),
            Set::Eventmq => table::eventmq(),
            Set::Summary => table::summary(),
            Set::Tenants => Vec::new(),
        }
    }

    fn peers(&self) -> Result<Vec<Peer>, Error> {
        let unix = (self.cases_of == Set::Summary).then_some("windlass-unix");
        let names: Vec<&str> = match self.peers.as_slice() {
            [] => unix.into_iter().chain(PEERS.split(',')).collect(),
            named => named.iter().map(String::as_str).collect(),
        };
        let named = |name| {
            let unknown = || Error::Usage(format!("unknown peer {name:?}; see --help"));
            Peer::named(name, &self.durability).ok_or_else(unknown)
        };
        Ok(names
            .into_iter()
            .map(named)
            .collect::<Result<Vec<_>, _>>()?
            .concat())
    }

    /// Runs or lists cases. Returns whether every run succeeded.
    fn run(self) -> Result<bool, Error> {
        let all = self.all_cases();
        let of_tenants = self.cases_of == Set::Tenants;
        if self.list {
            let list = if of_tenants {
                tenants::list()
            } else {
                cases::list(&all)
            };
            io::stdout()
                .write_all(list.as_bytes())
                .map_err(Error::io("write the list"))?;
            return Ok(true);
        }
        let interrupt = Interrupt::install()?;
        let mut report = if of_tenants {
            let hostile = tenants::by_names(&self.cases)?;
            tenants::hold(&hostile, &self.durability, &self.setup, &interrupt, show)?
        } else {
            let (cases, peers) = (cases::by_names(&all, &self.cases)?, self.peers()?);
            let comparison = Comparison {
                cases,
                peers,
                skips_missing: self.peers.is_empty(),
                setup: self.setup.clone(),
            };
            comparison.hold(&interrupt, show)?
        };
        report.facts.push((
            "command".to_owned(),
            std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        ));
        if let Some(path) = &self.out {
            write(path, &report.text())?;
        }
        if let Some(path) = &self.json {
            write(path, &json(&report)?)?;
        }
        Ok(!report.has_failures())
    }
}

/// Runs the command line of `windlass-bench`.
#[must_use]
pub fn compare() -> ExitCode {
    Cli::parse().run().map_or_else(
        |error| {
            eprintln!("windlass-bench: {error}");
            ExitCode::FAILURE
        },
        |succeeded| {
            if succeeded {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        },
    )
}

fn show(case: &CaseResult) {
    // The reader may close the pipe; the requested files are still written.
    let _ = io::stdout().write_all(report::case_text(case).as_bytes());
}

fn json(report: &Report) -> Result<String, Error> {
    serde_json::to_string_pretty(report).map_err(|error| Error::io("write JSON")(error.into()))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(Error::io(format!("write {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lists_are_split_at_commas() {
        let words = [
            "windlass-bench",
            "gearman",
            "--case",
            "bg-1,pipe-8",
            "--peers",
            "gearmand-t0,windlass",
        ];
        let cli = Cli::try_parse_from(words).unwrap();
        assert_eq!(cli.cases, ["bg-1", "pipe-8"]);
        let names: Vec<_> = cli.peers().unwrap().iter().map(Peer::to_string).collect();
        assert_eq!(names, ["gearmand-t0", "windlass-sync", "windlass-interval"]);
        assert!(
            Cli::try_parse_from(["windlass-bench", "gearman", "--peers", "nobody"])
                .unwrap()
                .peers()
                .is_err()
        );
        assert_eq!(
            Cli::try_parse_from(["windlass-bench", "summary"])
                .unwrap()
                .peers()
                .unwrap()
                .len(),
            16
        );
    }
}
