//! Job handles: `prefix:number`.
//!
//! Spec: `PROTOCOL`, "Binary Packet" (64 bytes with the NUL) and its example `H:lap:1`.

use std::fmt;
use std::ops::Deref;

use super::{HANDLE_BYTES_MAX, HANDLE_PREFIX_BYTES_MAX};

/// The beginning of every handle of this server, such as `H:lap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandlePrefix {
    /// The prefix and its colon.
    start: Handle,
}

/// Why a configured prefix cannot be used: it is empty, too long to leave room for a large number, or contains a NUL,
/// blank or control byte, which would cut handles short on the wire or on a text line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HandlePrefixError(pub(super) String);

impl HandlePrefix {
    /// A configured prefix, without the colon that follows it.
    ///
    /// # Errors
    /// It is empty, longer than [`HANDLE_PREFIX_BYTES_MAX`], or contains blanks or control bytes.
    pub fn new(prefix: &[u8]) -> Result<Self, HandlePrefixError> {
        let bytes = prefix.len();
        match prefix.iter().position(|byte| !fits_in_handle(*byte)) {
            _ if bytes == 0 => Err(HandlePrefixError("handle prefix is empty".to_owned())),
            _ if bytes > HANDLE_PREFIX_BYTES_MAX => {
                let text =
                    format!("handle prefix of {bytes} bytes, {HANDLE_PREFIX_BYTES_MAX} allowed");
                Err(HandlePrefixError(text))
            }
            Some(offset) => {
                let byte = prefix.get(offset).copied().unwrap_or_default();
                Err(HandlePrefixError(format!(
                    "byte {byte:#04x} at offset {offset} of the handle prefix"
                )))
            }
            None => {
                let mut start = Handle {
                    bytes: [0; HANDLE_BYTES_MAX],
                    len: 0,
                };
                [prefix, b":"]
                    .into_iter()
                    .for_each(|part| start.extend(part));
                Ok(Self { start })
            }
        }
    }

    /// The handle with this number.
    pub fn handle(&self, number: u64) -> Handle {
        let mut handle = self.start;
        handle.extend(itoa::Buffer::new().format(number).as_bytes());
        handle
    }

    /// The number of a handle that has this prefix. Accepts one NUL after it, because clients send that. `None` for a
    /// leading zero or sign, or a number beyond 64 bits.
    pub fn parse(&self, handle: &[u8]) -> Option<u64> {
        let handle = handle.strip_suffix(b"\0").unwrap_or(handle);
        let digits = handle.strip_prefix(&*self.start)?;
        if digits.is_empty() || (digits.len() > 1 && digits.first() == Some(&b'0')) {
            return None;
        }
        digits.iter().try_fold(0u64, |number, byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            number.checked_mul(10)?.checked_add(digit)
        })
    }
}

fn fits_in_handle(byte: u8) -> bool {
    byte > b' ' && byte != 0x7f
}

/// A handle, kept inline; dereferences to its bytes, without a NUL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Handle {
    /// Zeros behind the handle.
    bytes: [u8; HANDLE_BYTES_MAX],
    len: usize,
}

impl Handle {
    /// Prefix and number have bounded lengths, so no byte is ever dropped.
    fn extend(&mut self, part: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + part.len()) {
            place.copy_from_slice(part);
            self.len += part.len();
        }
    }
}

impl Deref for Handle {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.escape_ascii())
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
