//! Messages between the EventMQ connections of a cluster's daemons: publications, schedules on their way to a stock
//! scheduler, and which workers and schedulers each daemon has.
//!
//! A message is its kind, one byte, and what that kind has: see [`Kind`].

use std::sync::{Arc, OnceLock};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use windlass_engine::{ClientId, Protocol};
use windlass_session::ByNamespace;
use windlass_session::protocol::Publications;

use crate::publish::Exchange;
use crate::session::{Address, Directory};

/// Sends bytes to all other daemons.
pub(crate) type ToOthers = Arc<dyn Fn(Bytes) + Send + Sync>;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Frames for the subscribers of the topic, which is the first one.
    Published = 0,
    /// The address of a scheduler; frames for it.
    ToScheduler = 1,
    /// Frames for all schedulers.
    ToSchedulers = 2,
    /// A daemon's workers and schedulers, as JSON.
    Connected = 3,
    /// The name of a namespace, with its length in one byte; a message that concerns it alone.
    Within = 4,
}

/// What EventMQ's connections of a namespace at this daemon share with those of others.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) directory: Arc<Directory>,
}

/// The same of all namespaces.
pub(crate) struct Everywhere {
    /// Distinguishes the daemons of a cluster.
    number: u64,
    unnamed: Arc<Elsewhere>,
    named: ByNamespace<Elsewhere>,
    elsewhere: OnceLock<ToOthers>,
}

impl Everywhere {
    /// Of a daemon. No other daemon's has this number.
    pub(crate) fn new(number: u64) -> Self {
        Self {
            number,
            unnamed: Arc::new(Elsewhere::new(number)),
            named: ByNamespace::default(),
            elsewhere: OnceLock::new(),
        }
    }

    /// That of a namespace.
    pub(crate) fn within(&self, namespace: Option<&str>) -> Arc<Elsewhere> {
        let Some(name) = namespace else {
            return Arc::clone(&self.unnamed);
        };
        self.named.get_or(name, || {
            let new = Elsewhere::new(self.number);
            if let Some(send) = self.elsewhere.get() {
                new.forward(within(name, send));
            }
            new
        })
    }
}

/// Sends messages that concern a namespace alone.
fn within(name: &str, send: &ToOthers) -> Box<dyn Fn(Bytes) + Send + Sync> {
    let (name, send) = (Box::<str>::from(name), Arc::clone(send));
    Box::new(move |message| send(addressed(&name, &message)))
}

/// A message that concerns a namespace alone. Names have 64 bytes at most.
fn addressed(name: &str, message: &[u8]) -> Bytes {
    let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
    Kind::Within.message(&[&[length], name.as_bytes(), message])
}

/// The namespace that a message concerns, and the message.
fn addressee(mut rest: Bytes) -> Option<(String, Bytes)> {
    let length = usize::from(rest.try_get_u8().ok()?);
    if rest.len() < length {
        return None;
    }
    let name = rest.split_to(length);
    Some((String::from_utf8(name.into()).ok()?, rest))
}

impl std::fmt::Debug for Everywhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Everywhere")
            .field("unnamed", &self.unnamed)
            .field("named", &self.named)
            .finish_non_exhaustive()
    }
}

impl Elsewhere {
    fn new(number: u64) -> Self {
        Self {
            exchange: Arc::default(),
            directory: Arc::new(Directory::new(number)),
        }
    }
}

impl Publications for Everywhere {
    fn protocol(&self) -> Protocol {
        Protocol::EVENTMQ
    }

    fn receive(&self, message: &Bytes) -> (Vec<ClientId>, Bytes) {
        match Kind::of(message) {
            Some((Kind::Within, rest)) => match addressee(rest) {
                Some((name, message)) => self.within(Some(&name)).receive(&message),
                None => Default::default(),
            },
            Some(_) | None => self.unnamed.receive(message),
        }
    }

    /// The namespaces with a name announce theirs in messages of their own.
    fn announce(&self) -> Option<Bytes> {
        for (name, known) in self.named.all() {
            let message = known.announce();
            if let Some((message, send)) = message.zip(self.elsewhere.get()) {
                send(addressed(&name, &message));
            }
        }
        self.unnamed.announce()
    }

    fn forward(&self, send: Box<dyn Fn(Bytes) + Send + Sync>) {
        let send = ToOthers::from(send);
        let to_all = Arc::clone(&send);
        self.unnamed
            .forward(Box::new(move |message| to_all(message)));
        // Before the list is read: a namespace that comes later finds it.
        let _ = self.elsewhere.set(Arc::clone(&send));
        for (name, known) in self.named.all() {
            known.forward(within(&name, &send));
        }
    }
}

impl Kind {
    /// A message of this kind.
    pub(crate) fn message(self, parts: &[&[u8]]) -> Bytes {
        let mut message =
            BytesMut::with_capacity(1 + parts.iter().map(|part| part.len()).sum::<usize>());
        message.put_u8(self as u8);
        parts.iter().for_each(|part| message.put_slice(part));
        message.freeze()
    }

    /// A message's kind, and the rest of it.
    fn of(message: &Bytes) -> Option<(Self, Bytes)> {
        let all = [
            Self::Published,
            Self::ToScheduler,
            Self::ToSchedulers,
            Self::Connected,
            Self::Within,
        ];
        let kind = all
            .into_iter()
            .find(|kind| message.first() == Some(&(*kind as u8)))?;
        Some((kind, message.slice(1..)))
    }
}

impl Publications for Elsewhere {
    fn protocol(&self) -> Protocol {
        Protocol::EVENTMQ
    }

    fn receive(&self, message: &Bytes) -> (Vec<ClientId>, Bytes) {
        let Some((kind, rest)) = Kind::of(message) else {
            return Default::default();
        };
        match kind {
            Kind::Published => (self.exchange.audience(&rest), rest),
            Kind::ToScheduler => {
                let Some((address, frames)) = Address::read(&rest) else {
                    return Default::default();
                };
                let scheduler = self.directory.scheduler(address);
                (scheduler.into_iter().collect(), rest.slice_ref(frames))
            }
            Kind::ToSchedulers => (self.directory.schedulers(), rest),
            Kind::Connected => {
                self.directory.learn(&rest);
                Default::default()
            }
            // There is no namespace in a namespace.
            Kind::Within => Default::default(),
        }
    }

    fn announce(&self) -> Option<Bytes> {
        self.directory
            .announce()
            .map(|json| Kind::Connected.message(&[&json]))
    }

    fn forward(&self, send: Box<dyn Fn(Bytes) + Send + Sync>) {
        let send = ToOthers::from(send);
        self.exchange.forward(Arc::clone(&send));
        self.directory.forward(send);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use windlass_engine::Timestamp;

    use super::*;
    use crate::wire::{Queue, Status};

    /// EventMQ's part of two daemons that send one another everything.
    fn two() -> [Arc<Elsewhere>; 2] {
        [1, 2].map(|number| Arc::new(Elsewhere::new(number)))
    }

    /// What leaves a daemon.
    fn sent(daemon: &Elsewhere) -> Arc<Mutex<Vec<Bytes>>> {
        let sent = Arc::<Mutex<Vec<Bytes>>>::default();
        let to = Arc::clone(&sent);
        daemon.forward(Box::new(move |message| to.lock().unwrap().push(message)));
        sent
    }

    #[test]
    fn a_schedule_reaches_the_scheduler_that_registered_last_at_any_daemon() {
        let [one, two] = two();
        let sent = sent(&one);
        let frames = || Bytes::from_static(b"frames");
        assert!(
            !one.directory.send_to_newest_scheduler(&frames(), |_| ()),
            "there is none"
        );
        let enter = |daemon: &Elsewhere, client: u64, at: u64| {
            daemon.directory.enter(
                Bytes::from_static(b"s"),
                None,
                ClientId(client),
                Timestamp(at),
            )
        };
        // Both have the same number at their daemons.
        let (_early, _late) = (enter(&one, 7, 100), enter(&two, 7, 200));
        let mut here = Vec::new();
        assert!(
            one.directory
                .send_to_newest_scheduler(&frames(), |client| here.push(client))
        );
        assert_eq!(here, [ClientId(7)], "nothing is known of the other daemon");
        assert_eq!(one.receive(&two.announce().unwrap()), Default::default());
        assert!(
            one.directory
                .send_to_newest_scheduler(&frames(), |client| here.push(client))
        );
        assert_eq!(here.len(), 1, "the newest one is elsewhere");
        let message = sent.lock().unwrap().pop().unwrap();
        assert_eq!(two.receive(&message), (vec![ClientId(7)], frames()));
        assert_eq!(
            one.receive(&message),
            (Vec::new(), frames()),
            "it is not here"
        );
        one.directory.send_to_other_schedulers(&frames());
        assert_eq!(
            two.receive(&sent.lock().unwrap().pop().unwrap()),
            (vec![ClientId(7)], frames())
        );
    }

    #[test]
    fn reports_contain_the_workers_of_other_daemons_until_these_are_silent() {
        let [one, two] = two();
        let queues = vec![Queue {
            weight: 5,
            name: b"q".to_vec(),
        }];
        let now = Timestamp(1_500);
        let worker = two
            .directory
            .enter(Bytes::from_static(b"w"), Some(queues), ClientId(9), now);
        worker.set_slots(3);
        two.directory.tally(&Bytes::from_static(b"q")).count(40);
        one.directory.tally(&Bytes::from_static(b"q")).count(10);
        one.receive(&two.announce().unwrap());
        let report = one.directory.report_workers();
        assert_eq!(report, two.directory.report_workers());
        assert_eq!(
            (
                report.workers["w"].heard,
                report.workers["w"].available_slots
            ),
            (1.5, 3)
        );
        assert_eq!(report.queues["q"], [(5, "w".to_owned())]);
        let mut status = Status::default();
        one.directory.report_counters(&mut status);
        assert_eq!((status.processed["q"], status.latency_ms_max["q"]), (2, 40));
        let silent = (0..10).find(|_| {
            one.announce();
            one.directory.report_workers().workers.is_empty()
        });
        assert!(silent.is_some());
    }

    #[test]
    fn namespaces_announce_their_workers_to_themselves() {
        let [one, two] = [1, 2].map(Everywhere::new);
        let shop = two.within(Some("shop"));
        let sent = Arc::<Mutex<Vec<Bytes>>>::default();
        let to = Arc::clone(&sent);
        two.forward(Box::new(move |message| to.lock().unwrap().push(message)));
        let (worker, now) = (Bytes::from_static(b"w"), Timestamp(1));
        let _listed = shop
            .directory
            .enter(worker, Some(Vec::new()), ClientId(9), now);
        assert_eq!(two.announce(), None, "nothing without a namespace");
        for message in sent.lock().unwrap().drain(..) {
            one.receive(&message);
        }
        let workers = |name| {
            let report = one.within(name).directory.report_workers();
            report.workers.len()
        };
        let names = [None, Some("shop"), Some("staging")];
        assert_eq!(names.map(workers), [0, 1, 0]);
        let late = two.within(Some("staging"));
        late.directory.send_to_other_schedulers(&Bytes::new());
        let message = sent.lock().unwrap().pop().unwrap();
        assert_eq!(&message[..], b"\x04\x07staging\x02");
        for cut in [&b"\x04"[..], b"\x04\x07sta", b"\x04\x01\xff\x02"] {
            assert!(one.receive(&Bytes::from_static(cut)).0.is_empty());
        }
    }

    #[test]
    fn nonsense_concerns_nobody() {
        let [one, _] = two();
        for message in [&b""[..], b"\x01short", b"\x03{", b"\x03[]", b"\x09"] {
            assert!(
                one.receive(&Bytes::from_static(message)).0.is_empty(),
                "{message:?}"
            );
        }
    }
}
