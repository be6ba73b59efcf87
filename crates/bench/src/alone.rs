//! Load on one daemon, for `windlass bench`: on one that it starts, with data of its own, or on one that runs already.
//!
//! On a daemon that runs already the load has a queue of its own, `bench`. EventMQ's and spiderq's loads would share a
//! queue with other clients, so they need a daemon of their own.

use std::fmt;
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::cases::{Case, Needs, Work};
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
use crate::shape::{Request, Shape};
use crate::spiderq::SPIDERQ;

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
    /// Worker connections, with --load flow.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: u16,
    /// Unacknowledged pushes per connection.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    window: u16,
    /// Seconds to measure, after a warm-up of a fifth of that.
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// Measure this number of jobs instead of a time.
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(10..=50_000_000))]
    jobs: Option<u64>,
    /// A running daemon, HOST:PORT or unix:/PATH; its queue `bench` gets the jobs (Gearman and Faktory).
    /// Without this, a temporary daemon is started on free ports, and removed with its data.
    #[arg(long, value_name = "ADDRESS")]
    at: Option<String>,
    /// The durability of a temporary daemon.
    #[arg(long, value_enum, default_value = "sync")]
    durability: Durability,
    /// The directory for its data, on the disk to measure [default: the directory for temporary files].
    #[arg(long, value_name = "DIR")]
    data_root: Option<PathBuf>,
    /// Print one JSON object.
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
    /// Clients push jobs; latency is from push to acknowledgement.
    Push,
    /// Each client pushes a job, takes one and finishes it; latency is from push to taking. Gearman and Faktory.
    Cycle,
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct Figures {
    load: Alone,
    /// Without the cost of a daemon that ran already.
    sample: Sample,
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
        process::raise_open_files()?;
        let programs = Programs::new(Some(windlass.to_owned()), None);
        let data_root = self.data_root.clone().unwrap_or_else(std::env::temp_dir);
        let (idle, interrupt) = (Idle::Sleep, &Interrupt::install()?);
        let run = Run {
            programs: &programs,
            data_root: &data_root,
            plan,
            idle,
            counts_replies: false,
            interrupt,
        };
        let protocol = self.protocol.protocol();
        let sample = match &self.at {
            Some(address) => run.on_running(protocol, &self.running(address)?, &shape)?,
            None => {
                let (name, about) = ("bench".to_owned(), String::new());
                let case = Case {
                    protocol,
                    name,
                    group: "bench",
                    about,
                    needs: Needs::Memory,
                    work: Work::Load(shape),
                };
                run.of(
                    &case,
                    Peer::Windlass {
                        durability: self.durability,
                        way: Way::Tcp,
                    },
                )?
            }
        };
        Ok(Figures {
            load: self.clone(),
            sample,
        })
    }

    fn shape(&self) -> Result<Shape, Error> {
        let [clients, workers, window] = [self.clients, self.workers, self.window].map(usize::from);
        match (self.load, self.protocol) {
            (Load::Flow, _) => Ok(Shape::flow(clients, window, workers, BACKLOG_MAX)),
            (Load::Push, _) => Ok(Shape::submit(clients, window)),
            (Load::Cycle, Front::Faktory) if window > 1 => Err(Error::Usage(
                "a connection of Faktory's has one job at a time: --window 1".to_owned(),
            )),
            (Load::Cycle, Front::Gearman | Front::Faktory) => {
                Ok(Shape::clients(Request::Job, clients, window))
            }
            (Load::Cycle, Front::Spiderq | Front::Eventmq) => Err(Error::Usage(
                "--load cycle: gearman or faktory expected".to_owned(),
            )),
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
                let mut found = address
                    .to_socket_addrs()
                    .map_err(Error::io(format!("look up {address}")))?;
                found
                    .next()
                    .ok_or_else(|| Error::Usage(format!("--at {address}: no such address")))?
                    .into()
            }
        };
        Ok(Ports {
            front: endpoint.clone(),
            back: endpoint,
            admin: loopback(0),
        })
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

impl Figures {
    fn of(&self, metric: Metric) -> Option<f64> {
        self.sample.get(&metric).copied()
    }

    /// The durability of a daemon that was started.
    fn durability(&self) -> Option<&'static str> {
        self.load.at.is_none().then(|| self.load.durability.name())
    }

    /// One object, with null for what is not known of a daemon that ran already.
    fn json(&self) -> serde_json::Value {
        let Alone {
            protocol,
            load,
            clients,
            window,
            seconds,
            jobs,
            ..
        } = &self.load;
        serde_json::json!({
            "protocol": protocol,
            "load": load,
            "clients": clients,
            "workers": if *load == Load::Flow { self.load.workers } else { 0 },
            "window": window,
            "seconds": seconds,
            "jobs": jobs,
            "durability": self.durability(),
            "jobs_per_second": self.of(Metric::JobsPerSecond),
            "p50_micros": self.of(Metric::P50Micros),
            "p99_micros": self.of(Metric::P99Micros),
            "server_micros_per_job": self.of(Metric::ServerMicrosPerJob),
            "resident_mib": self.of(Metric::RssMib),
            "client_busy_percent": self.of(Metric::ClientBusyPercent),
        })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Alone {
            load,
            clients,
            workers,
            window,
            seconds,
            jobs,
            json,
            ..
        } = &self.load;
        if *json {
            return write!(f, "{}", self.json());
        }
        let (what, latency) = match load {
            Load::Flow => (
                format!("{clients} clients push, {workers} workers take and finish"),
                "push to worker",
            ),
            Load::Push => (format!("{clients} clients push"), "push to answer"),
            Load::Cycle => (
                format!("{clients} clients push, take and finish"),
                "push to worker",
            ),
        };
        let length = jobs.map_or_else(|| format!("{seconds} s"), |jobs| format!("{jobs} jobs"));
        writeln!(f, "load      {what}, {window} in flight each, {length}")?;
        if let Some(durability) = self.durability() {
            writeln!(f, "daemon    started for this, durability {durability}")?;
        }
        let [rate, p50, p99] = [Metric::JobsPerSecond, Metric::P50Micros, Metric::P99Micros]
            .map(|it| self.of(it).unwrap_or_default());
        write!(
            f,
            "jobs/s    {rate:.0}\n{latency}  p50 {p50:.0} µs, p99 {p99:.0} µs"
        )?;
        if let Some(micros) = self.of(Metric::ServerMicrosPerJob) {
            write!(f, "\ncpu       {micros:.1} µs of the daemon for each job")?;
        }
        if let Some(mib) = self.of(Metric::RssMib) {
            write!(f, "\nmemory    {mib:.0} MiB of the daemon")?;
        }
        if let Some(busy) = self
            .of(Metric::ClientBusyPercent)
            .filter(|busy| *busy > 95.0)
        {
            write!(
                f,
                "\nthe load itself took {busy:.0} % of a core, and may have been the limit"
            )?;
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
        let running = line
            .alone
            .at
            .as_deref()
            .map(|at| line.alone.running(at))
            .transpose();
        outcome
            .err()
            .or_else(|| running.err())
            .map(|error| error.to_string())
    }

    #[test]
    fn loads_that_make_no_sense_are_refused() {
        for words in [
            &["gearman"][..],
            &["faktory", "--load", "cycle"],
            &["eventmq"],
            &["spiderq", "--load", "push"],
        ] {
            assert_eq!(refusal(words), None, "{words:?}");
        }
        assert_eq!(refusal(&["faktory", "--at", "unix:/tmp/socket"]), None);
        let table = [
            (&["spiderq", "--load", "cycle"][..], "gearman or faktory"),
            (
                &["faktory", "--load", "cycle", "--window", "2"],
                "one job at a time",
            ),
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
        let mut figures = Figures {
            load: line.alone,
            sample,
        };
        let json: serde_json::Value = serde_json::from_str(&figures.to_string()).unwrap();
        assert_eq!(
            (&json["protocol"], &json["jobs_per_second"]),
            (&"faktory".into(), &1234.5.into())
        );
        assert_eq!(
            (&json["workers"], &json["server_micros_per_job"]),
            (&0.into(), &serde_json::Value::Null)
        );
        figures.load.json = false;
        let text = figures.to_string();
        for expected in [
            "8 clients push, 1 in flight each, 5 s",
            "durability sync",
            "p99 20 µs",
            "99 % of a core",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
