//! Messages of protocols on their way between the daemons of a cluster: from an edge to the leader, from the leader to
//! its edges, and from an edge through the leader to the others.
//!
//! Nothing is kept: a daemon whose link is cut, or that does not keep up, misses messages, as a subscriber does.

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

/// Bytes of messages that may wait for one daemon.
const WAITING_MAX: usize = 8 << 20;

/// How often daemons announce their connections to one another.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(1);

/// What the connections of this daemon publish, and the ways to other daemons.
#[derive(Debug, Default)]
pub struct Relay {
    protocols: Vec<Arc<dyn Publications>>,
    ways: Mutex<BTreeMap<Way, Waiting>>,
}

/// Where messages go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Way {
    /// To the leader.
    Leader,
    /// To an edge.
    Edge(u32),
}

impl Way {
    /// The way to an edge.
    pub const fn to(edge: Edge) -> Self {
        Self::Edge(edge.number())
    }
}

/// What waits for one daemon.
#[derive(Debug)]
struct Waiting {
    messages: Vec<(Protocol, Bytes)>,
    bytes: usize,
    rung: Arc<Notify>,
}

/// A way that is open for as long as this lives.
#[derive(Debug)]
pub struct OpenWay<'a> {
    relay: &'a Relay,
    way: Way,
}

impl Relay {
    /// From now on all that is published here goes to other daemons, too.
    pub fn new(publications: impl Iterator<Item = Arc<dyn Publications>>) -> Arc<Self> {
        let mut protocols: Vec<Arc<dyn Publications>> = Vec::new();
        for it in publications {
            if protocols.iter().all(|known| known.protocol() != it.protocol()) {
                protocols.push(it);
            }
        }
        let relay = Arc::new(Self { protocols, ways: Mutex::default() });
        for it in &relay.protocols {
            let (to, protocol) = (Arc::downgrade(&relay), it.protocol());
            it.forward(Box::new(move |message| {
                let _ = Weak::upgrade(&to).map(|relay| relay.send(None, protocol, &message));
            }));
        }
        relay
    }

    /// Takes a message of another daemon: the connections of this one that it concerns, and the bytes for them.
    pub fn receive(&self, protocol: Protocol, message: &Bytes) -> (Vec<ClientId>, Bytes) {
        let of = self.protocols.iter().find(|it| it.protocol() == protocol);
        of.map(|it| it.receive(message)).unwrap_or_default()
    }

    /// Announces this daemon's connections to the others, again and again.
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

    /// Opens a way. `rung` is notified when something waits for it.
    pub fn open(&self, way: Way, rung: Arc<Notify>) -> OpenWay<'_> {
        self.lock().insert(way, Waiting { messages: Vec::new(), bytes: 0, rung });
        OpenWay { relay: self, way }
    }

    /// Sends a message on every way but that by which it has come.
    pub fn send(&self, from: Option<Way>, protocol: Protocol, message: &Bytes) {
        for (_, waiting) in self.lock().iter_mut().filter(|(way, _)| Some(**way) != from) {
            if waiting.bytes + message.len() > WAITING_MAX {
                warn_limited!("relay", "a published message does not reach another daemon: too many wait for it");
                continue;
            }
            waiting.bytes += message.len();
            waiting.messages.push((protocol, message.clone()));
            waiting.rung.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Way, Waiting>> {
        // Nothing that holds this lock can panic half way through a change.
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenWay<'_> {
    /// What waits.
    pub fn take(&self) -> Vec<(Protocol, Bytes)> {
        let mut ways = self.relay.lock();
        let Some(waiting) = ways.get_mut(&self.way) else { return Vec::new() };
        waiting.bytes = 0;
        std::mem::take(&mut waiting.messages)
    }
}

impl Drop for OpenWay<'_> {
    fn drop(&mut self) {
        self.relay.lock().remove(&self.way);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_on_every_way_but_its_own_and_waits_are_bounded() {
        let relay = Relay::default();
        let way = |number| relay.open(Way::Edge(number), Arc::default());
        let (one, two) = (way(1), way(2));
        relay.send(Some(Way::Edge(1)), Protocol::EVENTMQ, &Bytes::from_static(b"a"));
        relay.send(None, Protocol::EVENTMQ, &Bytes::from_static(b"b"));
        let texts = |way: &OpenWay<'_>| way.take().into_iter().map(|(_, message)| message).collect::<Vec<_>>();
        assert_eq!((texts(&one), texts(&two)), (vec!["b".into()], vec!["a".into(), "b".into()]));
        drop(two);
        let large = Bytes::from(vec![0; WAITING_MAX / 2]);
        (0..3).for_each(|_| relay.send(None, Protocol::EVENTMQ, &large));
        assert_eq!((texts(&one).len(), texts(&one).len(), relay.lock().len()), (2, 0, 1));
    }
}
