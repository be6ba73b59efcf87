//! Messages between the EventMQ connections of a cluster's daemons: publications, schedules on their way to a stock
//! scheduler, and which workers and schedulers each daemon has.
//!
//! A message is its kind, one byte, and what that kind has: see [`Kind`].

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use windlass_engine::{ClientId, Protocol};
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
}

/// What EventMQ's connections of this daemon share with those of others.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) directory: Arc<Directory>,
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
        [1, 2].map(|number| {
            Arc::new(Elsewhere {
                exchange: Arc::default(),
                directory: Arc::new(Directory::new(number)),
            })
        })
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
