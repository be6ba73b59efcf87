//! `windlass-bench`: the command line. The library does the work; each protocol is a sub-command.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use windlass_bench::compare::CaseResult;
use windlass_bench::error::Error;
use windlass_bench::eventmq::peers::PeerName as EventmqPeerName;
use windlass_bench::gearman::peers::PeerName;
use windlass_bench::interrupt::Interrupt;
use windlass_bench::load::client::Idle;
use windlass_bench::report::{self, Report};
use windlass_bench::settings::Settings;
use windlass_bench::windlass::Durability;
use windlass_bench::{eventmq, faktory, gearman, solo, spiderq};

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
        default_value = "windlass,gearmand-t0,gearmand-t1,gearmand-t4,gearmand-sqlite"
    )]
    peers: Vec<PeerName>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
struct EventmqArgs {
    /// Servers to compare: windlass, router [default: windlass, and router with --eventmq-venv].
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    peers: Vec<EventmqPeerName>,
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
    fn settings(&self) -> Settings {
        Settings {
            runs: usize::try_from(self.runs).unwrap_or(1),
            seconds: self.seconds,
            jobs: self.jobs,
            idle: if self.spin { Idle::Spin } else { Idle::Sleep },
            windlass_bin: self.windlass_bin.clone(),
            data_root: self.data_root.clone().unwrap_or_else(std::env::temp_dir),
        }
    }

    fn solo(&self) -> solo::Options {
        solo::Options { durabilities: self.durability.clone(), settings: self.settings() }
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
    let outcome = match Cli::parse().protocol {
        Protocol::Gearman(args) => gearman(&args),
        Protocol::Faktory(args) => faktory(&args),
        Protocol::Spiderq(args) => spiderq(&args),
        Protocol::Eventmq(args) => eventmq(&args),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("windlass-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn gearman(args: &GearmanArgs) -> Result<bool, Error> {
    let common = &args.common;
    if common.list {
        let cases = gearman::cases::named().into_iter().map(|case| (case.name, case.about));
        return list(&gearman::cases::GROUPS, cases);
    }
    let options = gearman::comparison::Options {
        cases: common.cases.clone(),
        peers: args.peers.clone(),
        durabilities: common.durability.clone(),
        settings: common.settings(),
    };
    common.keep(gearman::comparison::hold(&options, &Interrupt::install()?, show)?)
}

fn faktory(common: &CommonArgs) -> Result<bool, Error> {
    if common.list {
        let cases = faktory::cases::named().into_iter().map(|case| (case.name, case.about));
        return list(&faktory::cases::GROUPS, cases);
    }
    let cases = faktory::cases::by_names(&common.cases)?;
    common.keep(solo::hold(&common.solo(), &[], &cases, &Interrupt::install()?, show)?)
}

fn spiderq(common: &CommonArgs) -> Result<bool, Error> {
    if common.list {
        let cases = spiderq::cases::named().into_iter().map(|case| (case.name, case.about));
        return list(&spiderq::cases::GROUPS, cases);
    }
    let cases = spiderq::cases::by_names(&common.cases)?;
    common.keep(solo::hold(&common.solo(), &[("client", spiderq::CLIENT)], &cases, &Interrupt::install()?, show)?)
}

fn eventmq(args: &EventmqArgs) -> Result<bool, Error> {
    let common = &args.common;
    if common.list {
        let cases = eventmq::cases::named().into_iter().map(|case| (case.name, case.about));
        return list(&eventmq::cases::GROUPS, cases);
    }
    let options = eventmq::comparison::Options {
        cases: common.cases.clone(),
        peers: args.peers.clone(),
        venv: args.eventmq_venv.clone(),
        durabilities: common.durability.clone(),
        settings: common.settings(),
    };
    common.keep(eventmq::comparison::hold(&options, &Interrupt::install()?, show)?)
}

fn show(case: &CaseResult) {
    // The reader may close the pipe; the requested files are still written.
    let _ = io::stdout().write_all(report::case_text(case).as_bytes());
}

fn list(groups: &[(&str, &str)], cases: impl Iterator<Item = (String, String)>) -> Result<bool, Error> {
    let groups = groups.iter().map(|(name, about)| format!("{name:<22}{about}\n"));
    let cases = cases.map(|(name, about)| format!("{name:<22}{about}\n"));
    let text = format!("groups\n{}\ncases\n{}", groups.collect::<String>(), cases.collect::<String>());
    io::stdout().write_all(text.as_bytes()).map_err(Error::io("write the list"))?;
    Ok(true)
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
        assert_eq!(args.peers, [PeerName::Gearmand { threads: Some(0) }, PeerName::Windlass]);
        assert_eq!(args.common.durability, [Durability::Sync, Durability::Interval]);
        assert!(Cli::try_parse_from(["windlass-bench", "gearman", "--peers", "nobody"]).is_err());
    }
}
