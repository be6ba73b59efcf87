//! Heartbeats: PING when a peer has been silent, and the time after which it counts as gone.
//!
//! Any bytes from the peer count as a sign of life. Deadlines move lazily: a read only updates a timestamp, and the
//! deadline that was announced is recomputed when it arrives.
//!
//! Spec: RFC 37, "Connection Heartbeating".

use bytes::BytesMut;
use windlass_engine::Timestamp;

use super::{Close, Peer, Settings, Stage};
use crate::wire::Command;

/// A peer that sends its handshake byte by byte has this many times the time of a silent one.
const HANDSHAKE_TIMES: u64 = 4;

/// The state of a peer's heartbeats.
#[derive(Debug, Default)]
pub(super) struct Heart {
    began_at: Timestamp,
    received_at: Timestamp,
    /// When our PING was sent, while it is unanswered.
    pinged_at: Option<Timestamp>,
    /// The time to live from the peer's last PING, in milliseconds: the peer is gone if it is silent for longer; 0 = no
    /// limit.
    ttl_ms: u64,
}

/// The action at a deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    Ping,
    PingTimeout,
    TtlExpired,
}

impl Heart {
    pub(super) const fn begin(&mut self, now: Timestamp) {
        self.began_at = now;
        self.received_at = now;
    }

    pub(super) const fn received(&mut self, now: Timestamp) {
        self.received_at = now;
        self.pinged_at = None;
    }

    /// The peer sent a PING with this time to live, in tenths of a second.
    pub(super) fn was_pinged(&mut self, ttl_ds: u16) {
        self.ttl_ms = u64::from(ttl_ds) * 100;
    }

    /// When the handshake must be done: a while after the peer's last bytes, and at last in any case.
    fn handshake_until(&self, settings: &Settings) -> Timestamp {
        let longest = settings.handshake_ms.saturating_mul(HANDSHAKE_TIMES);
        self.received_at
            .after_ms(settings.handshake_ms)
            .min(self.began_at.after_ms(longest))
    }

    /// The next deadline and its action, once the handshake is done.
    fn next(&self, settings: &Settings, pings: bool) -> Option<(Timestamp, Due)> {
        let ttl =
            (self.ttl_ms > 0).then(|| (self.received_at.after_ms(self.ttl_ms), Due::TtlExpired));
        let ping = match self.pinged_at {
            Some(at) => Some((at.after_ms(settings.ping_timeout_ms), Due::PingTimeout)),
            None if pings && settings.ping_idle_ms > 0 => {
                Some((self.received_at.after_ms(settings.ping_idle_ms), Due::Ping))
            }
            None => None,
        };
        ttl.into_iter().chain(ping).min_by_key(|(at, _)| *at)
    }
}

impl Peer {
    /// When [`Peer::tick`] must be called next; `None` if never.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Signature | Stage::Greeting | Stage::GreetingV2 | Stage::Handshake(_) => {
                Some(self.heart.handshake_until(&self.settings))
            }
            Stage::Traffic => self
                .heart
                .next(&self.settings, self.pings)
                .map(|(at, _)| at),
            Stage::Over(_) => None,
        }
    }

    /// Acts on a deadline that has come. Does nothing before the deadline.
    ///
    /// # Errors
    /// The peer took too long; the connection is over.
    pub fn tick(&mut self, now: Timestamp, out: &mut BytesMut) -> Result<(), Close> {
        if self.next_deadline().is_none_or(|at| at > now) {
            return Ok(());
        }
        let due = self
            .heart
            .next(&self.settings, self.pings)
            .filter(|_| self.is_ready());
        let close = match due {
            Some((_, Due::Ping)) => {
                Command::Ping {
                    ttl_ds: 0,
                    context: b"",
                }
                .encode(out);
                self.heart.pinged_at = Some(now);
                return Ok(());
            }
            Some((_, Due::PingTimeout)) => Close::PingTimeout,
            Some((_, Due::TtlExpired)) => Close::TtlExpired,
            None => Close::HandshakeTimeout,
        };
        self.end(&close, out);
        Err(close)
    }

    /// Reading from this peer was suspended on purpose until now: its silence must not count as a missed heartbeat. For
    /// a driver that stops reading from a peer that does not read its answers. Call it when reading begins again, and
    /// before a tick meanwhile.
    pub const fn reset_liveness(&mut self, now: Timestamp) {
        self.heart.received(now);
    }
}
