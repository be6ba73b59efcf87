//! Load on one daemon, for `windlass bench`: on one that it starts, with data of its own, or on one that runs already.
//!
//! On a daemon that runs already the load has a queue of its own, `bench`. EventMQ's and spiderq's loads would share a
//! queue with other clients, so they need a daemon of their own.

use std::fmt;
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::cases::{Case, Needs, Shape, Work};
use crate::driver::Plan;
use crate::error::Error;
use crate::eventmq::EVENTMQ;
use crate::faktory::FAKTORY;
use crate::gearman::GEARMAN;
use crate::interrupt::Interrupt;
use crate::links::{Endpoint, Idle};
use crate::metric::{Metric, Sample};
use crate::peers::{Durability, Peer, Programs, Way};
use crate::process;
use crate::protocol::Protocol;
use crate::run::Run;
use crate::servers::{Ports, loopback};
use crate::spiderq::SPIDERQ;

/// Connections of both kinds, and a process's other files.
const OPEN_FILES: u64 = 4096;

/// Jobs that wait for workers at most.
const BACKLOG_MAX: u64 = 4096;

/// A load on one daemon.
#[derive(Debug, Clone, Args)]
pub struct Alone {
    /// The protocol that carries the load.
    #[arg(value_enum, default_value = "gearman")]
    protocol: Front,
    /// What connections do.
    #[arg(long, value_enum, default_value = "flow")]
    load: Load,
    /// Connections that push jobs.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// Connections that work, with --load flow.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: u16,
    /// Pushes unanswered on each connection.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    window: u16,
    /// Length of the measured time, s; a fifth more comes before it.
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// Measure this number of jobs instead of a time.
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(10..=50_000_000))]
    jobs: Option<u64>,
    /// A daemon that runs already, HOST:PORT or unix:/PATH; the jobs are in its queue `bench` (Gearman and Faktory).
    /// Without this, a daemon is started for the load, on free ports, and removed with its data.
    #[arg(long, value_name = "ADDRESS")]
    at: Option<String>,
    /// The durability of a daemon that is started.
    #[arg(long, value_enum, default_value = "sync")]
    durability: Durability,
    /// The folder for its data, on the disk to measure [default: the folder for temporary files].
    #[arg(long, value_name = "DIR")]
    data_root: Option<PathBuf>,
    /// Print one object, for programs.
    #[arg(long)]
    json: bool,
}

/// Which protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Front {
    Gearman,
    Faktory,
    Spiderq,
    Eventmq,
}

/// What connections do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Load {
    /// Clients push jobs, workers take and finish them; latency is from push to worker.
    Flow,
    /// Clients push jobs; latency is up to the acknowledgement.
    Push,
    /// Each client pushes a job, takes one and finishes it; latency is from push to taking. Gearman and Faktory.
    Cycle,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    protocol: Front,
    load: Load,
    clients: u16,
    workers: u16,
    window: u16,
    seconds: f64,
    /// How many jobs were measured, if not for a time.
    jobs: Option<u64>,
    /// `None` if the daemon ran already.
    durability: Option<&'static str>,
    jobs_per_second: f64,
    p50_micros: f64,
    p99_micros: f64,
    /// CPU time of the daemon; `None` if it ran already.
    server_micros_per_job: Option<f64>,
    /// Memory of the daemon; `None` if it ran already.
    resident_mib: Option<f64>,
    /// Share of a core that the load itself took. Near 100 it was the limit.
    client_busy_percent: f64,
    #[serde(skip)]
    is_json: bool,
}

impl Alone {
    /// Runs the load. `windlass` is the daemon's program.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for options that do not fit; the daemon cannot be started or reached; a job was lost or
    /// doubled; [`Error::Interrupted`].
    pub fn run(&self, windlass: &Path) -> Result<Figures, Error> {
        let (plan, shape) = (Plan::asked(self.jobs, self.seconds)?, self.shape()?);
        process::raise_open_files(OPEN_FILES)?;
        let programs = Programs::new(Some(windlass.to_owned()), None);
        let data_root = self.data_root.clone().unwrap_or_else(std::env::temp_dir);
        let (idle, interrupt) = (Idle::Sleep, &Interrupt::install()?);
        let run = Run { programs: &programs, data_root: &data_root, plan, idle, counts_replies: false, interrupt };
        let protocol = self.protocol.protocol();
        let sample = match &self.at {
            Some(address) => run.on_running(protocol, &self.running(address)?, &shape)?,
            None => {
                let (name, about) = ("bench".to_owned(), String::new());
                let case =
                    Case { protocol, name, group: "bench", about, needs: Needs::Memory, work: Work::Load(shape) };
                run.of(&case, Peer::Windlass { durability: self.durability, way: Way::Tcp })?
            }
        };
        Ok(self.figures(&sample))
    }

    fn shape(&self) -> Result<Shape, Error> {
        let [clients, workers, window] = [self.clients, self.workers, self.window].map(usize::from);
        match (self.load, self.protocol) {
            (Load::Flow, _) => Ok(Shape::flow(clients, window, workers, BACKLOG_MAX)),
            (Load::Push, _) => Ok(Shape::submit(clients, window)),
            (Load::Cycle, Front::Gearman) => Ok(Shape::clients(crate::cases::Request::Job, clients, window)),
            (Load::Cycle, Front::Faktory) if window == 1 => {
                Ok(Shape::clients(crate::cases::Request::Job, clients, window))
            }
            (Load::Cycle, Front::Faktory) => {
                Err(Error::Usage("a connection of Faktory's has one job at a time: --window 1".to_owned()))
            }
            (Load::Cycle, Front::Spiderq | Front::Eventmq) => {
                Err(Error::Usage("--load cycle: gearman or faktory expected".to_owned()))
            }
        }
    }

    /// Where a running daemon listens. It is not asked for counts.
    fn running(&self, address: &str) -> Result<Ports, Error> {
        if matches!(self.protocol, Front::Spiderq | Front::Eventmq) {
            let reason = "--at: gearman or faktory expected: other jobs would be in the same queue as the load's";
            return Err(Error::Usage(reason.to_owned()));
        }
        let endpoint = match address.strip_prefix("unix:") {
            Some(path) => Endpoint::unix(path).map_err(Error::io(format!("name {address}")))?,
            None => {
                let mut found = address.to_socket_addrs().map_err(Error::io(format!("look up {address}")))?;
                found.next().ok_or_else(|| Error::Usage(format!("--at {address}: no such address")))?.into()
            }
        };
        Ok(Ports { front: endpoint.clone(), back: endpoint, admin: loopback(0) })
    }

    fn figures(&self, sample: &Sample) -> Figures {
        let of = |metric| sample.get(&metric).copied();
        let Self { protocol, load, clients, window, seconds, jobs, .. } = *self;
        Figures {
            protocol,
            load,
            clients,
            workers: if load == Load::Flow { self.workers } else { 0 },
            window,
            seconds,
            jobs,
            durability: self.at.is_none().then(|| self.durability.name()),
            jobs_per_second: of(Metric::JobsPerSecond).unwrap_or_default(),
            p50_micros: of(Metric::P50Micros).unwrap_or_default(),
            p99_micros: of(Metric::P99Micros).unwrap_or_default(),
            server_micros_per_job: of(Metric::ServerMicrosPerJob),
            resident_mib: of(Metric::RssMib),
            client_busy_percent: of(Metric::ClientBusyPercent).unwrap_or_default(),
            is_json: self.json,
        }
    }
}

impl Front {
    fn protocol(self) -> &'static Protocol {
        match self {
            Self::Gearman => &GEARMAN,
            Self::Faktory => &FAKTORY,
            Self::Spiderq => &SPIDERQ,
            Self::Eventmq => &EVENTMQ,
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_json {
            return f.write_str(&serde_json::to_string(self).unwrap_or_default());
        }
        let Self { clients, workers, window, .. } = self;
        let what = match self.load {
            Load::Flow => format!("{clients} clients push, {workers} workers take and finish"),
            Load::Push => format!("{clients} clients push"),
            Load::Cycle => format!("{clients} clients push, take and finish"),
        };
        let latency = if self.load == Load::Push { "push to answer" } else { "push to worker" };
        let length = self.jobs.map_or_else(|| format!("{} s", self.seconds), |jobs| format!("{jobs} jobs"));
        writeln!(f, "load      {what}, {window} in flight each, {length}")?;
        if let Some(durability) = self.durability {
            writeln!(f, "daemon    started for this, durability {durability}")?;
        }
        writeln!(f, "jobs/s    {:.0}", self.jobs_per_second)?;
        write!(f, "{latency}  p50 {:.0} µs, p99 {:.0} µs", self.p50_micros, self.p99_micros)?;
        if let Some(micros) = self.server_micros_per_job {
            write!(f, "\ncpu       {micros:.1} µs of the daemon for each job")?;
        }
        if let Some(mib) = self.resident_mib {
            write!(f, "\nmemory    {mib:.0} MiB of the daemon")?;
        }
        if self.client_busy_percent > 95.0 {
            let busy = self.client_busy_percent;
            write!(f, "\nthe load itself took {busy:.0} % of a core, and may have been the limit")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        alone: Alone,
    }

    fn refusal(words: &[&str]) -> Option<String> {
        let line = Line::try_parse_from([&["bench"], words].concat()).unwrap();
        let outcome = Plan::asked(None, line.alone.seconds).and(line.alone.shape());
        let running = line.alone.at.as_deref().map(|at| line.alone.running(at)).transpose();
        outcome.err().or_else(|| running.err()).map(|error| error.to_string())
    }

    #[test]
    fn loads_that_make_no_sense_are_refused() {
        for words in [&["gearman"][..], &["faktory", "--load", "cycle"], &["eventmq"], &["spiderq", "--load", "push"]] {
            assert_eq!(refusal(words), None, "{words:?}");
        }
        assert_eq!(refusal(&["faktory", "--at", "unix:/tmp/socket"]), None);
        let table = [
            (&["spiderq", "--load", "cycle"][..], "gearman or faktory"),
            (&["faktory", "--load", "cycle", "--window", "2"], "one job at a time"),
            (&["eventmq", "--at", "127.0.0.1:1"], "in the same queue"),
            (&["--seconds", "0"], "too few"),
            (&["--at", "nowhere"], "look up nowhere"),
        ];
        for (words, expected) in table {
            let refusal = refusal(words).unwrap();
            assert!(refusal.contains(expected), "{words:?}: {refusal}");
        }
    }

    #[test]
    fn figures_for_people_and_programs() {
        let line = Line::try_parse_from(["bench", "faktory", "--load", "push", "--json"]).unwrap();
        let sample = Sample::from([
            (Metric::JobsPerSecond, 1234.5),
            (Metric::P50Micros, 10.0),
            (Metric::P99Micros, 20.0),
            (Metric::RssMib, 30.0),
            (Metric::ClientBusyPercent, 99.0),
        ]);
        let mut figures = line.alone.figures(&sample);
        let json: serde_json::Value = serde_json::from_str(&figures.to_string()).unwrap();
        assert_eq!((&json["protocol"], &json["jobs_per_second"]), (&"faktory".into(), &1234.5.into()));
        assert_eq!((&json["workers"], &json["server_micros_per_job"]), (&0.into(), &serde_json::Value::Null));
        figures.is_json = false;
        let text = figures.to_string();
        for expected in ["8 clients push, 1 in flight each, 5 s", "durability sync", "p99 20 µs", "99 % of a core"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
