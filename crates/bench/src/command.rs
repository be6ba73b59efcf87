//! The command line of `windlass-bench`: which cases, which servers, how often.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use crate::cases::Case;
use crate::comparison::{CaseResult, Comparison};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::links::Idle;
use crate::peers::{Durability, Peer};
use crate::report::{self, Report};
use crate::{cases, table};

/// Compare job servers under load: each gets the same work in turn; prints the ratios at the end.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    /// Whose cases to run.
    cases_of: Set,
    /// Cases and groups of cases; --list names them.
    #[arg(long = "case", value_name = "NAME,…", value_delimiter = ',', default_value = "default")]
    cases: Vec<String>,
    /// Servers to compare: windlass, windlass-unix (over a Unix socket), windlass-watched (while it is scraped),
    /// gearmand, gearmand-tN (N threads), gearmand-sqlite, redis-{no,everysec,always}, beanstalkd,
    /// beanstalkd-{no,50ms,always}, router [default: all that are installed].
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    peers: Vec<String>,
    /// Runs per case and server; figures are medians over them.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Length of the measured window of a steady load.
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Measure this number of jobs instead of a time (no effect on cases with a fixed number of jobs).
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(10..))]
    jobs: Option<u64>,
    /// The durability settings to run windlass with.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "sync,interval")]
    durability: Vec<Durability>,
    /// Poll for answers all the time instead of sleeping: removes the generator's wake-up from latencies, and takes a
    /// core from the servers.
    #[arg(long)]
    spin: bool,
    /// The daemon [default: `windlass` beside this program].
    #[arg(long, value_name = "PATH")]
    windlass_bin: Option<PathBuf>,
    /// The virtual environment with EventMQ's released programs (see the README); without it there is no router and no
    /// JobManager.
    #[arg(long, value_name = "DIR")]
    eventmq_venv: Option<PathBuf>,
    /// The folder for the servers' data, on the disk to measure [default: the folder for temporary files].
    #[arg(long, value_name = "DIR")]
    data_root: Option<PathBuf>,
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
    /// The rows that say where windlass stands, with all peers, also over a Unix socket.
    Summary,
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
        Ok(names.into_iter().map(named).collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// Runs or lists cases. Returns whether every run succeeded.
    fn run(self) -> Result<bool, Error> {
        let all = self.all_cases();
        if self.list {
            io::stdout().write_all(cases::list(&all).as_bytes()).map_err(Error::io("write the list"))?;
            return Ok(true);
        }
        let comparison = Comparison {
            cases: cases::by_names(&all, &self.cases)?,
            peers: self.peers()?,
            skips_missing: self.peers.is_empty(),
            runs: usize::try_from(self.runs).unwrap_or(1),
            seconds: self.seconds,
            jobs: self.jobs,
            idle: if self.spin { Idle::Spin } else { Idle::Sleep },
            windlass_bin: self.windlass_bin,
            venv: self.eventmq_venv,
            data_root: self.data_root.unwrap_or_else(std::env::temp_dir),
        };
        let mut report = comparison.hold(&Interrupt::install()?, show)?;
        report.facts.push(("command".to_owned(), std::env::args().skip(1).collect::<Vec<_>>().join(" ")));
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
        |succeeded| if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE },
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
        let words = ["windlass-bench", "gearman", "--case", "bg-1,pipe-8", "--peers", "gearmand-t0,windlass"];
        let cli = Cli::try_parse_from(words).unwrap();
        assert_eq!(cli.cases, ["bg-1", "pipe-8"]);
        let names: Vec<_> = cli.peers().unwrap().iter().map(Peer::to_string).collect();
        assert_eq!(names, ["gearmand-t0", "windlass-sync", "windlass-interval"]);
        assert!(Cli::try_parse_from(["windlass-bench", "gearman", "--peers", "nobody"]).unwrap().peers().is_err());
        assert_eq!(Cli::try_parse_from(["windlass-bench", "summary"]).unwrap().peers().unwrap().len(), 16);
    }
}
