//! Wakes a serving thread: for mail, for a new connection, for a commit, or to stop it.
//!
//! A running thread checks this at the end of each turn, so a system call is needed only for the
//! first wake-up after it fell asleep.

use std::io;

use mio::{Registry, Token};
use windlass_hub::{ConnectionId, Inbox, Waker};

use super::arrival::{Arrival, Place};
use super::member::Member;
use super::pulse::Answers;

/// The token of the waker among a thread's sockets.
pub(super) const WAKER: Token = Token(usize::MAX);

/// The interface of a serving thread to other threads.
#[derive(Debug)]
pub(crate) struct ThreadWaker {
    inbox: Inbox<Due>,
    poll: Option<mio::Waker>,
    answers: Answers,
}

/// Everything that a thread must handle.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Connections that have mail.
    pub(crate) mail: Vec<ConnectionId>,
    /// New connections.
    pub(super) arrivals: Vec<(Arrival, Place)>,
    /// Connections that move from another thread to this one.
    #[expect(
        clippy::vec_box,
        reason = "they move from thread to thread, and are large"
    )]
    pub(super) moved: Vec<Box<Member>>,
    /// Whether the thread may commit, because another thread has finished its commit.
    pub(super) commit: bool,
    /// Whether the main thread has sent a probe.
    pub(super) asked: bool,
    /// Whether the thread must stop.
    pub(super) stop: bool,
}

impl Waker for ThreadWaker {
    fn wake_for(&self, id: ConnectionId) {
        self.add(|due| due.mail.push(id));
    }

    fn wake_to_commit(&self) {
        self.add(|due| due.commit = true);
    }
}

impl ThreadWaker {
    pub(super) fn new(registry: &Registry) -> io::Result<Self> {
        Ok(Self {
            inbox: Inbox::new(),
            poll: Some(mio::Waker::new(registry, WAKER)?),
            answers: Answers::default(),
        })
    }

    /// Passes a new connection to the thread.
    pub(super) fn arrive(&self, arrival: Arrival, place: Place) {
        self.add(|due| due.arrivals.push((arrival, place)));
    }

    /// Passes another thread's connection to this thread, unless this thread is stopping.
    pub(super) fn take_over(&self, member: Box<Member>) -> Result<(), Box<Member>> {
        self.wake_if(
            self.inbox
                .offer(member, |due, member| due.moved.push(member))?,
        );
        Ok(())
    }

    /// Sends a probe to the thread.
    pub(super) fn ask(&self, waits_for_store: bool) {
        if self.answers.ask(waits_for_store) {
            self.add(|due| due.asked = true);
        }
    }

    pub(super) const fn answers(&self) -> &Answers {
        &self.answers
    }

    pub(super) fn stop(&self) {
        self.wake_if(self.inbox.close(|due| due.stop = true));
    }

    fn add(&self, add: impl FnOnce(&mut Due)) {
        self.wake_if(self.inbox.add(add));
    }

    fn wake_if(&self, sleeps: bool) {
        if sleeps
            && let Some(waker) = &self.poll
            && let Err(error) = waker.wake()
        {
            tracing::error!(%error, "cannot wake a serving thread");
        }
    }

    /// Whether there is anything to handle.
    pub(super) fn is_due(&self) -> bool {
        self.inbox.is_due()
    }

    /// Moves everything to `into`, which must be empty.
    pub(crate) fn take(&self, into: &mut Due) {
        self.inbox.take(into);
    }

    /// Called when the thread is about to sleep and must be woken from now on. Returns `false` if
    /// it must not sleep.
    pub(super) fn fall_asleep(&self) -> bool {
        self.inbox.fall_asleep()
    }

    pub(super) fn wake_up(&self) {
        self.inbox.wake_up();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use mio::{Events, Poll};
    use windlass_engine::ClientId;

    use super::*;

    const ID: ConnectionId = ConnectionId {
        index: 1,
        client: ClientId(7),
    };

    fn taken(waker: &ThreadWaker) -> usize {
        let mut due = Due::default();
        waker.take(&mut due);
        due.mail.len()
    }

    #[test]
    fn a_sleeping_thread_is_woken_once_and_a_running_one_is_not() {
        let mut poll = Poll::new().unwrap();
        let waker = ThreadWaker::new(poll.registry()).unwrap();
        let mut events = Events::with_capacity(8);
        let mut woken = |wait: Duration| {
            poll.poll(&mut events, Some(wait)).unwrap();
            events.iter().filter(|event| event.token() == WAKER).count()
        };
        waker.wake_for(ID);
        assert_eq!(woken(Duration::ZERO), 0, "it runs");
        assert!(!waker.fall_asleep(), "something is due");
        waker.wake_up();
        assert_eq!(taken(&waker), 1);
        assert!(waker.fall_asleep());
        (0..3).for_each(|_| waker.wake_for(ID));
        assert_eq!(woken(Duration::from_secs(20)), 1);
        assert_eq!(woken(Duration::ZERO), 0, "the first ring woke it");
        assert_eq!((taken(&waker), taken(&waker)), (3, 0));
        assert!(waker.fall_asleep());
        waker.wake_up();
        waker.wake_for(ID);
        assert_eq!(woken(Duration::ZERO), 0, "it runs again");
    }

    #[test]
    fn no_ring_is_lost_between_a_look_and_sleep() {
        let mut poll = Poll::new().unwrap();
        let waker = Arc::new(ThreadWaker::new(poll.registry()).unwrap());
        let theirs = Arc::clone(&waker);
        const RINGS: usize = 20_000;
        let rings = std::thread::spawn(move || (0..RINGS).for_each(|_| theirs.wake_for(ID)));
        let (mut events, mut seen) = (Events::with_capacity(8), 0);
        while seen < RINGS {
            if waker.fall_asleep() {
                // The event that wakes it may have been consumed before.
                poll.poll(&mut events, Some(Duration::from_secs(20)))
                    .unwrap();
                assert!(!events.is_empty(), "never woken");
            }
            waker.wake_up();
            seen += taken(&waker);
        }
        rings.join().unwrap();
    }
}
