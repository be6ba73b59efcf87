//! Publish and subscribe: any client publishes messages with a topic, current subscribers of the topic get them. Nothing is
//! stored.
//!
//! A message is encoded once and posted to every subscriber of its topic. A subscriber without room for the message misses it,
//! as with every PUB socket.
//!
//! Spec: "eMQP / Publisher"; ZeroMQ RFC 29 for the PUB side.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::{Bytes, BytesMut};
use windlass_engine::{ClientInfo, Notice, Protocol, Reply};
use windlass_session::{Conversation, Post, Read, Reason, Speaker, Talk, Transport};
use windlass_zmtp::{Event, Link, Message, Registration, Subscriptions};

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
        self.topics().wants(topic)
    }

    fn topics(&self) -> MutexGuard<'_, Subscriptions> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
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
pub type SubscriberSession = Conversation<SubscriberSpeaker>;

/// The PUB's side of it.
#[derive(Debug)]
pub struct SubscriberSpeaker {
    exchange: Arc<Exchange>,
    link: Link,
    subscriber: Arc<Subscriber>,
    /// Its number in the exchange, once connected.
    entered: Option<u64>,
}

impl SubscriberSpeaker {
    /// The session of a connection that was just accepted. `registration` is its place in the listener's registry, `line` the
    /// way to its mailbox.
    #[must_use]
    pub fn session(
        settings: &PublishSettings,
        info: ClientInfo,
        registration: Registration,
        line: Arc<dyn Post>,
    ) -> SubscriberSession {
        let topics = Mutex::new(Subscriptions::new(settings.topics_max, settings.topic_bytes_max));
        let speaker = Self {
            exchange: Arc::clone(&settings.exchange),
            link: Link::new(Arc::clone(&settings.zmtp), registration),
            subscriber: Arc::new(Subscriber { topics, line }),
            entered: None,
        };
        Conversation::new(speaker, info)
    }
}

impl Drop for SubscriberSpeaker {
    fn drop(&mut self) {
        self.ended();
    }
}

/// A subscriber sends no commands, so there are neither replies nor notices for it.
impl Speaker for SubscriberSpeaker {
    const PROTOCOL: Protocol = Protocol::EVENTMQ;

    type Question = Infallible;

    fn open(&mut self, talk: &mut Talk<'_, Infallible>) {
        self.link.open(talk.now(), talk.bytes());
    }

    fn read(&mut self, input: &mut BytesMut, talk: &mut Talk<'_, Infallible>) -> Result<Read, Reason> {
        match self.link.read(talk.now(), input, talk.bytes())? {
            Some(Event::Ready(_)) => self.entered = Some(self.exchange.enter(&self.subscriber)),
            Some(Event::Subscribe(topic)) => {
                // Copied, because the frame is a slice of the read buffer and would keep it alive.
                let added = self.subscriber.topics().add(Bytes::copy_from_slice(&topic));
                added.map_err(|too_many| Reason::Limit(too_many.what))?;
            }
            Some(Event::Cancel(topic)) => self.subscriber.topics().cancel(&topic),
            // A PUB ignores messages.
            Some(Event::Message(_)) => {}
            None => return Ok(Read::Needs(self.link.peer().bytes_wanted())),
        }
        Ok(Read::Message)
    }

    fn reply(&mut self, question: Infallible, _reply: Reply, _talk: &mut Talk<'_, Infallible>) {
        match question {}
    }

    fn notice(&mut self, _notice: Notice, _talk: &mut Talk<'_, Infallible>) {}

    /// Leaves the exchange.
    fn ended(&mut self) {
        if let Some(number) = self.entered.take() {
            self.exchange.leave(number);
        }
    }

    fn transport(&self) -> Option<&dyn Transport> {
        Some(&self.link)
    }

    fn transport_mut(&mut self) -> Option<&mut dyn Transport> {
        Some(&mut self.link)
    }
}
