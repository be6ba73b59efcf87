//! One connection: what each request means to the engine, and what each event means to the peer.

mod settings;

use std::sync::Arc;

use bytes::BytesMut;
use windlass_engine::{ClientInfo, Command, Event, Origin, Tag, Timestamp};
use windlass_session::{Outbox, Reason, Session};
use windlass_zmtp::Seat;

pub use settings::{Counters, Dialect, Settings};

/// One spiderq connection. The first byte tells whether it is spoken over ZMTP or bare.
#[derive(Debug)]
pub struct SpiderqSession {
    settings: Arc<Settings>,
    info: ClientInfo,
    seat: Option<Seat>,
}

impl SpiderqSession {
    /// A connection that has just been accepted, and its seat in the listener's roster.
    #[must_use]
    pub fn new(settings: Arc<Settings>, info: ClientInfo, seat: Seat) -> Self {
        Self { settings, info: ClientInfo { origin: Some(Origin::SPIDERQ), ..info }, seat: Some(seat) }
    }
}

impl Session for SpiderqSession {
    fn on_open(&mut self, _now: Timestamp, out: &mut Outbox) {
        out.command(Tag::NONE, Command::Open(std::mem::take(&mut self.info)));
    }

    fn on_bytes(&mut self, _now: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
        input.clear();
        self.seat = None;
        out.hang_up(Reason::Protocol(format!("{:?} is not served yet", self.settings.dialect)));
    }

    fn on_event(&mut self, _now: Timestamp, _event: Event, _out: &mut Outbox) {}
}
