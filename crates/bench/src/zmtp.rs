//! ZeroMQ's transport, in the role of a DEALER. Deliberately shares no code with the daemon's codec; the tests speak
//! with that.
//!
//! Spec: ZMTP 3.0, without security.

use std::net::{SocketAddr, TcpStream};

use crate::error::Error;
use crate::load::strange;
use crate::protocol;

/// More than any server has reason to send here; a larger frame means that the stream is out of step.
const FRAME_BYTES_MAX: u64 = 16 << 20;
const GREETING_BYTES: usize = 64;
/// Version 3.0, mechanism NULL.
const GREETING: &[u8; 32] = b"\xff\0\0\0\0\0\0\0\0\x7f\x03\0NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// One connection's side.
#[derive(Debug, Default)]
pub(crate) struct Dealer {
    greeted: bool,
}

/// What the server has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// A part of the handshake.
    Greeting,
    /// Messages may follow.
    Ready,
    Message(Message<'a>),
}

/// All frames of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
    /// The bodies of its frames.
    #[inline]
    pub(crate) fn parts(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (_, body, after) = frame(rest).ok()??;
            rest = after;
            Some(body)
        })
    }
}

impl Dealer {
    /// Appends the handshake. Messages must wait for the server's part of it.
    pub(crate) fn open(identity: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(GREETING);
        out.extend_from_slice(&[0; GREETING_BYTES - GREETING.len()]);
        let mut ready = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity".to_vec();
        ready.extend_from_slice(&u32::try_from(identity.len()).unwrap_or(0).to_be_bytes());
        ready.extend_from_slice(identity);
        put_frame(out, COMMAND, &ready);
    }

    /// The first event in `bytes` and the bytes after it, or `None` if more bytes are needed. [`Error::Protocol`].
    #[inline]
    pub(crate) fn read<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<Option<(Event<'a>, &'a [u8])>, Error> {
        if !self.greeted {
            let Some((greeting, rest)) = bytes.split_first_chunk::<GREETING_BYTES>() else {
                return Ok(None);
            };
            self.greeted = greeting.first() == Some(&0xff) && greeting.get(10) >= Some(&3);
            return if self.greeted {
                Ok(Some((Event::Greeting, rest)))
            } else {
                Err(strange(bytes))
            };
        }
        let mut rest = bytes;
        while let Some((flags, body, after)) = frame(rest)? {
            rest = after;
            if flags & COMMAND != 0 {
                return if body.starts_with(b"\x05READY") {
                    Ok(Some((Event::Ready, rest)))
                } else {
                    Err(strange(bytes))
                };
            }
            if flags & MORE == 0 {
                let whole = bytes
                    .split_at_checked(bytes.len() - rest.len())
                    .unwrap_or((bytes, b""))
                    .0;
                return Ok(Some((Event::Message(Message(whole)), rest)));
            }
        }
        Ok(None)
    }
}

/// Appends a message.
#[inline]
pub(crate) fn put<const PARTS: usize>(out: &mut Vec<u8>, parts: [&[u8]; PARTS]) {
    for (left, part) in (0..PARTS).rev().zip(parts) {
        put_frame(out, if left > 0 { MORE } else { 0 }, part);
    }
}

/// A connection for questions, after its handshake. [`Error::Io`], [`Error::Protocol`].
pub(crate) fn connect(addr: SocketAddr, identity: &[u8]) -> Result<TcpStream, Error> {
    let (mut stream, mut out) = (protocol::connect(addr)?, Vec::new());
    Dealer::open(identity, &mut out);
    protocol::ask(&mut stream, &out, |bytes| {
        let (mut dealer, mut rest) = (Dealer::default(), bytes);
        while let Some((event, after)) = dealer.read(rest)? {
            if event == Event::Ready {
                return Ok(Some(()));
            }
            rest = after;
        }
        Ok(None)
    })?;
    Ok(stream)
}

/// The answer to a question on a connection of its own. [`Error::Io`], [`Error::Protocol`].
pub(crate) fn question<T, const PARTS: usize>(
    admin: SocketAddr,
    identity: &[u8],
    parts: [&[u8]; PARTS],
    read: impl Fn(Message<'_>) -> Option<T>,
) -> Result<T, Error> {
    let mut out = Vec::new();
    put(&mut out, parts);
    protocol::ask(
        &mut connect(admin, identity)?,
        &out,
        |bytes| match (Dealer { greeted: true }).read(bytes)? {
            Some((Event::Message(message), _)) => {
                read(message).map(Some).ok_or_else(|| strange(bytes))
            }
            _ => Ok(None),
        },
    )
}

#[inline]
fn put_frame(out: &mut Vec<u8>, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(size) => out.extend_from_slice(&[flags, size]),
        Err(_) => {
            out.push(flags | LONG);
            out.extend_from_slice(&(body.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(body);
}

/// A frame's flags and body, and the bytes after it.
type Frame<'a> = (u8, &'a [u8], &'a [u8]);

/// The first frame.
#[inline]
fn frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, Error> {
    let (flags, size, rest) = match bytes {
        [flags, rest @ ..] if flags & LONG != 0 => {
            let Some((size, rest)) = rest.split_first_chunk() else {
                return Ok(None);
            };
            (*flags, u64::from_be_bytes(*size), rest)
        }
        [flags, size, rest @ ..] => (*flags, u64::from(*size), rest),
        _ => return Ok(None),
    };
    if flags > (MORE | LONG | COMMAND) || size > FRAME_BYTES_MAX {
        return Err(strange(bytes));
    }
    let cut = rest.split_at_checked(usize::try_from(size).unwrap_or(usize::MAX));
    Ok(cut.map(|(body, rest)| (flags, body, rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_any_size_are_read_wherever_they_are_cut() {
        let large = [7; 300];
        let mut bytes = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3];
        bytes.resize(GREETING_BYTES, 0);
        bytes.extend(b"\x04\x06\x05READY");
        put(&mut bytes, [&b""[..], &large, b"end"]);
        for piece in [1, 2, 7, 63, 64, 65, 1000] {
            let (mut dealer, mut carry, mut found) = (Dealer::default(), Vec::new(), Vec::new());
            for piece in bytes.chunks(piece) {
                carry.extend_from_slice(piece);
                while let Some((event, rest)) = dealer.read(&carry).unwrap() {
                    found.push(match event {
                        Event::Message(message) => message.parts().map(<[u8]>::to_vec).collect(),
                        Event::Greeting | Event::Ready => Vec::new(),
                    });
                    carry = rest.to_vec();
                }
            }
            assert_eq!(
                found,
                [
                    vec![],
                    vec![],
                    vec![vec![], large.to_vec(), b"end".to_vec()]
                ],
                "{piece}"
            );
        }
        let mut dealer = Dealer { greeted: true };
        for wrong in [
            &b"\x08\0"[..],
            b"\x02\xff\0\0\0\0\0\0\0",
            b"\x04\x05\x04PING",
        ] {
            assert!(dealer.read(wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }
}
