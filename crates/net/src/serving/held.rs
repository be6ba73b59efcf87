//! Connections that hold bytes back because more may follow soon. If none do, the bytes leave after a moment.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use windlass_hub::ConnectionId;

/// The connections that hold bytes back or did so a moment ago, and until when, in about that order.
#[derive(Debug, Default)]
pub(super) struct Held(VecDeque<(Instant, ConnectionId)>);

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, until: Instant, id: ConnectionId) {
        self.0.push_back((until, id));
    }

    /// How long the first one waits from `now` on.
    pub(super) fn due_in(&self, now: Instant) -> Option<Duration> {
        self.0.front().map(|(until, _)| until.saturating_duration_since(now))
    }

    /// Removes a connection whose moment has passed.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(Instant, ConnectionId)> {
        let (until, _) = self.0.front()?;
        if *until <= now { self.0.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::sync::Arc;

    use bytes::BytesMut;
    use windlass_engine::{ClientCommand, ClientId, ClientInfo, Command, Engine, Event, Limits, Query, Tag, Timestamp};
    use windlass_session::{Outbox, Session};
    use windlass_store::Journal;

    use super::super::load::Kind;
    use super::super::tests::ByHand;
    use super::*;
    use crate::connection::tests::shared;
    use windlass_hub::{Durability, Hub};

    /// Asks the engine for each byte, and answers with a byte that is in no hurry.
    #[derive(Debug)]
    struct Unhurried;

    impl Session for Unhurried {
        fn on_open(&mut self, _: Timestamp, out: &mut Outbox) {
            out.command(Tag::NONE, ClientCommand::Open(ClientInfo::default()));
        }

        fn on_bytes(&mut self, _: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
            input.iter().for_each(|_| out.command(Tag(1), Command::Query(Query::Stats)));
            input.clear();
        }

        fn on_event(&mut self, _: Timestamp, _: Event, out: &mut Outbox) {
            out.put_deferred(|bytes| bytes.extend_from_slice(b"!"));
        }
    }

    fn hub() -> Arc<Hub> {
        Arc::new(Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Durability::Soon, 7))
    }

    #[test]
    fn bytes_that_nothing_follows_leave_after_a_moment() {
        let mut thread = ByHand::new(shared(&hub()));
        let mut peer = thread.connect(|_| Box::new(Unhurried));
        for _ in 0..5 {
            peer.write_all(b"x").unwrap();
            assert_eq!(thread.read(&mut peer, 1), b"!");
        }
    }

    /// Neither thread forgets them, whichever has the connection when the moment has passed.
    #[test]
    fn bytes_of_a_connection_that_moves_leave_too() {
        let [mut main, mut helper] = ByHand::with_helper(&shared(&hub()));
        let mut peers = [(); 2].map(|()| main.connect(|_| Box::new(Unhurried)));
        peers.iter_mut().for_each(|peer| peer.write_all(b"x").unwrap());
        main.turns(1);
        main.turn_as(Kind::Full);
        assert_eq!([main.connections(), helper.connections()], [1, 1]);
        let mut got = 0;
        main.until(|| {
            helper.turns(1);
            got += peers.iter_mut().map(|peer| peer.read(&mut [0; 4]).unwrap_or_default()).sum::<usize>();
            got == 2
        });
    }

    #[test]
    fn each_connection_waits_for_a_moment() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let ids = [1, 2].map(|index| ConnectionId { index, client: ClientId(7) });
        let mut held = Held::default();
        assert!(held.is_empty() && held.due_in(begun).is_none());
        held.add(at(4), ids[0]);
        held.add(at(5), ids[1]);
        assert_eq!([0, 3, 4, 9].map(|ms| held.due_in(at(ms))), [4, 1, 0, 0].map(|ms| Some(Duration::from_millis(ms))));
        assert_eq!(held.take_due(at(3)), None);
        assert_eq!(held.take_due(at(4)), Some((at(4), ids[0])));
        assert_eq!(held.take_due(at(4)), None);
        assert_eq!(held.take_due(at(5)), Some((at(5), ids[1])));
        assert!(held.is_empty());
    }
}
