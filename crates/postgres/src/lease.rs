//! The lease: one row with the daemon that has the store, and the epoch that its writes carry.
//!
//! The database's clock decides when a lease that is not renewed is free. The holder's own clock decides when the
//! holder must be silent: it counts from the moment at which the last successful renewal was *sent*, stops a quarter of
//! the lease early, and goes on while the machine sleeps. A holder whose lease has run out may still renew it if no
//! other daemon has taken it: then the row's epoch is unchanged. Once the epoch has changed, the holder is deposed for
//! good.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use windlass_store::{Error, Holder, Tenure};

use crate::address::Target;
use crate::early::EarlyRead;
use crate::hand_over::{self, Stage};
use crate::link::Link;
use crate::schema::{self, Names};

/// A lease is renewed so many times in its life, and ends for its holder this part early.
const PARTS: u32 = 4;
/// After so many renewals that did not come, the table is read early.
const MISSED: u32 = 2;
/// A look at the lease counts for this part of it. A database that stands still does later what it was asked before: the
/// holder, whose renewals stood still, too, must not lose the lease to that.
const STALE: u32 = 2;
/// How often a lease that another daemon has is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Pause after a renewal that failed.
const RETRY: Duration = Duration::from_millis(100);
/// Versions of the links beside an epoch, in one number.
const VERSIONS: i64 = 256;
/// How long an orderly end waits for the lease to be given back.
const GIVE_BACK: Duration = Duration::from_secs(2);

/// The lease of this process.
#[derive(Debug)]
pub(crate) struct Lease {
    epoch: i64,
    target: Target,
    names: Names,
    /// Until when the holder may act, in milliseconds since boot.
    until: AtomicU64,
    /// The daemon that has the store now.
    successor: OnceLock<String>,
    stop: AtomicBool,
    changed: (Mutex<()>, Condvar),
}

/// Renews the lease on a thread of its own, and gives it back when it is dropped.
#[derive(Debug)]
pub(crate) struct Keeper {
    lease: Arc<Lease>,
    thread: Option<JoinHandle<()>>,
}

/// Milliseconds since boot, sleep included.
fn since_boot_ms() -> u64 {
    let at = clock_gettime(ClockId::Boottime);
    let (seconds, ns) = (u64::try_from(at.tv_sec).unwrap_or(0), u64::try_from(at.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000).saturating_add(ns / 1_000_000)
}

fn as_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// How this process names itself to others.
fn holder() -> String {
    let host = rustix::system::uname();
    format!("{} (process {})", host.nodename().to_string_lossy(), std::process::id())
}

impl Lease {
    /// Takes the lease, over a link whose opening has begun then. Waits for a lease that is not renewed to run out, and begins to read the table then.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] with the holder's name, if the holder renews it.
    pub(crate) fn take(link: &Link, target: &Target, begun: Instant) -> Result<(Arc<Self>, Option<EarlyRead>), Error> {
        let names = Names::of(target);
        let mut early = None;
        let (mut first, began) = (None, Instant::now());
        check(link, &names, target)?;
        // The database may have stood still: its holder gets the time to renew the lease.
        let is_slow = begun.elapsed() > target.lease / STALE;
        let head_start = if is_slow { target.lease } else { Duration::ZERO };
        loop {
            let sent = since_boot_ms();
            let found = Row::read(link, &names)?;
            let Row { holder, until, stage, now } =
                found.ok_or_else(|| Error::damaged(&target.place, "the row of its lease is missing"))?;
            let is_late = || since_boot_ms().saturating_sub(sent) > as_ms(target.lease / STALE);
            let taken = if is_late() || began.elapsed() < head_start {
                None
            } else {
                take_if_free(link, &names, target, &now)?
            };
            if let Some(epoch) = taken {
                let lease = Self {
                    epoch,
                    target: target.clone(),
                    names,
                    until: AtomicU64::new(sent.saturating_add(own_part(target.lease))),
                    successor: OnceLock::new(),
                    stop: AtomicBool::new(false),
                    changed: (Mutex::new(()), Condvar::new()),
                };
                return Ok((Arc::new(lease), early));
            }
            if is_late() {
                let (doing, place) = ("taking the lease of", target.place.clone());
                return Err(Error::Io { doing, place, why: std::io::Error::other("the database has answered late") });
            }
            let is_renewed = first.get_or_insert_with(|| until.clone()) != &until;
            // The holder may have another time in its settings.
            if stage == Stage::None && (is_renewed || began.elapsed() > target.lease.saturating_mul(PARTS)) {
                return Err(in_use(&target.place, &holder));
            }
            if stage != Stage::None || began.elapsed() > target.lease / PARTS * MISSED {
                let early = early.get_or_insert_with(|| EarlyRead::begin(target));
                let at = if early.is_finished() { Stage::Ready } else { Stage::Reading };
                if (Stage::Offered..at).contains(&stage) {
                    hand_over::answer(link, &names, at)?;
                }
            }
            thread::sleep(LOOK_EVERY);
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
        let found = Row::read(link, &self.names).ok().flatten().map(|row| row.holder);
        let named = found.filter(|holder| !holder.is_empty()).unwrap_or_else(|| "another daemon".to_owned());
        let holder = self.successor.get_or_init(|| named).clone();
        self.until.store(0, Ordering::Release);
        self.notify();
        Error::Deposed { place: self.target.place.clone(), holder }
    }

    /// Waits until no other statement of this process or of an earlier one holds the lease's row: one whose answer was
    /// lost has ended then.
    pub(crate) fn settle(&self, link: &Link, doing: &'static str) -> Result<(), Error> {
        let lock = format!("SELECT epoch FROM {} WHERE id = 1 AND epoch = $1 FOR UPDATE", self.names.lease());
        match link.query(doing, &lock, &[&self.epoch])?.is_empty() {
            true => Err(self.find_successor(link)),
            false => Ok(()),
        }
    }

    /// Locks the lease's row until the end of the present transaction.
    pub(crate) fn fence(&self, link: &Link, doing: &'static str) -> Result<(), Error> {
        let lock = format!("SELECT epoch FROM {} WHERE id = 1 AND epoch = $1 FOR SHARE", self.names.lease());
        match link.query(doing, &lock, &[&self.epoch])?.is_empty() {
            true => Err(self.find_successor(link)),
            false => Ok(()),
        }
    }

    fn renew(&self, link: &Link, lease: Duration) -> Result<(), Error> {
        let sent = since_boot_ms();
        let set = format!(
            "UPDATE {} SET until = clock_timestamp() + $2::bigint * interval '1 millisecond' WHERE id = 1 AND epoch = $1",
            self.names.lease()
        );
        let ms = i64::try_from(as_ms(lease)).unwrap_or(i64::MAX);
        if link.execute("renewing the lease of", &set, &[&self.epoch, &ms])? != 1 {
            return Err(self.find_successor(link));
        }
        self.until.store(sent.saturating_add(own_part(lease)), Ordering::Release);
        self.notify();
        Ok(())
    }

    fn give_back(&self, link: &Link) -> Result<(), Error> {
        self.until.store(0, Ordering::Release);
        let set = format!(
            "UPDATE {} SET until = '2000-01-01 00:00:00Z', holder = '', link = '' WHERE id = 1 AND epoch = $1",
            self.names.lease()
        );
        link.execute("giving back the lease of", &set, &[&self.epoch]).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changed.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        drop(self.lock());
        self.changed.1.notify_all();
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.successor.get().is_some()
    }
}

/// The holder of the lease; `None`: it is free.
pub(crate) fn present_holder(link: &Link, names: &Names) -> Result<Option<Holder>, Error> {
    // The lease of an earlier version has fewer columns: as JSON, those that are missing are null.
    let look = format!(
        "SELECT holder, link, epoch, (to_jsonb(lease) ->> 'link_version')::bigint FROM {} lease
         WHERE id = 1 AND until >= clock_timestamp()",
        names.lease()
    );
    let rows = link.query("reading the lease of", &look, &[])?;
    Ok(rows.first().map(|row| {
        let epoch: i64 = row.get(2);
        let speaks = row.get::<_, Option<i64>>(3).and_then(|number| speaks(number, epoch));
        Holder { name: row.get(0), link: row.get(1), epoch: epoch.unsigned_abs(), speaks }
    }))
}

/// The version of the links that the holder of this epoch has recorded, together with the epoch: an earlier program
/// that takes the lease leaves the number as it was.
fn speaks(number: i64, epoch: i64) -> Option<u8> {
    if number / VERSIONS == epoch { u8::try_from(number % VERSIONS).ok() } else { None }
}

/// Refuses a store that belongs to another cluster, or whose holder speaks no version of the links that this program
/// speaks.
pub(crate) fn check(link: &Link, names: &Names, target: &Target) -> Result<(), Error> {
    if target.cluster.is_empty() {
        return Ok(());
    }
    let look = format!("SELECT to_jsonb(lease) ->> 'cluster' FROM {} lease WHERE id = 1", names.lease());
    let rows = link.query("reading the lease of", &look, &[])?;
    let cluster: String = rows.first().and_then(|row| row.get(0)).unwrap_or_default();
    if !cluster.is_empty() && cluster != target.cluster {
        return Err(schema::refused(
            &target.place,
            format!(
                "the store belongs to the cluster {cluster:?} (cluster.name), not to {:?}; a cluster that is renamed takes its \
                 store along with UPDATE {} SET cluster = '' while no daemon runs",
                target.cluster,
                names.lease()
            ),
        ));
    }
    let Some(Holder { name, speaks: Some(speaks), .. }) = present_holder(link, names)? else { return Ok(()) };
    if speaks.abs_diff(target.speaks) <= 1 {
        return Ok(());
    }
    let why = format!(
        "{name} leads with version {speaks} of the link between daemons; this program speaks versions {} and {}: upgrade by \
         one version at a time",
        target.speaks.saturating_sub(1),
        target.speaks
    );
    Err(schema::refused(&target.place, why))
}

/// The error for a store that a daemon has.
pub(crate) fn in_use(place: &str, holder: &str) -> Error {
    Error::InUse { place: place.to_owned(), holder: format!(": {holder}") }
}

fn own_part(lease: Duration) -> u64 {
    as_ms(lease.saturating_sub(lease / PARTS))
}

/// Takes a lease that is free, unless the look at it, at the database's time `seen`, is too old.
fn take_if_free(link: &Link, names: &Names, target: &Target, seen: &str) -> Result<Option<i64>, Error> {
    let take = format!(
        "UPDATE {} SET epoch = epoch + 1, holder = $1, link = $3, hand_over = 0,
             until = clock_timestamp() + $2::bigint * interval '1 millisecond',
             cluster = CASE WHEN $4::text = '' THEN cluster ELSE $4 END, link_version = (epoch + 1) * {VERSIONS} + $5::bigint
         WHERE id = 1 AND until < clock_timestamp() AND ($4 = '' OR cluster IN ('', $4))
             AND clock_timestamp() < $6::text::timestamptz + $2::bigint * interval '1 millisecond' / {STALE}
         RETURNING epoch",
        names.lease()
    );
    let ms = i64::try_from(as_ms(target.lease)).unwrap_or(i64::MAX);
    let Target { link: address, cluster, speaks, .. } = target;
    let taken =
        link.query("taking the lease of", &take, &[&holder(), &ms, address, cluster, &i64::from(*speaks), &seen])?;
    Ok(taken.first().map(|row| row.get(0)))
}

/// What others see of a lease.
struct Row {
    holder: String,
    /// As text: it is only compared.
    until: String,
    stage: Stage,
    /// The database's time, as text.
    now: String,
}

impl Row {
    fn read(link: &Link, names: &Names) -> Result<Option<Self>, Error> {
        let look = format!(
            "SELECT holder, until::text, hand_over, clock_timestamp()::text FROM {} WHERE id = 1",
            names.lease()
        );
        let rows = link.query("reading the lease of", &look, &[])?;
        let of = |row: &tokio_postgres::Row| {
            let (holder, until, stage, now) = (row.get(0), row.get(1), Stage::of(row.get(2)), row.get(3));
            Self { holder, until, stage, now }
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
            drop(self.changed.1.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn lost(&self) -> Option<Error> {
        let holder = self.successor.get()?.clone();
        Some(Error::Deposed { place: self.target.place.clone(), holder })
    }

    fn epoch(&self) -> u64 {
        self.epoch.unsigned_abs()
    }

    fn length(&self) -> Duration {
        self.target.lease
    }

    fn hand_over(&self) {
        let offered = Link::open(&self.target)
            .and_then(|link| hand_over::offer(&link, &self.names, self, || self.is_over() || !self.holds()));
        if let Err(error) = offered {
            tracing::warn!(%error, "the store was not offered to others: they read it when it is free");
        }
    }
}

impl Keeper {
    /// Begins to renew a lease, over this link.
    pub(crate) fn start(lease: &Arc<Lease>, link: Link, target: &Target) -> std::io::Result<Self> {
        let (for_thread, target) = (Arc::clone(lease), target.clone());
        let thread = thread::Builder::new().name("lease".into()).spawn(move || keep(&for_thread, link, &target))?;
        Ok(Self { lease: Arc::clone(lease), thread: Some(thread) })
    }
}

/// Renews until the end, and then gives the lease back.
fn keep(lease: &Lease, link: Link, target: &Target) {
    let mut link = Some(link);
    let (mut pause, mut has_failed) = (target.lease / PARTS, false);
    loop {
        if !lease.is_over() {
            thread::park_timeout(pause);
        }
        if lease.is_over() {
            break;
        }
        let renewed = match link.take().filter(|link| !link.is_closed()).map_or_else(|| Link::open(target), Ok) {
            Ok(open) => lease.renew(&open, target.lease).map(|()| link = Some(open)),
            Err(why) => Err(why),
        };
        pause = if renewed.is_ok() { target.lease / PARTS } else { RETRY };
        tell(renewed, &mut has_failed);
    }
    if lease.lost().is_none()
        && let Some(link) = link
        && let Err(error) = lease.give_back(&link)
    {
        tracing::warn!(%error, "the lease was not given back: others wait until it has run out");
    }
}

/// Logs what has changed about the renewals.
fn tell(renewed: Result<(), Error>, has_failed: &mut bool) {
    match renewed {
        Ok(()) if std::mem::take(has_failed) => tracing::warn!("the lease is renewed again"),
        Ok(()) => {}
        Err(error) if error.is_deposed() => tracing::error!(%error, "this daemon no longer has its store"),
        Err(error) if std::mem::replace(has_failed, true) => {
            tracing::debug!(%error, "the lease was still not renewed");
        }
        Err(error) => tracing::warn!(%error, "the lease was not renewed: trying until it is"),
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.lease.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        // A database that does not answer must not keep the process from ending.
        let end = Instant::now() + GIVE_BACK;
        while !thread.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
