//! A load generator that compares job servers: it starts two or more of them, gives each the same work in turn, and
//! prints the ratios of their figures.
//!
//! It is not a test of correctness, but it reports no figure for a run unless all jobs are accounted for: a job that is
//! lost, doubled or answered with another's result fails the run.
//!
//! Reading order: [`cases`] (the load as data), [`comparison`] (cases × peers × runs), [`run`] (one run of one case),
//! [`driver`] and [`tally`] (all connections of a run: the measured window, and what has happened to the jobs), [`links`]
//! (the connections), [`protocol`] (what a protocol adds); then one module per protocol: [`gearman`], [`faktory`], [`spiderq`]
//! and [`eventmq`]. Beside these: [`peers`] and [`servers`] (the servers under load), [`process`] (their cost), [`metric`],
//! [`stats`] and [`report`] (figures, tables, ratios). Each protocol has a codec of its own, separate from the daemon's, so that
//! both cannot share a mistake. Only ZeroMQ's transport ([`zmtp`]), under the last two, is the daemon's own.
//!
//! Invariants: every server is a child on loopback with its data in a temporary directory, and dies with its
//! [`servers::Server`]; the client side is one thread, so that its cost can be separated from the server's.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::comparison::{CaseResult, Comparison};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::links::Idle;
use crate::peers::{Durability, Peer, PeerName};
use crate::report::Report;

#[cfg(test)]
mod accounting;
mod cases;
mod comparison;
mod driver;
mod error;
mod eventmq;
mod faktory;
mod gearman;
mod interrupt;
mod links;
mod metric;
mod peers;
mod process;
mod protocol;
mod report;
mod run;
mod servers;
mod spiderq;
mod stamp;
mod stats;
mod tally;
mod zmtp;

/// Compare job servers under load: each gets the same work in turn; prints the ratios at the end.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    protocol: Protocol,
}

#[derive(Debug, Subcommand)]
enum Protocol {
    /// Gearman: windlass and gearmand.
    Gearman(GearmanArgs),
    /// Faktory's work protocol: windlass alone.
    Faktory(CommonArgs),
    /// spiderq over ZeroMQ's transport: windlass alone.
    Spiderq(CommonArgs),
    /// EventMQ over ZeroMQ's transport: windlass and the released router.
    Eventmq(EventmqArgs),
}

#[derive(Debug, Args)]
struct GearmanArgs {
    /// Servers to compare: windlass, windlass-unix (over a Unix socket), gearmand, gearmand-tN (N threads), gearmand-sqlite.
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        value_parser = PeerName::gearman,
        default_value = "windlass,gearmand-t0,gearmand-t1,gearmand-t4,gearmand-sqlite"
    )]
    peers: Vec<PeerName>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
struct EventmqArgs {
    /// Servers to compare: windlass, router [default: windlass, and router with --eventmq-venv].
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = PeerName::eventmq)]
    peers: Vec<PeerName>,
    /// The virtual environment with the released programs (see the README); without it there is no router and no
    /// JobManager.
    #[arg(long, value_name = "DIR")]
    eventmq_venv: Option<PathBuf>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
struct CommonArgs {
    /// Cases and groups of cases; --list names them.
    #[arg(long = "case", value_name = "NAME,…", value_delimiter = ',', default_value = "default")]
    cases: Vec<String>,
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
    /// Poll for answers all the time instead of sleeping: removes the generator's wake-up from latencies, and takes a core
    /// from the servers.
    #[arg(long)]
    spin: bool,
    /// The daemon [default: `windlass` beside this program].
    #[arg(long, value_name = "PATH")]
    windlass_bin: Option<PathBuf>,
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

impl CommonArgs {
    /// Runs or lists the cases of a protocol. Returns whether every run succeeded.
    fn run(&self, protocol: &protocol::Protocol, peers: &[PeerName], venv: Option<&Path>) -> Result<bool, Error> {
        if self.list {
            io::stdout().write_all(protocol.cases.list().as_bytes()).map_err(Error::io("write the list"))?;
            return Ok(true);
        }
        let comparison = Comparison {
            cases: self.cases.clone(),
            peers: peers.to_vec(),
            durabilities: self.durability.clone(),
            runs: usize::try_from(self.runs).unwrap_or(1),
            seconds: self.seconds,
            jobs: self.jobs,
            idle: if self.spin { Idle::Spin } else { Idle::Sleep },
            windlass_bin: self.windlass_bin.clone(),
            venv: venv.map(Path::to_owned),
            data_root: self.data_root.clone().unwrap_or_else(std::env::temp_dir),
        };
        self.keep(comparison.hold(protocol, &Interrupt::install()?, show)?)
    }

    /// Writes the requested files. Returns whether every run succeeded.
    fn keep(&self, mut report: Report) -> Result<bool, Error> {
        report.facts.push(("command".to_owned(), std::env::args().skip(1).collect::<Vec<_>>().join(" ")));
        if let Some(path) = &self.out {
            write(path, &report.to_markdown())?;
        }
        if let Some(path) = &self.json {
            write(path, &json(&report)?)?;
        }
        Ok(!report.has_failures())
    }
}

fn main() -> ExitCode {
    let windlass = [PeerName::WINDLASS];
    let outcome = match Cli::parse().protocol {
        Protocol::Gearman(args) => args.common.run(&gearman::GEARMAN, &args.peers, None),
        Protocol::Faktory(common) => common.run(&faktory::FAKTORY, &windlass, None),
        Protocol::Spiderq(common) => common.run(&spiderq::SPIDERQ, &windlass, None),
        Protocol::Eventmq(args) => {
            let released = args.eventmq_venv.as_ref().map(|_| PeerName::One(Peer::Router));
            let peers = match args.peers.as_slice() {
                [] => windlass.into_iter().chain(released).collect(),
                named => named.to_vec(),
            };
            args.common.run(&eventmq::EVENTMQ, &peers, args.eventmq_venv.as_deref())
        }
    };
    outcome.map_or_else(
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
        let Protocol::Gearman(args) = Cli::try_parse_from(words).unwrap().protocol else { panic!() };
        assert_eq!(args.common.cases, ["bg-1", "pipe-8"]);
        assert_eq!(args.peers, [PeerName::One(Peer::Gearmand { threads: Some(0) }), PeerName::WINDLASS]);
        assert_eq!(args.common.durability, [Durability::Sync, Durability::Interval]);
        assert!(Cli::try_parse_from(["windlass-bench", "gearman", "--peers", "nobody"]).is_err());
    }
}
