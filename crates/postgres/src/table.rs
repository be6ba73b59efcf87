//! The table: pages in a table of the database. A checkpoint is one transaction, which ends with its point.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use windlass_store::{Error, Scan, ShowPair, Table, point_key};

use crate::address::Target;
use crate::lease::Lease;
use crate::link::Link;
use crate::schema::{Storage, pages_table};

/// Bytes of values that are written together.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// How long the replacement of a table waits for a reader, for instance a dump of the database.
const LOCK_TIMEOUT: &str = "3s";
/// How long a checkpoint waits to learn whether its transaction was committed when the answer was lost.
const DOUBT: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(100);
const READING: &str = "reading the table in";
const WRITING: &str = "writing to the table in";

/// A table in PostgreSQL.
pub(crate) struct PostgresTable {
    target: Target,
    lease: Arc<Lease>,
    storage: Storage,
    /// The transaction of the present checkpoint.
    link: Option<Link>,
    /// Values to be set, and keys to be removed.
    waiting: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    waiting_bytes: usize,
    /// The point that the transaction ends with.
    point: Option<Vec<u8>>,
    building: bool,
    /// A checkpoint has failed: the next one begins a new table, because the checkpointer may know the old one no
    /// longer.
    abandoned: bool,
    disk_bytes: u64,
}

impl PostgresTable {
    pub(crate) fn new(target: &Target, lease: &Arc<Lease>, storage: Storage) -> Self {
        let mut table = Self {
            target: target.clone(),
            lease: Arc::clone(lease),
            storage,
            link: None,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            point: None,
            building: false,
            abandoned: false,
            disk_bytes: 0,
        };
        table.measure();
        table
    }

    /// The link of the present transaction, which it begins if there is none, and the table that is written to.
    fn begin(&mut self) -> Result<(&Link, String), Error> {
        if self.link.is_none() {
            let link = Link::open(&self.target)?;
            link.batch(WRITING, "BEGIN")?;
            self.link = Some(link);
        }
        let link = self.link.as_ref().ok_or(Error::Closed)?;
        Ok((
            link,
            if self.building {
                link.building()
            } else {
                link.pages()
            },
        ))
    }

    /// Writes the waiting values.
    fn flush(&mut self) -> Result<(), Error> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        if waiting.is_empty() {
            return Ok(());
        }
        let (mut keys, mut values, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for (key, value) in waiting {
            match value {
                Some(value) => {
                    keys.push(key);
                    values.push(value);
                }
                None => gone.push(key),
            }
        }
        let (link, name) = self.begin()?;
        if !gone.is_empty() {
            link.execute(
                WRITING,
                &format!("DELETE FROM {name} WHERE key = ANY($1)"),
                &[&gone],
            )?;
        }
        if !keys.is_empty() {
            let put = format!(
                "INSERT INTO {name} (key, value) SELECT * FROM unnest($1::bytea[], $2::bytea[])
                 ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value"
            );
            link.execute(WRITING, &put, &[&keys, &values])?;
        }
        Ok(())
    }

    /// Ends the transaction under the lease. When the answer is lost, the point in the table shows whether it was
    /// committed.
    fn commit(&mut self) -> Result<(), Error> {
        let Some(link) = self.link.take() else {
            return Ok(());
        };
        let point = self.point.take();
        self.lease.fence(&link, WRITING)?;
        let Err(why) = link.batch(WRITING, "COMMIT") else {
            return Ok(());
        };
        drop(link);
        let Some(point) = point else { return Err(why) };
        if self.look_for(&point)? {
            Ok(())
        } else {
            Err(why)
        }
    }

    /// Whether the table has this point, as soon as the database answers.
    fn look_for(&self, point: &[u8]) -> Result<bool, Error> {
        let end = Instant::now() + DOUBT;
        loop {
            match self.point_of() {
                Ok(found) => return Ok(found.as_deref() == Some(point)),
                Err(why) if why.is_deposed() || Instant::now() > end => return Err(why),
                Err(_) => thread::sleep(RETRY),
            }
        }
    }

    /// The point in the table, once no transaction is left that may change it.
    fn point_of(&self) -> Result<Option<Vec<u8>>, Error> {
        let link = Link::open(&self.target)?;
        self.lease.settle(&link, READING)?;
        let look = format!("SELECT value FROM {} WHERE key = $1", link.pages());
        Ok(link
            .query(READING, &look, &[&point_key()])?
            .first()
            .map(|row| row.get(0)))
    }

    /// Learns how large the table is. A database that does not answer leaves it as it was.
    fn measure(&mut self) {
        let measured = Link::open(&self.target).and_then(|link| {
            let look = "SELECT pg_total_relation_size($1::text::regclass)";
            Ok(link
                .query(READING, look, &[&link.pages()])?
                .first()
                .map(|row| row.get::<_, i64>(0)))
        });
        if let Ok(Some(bytes)) = measured {
            self.disk_bytes = u64::try_from(bytes).unwrap_or_default();
        }
    }
}

impl Table for PostgresTable {
    fn scan(&self) -> Result<Box<dyn Scan>, Error> {
        Ok(Box::new(PostgresScan::new(&self.target)))
    }

    fn is_writable(&self) -> bool {
        !self.building && !self.abandoned
    }

    fn is_atomic(&self) -> bool {
        true
    }

    fn begin_anew(&mut self) -> Result<(), Error> {
        self.link = None;
        (self.waiting, self.waiting_bytes, self.point) = (BTreeMap::new(), 0, None);
        self.building = true;
        let storage = self.storage;
        let (link, name) = self.begin()?;
        link.batch(WRITING, &pages_table(&name, storage))
    }

    fn end_anew(&mut self) -> Result<(), Error> {
        self.flush()?;
        let (link, _) = self.begin()?;
        let (pages, building) = (link.pages(), link.building());
        let replace = format!(
            "SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; DROP TABLE {pages}; ALTER TABLE {building} RENAME TO pages;
             ALTER INDEX {building}_pkey RENAME TO pages_pkey"
        );
        link.batch(WRITING, &replace)?;
        self.commit()?;
        (self.building, self.abandoned) = (false, false);
        self.measure();
        Ok(())
    }

    fn abandon(&mut self) {
        self.link = None;
        (self.waiting, self.waiting_bytes, self.point) = (BTreeMap::new(), 0, None);
        (self.building, self.abandoned) = (false, true);
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if let Some(value) = self.waiting.get(key) {
            return Ok(value.clone());
        }
        let (link, name) = self.begin()?;
        let look = format!("SELECT value FROM {name} WHERE key = $1");
        Ok(link
            .query(READING, &look, &[&key])?
            .first()
            .map(|row| row.get(0)))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if key == point_key() {
            self.point = Some(value.to_vec());
        }
        self.waiting_bytes += key.len() + value.len();
        self.waiting.insert(key.to_vec(), Some(value.to_vec()));
        if self.waiting_bytes > WAITING_BYTES_MAX {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), Error> {
        self.waiting_bytes += key.len();
        self.waiting.insert(key.to_vec(), None);
        Ok(())
    }

    /// Durable is what has a point: the rest of a checkpoint becomes durable together with it.
    fn sync(&mut self) -> Result<(), Error> {
        self.flush()?;
        if self.building || self.point.is_none() {
            return Ok(());
        }
        self.commit()?;
        self.measure();
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }
}

/// The pages as they are.
pub(crate) struct PostgresScan(Target);

impl PostgresScan {
    pub(crate) fn new(target: &Target) -> Self {
        Self(target.clone())
    }
}

impl Scan for PostgresScan {
    fn each(&self, candidate: usize, each: &mut ShowPair<'_>) -> Result<bool, Error> {
        if candidate > 0 {
            return Ok(false);
        }
        let link = Link::open(&self.0)?;
        let select = format!("SELECT key, value FROM {} ORDER BY key", link.pages());
        let mut rows = link.rows(READING, &select, &[])?;
        while let Some(row) = rows.next(READING)? {
            if let ControlFlow::Break(()) = each(row.get(0), row.get(1), None) {
                break;
            }
        }
        Ok(true)
    }
}
