//! A peer that implements ZMTP independently of our own codec.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::socket;

pub const MORE: u8 = 1;
pub const LONG: u8 = 2;
pub const COMMAND: u8 = 4;

/// The first 64 bytes, of ZMTP 3.1.
pub fn greeting(mechanism: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[0] = 0xFF;
    bytes[9] = 0x7F;
    bytes[10..12].copy_from_slice(&[3, 1]);
    bytes[12..12 + mechanism.len()].copy_from_slice(mechanism.as_bytes());
    bytes
}

/// A frame in the shortest encoding.
pub fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    match u8::try_from(body.len()) {
        Ok(length) => [&[flags, length][..], body].concat(),
        Err(_) => [
            &[flags | LONG][..],
            &(body.len() as u64).to_be_bytes(),
            body,
        ]
        .concat(),
    }
}

/// A message of these parts.
pub fn message(parts: &[&[u8]]) -> Vec<u8> {
    let (last, before) = parts.split_last().unwrap();
    let mut frames: Vec<u8> = before.iter().flat_map(|part| frame(MORE, part)).collect();
    frames.extend(frame(0, last));
    frames
}

pub fn command(name: &str, data: &[u8]) -> Vec<u8> {
    let name = [&[u8::try_from(name.len()).unwrap()][..], name.as_bytes()].concat();
    frame(COMMAND, &[&name[..], data].concat())
}

/// The command that ends a handshake without a password.
pub fn ready(socket_type: &str, identity: &[u8]) -> Vec<u8> {
    let properties = [
        property("Socket-Type", socket_type.as_bytes()),
        property("Identity", identity),
    ]
    .concat();
    command("READY", &properties)
}

fn property(name: &str, value: &[u8]) -> Vec<u8> {
    let length = u32::try_from(value.len()).unwrap().to_be_bytes();
    [
        &[u8::try_from(name.len()).unwrap()][..],
        name.as_bytes(),
        &length,
        value,
    ]
    .concat()
}

/// Bytes that no peer may send after its handshake.
pub fn impossible_frames() -> [(&'static str, Vec<u8>); 7] {
    let huge = (1_u64 << 40).to_be_bytes();
    [
        ("a frame of 2^40 bytes", [&[LONG][..], &huge].concat()),
        (
            "a command of 2^40 bytes",
            [&[LONG | COMMAND][..], &huge].concat(),
        ),
        (
            "a length with its highest bit set",
            [&[LONG][..], &[0xFF; 8]].concat(),
        ),
        ("an unknown flag", vec![0x40, 0]),
        ("a command that is to be continued", vec![COMMAND | MORE, 0]),
        ("too many parts", frame(MORE, b"x").repeat(65)),
        ("a command that is cut short", frame(COMMAND, b"\x09PING")),
    ]
}

/// Connects this many times, and sends parts of a greeting.
pub fn half_open(address: SocketAddr, count: usize) -> Vec<Dealer> {
    let begun = [&b"\xFF"[..], &greeting("NULL")[..11], &greeting("NULL")];
    let open = |begun: &[u8]| {
        let mut dealer = Dealer::reach(address).unwrap();
        dealer.say(begun).unwrap();
        dealer
    };
    begun.into_iter().cycle().take(count).map(open).collect()
}

/// A connection that can act as a socket of any type.
#[derive(Debug)]
pub struct Dealer {
    pub stream: TcpStream,
}

impl Dealer {
    /// Connects without sending anything.
    pub fn reach(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            stream: socket(address)?,
        })
    }

    /// Connects and shakes hands as a DEALER; an empty identity means none.
    pub fn connect(address: SocketAddr, identity: &[u8]) -> Self {
        Self::connect_as(address, "DEALER", identity)
    }

    /// Connects and shakes hands.
    pub fn connect_as(address: SocketAddr, socket_type: &str, identity: &[u8]) -> Self {
        Self::try_connect_as(address, socket_type, identity).unwrap()
    }

    /// The same, for a daemon that may crash at any time.
    pub fn try_connect_as(
        address: SocketAddr,
        socket_type: &str,
        identity: &[u8],
    ) -> io::Result<Self> {
        let mut dealer = Self::reach(address)?;
        dealer.say(&greeting("NULL"))?;
        dealer.say(&ready(socket_type, identity))?;
        dealer.hear_bytes(64)?;
        let (flags, body) = dealer.hear_frame()?;
        assert_eq!(
            (flags, &body[..6]),
            (COMMAND, &b"\x05READY"[..]),
            "{}",
            body.escape_ascii()
        );
        Ok(dealer)
    }

    pub fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a request behind an empty delimiter, as REQ does.
    pub fn ask(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.say(&[frame(MORE, b""), frame(0, request)].concat())?;
        self.hear()
    }

    /// Reads the reply behind the delimiter.
    pub fn hear(&mut self) -> io::Result<Vec<u8>> {
        let mut parts = self.hear_message()?;
        let reply = parts.pop().unwrap();
        assert!(parts.iter().all(Vec::is_empty), "the delimiter");
        Ok(reply)
    }

    /// Reads all parts of a message. Sends a PING before.
    pub fn hear_message(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut parts = Vec::new();
        loop {
            let (flags, body) = self.hear_frame()?;
            if flags & COMMAND != 0 {
                let context = body
                    .strip_prefix(b"\x04PING")
                    .and_then(|rest| rest.get(2..));
                if let Some(context) = context {
                    self.say(&command("PONG", context))?;
                }
                continue;
            }
            parts.push(body);
            if flags & MORE == 0 {
                return Ok(parts);
            }
        }
    }

    pub fn hear_frame(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let flags = self.hear_bytes(1)?[0];
        let length = match flags & LONG {
            0 => u64::from(self.hear_bytes(1)?[0]),
            _ => u64::from_be_bytes(self.hear_bytes(8)?.try_into().unwrap()),
        };
        Ok((
            flags & !LONG,
            self.hear_bytes(usize::try_from(length).unwrap())?,
        ))
    }

    pub fn hear_bytes(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut read = vec![0; bytes];
        self.stream.read_exact(&mut read)?;
        Ok(read)
    }

    /// Whether the other side ends the connection, whatever it sends before.
    pub fn is_hung_up_on(&mut self) -> bool {
        let end = io::copy(&mut self.stream, &mut io::sink());
        end.map_or_else(
            |error| error.kind() == io::ErrorKind::ConnectionReset,
            |_| true,
        )
    }
}

/// Whether the user `u` can log in with this password.
pub fn plain_login(address: SocketAddr, password: &str) -> bool {
    let mut dealer = Dealer::reach(address).unwrap();
    dealer.say(&greeting("PLAIN")).unwrap();
    let length = u8::try_from(password.len()).unwrap();
    dealer
        .say(&command(
            "HELLO",
            &[&b"\x01u"[..], &[length], password.as_bytes()].concat(),
        ))
        .unwrap();
    dealer.hear_bytes(64).is_ok()
        && dealer
            .hear_frame()
            .is_ok_and(|(_, body)| body.starts_with(b"\x07WELCOME"))
}
