//! What the connections of one listener share: which of them has which identity.
//!
//! It can be used from any thread. A connection that must end is notified through its own [`HangUp`], outside the lock.
//!
//! Spec: RFC 28, "The ROUTER Socket Type", RFC 37, "The Identity Property". RFC 28 does not define the case of two
//! peers with the same identity. Here the newer connection takes the identity over and the older one is closed, as in
//! libzmq with `ZMQ_ROUTER_HANDOVER`, because the older one is usually dead. If both are alive, the older peer
//! reconnects at once, and the two would close each other for ever. So after some takeovers in a row the newcomer is
//! served without the identity, beside the other.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use windlass_engine::Timestamp;
use windlass_session::ByNamespace;

use crate::Close;

/// Maximum number of takeovers of an identity within [`TAKEOVERS_WINDOW_MS`].
const TAKEOVERS_MAX: u32 = 3;
/// In milliseconds. Peers that are alive reconnect sooner: libzmq's after 100 ms.
const TAKEOVERS_WINDOW_MS: u64 = 10_000;

/// Closes one connection for the given reason. May be called from another connection's thread, and more than once.
pub type HangUp = Arc<dyn Fn(Close) + Send + Sync>;

/// The connections of one listener.
#[derive(Debug, Default)]
pub struct ConnectionRegistry {
    inner: Mutex<Inner>,
    /// Those of namespaces with a name.
    named: ByNamespace<Self>,
}

#[derive(Default)]
struct Inner {
    /// The number of the next connection.
    next: u64,
    named: HashMap<Bytes, Holder>,
    /// The number of the identity that was generated last.
    made_up: u32,
}

/// The connection that has an identity.
struct Holder {
    number: u64,
    hang_up: HangUp,
    takeovers: Takeovers,
}

/// Recent takeovers of an identity.
#[derive(Clone, Copy, Default)]
struct Takeovers {
    since: Timestamp,
    count: u32,
}

/// A connection's place in the roster, until it is dropped.
pub struct Registration {
    registry: Arc<ConnectionRegistry>,
    number: u64,
    hang_up: HangUp,
    identity: Option<Bytes>,
}

impl ConnectionRegistry {
    /// Adds a connection that has just been accepted.
    #[must_use]
    pub fn enter(self: &Arc<Self>, hang_up: HangUp) -> Registration {
        Registration {
            registry: Arc::clone(self),
            number: self.next(),
            hang_up,
            identity: None,
        }
    }

    /// The registry of a namespace: a connection must not take over the identity of one that it cannot know of.
    pub(crate) fn within(self: &Arc<Self>, namespace: Option<&str>) -> Arc<Self> {
        let Some(namespace) = namespace else {
            return Arc::clone(self);
        };
        self.named.get_or(namespace, Self::default)
    }

    fn next(&self) -> u64 {
        let mut inner = self.lock();
        let number = inner.next;
        inner.next += 1;
        number
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registration {
    /// Moves a connection without an identity to a namespace, which its login has told.
    pub(crate) fn move_to(&mut self, namespace: &str) {
        self.registry = self.registry.within(Some(namespace));
        self.number = self.registry.next();
    }

    /// Returns the connection's identity, at the end of the handshake. That is `wanted`, and a connection that had it is
    /// closed. If `wanted` is `None` or was taken over too often recently, the identity is generated: 0 and a number.
    pub fn settle(&mut self, wanted: Option<Bytes>, now: Timestamp) -> Bytes {
        let mut inner = self.registry.lock();
        let (identity, takeovers) = inner.claim(wanted, now);
        let holder = Holder {
            number: self.number,
            hang_up: Arc::clone(&self.hang_up),
            takeovers,
        };
        let displaced = inner.named.insert(identity.clone(), holder);
        drop(inner);
        if let Some(older) = displaced {
            (older.hang_up)(Close::Displaced);
        }
        self.identity = Some(identity.clone());
        identity
    }

    /// The connection's identity, once it is settled.
    pub const fn identity(&self) -> Option<&Bytes> {
        self.identity.as_ref()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut inner = self.registry.lock();
        let hang_up = match &self.identity {
            // Another connection may have taken the identity over.
            Some(identity)
                if inner
                    .named
                    .get(identity)
                    .is_some_and(|holder| holder.number == self.number) =>
            {
                inner.named.remove(identity).map(|holder| holder.hang_up)
            }
            Some(_) | None => None,
        };
        drop(inner);
        // Dropped outside the lock, because it may own anything.
        drop(hang_up);
    }
}

impl Inner {
    /// The identity for a connection that asks for `wanted`, with its recent takeovers, this one included.
    fn claim(&mut self, wanted: Option<Bytes>, now: Timestamp) -> (Bytes, Takeovers) {
        let Some(wanted) = wanted else {
            return (self.make_up(), Takeovers::default());
        };
        let Some(holder) = self.named.get(&wanted) else {
            return (wanted, Takeovers::default());
        };
        let before = holder.takeovers;
        if before.count == 0 || now >= before.since.after_ms(TAKEOVERS_WINDOW_MS) {
            (
                wanted,
                Takeovers {
                    since: now,
                    count: 1,
                },
            )
        } else if before.count < TAKEOVERS_MAX {
            (
                wanted,
                Takeovers {
                    count: before.count + 1,
                    ..before
                },
            )
        } else {
            (self.make_up(), Takeovers::default())
        }
    }

    /// An identity that no connection has.
    fn make_up(&mut self) -> Bytes {
        loop {
            self.made_up = self.made_up.wrapping_add(1);
            let mut identity = BytesMut::with_capacity(5);
            identity.put_u8(0);
            identity.put_u32(self.made_up);
            let identity = identity.freeze();
            if !self.named.contains_key(&identity) {
                return identity;
            }
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("number", &self.number)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("named", &self.named.keys())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    /// The reasons that connections were closed for, in order, with the names the test gave them.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<(&'static str, Close)>>>);

    impl Log {
        fn hang_up(&self, name: &'static str) -> HangUp {
            let log = self.clone();
            Arc::new(move |close| log.0.lock().unwrap().push((name, close)))
        }

        fn take(&self) -> Vec<(&'static str, Close)> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    #[test]
    fn the_newer_connection_has_the_identity() {
        let (registry, log) = (Arc::<ConnectionRegistry>::default(), Log::default());
        let id = || Some(Bytes::from_static(b"w1"));
        let mut old = registry.enter(log.hang_up("old"));
        assert_eq!(Some(old.settle(id(), NOW)), id());
        let mut new = registry.enter(log.hang_up("new"));
        assert_eq!(registry.lock().named.len(), 1);
        assert_eq!(Some(new.settle(id(), NOW)), id());
        assert_eq!(log.take(), [("old", Close::Displaced)]);
        drop(old);
        assert_eq!(
            registry.lock().named.len(),
            1,
            "dropping the displaced connection keeps the identity"
        );
        assert_eq!(new.identity(), id().as_ref());
        drop(new);
        assert_eq!(registry.lock().named.len(), 0);
        assert_eq!(log.take(), []);
    }

    #[test]
    fn two_live_peers_with_one_identity_are_both_served() {
        let (registry, log) = (Arc::<ConnectionRegistry>::default(), Log::default());
        let id = || Some(Bytes::from_static(b"w1"));
        let settle = |name: &'static str, now: Timestamp| {
            let mut registration = registry.enter(log.hang_up(name));
            let identity = registration.settle(id(), now);
            (registration, Some(identity))
        };
        // Each peer reconnects as soon as it is closed.
        let mut registrations = vec![settle("peer", NOW).0];
        for _ in 0..TAKEOVERS_MAX {
            let (registration, identity) = settle("peer", NOW);
            assert_eq!(
                (identity, log.take()),
                (id(), vec![("peer", Close::Displaced)])
            );
            registrations.push(registration);
        }
        let (beside, identity) = settle("beside", NOW.after_ms(TAKEOVERS_WINDOW_MS - 1));
        assert_eq!(
            (identity.as_deref(), log.take()),
            (Some(&[0, 0, 0, 0, 1][..]), vec![])
        );
        // After the window the holder may be dead.
        let (_late, identity) = settle("late", NOW.after_ms(TAKEOVERS_WINDOW_MS));
        assert_eq!(
            (identity, log.take()),
            (id(), vec![("peer", Close::Displaced)])
        );
        drop((registrations, beside));
        assert_eq!(registry.lock().named.len(), 1);
    }

    #[test]
    fn peers_without_an_identity_get_numbers() {
        let (registry, log) = (Arc::<ConnectionRegistry>::default(), Log::default());
        let mut registrations = Vec::new();
        for expected in [[0, 0, 0, 0, 1], [0, 0, 0, 0, 2], [0, 0, 0, 0, 3]] {
            let mut registration = registry.enter(log.hang_up("peer"));
            assert_eq!(registration.settle(None, NOW), expected[..]);
            registrations.push(registration);
        }
        // After the numbers wrap, those still in use are skipped.
        registry.lock().made_up = u32::MAX;
        let mut registration = registry.enter(log.hang_up("late"));
        assert_eq!(registration.settle(None, NOW), [0, 0, 0, 0, 0][..]);
        let mut registration = registry.enter(log.hang_up("later"));
        assert_eq!(registration.settle(None, NOW), [0, 0, 0, 0, 4][..]);
        assert_eq!(log.take(), []);
    }

    #[test]
    fn a_hang_up_may_call_the_roster() {
        let registry = Arc::<ConnectionRegistry>::default();
        let again = Arc::clone(&registry);
        let mut first = registry.enter(Arc::new(move |_| assert_eq!(again.lock().named.len(), 1)));
        let mut second = registry.enter(Arc::new(|_| ()));
        let id = || Some(Bytes::from_static(b"w1"));
        assert_eq!(
            [first.settle(id(), NOW), second.settle(id(), NOW)],
            [&b"w1"[..]; 2]
        );
    }
}
