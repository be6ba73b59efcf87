//! Publish and subscribe: any client publishes messages with a topic, current subscribers of the topic get them. Nothing is
//! stored.
//!
//! A message is encoded once and posted to every subscriber of its topic. A subscriber without room for the message misses it,
//! as with every PUB socket.
//!
//! Spec: "eMQP / Publisher"; ZeroMQ RFC 29 for the PUB side.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::{Bytes, BytesMut};
use windlass_engine::{ClientCommand, ClientInfo, Event, Protocol, Tag, Timestamp};
use windlass_session::{Outbox, Post, Reason, Session};
use windlass_zmtp::{Close, Message, Peer, Registration, Subscriptions};

/// All subscribers of the daemon.
#[derive(Debug, Default)]
pub struct Exchange {
    subscribers: RwLock<Subscribers>,
}

#[derive(Debug, Default)]
struct Subscribers {
    next: u64,
    all: BTreeMap<u64, Arc<Subscriber>>,
}

/// A subscriber's topics, and the way to its connection.
#[derive(Debug)]
struct Subscriber {
    topics: Mutex<Subscriptions>,
    line: Arc<dyn Post>,
}

impl Exchange {
    /// Sends a message to all subscribers of its topic.
    pub fn publish(&self, topic: &[u8], text: &[u8]) {
        let subscribers = self.subscribers.read().unwrap_or_else(PoisonError::into_inner);
        let mut wanting = subscribers.all.values().filter(|subscriber| subscriber.wants(topic)).peekable();
        if wanting.peek().is_none() {
            return;
        }
        let frames = Message::new([topic, text]).into_frames();
        for subscriber in wanting {
            if !subscriber.line.post(frames.clone()) {
                tracing::debug!("a subscriber misses a message: its mailbox is full");
            }
        }
    }

    fn enter(&self, subscriber: &Arc<Subscriber>) -> u64 {
        let mut subscribers = self.subscribers.write().unwrap_or_else(PoisonError::into_inner);
        let number = subscribers.next;
        subscribers.next += 1;
        subscribers.all.insert(number, Arc::clone(subscriber));
        number
    }

    fn leave(&self, number: u64) {
        let gone = self.subscribers.write().unwrap_or_else(PoisonError::into_inner).all.remove(&number);
        // Free it outside of the lock.
        drop(gone);
    }
}

impl Subscriber {
    fn wants(&self, topic: &[u8]) -> bool {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner).wants(topic)
    }
}

/// Options of subscribers.
#[derive(Debug, Clone)]
pub struct PublishSettings {
    /// Topics of one subscriber.
    pub topics_max: usize,
    /// Bytes of these topics together.
    pub topic_bytes_max: usize,
    /// The transport, in the role of a PUB.
    pub zmtp: Arc<windlass_zmtp::Settings>,
    /// The source of messages.
    pub exchange: Arc<Exchange>,
}

/// The connection of one subscriber.
#[derive(Debug)]
pub struct SubscriberSession {
    settings: Arc<PublishSettings>,
    /// Used when the connection opens.
    info: ClientInfo,
    registration: Registration,
    peer: Peer,
    subscriber: Arc<Subscriber>,
    /// Its number in the exchange, once connected.
    entered: Option<u64>,
    over: bool,
}

impl SubscriberSession {
    /// A session for a connection that was just accepted. `registration` is its place in the listener's registry, `line` the way to its
    /// mailbox.
    #[must_use]
    pub fn new(
        settings: Arc<PublishSettings>,
        info: ClientInfo,
        registration: Registration,
        line: Arc<dyn Post>,
    ) -> Self {
        let topics = Subscriptions::new(settings.topics_max, settings.topic_bytes_max);
        Self {
            info: ClientInfo { protocol: Some(Protocol::EVENTMQ), ..info },
            registration,
            peer: Peer::new(Arc::clone(&settings.zmtp)),
            subscriber: Arc::new(Subscriber { topics: Mutex::new(topics), line }),
            entered: None,
            over: false,
            settings,
        }
    }

    fn heard(&mut self, now: Timestamp, event: windlass_zmtp::Event, out: &mut Outbox) {
        match event {
            windlass_zmtp::Event::Ready(ready) => {
                if self.registration.settle(ready.identity, now).is_none() {
                    return self.end(Close::Evicted.into(), out);
                }
                self.entered = Some(self.settings.exchange.enter(&self.subscriber));
            }
            windlass_zmtp::Event::Subscribe(topic) => {
                // Copied, because the frame is a slice of the read buffer and would keep it alive.
                let topic = Bytes::copy_from_slice(&topic);
                let added = self.subscriber.topics.lock().unwrap_or_else(PoisonError::into_inner).add(topic);
                if let Err(too_many) = added {
                    self.end(Reason::Limit(too_many.what), out);
                }
            }
            windlass_zmtp::Event::Cancel(topic) => {
                self.subscriber.topics.lock().unwrap_or_else(PoisonError::into_inner).cancel(&topic);
            }
            // A PUB ignores messages.
            windlass_zmtp::Event::Message(_) => {}
        }
    }

    fn end(&mut self, reason: Reason, out: &mut Outbox) {
        self.over = true;
        self.leave();
        out.hang_up(reason);
    }

    fn leave(&mut self) {
        if let Some(number) = self.entered.take() {
            self.settings.exchange.leave(number);
        }
    }
}

impl Drop for SubscriberSession {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Session for SubscriberSession {
    fn on_open(&mut self, now: Timestamp, out: &mut Outbox) {
        out.command(Tag::NONE, ClientCommand::Open(std::mem::take(&mut self.info)));
        self.peer.open(now, out.bytes());
    }

    fn on_bytes(&mut self, now: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        while !self.over {
            match self.peer.read(now, input, out.bytes()) {
                Ok(Some(event)) => self.heard(now, event, out),
                Ok(None) => return,
                Err(close) => self.end(close.into(), out),
            }
        }
        input.clear();
    }

    /// A subscriber sends no commands, so there are no events for it.
    fn on_event(&mut self, _now: Timestamp, _event: Event, _out: &mut Outbox) {}

    fn on_tick(&mut self, now: Timestamp, out: &mut Outbox) {
        if let Err(close) = self.peer.tick(now, out.bytes()) {
            self.end(close.into(), out);
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        if self.over { None } else { self.peer.next_deadline() }
    }

    fn needs_bytes(&self) -> usize {
        self.peer.bytes_wanted()
    }

    fn messages(&self) -> u64 {
        self.peer.messages()
    }

    fn held_bytes(&self) -> usize {
        self.peer.held_bytes()
    }

    fn reset_liveness(&mut self, now: Timestamp) {
        self.peer.reset_liveness(now);
    }
}
