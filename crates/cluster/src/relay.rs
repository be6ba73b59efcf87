//! Protocol messages between the daemons of a cluster: from an edge to the leader, from the leader
//! to its edges, and from an edge through the leader to the others.
//!
//! Messages are not stored: a daemon that is disconnected or falls behind misses them, as a
//! subscriber does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::sleep;
use windlass_engine::{ClientId, Protocol};
use windlass_link::Edge;
use windlass_session::protocol::Publications;

use windlass_hub::warn_limited;

/// Maximum bytes of messages queued for one daemon.
const WAITING_MAX: usize = 8 << 20;

/// How often daemons announce their connections to each other.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(1);

/// The publications of this daemon's connections, and the routes to other daemons.
#[derive(Debug, Default)]
pub struct Relay {
    protocols: Vec<Arc<dyn Publications>>,
    routes: Mutex<BTreeMap<Route, Waiting>>,
}

/// The destination of messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Route {
    /// The leader.
    Leader,
    /// An edge.
    Edge(u32),
}

impl Route {
    /// The route to an edge.
    pub const fn to(edge: Edge) -> Self {
        Self::Edge(edge.number())
    }
}

/// The messages queued for one daemon.
#[derive(Debug)]
struct Waiting {
    messages: Vec<(Protocol, Bytes)>,
    bytes: usize,
    rung: Arc<Notify>,
}

/// A route that is open until this is dropped.
#[derive(Debug)]
pub struct OpenRoute<'a> {
    relay: &'a Relay,
    route: Route,
}

impl Relay {
    /// Starts forwarding local publications to other daemons.
    pub fn new(publications: impl Iterator<Item = Arc<dyn Publications>>) -> Arc<Self> {
        let mut protocols: Vec<Arc<dyn Publications>> = Vec::new();
        for it in publications {
            if protocols
                .iter()
                .all(|known| known.protocol() != it.protocol())
            {
                protocols.push(it);
            }
        }
        let relay = Arc::new(Self {
            protocols,
            routes: Mutex::default(),
        });
        for it in &relay.protocols {
            let (to, protocol) = (Arc::downgrade(&relay), it.protocol());
            it.forward(Box::new(move |message| {
                let _ = Weak::upgrade(&to).map(|relay| relay.send(None, protocol, &message));
            }));
        }
        relay
    }

    /// Receives a message from another daemon. Returns the local connections that it concerns and
    /// the bytes for them.
    pub fn receive(&self, protocol: Protocol, message: &Bytes) -> (Vec<ClientId>, Bytes) {
        let of = self.protocols.iter().find(|it| it.protocol() == protocol);
        of.map(|it| it.receive(message)).unwrap_or_default()
    }

    /// Announces this daemon's connections to the others periodically.
    pub async fn announce(&self) {
        loop {
            sleep(ANNOUNCE_EVERY).await;
            for it in &self.protocols {
                if let Some(message) = it.announce() {
                    self.send(None, it.protocol(), &message);
                }
            }
        }
    }

    /// Opens a route. `rung` is notified when a message is queued.
    pub fn open(&self, route: Route, rung: Arc<Notify>) -> OpenRoute<'_> {
        self.lock().insert(
            route,
            Waiting {
                messages: Vec::new(),
                bytes: 0,
                rung,
            },
        );
        OpenRoute { relay: self, route }
    }

    /// Sends a message on every route except the one it arrived on.
    pub fn send(&self, from: Option<Route>, protocol: Protocol, message: &Bytes) {
        for (_, waiting) in self
            .lock()
            .iter_mut()
            .filter(|(route, _)| Some(**route) != from)
        {
            if waiting.bytes + message.len() > WAITING_MAX {
                warn_limited!(
                    "relay",
                    "dropped a published message for another daemon: too many are queued for it"
                );
                continue;
            }
            waiting.bytes += message.len();
            waiting.messages.push((protocol, message.clone()));
            waiting.rung.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Route, Waiting>> {
        // No holder of this lock can panic halfway through a change.
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenRoute<'_> {
    /// Takes the queued messages.
    pub fn take(&self) -> Vec<(Protocol, Bytes)> {
        let mut routes = self.relay.lock();
        let Some(waiting) = routes.get_mut(&self.route) else {
            return Vec::new();
        };
        waiting.bytes = 0;
        std::mem::take(&mut waiting.messages)
    }
}

impl Drop for OpenRoute<'_> {
    fn drop(&mut self) {
        self.relay.lock().remove(&self.route);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_on_every_way_but_its_own_and_waits_are_bounded() {
        let relay = Relay::default();
        let route = |number| relay.open(Route::Edge(number), Arc::default());
        let (one, two) = (route(1), route(2));
        relay.send(
            Some(Route::Edge(1)),
            Protocol::EVENTMQ,
            &Bytes::from_static(b"a"),
        );
        relay.send(None, Protocol::EVENTMQ, &Bytes::from_static(b"b"));
        let texts = |route: &OpenRoute<'_>| {
            route
                .take()
                .into_iter()
                .map(|(_, message)| message)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (texts(&one), texts(&two)),
            (vec!["b".into()], vec!["a".into(), "b".into()])
        );
        drop(two);
        let large = Bytes::from(vec![0; WAITING_MAX / 2]);
        (0..3).for_each(|_| relay.send(None, Protocol::EVENTMQ, &large));
        assert_eq!(
            (texts(&one).len(), texts(&one).len(), relay.lock().len()),
            (2, 0, 1)
        );
    }
}
