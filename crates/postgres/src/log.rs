//! The log: a commit is a row, written in one statement and one round trip.

use std::sync::Arc;

use tokio_postgres::Statement;
use tokio_postgres::error::SqlState;
use windlass_store::{Commit, Error, Log, LogTail, Tenure as _};

use crate::address::Target;
use crate::lease::{Keeper, Lease};
use crate::link::{Link, has_code, is_conflict};
use crate::schema::LOG_TABLES;
use crate::tail::{Slot, Tail, checksum, signed};

/// How often a statement is tried that the database has put behind others.
const TRIES: u32 = 20;
const WRITING: &str = "writing to the log in";

/// Takes commits.
pub(crate) struct PostgresLog {
    target: Target,
    lease: Arc<Lease>,
    tail: Arc<Tail>,
    link: Option<Link>,
    /// Prepared statements of the present link, one a table.
    inserts: [Option<Statement>; LOG_TABLES],
    /// A commit that may be there: its answer was lost.
    in_doubt: Option<u64>,
    keeper: Option<Keeper>,
}

impl PostgresLog {
    pub(crate) fn new(
        target: &Target,
        tail: Arc<Tail>,
        lease: Arc<Lease>,
        keeper: Keeper,
        link: Link,
    ) -> Self {
        Self {
            target: target.clone(),
            lease,
            tail,
            link: Some(link),
            inserts: Default::default(),
            in_doubt: None,
            keeper: Some(keeper),
        }
    }

    /// Writes a commit, unless it is there already.
    fn write(&mut self, commit: &Commit, slot: Slot, records: &[u8]) -> Result<(), Error> {
        let (seq, sum) = (commit.seq(), checksum(commit.seq(), records));
        if self.in_doubt == Some(seq) && self.is_there(seq, slot.table, sum)? {
            return Ok(());
        }
        self.in_doubt = Some(seq);
        for _ in 0..TRIES {
            let insert = self.insert_into(slot.table)?;
            let link = self.link.as_ref().ok_or(Error::Closed)?;
            let epoch = self.lease.epoch();
            match link.try_execute(
                &insert,
                &[&epoch, &signed(seq), &signed(slot.place), &sum, &records],
            ) {
                Ok(0) => return Err(self.lease.find_successor(link)),
                Ok(_) => return Ok(()),
                // An earlier try has ended meanwhile.
                Err(why)
                    if has_code(&why, &SqlState::UNIQUE_VIOLATION)
                        && self.is_there(seq, slot.table, sum)? =>
                {
                    return Ok(());
                }
                Err(why) if is_conflict(&why) => {}
                Err(why) => return Err(link.error(WRITING, &why)),
            }
        }
        Err(Error::Io {
            doing: WRITING,
            place: self.target.place.clone(),
            why: std::io::Error::other("the database always prefers other transactions"),
        })
    }

    /// Whether a commit whose answer was lost is in the log. First that try must have ended.
    fn is_there(&self, seq: u64, table: usize, sum: i64) -> Result<bool, Error> {
        let link = self.link.as_ref().ok_or(Error::Closed)?;
        self.lease.settle(link, WRITING)?;
        let look = format!(
            "SELECT 1 FROM {} WHERE seq = $1 AND epoch = $2 AND checksum = $3",
            link.log(table)
        );
        Ok(!link
            .query(WRITING, &look, &[&signed(seq), &self.lease.epoch(), &sum])?
            .is_empty())
    }

    /// All or nothing: the lease's row is locked, its epoch compared, and the commit inserted.
    fn insert_into(&mut self, table: usize) -> Result<Statement, Error> {
        let prepared = self.inserts.get_mut(table).ok_or(Error::Closed)?;
        if let Some(prepared) = prepared {
            return Ok(prepared.clone());
        }
        let link = self.link.as_ref().ok_or(Error::Closed)?;
        let (lease, log) = (link.lease(), link.log(table));
        let insert = link.prepare(
            WRITING,
            &format!(
                "WITH held AS (SELECT epoch FROM {lease} WHERE id = 1 AND epoch = $1 FOR SHARE)
                 INSERT INTO {log} (seq, epoch, place, checksum, records)
                 SELECT $2::bigint, epoch, $3::bigint, $4::bigint, $5::bytea FROM held"
            ),
        )?;
        *prepared = Some(insert.clone());
        Ok(insert)
    }
}

impl Log for PostgresLog {
    fn append(&mut self, commit: &Commit) -> Result<(), Error> {
        if let Some(refusal) = self.lease.refusal() {
            return Err(refusal);
        }
        let (records, slot) = (commit.records(), self.tail.slot());
        let written = self.write(commit, slot, &records);
        if let Err(why) = written {
            self.link = self.link.take().filter(|_| why.is_deposed());
            return Err(why);
        }
        // It is in the log, and the next try finds it there.
        if !self.lease.holds() {
            return Err(self.lease.refusal().unwrap_or(Error::Closed));
        }
        self.in_doubt = None;
        self.tail.appended(commit.seq(), slot, records.len() as u64);
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), Error> {
        if let Some(lost) = self.lease.lost() {
            return Err(lost);
        }
        if self.link.as_ref().is_none_or(Link::is_closed) {
            self.inserts = Default::default();
            self.link = None;
            self.link = Some(Link::open(&self.target)?);
        }
        Ok(())
    }

    /// Gives the lease back: another daemon may have the store at once.
    fn close(&mut self) -> Result<(), Error> {
        drop(self.keeper.take());
        Ok(())
    }

    fn tail(&self) -> Arc<dyn LogTail> {
        Arc::clone(&self.tail) as Arc<dyn LogTail>
    }
}
