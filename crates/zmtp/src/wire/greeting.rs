//! The first 64 bytes of either side: signature, version and security mechanism.
//!
//! Spec: RFC 37, "Version Negotiation"; RFC 15 for ZMTP 2.0. The first 11 bytes of either side decide the version. A
//! server sends only those until it has the peer's, because the byte after them has another meaning in 2.0.

use bytes::{BufMut, BytesMut};

/// Bytes of a greeting.
pub const GREETING_BYTES: usize = 64;
/// The longest name of a mechanism.
pub const MECHANISM_BYTES_MAX: usize = 20;

/// The first byte of every greeting.
const SIGNATURE: u8 = 0xFF;
/// Offset of the byte whose lowest bit separates ZMTP 2 and later from a long frame of ZMTP 1.0.
const VERSIONED_AT: usize = 9;
const MAJOR_AT: usize = 10;
/// Bytes of the signature and the major version. Every version since 2.0 has them.
pub const SIGNATURE_BYTES: usize = MAJOR_AT + 1;
/// Our version.
const VERSION: [u8; 2] = [3, 1];

/// The greeting of one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Major and minor version.
    pub version: [u8; 2],
    /// The mechanism's name, padded with NUL.
    pub mechanism: [u8; MECHANISM_BYTES_MAX],
    /// Whether the sender is the server of the mechanism.
    pub as_server: bool,
}

/// Why a greeting cannot be accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GreetingError {
    /// The first byte is not that of a greeting.
    #[error("first byte is {byte:#04x}, not that of a greeting")]
    NotZmtp {
        /// The first byte.
        byte: u8,
    },
    /// ZMTP 1.0, which has no version number.
    #[error("peer speaks ZMTP 1.0")]
    Unversioned,
    /// A version between 1.0 and 2.0. None was released.
    #[error("peer's version byte is {major}, at least 1 is needed")]
    Version {
        /// The byte.
        major: u8,
    },
}

/// The version that the first [`SIGNATURE_BYTES`] of a peer announce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Revision {
    /// ZMTP 2.0, the bytes 1 and 2: a socket type and an identity follow.
    V2,
    /// ZMTP 3.0 and later: the rest of the [`Greeting`] follows.
    V3,
}

impl Greeting {
    /// Our greeting with this mechanism. A name longer than [`MECHANISM_BYTES_MAX`] is cut.
    pub fn new(mechanism: &[u8], as_server: bool) -> Self {
        let mut name = [0; MECHANISM_BYTES_MAX];
        name.iter_mut()
            .zip(mechanism)
            .for_each(|(to, from)| *to = *from);
        Self {
            version: VERSION,
            mechanism: name,
            as_server,
        }
    }

    /// Whether a ZMTP connection may begin with this byte: an address can serve a bare protocol, too.
    pub const fn is_begun_by(first: u8) -> bool {
        first == SIGNATURE
    }

    /// The version of a peer whose bytes begin with `input`; `None` until it is known. An invalid byte is reported as
    /// soon as it has come.
    ///
    /// # Errors
    /// The connection must be closed.
    pub fn revision(input: &[u8]) -> Result<Option<Revision>, GreetingError> {
        match input.first() {
            Some(&byte) if !Self::is_begun_by(byte) => return Err(GreetingError::NotZmtp { byte }),
            _ => {}
        }
        if input.get(VERSIONED_AT).is_some_and(|byte| byte & 1 == 0) {
            return Err(GreetingError::Unversioned);
        }
        match input.get(MAJOR_AT) {
            None => Ok(None),
            Some(&major @ 0) => Err(GreetingError::Version { major }),
            Some(1 | 2) => Ok(Some(Revision::V2)),
            Some(_) => Ok(Some(Revision::V3)),
        }
    }

    /// The greeting of a peer of [`Revision::V3`] at the front of `input`; `None` until all of it has come.
    pub fn decode(input: &[u8]) -> Option<Self> {
        let (version, rest) = input.get(MAJOR_AT..GREETING_BYTES)?.split_first_chunk()?;
        let (mechanism, rest) = rest.split_first_chunk()?;
        let as_server = rest.first().is_some_and(|byte| *byte == 1);
        Some(Self {
            version: *version,
            mechanism: *mechanism,
            as_server,
        })
    }

    /// Appends the first [`SIGNATURE_BYTES`].
    pub fn encode_signature(out: &mut BytesMut) {
        let [major, _] = VERSION;
        out.put_u8(SIGNATURE);
        out.put_bytes(0, 8);
        out.put_slice(&[0x7F, major]);
    }

    /// Appends all 64 bytes, for a side that does not speak 2.0.
    pub fn encode(&self, out: &mut BytesMut) {
        Self::encode_signature(out);
        self.encode_rest(out);
    }

    /// Appends the bytes after the signature, for a peer of [`Revision::V3`].
    pub fn encode_rest(&self, out: &mut BytesMut) {
        let [_, minor] = self.version;
        out.reserve(GREETING_BYTES - SIGNATURE_BYTES);
        out.put_u8(minor);
        out.put_slice(&self.mechanism);
        out.put_u8(self.as_server.into());
        out.put_bytes(0, 31);
    }

    /// The mechanism's name as text, for the log.
    pub fn mechanism_text(&self) -> String {
        let end = self
            .mechanism
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(MECHANISM_BYTES_MAX);
        self.mechanism
            .get(..end)
            .unwrap_or_default()
            .escape_ascii()
            .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Vec<u8> {
        let mut out = BytesMut::new();
        Greeting::new(b"NULL", false).encode(&mut out);
        out.to_vec()
    }

    #[test]
    fn a_greeting_is_encoded_and_decoded() {
        let text = format!("ff00000000000000007f03014e554c4c{}", "00".repeat(48));
        assert_eq!(hex::encode(ours()), text);
        let mut plain = BytesMut::new();
        Greeting::new(b"PLAIN", true).encode(&mut plain);
        let text = format!(
            "ff00000000000000007f0301504c41494e{}01{}",
            "00".repeat(15),
            "00".repeat(31)
        );
        assert_eq!(hex::encode(&plain), text);
    }

    #[test]
    fn a_greeting_is_whole_only_with_its_last_byte() {
        let bytes = ours();
        for end in 0..GREETING_BYTES {
            assert_eq!(Greeting::decode(&bytes[..end]), None, "{end} bytes");
            let told = (end >= SIGNATURE_BYTES).then_some(Revision::V3);
            assert_eq!(Greeting::revision(&bytes[..end]), Ok(told), "{end} bytes");
        }
        let greeting = Greeting::decode(&bytes).unwrap();
        assert_eq!(greeting, Greeting::new(b"NULL", false));
        assert_eq!(greeting.mechanism_text(), "NULL");
    }

    #[test]
    fn greetings_of_other_versions() {
        let with = |at: usize, byte: u8| {
            let mut bytes = ours();
            bytes[at] = byte;
            bytes
        };
        let table = [
            ("nothing yet", vec![], Ok(None)),
            ("libzmq's padding", with(8, 1), Ok(Some(Revision::V3))),
            ("a later minor version", with(11, 9), Ok(Some(Revision::V3))),
            ("a later major version", with(10, 4), Ok(Some(Revision::V3))),
            ("3.0", with(11, 0), Ok(Some(Revision::V3))),
            (
                "something in the filler",
                with(63, 7),
                Ok(Some(Revision::V3)),
            ),
            (
                "spiderq's ping",
                vec![0x0B],
                Err(GreetingError::NotZmtp { byte: 0x0B }),
            ),
            (
                "TLS",
                vec![0x16, 3, 1],
                Err(GreetingError::NotZmtp { byte: 0x16 }),
            ),
            (
                "a long frame of 1.0",
                hex::decode("ff0000000000000001007e").unwrap(),
                Err(GreetingError::Unversioned),
            ),
            (
                "nothing that was ever released",
                with(10, 0),
                Err(GreetingError::Version { major: 0 }),
            ),
            (
                "2.0",
                hex::decode("ff00000000000000017f01").unwrap(),
                Ok(Some(Revision::V2)),
            ),
            ("2.1", with(10, 2), Ok(Some(Revision::V2))),
        ];
        for (name, bytes, expected) in table {
            assert_eq!(Greeting::revision(&bytes), expected, "{name}");
        }
    }
}
