//! Two peers of spiderq's, as far from our own codec as can be: bare frames on a socket, and ZMTP by hand.

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
/// So long that no test sees its end, in milliseconds.
pub const FOREVER_MS: u64 = 86_400_000;

/// What becomes of an entry that is repaid.
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
    [&[0x04][..], &ms.to_be_bytes(), &[if blocks { 1 } else { 2 }]].concat()
}

pub fn repay(lease: &Lease, status: Status) -> Vec<u8> {
    let head = [&[0x05][..], &lease.lend_key.to_be_bytes()].concat();
    [&head[..], &vec(lease.key.as_bytes()), &vec(&lease.value), &[status as u8]].concat()
}

/// What was lent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    pub lend_key: u64,
    pub key: String,
    pub value: Vec<u8>,
}

impl Lease {
    /// `None` if there was nothing.
    pub fn of(reply: &[u8]) -> Option<Self> {
        if reply == EMPTY {
            return None;
        }
        let (lend_key, rest) = reply.strip_prefix(&[0x06]).unwrap().split_first_chunk().unwrap();
        let (key, rest) = split_vec(rest);
        let (value, rest) = split_vec(rest);
        assert!(rest.is_empty());
        let key = String::from_utf8(key.to_vec()).unwrap();
        Some(Self { lend_key: u64::from_be_bytes(*lend_key), key, value: value.to_vec() })
    }
}

fn split_vec(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (length, rest) = bytes.split_first_chunk().unwrap();
    rest.split_at(usize::try_from(u32::from_be_bytes(*length)).unwrap())
}

// ---- bare frames -----------------------------------------------------------------------------------------------------

/// Requests back to back on a socket, and replies.
#[derive(Debug)]
pub struct Bare(TcpStream);

impl Bare {
    pub fn connect(address: SocketAddr) -> Self {
        Self(socket(address).unwrap())
    }

    pub fn ask(&mut self, request: &[u8]) -> Vec<u8> {
        self.0.write_all(request).unwrap();
        self.hear().unwrap()
    }

    pub fn lease(&mut self, blocks: bool) -> Option<Lease> {
        Lease::of(&self.ask(&lend(FOREVER_MS, blocks)))
    }

    pub fn count(&mut self) -> u32 {
        let reply = self.ask(COUNT);
        u32::from_be_bytes(reply.strip_prefix(&[0x01]).unwrap().try_into().unwrap())
    }

    /// Where a reply ends its first byte tells, and lengths in it.
    pub fn hear(&mut self) -> io::Result<Vec<u8>> {
        let mut reply = Vec::new();
        match self.more(1, &mut reply)? {
            0x01 => self.more(4, &mut reply)?,
            0x06 => {
                self.more(8, &mut reply)?;
                self.vec(&mut reply)?;
                self.vec(&mut reply)?
            }
            0x0A => self.more(64, &mut reply)?,
            0x0B => {
                let short = [2, 14, 52, 54].contains(&self.more(1, &mut reply)?);
                self.more(if short { 1 } else { 8 }, &mut reply)?
            }
            0x0D => self.vec(&mut reply)?,
            _ => 0,
        };
        Ok(reply)
    }

    fn vec(&mut self, reply: &mut Vec<u8>) -> io::Result<u8> {
        self.more(4, reply)?;
        let length = u32::from_be_bytes(*reply.last_chunk().unwrap());
        self.more(usize::try_from(length).unwrap(), reply)
    }

    /// Reads so many bytes more, and gives back the last.
    fn more(&mut self, bytes: usize, reply: &mut Vec<u8>) -> io::Result<u8> {
        let begin = reply.len();
        reply.resize(begin + bytes, 0);
        self.0.read_exact(&mut reply[begin..])?;
        Ok(reply.last().copied().unwrap())
    }
}

// ---- ZMTP ------------------------------------------------------------------------------------------------------------

pub const MORE: u8 = 1;
pub const LONG: u8 = 2;
pub const COMMAND: u8 = 4;

/// The 64 bytes that come first, of 3.1.
pub fn greeting(mechanism: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[0] = 0xFF;
    bytes[9] = 0x7F;
    bytes[10..12].copy_from_slice(&[3, 1]);
    bytes[12..12 + mechanism.len()].copy_from_slice(mechanism.as_bytes());
    bytes
}

/// A short frame.
pub fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    [&[flags, u8::try_from(body.len()).unwrap()][..], body].concat()
}

pub fn command(name: &str, data: &[u8]) -> Vec<u8> {
    let name = [&[u8::try_from(name.len()).unwrap()][..], name.as_bytes()].concat();
    frame(COMMAND, &[&name[..], data].concat())
}

fn property(name: &str, value: &[u8]) -> Vec<u8> {
    [&[u8::try_from(name.len()).unwrap()][..], name.as_bytes(), &vec(value)].concat()
}

/// A DEALER.
#[derive(Debug)]
pub struct Dealer {
    pub stream: TcpStream,
}

impl Dealer {
    /// Says nothing yet.
    pub fn reach(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { stream: socket(address)? })
    }

    /// Shakes hands; an empty identity is none.
    pub fn connect(address: SocketAddr, identity: &[u8]) -> Self {
        let mut dealer = Self::reach(address).unwrap();
        dealer.say(&greeting("NULL")).unwrap();
        let properties = [property("Socket-Type", b"DEALER"), property("Identity", identity)].concat();
        dealer.say(&command("READY", &properties)).unwrap();
        dealer.hear_bytes(64).unwrap();
        let (flags, body) = dealer.hear_frame().unwrap();
        assert_eq!((flags, &body[..6]), (COMMAND, &b"\x05READY"[..]), "{}", body.escape_ascii());
        dealer
    }

    pub fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Asks with a delimiter in front, as REQ does.
    pub fn ask(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.say(&[frame(MORE, b""), frame(0, request)].concat())?;
        self.hear()
    }

    /// The reply behind the delimiter.
    pub fn hear(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let (flags, body) = self.hear_frame()?;
            match (flags & COMMAND, flags & MORE) {
                (COMMAND, _) => {
                    let context = body.strip_prefix(b"\x04PING").and_then(|rest| rest.get(2..));
                    if let Some(context) = context {
                        self.say(&command("PONG", context))?;
                    }
                }
                (_, MORE) => assert!(body.is_empty(), "the delimiter"),
                _ => return Ok(body),
            }
        }
    }

    pub fn hear_frame(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let flags = self.hear_bytes(1)?[0];
        let length = match flags & LONG {
            0 => u64::from(self.hear_bytes(1)?[0]),
            _ => u64::from_be_bytes(self.hear_bytes(8)?.try_into().unwrap()),
        };
        Ok((flags & !LONG, self.hear_bytes(usize::try_from(length).unwrap())?))
    }

    pub fn hear_bytes(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut read = vec![0; bytes];
        self.stream.read_exact(&mut read)?;
        Ok(read)
    }

    /// Whether the other side ends the connection, whatever it says before.
    pub fn is_hung_up_on(&mut self) -> bool {
        let end = io::copy(&mut self.stream, &mut io::sink());
        end.map_or_else(|error| error.kind() == io::ErrorKind::ConnectionReset, |_| true)
    }
}
