//! How much a hostile tenant costs another: a daemon with two namespaces, `quiet` and `hostile`. The quiet tenant's load
//! is measured alone, and then again beside the hostile tenant, on the same daemon.
//!
//! The hostile tenant's threads have the lowest priority, because its clients would be on other machines: what they
//! cost the daemon counts, and not that they take cores from the quiet tenant's clients.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::comparison::{CaseResult, Row, Setup};
use crate::driver::Measured;
use crate::error::Error;
use crate::flood::{Flood, Habit};
use crate::gearman::GEARMAN;
use crate::interrupt::Interrupt;
use crate::links::Idle;
use crate::metric::{Metric, Sample};
use crate::peers::Durability;
use crate::process;
use crate::report::Report;
use crate::run::{Bout, Run};
use crate::servers::{Home, Ports, Server};
use crate::shape::Shape;

/// The quiet tenant: 4 clients and 4 workers, no more than 4 jobs on their way.
const QUIET: Shape = Shape::flow(4, 1, 4, 4);
/// How long the hostile tenant may prepare.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const ABOUT: &str = "4 clients and 4 workers beside a hostile tenant (`--list`); × compares with the same load alone, just before.";
/// The lowest priority.
const NICE: i32 = 19;
/// What a load's own figures contribute.
const SHOWN: [Metric; 4] = [
    Metric::JobsPerSecond,
    Metric::P50Micros,
    Metric::P99Micros,
    Metric::OthersBusyPercent,
];
/// A share of the jobs, the time of their pushes, and the ratios of pushes and of the whole.
const QUANTILES: [(f64, Metric, Metric, Metric); 2] = [
    (
        0.5,
        Metric::PushP50Micros,
        Metric::PushP50Times,
        Metric::P50Times,
    ),
    (
        0.99,
        Metric::PushP99Micros,
        Metric::PushP99Times,
        Metric::P99Times,
    ),
];

/// A hostile tenant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hostile {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    about: &'static str,
    /// The limits of its namespace.
    limits: &'static str,
    act: Act,
}

#[derive(Debug, Clone, Copy)]
enum Act {
    /// It does nothing: shows how much two windows of the quiet tenant differ.
    Rest,
    /// It uses a core, and no connection: shows what its own threads cost.
    Spin,
    /// Connections that heed no answer.
    Flood(Flood),
    /// Puts this number of jobs, then takes and finishes them, and begins again.
    Backlog(u64),
}

pub(crate) static HOSTILE: [Hostile; 9] = [
    Hostile {
        name: "rest",
        about: "does nothing",
        limits: "jobs = 1",
        act: Act::Rest,
    },
    Hostile {
        name: "spin",
        about: "uses a core at the lowest priority, as the others may, and no connection",
        limits: "jobs = 1",
        act: Act::Spin,
    },
    Hostile {
        name: "quota",
        about: "64 connections push 10,000 jobs/s, which is their quota",
        limits: "jobs = 1000000, pushes = { jobs = 10000, per = \"1s\" }",
        act: Act::Flood(Flood::new(64, Habit::Push).paced(10_000)),
    },
    Hostile {
        name: "storm",
        about: "64 connections push what they can; 10,000 jobs/s are taken",
        limits: "jobs = 1000000, pushes = { jobs = 10000, per = \"1s\" }",
        act: Act::Flood(Flood::new(64, Habit::Push)),
    },
    Hostile {
        name: "full",
        about: "64 connections push what they can; 100,000 jobs are taken, the others refused",
        limits: "jobs = 100000",
        act: Act::Flood(Flood::new(64, Habit::Push)),
    },
    Hostile {
        name: "backlog",
        about: "300,000 jobs wait; 8 workers take and finish them, and they are put again",
        limits: "jobs = 1000000, jobs_bytes = \"1GiB\"",
        act: Act::Backlog(300_000),
    },
    Hostile {
        name: "names",
        about: "8 connections push to 100,000 names, of which 90,000 are taken",
        limits: "jobs = 1000000, queues = 90000",
        act: Act::Flood(Flood::new(8, Habit::Name)),
    },
    Hostile {
        name: "readers",
        about: "64 connections request echoes of 64 KiB and do not read them",
        limits: "connections = 64",
        act: Act::Flood(Flood::new(64, Habit::Echo)),
    },
    Hostile {
        name: "halves",
        about: "256 connections, of which 200 are taken, begin a packet and are opened anew, one after the other",
        limits: "connections = 200",
        act: Act::Flood(Flood::new(256, Habit::Half)),
    },
];

/// The tenants with these names; `default` names all. [`Error::Usage`] for an unknown name.
pub(crate) fn by_names(names: &[String]) -> Result<Vec<Hostile>, Error> {
    let mut found = Vec::new();
    for name in names {
        let before = found.len();
        let is_meant = |hostile: &&Hostile| name == "default" || hostile.name == name;
        found.extend(HOSTILE.iter().filter(is_meant));
        if found.len() == before {
            return Err(Error::Usage(format!("no tenant {name:?}; see --list")));
        }
    }
    Ok(found)
}

/// The tenants as text.
pub(crate) fn list() -> String {
    let line = |it: &Hostile| format!("{:<9}{} ({})\n", it.name, it.about, it.limits);
    HOSTILE.iter().map(line).collect()
}

/// Measures the quiet tenant beside each of these, with each durability.
pub(crate) fn hold(
    tenants: &[Hostile],
    durabilities: &[Durability],
    setup: &Setup,
    interrupt: &Interrupt,
    show: impl Fn(&CaseResult),
) -> Result<Report, Error> {
    let plan = setup.plan()?;
    let data_root = setup.data_root();
    let programs = setup.programs();
    let facts = setup.facts(&plan, &data_root)?;
    let run = Run {
        programs: &programs,
        data_root: &data_root,
        plan,
        idle: Idle::Sleep,
        counts_replies: false,
        interrupt,
    };
    let mut cases = Vec::new();
    for durability in durabilities {
        let row = |it: &Hostile| Row::new(it.name.to_owned(), true);
        let mut result = CaseResult {
            name: format!("tenants, {}", durability.name()),
            about: ABOUT.to_owned(),
            rows: tenants.iter().map(row).collect(),
        };
        result.run(setup.runs, |index| match tenants.get(index) {
            Some(hostile) => hostile.beside(&run, *durability),
            None => Err(Error::Usage("a row without a tenant".to_owned())),
        })?;
        show(&result);
        cases.push(result);
    }
    Ok(Report { facts, cases })
}

impl Hostile {
    /// The figures of the quiet tenant, alone and beside this one.
    fn beside(&self, run: &Run<'_>, durability: Durability) -> Result<Sample, Error> {
        let home = Home::new(run.data_root)?;
        let tenants = run.programs.tenants(durability, self.limits, &home)?;
        let server = Server::start(&tenants.launch, &home, run.interrupt)?.0;
        let quiet = Bout::new(run, &GEARMAN, server.ports(), Some(server.pid()), true);
        let alone = quiet.drive(&QUIET, &run.plan, 0)?;
        let state = State::default();
        let (beside, acts) = thread::scope(|scope| {
            let acting = scope.spawn(|| self.act(run, &tenants.hostile, &state));
            let beside = self
                .await_ready(run.interrupt, &state.ready)
                .and_then(|()| {
                    let begun = Instant::now();
                    let before = state.acts.load(Ordering::Relaxed);
                    let measured = quiet.drive(&QUIET, &run.plan, 0)?;
                    let acts = state.acts.load(Ordering::Relaxed) - before;
                    Ok((measured, acts as f64 / begun.elapsed().as_secs_f64()))
                });
            state.stop.raise();
            match acting.join() {
                Ok(Ok(()) | Err(Error::Interrupted)) => beside,
                Ok(Err(failure)) => Err(failure),
                Err(_) => Err(Error::Mismatch("the hostile tenant panicked".to_owned())),
            }
        })?;
        let mut sample = figures(&alone, &beside);
        sample.insert(Metric::PeakMib, process::peak_mib(server.pid())?);
        if acts > 0.0 {
            sample.insert(Metric::HostilePerSecond, acts);
        }
        Ok(sample)
    }

    /// Waits until its preparations are done.
    fn await_ready(&self, interrupt: &Interrupt, ready: &AtomicBool) -> Result<(), Error> {
        let begun = Instant::now();
        while !ready.load(Ordering::Relaxed) {
            interrupt.check()?;
            if begun.elapsed() > READY_WITHIN {
                let name = self.name;
                return Err(Error::Mismatch(format!("{name} did not begin")));
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Acts until it is stopped.
    fn act(&self, run: &Run<'_>, ports: &Ports, state: &State) -> Result<(), Error> {
        // Without the right to be nice, the figures are only worse.
        let _ = rustix::process::nice(NICE);
        let ready = || state.ready.store(true, Ordering::Relaxed);
        match self.act {
            Act::Rest => {
                ready();
                Ok(())
            }
            Act::Spin => {
                ready();
                loop {
                    state.stop.check()?;
                }
            }
            Act::Flood(flood) => {
                ready();
                flood.run(&ports.front, &state.stop, &state.acts)
            }
            Act::Backlog(jobs) => {
                let run = Run {
                    interrupt: &state.stop,
                    ..*run
                };
                let bout = Bout::new(&run, &GEARMAN, ports, None, true);
                loop {
                    bout.fill(jobs, false)?;
                    ready();
                    bout.empty(jobs)?;
                    state.acts.fetch_add(jobs, Ordering::Relaxed);
                }
            }
        }
    }
}

/// What the threads of a hostile tenant share with the measuring one.
#[derive(Debug, Default)]
struct State {
    ready: AtomicBool,
    stop: Interrupt,
    /// Answers, requests without answers, connections: what it did so far.
    acts: AtomicU64,
}

/// The figures of the quiet tenant.
fn figures(alone: &Measured, beside: &Measured) -> Sample {
    let mut sample = beside.sample();
    sample.retain(|metric, _| SHOWN.contains(metric));
    let micros = |times: &Histogram<u64>, share| times.value_at_quantile(share) as f64 / 1e3;
    for (share, push, push_times, whole_times) in QUANTILES {
        let pushed = micros(&beside.pushed, share);
        let times = pushed / micros(&alone.pushed, share);
        let whole = micros(&beside.latency, share) / micros(&alone.latency, share);
        sample.extend([(push, pushed), (push_times, times), (whole_times, whole)]);
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_tenants() {
        let found = |name: &str| by_names(&[name.to_owned()]).map(|found| found.len());
        assert_eq!(found("default").unwrap(), HOSTILE.len());
        for hostile in &HOSTILE {
            assert_eq!(found(hostile.name).unwrap(), 1);
            assert!(list().contains(hostile.about));
        }
        assert!(found("nobody").is_err());
    }
}
