//! Publish and subscribe: any client publishes messages with a topic, current subscribers of the topic get them.
//! Nothing is stored.
//!
//! A message is encoded once and published to the connections of all subscribers of its topic. A subscriber without
//! room for the message misses it, as with every PUB socket.
//!
//! Spec: "eMQP / Publisher"; ZeroMQ RFC 29 for the PUB side.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use bytes::{Bytes, BytesMut};
use windlass_engine::{ClientId, ClientInfo, Notice, Protocol, Reply};
use windlass_session::{Conversation, Question, Read, Reason, Speaker, Talk, Transport};
use windlass_zmtp::{Event, Link, Message, Registration, Subscriptions, first_part};

use crate::elsewhere::{Kind, ToOthers};
use crate::session::Settings;

/// All subscribers of the daemon, and the way to those of other daemons.
#[derive(Default)]
pub struct Exchange {
    subscribers: RwLock<BTreeMap<ClientId, Arc<Topics>>>,
    elsewhere: OnceLock<ToOthers>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("subscribers", &self.subscribers)
            .finish_non_exhaustive()
    }
}

/// The topics of one subscriber.
#[derive(Debug)]
struct Topics(Mutex<Subscriptions>);

impl Exchange {
    /// Publishes a message to the current subscribers of a topic: those of this daemon get it through `talk`.
    pub(crate) fn publish<Q: Question>(&self, topic: &[u8], text: &[u8], talk: &mut Talk<'_, Q>) {
        let (subscribers, elsewhere) = (self.subscribers(topic), self.elsewhere.get());
        if subscribers.is_empty() && elsewhere.is_none() {
            return;
        }
        let message = Message::new([topic, text]).into_frames();
        if let Some(send) = elsewhere {
            send(Kind::Published.message(&[&message]));
        }
        if !subscribers.is_empty() {
            talk.publish(&subscribers, message);
        }
    }

    /// The subscribers of this daemon that get a message published at another one: its frames, the topic first.
    pub(crate) fn audience(&self, message: &[u8]) -> Vec<ClientId> {
        first_part(message)
            .map(|topic| self.subscribers(topic))
            .unwrap_or_default()
    }

    /// From now on each message that is published here also goes to `send`. Only the first call counts.
    pub(crate) fn forward(&self, send: ToOthers) {
        let _ = self.elsewhere.set(send);
    }

    /// The current subscribers of a topic.
    pub fn subscribers(&self, topic: &[u8]) -> Vec<ClientId> {
        let subscribers = self
            .subscribers
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let wanting = subscribers
            .iter()
            .filter(|(_, topics)| topics.lock().wants(topic));
        wanting.map(|(client, _)| *client).collect()
    }

    fn enter(&self, client: ClientId, topics: &Arc<Topics>) {
        self.subscribers
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(client, Arc::clone(topics));
    }

    fn leave(&self, client: ClientId) {
        let gone = self
            .subscribers
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&client);
        // Free it outside of the lock.
        drop(gone);
    }
}

impl Topics {
    fn lock(&self) -> MutexGuard<'_, Subscriptions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection of one subscriber.
pub type SubscriberSession = Conversation<SubscriberSpeaker>;

/// The PUB's side of it.
#[derive(Debug)]
pub struct SubscriberSpeaker {
    settings: Arc<Settings>,
    link: Link,
    topics: Arc<Topics>,
    /// Its number, once it is in the exchange.
    entered: Option<ClientId>,
}

impl SubscriberSpeaker {
    /// The session of a connection that was just accepted. `registration` is its place in the listener's registry.
    pub fn session(
        settings: Arc<Settings>,
        info: ClientInfo,
        registration: Registration,
    ) -> SubscriberSession {
        let topics = Subscriptions::new(
            settings.section.topics_max,
            settings.section.topic_bytes_max.bytes(),
        );
        let speaker = Self {
            link: Link::new(Arc::clone(&settings.zmtp), registration),
            settings,
            topics: Arc::new(Topics(Mutex::new(topics))),
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

    fn awaits_login(&self) -> bool {
        self.link.awaits_login()
    }

    fn open(&mut self, talk: &mut Talk<'_, Infallible>) {
        self.link.open(talk.now(), talk.bytes());
    }

    fn read(
        &mut self,
        input: &mut BytesMut,
        talk: &mut Talk<'_, Infallible>,
    ) -> Result<Read, Reason> {
        match self.link.read(talk.now(), input, talk.bytes())? {
            Some(Event::Ready(ready)) => {
                self.settings = self.settings.entered(&ready, talk);
                self.settings.exchange.enter(talk.client(), &self.topics);
                self.entered = Some(talk.client());
            }
            Some(Event::Subscribe(topic)) => {
                // Copied, because the frame is a slice of the read buffer and would keep it alive.
                let added = self.topics.lock().add(Bytes::copy_from_slice(&topic));
                added.map_err(|too_many| Reason::Limit(too_many.what))?;
            }
            Some(Event::Cancel(topic)) => self.topics.lock().cancel(&topic),
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
        if let Some(client) = self.entered.take() {
            self.settings.exchange.leave(client);
        }
    }

    fn transport(&self) -> Option<&dyn Transport> {
        Some(&self.link)
    }

    fn transport_mut(&mut self) -> Option<&mut dyn Transport> {
        Some(&mut self.link)
    }
}
