//! Mail for one client: filled under the engine's lock, read outside it.
//!
//! Mail that acknowledges something carries the number of the commit that must be durable first. Everything behind it
//! waits with it, so that a connection's replies keep their order. A mailbox is bounded: the daemon never waits for a
//! client that does not read, it closes the connection.
//!
//! While the peer has enough to read, mail stays here, where it shares its bytes with other mailboxes: the encoded form
//! would be a copy. The bytes of all mailboxes are counted (`budget`). Publications of other connections have a
//! narrower limit, beyond which they are refused (`published`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use windlass_engine::{ClientId, JobId, Timestamp, Token};
use windlass_session::{Closer, Reason};

pub(crate) use self::letter::GivenUp;
use self::letter::disclaim;
pub use self::letter::{Letter, Mail};
use crate::budget::{Budget, Hold, Member, SMALL_BYTES, Share};
use crate::published::Publication;
use crate::waker::{Home, Waker};
use crate::waking::{Bell, Owner};

mod bodies;
#[cfg(test)]
mod counts;
mod doubt;
mod epochs;
pub(crate) mod letter;

#[cfg(test)]
mod tests;

/// How much room its owner must have before posted bytes are taken out. They are shared in the mailbox and copied by the
/// owner: a peer that reads nothing must cost no more than one that does.
pub const POSTED_ROOM_BYTES: usize = 224 * 1024;

/// A buffer for more letters than this is freed when it is empty.
const KEPT_LETTERS_MAX: usize = 1 << 10;

/// The mail of one client.
#[derive(Debug)]
pub struct Mailbox {
    inner: Mutex<Inner>,
    /// Another thread may take the owner over.
    owner: Owner<Home>,
    overflowed: AtomicBool,
    /// Why the owner must end, if another part of the daemon requires it.
    close_reason: OnceLock<Reason>,
    /// How many letters wait, readable without the lock.
    len: AtomicUsize,
    /// Bytes that wait, without jobs, readable without the lock.
    weight: AtomicUsize,
    bytes_max: usize,
    budget: Arc<Budget>,
    /// The bytes counted for the mail here, without parcels and without bytes that a hold counts.
    share: Share,
    /// The bytes counted for the owner's buffers.
    buffers: Share,
    /// Bytes of the owner's buffers that the peer must take, and when it last took some, or had none to take.
    unsent: AtomicUsize,
    moved_at: AtomicU64,
    /// Bytes of jobs among the owner's buffers, which `unsent` does not contain.
    sending: AtomicUsize,
    /// The peer seems to take nothing of its jobs, while others wait for room.
    doubted: AtomicBool,
    /// The owner's number.
    client: ClientId,
    /// So many items of the owner are on their way to another daemon.
    under_way: AtomicUsize,
    /// Bytes that the owner has taken, and that are not reported to the other daemon yet.
    taken: AtomicUsize,
    /// The owner takes mail before its commit is durable, and passes the commit's number on.
    takes_early: bool,
}

#[derive(Debug, Default)]
struct Inner {
    mail: VecDeque<Letter>,
    bytes: usize,
    /// Part of `bytes`: parcels.
    posted_bytes: usize,
    /// Part of `bytes`: bytes that a hold counts.
    held_bytes: usize,
    /// Part of `held_bytes`: jobs for the owner.
    job_bytes: usize,
    /// Jobs that were for the owner, and that it has not sent to its peer.
    unsent_jobs: Vec<(JobId, Token)>,
    /// There is mail that the owner must get, however much the peer must still take.
    urgent: bool,
    /// The newest commit that this mailbox will be rung for: no mail waits for a later one.
    registered: u64,
}

impl Inner {
    /// Counts the bytes of all mail anew.
    fn weigh(&mut self) {
        let is_posted = |letter: &&Letter| matches!(letter.mail, Mail::Posted(_));
        self.bytes = self.mail.iter().map(|letter| letter.mail.weight()).sum();
        self.posted_bytes = self
            .mail
            .iter()
            .filter(is_posted)
            .map(|letter| letter.mail.weight())
            .sum();
        self.held_bytes = self.mail.iter().map(Letter::held_bytes).sum();
        self.job_bytes = self.mail.iter().map(Letter::job_bytes).sum();
    }

    /// Takes out all mail, if the owner has room for it and nothing holds any of it up: as nearly always. Then no letter is
    /// weighed again.
    fn take_all(&mut self, durable: u64, room: usize, into: &mut Vec<Mail>) -> bool {
        let may = self.registered <= durable && self.posted_bytes == 0 && self.bytes <= room;
        let may = may && !self.mail.iter().any(Letter::waits_for_body);
        if may {
            // Most often there is one letter, for which a range to drain costs more than the letter.
            while let Some(letter) = self.mail.pop_front() {
                into.push(letter.mail);
            }
            (self.bytes, self.held_bytes, self.job_bytes) = (0, 0, 0);
        }
        may
    }

    /// Bytes that no parcel and no hold counts.
    const fn own_bytes(&self) -> usize {
        self.bytes - self.posted_bytes - self.held_bytes
    }
}

impl Mailbox {
    /// A mailbox for at most this many bytes.
    pub fn new(bytes_max: usize, budget: Arc<Budget>, home: Home) -> Self {
        Self::of(bytes_max, budget, home, false)
    }

    /// The mailbox of another daemon's client, whose mail goes there with the numbers of its commits:
    /// [`Mailbox::take_early`].
    pub fn forwarding(bytes_max: usize, budget: Arc<Budget>, home: Home) -> Self {
        Self::of(bytes_max, budget, home, true)
    }

    fn of(bytes_max: usize, budget: Arc<Budget>, home: Home, takes_early: bool) -> Self {
        Self {
            inner: Mutex::default(),
            client: home.connection.client,
            owner: Owner::new(home),
            overflowed: AtomicBool::new(false),
            close_reason: OnceLock::new(),
            len: AtomicUsize::new(0),
            weight: AtomicUsize::new(0),
            bytes_max,
            budget,
            share: Share::default(),
            buffers: Share::default(),
            unsent: AtomicUsize::new(0),
            moved_at: AtomicU64::new(0),
            sending: AtomicUsize::new(0),
            doubted: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            takes_early,
        }
    }

    /// Opens the mailbox for several pieces of mail.
    pub fn fill(&self) -> Filling<'_> {
        Filling {
            mailbox: self,
            inner: self.lock(),
            is_closed: self.close_reason().is_some(),
        }
    }

    /// Adds bytes of another connection and rings, if there is room for them.
    #[must_use]
    pub fn post(&self, publication: &Arc<Publication>) -> bool {
        let mut inner = self.lock();
        if self.close_reason().is_some() {
            return false;
        }
        let Some(published) = publication.admit(inner.posted_bytes) else {
            return false;
        };
        let weight = published.weight();
        // Only the engine's events may overflow a mailbox, never publications of other connections.
        if inner.bytes.saturating_add(weight) > self.bytes_max {
            return false;
        }
        inner.bytes += weight;
        inner.posted_bytes += weight;
        inner.mail.push_back(Letter {
            gate: 0,
            mail: Mail::Posted(published),
            hold: None,
        });
        self.count(&inner);
        drop(inner);
        self.ring();
        true
    }

    /// Takes out the mail that may be read now. With `failed`, mail that waits for a commit comes out too, but as an
    /// unknown outcome.
    ///
    /// It stops when there is no `room` left, in bytes; the last mail may be larger than the room. Parcels need more
    /// room than other mail. Returns the weight of the rest, without parcels, if it stopped for lack of room.
    pub fn take(
        &self,
        durable: u64,
        failed: bool,
        mut room: usize,
        into: &mut Vec<Mail>,
    ) -> Option<usize> {
        if self.len() == 0 {
            return None;
        }
        let mut inner = self.lock();
        let mut left = None;
        while !inner.take_all(durable, room, into)
            && let Some(letter @ Letter { gate, mail, .. }) = inner.mail.front()
        {
            let held = *gate > durable;
            if letter.waits_for_body() {
                break;
            }
            // A lease is good when the store responds again.
            if held
                && (!failed || matches!(mail, Mail::Event(event) if event.grants_lasting_lease()))
            {
                break;
            }
            let (weight, posted) = (mail.weight(), matches!(mail, Mail::Posted(_)));
            let least = if posted { POSTED_ROOM_BYTES } else { 0 };
            if room <= least && !inner.urgent {
                left = Some(inner.bytes - inner.posted_bytes);
                break;
            }
            room = room.saturating_sub(weight);
            let Some(letter) = inner.mail.pop_front() else {
                break;
            };
            inner.bytes -= weight;
            inner.held_bytes -= letter.held_bytes();
            inner.job_bytes -= letter.job_bytes();
            inner.posted_bytes -= if posted { weight } else { 0 };
            let mut mail = letter.mail;
            if held {
                disclaim(&mut mail);
            }
            into.push(mail);
        }
        if inner.mail.is_empty() {
            inner.urgent = false;
            if inner.mail.capacity() > KEPT_LETTERS_MAX {
                inner.mail = VecDeque::new();
            }
        }
        self.count(&inner);
        left
    }

    /// Takes out all mail before the first that waits for a body, each with the commit that must be durable before its
    /// client reads it.
    pub fn take_early(&self, into: &mut Vec<Letter>) {
        let mut inner = self.lock();
        let complete = inner
            .mail
            .iter()
            .take_while(|letter| !letter.waits_for_body())
            .count();
        into.extend(inner.mail.drain(..complete));
        inner.weigh();
        inner.urgent &= complete == 0;
        self.count(&inner);
    }

    /// Publishes the counts and reports the bytes to the budget.
    fn count(&self, inner: &Inner) {
        self.len.store(inner.mail.len(), Ordering::Release);
        self.weight
            .store(inner.bytes - inner.job_bytes, Ordering::Release);
        let own = inner.own_bytes();
        // A share is 0 or at least `SMALL_BYTES`: that of an empty mailbox ends, too.
        if own.abs_diff(self.share.bytes()) >= SMALL_BYTES {
            self.budget.report(&self.share, own);
        }
    }

    /// Bytes of the engine's answers here.
    pub fn answer_bytes(&self) -> usize {
        if self.len() == 0 {
            return 0;
        }
        let inner = self.lock();
        (inner.bytes - inner.posted_bytes).saturating_sub(Mail::FIXED_BYTES * inner.mail.len())
    }

    /// Sets how many bytes of the owner's buffers the peer must take: of jobs, and others.
    pub fn set_unsent(&self, jobs: usize, others: usize) {
        self.sending.store(jobs, Ordering::Relaxed);
        self.unsent.store(others, Ordering::Relaxed);
    }

    /// Ends the owner's connection, as [`Closer::close`] does, and drops all mail here. The mailbox accepts no more.
    pub fn evict(&self, why: Reason) {
        let mut inner = self.lock();
        let _ = self.close_reason.set(why);
        let gone = std::mem::take(&mut inner.mail);
        inner
            .unsent_jobs
            .extend(gone.iter().filter_map(Letter::job));
        (
            inner.bytes,
            inner.posted_bytes,
            inner.held_bytes,
            inner.job_bytes,
        ) = (0, 0, 0, 0);
        self.count(&inner);
        drop(inner);
        drop(gone);
        self.ring();
    }

    /// The owner ends before it has sent these jobs to its peer.
    pub fn give_back(&self, jobs: impl IntoIterator<Item = (JobId, Token)>) {
        self.lock().unsent_jobs.extend(jobs);
    }

    /// The owner has ended: takes out some of the jobs that its peer has never got.
    pub fn take_unsent_jobs(&self, most: usize) -> Vec<(JobId, Token)> {
        let mut inner = self.lock();
        let letters = std::mem::take(&mut inner.mail);
        inner
            .unsent_jobs
            .extend(letters.iter().filter_map(Letter::job));
        (
            inner.bytes,
            inner.posted_bytes,
            inner.held_bytes,
            inner.job_bytes,
        ) = (0, 0, 0, 0);
        self.count(&inner);
        let rest = most.min(inner.unsent_jobs.len());
        let rest = inner.unsent_jobs.split_off(rest);
        std::mem::replace(&mut inner.unsent_jobs, rest)
    }

    /// Bytes that wait for the client.
    pub fn holds(&self) -> usize {
        self.weight.load(Ordering::Acquire) + self.buffers.bytes()
    }

    /// How many letters wait.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Whether everything that precedes new bytes of the owner has been taken: no mail waits here, or is still to come.
    pub fn is_settled(&self) -> bool {
        self.unanswered() == 0
    }

    /// Letters that wait, and items of the owner that are on their way to another daemon.
    pub fn unanswered(&self) -> usize {
        self.len() + self.under_way.load(Ordering::Acquire)
    }

    /// The owner has taken this many bytes. Returns all bytes since the last time, if they are at least a step.
    pub fn made_room(&self, bytes: usize, step: usize) -> Option<usize> {
        let is_step = bytes > 0 && self.taken.fetch_add(bytes, Ordering::AcqRel) + bytes >= step;
        is_step
            .then(|| self.taken.swap(0, Ordering::AcqRel))
            .filter(|bytes| *bytes != 0)
    }

    /// The owner's number.
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// Sets how many items of the owner are on their way to another daemon.
    pub fn set_under_way(&self, items: usize) {
        self.under_way.store(items, Ordering::Release);
    }

    /// Whether more waited than the client may leave unread.
    pub fn overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Acquire)
    }

    /// Why the owner must end at once, if it must.
    pub fn close_reason(&self) -> Option<&Reason> {
        self.close_reason.get()
    }

    /// Makes the owner's thread look here.
    pub fn ring(&self) {
        self.owner.ring(|home| home.waker.wake_for(home.connection));
    }

    /// Whether the owner was rung, and whether it will look here by itself.
    pub const fn bell(&self) -> &Bell {
        self.owner.bell()
    }

    /// Whether the owner is on this thread.
    pub fn is_on(&self, waker: &Arc<dyn Waker>) -> bool {
        self.owner
            .is_at(|home| std::ptr::addr_eq(Arc::as_ptr(&home.waker), Arc::as_ptr(waker)))
    }

    /// The owner has moved to this thread, and will look here next: a ring before that may have gone to the old one.
    pub fn move_to(&self, home: Home) {
        self.owner.move_to(home);
    }

    /// Adds one piece of mail, as [`Filling::push`] does.
    #[cfg(any(test, feature = "testing"))]
    pub fn push(&self, gate: u64, mail: Mail, hold: Option<Arc<Hold>>) -> bool {
        let mut filling = self.fill();
        let new = filling.push(gate, mail, hold);
        filling.finish();
        new
    }

    /// Passes all letters to `look`.
    #[cfg(any(test, feature = "testing"))]
    pub fn look<T>(&self, look: impl FnOnce(&mut dyn Iterator<Item = &Letter>) -> T) -> T {
        look(&mut self.lock().mail.iter())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing that holds this lock can panic half way through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A mailbox that mail is being put into.
#[derive(Debug)]
#[must_use = "the mail counts when the mailbox is closed"]
pub struct Filling<'a> {
    mailbox: &'a Mailbox,
    inner: MutexGuard<'a, Inner>,
    is_closed: bool,
}

impl Filling<'_> {
    /// Adds mail that may be read once commit `gate` is durable. Returns whether the caller must register the mailbox
    /// to be rung for that commit.
    pub fn push(&mut self, gate: u64, mail: Mail, hold: Option<Arc<Hold>>) -> bool {
        let inner = &mut *self.inner;
        let letter = Letter { gate, mail, hold };
        if self.is_closed {
            inner.unsent_jobs.extend(letter.job());
            return false;
        }
        inner.bytes += letter.mail.weight();
        inner.held_bytes += letter.held_bytes();
        inner.job_bytes += letter.job_bytes();
        inner.urgent |= matches!(&letter.mail, Mail::Event(event) if event.is_urgent());
        inner.mail.push_back(letter);
        let new = gate > inner.registered && !self.mailbox.takes_early;
        inner.registered = inner.registered.max(gate);
        new
    }

    /// Closes the mailbox, and makes the owner's thread look there.
    pub fn finish(self) {
        let Self { mailbox, inner, .. } = self;
        // Jobs have a bound in all.
        if inner.bytes - inner.job_bytes > mailbox.bytes_max {
            mailbox.overflowed.store(true, Ordering::Release);
        }
        mailbox.count(&inner);
        drop(inner);
        mailbox.ring();
    }
}

impl Publication {
    /// Puts the bytes into these mailboxes, as far as there is room, and rings them.
    pub fn post(self: &Arc<Self>, mailboxes: &[Arc<Mailbox>]) {
        let all = mailboxes.len();
        let posted = mailboxes
            .iter()
            .filter(|mailbox| mailbox.post(self))
            .count();
        if posted < all {
            self.miss(all - posted);
            tracing::debug!(
                missed = all - posted,
                "a publication misses connections: their mailboxes are full"
            );
        }
    }
}

impl Member for Mailbox {
    fn blame(&self, now: Timestamp) -> usize {
        let jobs = if self.has_stalled(now) {
            self.sending.load(Ordering::Relaxed)
        } else {
            0
        };
        let not_taken = self.weight.load(Ordering::Acquire) + self.unsent.load(Ordering::Relaxed);
        let blame = self
            .holds()
            .saturating_add(3 * not_taken)
            .saturating_add(4 * jobs);
        if self.close_reason().is_none() {
            blame
        } else {
            0
        }
    }

    fn doubt(&self, now: Timestamp) {
        if self.has_stalled(now) {
            self.doubted.store(true, Ordering::Release);
            self.ring();
        }
    }

    fn buffers(&self) -> &Share {
        &self.buffers
    }

    fn evict(&self, why: Reason) {
        Self::evict(self, why);
    }
}

impl Closer for Mailbox {
    fn close(&self, why: Reason) {
        // The first reason counts.
        let _ = self.close_reason.set(why);
        self.ring();
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.budget.report(&self.share, 0);
    }
}
