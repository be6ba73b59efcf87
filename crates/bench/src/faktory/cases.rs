//! The load as data, and the names of the cases.

use crate::error::Error;
use crate::faktory::roles::{Idler, Producer, Role, Worker};
use crate::load::driver::{Ending, Rules};
use crate::settings::count_of;
use crate::solo;

/// Jobs in a PUSHB.
pub const BATCH: usize = 1000;

/// A load: the number of connections per role, and the event that completes a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Connections that push, one command at a time.
    pub producers: usize,
    /// Jobs per command: PUSH for one, PUSHB for more.
    pub batch: usize,
    /// Connections that fetch jobs and acknowledge them.
    pub workers: usize,
    /// Workers send ACK and FETCH in one write.
    pub eager: bool,
    /// Connections that fetch from an empty queue.
    pub idlers: usize,
    /// Most jobs pushed and not yet fetched; producers pause there.
    pub backlog_max: u64,
    /// The event that completes a job.
    pub ending: Ending,
}

impl Shape {
    /// No connections: the base of the others.
    const NOBODY: Shape = Shape {
        producers: 0,
        batch: 1,
        workers: 0,
        eager: false,
        idlers: 0,
        backlog_max: u64::MAX,
        ending: Ending::Acknowledged,
    };

    /// Pushes without workers.
    pub const fn push(producers: usize, batch: usize) -> Self {
        Shape { producers, batch, ..Self::NOBODY }
    }

    /// Fetches of jobs that are already queued.
    pub const fn drain(workers: usize, eager: bool) -> Self {
        Shape { workers, eager, ending: Ending::Answered, ..Self::NOBODY }
    }

    /// One job at a time to waiting workers: each is pushed when the last was fetched.
    pub const fn wake(workers: usize) -> Self {
        Shape { producers: 1, workers, backlog_max: 1, ending: Ending::Worked, ..Self::NOBODY }
    }

    /// Fetches that end without a job.
    pub const fn idle(idlers: usize) -> Self {
        Shape { idlers, ending: Ending::Answered, ..Self::NOBODY }
    }

    /// The roles, workers first, so that they are connected when jobs arrive.
    pub fn roles(&self) -> Vec<Role> {
        let workers = (0..self.workers).map(|at| Role::Worker(Worker::new(at, self.eager)));
        let idlers = (0..self.idlers).map(|at| Role::Idler(Idler::new(self.workers + at)));
        let producers = (0..self.producers).map(|_| Role::Producer(Producer::new(self.batch)));
        workers.chain(idlers).chain(producers).collect()
    }

    /// The counting rules of this shape.
    pub fn rules(&self) -> Rules {
        Rules {
            ending: self.ending,
            backlog_max: self.backlog_max,
            acknowledged: self.producers > 0,
            worked: self.workers > 0,
        }
    }
}

/// The work of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A steady load, measured by time or by number of jobs.
    Load(Shape),
    /// Queued jobs are fetched and acknowledged.
    Drain {
        /// The workers.
        shape: Shape,
        /// The number of jobs.
        jobs: u64,
    },
    /// Waiting workers without jobs.
    Idle(Shape),
    /// Fill a queue, then empty it.
    Fill {
        /// The number of jobs.
        jobs: u64,
    },
    /// Fill a queue, kill the server, and start it again.
    Restart {
        /// The number of jobs.
        jobs: u64,
    },
}

/// One case.
pub type Case = solo::Case<Work>;

/// Groups of cases, as `(name, description)`.
pub const GROUPS: [(&str, &str); 3] = [
    ("steady", "pushes, fetches, waiting workers"),
    ("queue", "fill-100k and restart-100k; any number can be asked for: fill-1m, restart-300k"),
    ("default", "steady"),
];

/// The cases with these names: groups, single cases, `fill-N`, `restart-N` with N like `100k`.
///
/// # Errors
/// [`Error::Usage`] for an unknown name.
pub fn by_names(names: &[String]) -> Result<Vec<Case>, Error> {
    let mut found: Vec<Case> = Vec::new();
    for name in names {
        found.extend(match name.as_str() {
            "steady" | "default" => steady(),
            "queue" => queue(),
            single => vec![by_name(single)?],
        });
    }
    Ok(found)
}

/// Every case with a fixed name.
pub fn named() -> Vec<Case> {
    steady().into_iter().chain(queue()).collect()
}

fn by_name(name: &str) -> Result<Case, Error> {
    let fixed = named().into_iter().find(|case| case.name == name);
    fixed.or_else(|| sized(name)).ok_or_else(|| Error::Usage(format!("no case or group {name:?}; see --list")))
}

fn case(name: &str, about: &str, work: Work) -> Case {
    Case { name: name.to_owned(), about: about.to_owned(), work }
}

fn steady() -> Vec<Case> {
    let drain = |workers, eager, jobs| Work::Drain { shape: Shape::drain(workers, eager), jobs };
    vec![
        case("push-1", "PUSH, 1 connection, one at a time", Work::Load(Shape::push(1, 1))),
        case("push-50", "PUSH, 50 connections, one at a time each", Work::Load(Shape::push(50, 1))),
        case("pushb-1000", "PUSHB of 1,000 jobs, 1 connection, one at a time", Work::Load(Shape::push(1, BATCH))),
        case("pushb-1000x8", "the same, 8 connections", Work::Load(Shape::push(8, BATCH))),
        case("fetch-ack-1", "FETCH, then ACK, 1 connection, one command at a time", drain(1, false, 20_000)),
        case("fetch-ack-50", "the same, 50 connections", drain(50, false, 200_000)),
        case("fetch-ack-50-eager", "the same, ACK and the next FETCH in one write", drain(50, true, 200_000)),
        case(
            "blocked-fetch",
            "1 producer, 10 workers that wait in FETCH, one job at a time: up to the worker",
            Work::Load(Shape::wake(10)),
        ),
        case(
            "blocked-2000",
            "2,000 workers that wait in FETCH for nothing, and again; a job is a FETCH that came back empty",
            Work::Idle(Shape::idle(2000)),
        ),
    ]
}

fn queue() -> Vec<Case> {
    ["fill-100k", "restart-100k"].into_iter().filter_map(sized).collect()
}

/// A case whose name ends in a number of jobs.
fn sized(name: &str) -> Option<Case> {
    let (kind, count) = name.rsplit_once('-')?;
    let jobs = count_of(count)?;
    match kind {
        "fill" => {
            let about =
                format!("fill a queue with {jobs} jobs (PUSHB of 1,000, 8 connections), then empty it with 50 workers");
            Some(case(name, &about, Work::Fill { jobs }))
        }
        "restart" => {
            let about = format!("kill -9 with {jobs} queued jobs; how long until INFO counts every one again");
            Some(case(name, &about, Work::Restart { jobs }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let names: Vec<String> = named().into_iter().map(|case| case.name).collect();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert_eq!(by_names(&names).unwrap(), named());
        for (group, _) in GROUPS {
            assert!(!by_names(&[group.to_owned()]).unwrap().is_empty(), "{group}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(by_name("fill-500").unwrap().work, Work::Fill { jobs: 500 });
        assert_eq!(by_name("restart-1m").unwrap().work, Work::Restart { jobs: 1_000_000 });
        for wrong in ["fill", "fill-0", "push-2", "drain-1k"] {
            assert!(by_name(wrong).is_err(), "{wrong}");
        }
    }
}
