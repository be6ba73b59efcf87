//! A connection's socket, TCP or Unix, for the event loop.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

/// A socket that never blocks.
#[derive(Debug)]
pub enum Socket {
    /// Over TCP, on loopback.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

impl Socket {
    /// Opens a connection to `addr`. A blocking connect, so that a thousand of them do not overrun the server's backlog.
    ///
    /// # Errors
    /// The connection is refused.
    pub fn tcp(addr: SocketAddr) -> io::Result<std::net::TcpStream> {
        let stream = std::net::TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Opens a connection to the Unix socket at `path`, blocking as well.
    ///
    /// # Errors
    /// The connection is refused.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let stream = std::os::unix::net::UnixStream::connect(path)?;
        stream.set_nonblocking(true)?;
        Ok(Self::Unix(UnixStream::from_std(stream)))
    }
}

impl TryFrom<std::net::TcpStream> for Socket {
    type Error = io::Error;

    fn try_from(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::Tcp(TcpStream::from_std(stream)))
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Source for Socket {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.register(registry, token, interests),
            Self::Unix(stream) => stream.register(registry, token, interests),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.reregister(registry, token, interests),
            Self::Unix(stream) => stream.reregister(registry, token, interests),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.deregister(registry),
            Self::Unix(stream) => stream.deregister(registry),
        }
    }
}
