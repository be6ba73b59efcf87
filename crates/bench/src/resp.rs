//! Replies in Redis's protocol, from slices. FWP has the same. No allocation per reply.
//!
//! Spec: Redis serialization protocol, version 2.

use crate::error::Error;
use crate::load::strange;

/// More than any server has reason to send here; a larger reply means that the stream is out of step.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// A reply. An error is none: the generator expects none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// `+…`
    Simple(&'a [u8]),
    /// `:n`
    Number(&'a [u8]),
    /// `$n` and the bytes.
    Bulk(&'a [u8]),
    /// `$-1`
    Null,
}

/// The first reply in `bytes` and the bytes after it, or `None` if more bytes are needed. [`Error::Protocol`] for an
/// error, and if the stream is out of step.
#[inline]
pub(crate) fn split(bytes: &[u8]) -> Result<Option<(Line<'_>, &[u8])>, Error> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() > REPLY_BYTES_MAX {
            Err(strange(bytes))
        } else {
            Ok(None)
        };
    };
    let (line, rest) = bytes.split_at_checked(end + 1).unwrap_or((bytes, b""));
    let line = line.strip_suffix(b"\r\n").ok_or_else(|| strange(bytes))?;
    match line.split_first() {
        Some((b'+', text)) => Ok(Some((Line::Simple(text), rest))),
        Some((b':', digits)) => Ok(Some((Line::Number(digits), rest))),
        Some((b'$', b"-1")) => Ok(Some((Line::Null, rest))),
        Some((b'$', digits)) => {
            let size = number(digits).and_then(|size| usize::try_from(size).ok());
            let size = size
                .filter(|size| *size <= REPLY_BYTES_MAX)
                .ok_or_else(|| strange(bytes))?;
            let Some((body, rest)) = rest.split_at_checked(size) else {
                return Ok(None);
            };
            match rest {
                [b'\r', b'\n', rest @ ..] => Ok(Some((Line::Bulk(body), rest))),
                [] | [b'\r'] => Ok(None),
                _ => Err(strange(bytes)),
            }
        }
        _ => Err(strange(bytes)),
    }
}

/// A number in decimal digits.
#[inline]
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies() {
        let cases: [(&[u8], Line<'_>); 5] = [
            (b"+OK\r\n", Line::Simple(b"OK")),
            (b":12\r\n", Line::Number(b"12")),
            (b"$-1\r\n", Line::Null),
            (b"$2\r\n{}\r\n", Line::Bulk(b"{}")),
            (b"$4\r\na\r\nb\r\n", Line::Bulk(b"a\r\nb")),
        ];
        for (bytes, expected) in cases {
            let more = [bytes, b"+"].concat();
            assert_eq!(
                split(&more).unwrap(),
                Some((expected, &b"+"[..])),
                "{}",
                bytes.escape_ascii()
            );
            for cut in 0..bytes.len() {
                assert_eq!(
                    split(&bytes[..cut]).unwrap(),
                    None,
                    "{}",
                    bytes[..cut].escape_ascii()
                );
            }
        }
        for wrong in [
            &b"OK\r\n"[..],
            b"+OK\n",
            b"-ERR no\r\n",
            b"$x\r\n",
            b"$99999999999\r\n",
            b"$1\r\nab\r\n",
            b"\r\n",
        ] {
            assert!(split(wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }
}
