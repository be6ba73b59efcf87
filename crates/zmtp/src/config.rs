//! `[zmtp]`: the section, its checks, and the settings that it makes. Several protocols use it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use windlass_config::{
    ByteSize, Error, FRAME_BYTES_CEILING, FRAME_BYTES_MIN, Period, positive, senseless, within,
};
use windlass_engine::ClientInfo;
use windlass_session::protocol::SessionFactory;
use windlass_session::{Closer, Session};

use crate::{ConnectionRegistry, HangUp, Limits, Registration, Role, Settings};

/// At least an envelope's delimiter and a payload; with more parts than this, reading one message takes too long.
const PARTS_RANGE: RangeInclusive<usize> = 2..=65_536;

windlass_config::section! {
    /// `[zmtp]`: ZeroMQ's transport, for every protocol that uses it.
    pub struct Zmtp {
        /// The largest message, the sum of its parts.
        pub message_bytes_max: ByteSize = ByteSize(64 << 20),
        /// The most parts of one message.
        pub parts_max: usize = 64,
        /// How long a peer may be silent in its greeting and handshake, which may take four times as long.
        pub handshake_timeout: Period = Period::from_secs(30),
        /// Silence after which a peer is sent a ping; 0 = never.
        pub ping_idle: Period = Period::from_secs(30),
        /// How long a peer may take to answer a ping.
        pub ping_timeout: Period = Period::from_secs(30),
    }
}

impl Zmtp {
    /// Checks the section's values.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`], with the key.
    pub fn check(&self) -> Result<(), Error> {
        positive(&[
            ("zmtp.handshake_timeout", self.handshake_timeout.as_ms()),
            ("zmtp.ping_timeout", self.ping_timeout.as_ms()),
        ])?;
        within(
            "zmtp.message_bytes_max",
            self.message_bytes_max,
            FRAME_BYTES_MIN,
            FRAME_BYTES_CEILING,
        )?;
        if PARTS_RANGE.contains(&self.parts_max) {
            return Ok(());
        }
        let (least, most) = (PARTS_RANGE.start(), PARTS_RANGE.end());
        senseless(
            "zmtp.parts_max",
            format!("{} is not between {least} and {most}", self.parts_max),
        )
    }

    /// The settings without security, for one side of a pattern. `outbound_bytes_max`: bytes that may wait for a peer.
    pub fn settings(&self, role: Role, outbound_bytes_max: usize) -> Settings {
        let message_bytes_max = self.message_bytes_max.bytes();
        Settings {
            limits: Limits {
                frame_bytes_max: message_bytes_max,
                message_bytes_max,
                parts_max: self.parts_max,
                outbound_bytes_max,
                ..Limits::default()
            },
            handshake_ms: self.handshake_timeout.as_ms(),
            ping_idle_ms: self.ping_idle.as_ms(),
            ping_timeout_ms: self.ping_timeout.as_ms(),
            ..Settings::new(role)
        }
    }
}

impl ConnectionRegistry {
    /// Makes the sessions of its listener. Each namespace has identities of its own.
    pub fn sessions<F>(self: Arc<Self>, make: F) -> SessionFactory
    where
        F: Fn(ClientInfo, Registration) -> Box<dyn Session> + Send + Sync + 'static,
    {
        Arc::new(move |info, connection: Arc<dyn Closer>| {
            let hang_up: HangUp = Arc::new(move |close| connection.close(close.into()));
            let registry = self.within(info.namespace.as_deref());
            make(info, registry.enter(hang_up))
        })
    }
}
