//! The load as data, and the names of the cases.

use std::cell::RefCell;
use std::rc::Rc;

use crate::error::Error;
use crate::load::driver::{Ending, Rules};
use crate::solo;
use crate::spiderq::ledger::Ledger;
use crate::spiderq::roles::{Client, Errand};
use crate::spiderq::wire::Status;

/// A load: connections with their errand, and errands in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Connections that wait, in one Lend each, for tasks that other connections add.
    pub waiters: usize,
    /// The other connections.
    pub connections: usize,
    /// Their errand.
    pub errand: Errand,
    /// Errands in flight on each connection.
    pub in_flight: usize,
}

impl Shape {
    /// The same errand on every connection.
    pub const fn steady(errand: Errand, connections: usize, in_flight: usize) -> Self {
        Shape { waiters: 0, connections, errand, in_flight }
    }

    /// One task at a time to waiting connections: each is added when the last was lent.
    pub const fn wake(waiters: usize) -> Self {
        Shape { waiters, connections: 1, errand: Errand::Add, in_flight: 1 }
    }

    /// The connections, waiting ones first, so that they wait when tasks arrive.
    pub fn clients(&self, ledger: &Rc<RefCell<Ledger>>) -> Vec<Client> {
        let waiters = (0..self.waiters).map(|_| Client::new(Errand::Wait, 1, ledger));
        let others = (0..self.connections).map(|_| Client::new(self.errand, self.in_flight, ledger));
        waiters.chain(others).collect()
    }

    /// The counting rules of this shape.
    pub fn rules(&self) -> Rules {
        let (acknowledged, worked) = (self.errand == Errand::Add, self.waiters > 0);
        let ending = match (worked, acknowledged) {
            (true, _) => Ending::Worked,
            (false, true) => Ending::Acknowledged,
            (false, false) => Ending::Answered,
        };
        Rules { ending, backlog_max: if worked { 1 } else { u64::MAX }, acknowledged, worked }
    }
}

/// One case.
pub type Case = solo::Case<Shape>;

/// Groups of cases, as `(name, description)`.
pub const GROUPS: [(&str, &str); 4] = [
    ("ping", "Ping in three shapes"),
    ("add", "Add in three shapes"),
    ("cycle", "Lend and Repay in three shapes"),
    ("default", "everything"),
];

/// Errands, as `(group, description, errand)`.
const ERRANDS: [(&str, &str, Errand); 3] = [
    ("ping", "Ping", Errand::Ping),
    ("add", "Add, values of 100 bytes", Errand::Add),
    ("cycle", "Lend, then Repay to the end of a queue of 10,000, values of 100 bytes", Errand::Cycle(Status::Penalty)),
];
/// Loads, as (connections, in flight on each, description).
const SHAPES: [(usize, usize, &str); 3] = [
    (1, 1, "1 connection, one at a time"),
    (8, 1, "8 connections, one at a time each"),
    (4, 64, "4 connections, 64 in flight each"),
];

/// The cases with these names: groups and single cases.
///
/// # Errors
/// [`Error::Usage`] for an unknown name.
pub fn by_names(names: &[String]) -> Result<Vec<Case>, Error> {
    let mut found: Vec<Case> = Vec::new();
    for name in names {
        let before = found.len();
        let in_group = |case: &Case| {
            name == "default"
                || case.name == *name
                || case.name.strip_prefix(name).is_some_and(|at| at.starts_with('-'))
        };
        found.extend(named().into_iter().filter(in_group));
        if found.len() == before {
            return Err(Error::Usage(format!("no case or group {name:?}; see --list")));
        }
    }
    Ok(found)
}

/// Every case.
pub fn named() -> Vec<Case> {
    let steady = ERRANDS.iter().flat_map(|(group, about, errand)| {
        SHAPES.iter().map(move |(connections, in_flight, shape)| Case {
            name: format!("{group}-{connections}x{in_flight}"),
            about: format!("{about}; {shape}"),
            work: Shape::steady(*errand, *connections, *in_flight),
        })
    });
    let wake = Case {
        name: "blocked-lend".to_owned(),
        about: "1 connection adds, 10 wait in Lend, one task at a time: up to the Lend".to_owned(),
        work: Shape::wake(10),
    };
    steady.chain([wake]).collect()
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
        for (group, count) in [("ping", 3), ("add", 3), ("cycle", 3), ("default", 10)] {
            assert!(GROUPS.iter().any(|(name, _)| *name == group), "{group}");
            assert_eq!(by_names(&[group.to_owned()]).unwrap().len(), count, "{group}");
        }
        for wrong in ["", "pin", "ping-", "add-1x2", "blocked-lend-1"] {
            assert!(by_names(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
