//! A peer's metadata at the end of the handshake: names and values.
//!
//! Spec: RFC 37, "Connection Metadata". Names are case-insensitive. If a name comes twice, the last value counts.

use bytes::{BufMut, Bytes, BytesMut};

use super::Malformed;
use super::command::short_string;

const SOCKET_TYPE: &[u8] = b"Socket-Type";
const IDENTITY: &[u8] = b"Identity";

/// Bytes of a property beside its name and its value.
const PROPERTY_BYTES: usize = 5;

/// Maximum number of a peer's other properties: those without a meaning here.
const OTHERS_MAX: usize = 64;

/// Properties of one peer. They own their bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Metadata {
    /// The peer's pattern; `None` if it is missing or unknown.
    pub socket_type: Option<SocketType>,
    /// The identity the peer asks for; empty if it does not ask for one.
    pub identity: Bytes,
    /// All other properties, in order.
    pub others: Vec<(Bytes, Bytes)>,
}

/// A socket type that can talk to one of our roles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketType {
    /// Sends a request and waits for the answer.
    Req = 3,
    /// Answers requests one after another.
    Rep = 4,
    /// Sends requests without waiting.
    Dealer = 5,
    /// Addresses its answers to any peer.
    Router = 6,
    /// Publishes to all subscribers.
    Pub = 1,
    /// Publishes, and receives subscriptions.
    XPub = 9,
    /// Subscribes.
    Sub = 2,
    /// Subscribes on behalf of others.
    XSub = 10,
}

impl SocketType {
    const ALL: [Self; 8] = [
        Self::Req,
        Self::Rep,
        Self::Dealer,
        Self::Router,
        Self::Pub,
        Self::XPub,
        Self::Sub,
        Self::XSub,
    ];

    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Req => "REQ",
            Self::Rep => "REP",
            Self::Dealer => "DEALER",
            Self::Router => "ROUTER",
            Self::Pub => "PUB",
            Self::XPub => "XPUB",
            Self::Sub => "SUB",
            Self::XSub => "XSUB",
        }
    }

    /// The type with this number in the greeting of ZMTP 2.0. `None` for types that cannot talk to ours.
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Its number in the greeting of ZMTP 2.0.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The type with this name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name().as_bytes() == name)
    }
}

impl Metadata {
    /// Reads properties to the end of `data`.
    ///
    /// # Errors
    /// A property is cut short or has no name, or there are too many.
    pub fn parse(mut data: &[u8]) -> Result<Self, Malformed> {
        let mut metadata = Self::default();
        while !data.is_empty() {
            let (name, value, rest) = property(data).ok_or(Malformed { what: "metadata" })?;
            metadata.set(name, value);
            if metadata.others.len() > OTHERS_MAX {
                return Err(Malformed { what: "metadata" });
            }
            data = rest;
        }
        Ok(metadata)
    }

    fn set(&mut self, name: &[u8], value: &[u8]) {
        if name.eq_ignore_ascii_case(SOCKET_TYPE) {
            self.socket_type = SocketType::named(value);
        } else if name.eq_ignore_ascii_case(IDENTITY) {
            self.identity = Bytes::copy_from_slice(value);
        } else {
            self.others
                .push((Bytes::copy_from_slice(name), Bytes::copy_from_slice(value)));
        }
    }

    fn properties(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let socket_type = self
            .socket_type
            .map(|kind| (SOCKET_TYPE, kind.name().as_bytes()));
        let others = self.others.iter().map(|(name, value)| (&**name, &**value));
        socket_type
            .into_iter()
            .chain([(IDENTITY, &*self.identity)])
            .chain(others)
    }

    pub(super) fn encoded_bytes(&self) -> usize {
        self.properties()
            .map(|(name, value)| PROPERTY_BYTES + name.len() + value.len())
            .sum()
    }

    /// Appends the properties. Names are limited to 255 bytes and values to 4 GiB by the wire format.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        for (name, value) in self.properties() {
            out.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
            out.put_slice(name);
            out.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
            out.put_slice(value);
        }
    }
}

fn property(data: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (name, rest) = short_string(data).filter(|(name, _)| !name.is_empty())?;
    let (value_bytes, rest) = rest.split_first_chunk()?;
    let (value, rest) =
        rest.split_at_checked(usize::try_from(u32::from_be_bytes(*value_bytes)).ok()?)?;
    Some((name, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(metadata: &Metadata) -> BytesMut {
        let mut out = BytesMut::new();
        metadata.encode(&mut out);
        assert_eq!(out.len(), metadata.encoded_bytes());
        out
    }

    #[test]
    fn metadata_of_libzmq_is_parsed() {
        let bytes = b"\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\x02w1";
        let metadata = Metadata {
            socket_type: Some(SocketType::Dealer),
            identity: Bytes::from_static(b"w1"),
            others: Vec::new(),
        };
        assert_eq!(Metadata::parse(bytes), Ok(metadata.clone()));
        assert_eq!(encoded(&metadata), &bytes[..]);
    }

    #[test]
    fn names_are_case_insensitive_and_the_last_value_counts() {
        let metadata = Metadata::parse(
            b"\x08IDENTITY\0\0\0\x01a\x08identity\0\0\0\0\x0bsocket-type\0\0\0\x03REQ",
        )
        .unwrap();
        assert_eq!(
            (metadata.socket_type, &*metadata.identity),
            (Some(SocketType::Req), &b""[..])
        );
    }

    #[test]
    fn other_properties_are_kept() {
        let bytes = b"\x08Identity\0\0\0\0\x03X-a\0\0\0\x01b\x03X-c\0\0\0\0";
        let metadata = Metadata::parse(bytes).unwrap();
        assert_eq!(
            metadata.others,
            [("X-a".into(), "b".into()), ("X-c".into(), "".into())]
        );
        assert_eq!(encoded(&metadata), &bytes[..]);
    }

    #[test]
    fn an_unknown_socket_type_is_none() {
        for name in ["PUSH", "dealer", ""] {
            assert_eq!(SocketType::named(name.as_bytes()), None, "{name}");
        }
        for kind in SocketType::ALL {
            assert_eq!(SocketType::named(kind.name().as_bytes()), Some(kind));
        }
    }

    #[test]
    fn metadata_cut_short_is_malformed() {
        let bytes = b"\x03X-a\0\0\0\x02bc";
        assert_eq!(Metadata::parse(&[]), Ok(Metadata::default()));
        for end in 1..bytes.len() {
            assert_eq!(
                Metadata::parse(&bytes[..end]),
                Err(Malformed { what: "metadata" }),
                "{end} bytes"
            );
        }
        assert!(Metadata::parse(&b"\x01a\0\0\0\0".repeat(OTHERS_MAX)).is_ok());
        assert!(
            Metadata::parse(&b"\x01a\0\0\0\0".repeat(OTHERS_MAX + 1)).is_err(),
            "too many"
        );
        assert!(
            Metadata::parse(b"\x00\0\0\0\x01b").is_err(),
            "a property without a name"
        );
        assert!(
            Metadata::parse(b"\x01a\xff\xff\xff\xff").is_err(),
            "a value of 4 GiB"
        );
    }
}
