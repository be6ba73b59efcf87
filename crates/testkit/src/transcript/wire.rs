//! The transport of a conversation: memory, where everything happens at once, or TCP to a daemon.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use windlass_engine::{ClientId, ClientInfo, Rights};
use windlass_session::Session;

use super::Scene;
use crate::memory::MemoryHub;

/// Connections by name.
pub trait Wire {
    /// Makes a connection.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    fn open(&mut self, who: &str) -> Result<(), String>;

    /// Sends bytes. A closed receiver is not an error: the next read detects it.
    fn send(&mut self, who: &str, bytes: &[u8]);

    /// Appends received bytes.
    fn receive(&mut self, who: &str, into: &mut BytesMut) -> Heard;

    /// Closes the sending side.
    fn half_close(&mut self, who: &str);

    /// Closes the connection; the server has processed that when this returns.
    fn close(&mut self, who: &str);

    /// Lets time pass.
    ///
    /// # Errors
    /// This wire cannot move the clock.
    fn advance_ms(&mut self, ms: u64) -> Result<(), String>;

    /// Stalls the store.
    ///
    /// # Errors
    /// This wire cannot stall the store.
    fn stall(&mut self) -> Result<(), String> {
        Err("there is no store to stall".to_owned())
    }

    /// Resumes the store, once a commit waits for it.
    ///
    /// # Errors
    /// There is nothing to commit, or this wire cannot stall the store.
    fn resume(&mut self) -> Result<(), String> {
        Err("there is no store to stall".to_owned())
    }

    /// Whether all consequences of a message are there once it has been sent. Otherwise a barrier
    /// ([`crate::transcript::Speech::barrier`]) is needed.
    fn is_immediate(&self) -> bool;
}

/// The result of reading a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Bytes.
    Bytes,
    /// Nothing, however long the reader waits.
    Nothing,
    /// The other side has closed.
    Closed,
}

/// Makes the session of a new connection.
type Greet<'a> = Box<dyn Fn(ClientInfo) -> Box<dyn Session> + 'a>;

/// A server in memory.
pub struct MemoryWire<'a> {
    hub: MemoryHub,
    greet: Greet<'a>,
    clients: BTreeMap<String, ClientId>,
    scene: Option<&'a Scene>,
}

impl fmt::Debug for MemoryWire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWire")
            .field("hub", &self.hub)
            .field("clients", &self.clients)
            .finish_non_exhaustive()
    }
}

impl<'a> MemoryWire<'a> {
    /// A wire to this hub; `greet` creates the session of each connection.
    pub fn new(hub: MemoryHub, greet: impl Fn(ClientInfo) -> Box<dyn Session> + 'a) -> Self {
        Self {
            hub,
            greet: Box::new(greet),
            clients: BTreeMap::new(),
            scene: None,
        }
    }

    /// The same, where connections may do what the scene allows.
    #[must_use]
    pub fn for_scene(self, scene: &'a Scene) -> Self {
        Self {
            scene: Some(scene),
            ..self
        }
    }

    /// The server, for inspection.
    #[must_use]
    pub const fn hub(&self) -> &MemoryHub {
        &self.hub
    }

    fn client(&self, who: &str) -> ClientId {
        self.clients.get(who).copied().unwrap_or(ClientId(0))
    }
}

impl Wire for MemoryWire<'_> {
    fn open(&mut self, who: &str) -> Result<(), String> {
        let rights = self
            .scene
            .map_or(Ok(Rights::ALL), |scene| scene.rights(who))?;
        let client = self.hub.open_with(rights, &self.greet);
        self.clients.insert(who.to_owned(), client);
        Ok(())
    }

    fn send(&mut self, who: &str, bytes: &[u8]) {
        self.hub.send(self.client(who), bytes);
    }

    fn receive(&mut self, who: &str, into: &mut BytesMut) -> Heard {
        let client = self.client(who);
        let output = self.hub.take_output(client);
        into.extend_from_slice(&output);
        match self.hub.end_of(client) {
            _ if !output.is_empty() => Heard::Bytes,
            Some(_) => Heard::Closed,
            None => Heard::Nothing,
        }
    }

    fn half_close(&mut self, who: &str) {
        self.hub.half_close(self.client(who));
    }

    fn close(&mut self, who: &str) {
        self.hub.close(self.client(who));
    }

    fn advance_ms(&mut self, ms: u64) -> Result<(), String> {
        self.hub.advance_ms(ms);
        Ok(())
    }

    fn is_immediate(&self) -> bool {
        true
    }
}

/// The longest wait for bytes: generous, for a loaded machine. A test waits this long only if it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon over TCP.
#[derive(Debug)]
pub struct TcpWire {
    address: SocketAddr,
    streams: BTreeMap<String, TcpStream>,
}

impl TcpWire {
    /// A wire to this address.
    #[must_use]
    pub const fn new(address: SocketAddr) -> Self {
        Self {
            address,
            streams: BTreeMap::new(),
        }
    }
}

impl Wire for TcpWire {
    fn open(&mut self, who: &str) -> Result<(), String> {
        let connect = || {
            let stream = TcpStream::connect(self.address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let stream =
            connect().map_err(|error: std::io::Error| format!("{}: {error}", self.address))?;
        self.streams.insert(who.to_owned(), stream);
        Ok(())
    }

    fn send(&mut self, who: &str, bytes: &[u8]) {
        if let Some(stream) = self.streams.get_mut(who) {
            let _ = stream.write_all(bytes);
        }
    }

    fn receive(&mut self, who: &str, into: &mut BytesMut) -> Heard {
        let Some(stream) = self.streams.get_mut(who) else {
            return Heard::Closed;
        };
        let mut buffer = [0; 16 * 1024];
        match stream.read(&mut buffer) {
            Ok(0) => Heard::Closed,
            Ok(read) => {
                into.extend_from_slice(buffer.get(..read).unwrap_or_default());
                Heard::Bytes
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Heard::Nothing
            }
            Err(_) => Heard::Closed,
        }
    }

    fn half_close(&mut self, who: &str) {
        if let Some(stream) = self.streams.get(who) {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    /// The server closes its side once it has processed the end of ours.
    fn close(&mut self, who: &str) {
        self.half_close(who);
        let mut rest = BytesMut::new();
        while self.receive(who, &mut rest) == Heard::Bytes {
            rest.clear();
        }
        self.streams.remove(who);
    }

    fn advance_ms(&mut self, _ms: u64) -> Result<(), String> {
        Err("a daemon's clock cannot be moved".to_owned())
    }

    fn is_immediate(&self) -> bool {
        false
    }
}
