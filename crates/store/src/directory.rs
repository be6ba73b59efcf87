//! The data directory: layout, opening, and creation.
//!
//! ```text
//! lock             held by one process; records whether a store has existed
//! store/log/       segment-1, segment-2, … and mark: the log
//! store/…          the folders of the table
//! store.new/       a store that is being created
//! ```
//!
//! A store is created in `store.new` and renamed when it is complete, so a partial store is never found. A
//! missing part is damage.

use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::{Engine, Limits};

use crate::body_file::{BodyFile, Overflow};
use crate::checkpoint::{Checkpointer, StoreLimits};
use crate::damage::{Damage, OpenError};
use crate::files::{Lock, at, exchange, make_folder, remove_folder, rename, sync_entry};
use crate::journal::{Journal, queue_records};
use crate::log::entry::LogId;
use crate::log::file::{self, FileLog};
use crate::log::scan::{Scanned, scan};
use crate::page::{POINT_KEY, Point};
use crate::parts::Found;
use crate::recover::{Recovered, Report};
use crate::salvage::Salvage;
use crate::store::{Error, Log, Scan, Table, Tables, Tenure};

pub(crate) const STORE: &str = "store";
const NEW_STORE: &str = "store.new";
pub(crate) const LOG: &str = "log";

/// Location and settings of a store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The data directory. It is created if it does not exist.
    pub path: PathBuf,
    /// The kind of table.
    pub tables: Arc<dyn Tables>,
    /// When to make checkpoints.
    pub checkpoints: StoreLimits,
    /// For tests: bytes of a segment of the log. 8 MiB otherwise.
    #[doc(hidden)]
    pub segment_bytes: u64,
}

impl StoreConfig {
    /// A store in this directory, with this kind of table.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, tables: impl Tables + 'static) -> Self {
        Self {
            path: path.into(),
            tables: Arc::new(tables),
            checkpoints: StoreLimits::default(),
            segment_bytes: file::SEGMENT_BYTES,
        }
    }
}

/// An open store.
#[derive(Debug)]
pub struct Opened {
    /// Stores commits.
    pub log: Box<dyn Log>,
    /// Makes checkpoints.
    pub checkpointer: Checkpointer,
    /// The recovered engine and journal.
    pub recovered: Recovered,
    /// Prevents other processes from opening the store.
    pub guard: Guard,
}

/// Prevents other processes from opening a store.
#[derive(Debug)]
pub struct Guard {
    _held: Box<dyn Hold>,
    tenure: Option<Arc<dyn Tenure>>,
}

/// A lock that is released when it is dropped.
trait Hold: fmt::Debug + Send + Sync {}
impl<T: fmt::Debug + Send + Sync> Hold for T {}

impl Guard {
    /// Retains a lock until the guard is dropped. If `tenure` is set, the store belongs to this process only
    /// while that is valid.
    pub fn new(
        held: impl fmt::Debug + Send + Sync + 'static,
        tenure: Option<Arc<dyn Tenure>>,
    ) -> Self {
        Self {
            _held: Box::new(held),
            tenure,
        }
    }

    /// The right to the store, if it is limited in time.
    pub fn tenure(&self) -> Option<Arc<dyn Tenure>> {
        self.tenure.clone()
    }
}

impl std::fmt::Debug for dyn Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Log")
    }
}

/// The state of a place where a store may be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// No store: a start creates one.
    New,
    /// A store that no process has.
    Kept,
    /// A store that this process has.
    Held(String),
}

/// The process that has a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The name, for people.
    pub name: String,
    /// The address of the process's link for other daemons; empty if it has no link.
    pub link: String,
    /// The number of the process's right to the store.
    pub epoch: u64,
}

/// An engine, and the file with bodies of jobs that are not in memory.
pub type Contents<'a> = (&'a mut Engine, Option<&'a BodyFile>);

/// A store that is not in a data directory.
pub trait Remote: fmt::Debug + Send + Sync {
    /// Where it is, for messages: without secrets.
    fn name(&self) -> String;

    /// The state of the store. Modifies nothing.
    ///
    /// # Errors
    ///
    /// The store cannot be reached.
    fn look(&self) -> Result<State, Error>;

    /// Refuses a store that belongs to a group of daemons that does not include this one. Modifies nothing.
    ///
    /// # Errors
    ///
    /// The store belongs to such a group, or cannot be reached.
    fn admit(&self) -> Result<(), Error> {
        Ok(())
    }

    /// How far the wall clock of the store is ahead of this machine's time since boot, in milliseconds;
    /// `None`: the store has no clock.
    ///
    /// # Errors
    ///
    /// The store cannot be reached.
    fn wall_ahead_ms(&self) -> Result<Option<i64>, Error> {
        Ok(None)
    }

    /// The process that has the store open; `None`: there is no such process, or no store. Modifies nothing.
    ///
    /// # Errors
    ///
    /// The store cannot be reached.
    fn holder(&self) -> Result<Option<Holder>, Error>;

    /// Opens the store, or creates one. `seed` keys the engine's hash tables.
    ///
    /// # Errors
    ///
    /// Another process has the store open, it cannot be reached, or required data is missing.
    fn open(
        &self,
        checkpoints: &StoreLimits,
        limits: Limits,
        seed: u64,
    ) -> Result<Opened, OpenError>;

    /// Creates a store with the contents of an engine, where no store exists.
    ///
    /// # Errors
    ///
    /// A store already exists, or it cannot be reached. An incomplete store is never opened.
    fn fill(&self, contents: Contents<'_>) -> Result<(), OpenError>;

    /// Marks the contents as moved to another store, so that no process opens them again.
    ///
    /// # Errors
    ///
    /// Another process has the store open, or it cannot be reached.
    fn retire(&self) -> Result<(), OpenError>;

    /// Reads the store as a start of the daemon would, without modifying it.
    ///
    /// # Errors
    ///
    /// The reason why the daemon would not start, or a process has the store open.
    fn verify(&self, overflow: Option<&Overflow>, limits: Limits) -> Result<Report, OpenError>;

    /// Reads as much as possible, without modifying the store.
    ///
    /// # Errors
    ///
    /// A process has the store open, or it does not exist.
    fn salvage(&self, overflow: Option<&Overflow>) -> Result<Salvage, Error>;
}

/// Opens the store in a directory, or creates one there. `seed` keys the engine's hash tables.
///
/// # Errors
///
/// Another process has the directory open, the file system fails, or required data is missing.
pub fn open(config: &StoreConfig, limits: Limits, seed: u64) -> Result<Opened, OpenError> {
    let mut lock = Lock::take(&config.path)?;
    let store = config.path.join(STORE);
    if !store.exists() {
        if lock.had_store() {
            return Err(missing(store.display()));
        }
        make_new(config, None, seed)?;
        put_in_place(config)?;
    }
    lock.has_store()?;
    let Read {
        table,
        found,
        mut scanned,
    } = read(config, &store)?;
    // A process that was killed may have left directory entries that are not durable.
    [&config.path, &store, &store.join(LOG)]
        .into_iter()
        .try_for_each(|folder| sync_entry(folder))?;
    let (torn, last_seq) = (scanned.torn, scanned.last.0);
    let harmless = std::mem::take(&mut scanned.harmless);
    for damage in &harmless {
        tracing::warn!(%damage, "the log is damaged, but nothing is lost: the table holds the damaged commits");
    }
    let mut log = FileLog::resume(&store.join(LOG), scanned, config.segment_bytes)?;
    let bodies = found.replay.jobs.file();
    log.keep(|path, file| bodies.is_some_and(|bodies| bodies.shares(path, file)));
    if torn {
        let seq = last_seq + 1;
        tracing::warn!(
            seq,
            "the last entry of the log is torn and is dropped; it was never acknowledged, unless the disk has reported errors"
        );
    }
    table.tidy()?;
    log.tail()
        .make_room()
        .unwrap_or_else(|error| tracing::warn!(%error, "cannot allocate disk space for the log"));
    let (checkpointer, mut recovered) =
        found.open(table, log.tail(), &config.checkpoints, limits, seed)?;
    log.know(queue_records(&recovered.engine));
    (recovered.report.torn, recovered.report.harmless) = (torn, harmless);
    Ok(Opened {
        log: Box::new(log),
        checkpointer,
        recovered,
        guard: Guard::new(lock, None),
    })
}

/// A store that has been read and is in order.
pub(crate) struct Read {
    pub(crate) table: Box<dyn Table>,
    pub(crate) found: Found,
    pub(crate) scanned: Scanned,
}

/// Reads a store without changing it.
pub(crate) fn read(config: &StoreConfig, store: &Path) -> Result<Read, OpenError> {
    let log = store.join(LOG);
    if let Some(folder) = [store, &log].into_iter().find(|folder| !folder.is_dir()) {
        return Err(missing(folder.display()));
    }
    let Some(table) = config.tables.open(store)? else {
        return Err(missing(store.join("table").display()));
    };
    let overflow = config.checkpoints.overflow.as_ref();
    let (found, scanned) = Found::read(
        &*scan_of(&*table)?,
        table.place(),
        overflow,
        |point, show| {
            let kept = config.checkpoints.keep_from.unwrap_or(u64::MAX);
            scan(&log, point.seq, point.before.min(kept), show)
        },
    )?;
    if found.point.log != scanned.id.0 {
        return Err(Damage::of(
            table.place(),
            "the table and the log belong to different stores",
        )
        .into());
    }
    Ok(Read {
        table,
        found,
        scanned,
    })
}

/// Opens a table for reading. A missing file is damage.
fn scan_of(table: &dyn Table) -> Result<Box<dyn Scan>, OpenError> {
    match table.scan() {
        Err(Error::Io { place, why, .. }) if why.kind() == io::ErrorKind::NotFound => {
            Err(missing(place))
        }
        scan => Ok(scan?),
    }
}

fn missing(place: impl Display) -> OpenError {
    Damage::of(
        place,
        "it is missing: a start without it would lose everything",
    )
    .into()
}

/// Creates a store with the contents of an engine, and renames it to the final path. Calls `ready` before
/// that.
pub(crate) fn make_with(
    config: &StoreConfig,
    contents: Contents<'_>,
    seed: u64,
    ready: impl FnOnce() -> io::Result<()>,
) -> Result<(), OpenError> {
    make_new(config, Some(contents), seed)?;
    ready().map_err(at("preparing", &config.path))?;
    put_in_place(config)
}

fn put_in_place(config: &StoreConfig) -> Result<(), OpenError> {
    rename(&config.path.join(NEW_STORE), &config.path.join(STORE))?;
    sync_entry(&config.path)?;
    Ok(())
}

/// Creates a store with the contents of an engine, and makes it durable.
fn make_new(
    config: &StoreConfig,
    contents: Option<Contents<'_>>,
    seed: u64,
) -> Result<(), OpenError> {
    let new = config.path.join(NEW_STORE);
    remove_folder(&new)?;
    let folder = new.join(LOG);
    make_folder(&folder)?;
    let id = LogId(random(seed));
    FileLog::create(&folder, id, config.segment_bytes)?;
    config
        .tables
        .create(&new, POINT_KEY, &Point::start(id.0).encode())?;
    if let Some((engine, bodies)) = contents {
        let scanned = scan(&folder, 0, 0, &mut |_, _| Ok(()))?;
        let mut log = FileLog::resume(&folder, scanned, config.segment_bytes)?;
        Journal::new().store_all(engine, bodies.map(BodyFile::reader).as_ref(), &mut log)?;
        log.close()?;
    }
    sync_entry(&folder)?;
    sync_entry(&new)?;
    Ok(())
}

/// A number that outsiders cannot guess.
fn random(seed: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one((seed, std::process::id(), std::time::SystemTime::now())) | 1
}

/// Creates a store with the contents of an engine, in place of the existing one, if any. Returns the path to
/// which the old data was moved, for inspection.
///
/// One of the two exists at all times. Otherwise a start in between would report that everything is missing,
/// or start empty.
pub(crate) fn replace(
    config: &StoreConfig,
    contents: Contents<'_>,
    seed: u64,
) -> Result<PathBuf, OpenError> {
    let (new, store) = (config.path.join(NEW_STORE), config.path.join(STORE));
    make_new(config, Some(contents), seed)?;
    let aside = free_name(config, &format!("{STORE}.damaged"));
    if !store.exists() {
        rename(&new, &store)?;
    } else if exchange(&new, &store)? {
        sync_entry(&config.path)?;
        rename(&new, &aside)?;
    } else {
        rename(&store, &aside)?;
        rename(&new, &store)?;
    }
    sync_entry(&config.path)?;
    Ok(aside)
}

/// Creates a store with the contents of an engine, in a directory without a store.
///
/// # Errors
///
/// A store already exists, another process has the directory open, or the file system fails.
pub fn fill(config: &StoreConfig, contents: Contents<'_>, seed: u64) -> Result<(), OpenError> {
    let mut lock = Lock::take(&config.path)?;
    let store = config.path.join(STORE);
    if store.exists() {
        return Err(Error::NotEmpty {
            place: store.display().to_string(),
        }
        .into());
    }
    make_with(config, contents, seed, || Ok(()))?;
    Ok(lock.has_store()?)
}

/// Renames a store after the contents were moved to another one. Returns the new path.
///
/// # Errors
///
/// The file system fails. The caller must have locked the directory.
pub fn retire(config: &StoreConfig) -> Result<PathBuf, Error> {
    let aside = free_name(config, &format!("{STORE}.moved"));
    rename(&config.path.join(STORE), &aside)?;
    sync_entry(&config.path)?;
    Ok(aside)
}

fn free_name(config: &StoreConfig, name: &str) -> PathBuf {
    let name = |n: u32| config.path.join(format!("{name}-{n}"));
    (1..=u32::MAX)
        .map(name)
        .find(|path| !path.exists())
        .unwrap_or_else(|| name(0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A right that never expires.
    #[derive(Debug)]
    struct Forever;

    impl Tenure for Forever {
        fn holds(&self) -> bool {
            true
        }

        fn wait(&self, _: Duration) {}

        fn lost(&self) -> Option<Error> {
            None
        }

        fn epoch(&self) -> u64 {
            17
        }

        fn length(&self) -> Duration {
            Duration::MAX
        }
    }

    #[test]
    fn a_guard_has_the_right_that_it_was_given() {
        let epoch = |guard: &Guard| guard.tenure().map(|tenure| tenure.epoch());
        assert_eq!(epoch(&Guard::new((), Some(Arc::new(Forever)))), Some(17));
        assert_eq!(epoch(&Guard::new((), None)), None);
    }

    #[test]
    fn the_numbers_of_logs_differ() {
        let numbers: std::collections::BTreeSet<u64> = (0..50).map(|_| random(1)).collect();
        assert!(numbers.len() == 50 && !numbers.contains(&0), "{numbers:?}");
    }
}
