//! The load as data, and the names of the cases.

use std::sync::Arc;

use windlass_zmtp::{Role, Settings};

use crate::error::Error;
use crate::eventmq::peers::Peer;
use crate::eventmq::roles::{Client, Pace};
use crate::load::driver::{Ending, Rules};
use crate::settings::count_of;
use crate::solo;

/// A load: the number of clients, their requests in flight, and the number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Connections that work.
    pub workers: usize,
    /// Connections that request.
    pub clients: usize,
    /// Requests in flight per client: not accepted, and, if there are workers, not delivered.
    pub in_flight: usize,
}

impl Shape {
    /// The connections, workers first, so that they are connected when jobs arrive.
    pub fn connections(&self, pace: Pace) -> Vec<Client> {
        let settings = Arc::new(Settings::new(Role::Dealer));
        let workers = (0..self.workers).map(|_| Client::worker(&settings));
        let clients = (0..self.clients).map(|_| Client::requester(&settings, self.in_flight, pace));
        workers.chain(clients).collect()
    }

    /// The counting rules of this shape.
    pub fn rules(&self, pace: Pace) -> Rules {
        let worked = self.workers > 0;
        let on_their_way = u64::try_from(self.clients.saturating_mul(self.in_flight)).unwrap_or(u64::MAX);
        Rules {
            ending: if worked { Ending::Worked } else { Ending::Acknowledged },
            backlog_max: if worked { on_their_way } else { u64::MAX },
            acknowledged: pace == Pace::Accepted,
            worked,
        }
    }
}

/// The work of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A steady load.
    Load(Shape),
    /// Jobs for the released JobManager.
    JobManager {
        /// The number of jobs.
        jobs: u64,
    },
}

impl Work {
    /// Whether a peer can take part. The released router does not report waiting requests.
    pub fn fits(&self, peer: Peer) -> bool {
        match self {
            Work::Load(shape) => shape.workers > 0 || peer.is_ours(),
            Work::JobManager { .. } => true,
        }
    }
}

/// One case.
pub type Case = solo::Case<Work>;

/// Groups of cases, as `(name, description)`.
pub const GROUPS: [(&str, &str); 3] = [
    ("e2e", "requests up to workers, in five shapes"),
    ("request", "requests without workers, in three shapes; windlass alone"),
    ("default", "e2e, request and jobmanager-500; any number can be asked for: jobmanager-5k"),
];

/// Workers of the first group.
const WORKERS: usize = 2;
/// Shapes as (clients, in flight on each, description), those of the second group first.
const SHAPES: [(usize, usize, &str); 5] = [
    (1, 1, "1 client, one at a time"),
    (8, 1, "8 clients, one at a time each"),
    (4, 64, "4 clients, 64 in flight each"),
    (1, 256, "1 client, 256 in flight"),
    (8, 256, "8 clients, 256 in flight each"),
];
const ALONE: usize = 3;

/// The cases with these names: groups, single cases, `jobmanager-N` with N like `5k`.
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
            found.push(sized(name).ok_or_else(|| Error::Usage(format!("no case or group {name:?}; see --list")))?);
        }
    }
    Ok(found)
}

/// Every case with a fixed name.
pub fn named() -> Vec<Case> {
    let e2e = SHAPES.iter().map(|(clients, in_flight, shape)| Case {
        name: format!("e2e-{clients}x{in_flight}"),
        about: format!("request up to the worker, which answers; {shape}; {WORKERS} workers of 64 credits"),
        work: Work::Load(Shape { workers: WORKERS, clients: *clients, in_flight: *in_flight }),
    });
    let request = SHAPES.iter().take(ALONE).map(|(clients, in_flight, shape)| Case {
        name: format!("request-{clients}x{in_flight}"),
        about: format!("request up to its acceptance, without workers; {shape}"),
        work: Work::Load(Shape { workers: 0, clients: *clients, in_flight: *in_flight }),
    });
    e2e.chain(request).chain(sized("jobmanager-500")).collect()
}

/// A case whose name ends in a number of jobs.
fn sized(name: &str) -> Option<Case> {
    let jobs = count_of(name.strip_prefix("jobmanager-")?)?;
    let about = format!("{jobs} requests at once to the released JobManager with 2 processes, until all are done");
    Some(Case { name: name.to_owned(), about, work: Work::JobManager { jobs } })
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
        for (group, count) in [("e2e", 5), ("request", 3), ("default", 9)] {
            assert!(GROUPS.iter().any(|(name, _)| *name == group), "{group}");
            assert_eq!(by_names(&[group.to_owned()]).unwrap().len(), count, "{group}");
        }
        assert_eq!(by_names(&["jobmanager-5k".to_owned()]).unwrap()[0].work, Work::JobManager { jobs: 5_000 });
        for wrong in ["", "e2", "e2e-", "request-1x2", "jobmanager-", "jobmanager-0", "jobmanager-x"] {
            assert!(by_names(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_released_router_takes_part_where_it_answers() {
        for case in named() {
            assert!(case.work.fits(Peer::Windlass(Durability::Sync)), "{}", case.name);
            assert_eq!(case.work.fits(Peer::Router), !case.name.starts_with("request"), "{}", case.name);
        }
    }

    #[test]
    fn rules_bound_a_run() {
        let flow = Shape { workers: 2, clients: 4, in_flight: 64 };
        assert_eq!(
            flow.rules(Pace::Accepted),
            Rules { ending: Ending::Worked, backlog_max: 256, acknowledged: true, worked: true }
        );
        assert!(!flow.rules(Pace::Delivered).acknowledged);
        let alone = Shape { workers: 0, ..flow };
        assert_eq!(
            alone.rules(Pace::Accepted),
            Rules { ending: Ending::Acknowledged, backlog_max: u64::MAX, acknowledged: true, worked: false }
        );
    }
}
