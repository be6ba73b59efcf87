//! A store in a database, from its address: opened like a data directory.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use windlass_engine::Limits;
use windlass_store::{
    BodyFile, Contents, Error, Found, Guard, Holder, Journal, Log as _, OpenError, Opened,
    Overflow, Remote, Report, Salvage, State, StoreLimits, Table as _, Tenure, open_found,
    verify_parts,
};

use crate::address::{Address, AddressError, Target};
use crate::early::EarlyRead;
use crate::lease::{DatabaseTime, Keeper, Lease, NOW_MS, since_boot_ms};
use crate::link::Link;
use crate::log::PostgresLog;
use crate::names::refused;
use crate::schema::{self, Storage};
use crate::table::{PostgresScan, PostgresTable};
use crate::tail::{Tail, read_rows};
use crate::taking::{admit, check, compare, in_use, present_holder, take};

/// A store in PostgreSQL.
#[derive(Clone, Debug)]
pub struct Database {
    address: Address,
}

impl Database {
    /// A store at this address, which is looked at only when it is used.
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

    pub(crate) fn target(&self) -> Result<Target, Error> {
        self.address.target().map_err(|why| Error::Io {
            doing: "connecting to",
            place: self.name(),
            why: std::io::Error::other(why.to_string()),
        })
    }
}

impl Remote for Database {
    fn name(&self) -> String {
        self.address
            .target()
            .map_or_else(|_| "the database".to_owned(), |target| target.place)
    }

    fn look(&self) -> Result<State, Error> {
        let target = &self.target()?;
        let link = Link::open(target)?;
        if let Some(why) = schema::permission(&link)? {
            return Err(refused(&target.place, why));
        }
        let Some(version) = schema::version(&link)? else {
            return Ok(State::New);
        };
        check(&link, target)?;
        compare(&link, target)?;
        if version == 0 {
            return Ok(State::New);
        }
        Ok(present_holder(&link)?.map_or(State::Kept, |holder| State::Held(holder.name)))
    }

    fn admit(&self) -> Result<(), Error> {
        let target = &self.target()?;
        let link = Link::open(target)?;
        if let Some(why) = schema::permission(&link)? {
            return Err(refused(&target.place, why));
        }
        if schema::version(&link)?.is_some() {
            admit(&link, target)
        } else {
            Ok(())
        }
    }

    fn wall_ahead_ms(&self) -> Result<Option<i64>, Error> {
        let link = Link::open(&self.target()?)?;
        let sent = since_boot_ms();
        let rows = link.query("reading the clock of", &format!("SELECT {NOW_MS}"), &[])?;
        Ok(rows
            .first()
            .map(|row| DatabaseTime::answered(sent, row.get(0)).ahead_ms(None)))
    }

    fn holder(&self) -> Result<Option<Holder>, Error> {
        let target = &self.target()?;
        let link = Link::open(target)?;
        match schema::version(&link)? {
            Some(_) => present_holder(&link),
            None => Ok(None),
        }
    }

    fn open(
        &self,
        checkpoints: &StoreLimits,
        limits: Limits,
        seed: u64,
    ) -> Result<Opened, OpenError> {
        let Taken {
            target,
            link,
            lease,
            keeper,
            early,
        } = self.take(checkpoints.overflow.as_ref())?;
        schema::migrate(&link, &lease)?;
        let checkpoints = &in_database(checkpoints);
        let tail = Tail::open(&target, Some(&lease), &link, table_bytes(checkpoints))?;
        let found = early
            .map(|early| early.finish(&link))
            .transpose()?
            .flatten();
        if found.is_some() {
            tracing::info!("preloaded the store while waiting for the lease");
        }
        let table = Box::new(PostgresTable::new(&target, &lease, Storage::of(&link)));
        let log = PostgresLog::new(&target, tail, Arc::clone(&lease), keeper, link);
        let found = found.map_or_else(
            || Found::of_table(&*table.scan()?, checkpoints.overflow.as_ref()),
            Ok,
        )?;
        let (checkpointer, recovered) = open_found(found, &log, table, checkpoints, limits, seed)?;
        let tenure: Arc<dyn Tenure> = lease;
        // The log keeps the lease.
        Ok(Opened {
            log: Box::new(log),
            checkpointer,
            recovered,
            guard: Guard::new((), Some(tenure)),
        })
    }

    fn fill(&self, (engine, bodies): Contents<'_>) -> Result<(), OpenError> {
        let Taken {
            target,
            link,
            lease,
            keeper,
            ..
        } = self.take(None)?;
        if schema::version(&link)?.is_some_and(|version| version != 0) {
            return Err(Error::NotEmpty {
                place: target.place,
            }
            .into());
        }
        schema::migrate(&link, &lease)?;
        schema::set_version(&link, &lease, schema::FILLING)?;
        let tail = Tail::open(
            &target,
            Some(&lease),
            &link,
            table_bytes(&StoreLimits::default()),
        )?;
        let mut log = PostgresLog::new(
            &target,
            tail,
            Arc::clone(&lease),
            keeper,
            Link::open(&target)?,
        );
        Journal::new().store_all(engine, bodies.map(BodyFile::reader).as_ref(), &mut log)?;
        schema::set_version(&link, &lease, schema::VERSION)?;
        Ok(log.close()?)
    }

    fn retire(&self) -> Result<(), OpenError> {
        let Taken {
            link,
            lease,
            keeper,
            ..
        } = self.take(None)?;
        schema::set_version(&link, &lease, schema::RETIRED)?;
        drop(keeper);
        Ok(())
    }

    fn verify(&self, overflow: Option<&Overflow>, limits: Limits) -> Result<Report, OpenError> {
        let (target, link) = self.at_rest()?;
        let tail = Tail::open(&target, None, &link, u64::MAX)?;
        let report = verify_parts(&*tail, &PostgresScan::new(&target), overflow, limits)?;
        Ok(report)
    }

    fn salvage(&self, overflow: Option<&Overflow>) -> Result<Salvage, Error> {
        let (target, link) = self.at_rest()?;
        Salvage::of_parts(&PostgresScan::new(&target), overflow, |after, show| {
            read_rows(
                &link,
                after,
                i64::MAX.unsigned_abs(),
                &mut |_, _, seq, records| {
                    show(seq, records);
                    ControlFlow::Continue(())
                },
            )
        })
    }
}

/// A store whose lease this process has.
struct Taken {
    target: Target,
    link: Link,
    lease: Arc<Lease>,
    keeper: Keeper,
    /// Present if the lease was waited for.
    early: Option<EarlyRead>,
}

impl Database {
    fn take(&self, overflow: Option<&Overflow>) -> Result<Taken, Error> {
        let target = self.target()?;
        let begun = Instant::now();
        let link = Link::open(&target)?;
        let made = schema::make_lease(&link);
        // A user who may write and does not own the tables could lead until the first checkpoint.
        if let Ok(Some(lacks)) = schema::permission(&link) {
            return Err(refused(&target.place, lacks));
        }
        made?;
        let (lease, early) = take(&link, &target, overflow, begun)?;
        let keeper = Keeper::start(&lease, Link::open(&target)?, &target)
            .map_err(|why| failed(&target, why))?;
        Ok(Taken {
            target,
            link,
            lease,
            keeper,
            early,
        })
    }

    /// A store that can be read and that no daemon has.
    fn at_rest(&self) -> Result<(Target, Link), Error> {
        let target = self.target()?;
        let link = Link::open(&target)?;
        let version = schema::version(&link)?.filter(|version| *version != 0);
        let version = version
            .ok_or_else(|| Error::damaged(&target.place, "there is no Windlass data in it"))?;
        schema::check(version, &target.place)?;
        match present_holder(&link)? {
            Some(holder) => Err(in_use(&target.place, &holder.name)),
            None => Ok((target, link)),
        }
    }
}

/// The log in a database takes more room than its bytes, and is trimmed a table at a time: checkpoints come earlier than
/// with files, so that it is not larger than `store.checkpoint`.
fn in_database(checkpoints: &StoreLimits) -> StoreLimits {
    let part = |bytes: u64| bytes / 3 * 2;
    let (log_bytes, keep_bytes) = (part(checkpoints.log_bytes), part(checkpoints.keep_bytes));
    StoreLimits {
        log_bytes,
        keep_bytes,
        ..checkpoints.clone()
    }
}

/// A table of the log is full with this many bytes. When a checkpoint is due, all but the last one are.
const fn table_bytes(checkpoints: &StoreLimits) -> u64 {
    checkpoints.log_bytes / 4
}

fn failed(target: &Target, why: std::io::Error) -> Error {
    Error::Io {
        doing: "keeping the lease of",
        place: target.place.clone(),
        why,
    }
}
