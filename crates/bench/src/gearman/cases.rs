//! The cases with their names. Data only.

use crate::error::Error;
use crate::gearman::peers::Peer;
use crate::gearman::shapes::{DURABLE_BACKLOG_MAX, PIPELINE, Shape};
use crate::settings::count_of;

/// The work of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A steady load, measured by time or by number of jobs.
    Load(Shape),
    /// Fill a queue, then empty it.
    Fill {
        /// The number of jobs.
        jobs: u64,
        /// With random unique ids.
        unique: bool,
    },
    /// Fill a queue, kill the server, and start it again.
    Restart {
        /// The number of jobs.
        jobs: u64,
    },
}

/// What a case requires of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// No durability.
    Memory,
    /// Jobs that survive a crash.
    Durability,
}

/// One case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Its name on the command line.
    pub name: String,
    /// A description in one line.
    pub about: String,
    /// What it requires.
    pub needs: Needs,
    /// The work.
    pub work: Work,
}

impl Case {
    /// Whether a peer can take part.
    pub fn fits(&self, peer: Peer) -> bool {
        match self.needs {
            Needs::Memory => peer.is_for_memory(),
            Needs::Durability => peer.is_durable(),
        }
    }
}

/// Groups of cases, as `(name, description)`.
pub const GROUPS: [(&str, &str); 4] = [
    ("memory", "steady loads that do not need the disk"),
    ("durable", "steady loads on servers whose jobs survive a crash, with random unique ids"),
    ("queue", "fill-100k, fill-plain-100k and restart-100k; any number can be asked for: fill-1m, restart-300k"),
    ("default", "memory and durable"),
];

/// The cases with these names: groups, single cases, `fill-N`, `fill-plain-N`, `restart-N` with N like `100k`.
///
/// # Errors
/// [`Error::Usage`] for an unknown name.
pub fn by_names(names: &[String]) -> Result<Vec<Case>, Error> {
    let mut found: Vec<Case> = Vec::new();
    for name in names {
        let cases = match name.as_str() {
            "memory" => memory(),
            "durable" => durable(),
            "queue" => queue(),
            "default" => memory().into_iter().chain(durable()).collect(),
            single => vec![by_name(single)?],
        };
        found.extend(cases);
    }
    Ok(found)
}

/// Every case with a fixed name.
pub fn named() -> Vec<Case> {
    memory().into_iter().chain(durable()).chain(queue()).collect()
}

fn by_name(name: &str) -> Result<Case, Error> {
    let fixed = named().into_iter().find(|case| case.name == name);
    fixed.or_else(|| sized(name)).ok_or_else(|| Error::Usage(format!("no case or group {name:?}; see --list")))
}

fn case(name: &str, about: &str, needs: Needs, work: Work) -> Case {
    Case { name: name.to_owned(), about: about.to_owned(), needs, work }
}

fn memory() -> Vec<Case> {
    let load = |name, about, shape| case(name, about, Needs::Memory, Work::Load(shape));
    vec![
        load("echo-1", "echo, one connection, one at a time", Shape::echo(1)),
        load("bg-1", "background submit, 1 connection, one at a time", Shape::background(1, 1)),
        load("bg-8", "background submit, 8 connections, one at a time each", Shape::background(8, 1)),
        load("bg-64", "background submit, 64 connections, one at a time each", Shape::background(64, 1)),
        load("bg-1000", "background submit, 1,000 connections, one at a time each", Shape::background(1000, 1)),
        load("pipe-1", "background submit, 1 connection, 128 in flight", Shape::background(1, PIPELINE)),
        load("pipe-8", "background submit, 8 connections, 128 in flight each", Shape::background(8, PIPELINE)),
        load("pipe-64", "background submit, 64 connections, 128 in flight each", Shape::background(64, PIPELINE)),
        load("e2e-1x1", "submit, grab, complete: 1 producer, 1 worker", Shape::flow(1, 1, 1)),
        load("e2e-8x8", "submit, grab, complete: 8 producers, 8 workers", Shape::flow(8, 1, 8)),
        load("e2e-8x8-pipe", "the same, 128 submits in flight per producer", Shape::flow(8, PIPELINE, 8)),
        load("herd-64", "submit, grab, complete: 1 producer, 64 workers that sleep when idle", Shape::flow(1, 1, 64)),
        load(
            "herd-64-one",
            "the same, one job at a time: submitted when the last has been worked",
            Shape::flow(1, 1, 64).with_backlog(1),
        ),
        load("fg-1x1", "foreground round trip: 1 client, 1 worker", Shape::foreground(1, 1)),
        load("fg-64x8", "foreground round trip: 64 clients, 8 workers", Shape::foreground(64, 8)),
    ]
}

fn durable() -> Vec<Case> {
    let load = |name, about, shape: Shape| case(name, about, Needs::Durability, Work::Load(shape.with_unique_ids()));
    let flow = |window| Shape::flow(8, window, 8).with_backlog(DURABLE_BACKLOG_MAX);
    vec![
        load("durable-bg-1", "background submit, 1 connection, one at a time", Shape::background(1, 1)),
        load("durable-bg-8", "background submit, 8 connections, one at a time each", Shape::background(8, 1)),
        load("durable-bg-64", "background submit, 64 connections, one at a time each", Shape::background(64, 1)),
        load("durable-pipe-1", "background submit, 1 connection, 128 in flight", Shape::background(1, PIPELINE)),
        load("durable-pipe-8", "background submit, 8 connections, 128 in flight each", Shape::background(8, PIPELINE)),
        load("durable-e2e-8x8", "submit, grab, complete: 8 producers, 8 workers", flow(1)),
        load("durable-e2e-8x8-pipe", "the same, 128 submits in flight per producer", flow(PIPELINE)),
    ]
}

fn queue() -> Vec<Case> {
    ["fill-100k", "fill-plain-100k", "restart-100k"].into_iter().filter_map(sized).collect()
}

/// A case whose name ends in a number of jobs.
fn sized(name: &str) -> Option<Case> {
    let (kind, count) = name.rsplit_once('-')?;
    let jobs = count_of(count)?;
    let fill = |about: &str, unique| {
        let about = format!("fill a queue with {jobs} jobs, {about}, then empty it with 8 workers");
        case(name, &about, Needs::Memory, Work::Fill { jobs, unique })
    };
    match kind {
        "fill" => Some(fill("random unique ids", true)),
        "fill-plain" => Some(fill("empty unique ids", false)),
        "restart" => {
            let about = format!("kill -9 with {jobs} queued jobs; how long until every one shows in status again");
            Some(case(name, &about, Needs::Durability, Work::Restart { jobs }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::windlass::Durability;

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
        for (name, jobs) in [("fill-500", 500), ("fill-plain-2k", 2_000), ("restart-1m", 1_000_000)] {
            let found = by_name(name).unwrap();
            let (Work::Fill { jobs: found, .. } | Work::Restart { jobs: found }) = found.work else { panic!("{name}") };
            assert_eq!(found, jobs, "{name}");
        }
        for wrong in ["fill", "fill-", "fill-0", "fill-k", "fill-99m", "drain-1k", "bg-2", "-1k"] {
            assert!(by_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn peers_take_part_where_it_means_something() {
        let windlass = Peer::Windlass(Durability::Sync);
        for (name, peer, expected) in [
            ("bg-1", windlass, true),
            ("durable-bg-1", windlass, true),
            ("bg-1", Peer::GearmandSqlite, false),
            ("durable-bg-1", Peer::GearmandSqlite, true),
            ("restart-1k", Peer::Gearmand { threads: None }, false),
            ("fill-1k", Peer::Gearmand { threads: None }, true),
        ] {
            assert_eq!(by_name(name).unwrap().fits(peer), expected, "{name} {peer}");
        }
    }
}
