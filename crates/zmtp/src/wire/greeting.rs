//! The first 64 bytes of either side: that it is ZMTP, which version, and which security mechanism.
//!
//! Spec: RFC 37, "Version Negotiation". libzmq sends 10 bytes, waits for the other side's, then one more, then the rest,
//! so a greeting is judged as it comes and ours must not wait for it to be whole.

use bytes::{BufMut, BytesMut};

/// Bytes of a greeting.
pub const GREETING_BYTES: usize = 64;
/// The longest name of a mechanism.
pub const MECHANISM_BYTES_MAX: usize = 20;

/// The first byte of every greeting.
const SIGNATURE: u8 = 0xFF;
/// The byte that tells ZMTP 2 and later from a long frame of ZMTP 1.0, by its lowest bit.
const VERSIONED_AT: usize = 9;
const MAJOR_AT: usize = 10;
/// The version spoken here.
const VERSION: [u8; 2] = [3, 1];

/// What one side says first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Major and minor version.
    pub version: [u8; 2],
    /// The mechanism's name, filled up with NUL.
    pub mechanism: [u8; MECHANISM_BYTES_MAX],
    /// Whether the sender is the server of the mechanism.
    pub as_server: bool,
}

/// No conversation can come of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GreetingError {
    /// It does not begin like a greeting.
    #[error("first byte is {byte:#04x}, not that of a greeting")]
    NotZmtp {
        /// How it begins.
        byte: u8,
    },
    /// ZMTP 1.0, which had no version.
    #[error("peer speaks ZMTP 1.0")]
    Unversioned,
    /// A version before 3.
    #[error("peer's version byte is {major}, 3 is needed")]
    Version {
        /// The byte; 1 is that of ZMTP 2.0.
        major: u8,
    },
}

impl Greeting {
    /// Ours, with this mechanism; what is longer than [`MECHANISM_BYTES_MAX`] is cut.
    #[must_use]
    pub fn new(mechanism: &[u8], as_server: bool) -> Self {
        let mut name = [0; MECHANISM_BYTES_MAX];
        name.iter_mut().zip(mechanism).for_each(|(to, from)| *to = *from);
        Self { version: VERSION, mechanism: name, as_server }
    }

    /// Whether a connection that begins with this byte may be ZMTP at all. No request of bare spiderq begins so.
    #[must_use]
    pub const fn is_begun_by(first: u8) -> bool {
        first == SIGNATURE
    }

    /// The greeting at the front of `input`; `None` while it is not all there. What is wrong is noticed with the byte
    /// that is.
    ///
    /// # Errors
    /// The connection is to be closed.
    pub fn decode(input: &[u8]) -> Result<Option<Self>, GreetingError> {
        match input.first() {
            Some(&byte) if !Self::is_begun_by(byte) => return Err(GreetingError::NotZmtp { byte }),
            _ => {}
        }
        if input.get(VERSIONED_AT).is_some_and(|byte| byte & 1 == 0) {
            return Err(GreetingError::Unversioned);
        }
        if let Some(&major) = input.get(MAJOR_AT).filter(|major| **major < 3) {
            return Err(GreetingError::Version { major });
        }
        let Some((version, rest)) = input.get(MAJOR_AT..GREETING_BYTES).and_then(<[u8]>::split_first_chunk) else {
            return Ok(None);
        };
        let Some((mechanism, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let as_server = rest.first().is_some_and(|byte| *byte == 1);
        Ok(Some(Self { version: *version, mechanism: *mechanism, as_server }))
    }

    /// Appends the 64 bytes.
    pub fn encode(&self, out: &mut BytesMut) {
        out.reserve(GREETING_BYTES);
        out.put_u8(SIGNATURE);
        out.put_bytes(0, 8);
        out.put_u8(0x7F);
        out.put_slice(&self.version);
        out.put_slice(&self.mechanism);
        out.put_u8(self.as_server.into());
        out.put_bytes(0, 31);
    }

    /// The mechanism's name as text, for whoever reads the log.
    #[must_use]
    pub fn mechanism_text(&self) -> String {
        let end = self.mechanism.iter().position(|byte| *byte == 0).unwrap_or(MECHANISM_BYTES_MAX);
        self.mechanism.get(..end).unwrap_or_default().escape_ascii().to_string()
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
    fn its_bytes() {
        let text = format!("ff00000000000000007f03014e554c4c{}", "00".repeat(48));
        assert_eq!(hex::encode(ours()), text);
        let mut plain = BytesMut::new();
        Greeting::new(b"PLAIN", true).encode(&mut plain);
        let text = format!("ff00000000000000007f0301504c41494e{}01{}", "00".repeat(15), "00".repeat(31));
        assert_eq!(hex::encode(&plain), text);
    }

    #[test]
    fn whole_only_with_its_last_byte() {
        let bytes = ours();
        for end in 0..GREETING_BYTES {
            assert_eq!(Greeting::decode(&bytes[..end]), Ok(None), "{end} bytes");
        }
        let greeting = Greeting::decode(&bytes).unwrap().unwrap();
        assert_eq!(greeting, Greeting::new(b"NULL", false));
        assert_eq!(greeting.mechanism_text(), "NULL");
    }

    #[test]
    fn what_others_say() {
        let with = |at: usize, byte: u8| {
            let mut bytes = ours();
            bytes[at] = byte;
            bytes
        };
        let table = [
            ("nothing yet", vec![], Ok(false)),
            ("libzmq's padding", with(8, 1), Ok(true)),
            ("a later minor version", with(11, 9), Ok(true)),
            ("a later major version", with(10, 4), Ok(true)),
            ("3.0", with(11, 0), Ok(true)),
            ("something in the filler", with(63, 7), Ok(true)),
            ("spiderq's ping", vec![0x0B], Err(GreetingError::NotZmtp { byte: 0x0B })),
            ("TLS", vec![0x16, 3, 1], Err(GreetingError::NotZmtp { byte: 0x16 })),
            ("a long frame of 1.0", hex::decode("ff0000000000000001007e").unwrap(), Err(GreetingError::Unversioned)),
            ("2.0", hex::decode("ff00000000000000017f01").unwrap(), Err(GreetingError::Version { major: 1 })),
            ("2.1", with(10, 2), Err(GreetingError::Version { major: 2 })),
        ];
        for (name, bytes, expected) in table {
            assert_eq!(Greeting::decode(&bytes).map(|greeting| greeting.is_some()), expected, "{name}");
        }
    }
}
