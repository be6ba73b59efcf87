//! How far a connection is, and how it ends.

use std::io;
use std::time::Duration;

use windlass_engine::Timestamp;
use windlass_session::Reason;

use super::Connection;
use windlass_hub::clock;

/// How far a connection is. It only goes on.
#[derive(Debug)]
pub(super) enum Phase {
    /// The TLS handshake is not complete.
    Handshake(Shaking),
    Open,
    /// It ends once everything due is sent.
    Ending(Reason),
    /// It ends at once.
    Over(End),
}

/// The time of a handshake. It begins anew with the peer's bytes, a few times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shaking {
    silence_max: Duration,
    pub(super) until: Timestamp,
    longest_until: Timestamp,
}

impl Shaking {
    /// A peer that sends its handshake byte by byte has this many times the time of a silent one.
    const TIMES: u32 = 4;

    pub(super) fn new(silence_max: Duration, now: Timestamp) -> Self {
        let until = |time| clock::after(now, time);
        Self {
            silence_max,
            until: until(silence_max),
            longest_until: until(silence_max * Self::TIMES),
        }
    }

    /// Bytes have come.
    pub(super) fn goes_on(&mut self, now: Timestamp) {
        self.until = clock::after(now, self.silence_max).min(self.longest_until);
    }
}

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error(transparent)]
    Closed(#[from] Reason),
    /// Its TLS handshake failed.
    #[error(transparent)]
    NoHandshake(#[from] io::Error),
}

impl Phase {
    /// The end of a connection, whose peer has closed it if there is no other reason.
    pub(super) fn end(&mut self) -> End {
        match std::mem::replace(self, Self::Open) {
            Self::Handshake(_) | Self::Open => End::Closed(Reason::PeerClosed),
            Self::Ending(why) => End::Closed(why),
            Self::Over(end) => end,
        }
    }
}

impl End {
    /// Whether the peer has failed to show who it is.
    pub(crate) fn is_failed_login(&self) -> bool {
        match self {
            Self::Closed(reason) => *reason == Reason::WrongPassword,
            Self::NoHandshake(error) => error.kind() == io::ErrorKind::PermissionDenied,
        }
    }
}

impl Connection {
    pub(super) const fn is_shaking(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_))
    }

    /// Whether it reads no more.
    pub(super) const fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending(_) | Phase::Over(_))
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    /// Ends the connection at once. The first reason counts.
    pub(crate) fn end(&mut self, why: Reason) {
        if !self.is_over() {
            self.phase = Phase::Over(End::Closed(why));
        }
    }

    /// The socket is of no use any more.
    pub(super) fn lose_peer(&mut self) {
        self.phase = Phase::Over(self.phase.end());
    }
}
