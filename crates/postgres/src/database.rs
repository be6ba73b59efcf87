//! A store in a database, from its address: opened like a data directory.

use std::sync::Arc;

use windlass_engine::Limits;
use windlass_store::{CheckpointLimits, Error, Guard, OpenError, Opened, Remote, Tenure, open_parts};

use crate::address::{Address, AddressError, Target};
use crate::lease::{Keeper, Lease};
use crate::link::Link;
use crate::log::PostgresLog;
use crate::schema::{Names, make_lease, migrate};
use crate::table::PostgresTable;
use crate::tail::Tail;

/// A store in PostgreSQL.
#[derive(Clone, Debug)]
pub struct Database {
    address: Address,
}

impl Database {
    /// A store at this address, which is looked at only when it is used.
    #[must_use]
    pub const fn at(address: Address) -> Self {
        Self { address }
    }

    /// Checks the address and reads its files. Connects to nothing.
    ///
    /// # Errors
    ///
    /// The setting that cannot be used.
    pub fn check(&self) -> Result<(), AddressError> {
        self.address.target().map(drop)
    }

    fn target(&self) -> Result<Target, Error> {
        self.address.target().map_err(|why| Error::Io {
            doing: "connecting to",
            place: self.name(),
            why: std::io::Error::other(why.to_string()),
        })
    }
}

impl Remote for Database {
    fn name(&self) -> String {
        self.address.target().map_or_else(|_| "the database".to_owned(), |target| target.place)
    }

    fn open(&self, checkpoints: &CheckpointLimits, limits: Limits, seed: u64) -> Result<Opened, OpenError> {
        let target = &self.target()?;
        let names = Names::of(target);
        let link = Link::open(target)?;
        make_lease(&link, &names)?;
        let lease = Lease::take(&link, target)?;
        let keeper = Keeper::start(&lease, Link::open(target)?, target).map_err(|why| failed(target, why))?;
        migrate(&link, &names, &lease)?;
        // Half of what makes a checkpoint due: then a table is full, and another one is in use, when the log is trimmed.
        let tail = Tail::open(target, &lease, &link, checkpoints.log_bytes / 2)?;
        let log = PostgresLog::new(target, tail, (Arc::clone(&lease), keeper), link);
        let table = Box::new(PostgresTable::new(target, &lease));
        let (checkpointer, recovered) = open_parts(&log, table, checkpoints, limits, seed)?;
        let tenure: Arc<dyn Tenure> = lease;
        // The log keeps the lease.
        Ok(Opened { log: Box::new(log), checkpointer, recovered, guard: Guard::new((), Some(tenure)) })
    }
}

fn failed(target: &Target, why: std::io::Error) -> Error {
    Error::Io { doing: "keeping the lease of", place: target.place.clone(), why }
}
