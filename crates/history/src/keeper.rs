//! The thread that writes the history. It reads the log behind the commits, as checkpoints do, so no client and no commit
//! waits for it; and the log keeps what it has not read, up to a bound.
//!
//! What happens when the disk is full, or slower than the load: the thread tries again, and when more than [`LAG_BYTES_MAX`]
//! of log are behind it, it goes on at the end of the log. The rows between are counted as left out, and the broker is not
//! slowed down.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use windlass_store::{LogTail, ended_rows};

use crate::Error;
use crate::file_id::FileId;
use crate::shelf::{Committed, Held, Rows, Writer};

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
    /// Starts the thread. It writes what it reads in the log, beginning where an earlier one has ended, and says in
    /// `read_to` up to which commit the log is not needed any more.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(
        writer: Box<dyn Writer>,
        tail: Arc<dyn LogTail>,
        read_to: Arc<AtomicU64>,
        limits: Limits,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new(limits));
        let work = Work::new(writer, tail, read_to, Arc::clone(&shared));
        let thread = thread::Builder::new()
            .name("history".into())
            .spawn(move || work.run())?;
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

    /// Writes what is in the log by now, and ends the thread. A database that does not answer must not keep the process
    /// from ending: after `patience` the rest is left to the next start.
    pub fn finish(self, patience: Option<Duration>) {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let begun = Instant::now();
        while patience.is_some_and(|patience| begun.elapsed() < patience)
            && !self.thread.is_finished()
        {
            thread::sleep(Duration::from_millis(1));
        }
        if patience.is_some() && !self.thread.is_finished() {
            tracing::warn!("the history is not written to the end: the next start writes the rest");
            return;
        }
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Work {
    writer: Box<dyn Writer>,
    tail: Arc<dyn LogTail>,
    read_to: Arc<AtomicU64>,
    shared: Arc<Shared>,
    /// Whether the position is known that an earlier thread has left.
    has_begun: bool,
    /// The last commit whose rows are written.
    at: u64,
    /// The last commit up to which all is durable, and when that was last asked for.
    synced: u64,
    synced_at: Instant,
}

/// Rows that are written together, and the last commit that was read.
#[derive(Default)]
struct Batch {
    rows: Vec<Committed>,
    bytes: usize,
    upto: u64,
}

impl Work {
    fn new(
        writer: Box<dyn Writer>,
        tail: Arc<dyn LogTail>,
        read_to: Arc<AtomicU64>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            writer,
            tail,
            read_to,
            shared,
            has_begun: false,
            at: 0,
            synced: 0,
            synced_at: Instant::now(),
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
            if made.as_ref().is_err_and(Error::is_deposed) {
                // Its successor reads the same log, and goes on where this one has ended.
                tracing::info!("another daemon writes the history from now on");
                return;
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
            let written = self.begin().and_then(|()| self.write_next());
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

    /// Goes on where an earlier thread has ended. A position that the store has not reached is that of another copy of it.
    fn begin(&mut self) -> Result<(), Error> {
        if self.has_begun {
            return Ok(());
        }
        let at = self.writer.position()?;
        self.has_begun = true;
        if at <= self.tail.newest() {
            self.at = at;
            self.synced = at;
            self.read_to.store(at, Ordering::Release);
        }
        Ok(())
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
            let mut files = Rows::new();
            for row in batch.rows {
                let id = FileId::of(row.row.ended_at.0, row.row.keep_ms);
                files.entry(id).or_default().push(row);
            }
            let written = self.writer.write(&files, batch.upto)?;
            self.shared.lock_figures().rows += written;
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
        let read = self.tail.skim(self.at, &mut |entry| {
            for row in ended_rows(entry) {
                match row {
                    Ok((row, bytes)) => {
                        batch.bytes += bytes;
                        let commit = entry.seq;
                        batch.rows.push(Committed { commit, row });
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
        });
        read.map_err(Error::Log)?;
        match damaged {
            // The store would not start with such an entry, so this is rather a fault of this program.
            Some(error) => Err(Error::Log(error)),
            None => Ok(batch),
        }
    }

    /// Makes durable what was written, and lets the log forget it.
    fn sync(&mut self) -> Result<(), Error> {
        if self.at == self.synced {
            return Ok(());
        }
        self.writer.sync(self.at)?;
        self.synced = self.at;
        self.read_to.store(self.at, Ordering::Release);
        Ok(())
    }

    /// Goes on at the end of the log, and counts the rows that have no place.
    fn leave_out(&mut self) {
        // The log forgets what was written, too, and a power cut would take it from the history.
        if let Err(error) = self.sync() {
            tracing::error!(%error, "what the history has written last is lost if the power fails now");
        }
        let newest = self.tail.newest();
        let mut rows = 0;
        let read = self.tail.skim(self.at, &mut |entry| {
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
        self.has_begun = true;
        self.at = newest;
        self.read_to.store(newest, Ordering::Release);
    }

    /// Refuses to write when the store may soon need the disk, or when the history has all that it may have.
    fn check_room(&self) -> Result<(), Error> {
        let limits = self.shared.limits();
        let free = self.writer.free_bytes();
        if free.is_some_and(|free| free < limits.free_bytes_min) {
            return Err(Error::Full(
                "the disk has little space left, which is for the store",
            ));
        }
        if self.shared.lock_figures().bytes > limits.bytes_max {
            return Err(Error::Full("the history is full (history.bytes_max)"));
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
            .map_or(0, |time| {
                u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
            });
        let limits = self.shared.limits();
        let files = self.writer.files()?;
        let mut held: u64 = files.iter().map(|file| file.bytes).sum();
        let mut kept = 0;
        // The oldest day first.
        for Held { file, bytes } in files.into_iter().rev() {
            // Today's files are written to.
            let is_too_much = held > limits.bytes_max && !file.ends_after(now);
            if file.over_ms() > now && !is_too_much {
                kept += 1;
                continue;
            }
            self.writer.delete(file)?;
            held -= bytes;
            tracing::info!(%file, bytes, is_too_much, "a day of the history was deleted");
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
