//! The table on the disk: one sled tree. Only this crate depends on sled.
//!
//! sled 0.34.7 is used in the one way that has proved safe: one writer, and frequent `flush` and `fdatasync` of its
//! `db` file. Its own recovery is never used: it treats everything after a bad checksum as a torn end, blanks it, and
//! is itself not safe against a power cut. Instead only the process that created a table writes it. Its file is read by
//! `file`, which changes nothing.
//!
//! * `flush` alone ends in `sync_file_range`, which guarantees neither the file's size nor the device's cache.
//! * Between two syncs less than a segment of sled's log must be written, or sled could reuse a segment before the
//!   replacement of its contents is durable. A value costs several times its size in log (its node of up to 16 values
//!   is written anew every eleven changes, halved every eight, and moved when segments are cleaned).
//! * A node of more than a quarter of a segment would go to a file of its own, which sled neither syncs nor always
//!   deletes. So values are of at most some 64 KiB.
//! * sled writes a leaf anew after every eleventh change to it, and when it splits: a row of new values cost four times
//!   their size. So new keys are first inserted without values, many at once. The leaves split while they are small,
//!   and each value is then written once. A key without a value means nothing.
//! * After an I/O error sled refuses everything, and may panic. Then the table is abandoned, and the next checkpoint
//!   builds a new one.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::FallocateFlags;
use windlass_store::files::{
    FILE_MODE, FOLDER_MODE, at, bytes, entries, make_folder, remove_folder, rename, sync_data,
    sync_entry, sync_folder,
};
use windlass_store::{Error, Scan, ShowPair, Table, Tables, UNVERIFIED};

use crate::file::SledFile;

const TREE: &[u8] = b"table";
/// sled's log.
const DB: &str = "db";
/// Prefix of the table's folder name. A number follows; the highest counts.
const TABLE: &str = "table-";
/// Folder of an incomplete table.
const BUILDING: &str = "building";
/// Bytes of a segment of sled's log.
const SEGMENT_BYTES: usize = 8 << 20;
/// sled's log for a value: this multiple of its size …
const LOG_PER_BYTE: usize = 4;
/// … plus this many bytes.
const LOG_PER_VALUE: usize = 64 << 10;
/// Placeholder for a value that is about to be set.
const NO_VALUE: &[u8] = &[];
/// Bytes of values that are set together.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Disk space reserved for a table, so that it can shrink on a full disk.
const RESERVE_BYTES: u64 = 16 << 20;

/// Tables in sled, and their settings.
#[derive(Clone, Debug)]
pub struct SledTables {
    /// Bytes of nodes that sled caches.
    pub cache_bytes: u64,
    /// For tests: bytes of a segment of sled's log. 8 MiB otherwise.
    #[doc(hidden)]
    pub segment_bytes: usize,
}

impl Default for SledTables {
    fn default() -> Self {
        Self {
            cache_bytes: 16 << 20,
            segment_bytes: SEGMENT_BYTES,
        }
    }
}

impl Tables for SledTables {
    fn create(&self, folder: &Path, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let mut table = SledTable::at(self, folder, 0);
        table.begin_anew()?;
        table.set(key, value)?;
        table.sync()?;
        table.end_anew()
    }

    fn open(&self, folder: &Path) -> Result<Option<Box<dyn Table>>, Error> {
        Ok(SledTable::open(self, folder)?.map(|table| Box::new(table) as Box<dyn Table>))
    }
}

/// A table in sled.
struct SledTable {
    config: SledTables,
    /// The parent of the table's folder.
    home: PathBuf,
    number: u64,
    writer: Option<Writer>,
    /// The writer's table has not replaced the old one yet.
    building: bool,
}

struct Writer {
    tree: sled::Tree,
    db: sled::Db,
    folder: PathBuf,
    file: File,
    /// Bytes of sled's log that the changes since the last sync may have cost.
    cost: usize,
    /// Values to be set, and their total size.
    waiting: BTreeMap<Vec<u8>, Vec<u8>>,
    waiting_bytes: usize,
}

impl SledTable {
    /// The table in a folder, for reading until it is rebuilt. `None`: there is none.
    fn open(config: &SledTables, home: &Path) -> Result<Option<Self>, Error> {
        let number = numbers(home)?.into_iter().max();
        Ok(number.map(|number| Self::at(config, home, number)))
    }

    fn at(config: &SledTables, home: &Path, number: u64) -> Self {
        Self {
            config: config.clone(),
            home: home.to_owned(),
            number,
            writer: None,
            building: false,
        }
    }

    /// The table's folder.
    fn folder(&self) -> PathBuf {
        self.folder_of(self.number)
    }

    fn folder_of(&self, number: u64) -> PathBuf {
        self.home.join(format!("{TABLE}{number}"))
    }

    fn change(
        &mut self,
        cost: usize,
        change: impl FnOnce(&sled::Tree) -> sled::Result<()>,
    ) -> Result<(), Error> {
        let budget = self.config.segment_bytes;
        let cost = cost
            .saturating_mul(LOG_PER_BYTE)
            .saturating_add(LOG_PER_VALUE);
        if self
            .writer
            .as_ref()
            .is_some_and(|writer| writer.cost > 0 && writer.cost + cost > budget)
        {
            self.flush()?;
        }
        let writer = self.writer.as_mut().ok_or(Error::Closed)?;
        writer.cost += cost;
        guarded("writing", &writer.folder, || change(&writer.tree))
    }

    /// Sets the waiting values, after inserting their new keys.
    fn set_waiting(&mut self) -> Result<(), Error> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        let waiting = std::mem::take(&mut writer.waiting);
        writer.waiting_bytes = 0;
        for key in waiting.keys() {
            self.change(key.len(), |tree| match tree.contains_key(key)? {
                true => Ok(()),
                false => tree.insert(key, NO_VALUE).map(drop),
            })?;
        }
        // The last key first: the pieces of a large record follow the page that names them in order of keys. They must
        // be written before it, wherever a power cut ends the row.
        for (key, value) in waiting.iter().rev() {
            self.change(key.len() + value.len(), |tree| {
                tree.insert(key.as_slice(), value.as_slice()).map(drop)
            })?;
        }
        Ok(())
    }

    /// Makes durable all values passed to sled.
    fn flush(&mut self) -> Result<(), Error> {
        let writer = self.writer.as_mut().ok_or(Error::Closed)?;
        guarded("flushing", &writer.folder, || writer.db.flush())?;
        sync_data(&writer.file, &writer.folder.join(DB))?;
        writer.cost = 0;
        // Allocate beyond the file's end, unnoticed by sled: a table must grow a little before it can shrink.
        if let Ok(about) = writer.file.metadata() {
            let _ = rustix::fs::fallocate(
                &writer.file,
                FallocateFlags::KEEP_SIZE,
                about.len(),
                RESERVE_BYTES,
            );
        }
        Ok(())
    }

    fn close(&mut self) {
        if let Some(writer) = self.writer.take() {
            // sled may panic when its last write fails.
            if catch_unwind(AssertUnwindSafe(|| drop(writer))).is_err() {
                tracing::warn!("sled failed again while it was closed");
            }
        }
    }
}

fn numbers(folder: &Path) -> Result<Vec<u64>, Error> {
    let number = |path: PathBuf| {
        path.file_name()?
            .to_str()?
            .strip_prefix(TABLE)?
            .parse()
            .ok()
    };
    Ok(entries(folder)?.into_iter().filter_map(number).collect())
}

impl Table for SledTable {
    fn place(&self) -> String {
        self.folder().display().to_string()
    }

    fn tidy(&self) -> Result<(), Error> {
        remove_folder(&self.home.join(BUILDING))?;
        for number in numbers(&self.home)? {
            if number != self.number {
                remove_folder(&self.folder_of(number))?;
            }
        }
        Ok(())
    }

    fn scan(&self) -> Result<Box<dyn Scan>, Error> {
        let folder = self.folder();
        let file = SledFile::open(&folder.join(DB), self.config.segment_bytes)?;
        Ok(Box::new(SledScan { file }))
    }

    fn is_writable(&self) -> bool {
        self.writer.is_some() && !self.building
    }

    fn begin_anew(&mut self) -> Result<(), Error> {
        self.close();
        let folder = self.home.join(BUILDING);
        remove_folder(&folder)?;
        make_folder(&folder)?;
        let config = sled::Config::new()
            .path(&folder)
            .segment_size(self.config.segment_bytes)
            .cache_capacity(self.config.cache_bytes)
            .flush_every_ms(None);
        let (db, tree) = guarded("making", &folder, || {
            let db = config.open()?;
            let tree = db.open_tree(TREE)?;
            Ok((db, tree))
        })?;
        make_private(&folder)?;
        let path = folder.join(DB);
        let file = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(at("opening", &path))?;
        self.writer = Some(Writer {
            tree,
            db,
            folder,
            file,
            cost: 0,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
        });
        self.building = true;
        Ok(())
    }

    fn end_anew(&mut self) -> Result<(), Error> {
        let (home, building) = (self.home.clone(), self.home.join(BUILDING));
        sync_folder(&building)?;
        let last = numbers(&home)?.into_iter().fold(self.number, u64::max);
        let (old, new) = (self.folder(), self.folder_of(last + 1));
        rename(&building, &new)?;
        if let Err(why) = sync_entry(&home) {
            // The next process opens the table it finds: both are right. Here the old one stays in place.
            let _ = rename(&new, &building);
            return Err(why);
        }
        self.number = last + 1;
        self.building = false;
        if let Some(writer) = &mut self.writer {
            writer.folder.clone_from(&new);
        }
        if let Err(error) = remove_folder(&old) {
            tracing::warn!(%error, "cannot remove the table that the new one replaces; the next start tries again");
        }
        Ok(())
    }

    fn abandon(&mut self) {
        if let Some(writer) = self.writer.take() {
            // After an error sled may block for ever on a failed write. Close it on a thread that is not joined.
            let closing = thread::Builder::new()
                .name("table-close".to_owned())
                .spawn(|| drop(writer));
            if let Err(error) = closing {
                tracing::warn!(%error, "cannot close a failed table properly");
            }
        }
        self.building = false;
        // A folder that cannot be removed now is removed before the next build.
        let _ = remove_folder(&self.home.join(BUILDING));
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let writer = self.writer.as_ref().ok_or(Error::Closed)?;
        if let Some(value) = writer.waiting.get(key) {
            return Ok(Some(value.clone()));
        }
        let value = guarded("reading", &writer.folder, || writer.tree.get(key))?;
        Ok(value
            .filter(|value| !value.is_empty())
            .map(|value| value.to_vec()))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let writer = self.writer.as_mut().ok_or(Error::Closed)?;
        writer.waiting_bytes += value.len();
        writer.waiting.insert(key.to_vec(), value.to_vec());
        if writer.waiting_bytes > WAITING_BYTES_MAX {
            self.set_waiting()
        } else {
            Ok(())
        }
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), Error> {
        self.set_waiting()?;
        self.change(key.len(), |tree| tree.remove(key).map(drop))
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.set_waiting()?;
        self.flush()
    }

    fn disk_bytes(&self) -> u64 {
        bytes(&self.folder())
    }
}

impl Drop for SledTable {
    fn drop(&mut self) {
        self.close();
    }
}

/// sled creates its files with the process's umask.
fn make_private(folder: &Path) -> Result<(), Error> {
    for path in entries(folder)? {
        let mode = if path.is_dir() {
            FOLDER_MODE
        } else {
            FILE_MODE
        };
        fs::set_permissions(&path, Permissions::from_mode(mode))
            .map_err(at("protecting", &path))?;
    }
    Ok(())
}

/// The contents of sled's file.
struct SledScan {
    file: SledFile,
}

impl Scan for SledScan {
    fn each(&self, candidate: usize, each: &mut ShowPair<'_>) -> Result<bool, Error> {
        let mut index = if candidate == UNVERIFIED {
            self.file.outline()?
        } else {
            self.file.index(None)?
        };
        if (1..UNVERIFIED).contains(&candidate) {
            // Without the messages after a tear.
            let Some(tear) = index.tears().get(candidate - 1).copied() else {
                return Ok(false);
            };
            index = self.file.index(Some(tear))?;
        }
        self.file.for_each(&index, TREE, &mut |key, value, at| {
            if value.is_empty() {
                ControlFlow::Continue(())
            } else {
                each(key, value, at)
            }
        })?;
        Ok(true)
    }

    fn file(&self) -> Option<PathBuf> {
        Some(self.file.path.clone())
    }

    fn each_readable(&self, each: &mut ShowPair<'_>) -> Result<(), Error> {
        self.file
            .for_each_leaf_entry(&mut |key, value, _| each(key, value, None))
            .map(drop)
    }
}

/// Calls sled, which may panic instead of returning an error.
fn guarded<T>(
    doing: &'static str,
    folder: &Path,
    call: impl FnOnce() -> sled::Result<T>,
) -> Result<T, Error> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(sled::Error::Io(why))) => Err(at(doing, folder)(why)),
        Ok(Err(why @ sled::Error::Corruption { .. })) => {
            Err(Error::damaged(folder.display(), why.to_string()))
        }
        Ok(Err(
            why @ (sled::Error::CollectionNotFound(_)
            | sled::Error::Unsupported(_)
            | sled::Error::ReportableBug(_)),
        )) => Err(at(doing, folder)(io::Error::other(why))),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no reason given");
            Err(Error::damaged(
                folder.display(),
                format!("sled panicked while {doing}: {text}"),
            ))
        }
    }
}

#[cfg(test)]
mod tests;
