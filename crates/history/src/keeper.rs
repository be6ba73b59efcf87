//! The thread that writes the history. It reads the log behind the commits, as checkpoints do, so no client and no commit
//! waits for it; and the log keeps what it has not read, up to a bound.
//!
//! What happens when the disk is full, or slower than the load: the thread tries again, and when more than [`LAG_BYTES_MAX`]
//! of log are behind it, it goes on at the end of the log. The rows between are counted as left out, and the broker is not
//! slowed down.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use windlass_engine::{Ended, Timestamp};
use windlass_store::{LogTail, ended_rows};

use crate::day_file::{DayFile, is_damage};
use crate::folder::{self, FileId};
use crate::{Error, position};

/// How often the thread looks for new commits.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often what was written is made durable, so that the log may forget it.
const SYNC_EVERY: Duration = Duration::from_secs(5);

/// How often files are deleted whose time is over.
const TIDY_EVERY: Duration = Duration::from_secs(60);

/// How long the thread waits after an error.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Rows in one transaction, at most, and their bytes in the log, about: all that is in memory.
const ROWS_MAX: usize = 20_000;
const ROWS_BYTES_MAX: usize = 8 << 20;

/// Log that may wait for the history.
const LAG_BYTES_MAX: u64 = 256 << 20;

/// Files that stay open for writing.
const OPEN_MAX: usize = 4;

/// The limits of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files. Beyond it the oldest days are deleted.
    pub bytes_max: u64,
    /// Free bytes of the disk below which nothing is written, so that the store never lacks them.
    pub free_bytes_min: u64,
}

/// How the history is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Rows written since the start.
    pub rows: u64,
    /// Rows that were left out since the start, because the disk was full or too slow.
    pub left_out: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// Bytes of log that wait for the history, about.
    pub behind_bytes: u64,
    /// Why rows are not written now.
    pub failing: Option<String>,
}

/// The running thread.
#[derive(Debug)]
pub struct Keeper {
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
}

/// Shows how a history is doing, also after its thread has ended.
#[derive(Clone, Debug)]
pub struct Watch(Arc<Shared>);

impl Watch {
    /// How it is doing.
    pub fn figures(&self) -> Figures {
        self.0.lock_figures().clone()
    }
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    figures: Mutex<Figures>,
    limits: Mutex<Limits>,
}

impl Keeper {
    /// Starts the thread. It writes to `folder` what it reads in the log of this store, beginning where an earlier one has
    /// ended, and says in `read_to` up to which commit the log is not needed any more.
    ///
    /// # Errors
    ///
    /// The folder cannot be made, or the thread cannot be started.
    pub fn start(
        folder: PathBuf,
        store: u64,
        tail: Arc<dyn LogTail>,
        read_to: Arc<AtomicU64>,
        limits: Limits,
    ) -> Result<Self, Error> {
        make_folder(&folder)?;
        let shared = Arc::new(Shared::new(limits));
        let work = Work::new(folder.clone(), store, tail, read_to, Arc::clone(&shared));
        let thread = thread::Builder::new()
            .name("history".into())
            .spawn(move || work.run());
        let thread = thread.map_err(|why| folder::io(&folder, why))?;
        Ok(Self { thread, shared })
    }

    /// A handle for others that ask for the figures.
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.shared))
    }

    /// Replaces the limits.
    pub fn set_limits(&self, limits: Limits) {
        self.shared.set_limits(limits);
    }

    /// Writes what is in the log by now, and ends the thread.
    pub fn finish(self) {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        if self.thread.join().is_err() {
            tracing::error!("the history's thread panicked: the next start writes what is missing");
        }
    }
}

impl Shared {
    fn new(limits: Limits) -> Self {
        Self {
            stop: AtomicBool::new(false),
            figures: Mutex::default(),
            limits: Mutex::new(limits),
        }
    }

    fn set_limits(&self, limits: Limits) {
        *lock(&self.limits) = limits;
    }

    fn lock_figures(&self) -> MutexGuard<'_, Figures> {
        lock(&self.figures)
    }

    fn limits(&self) -> Limits {
        *lock(&self.limits)
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Makes the folder, durably: a power cut that took its name would take all files in it.
fn make_folder(folder: &Path) -> Result<(), Error> {
    let made = std::fs::create_dir_all(folder).and_then(|()| match folder.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    });
    made.map_err(|why| folder::io(folder, why))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Work {
    folder: PathBuf,
    store: u64,
    tail: Arc<dyn LogTail>,
    read_to: Arc<AtomicU64>,
    shared: Arc<Shared>,
    /// The last commit whose rows are written.
    at: u64,
    /// The last commit that the position on the disk says, and when it was written.
    synced: u64,
    synced_at: Instant,
    open: BTreeMap<FileId, DayFile>,
}

/// A file of the folder.
struct Found {
    id: FileId,
    bytes: u64,
}

/// Rows that are written together, with the numbers of their commits, and the last commit that was read.
#[derive(Default)]
struct Batch {
    rows: Vec<(u64, Ended)>,
    bytes: usize,
    upto: u64,
}

impl Work {
    /// Goes on where the position in the folder says, if that is of this store.
    fn new(
        folder: PathBuf,
        store: u64,
        tail: Arc<dyn LogTail>,
        read_to: Arc<AtomicU64>,
        shared: Arc<Shared>,
    ) -> Self {
        let begun =
            position::read(&folder).filter(|(of, commit)| *of == store && *commit <= tail.newest());
        let at = begun.map_or(0, |(_, commit)| commit);
        read_to.store(at, Ordering::Release);
        Self {
            folder,
            store,
            tail,
            read_to,
            shared,
            at,
            synced: at,
            synced_at: Instant::now(),
            open: BTreeMap::new(),
        }
    }

    fn run(mut self) {
        let mut tidied = None::<Instant>;
        loop {
            let is_last = self.shared.stopping();
            if tidied.is_none_or(|at| at.elapsed() >= TIDY_EVERY) {
                self.tidy();
                tidied = Some(Instant::now());
            }
            let mut made = self.catch_up();
            if is_last && made.is_ok() {
                made = self.sync();
            }
            let failed = made.is_err();
            self.tell(made.err());
            if is_last {
                return;
            }
            thread::park_timeout(if failed { RETRY_AFTER } else { LOOK_EVERY });
        }
    }

    /// Notes how it goes, and logs an error when it begins and when it is over.
    fn tell(&self, error: Option<Error>) {
        let mut figures = self.shared.lock_figures();
        figures.behind_bytes = self.tail.bytes_behind(self.at);
        let text = error.map(|error| error.to_string());
        let was_failing = figures.failing.is_some();
        if let Some(error) = text.as_ref().filter(|_| !was_failing) {
            tracing::warn!(%error, "the history is not written: what ends meanwhile waits in the log, up to 256 MiB of it");
        } else if was_failing && text.is_none() {
            tracing::info!("the history is written again");
        }
        figures.failing = text;
    }

    /// Writes the rows of all commits that are durable by now, and from time to time makes durable what it wrote. What comes
    /// meanwhile waits for the next time: each reading of the log begins with a segment of it, so a few rows cost as much as
    /// many.
    fn catch_up(&mut self) -> Result<(), Error> {
        let newest = self.tail.newest();
        while newest > self.at {
            let before = self.at;
            let written = self.write_next();
            // Whether the disk is full, or only slower than the load: the log must not grow without end.
            if self.tail.bytes_behind(self.at) > LAG_BYTES_MAX {
                self.leave_out();
            }
            written?;
            // The log of a store that was imported is empty, and its newest commit is in the table.
            if self.at == before {
                break;
            }
            self.sync_if_due()?;
        }
        self.sync_if_due()
    }

    fn sync_if_due(&mut self) -> Result<(), Error> {
        if self.synced_at.elapsed() >= SYNC_EVERY {
            self.synced_at = Instant::now();
            self.sync()?;
        }
        Ok(())
    }

    fn write_next(&mut self) -> Result<(), Error> {
        let batch = self.read()?;
        if batch.upto == self.at {
            return Ok(());
        }
        if !batch.rows.is_empty() {
            self.check_room()?;
        }
        // A file gets its rows in one transaction, in the order of their commits.
        let mut files = BTreeMap::<FileId, Vec<(u64, Ended)>>::new();
        for (seq, row) in batch.rows {
            let id = FileId::of(row.ended_at.0, row.keep_ms);
            files.entry(id).or_default().push((seq, row));
        }
        for (id, rows) in files {
            self.write(id, &rows, batch.upto)?;
        }
        self.at = batch.upto;
        Ok(())
    }

    /// The next rows of the log.
    fn read(&self) -> Result<Batch, Error> {
        let mut batch = Batch {
            upto: self.at,
            ..Batch::default()
        };
        let mut damaged = None;
        self.tail.read(self.at, &mut |entry| {
            for row in ended_rows(entry) {
                match row {
                    Ok((row, bytes)) => {
                        batch.bytes += bytes;
                        batch.rows.push((entry.seq, row));
                    }
                    Err(error) => damaged = Some(error),
                }
            }
            batch.upto = entry.seq;
            if batch.rows.len() >= ROWS_MAX || batch.bytes >= ROWS_BYTES_MAX {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        match damaged {
            // The store would not start with such an entry, so this is rather a fault of this program.
            Some(error) => Err(error.into()),
            None => Ok(batch),
        }
    }

    fn write(&mut self, id: FileId, rows: &[(u64, Ended)], upto: u64) -> Result<(), Error> {
        for is_second in [false, true] {
            let rows = rows.iter().map(|(seq, row)| (*seq, row));
            let written = self.file(id).and_then(|file| file.write(rows, upto));
            match written {
                Ok(written) => {
                    self.shared.lock_figures().rows += written;
                    return Ok(());
                }
                Err(error) if !is_second && is_damage(&error) => {
                    self.open.remove(&id);
                    let aside = folder::set_aside(&self.folder, id)?;
                    tracing::error!(%error, aside = %aside.display(), "a file of the history is damaged and was set aside: a new one takes its place");
                }
                Err(error) => {
                    // It is opened anew, but not before the position may pass what it has.
                    let synced = self.open.get(&id).map_or(Ok(()), DayFile::sync);
                    if synced.is_ok() {
                        self.open.remove(&id);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, id: FileId) -> Result<&mut DayFile, Error> {
        // Somebody may have deleted it: what is written to it then would be lost.
        if !id.path(&self.folder).exists() {
            self.open.remove(&id);
        }
        // Those of the oldest days are done with.
        if !self.open.contains_key(&id)
            && self.open.len() >= OPEN_MAX
            && let Some(oldest) = self.open.first_entry()
        {
            oldest.get().sync()?;
            oldest.remove();
        }
        match self.open.entry(id) {
            Entry::Occupied(file) => Ok(file.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(DayFile::open(&self.folder, id, self.store)?)),
        }
    }

    /// Makes durable what was written, and lets the log forget it.
    fn sync(&mut self) -> Result<(), Error> {
        if self.at == self.synced {
            return Ok(());
        }
        for file in self.open.values() {
            file.sync()?;
        }
        position::write(&self.folder, self.store, self.at)?;
        self.synced = self.at;
        self.read_to.store(self.at, Ordering::Release);
        Ok(())
    }

    /// Goes on at the end of the log, and counts the rows that have no place.
    fn leave_out(&mut self) {
        // The log forgets what was written, too, and a power cut would take it from the files.
        if let Err(error) = self.sync() {
            tracing::error!(%error, "what the history has written last is lost if the power fails now");
        }
        let newest = self.tail.newest();
        let mut rows = 0;
        let read = self.tail.read(self.at, &mut |entry| {
            if entry.seq > newest {
                return ControlFlow::Break(());
            }
            rows += ended_rows(entry).count() as u64;
            ControlFlow::Continue(())
        });
        if let Err(error) = read {
            tracing::error!(%error, "rows of the history were left out: the log cannot be read");
        }
        self.shared.lock_figures().left_out += rows;
        tracing::error!(
            rows,
            "rows of the history were left out: it was too far behind the log"
        );
        // The disk may be full: what is in memory is enough to let the log forget.
        self.at = newest;
        self.read_to.store(newest, Ordering::Release);
    }

    /// Refuses to write when the store may soon need the disk, or when the history has all that it may have.
    fn check_room(&self) -> Result<(), Error> {
        let limits = self.shared.limits();
        let about = rustix::fs::statvfs(&self.folder);
        let free = about.map_or(u64::MAX, |about| {
            about.f_bavail.saturating_mul(about.f_frsize)
        });
        let full = |what: &'static str| {
            let why = std::io::Error::new(std::io::ErrorKind::StorageFull, what);
            Err(folder::io(&self.folder, why))
        };
        if free < limits.free_bytes_min {
            return full("the disk has little space left, which is for the store");
        }
        if self.shared.lock_figures().bytes > limits.bytes_max {
            return full("the history is full (history.bytes_max)");
        }
        Ok(())
    }

    /// Deletes the files whose time is over, and the oldest ones while there are too many bytes.
    fn tidy(&mut self) {
        if let Err(error) = self.try_tidy() {
            tracing::warn!(%error, "cannot delete files of the history");
        }
    }

    fn try_tidy(&mut self) -> Result<(), Error> {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(Timestamp(0), |time| {
                Timestamp(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            });
        let limits = self.shared.limits();
        let mut held = 0;
        let mut files = Vec::new();
        for id in folder::list(&self.folder)? {
            let bytes = folder::bytes_of(&self.folder, id);
            held += bytes;
            files.push(Found { id, bytes });
        }
        let mut kept = 0;
        // The oldest day first.
        for Found { id, bytes } in files.into_iter().rev() {
            // Today's files are written to.
            let is_too_much = held > limits.bytes_max && !id.ends_after(now.0);
            if id.over_ms() > now.0 && !is_too_much {
                kept += 1;
                continue;
            }
            self.open.remove(&id);
            folder::delete(&self.folder, id)?;
            held -= bytes;
            tracing::info!(file = %id, bytes, is_too_much, "a day of the history was deleted");
        }
        let mut figures = self.shared.lock_figures();
        figures.bytes = held;
        figures.files = kept;
        Ok(())
    }
}

#[cfg(test)]
mod cuts;
#[cfg(test)]
mod tests;
