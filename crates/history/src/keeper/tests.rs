use windlass_engine::{Change, Ended, Engine, Limits as EngineLimits};
use windlass_store::{Journal, Log as _, MemoryLog};

use std::path::Path;

use super::*;
use crate::ask::Book;
use crate::cases::{OWNER, ended};
use crate::file_id::DAY_MS;
use crate::folder::{self, path};
use crate::position;
use crate::question::Question;
use crate::shelf::{Rows, Shelf as _};
use crate::sqlite::Folder;

const STORE: u64 = OWNER.store;

pub(super) const NO_LIMITS: Limits = Limits {
    bytes_max: u64::MAX,
    free_bytes_min: 0,
};

/// A log with rows, each in a commit of its own, and a folder for the history.
pub(super) struct Place {
    folder: tempfile::TempDir,
    engine: Engine,
    journal: Journal,
    log: MemoryLog,
    read_to: Arc<AtomicU64>,
}

impl Place {
    pub(super) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            engine: Engine::new(EngineLimits::default(), 7),
            journal: Journal::new(),
            log: MemoryLog::new(),
            read_to: Arc::default(),
        }
    }

    /// A job ends now.
    fn end(&mut self, job: u64) {
        self.end_at(job, now_ms());
    }

    fn end_at(&mut self, job: u64, at: u64) {
        self.commit([ended(job, at)].into_iter());
    }

    /// These rows are in one commit.
    pub(super) fn commit(&mut self, rows: impl Iterator<Item = Ended>) {
        let rows: Vec<_> = rows.map(|row| Change::Ended(Box::new(row))).collect();
        self.journal.append(&self.engine, &rows);
        let commit = self.journal.cut(&self.engine).unwrap();
        self.log.append(&commit).unwrap();
        self.journal.committed(commit.seq());
    }

    pub(super) fn forget(&self, upto: u64) {
        self.log.tail().forget(upto).unwrap();
    }

    pub(super) fn newest(&self) -> u64 {
        self.log.tail().newest()
    }

    fn work(&self, limits: Limits) -> Work {
        self.work_in(self.folder.path(), limits)
    }

    pub(super) fn work_in(&self, folder: &Path, limits: Limits) -> Work {
        Work::new(
            Folder::new(folder.to_owned()).writer(OWNER).unwrap(),
            self.log.tail(),
            Arc::clone(&self.read_to),
            Arc::new(Shared::new(limits)),
        )
    }

    /// The position at which a thread begins.
    fn begins_at(&self) -> u64 {
        let mut work = self.work(NO_LIMITS);
        work.begin().unwrap();
        work.at
    }

    fn shelf(&self) -> Folder {
        Folder::new(self.folder.path().to_owned())
    }

    fn jobs(&self) -> Vec<u64> {
        let book = Book::new(Arc::new(self.shelf()));
        let answer = book.ask(&Question::default()).unwrap();
        answer.rows.iter().map(|row| row.job.0).collect()
    }

    pub(super) fn read_to(&self) -> u64 {
        self.read_to.load(Ordering::Acquire)
    }
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(now.unwrap().as_millis()).unwrap()
}

#[test]
fn the_thread_writes_what_is_in_the_log_and_ends_with_all_of_it() {
    let mut place = Place::new();
    (1..=3).for_each(|job| place.end(job));
    let keeper = Keeper::start(
        place.shelf().writer(OWNER).unwrap(),
        place.log.tail(),
        Arc::clone(&place.read_to),
        NO_LIMITS,
    );
    let keeper = keeper.unwrap();
    let watch = keeper.watch();
    place.end(4);
    keeper.finish(None);
    assert_eq!(place.jobs(), [4, 3, 2, 1]);
    assert_eq!(place.read_to(), 4);
    let figures = watch.figures();
    assert_eq!(
        (figures.rows, figures.left_out, figures.failing),
        (4, 0, None)
    );
}

#[test]
fn a_row_is_written_once_however_often_the_log_is_read_again() {
    let mut place = Place::new();
    place.end(1);
    // Written, and killed before its position was.
    let mut work = place.work(NO_LIMITS);
    work.catch_up().unwrap();
    assert_eq!((place.read_to(), work.at), (0, 1));
    drop(work);
    place.end(2);
    assert_eq!(place.begins_at(), 0, "the position on the disk counts");
    let mut work = place.work(NO_LIMITS);
    work.catch_up().unwrap();
    work.sync().unwrap();
    assert_eq!(place.jobs(), [2, 1]);
    assert_eq!(place.read_to(), 2);
    // From the position on.
    place.end(3);
    assert_eq!(place.begins_at(), 2);
    let mut work = place.work(NO_LIMITS);
    work.catch_up().unwrap();
    assert_eq!(place.jobs(), [3, 2, 1]);
}

#[test]
fn the_position_of_another_store_says_nothing() {
    let mut place = Place::new();
    place.end(1);
    position::write(place.folder.path(), STORE + 1, 1).unwrap();
    assert_eq!(place.begins_at(), 0);
    // Nor one that this store has not reached, as of a copy that was put back.
    position::write(place.folder.path(), STORE, 2).unwrap();
    assert_eq!(place.begins_at(), 0);
}

#[test]
fn without_room_rows_wait_and_what_is_too_far_behind_is_left_out_and_counted() {
    let mut place = Place::new();
    (1..=2).for_each(|job| place.end(job));
    let full = Limits {
        free_bytes_min: u64::MAX,
        ..NO_LIMITS
    };
    let mut work = place.work(full);
    let error = work.catch_up().unwrap_err();
    assert!(error.to_string().contains("little space left"), "{error}");
    work.tell(Some(error));
    assert!(work.shared.lock_figures().failing.is_some());
    assert_eq!(place.jobs(), [0; 0]);
    work.leave_out();
    assert_eq!(work.shared.lock_figures().left_out, 2);
    assert_eq!(place.read_to(), 2, "the log need not keep them");
    // There is room again.
    place.end(3);
    work.shared.set_limits(NO_LIMITS);
    work.catch_up().unwrap();
    work.tell(None);
    assert_eq!(work.shared.lock_figures().failing, None);
    assert_eq!(place.jobs(), [3]);
}

/// A database that does not answer.
struct Away;

impl Away {
    fn refuse<T>() -> Result<T, Error> {
        Err(Error::Full("away"))
    }
}

impl Writer for Away {
    fn position(&mut self) -> Result<u64, Error> {
        Self::refuse()
    }

    fn write(&mut self, _: &Rows, _: u64) -> Result<u64, Error> {
        Self::refuse()
    }

    fn sync(&mut self, _: u64) -> Result<(), Error> {
        Self::refuse()
    }

    fn files(&mut self) -> Result<Vec<Held>, Error> {
        Self::refuse()
    }

    fn delete(&mut self, _: FileId) -> Result<(), Error> {
        Self::refuse()
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

#[test]
fn the_log_is_bounded_although_nobody_knows_how_far_it_was_read() {
    let mut place = Place::new();
    (1..=2).for_each(|job| place.end(job));
    let mut work = Work {
        writer: Box::new(Away),
        ..place.work(NO_LIMITS)
    };
    work.catch_up().unwrap_err();
    assert_eq!(place.read_to(), 0, "the log keeps everything");
    work.leave_out();
    assert_eq!(work.shared.lock_figures().left_out, 2);
    assert_eq!(place.read_to(), 2);
    // It goes on there, and not where an earlier thread has ended.
    work.writer = place.shelf().writer(OWNER).unwrap();
    place.end(3);
    work.catch_up().unwrap();
    assert_eq!(place.jobs(), [3]);
}

#[test]
fn what_was_written_is_durable_before_the_log_forgets_what_is_left_out() {
    let mut place = Place::new();
    place.end(1);
    let mut work = place.work(NO_LIMITS);
    work.catch_up().unwrap();
    place.end(2);
    work.leave_out();
    let written = position::Position {
        store: STORE,
        commit: 1,
    };
    assert_eq!(position::read(place.folder.path()), Some(written));
    assert_eq!(place.read_to(), 2);
}

#[test]
fn a_damaged_file_is_set_aside_and_another_one_takes_its_place() {
    let mut place = Place::new();
    let at = now_ms();
    let id = FileId::of(at, 7 * DAY_MS);
    std::fs::write(path(place.folder.path(), id), [7; 5_000]).unwrap();
    place.end_at(1, at);
    place.work(NO_LIMITS).catch_up().unwrap();
    assert_eq!(place.jobs(), [1]);
    let aside = place.folder.path().join(format!("{id}.damaged-1"));
    assert_eq!(std::fs::read(aside).unwrap(), [7; 5_000]);
}

#[test]
fn a_file_of_another_version_is_set_aside_and_one_that_was_deleted_is_made_again() {
    let mut place = Place::new();
    let at = now_ms();
    let id = FileId::of(at, 7 * DAY_MS);
    place.end_at(1, at);
    place.work(NO_LIMITS).catch_up().unwrap();
    let path = path(place.folder.path(), id);
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute("UPDATE about SET version = 2", []).unwrap();
    drop(db);
    place.end_at(2, at);
    let mut work = place.work(NO_LIMITS);
    work.catch_up().unwrap();
    assert!(place.folder.path().join(format!("{id}.damaged-1")).exists());
    folder::delete(place.folder.path(), id).unwrap();
    place.end_at(3, at);
    work.catch_up().unwrap();
    assert_eq!(place.jobs(), [3]);
}

#[test]
fn days_are_deleted_when_their_time_is_over_and_the_oldest_when_there_are_too_many_bytes() {
    let mut place = Place::new();
    let today = now_ms() / DAY_MS;
    // Rows are kept for seven days.
    for (job, age) in (1..).zip([9, 8, 7, 2, 1, 0]) {
        place.end_at(job, (today - age) * DAY_MS + 1);
    }
    let mut work = place.work(NO_LIMITS);
    work.catch_up().unwrap();
    work.try_tidy().unwrap();
    assert_eq!(place.jobs(), [6, 5, 4, 3]);
    work.shared.set_limits(Limits {
        bytes_max: 1,
        ..NO_LIMITS
    });
    work.try_tidy().unwrap();
    assert_eq!(place.jobs(), [6], "today's file is written to");
    assert_eq!(work.shared.lock_figures().files, 1);
}
