//! Wakes the owners of mailboxes: a thread that serves connections, a task with one client, a link with many.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use windlass_engine::ClientId;

/// A connection's place on its thread. An index is used again, a client number never is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ConnectionId {
    /// Its index on the thread.
    pub index: usize,
    /// Its client.
    pub client: ClientId,
}

/// Where the owner of a mailbox is: its thread, and its place there.
#[derive(Clone, Debug)]
pub struct Home {
    /// Wakes the thread, the task or the link.
    pub waker: Arc<dyn Waker>,
    /// The place there.
    pub connection: ConnectionId,
}

/// An owner of mailboxes, as other threads reach it.
pub trait Waker: fmt::Debug + Send + Sync {
    /// A connection has mail.
    fn wake_for(&self, connection: ConnectionId);

    /// The owner may commit: another thread has finished its commit.
    fn wake_to_commit(&self) {}
}

/// A task with one mailbox, which it looks into when it is notified.
impl Waker for Notify {
    fn wake_for(&self, _: ConnectionId) {
        self.notify_one();
    }
}

/// The clients of a task that have mail.
#[derive(Debug, Default)]
pub struct WithMail {
    clients: Mutex<Vec<ConnectionId>>,
    notify: Arc<Notify>,
}

impl WithMail {
    /// The task waits for `notify`, and takes the clients then.
    pub fn new(notify: Arc<Notify>) -> Self {
        Self {
            clients: Mutex::default(),
            notify,
        }
    }

    /// Takes out all clients.
    #[must_use]
    pub fn take(&self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.clients.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Waker for WithMail {
    fn wake_for(&self, connection: ConnectionId) {
        self.clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
        self.notify.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_notified_of_its_mail() {
        let is_notified = |notify: &Notify| {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            std::pin::pin!(notify.notified())
                .poll(&mut context)
                .is_ready()
        };
        let connection = ConnectionId {
            index: 1,
            client: ClientId(7),
        };
        let notify = Arc::new(Notify::new());
        let many = WithMail::new(Arc::clone(&notify));
        let wakers: [&dyn Waker; 2] = [&*notify, &many];
        for waker in wakers {
            assert!(!is_notified(&notify));
            waker.wake_for(connection);
            assert!(is_notified(&notify));
        }
        assert_eq!([many.take(), many.take()], [vec![connection], vec![]]);
    }
}
