//! The phases of a connection, and how it ends.

use std::io;
use std::time::Duration;

use windlass_engine::Timestamp;
use windlass_session::Reason;

use super::Connection;
use windlass_hub::clock;

/// The phase of a connection. Phases only advance.
#[derive(Debug)]
pub(super) enum Phase {
    /// The TLS handshake is not complete.
    Handshake(Shaking),
    Open,
    /// It is closed once pending output is sent.
    Ending(Reason),
    /// It is closed immediately.
    Over(End),
}

/// The timeout of a handshake. The peer's bytes restart it a few times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shaking {
    silence_max: Duration,
    pub(super) until: Timestamp,
    longest_until: Timestamp,
}

impl Shaking {
    /// The total time of a handshake, as a multiple of the permitted silence.
    const TIMES: u32 = 4;

    pub(super) fn new(silence_max: Duration, now: Timestamp) -> Self {
        let until = |time| clock::after(now, time);
        Self {
            silence_max,
            until: until(silence_max),
            longest_until: until(silence_max * Self::TIMES),
        }
    }

    /// Called when bytes were received.
    pub(super) fn goes_on(&mut self, now: Timestamp) {
        self.until = clock::after(now, self.silence_max).min(self.longest_until);
    }
}

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error(transparent)]
    Closed(#[from] Reason),
    /// The TLS handshake failed.
    #[error(transparent)]
    NoHandshake(#[from] io::Error),
}

impl Phase {
    /// The result of the connection: closed by the peer, unless there is another reason.
    pub(super) fn end(&mut self) -> End {
        match std::mem::replace(self, Self::Open) {
            Self::Handshake(_) | Self::Open => End::Closed(Reason::PeerClosed),
            Self::Ending(why) => End::Closed(why),
            Self::Over(end) => end,
        }
    }
}

impl End {
    /// Whether the peer has failed to authenticate.
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

    /// Whether nothing more is read.
    pub(super) const fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending(_) | Phase::Over(_))
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    /// Closes the connection immediately. The first reason is kept.
    pub(crate) fn end(&mut self, why: Reason) {
        if !self.is_over() {
            self.phase = Phase::Over(End::Closed(why));
        }
    }

    /// Called when the socket can no longer be used.
    pub(super) fn lose_peer(&mut self) {
        self.phase = Phase::Over(self.phase.end());
    }
}
