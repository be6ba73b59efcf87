//! What waits to be told to one client: filled under the engine's lock, drained outside it.
//!
//! Mail that acknowledges something carries the number of the commit that must be durable first; everything behind it
//! waits with it, so that a connection's replies keep their order. A mailbox is bounded: a client that does not read
//! what it is sent is hung up on, never waited for.
//!
//! What other connections post is bounded more narrowly, and refused instead (see `parcel`). It is left here while the
//! peer has enough to read, so that this bound counts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use windlass_engine::{Event, Note, Refusal};
use windlass_session::{Dismiss, Post, Reason};

use crate::parcel::{Depot, Parcel};
use crate::ringer::Ringer;

/// One thing for a client.
#[derive(Debug)]
pub(crate) enum Mail {
    /// For its session to put into words.
    Event(Event),
    /// Words already.
    Bytes(Bytes),
    /// Words of another connection's.
    Posted(Parcel),
}

impl Mail {
    /// What it weighs against the mailbox's limit.
    fn weight(&self) -> usize {
        const FIXED: usize = 64;
        FIXED
            + match self {
                Self::Bytes(bytes) => bytes.len(),
                Self::Posted(parcel) => return parcel.weight(),
                Self::Event(Event::Taken { job, .. }) => job.body.len(),
                Self::Event(Event::Told { note: Note::Data(data) | Note::Warning(data), .. }) => data.len(),
                Self::Event(_) => 0,
            }
    }
}

/// The mail of one client.
#[derive(Debug)]
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    /// Rung when there is something to look at.
    bell: Notify,
    overflowed: AtomicBool,
    /// Why its owner is to go, if somebody else wants it to.
    dismissed: OnceLock<Reason>,
    /// How many are waiting to be read: to be known without the lock.
    len: AtomicUsize,
    bytes_max: usize,
    /// What others may post counts there too.
    depot: Arc<Depot>,
    /// The ringer of its owner's thread.
    ringer: Arc<Ringer>,
}

#[derive(Debug, Default)]
struct Inner {
    mail: VecDeque<(u64, Mail)>,
    bytes: usize,
    /// So many of them are of parcels.
    posted_bytes: usize,
    /// The newest commit this mailbox has asked to be rung for.
    registered: u64,
}

impl Mailbox {
    pub(crate) fn new(bytes_max: usize, depot: Arc<Depot>, ringer: Arc<Ringer>) -> Self {
        Self {
            inner: Mutex::default(),
            bell: Notify::new(),
            overflowed: AtomicBool::new(false),
            dismissed: OnceLock::new(),
            len: AtomicUsize::new(0),
            bytes_max,
            depot,
            ringer,
        }
    }

    /// Adds mail that may be read once commit `gate` is durable. Says whether the mailbox is to be rung for that
    /// commit and has not asked to be yet.
    pub(crate) fn push(&self, gate: u64, mail: Mail) -> bool {
        let mut inner = self.lock();
        inner.bytes += mail.weight();
        if inner.bytes > self.bytes_max {
            self.overflowed.store(true, Ordering::Release);
        }
        inner.mail.push_back((gate, mail));
        self.len.store(inner.mail.len(), Ordering::Release);
        let new = gate > inner.registered;
        inner.registered = inner.registered.max(gate);
        new
    }

    /// Takes out what may be read now. With `failed`, what waits for a commit comes out too, but promises nothing any more.
    ///
    /// Parcels come out until there is no `room` for more, in bytes; they and what stands behind them stay then, and it is
    /// said what that weighs besides parcels.
    pub(crate) fn take(&self, durable: u64, failed: bool, mut room: usize, into: &mut Vec<Mail>) -> Option<usize> {
        if self.len() == 0 {
            return None;
        }
        let mut inner = self.lock();
        let mut left = None;
        while let Some((gate, mail)) = inner.mail.front() {
            let held = *gate > durable;
            if held && !failed {
                break;
            }
            let parcel_bytes = if let Mail::Posted(parcel) = mail { parcel.weight() } else { 0 };
            if parcel_bytes > 0 && room == 0 {
                left = Some(inner.bytes - inner.posted_bytes);
                break;
            }
            room = room.saturating_sub(parcel_bytes);
            let Some((_, mail)) = inner.mail.pop_front() else { break };
            inner.bytes -= mail.weight();
            inner.posted_bytes -= parcel_bytes;
            into.push(if held { disclaim(mail) } else { mail });
        }
        self.len.store(inner.mail.len(), Ordering::Release);
        left
    }

    /// How many are waiting to be read.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Whether the client read too little for too long.
    pub(crate) fn overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Acquire)
    }

    /// Why its owner is to go at once, if it is.
    pub(crate) fn dismissed(&self) -> Option<&Reason> {
        self.dismissed.get()
    }

    /// Wakes the owner. To wake many from another thread, [`Ringer::ring_all`] is cheaper.
    pub(crate) fn ring(&self) {
        self.bell.notify_one();
    }

    pub(crate) const fn ringer(&self) -> &Arc<Ringer> {
        &self.ringer
    }

    /// Comes back when the bell has been rung since the last time.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// Everything in it, each with the commit it waits for; 0 = none.
    #[cfg(test)]
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut dyn Iterator<Item = &(u64, Mail)>) -> T) -> T {
        look(&mut self.lock().mail.iter())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing that holds this lock can panic half way through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dismiss for Mailbox {
    fn dismiss(&self, why: Reason) {
        // Whoever came first has said why.
        let _ = self.dismissed.set(why);
        self.ring();
    }
}

impl Post for Mailbox {
    fn post(&self, words: Bytes) -> bool {
        let mut inner = self.lock();
        let Some(parcel) = self.depot.take_in(words, inner.posted_bytes) else { return false };
        let weight = parcel.weight();
        // It is for the engine's events to overflow it, never for others.
        if inner.bytes.saturating_add(weight) > self.bytes_max {
            return false;
        }
        inner.bytes += weight;
        inner.posted_bytes += weight;
        inner.mail.push_back((0, Mail::Posted(parcel)));
        self.len.store(inner.mail.len(), Ordering::Release);
        drop(inner);
        self.ring();
        true
    }
}

/// An acknowledgement that can no longer be given: whether it happened is not known.
fn disclaim(mail: Mail) -> Mail {
    match mail {
        Mail::Event(event) if event.acknowledges() => match event.tag() {
            Some(tag) => Mail::Event(Event::Refused { tag, why: Refusal::Unknown }),
            None => Mail::Event(event),
        },
        other @ (Mail::Event(_) | Mail::Bytes(_) | Mail::Posted(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::Tag;

    use super::*;

    fn mailbox(bytes_max: usize) -> Mailbox {
        Mailbox::new(bytes_max, Arc::new(Depot::new(1 << 20)), Arc::default())
    }

    fn taken(mailbox: &Mailbox, durable: u64, failed: bool) -> Vec<String> {
        let mut mail = Vec::new();
        assert_eq!(mailbox.take(durable, failed, usize::MAX, &mut mail), None);
        names(mail)
    }

    fn names(mail: Vec<Mail>) -> Vec<String> {
        let name = |mail| match mail {
            Mail::Event(Event::Done { tag }) => format!("done {}", tag.0),
            Mail::Event(Event::Refused { tag, why }) => format!("{why} {}", tag.0),
            Mail::Event(_) => "event".to_owned(),
            Mail::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Mail::Posted(parcel) => format!("posted {}", parcel.words().len()),
        };
        mail.into_iter().map(name).collect()
    }

    #[test]
    fn what_stands_behind_a_promise_waits_with_it() {
        let mailbox = mailbox(1 << 20);
        assert!(!mailbox.push(0, Mail::Bytes(Bytes::from_static(b"echo 1"))));
        assert!(mailbox.push(7, Mail::Event(Event::Done { tag: Tag(1) })), "to be rung for commit 7");
        assert!(!mailbox.push(7, Mail::Event(Event::Done { tag: Tag(2) })), "asked for already");
        mailbox.push(0, Mail::Bytes(Bytes::from_static(b"echo 2")));
        assert_eq!(taken(&mailbox, 6, false), ["echo 1"]);
        assert_eq!(taken(&mailbox, 7, false), ["done 1", "done 2", "echo 2"]);
    }

    #[test]
    fn when_the_store_fails_nothing_is_promised() {
        let mailbox = mailbox(1 << 20);
        mailbox.push(7, Mail::Event(Event::Done { tag: Tag(1) }));
        mailbox.push(8, Mail::Event(Event::Woken));
        assert_eq!(taken(&mailbox, 6, true), ["outcome unknown 1", "event"]);
    }

    #[test]
    fn it_is_bounded() {
        let mailbox = mailbox(1000);
        mailbox.push(0, Mail::Bytes(Bytes::from_static(&[0; 900])));
        assert!(!mailbox.overflowed());
        mailbox.push(0, Mail::Bytes(Bytes::from_static(&[0; 900])));
        assert!(mailbox.overflowed());
    }

    #[test]
    fn what_is_posted_waits_in_its_place_until_there_is_room_for_it() {
        let mailbox = mailbox(1 << 20);
        let post = |bytes: usize| mailbox.post(Bytes::from(vec![0; bytes]));
        assert!(post(10) && post(20));
        mailbox.push(0, Mail::Bytes(Bytes::from_static(b"echo")));
        assert!(post(30));
        let take = |room| {
            let mut mail = Vec::new();
            (mailbox.take(0, false, room, &mut mail), names(mail).join(", "))
        };
        let echo = Mail::Bytes(Bytes::from_static(b"echo")).weight();
        assert_eq!(take(0), (Some(echo), String::new()));
        assert_eq!(take(1), (Some(echo), "posted 10".to_owned()), "what is begun is room for one");
        assert_eq!(take(1), (Some(0), "posted 20, echo".to_owned()));
        assert_eq!(take(1), (None, "posted 30".to_owned()));
        assert_eq!(mailbox.len(), 0);
        mailbox.push(7, Mail::Event(Event::Done { tag: Tag(1) }));
        assert!(post(40));
        assert_eq!(take(usize::MAX), (None, String::new()), "a promise waits, and so does what stands behind it");
        assert_eq!(taken(&mailbox, 7, false), ["done 1", "posted 40"]);
    }

    #[test]
    fn what_is_posted_is_refused_before_it_overflows() {
        let mailbox = mailbox(10_000);
        let posted = (0..100).take_while(|_| mailbox.post(Bytes::from_static(&[0; 900]))).count();
        assert!((1..12).contains(&posted), "{posted}");
        assert!(!mailbox.overflowed());
        assert_eq!(taken(&mailbox, 0, false).len(), posted);
        assert!(mailbox.post(Bytes::from_static(&[0; 900])));
    }
}
