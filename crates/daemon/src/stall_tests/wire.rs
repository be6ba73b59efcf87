//! Connections of a transcript to a daemon whose store the transcript stalls.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use bytes::BytesMut;
use windlass_testkit::transcript::{Heard, Wire};

use super::daemon::Daemon;
use super::events;
use windlass_hub::{Mail, QueuedMail};

/// A daemon with one protocol's connections.
pub(super) struct StallWire {
    pub(super) daemon: Daemon,
    protocol: &'static str,
    streams: BTreeMap<String, UnixStream>,
    /// The events that must wait for the store at each resume.
    waits: BTreeSet<String>,
    stalled: bool,
}

impl StallWire {
    pub(super) const fn new(
        daemon: Daemon,
        protocol: &'static str,
        waits: BTreeSet<String>,
    ) -> Self {
        Self {
            daemon,
            protocol,
            streams: BTreeMap::new(),
            waits,
            stalled: false,
        }
    }

    pub(super) fn settle(&mut self) {
        self.daemon.settle(self.stalled);
    }

    /// The events that wait for a commit.
    fn waiting(&self) -> BTreeSet<String> {
        let durable = self.daemon.hub.durable();
        let name = |queued: &QueuedMail| match &queued.mail {
            Mail::Event(event) if queued.gate > Some(durable) => {
                Some(events::name(event).to_owned())
            }
            Mail::Event(_) | Mail::Bytes(_) | Mail::Posted(_) => None,
        };
        let names =
            |mail: &mut dyn Iterator<Item = &QueuedMail>| mail.filter_map(name).collect::<Vec<_>>();
        self.daemon
            .hub
            .mailboxes()
            .iter()
            .flat_map(|mailbox| mailbox.look(names))
            .collect()
    }
}

impl Wire for StallWire {
    fn open(&mut self, who: &str) -> Result<(), String> {
        let stream = self.daemon.connect(self.protocol);
        stream
            .set_nonblocking(true)
            .map_err(|error| error.to_string())?;
        self.streams.insert(who.to_owned(), stream);
        self.settle();
        Ok(())
    }

    fn send(&mut self, who: &str, bytes: &[u8]) {
        if let Some(stream) = self.streams.get_mut(who) {
            // A disconnected peer notices when it reads.
            let _ = stream.write_all(bytes);
        }
        self.settle();
    }

    fn receive(&mut self, who: &str, into: &mut BytesMut) -> Heard {
        let Some(stream) = self.streams.get_mut(who) else {
            return Heard::Closed;
        };
        let mut buffer = [0; 16 * 1024];
        match stream.read(&mut buffer) {
            Ok(0) => Heard::Closed,
            Ok(read) => {
                into.extend_from_slice(&buffer[..read]);
                Heard::Bytes
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Heard::Nothing,
            Err(_) => Heard::Closed,
        }
    }

    fn half_close(&mut self, who: &str) {
        if let Some(stream) = self.streams.get(who) {
            let _ = stream.shutdown(Shutdown::Write);
        }
        self.settle();
    }

    fn close(&mut self, who: &str) {
        self.streams.remove(who);
        self.settle();
    }

    fn advance_ms(&mut self, _ms: u64) -> Result<(), String> {
        Err("the clock is the real one".to_owned())
    }

    fn stall(&mut self) -> Result<(), String> {
        self.settle();
        // Later changes go into the next commit.
        self.daemon.store.block();
        self.stalled = true;
        Ok(())
    }

    fn resume(&mut self) -> Result<(), String> {
        if self.daemon.is_durable() {
            return Err("there is nothing to commit".to_owned());
        }
        // The committing thread is blocked, or about to be.
        self.daemon.store.wait_until_stuck();
        let waiting = self.waiting();
        if waiting != self.waits {
            return Err(format!(
                "{waiting:?} wait for the store, not {:?}",
                self.waits
            ));
        }
        self.stalled = false;
        self.daemon.store.unblock();
        self.settle();
        Ok(())
    }

    fn is_immediate(&self) -> bool {
        true
    }
}
