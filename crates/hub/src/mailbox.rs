//! Mail for one client, filled under the engine's lock and read outside it.
//!
//! Mail that acknowledges something carries the number of the commit that must be durable first.
//! Everything after it waits too, so that a connection's replies keep their order. A mailbox is
//! bounded: the daemon never waits for a client that does not read, but closes the connection.
//!
//! While the peer has enough to read, mail stays here, where its bytes are shared with other
//! mailboxes; encoding would copy them. The bytes of all mailboxes are counted (`budget`).
//! Publications of other connections have a lower limit, beyond which they are dropped
//! (`published`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use windlass_engine::{ClientId, JobId, Timestamp, Token};
use windlass_session::{Closer, Reason};

pub(crate) use self::queued::GivenUp;
use self::queued::disclaim;
pub use self::queued::{Mail, QueuedMail};
use crate::budget::{Budget, Evictable, Hold, SMALL_BYTES, Share};
use crate::published::Publication;
use crate::waker::{Home, Waker};
use crate::waking::{Owner, WakeFlag};

mod bodies;
#[cfg(test)]
mod counts;
mod epochs;
pub(crate) mod queued;
mod stall;

#[cfg(test)]
mod tests;

/// The buffer space that the owner needs before it takes posted bytes. They are shared in the
/// mailbox but copied by the owner, and a peer that reads nothing must cost no more than one that
/// reads.
pub const POSTED_ROOM_BYTES: usize = 224 * 1024;

/// A larger buffer is freed when it is empty.
const KEPT_MAX: usize = 1 << 10;

/// The mail of one client.
#[derive(Debug)]
pub struct Mailbox {
    inner: Mutex<Inner>,
    /// Another thread may take the owner over.
    owner: Owner<Home>,
    overflowed: AtomicBool,
    /// Why the owner must close, if another part of the daemon requires it.
    close_reason: OnceLock<Reason>,
    /// The number of queued mails, readable without the lock.
    len: AtomicUsize,
    /// Queued bytes without jobs, readable without the lock.
    weight: AtomicUsize,
    bytes_max: usize,
    budget: Arc<Budget>,
    /// The counted bytes of the mail here, without parcels and without bytes counted by a hold.
    share: Share,
    /// The counted bytes of the owner's buffers.
    buffers: Share,
    /// Bytes of the owner's buffers that the peer has not read, and when it last read some, or had
    /// none to read.
    unsent: AtomicUsize,
    moved_at: AtomicU64,
    /// Bytes of jobs among the owner's buffers, which `unsent` excludes.
    sending: AtomicUsize,
    /// Whether the peer seems to read nothing of its jobs, while others wait for buffer space.
    suspected: AtomicBool,
    /// The owner's client number.
    client: ClientId,
    /// Number of the owner's items in flight to the leader.
    under_way: AtomicUsize,
    /// Bytes that the owner has taken and not yet reported to the leader.
    taken: AtomicUsize,
    /// Whether the owner takes mail before its commit is durable, and passes the commit's number
    /// on.
    takes_early: bool,
}

#[derive(Debug, Default)]
struct Inner {
    mail: VecDeque<QueuedMail>,
    bytes: usize,
    /// The part of `bytes` in parcels.
    posted_bytes: usize,
    /// The part of `bytes` counted by a hold.
    held_bytes: usize,
    /// The part of `held_bytes` in jobs for the owner.
    job_bytes: usize,
    /// Jobs for the owner that were not sent to its peer.
    unsent_jobs: Vec<(JobId, Token)>,
    /// Whether there is mail that the owner must get, however much the peer has unread.
    urgent: bool,
    /// The newest commit for which this mailbox will be woken: no mail waits for a later one.
    registered: u64,
}

impl Inner {
    /// Recounts the bytes of all mail.
    fn weigh(&mut self) {
        let is_posted = |queued: &&QueuedMail| matches!(queued.mail, Mail::Posted(_));
        self.bytes = self.mail.iter().map(|queued| queued.mail.weight()).sum();
        self.posted_bytes = self
            .mail
            .iter()
            .filter(is_posted)
            .map(|queued| queued.mail.weight())
            .sum();
        self.held_bytes = self.mail.iter().map(QueuedMail::held_bytes).sum();
        self.job_bytes = self.mail.iter().map(QueuedMail::job_bytes).sum();
    }

    /// Takes all mail in the common case that the owner has space for it and no mail must wait. No
    /// mail is weighed again then.
    fn take_all(&mut self, durable: u64, room: usize, into: &mut Vec<Mail>) -> bool {
        let may = self.registered <= durable && self.posted_bytes == 0 && self.bytes <= room;
        let may = may && !self.mail.iter().any(QueuedMail::waits_for_body);
        if may {
            // Usually there is one mail, for which draining a range would cost more.
            while let Some(queued) = self.mail.pop_front() {
                into.push(queued.mail);
            }
            (self.bytes, self.held_bytes, self.job_bytes) = (0, 0, 0);
        }
        may
    }

    /// Bytes counted by no parcel and no hold.
    const fn own_bytes(&self) -> usize {
        self.bytes - self.posted_bytes - self.held_bytes
    }
}

impl Mailbox {
    /// Creates a mailbox for at most this many bytes.
    pub fn new(bytes_max: usize, budget: Arc<Budget>, home: Home) -> Self {
        Self::of(bytes_max, budget, home, false)
    }

    /// Creates the mailbox of another daemon's client, whose mail is forwarded with the numbers of
    /// its commits: [`Mailbox::take_early`].
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
            suspected: AtomicBool::new(false),
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

    /// Adds bytes of another connection and wakes the owner, if there is space for them.
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
        inner.mail.push_back(QueuedMail {
            gate: 0,
            mail: Mail::Posted(published),
            hold: None,
        });
        self.count(&inner);
        drop(inner);
        self.ring();
        true
    }

    /// Takes the mail that is readable now. With `failed`, mail that waits for a commit is taken
    /// too, but as an unknown outcome.
    ///
    /// It stops when `room` is used up, in bytes; the last mail may exceed it. Parcels need more
    /// space than other mail. Returns the weight of the rest, without parcels, if it stopped for
    /// lack of space.
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
            && let Some(queued @ QueuedMail { gate, mail, .. }) = inner.mail.front()
        {
            let held = *gate > durable;
            if queued.waits_for_body() {
                break;
            }
            // A lease is valid when the store responds again.
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
            let Some(queued) = inner.mail.pop_front() else {
                break;
            };
            inner.bytes -= weight;
            inner.held_bytes -= queued.held_bytes();
            inner.job_bytes -= queued.job_bytes();
            inner.posted_bytes -= if posted { weight } else { 0 };
            let mut mail = queued.mail;
            if held {
                disclaim(&mut mail);
            }
            into.push(mail);
        }
        if inner.mail.is_empty() {
            inner.urgent = false;
            if inner.mail.capacity() > KEPT_MAX {
                inner.mail = VecDeque::new();
            }
        }
        self.count(&inner);
        left
    }

    /// Takes all mail before the first that waits for a body, each with the commit that must be
    /// durable before its client reads it.
    pub fn take_early(&self, into: &mut Vec<QueuedMail>) {
        let mut inner = self.lock();
        let complete = inner
            .mail
            .iter()
            .take_while(|queued| !queued.waits_for_body())
            .count();
        into.extend(inner.mail.drain(..complete));
        inner.weigh();
        inner.urgent &= complete == 0;
        self.count(&inner);
    }

    /// Publishes the counters and reports the bytes to the budget.
    fn count(&self, inner: &Inner) {
        self.len.store(inner.mail.len(), Ordering::Release);
        self.weight
            .store(inner.bytes - inner.job_bytes, Ordering::Release);
        let own = inner.own_bytes();
        // A share is 0 or at least `SMALL_BYTES`, so that of an empty mailbox is cleared too.
        if own.abs_diff(self.share.bytes()) >= SMALL_BYTES {
            self.budget.report(&self.share, own);
        }
    }

    /// Bytes of the engine's replies here.
    pub fn answer_bytes(&self) -> usize {
        if self.len() == 0 {
            return 0;
        }
        let inner = self.lock();
        (inner.bytes - inner.posted_bytes).saturating_sub(Mail::FIXED_BYTES * inner.mail.len())
    }

    /// Sets how many bytes of the owner's buffers the peer has not read: of jobs, and others.
    pub fn set_unsent(&self, jobs: usize, others: usize) {
        self.sending.store(jobs, Ordering::Relaxed);
        self.unsent.store(others, Ordering::Relaxed);
    }

    /// Closes the owner's connection, as [`Closer::close`] does, and drops all mail. The mailbox
    /// accepts no more.
    pub fn evict(&self, why: Reason) {
        let mut inner = self.lock();
        let _ = self.close_reason.set(why);
        let gone = std::mem::take(&mut inner.mail);
        inner
            .unsent_jobs
            .extend(gone.iter().filter_map(QueuedMail::job));
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

    /// Called when the owner closes before it has sent these jobs to its peer.
    pub fn give_back(&self, jobs: impl IntoIterator<Item = (JobId, Token)>) {
        self.lock().unsent_jobs.extend(jobs);
    }

    /// Called when the owner has closed: takes some of the jobs that its peer has never received.
    pub fn take_unsent_jobs(&self, most: usize) -> Vec<(JobId, Token)> {
        let mut inner = self.lock();
        let queued = std::mem::take(&mut inner.mail);
        inner
            .unsent_jobs
            .extend(queued.iter().filter_map(QueuedMail::job));
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

    /// The number of queued mails.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Whether everything that precedes new bytes of the owner was taken: no mail is here, or still
    /// to come.
    pub fn is_settled(&self) -> bool {
        self.unanswered() == 0
    }

    /// The number of queued mails, plus items of the owner in flight to the leader.
    pub fn unanswered(&self) -> usize {
        self.len() + self.under_way.load(Ordering::Acquire)
    }

    /// Records that the owner has taken this many bytes. Returns all bytes since the last report,
    /// if they reach a step.
    pub fn made_room(&self, bytes: usize, step: usize) -> Option<usize> {
        let is_step = bytes > 0 && self.taken.fetch_add(bytes, Ordering::AcqRel) + bytes >= step;
        is_step
            .then(|| self.taken.swap(0, Ordering::AcqRel))
            .filter(|bytes| *bytes != 0)
    }

    /// The owner's client number.
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// Sets how many items of the owner are in flight to the leader.
    pub fn set_under_way(&self, items: usize) {
        self.under_way.store(items, Ordering::Release);
    }

    /// Whether more was queued than the client may leave unread.
    pub fn overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Acquire)
    }

    /// Why the owner must close immediately, if it must.
    pub fn close_reason(&self) -> Option<&Reason> {
        self.close_reason.get()
    }

    /// Wakes the owner's thread.
    pub fn ring(&self) {
        self.owner.ring(|home| home.waker.wake_for(home.connection));
    }

    /// Whether the owner was woken, and whether it will check the mailbox by itself.
    pub const fn wake_flag(&self) -> &WakeFlag {
        self.owner.wake_flag()
    }

    /// Whether the owner is on this thread.
    pub fn is_on(&self, waker: &Arc<dyn Waker>) -> bool {
        self.owner
            .is_at(|home| std::ptr::addr_eq(Arc::as_ptr(&home.waker), Arc::as_ptr(waker)))
    }

    /// Moves the owner to this thread. It must check the mailbox next, because an earlier wake-up
    /// may have gone to the old thread.
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

    /// Passes all mail to `look`.
    #[cfg(any(test, feature = "testing"))]
    pub fn look<T>(&self, look: impl FnOnce(&mut dyn Iterator<Item = &QueuedMail>) -> T) -> T {
        look(&mut self.lock().mail.iter())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No holder of this lock can panic halfway through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A mailbox opened for adding mail.
#[derive(Debug)]
#[must_use = "the mail counts when the mailbox is closed"]
pub struct Filling<'a> {
    mailbox: &'a Mailbox,
    inner: MutexGuard<'a, Inner>,
    is_closed: bool,
}

impl Filling<'_> {
    /// Adds mail that is readable once commit `gate` is durable. Returns whether the caller must
    /// register the mailbox to be woken for that commit.
    pub fn push(&mut self, gate: u64, mail: Mail, hold: Option<Arc<Hold>>) -> bool {
        let inner = &mut *self.inner;
        let queued = QueuedMail { gate, mail, hold };
        if self.is_closed {
            inner.unsent_jobs.extend(queued.job());
            return false;
        }
        inner.bytes += queued.mail.weight();
        inner.held_bytes += queued.held_bytes();
        inner.job_bytes += queued.job_bytes();
        inner.urgent |= matches!(&queued.mail, Mail::Event(event) if event.is_urgent());
        inner.mail.push_back(queued);
        let new = gate > inner.registered && !self.mailbox.takes_early;
        inner.registered = inner.registered.max(gate);
        new
    }

    /// Closes the mailbox, and wakes the owner's thread.
    pub fn finish(self) {
        let Self { mailbox, inner, .. } = self;
        // Jobs have an overall limit instead.
        if inner.bytes - inner.job_bytes > mailbox.bytes_max {
            mailbox.overflowed.store(true, Ordering::Release);
        }
        mailbox.count(&inner);
        drop(inner);
        mailbox.ring();
    }
}

impl Publication {
    /// Puts the bytes into these mailboxes, as far as there is space, and wakes their owners.
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

impl Evictable for Mailbox {
    fn badness(&self, now: Timestamp) -> usize {
        let jobs = if self.has_stalled(now) {
            self.sending.load(Ordering::Relaxed)
        } else {
            0
        };
        let not_taken = self.weight.load(Ordering::Acquire) + self.unsent.load(Ordering::Relaxed);
        let badness = self
            .holds()
            .saturating_add(3 * not_taken)
            .saturating_add(4 * jobs);
        if self.close_reason().is_none() {
            badness
        } else {
            0
        }
    }

    fn suspect(&self, now: Timestamp) {
        if self.has_stalled(now) {
            self.suspected.store(true, Ordering::Release);
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
        // The first reason is kept.
        let _ = self.close_reason.set(why);
        self.ring();
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.budget.report(&self.share, 0);
    }
}
