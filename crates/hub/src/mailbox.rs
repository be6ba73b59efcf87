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
//!
//! Three parts: what is queued and what it waits for (`mail`), what it costs and whether the peer
//! reads it (`pressure`), and, in a cluster, what is on its way to the leader (`forwarding`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bytes::Bytes;
use windlass_engine::{ClientId, JobId, Stored, Token};
use windlass_session::{Closer, Reason};

pub use self::forwarding::Forwarding;
pub(crate) use self::mail::GivenUp;
use self::mail::Queue;
pub use self::mail::{Mail, POSTED_ROOM_BYTES, QueuedMail};
pub use self::pressure::Pressure;
use crate::budget::{Budget, Hold};
use crate::published::Publication;
use crate::shared::lock;
use crate::waker::{Home, Waker};
use crate::waking::{Owner, WakeFlag};

#[cfg(test)]
mod counts;
mod forwarding;
pub(crate) mod mail;
mod pressure;

#[cfg(test)]
mod tests;

/// The mail of one client.
#[derive(Debug)]
pub struct Mailbox {
    /// The owner's client number.
    client: ClientId,
    /// Another thread may take the owner over.
    owner: Owner<Home>,
    /// Why the owner must close, if another part of the daemon requires it.
    close_reason: OnceLock<Reason>,
    queue: Mutex<Queue>,
    /// The number of queued mails, readable without the lock.
    len: AtomicUsize,
    /// What waits for the client, and whether its peer reads.
    pub pressure: Pressure,
    /// What is on its way to the leader, if another daemon leads.
    pub forwarding: Forwarding,
}

impl Mailbox {
    /// Creates a mailbox for at most this many bytes.
    pub fn new(bytes_max: usize, budget: Arc<Budget>, home: Home) -> Self {
        Self {
            client: home.connection.client,
            owner: Owner::new(home),
            close_reason: OnceLock::new(),
            queue: Mutex::default(),
            len: AtomicUsize::default(),
            pressure: Pressure::new(bytes_max, budget),
            forwarding: Forwarding::default(),
        }
    }

    /// Opens the mailbox for several pieces of mail.
    pub fn fill(&self) -> Filling<'_> {
        Filling {
            mailbox: self,
            queue: self.lock(),
            is_closed: self.close_reason().is_some(),
        }
    }

    /// Adds bytes of another connection and wakes the owner, if there is space for them.
    #[must_use]
    pub fn post(&self, publication: &Arc<Publication>) -> bool {
        let mut queue = self.lock();
        if self.close_reason().is_some() {
            return false;
        }
        // Only the engine's events may overflow a mailbox, never publications of other connections.
        let most = self.pressure.bytes_max.saturating_sub(queue.sizes.all);
        let Some(published) = publication
            .admit(queue.sizes.posted)
            .filter(|it| it.weight() <= most)
        else {
            return false;
        };
        queue.add(QueuedMail {
            gate: None,
            mail: Mail::Posted(published),
            hold: None,
        });
        self.count(&queue);
        drop(queue);
        self.ring();
        true
    }

    /// Takes the mail that is readable now. With `failed`, mail that waits for a commit is taken
    /// too, but as an unknown outcome.
    ///
    /// It stops when `room` is used up, in bytes; the last mail may exceed it. Posts need more
    /// space than other mail. Returns the weight of the rest, without posts, if it stopped for lack
    /// of space.
    pub fn take(
        &self,
        durable: u64,
        failed: bool,
        room: usize,
        into: &mut Vec<Mail>,
    ) -> Option<usize> {
        if self.len() == 0 {
            return None;
        }
        self.change(|queue| queue.take(durable, failed, room, into))
    }

    /// Puts bodies into the mail that waits for them, and wakes the owner.
    pub(crate) fn supply(&self, find: impl Fn(JobId, Stored) -> Option<Bytes>) {
        self.change(|queue| queue.supply(find));
        self.ring();
    }

    /// Replaces mail that waits for the unreadable body of this job, and drops a delivery of the
    /// job.
    pub(crate) fn give_up_on(&self, job: JobId) -> GivenUp {
        self.change(|queue| queue.give_up_on(job))
    }

    /// Closes the owner's connection, as [`Closer::close`] does, and drops all mail. The mailbox
    /// accepts no more.
    pub fn evict(&self, why: Reason) {
        // Dropping the mail may free much memory, so not under the lock.
        drop(self.change(|queue| {
            let _ = self.close_reason.set(why);
            queue.clear()
        }));
        self.ring();
    }

    /// Called when the owner closes before it has sent these jobs to its peer.
    pub fn give_back(&self, jobs: impl IntoIterator<Item = (JobId, Token)>) {
        self.lock().unsent_jobs.extend(jobs);
    }

    /// Called when the owner has closed: takes some of the jobs that its peer has never received.
    pub fn take_unsent_jobs(&self, most: usize) -> Vec<(JobId, Token)> {
        self.change(|queue| queue.take_unsent_jobs(most))
    }

    /// Changes the queue, and publishes its new counters.
    fn change<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let mut queue = self.lock();
        let changed = change(&mut queue);
        self.count(&queue);
        changed
    }

    /// Publishes the counters of the queue.
    fn count(&self, queue: &Queue) {
        self.len.store(queue.mail.len(), Ordering::Release);
        self.pressure.count(queue.sizes);
    }

    /// Bytes of the engine's replies here.
    pub fn answer_bytes(&self) -> usize {
        if self.len() == 0 {
            return 0;
        }
        let queue = self.lock();
        let replies = queue.sizes.all - queue.sizes.posted;
        replies.saturating_sub(Mail::FIXED_BYTES * queue.mail.len())
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
        self.len() + self.forwarding.under_way.load(Ordering::Acquire)
    }

    /// The owner's client number.
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// Why the owner must close immediately, if it must.
    pub fn close_reason(&self) -> Option<&Reason> {
        self.close_reason.get()
    }

    /// Wakes the owner's thread.
    pub fn ring(&self) {
        self.owner.ring(|home| home.waker.wake_for(home.connection));
    }

    /// Wakes the owners of all these mailboxes.
    pub fn ring_all(mailboxes: &[Arc<Self>]) {
        for mailbox in mailboxes {
            mailbox.ring();
        }
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
        let new = filling.push((gate != 0).then_some(gate), mail, hold);
        filling.finish();
        new.is_some()
    }

    /// Passes all mail to `look`.
    #[cfg(any(test, feature = "testing"))]
    pub fn look<T>(&self, look: impl FnOnce(&mut dyn Iterator<Item = &QueuedMail>) -> T) -> T {
        look(&mut self.lock().mail.iter())
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

/// A mailbox opened for adding mail.
#[derive(Debug)]
#[must_use = "the mail counts when the mailbox is closed"]
pub struct Filling<'a> {
    mailbox: &'a Mailbox,
    queue: MutexGuard<'a, Queue>,
    is_closed: bool,
}

impl Filling<'_> {
    /// Adds mail that is readable once commit `gate` is durable. Returns that commit if the caller
    /// must register the mailbox to be woken for it.
    pub fn push(&mut self, gate: Option<u64>, mail: Mail, hold: Option<Arc<Hold>>) -> Option<u64> {
        let queued = QueuedMail { gate, mail, hold };
        if self.is_closed {
            self.queue.unsent_jobs.extend(queued.job());
            return None;
        }
        let new = self.queue.add(queued);
        new.filter(|_| !self.mailbox.forwarding.takes_early)
    }

    /// Closes the mailbox, and wakes the owner's thread.
    pub fn finish(self) {
        let Self { mailbox, queue, .. } = self;
        mailbox.pressure.limit(queue.sizes);
        mailbox.count(&queue);
        drop(queue);
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

impl Closer for Mailbox {
    fn close(&self, why: Reason) {
        // The first reason is kept.
        let _ = self.close_reason.set(why);
        self.ring();
    }
}
