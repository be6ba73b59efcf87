//! Signs of life: PING when a peer has been silent, and the time after which it counts as gone.
//!
//! Whatever comes is a sign of life. Deadlines move lazily: what is heard only moves a time, and the deadline that was
//! announced is looked at again when it has come.
//!
//! Spec: RFC 37, "Connection Heartbeating".

use bytes::BytesMut;
use windlass_engine::Timestamp;

use super::{Close, Peer, Settings, Stage};
use crate::wire::Command;

/// What there is to know about a peer's pulse.
#[derive(Debug, Default)]
pub(super) struct Heart {
    began_at: Timestamp,
    heard_at: Timestamp,
    /// When it was asked for a sign of life, if it owes us one.
    pinged_at: Option<Timestamp>,
    /// What it said in its last PING: it is gone if it is silent for longer, in milliseconds; 0 = it need not talk.
    ttl_ms: u64,
}

/// What is to be done at a deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    Ping,
    PingTimeout,
    TtlExpired,
}

impl Heart {
    pub(super) const fn begin(&mut self, now: Timestamp) {
        self.began_at = now;
        self.heard_at = now;
    }

    pub(super) const fn heard(&mut self, now: Timestamp) {
        self.heard_at = now;
        self.pinged_at = None;
    }

    /// The peer asked for a sign of life, and named a time, in tenths of a second.
    pub(super) fn was_pinged(&mut self, ttl_ds: u16) {
        self.ttl_ms = u64::from(ttl_ds) * 100;
    }

    /// What is due next, and when, once the handshake is done.
    fn next(&self, settings: &Settings, pings: bool) -> Option<(Timestamp, Due)> {
        let ttl = (self.ttl_ms > 0).then(|| (self.heard_at.after_ms(self.ttl_ms), Due::TtlExpired));
        let ping = match self.pinged_at {
            Some(at) => Some((at.after_ms(settings.ping_timeout_ms), Due::PingTimeout)),
            None if pings && settings.ping_idle_ms > 0 => {
                Some((self.heard_at.after_ms(settings.ping_idle_ms), Due::Ping))
            }
            None => None,
        };
        ttl.into_iter().chain(ping).min_by_key(|(at, _)| *at)
    }
}

impl Peer {
    /// When [`Peer::tick`] is to be called next, if ever.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Signature | Stage::Greeting | Stage::GreetingV2 | Stage::Handshake(_) => {
                Some(self.heart.began_at.after_ms(self.settings.handshake_ms))
            }
            Stage::Traffic => self.heart.next(&self.settings, self.pings).map(|(at, _)| at),
            Stage::Over(_) => None,
        }
    }

    /// A deadline has come, or may have.
    ///
    /// # Errors
    /// It is over: the peer took too long.
    pub fn tick(&mut self, now: Timestamp, out: &mut BytesMut) -> Result<(), Close> {
        if self.next_deadline().is_none_or(|at| at > now) {
            return Ok(());
        }
        let due = self.heart.next(&self.settings, self.pings).filter(|_| self.is_ready());
        let close = match due {
            Some((_, Due::Ping)) => {
                Command::Ping { ttl_ds: 0, context: b"" }.encode(out);
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

    /// Nothing was read from this peer until now, on purpose: its silence is no sign of death. For a driver that stops
    /// reading from a peer that does not take its answers, to be called when it begins again, and before a tick meanwhile.
    pub const fn excuse(&mut self, now: Timestamp) {
        self.heart.heard(now);
    }
}
