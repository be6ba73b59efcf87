//! The store on the disk: one sled tree, one key a value. Nothing outside this file and its folder knows sled.
//!
//! sled 0.34.7 is used in the one way that was found to hold, with one writer and one batch at a time:
//! `apply_batch` or `insert`s → `flush` → `fdatasync` of its `db` file.
//!
//! * A batch of sled's costs a write of its own, which wakes all threads of its pool. It is used where values come and go
//!   at once; where they only come, what survives of them says itself whether it is whole.
//! * `flush` alone ends in `sync_file_range`, which leaves the file's size and the device's cache to chance; without a
//!   flush after each batch it was seen to deadlock.
//! * A page of more than a quarter of a segment goes to a file of its own (`blobs/`), which sled neither syncs nor always
//!   deletes. A page is up to twenty values: so values are of at most 4 KiB, and segments of 2 MiB or more.
//! * Between two syncs less than a segment of log must be written, or sled could reuse a segment before what replaces its
//!   contents is durable. A value costs up to ten times its size in log (its page is written anew every eleven changes,
//!   halved every eight, and moved when segments are cleaned), one removed up to seven times: so a batch has at most
//!   one for 96 KiB of a segment, and the journal removes little more than it writes. Larger segments make for fewer
//!   syncs: with 8 MiB instead of 2, a flood of jobs took an eighth less CPU each.
//! * A page leaves the cache only once 64 uses have been noted in its part of it, one of 256. So a journal that is read once
//!   would stay in memory, and reading uses each page as often while it is there. One page a part always stays:
//!   with values of 24 KiB that was more than 100 MiB, with 4 KiB it is a sixth of that.
//! * After an I/O error sled refuses everything, and after a failed sync nobody knows what is on the disk. So the store
//!   closes, and to reopen it first writes the file's own contents over itself: then cache and disk agree again.
//! * Opening overwrites what the next opening needs if the power fails meanwhile: see `opening`.

mod files;
mod opening;

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use self::files::{Blobs, Lock, at};
use self::opening::Opening;
use crate::commit::Commit;
use crate::store::{Error, Store};

const TREE: &str = "journal";
const FOLDER: &str = "journal";
const NEW_FOLDER: &str = "journal.new";
const SEGMENT_BYTES: usize = 8 << 20;
/// Log that is allowed for each value written between two syncs.
const LOG_BYTES_PER_VALUE: usize = 96 << 10;
/// Values written between two syncs however small a segment is: then they must be small themselves.
const BATCH_VALUES_MIN: u32 = 4;
/// Uses of a page before those next to it leave the cache, and values of a page at least.
const USES: usize = 64;
const PAGE_VALUES_MIN: usize = 8;

/// What a test wants to see: the store's folder, when a batch is written and not yet synced.
pub type Watch = Box<dyn FnMut(&Path) + Send>;

/// Where the store is, and how much memory it may take.
#[derive(Clone, Debug)]
pub struct SledConfig {
    /// The data directory. Made if it is not there.
    pub path: PathBuf,
    /// Bytes of pages sled keeps in memory.
    pub cache_bytes: u64,
    /// For tests: smaller segments roll more often, but values must be smaller too. 8 MiB otherwise.
    #[doc(hidden)]
    pub segment_bytes: usize,
}

impl SledConfig {
    /// A store in this directory, with 16 MiB of cache.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), cache_bytes: 16 << 20, segment_bytes: SEGMENT_BYTES }
    }

    fn batch_values(&self) -> u32 {
        u32::try_from(self.segment_bytes / LOG_BYTES_PER_VALUE).unwrap_or(u32::MAX).max(BATCH_VALUES_MIN)
    }
}

/// A store on the disk.
pub struct SledStore {
    config: SledConfig,
    open: Option<Open>,
    watch: Option<Watch>,
    // Last: given back once everything else is closed.
    _lock: Lock,
}

struct Open {
    tree: sled::Tree,
    db: sled::Db,
    /// Our own handle on sled's file: what is synced.
    file: File,
    blobs: Blobs,
}

impl SledStore {
    /// Opens the store in a directory, or makes one there.
    ///
    /// # Errors
    ///
    /// If another process has it, if it is damaged, and if the file system refuses.
    pub fn open(config: SledConfig) -> Result<Self, Error> {
        let lock = Lock::take(&config.path)?;
        let folder = config.path.join(FOLDER);
        if !folder.exists() {
            create(&config)?;
        }
        let open = Some(open(&folder, &config)?);
        Ok(Self { config, open, watch: None, _lock: lock })
    }

    /// For tests: what the power may fail upon while the store opens. Opening goes on where this stops.
    ///
    /// # Errors
    ///
    /// As when it opens.
    #[doc(hidden)]
    pub fn begin_to_open(config: &SledConfig) -> Result<(), Error> {
        let _lock = Lock::take(&config.path)?;
        Opening::begin(&config.path.join(FOLDER), config.segment_bytes).map(drop)
    }

    /// Shows the store's folder to a test whenever a batch is written and not yet synced.
    pub fn watch(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    fn folder(&self) -> PathBuf {
        self.config.path.join(FOLDER)
    }

    fn write(&mut self, commit: &Commit) -> Result<(), Error> {
        let folder = self.folder();
        let open = self.open.as_mut().ok_or(Error::Closed)?;
        let mut values = commit.values();
        for part in commit.batches(self.config.batch_values()) {
            let mut batch = sled::Batch::default();
            part.removals().for_each(|key| batch.remove(&key.to_be_bytes()));
            let together = part.removals().next().is_some();
            for _ in 0..part.values() {
                let Some((key, value)) = values.next() else { break };
                if together {
                    batch.insert(&key.to_be_bytes(), value);
                } else {
                    guarded("writing", &folder, || open.tree.insert(key.to_be_bytes(), value))?;
                }
            }
            if together {
                guarded("writing", &folder, || open.tree.apply_batch(batch))?;
            }
            open.blobs.sync_if_changed()?;
            guarded("flushing", &folder, || open.db.flush())?;
            if let Some(watch) = &mut self.watch {
                watch(&folder);
            }
            let path = folder.join(files::DB);
            open.file.sync_data().map_err(at("syncing", &path))?;
        }
        Ok(())
    }

    /// Drops what is open. sled may panic when it finds at the end that it cannot sync.
    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            let closed = catch_unwind(AssertUnwindSafe(|| drop(open)));
            if closed.is_err() {
                tracing::warn!("sled failed once more while it was closed");
            }
        }
    }
}

impl Store for SledStore {
    fn commit(&mut self, commit: &Commit) -> Result<(), Error> {
        let written = self.write(commit);
        if written.is_err() {
            self.close();
        }
        written
    }

    fn reopen(&mut self) -> Result<(), Error> {
        self.close();
        let folder = self.folder();
        files::wait_for_release(&folder)?;
        files::rewrite(&folder)?;
        self.open = Some(open(&folder, &self.config)?);
        Ok(())
    }

    fn scan(&self, each: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>) -> Result<(), Error> {
        let (open, folder) = (self.open.as_ref().ok_or(Error::Closed)?, self.folder());
        let mut pairs = open.tree.iter();
        while let Some(pair) = guarded("reading", &folder, || Ok(pairs.next()))? {
            let (key, value) = guarded("reading", &folder, || pair)?;
            for _ in 0..USES / PAGE_VALUES_MIN {
                guarded("reading", &folder, || open.tree.contains_key(&key))?;
            }
            let key = key
                .as_ref()
                .try_into()
                .map_err(|_| Error::Damaged { path: folder.clone(), what: format!("a key of {} bytes", key.len()) })?;
            if each(u64::from_be_bytes(key), &value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        files::bytes(&self.config.path)
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for SledStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SledStore").field("config", &self.config).field("open", &self.open.is_some()).finish()
    }
}

/// Makes a new store beside its place and moves it there whole: half a store is never found.
fn create(config: &SledConfig) -> Result<(), Error> {
    let (new, folder) = (config.path.join(NEW_FOLDER), config.path.join(FOLDER));
    files::remove_folder(&new)?;
    let Open { tree, db, file, blobs } = open(&new, config)?;
    guarded("closing", &new, || {
        db.flush()?;
        drop((tree, db));
        Ok(())
    })?;
    drop((file, blobs));
    files::sync_folder(&new)?;
    std::fs::rename(&new, &folder).map_err(at("naming", &folder))?;
    files::sync_entry(&config.path)
}

fn open(folder: &Path, config: &SledConfig) -> Result<Open, Error> {
    files::wait_for_release(folder)?;
    let opening = Opening::begin(folder, config.segment_bytes)?;
    let (db, tree) = guarded("opening", folder, || {
        let db = sled::Config::new()
            .path(folder)
            .segment_size(config.segment_bytes)
            .cache_capacity(config.cache_bytes)
            .flush_every_ms(None)
            .open()?;
        let tree = db.open_tree(TREE)?;
        db.flush()?;
        Ok((db, tree))
    })?;
    opening.end(folder)?;
    let path = folder.join(files::DB);
    let file = File::open(&path).map_err(at("opening", &path))?;
    let blobs = Blobs::of(folder)?;
    Ok(Open { tree, db, file, blobs })
}

/// Calls sled, which panics where it should return an error.
fn guarded<T>(doing: &'static str, folder: &Path, call: impl FnOnce() -> sled::Result<T>) -> Result<T, Error> {
    let path = || folder.to_path_buf();
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(sled::Error::Io(why))) => Err(Error::Io { doing, path: path(), why }),
        Ok(Err(why @ sled::Error::Corruption { .. })) => Err(Error::Damaged { path: path(), what: why.to_string() }),
        Ok(Err(
            why @ (sled::Error::CollectionNotFound(_) | sled::Error::Unsupported(_) | sled::Error::ReportableBug(_)),
        )) => Err(Error::Io { doing, path: path(), why: io::Error::other(why) }),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            Err(Error::Damaged { path: path(), what: format!("sled gave up {doing}: {text}") })
        }
    }
}
