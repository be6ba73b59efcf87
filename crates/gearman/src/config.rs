//! `[gearman]`: the section, its checks, and the sessions that it makes. `config/windlass.toml` explains each key to
//! the operator.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass_bridge::{Opaque, Origin};
use windlass_config::{
    ByteSize, Error, FRAME_BYTES_CEILING, FRAME_BYTES_MIN, Tls, senseless, within,
};
use windlass_engine::{Clash, NewJob, QueueKind};
use windlass_session::Listen;
use windlass_session::protocol::{
    Daemon, EndedJob, Endpoint, ImportTerms, Listener, Protocol, SessionFactory,
};

use crate::session::{GearmanSpeaker, Settings, background};
use crate::wire::{HANDLE_PREFIX_BYTES_MAX, HandlePrefix, HandlePrefixError};

const PORT: u16 = 4730;

/// The placeholder for this machine's name in [`Gearman::handle_prefix`].
const HOST: &str = "{host}";

/// A text line that clients can work with: a command names one function and a few numbers.
const LINE_BYTES_MIN: u64 = 64;
const LINE_BYTES_CEILING: u64 = 1 << 20;

/// The longest answer to `version`.
const VERSION_BYTES_MAX: usize = 64;

windlass_config::section! {
    /// `[gearman]`
    pub struct Gearman {
        /// Serve the protocol at all.
        pub enabled: bool = true,
        /// Addresses of Gearman; empty for none.
        pub listen: Vec<Listen> = vec![Listen::local(PORT)],
        /// The largest packet, header included.
        pub frame_bytes_max: ByteSize = ByteSize(64 << 20),
        /// The longest line of the admin protocol.
        pub line_bytes_max: ByteSize = ByteSize(8192),
        /// Deliveries before a job is given up; 0 = the limit of all protocols, `limits.losses_max`.
        pub job_retries: u32 = 0,
        /// Keep jobs that were given up in the dead-letter queue.
        pub keep_failed: bool = true,
        /// The effect of a `CAN_DO_TIMEOUT` timeout on the job.
        pub on_timeout: OnTimeout = OnTimeout::Auto,
        /// The unit of the number in `CAN_DO_TIMEOUT`.
        pub timeout_unit: TimeoutUnit = TimeoutUnit::Milliseconds,
        /// Serve a worker's functions in turn among jobs of equal priority.
        pub round_robin: bool = false,
        /// Forward exceptions to clients that did not ask for them.
        pub exceptions: bool = false,
        /// Let clients stop the daemon.
        pub shutdown: bool = false,
        /// The prefix of job handles; `{host}` stands for the name of the machine.
        pub handle_prefix: String = format!("H:{HOST}"),
        /// The answer to `version`, without `OK `.
        pub version: String = "1.1.20".to_owned(),
        /// TLS for every TCP address in `listen`.
        pub tls: Tls,
    }
}

/// The effect of a worker's timeout on its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    /// `Requeue` in `windlass gearmand`, otherwise `Fail`.
    Auto,
    /// The job fails, and its clients are notified (the specification).
    Fail,
    /// The job returns to its queue, and its clients are not notified (gearmand).
    Requeue,
}

/// The unit of CAN_DO_TIMEOUT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeoutUnit {
    /// Milliseconds: the specification, gearmand and libgearman; the default.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Seconds: Perl's `Gearman::Worker` and `Gearman::Server`.
    #[serde(rename = "s")]
    Seconds,
}

impl Gearman {
    /// The prefix of job handles on a machine.
    ///
    /// # Errors
    ///
    /// The prefix is not valid in a handle.
    fn prefix(&self, host: &[u8]) -> Result<HandlePrefix, HandlePrefixError> {
        HandlePrefix::new(&self.prefix_on(host))
    }

    /// Cuts the host's name to the available room, and replaces bytes that handles must not contain by dashes.
    fn prefix_on(&self, host: &[u8]) -> Vec<u8> {
        let Some((before, after)) = self.handle_prefix.split_once(HOST) else {
            return self.handle_prefix.clone().into_bytes();
        };
        let room = HANDLE_PREFIX_BYTES_MAX.saturating_sub(before.len() + after.len());
        let name = host.iter().take(room).map(|byte| {
            if *byte > b' ' && *byte != 0x7f {
                *byte
            } else {
                b'-'
            }
        });
        before.bytes().chain(name).chain(after.bytes()).collect()
    }

    fn sessions(&self, daemon: &Daemon) -> Result<SessionFactory, Error> {
        let (settings, daemon) = (Arc::new(self.settings(daemon)?), daemon.clone());
        Ok(Arc::new(move |info, _| {
            daemon.under_aliases(GearmanSpeaker::session(Arc::clone(&settings), info))
        }))
    }

    /// The settings of all connections.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`]: the prefix is not valid in a handle.
    pub fn settings(&self, daemon: &Daemon) -> Result<Settings, Error> {
        let prefix = self
            .prefix(&daemon.host)
            .map_err(|error| Error::senseless("gearman.handle_prefix", error))?;
        Ok(Settings {
            section: self.clone(),
            verbosity_text: daemon.log_level.to_uppercase(),
            bridge: Arc::clone(&daemon.bridge),
            ..Settings::new(prefix)
        })
    }
}

impl Protocol for Gearman {
    fn id(&self) -> windlass_engine::Protocol {
        windlass_engine::Protocol::GEARMAN
    }

    fn origin(&self) -> Option<Arc<dyn Origin>> {
        Some(Arc::new(Opaque))
    }

    fn import_terms(&self) -> ImportTerms {
        ImportTerms {
            kind: QueueKind::Work,
            clash: Clash::Attach,
            key_is_identity: true,
        }
    }

    fn check(&self, daemon: &Daemon) -> Result<(), Error> {
        within(
            "gearman.frame_bytes_max",
            self.frame_bytes_max,
            FRAME_BYTES_MIN,
            FRAME_BYTES_CEILING,
        )?;
        within(
            "gearman.line_bytes_max",
            self.line_bytes_max,
            LINE_BYTES_MIN,
            LINE_BYTES_CEILING,
        )?;
        self.settings(daemon)?;
        match self.version.len() {
            0 => senseless("gearman.version", "must not be empty"),
            VERSION_BYTES_MAX.. => senseless("gearman.version", "must be shorter than 64 bytes"),
            _ if self.version.chars().any(char::is_control) => {
                senseless("gearman.version", "must be one line of text")
            }
            _ => Ok(()),
        }
    }

    fn listeners(&self) -> Vec<Listener<'_>> {
        Listener::each(self.name(), "gearman.listen", &self.listen, self.tls()).collect()
    }

    fn tls(&self) -> Option<&Tls> {
        Some(&self.tls)
    }

    fn message_bytes_max(&self) -> ByteSize {
        self.frame_bytes_max
    }

    fn alias_rule(&self) -> Option<fn(&[u8]) -> bool> {
        Some(|_| true)
    }

    fn again(&self, ended: EndedJob<'_>) -> Result<NewJob, String> {
        Ok(background(self, ended.queue, ended.body))
    }

    fn endpoints(&self, daemon: &Daemon) -> Result<Vec<Endpoint>, Error> {
        let endpoint = Endpoint::new(
            self.name(),
            self.listen.clone(),
            self.sessions(daemon)?,
            Arc::new(()),
        );
        // Packets begin with NUL, lines of text with anything else.
        Ok(vec![Endpoint {
            is_admin: |first| first != 0,
            ..endpoint
        }])
    }

    fn renewed(
        &self,
        daemon: &Daemon,
        _running: &Endpoint,
    ) -> Result<Option<SessionFactory>, Error> {
        self.sessions(daemon).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_start_with_the_name_of_the_machine() {
        let table = [
            ("H:{host}", "lap", "H:lap"),
            ("H:{host}", "my lap", "H:my-lap"),
            (
                "H:{host}",
                "a-name-that-is-longer-than-any-handle-has-room-for",
                "H:a-name-that-is-longer-than-any-handle-ha",
            ),
            ("H:eu-{host}:a", "lap", "H:eu-lap:a"),
            ("jobs", "lap", "jobs"),
        ];
        for (template, host, expected) in table {
            let gearman = Gearman {
                handle_prefix: template.to_owned(),
                ..Gearman::default()
            };
            let prefix = gearman.prefix_on(host.as_bytes());
            assert_eq!(
                String::from_utf8_lossy(&prefix),
                expected,
                "{template} {host}"
            );
        }
        let long = format!("H:{}:7", "n".repeat(40));
        let table: [(&[u8], &str); 4] = [
            (b"lap", "H:lap:7"),
            (b"", "H::7"),
            (b"my lap\n", "H:my-lap-:7"),
            (&[b'n'; 64], &long),
        ];
        for (host, handle) in table {
            let prefix = Gearman::default().prefix(host).unwrap();
            assert_eq!(
                prefix.handle(7).to_string(),
                *handle,
                "{}: as gearmand",
                host.escape_ascii()
            );
            assert_eq!(prefix.parse(handle.as_bytes()), Some(7));
        }
    }
}
