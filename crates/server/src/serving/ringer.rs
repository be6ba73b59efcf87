//! Wakes a serving thread: for mail, for a new connection, for a commit, at the end.
//!
//! A thread that runs looks here at the end of each of its turns, so only a sleeping thread costs a system call, and
//! only the first ring after it fell asleep does.

use std::io;
use std::sync::Arc;

use mio::{Registry, Token, Waker};
use tokio::sync::Notify;
use windlass_engine::ClientId;

use super::arrival::{Arrival, Place};
use super::member::Member;
use crate::waking::Inbox;

/// The token of the waker among a thread's sockets.
pub(super) const WAKER: Token = Token(usize::MAX);

/// A connection's place on its thread. A place is used again, a client number never is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Seat {
    pub(crate) index: usize,
    pub(crate) client: ClientId,
}

/// One serving thread, as others reach it. The default one belongs to no thread and keeps everything.
#[derive(Debug)]
pub(crate) struct Ringer {
    inbox: Inbox<Due>,
    wake: Option<Wake>,
}

/// How an owner of mail is woken.
#[derive(Debug)]
enum Wake {
    /// A serving thread, with its connections.
    Thread(Waker),
    /// A task of another thread, with one mailbox.
    Task(Arc<Notify>),
    /// A task of another thread, with many mailboxes.
    Link(Arc<Notify>),
}

/// Everything that a thread must look at.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Connections that have mail.
    pub(crate) mail: Vec<Seat>,
    /// New connections.
    pub(super) arrivals: Vec<(Arrival, Place)>,
    /// Connections of another thread that this one serves from now on.
    #[expect(clippy::vec_box, reason = "they move from thread to thread, and are large")]
    pub(super) moved: Vec<Box<Member>>,
    /// The thread may commit now: another thread has finished its commit.
    pub(super) commit: bool,
    /// The thread ends.
    pub(super) stop: bool,
}

impl Default for Ringer {
    fn default() -> Self {
        Self::waking(None)
    }
}

impl Ringer {
    fn waking(wake: Option<Wake>) -> Self {
        Self { inbox: Inbox::new(), wake }
    }

    pub(super) fn new(registry: &Registry) -> io::Result<Self> {
        Ok(Self::waking(Some(Wake::Thread(Waker::new(registry, WAKER)?))))
    }

    /// For the mailbox of a task that waits for `notify`.
    pub(crate) fn for_task(notify: Arc<Notify>) -> Self {
        Self::waking(Some(Wake::Task(notify)))
    }

    /// For the mailboxes of a task that waits for `notify`, and then takes what is due.
    pub(crate) fn for_link(notify: Arc<Notify>) -> Self {
        Self::waking(Some(Wake::Link(notify)))
    }

    /// A connection has mail.
    pub(crate) fn ring(&self, seat: Seat) {
        match &self.wake {
            Some(Wake::Task(notify)) => notify.notify_one(),
            Some(Wake::Link(notify)) => {
                self.add(|due| due.mail.push(seat));
                notify.notify_one();
            }
            Some(Wake::Thread(_)) | None => self.add(|due| due.mail.push(seat)),
        }
    }

    /// Passes a connection to the thread, which serves it.
    pub(super) fn arrive(&self, arrival: Arrival, place: Place) {
        self.add(|due| due.arrivals.push((arrival, place)));
    }

    /// Passes another thread's connection to this thread, unless this thread ends.
    pub(super) fn take_over(&self, member: Box<Member>) -> Result<(), Box<Member>> {
        self.wake_if(self.inbox.offer(member, |due, member| due.moved.push(member))?);
        Ok(())
    }

    /// The thread may commit.
    pub(crate) fn commit(&self) {
        self.add(|due| due.commit = true);
    }

    pub(super) fn stop(&self) {
        self.wake_if(self.inbox.close(|due| due.stop = true));
    }

    fn add(&self, add: impl FnOnce(&mut Due)) {
        self.wake_if(self.inbox.add(add));
    }

    fn wake_if(&self, sleeps: bool) {
        if sleeps
            && let Some(Wake::Thread(waker)) = &self.wake
            && let Err(error) = waker.wake()
        {
            tracing::error!(%error, "cannot wake a serving thread");
        }
    }

    /// Whether there is something to look at.
    pub(super) fn is_due(&self) -> bool {
        self.inbox.is_due()
    }

    /// Moves everything to `into`, which must be empty.
    pub(crate) fn take(&self, into: &mut Due) {
        self.inbox.take(into);
    }

    /// The thread is about to sleep: from now on it is woken. Returns `false` if it must not sleep.
    pub(super) fn fall_asleep(&self) -> bool {
        self.inbox.fall_asleep()
    }

    pub(super) fn wake_up(&self) {
        self.inbox.wake_up();
    }
}

/// The place of a mailbox on no thread.
#[cfg(test)]
pub(crate) fn nowhere() -> (std::sync::Arc<Ringer>, Seat) {
    (std::sync::Arc::default(), Seat { index: 0, client: ClientId(1) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mio::{Events, Poll};

    use super::*;

    const SEAT: Seat = Seat { index: 1, client: ClientId(7) };

    fn taken(ringer: &Ringer) -> usize {
        let mut due = Due::default();
        ringer.take(&mut due);
        due.mail.len()
    }

    #[test]
    fn a_sleeping_thread_is_woken_once_and_a_running_one_is_not() {
        let mut poll = Poll::new().unwrap();
        let ringer = Ringer::new(poll.registry()).unwrap();
        let mut events = Events::with_capacity(8);
        let mut woken = |wait: Duration| {
            poll.poll(&mut events, Some(wait)).unwrap();
            events.iter().filter(|event| event.token() == WAKER).count()
        };
        ringer.ring(SEAT);
        assert_eq!(woken(Duration::ZERO), 0, "it runs");
        assert!(!ringer.fall_asleep(), "something is due");
        ringer.wake_up();
        assert_eq!(taken(&ringer), 1);
        assert!(ringer.fall_asleep());
        (0..3).for_each(|_| ringer.ring(SEAT));
        assert_eq!(woken(Duration::from_secs(20)), 1);
        assert_eq!(woken(Duration::ZERO), 0, "the first ring woke it");
        assert_eq!((taken(&ringer), taken(&ringer)), (3, 0));
        assert!(ringer.fall_asleep());
        ringer.wake_up();
        ringer.ring(SEAT);
        assert_eq!(woken(Duration::ZERO), 0, "it runs again");
    }

    #[test]
    fn no_ring_is_lost_between_a_look_and_sleep() {
        let mut poll = Poll::new().unwrap();
        let ringer = Arc::new(Ringer::new(poll.registry()).unwrap());
        let theirs = Arc::clone(&ringer);
        const RINGS: usize = 20_000;
        let rings = std::thread::spawn(move || (0..RINGS).for_each(|_| theirs.ring(SEAT)));
        let (mut events, mut seen) = (Events::with_capacity(8), 0);
        while seen < RINGS {
            if ringer.fall_asleep() {
                // The ring that wakes it may have been taken before.
                poll.poll(&mut events, Some(Duration::from_secs(20))).unwrap();
                assert!(!events.is_empty(), "never woken");
            }
            ringer.wake_up();
            seen += taken(&ringer);
        }
        rings.join().unwrap();
    }

    /// The task of a mailbox looks there, that of a link at what is due.
    #[test]
    fn a_task_is_notified_of_its_mail() {
        let is_notified = |notify: &Notify| {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            std::pin::pin!(notify.notified()).poll(&mut context).is_ready()
        };
        for (make, due) in [(Ringer::for_task as fn(_) -> Ringer, 0), (Ringer::for_link, 1)] {
            let notify = Arc::new(Notify::new());
            let ringer = make(Arc::clone(&notify));
            assert!(!is_notified(&notify));
            ringer.ring(SEAT);
            assert!(is_notified(&notify));
            assert_eq!(taken(&ringer), due);
        }
    }
}
