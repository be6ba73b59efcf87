//! Wakes the owners of mailboxes: a serving thread, a task with one client, a link with many.

use std::fmt;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use windlass_engine::ClientId;

use crate::shared::lock;

/// A connection's slot on its thread. Slots are reused; client numbers never are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ConnectionId {
    /// The slot on the thread.
    pub index: usize,
    /// Its client.
    pub client: ClientId,
}

/// The location of a mailbox's owner: its thread, and the slot there.
#[derive(Clone, Debug)]
pub struct Home {
    /// Wakes the thread, the task or the link.
    pub waker: Arc<dyn Waker>,
    /// The slot there.
    pub connection: ConnectionId,
}

/// The interface of mailbox owners to other threads.
pub trait Waker: fmt::Debug + Send + Sync {
    /// Called when a connection has mail.
    fn wake_for(&self, connection: ConnectionId);

    /// Called when the owner may commit, because another thread has finished its commit.
    fn wake_to_commit(&self) {}
}

/// A task with one mailbox, which it checks when notified.
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
    /// The task waits for `notify`, then takes the clients.
    pub fn new(notify: Arc<Notify>) -> Self {
        Self {
            clients: Mutex::default(),
            notify,
        }
    }

    /// Takes out all clients.
    #[must_use]
    pub fn take(&self) -> Vec<ConnectionId> {
        std::mem::take(&mut lock(&self.clients))
    }
}

impl Waker for WithMail {
    fn wake_for(&self, connection: ConnectionId) {
        lock(&self.clients).push(connection);
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
