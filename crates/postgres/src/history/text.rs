//! Bytes in columns of text. A client may send anything as a name or a body, and text in PostgreSQL has no NUL and nothing
//! that is not in its encoding.
//!
//! What is text there is written as it is, so that everybody can read it. Anything else begins with [`MARK`], and goes on
//! in PostgreSQL's format `escape`: a backslash is doubled, and a byte that has no place is a backslash and three octal
//! digits. Equal bytes are equal texts, so they can be compared and indexed, and text that is among other bytes is found.

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;

/// What begins with it is not as the client sent it.
const MARK: &str = "\\bytes:";

/// The encoding of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// All characters.
    Utf8,
    /// Another one, of which only ASCII is taken for granted.
    Other,
}

impl Encoding {
    /// By PostgreSQL's name of it.
    pub(super) fn named(name: &str) -> Self {
        if name == "UTF8" {
            Self::Utf8
        } else {
            Self::Other
        }
    }

    /// Bytes as text.
    pub(super) fn text(self, bytes: &[u8]) -> Cow<'_, str> {
        match std::str::from_utf8(bytes) {
            Ok(text) if self.is_plain(text) => Cow::Borrowed(text),
            Ok(_) | Err(_) => Cow::Owned(self.escaped(bytes)),
        }
    }

    fn is_plain(self, text: &str) -> bool {
        !text.contains('\0') && !text.starts_with(MARK) && (self == Self::Utf8 || text.is_ascii())
    }

    fn escaped(self, bytes: &[u8]) -> String {
        let mut out = MARK.to_owned();
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => out.push_str("\\\\"),
                    '\0' => octal(&[0], &mut out),
                    c if c.is_ascii() || self == Self::Utf8 => out.push(c),
                    c => octal(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut out),
                }
            }
            octal(chunk.invalid(), &mut out);
        }
        out
    }
}

fn octal(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        // Writing to a String does not fail.
        let _ = write!(out, "\\{byte:03o}");
    }
}

/// The inverse of [`Encoding::text`], whatever the encoding was.
pub(super) fn bytes(text: &str) -> Bytes {
    let Some(mut rest) = text.strip_prefix(MARK).map(str::as_bytes) else {
        return Bytes::copy_from_slice(text.as_bytes());
    };
    let mut out = Vec::with_capacity(rest.len());
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let digits = behind.get(..3).and_then(|it| std::str::from_utf8(it).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(byte.unwrap_or(b'\\'));
        let used = if byte.is_some() { 3 } else { 1 };
        rest = behind.get(used..).unwrap_or_default();
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_they_were_written_and_text_stays_text() {
        let table: [(&[u8], &str, &str); 9] = [
            (b"", "", ""),
            (b"App\\Jobs\\Mail", "App\\Jobs\\Mail", "App\\Jobs\\Mail"),
            (b"tab\tline\n", "tab\tline\n", "tab\tline\n"),
            ("é".as_bytes(), "é", "\\bytes:\\303\\251"),
            (b"a\0b", "\\bytes:a\\000b", "\\bytes:a\\000b"),
            (b"a\\\xff1", "\\bytes:a\\\\\\3771", "\\bytes:a\\\\\\3771"),
            (b"\xfe\\377", "\\bytes:\\376\\\\377", "\\bytes:\\376\\\\377"),
            (
                "é\0".as_bytes(),
                "\\bytes:é\\000",
                "\\bytes:\\303\\251\\000",
            ),
            (b"\\bytes:a", "\\bytes:\\\\bytes:a", "\\bytes:\\\\bytes:a"),
        ];
        for (sent, utf8, other) in table {
            assert_eq!(Encoding::Utf8.text(sent), utf8);
            assert_eq!(Encoding::Other.text(sent), other);
            assert_eq!((bytes(utf8), bytes(other)), (sent.into(), sent.into()));
        }
    }

    #[test]
    fn all_bytes_survive_in_any_order() {
        for step in [1, 7, 101] {
            let sent: Vec<u8> = (0..2_048_u32)
                .map(|n| (n * step).to_le_bytes()[0])
                .collect();
            for encoding in [Encoding::Utf8, Encoding::Other] {
                assert_eq!(bytes(&encoding.text(&sent)), sent);
            }
        }
    }
}
