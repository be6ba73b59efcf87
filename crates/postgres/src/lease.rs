//! The lease: one row with the daemon that has the store, and the epoch that its writes carry.
//!
//! The database's clock decides when a lease that is not renewed is free. The holder's own clock decides when the
//! holder must be silent: it counts from the moment at which the last successful renewal was *sent*, stops a quarter of
//! the lease early, and goes on while the machine sleeps. A holder whose lease has run out may still renew it if no
//! other daemon has taken it: then the row's epoch is unchanged. Once the epoch has changed, the holder is deposed for
//! good.
//!
//! Each renewal also reads the database's clock, which is the wall clock of the engine: two daemons whose own wall
//! clocks differ must not differ about what is due.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use windlass_store::{Error, Tenure};

use crate::address::Target;
use crate::edges;
use crate::hand_over::{self, Stage};
use crate::link::Link;

/// A lease is renewed so many times in its life, and ends for its holder this part early.
pub(crate) const PARTS: u32 = 4;
/// Pause after a renewal that failed.
const RETRY: Duration = Duration::from_millis(100);
/// How long an orderly end waits for the lease to be given back.
const GIVE_BACK: Duration = Duration::from_secs(2);

/// The lease of this process.
#[derive(Debug)]
pub(crate) struct Lease {
    epoch: i64,
    target: Target,
    /// Until when the holder may act, in milliseconds since boot.
    until: AtomicU64,
    /// The database's clock minus the time since boot, in milliseconds.
    wall_ahead: AtomicI64,
    /// The edges of the daemon that had the lease before; `None`: unknown.
    edges_before: Option<Vec<u32>>,
    /// What each renewal records.
    record: Mutex<Record>,
    /// The number of the newest record in the row.
    recorded: AtomicU64,
    /// The thread that renews.
    thread: OnceLock<Thread>,
    /// The daemon that has the store now.
    successor: OnceLock<String>,
    stop: AtomicBool,
    changed: (Mutex<()>, Condvar),
}

/// What a daemon gets with a lease.
pub(crate) struct Begun {
    pub(crate) epoch: i64,
    pub(crate) now: DatabaseTime,
    /// What the daemon before has recorded.
    pub(crate) edges: String,
}

/// The edges to be recorded, and the number of this record.
#[derive(Clone, Debug)]
struct Record {
    number: u64,
    /// `None`: unknown.
    edges: Option<Vec<u32>>,
}

/// Renews the lease on a thread of its own, and gives it back when it is dropped.
#[derive(Debug)]
pub(crate) struct Keeper {
    lease: Arc<Lease>,
    thread: Option<JoinHandle<()>>,
}

/// Milliseconds since boot, sleep included.
pub(crate) fn since_boot_ms() -> u64 {
    let at = clock_gettime(ClockId::Boottime);
    let (seconds, ns) = (
        u64::try_from(at.tv_sec).unwrap_or(0),
        u64::try_from(at.tv_nsec).unwrap_or(0),
    );
    seconds.saturating_mul(1_000).saturating_add(ns / 1_000_000)
}

pub(crate) fn as_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Lease {
    /// A lease that this process has taken. `until`: in milliseconds since boot.
    pub(crate) fn new(Begun { epoch, now, edges }: Begun, target: Target, until: u64) -> Self {
        let edges_before = edges::read(&edges, epoch.saturating_sub(1));
        // Until the daemon knows better, its own successor waits for the same.
        let record = Mutex::new(Record {
            number: 0,
            edges: edges_before.clone(),
        });
        Self {
            epoch,
            target,
            until: AtomicU64::new(until),
            wall_ahead: AtomicI64::new(now.ahead_ms(None)),
            edges_before,
            record,
            recorded: AtomicU64::new(0),
            thread: OnceLock::new(),
            successor: OnceLock::new(),
            stop: AtomicBool::new(false),
            changed: (Mutex::new(()), Condvar::new()),
        }
    }

    /// The epoch that this process writes under.
    pub(crate) const fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Where the store is.
    pub(crate) fn place(&self) -> &str {
        &self.target.place
    }

    /// Nothing can be acknowledged now.
    pub(crate) fn refusal(&self) -> Option<Error> {
        if self.holds() {
            return None;
        }
        Some(self.lost().unwrap_or_else(|| Error::Io {
            doing: "renewing the lease of",
            place: self.target.place.clone(),
            why: std::io::Error::other("it has not been renewed in time"),
        }))
    }

    /// The epoch has changed: reads the name of the daemon that has the store now. Returns the error for the caller.
    pub(crate) fn find_successor(&self, link: &Link) -> Error {
        let found = Row::read(link).ok().flatten().map(|row| row.holder);
        let named = found
            .filter(|holder| !holder.is_empty())
            .unwrap_or_else(|| "another daemon".to_owned());
        let holder = self.successor.get_or_init(|| named).clone();
        self.until.store(0, Ordering::Release);
        self.notify();
        Error::Deposed {
            place: self.target.place.clone(),
            holder,
        }
    }

    /// Waits until no other statement of this process or of an earlier one holds the lease's row: one whose answer was
    /// lost has ended then.
    pub(crate) fn settle(&self, link: &Link, doing: &'static str) -> Result<(), Error> {
        self.lock_row(link, doing, "UPDATE").map(drop)
    }

    /// Locks the lease's row until the end of the present transaction, which changes the table.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`]: the store is offered, and a daemon that stands by reads the table, which must not change.
    pub(crate) fn fence(&self, link: &Link, doing: &'static str) -> Result<(), Error> {
        match self.lock_row(link, doing, "SHARE")? {
            Stage::None => Ok(()),
            Stage::Offered | Stage::Reading | Stage::Ready => Err(Error::Closed),
        }
    }

    fn lock_row(&self, link: &Link, doing: &'static str, strength: &str) -> Result<Stage, Error> {
        let lease = link.lease();
        let lock =
            format!("SELECT hand_over FROM {lease} WHERE id = 1 AND epoch = $1 FOR {strength}");
        let rows = link.query(doing, &lock, &[&self.epoch])?;
        rows.first()
            .map(|row| Stage::of(row.get(0)))
            .ok_or_else(|| self.find_successor(link))
    }

    fn renew(&self, link: &Link, lease: Duration) -> Result<(), Error> {
        let sent = since_boot_ms();
        let set = format!(
            "UPDATE {} SET until = clock_timestamp() + $2::bigint * interval '1 millisecond', edges = $3
             WHERE id = 1 AND epoch = $1 RETURNING {NOW_MS}",
            link.lease()
        );
        let ms = i64::try_from(as_ms(lease)).unwrap_or(i64::MAX);
        let Record { number, edges } = self.record().clone();
        let edges = edges::text(edges.as_deref(), self.epoch);
        let renewed = link.query("renewing the lease of", &set, &[&self.epoch, &ms, &edges])?;
        let Some(row) = renewed.first() else {
            return Err(self.find_successor(link));
        };
        self.recorded.store(number, Ordering::Release);
        let now = DatabaseTime::answered(sent, row.get(0));
        self.wall_ahead.store(
            now.ahead_ms(Some(self.wall_ahead.load(Ordering::Acquire))),
            Ordering::Release,
        );
        self.until
            .store(sent.saturating_add(own_part(lease)), Ordering::Release);
        self.notify();
        Ok(())
    }

    fn give_back(&self, link: &Link) -> Result<(), Error> {
        self.until.store(0, Ordering::Release);
        let set = format!(
            "UPDATE {} SET until = '2000-01-01 00:00:00Z', holder = '', link = '' WHERE id = 1 AND epoch = $1",
            link.lease()
        );
        link.execute("giving back the lease of", &set, &[&self.epoch])
            .map(drop)
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changed
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        drop(self.lock());
        self.changed.1.notify_all();
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.successor.get().is_some()
    }
}

/// The database's time in a statement, in milliseconds since 1970.
pub(crate) const NOW_MS: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// A reading of the database's clock, between two of this machine's. The way there and back is not known better.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatabaseTime {
    now_ms: i64,
    sent: u64,
    received: u64,
}

impl DatabaseTime {
    /// The answer to a statement that was sent then, in milliseconds since boot.
    pub(crate) fn answered(sent: u64, now_ms: i64) -> Self {
        Self {
            now_ms,
            sent,
            received: since_boot_ms(),
        }
    }

    /// How far the database's clock is ahead of the time since boot, in milliseconds. A value that was `known` changes
    /// only as far as this reading contradicts it: so slow answers do not move it, and drift does not add up.
    pub(crate) fn ahead_ms(self, known: Option<i64>) -> i64 {
        let ahead_of = |since_boot: u64| self.now_ms.saturating_sub_unsigned(since_boot);
        let (least, most) = (
            ahead_of(self.received),
            ahead_of(self.sent.min(self.received)),
        );
        known.map_or_else(|| least.midpoint(most), |known| known.clamp(least, most))
    }
}

pub(crate) fn own_part(lease: Duration) -> u64 {
    as_ms(lease.saturating_sub(lease / PARTS))
}

/// A lease as other processes see it.
pub(crate) struct Row {
    pub(crate) holder: String,
    /// As text: it is only compared.
    pub(crate) until: String,
    pub(crate) stage: Stage,
    /// The database's time, as text.
    pub(crate) now: String,
}

impl Row {
    pub(crate) fn read(link: &Link) -> Result<Option<Self>, Error> {
        let look = format!(
            "SELECT holder, until::text, hand_over, clock_timestamp()::text FROM {} WHERE id = 1",
            link.lease()
        );
        let rows = link.query("reading the lease of", &look, &[])?;
        let of = |row: &tokio_postgres::Row| {
            let (holder, until, stage, now) =
                (row.get(0), row.get(1), Stage::of(row.get(2)), row.get(3));
            Self {
                holder,
                until,
                stage,
                now,
            }
        };
        Ok(rows.first().map(of))
    }
}

impl Tenure for Lease {
    fn holds(&self) -> bool {
        since_boot_ms() < self.until.load(Ordering::Acquire)
    }

    fn wait(&self, most: Duration) {
        let guard = self.lock();
        if !self.holds() {
            drop(
                self.changed
                    .1
                    .wait_timeout(guard, most)
                    .unwrap_or_else(PoisonError::into_inner),
            );
        }
    }

    fn lost(&self) -> Option<Error> {
        let holder = self.successor.get()?.clone();
        Some(Error::Deposed {
            place: self.target.place.clone(),
            holder,
        })
    }

    fn epoch(&self) -> u64 {
        self.epoch.unsigned_abs()
    }

    fn length(&self) -> Duration {
        self.target.lease
    }

    fn wall_ahead_ms(&self) -> Option<i64> {
        Some(self.wall_ahead.load(Ordering::Acquire))
    }

    fn edges_before(&self) -> Option<Vec<u32>> {
        self.edges_before.clone()
    }

    fn record(&self, edges: Vec<u32>) -> u64 {
        let mut record = self.record();
        *record = Record {
            number: record.number + 1,
            edges: Some(edges),
        };
        self.thread.get().into_iter().for_each(Thread::unpark);
        record.number
    }

    fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Acquire)
    }

    fn hand_over(&self) {
        let offered = Link::open(&self.target).and_then(|link| {
            hand_over::offer(&link, self.epoch, || self.is_over() || !self.holds())
        });
        if let Err(error) = offered {
            tracing::warn!(%error, "could not announce the release of the store: the next leader reads it later");
        }
    }
}

impl Keeper {
    /// Begins to renew a lease, over this link.
    pub(crate) fn start(lease: &Arc<Lease>, link: Link, target: &Target) -> std::io::Result<Self> {
        let (for_thread, target) = (Arc::clone(lease), target.clone());
        let thread = thread::Builder::new()
            .name("lease".into())
            .spawn(move || keep(&for_thread, link, &target))?;
        Ok(Self {
            lease: Arc::clone(lease),
            thread: Some(thread),
        })
    }
}

/// Renews until the end, and then gives the lease back.
fn keep(lease: &Lease, link: Link, target: &Target) {
    let _ = lease.thread.set(thread::current());
    let mut link = Some(link);
    let (mut pause, mut has_failed) = (target.lease / PARTS, false);
    loop {
        if !lease.is_over() {
            thread::park_timeout(pause);
        }
        if lease.is_over() {
            break;
        }
        let renewed = match link
            .take()
            .filter(|link| !link.is_closed())
            .map_or_else(|| Link::open(target), Ok)
        {
            Ok(open) => lease.renew(&open, target.lease).map(|()| link = Some(open)),
            Err(why) => Err(why),
        };
        pause = if renewed.is_ok() {
            target.lease / PARTS
        } else {
            RETRY
        };
        log_change(renewed, &mut has_failed);
    }
    if lease.lost().is_none()
        && let Some(link) = link
        && let Err(error) = lease.give_back(&link)
    {
        tracing::warn!(%error, "the lease was not released: other daemons wait until it expires");
    }
}

/// Logs what has changed about the renewals.
fn log_change(renewed: Result<(), Error>, has_failed: &mut bool) {
    match renewed {
        Ok(()) if std::mem::take(has_failed) => tracing::warn!("the lease is renewed again"),
        Ok(()) => {}
        Err(error) if error.is_deposed() => {
            tracing::error!(%error, "this daemon no longer has its store")
        }
        Err(error) if std::mem::replace(has_failed, true) => {
            tracing::debug!(%error, "the lease was still not renewed");
        }
        Err(error) => tracing::warn!(%error, "the lease was not renewed: trying until it is"),
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.lease.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else {
            return;
        };
        thread.thread().unpark();
        // A database that does not answer must not keep the process from ending.
        let end = Instant::now() + GIVE_BACK;
        while !thread.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_s_clock_is_known_as_well_as_its_answers_allow() {
        let read = |now_ms, sent, received| DatabaseTime {
            now_ms,
            sent,
            received,
        };
        let first = read(10_100, 100, 300).ahead_ms(None);
        assert_eq!(first, 9_900, "in the middle of the way");
        for (name, reading, expected) in [
            (
                "a slow answer moves nothing",
                read(15_000, 4_000, 6_000),
                9_900,
            ),
            ("a quick one narrows it", read(15_000, 5_000, 5_010), 9_990),
            (
                "the database's clock was set",
                read(3_615_000, 5_000, 5_010),
                3_609_990,
            ),
            ("and back", read(1_000, 5_000, 5_010), -4_000),
        ] {
            assert_eq!(reading.ahead_ms(Some(first)), expected, "{name}");
        }
    }
}
