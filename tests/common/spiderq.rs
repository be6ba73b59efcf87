//! spiderq's messages, and a peer that sends them as bare frames on a socket, independently of our own codec.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::common::socket;

pub const PING: &[u8] = &[0x0B];
pub const PONG: &[u8] = &[0x11];
pub const COUNT: &[u8] = &[0x01];
pub const ADDED: &[u8] = &[0x02];
pub const REPAID: &[u8] = &[0x07];
pub const FLUSH: &[u8] = &[0x0A];
pub const FLUSHED: &[u8] = &[0x0F];
pub const EMPTY: &[u8] = &[0x10];
/// The first byte of a lent entry, and of one that was looked up.
pub const LENT: u8 = 0x06;
pub const FOUND: u8 = 0x0D;
/// Longer than any test, in milliseconds.
pub const FOREVER_MS: u64 = 86_400_000;

/// The treatment of a repaid entry.
#[derive(Clone, Copy, Debug)]
pub enum Status {
    Penalty = 1,
    Reward = 2,
    Front = 3,
    Drop = 4,
}

pub fn vec(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

/// Dialect 1.3.
pub fn add(key: &str, value: &[u8]) -> Vec<u8> {
    [&[0x02][..], &vec(key.as_bytes()), &vec(value)].concat()
}

pub fn lookup(key: &str) -> Vec<u8> {
    [&[0x09][..], &vec(key.as_bytes())].concat()
}

pub fn lend(ms: u64, blocks: bool) -> Vec<u8> {
    [
        &[0x04][..],
        &ms.to_be_bytes(),
        &[if blocks { 1 } else { 2 }],
    ]
    .concat()
}

pub fn repay(lease: &Lease, status: Status) -> Vec<u8> {
    let head = [&[0x05][..], &lease.lend_key.to_be_bytes()].concat();
    [
        &head[..],
        &vec(lease.key.as_bytes()),
        &vec(&lease.value),
        &[status as u8],
    ]
    .concat()
}

/// A lent entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    pub lend_key: u64,
    pub key: String,
    pub value: Vec<u8>,
}

impl Lease {
    /// `None` if nothing was lent.
    pub fn of(reply: &[u8]) -> Option<Self> {
        if reply == EMPTY {
            return None;
        }
        let (lend_key, rest) = reply
            .strip_prefix(&[LENT])
            .unwrap()
            .split_first_chunk()
            .unwrap();
        let (key, rest) = split_vec(rest);
        let (value, rest) = split_vec(rest);
        assert!(rest.is_empty());
        let key = String::from_utf8(key.to_vec()).unwrap();
        Some(Self {
            lend_key: u64::from_be_bytes(*lend_key),
            key,
            value: value.to_vec(),
        })
    }
}

fn split_vec(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (length, rest) = bytes.split_first_chunk().unwrap();
    rest.split_at(usize::try_from(u32::from_be_bytes(*length)).unwrap())
}

// ---- bare frames ----------------------------------------------------------------------------------------------------

/// Requests back to back on a socket, and replies.
#[derive(Debug)]
pub struct Bare(TcpStream);

impl Bare {
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap()
    }

    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        Ok(Self(socket(address)?))
    }

    pub fn ask(&mut self, request: &[u8]) -> Vec<u8> {
        self.try_ask(request).unwrap()
    }

    /// The same, for a daemon that may crash at any time.
    pub fn try_ask(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(request)?;
        self.hear()
    }

    /// Sends a request and does not wait for its reply.
    pub fn say(&mut self, request: &[u8]) {
        self.0.write_all(request).unwrap();
    }

    pub fn lease(&mut self, blocks: bool) -> Option<Lease> {
        Lease::of(&self.ask(&lend(FOREVER_MS, blocks)))
    }

    pub fn count(&mut self) -> u32 {
        let reply = self.ask(COUNT);
        u32::from_be_bytes(reply.strip_prefix(&[0x01]).unwrap().try_into().unwrap())
    }

    /// The first byte of a reply and its length fields determine where it ends.
    pub fn hear(&mut self) -> io::Result<Vec<u8>> {
        let mut reply = Vec::new();
        match self.more(1, &mut reply)? {
            0x01 => self.more(4, &mut reply)?,
            LENT => {
                self.more(8, &mut reply)?;
                self.vec(&mut reply)?;
                self.vec(&mut reply)?
            }
            0x0A => self.more(64, &mut reply)?,
            0x0B => match self.more(1, &mut reply)? {
                2 | 14 | 52 | 54 => self.more(1, &mut reply)?,
                // The daemon's reason, as text.
                36 => self.vec(&mut reply)?,
                _ => self.more(8, &mut reply)?,
            },
            FOUND => self.vec(&mut reply)?,
            _ => 0,
        };
        Ok(reply)
    }

    fn vec(&mut self, reply: &mut Vec<u8>) -> io::Result<u8> {
        self.more(4, reply)?;
        let length = u32::from_be_bytes(*reply.last_chunk().unwrap());
        self.more(usize::try_from(length).unwrap(), reply)
    }

    /// Reads `bytes` more bytes, and returns the last one.
    fn more(&mut self, bytes: usize, reply: &mut Vec<u8>) -> io::Result<u8> {
        let begin = reply.len();
        reply.resize(begin + bytes, 0);
        self.0.read_exact(&mut reply[begin..])?;
        Ok(reply.last().copied().unwrap())
    }
}
