//! A cursor over JSON's tokens: blanks, marks and strings. Invalid UTF-8 is passed on unchanged.

/// The position of the cursor. After an error, [`Scanner::at`] is its offset.
#[derive(Debug)]
pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

/// The token is not the expected one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unexpected;

impl<'a> Scanner<'a> {
    pub(super) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Bytes read so far.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// The next byte that is not a blank; `None` at the end.
    pub(super) fn peek(&mut self) -> Option<u8> {
        let blanks = self
            .rest()
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
            .count();
        self.at += blanks;
        self.rest().first().copied()
    }

    /// Reads a byte if it is this one.
    pub(super) fn takes(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Reads a byte that must be this one.
    pub(super) fn take(&mut self, byte: u8) -> Result<(), Unexpected> {
        if self.takes(byte) {
            Ok(())
        } else {
            Err(Unexpected)
        }
    }

    /// Reads a number or a word: letters, digits, signs and points.
    pub(super) fn word(&mut self) -> &'a [u8] {
        self.peek();
        let rest = self.rest();
        let is_in = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        let (word, _) = rest.split_at(rest.iter().take_while(is_in).count());
        self.at += word.len();
        word
    }

    /// Reads a string in these quotes and resolves its escapes. Half of a surrogate pair becomes three bytes, as if it
    /// were a character, so that different strings remain different.
    pub(super) fn string(&mut self, quote: u8) -> Result<Vec<u8>, Unexpected> {
        self.take(quote)?;
        let mut text = Vec::new();
        loop {
            match self.byte()? {
                byte if byte == quote => return Ok(text),
                b'\\' => self.escape(&mut text)?,
                0..0x20 => return Err(Unexpected),
                byte => text.push(byte),
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), Unexpected> {
        let byte = match self.byte()? {
            byte @ (b'"' | b'\'' | b'\\' | b'/') => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.unicode(text),
            _ => return Err(Unexpected),
        };
        text.push(byte);
        Ok(())
    }

    fn unicode(&mut self, text: &mut Vec<u8>) -> Result<(), Unexpected> {
        let first = self.hex4()?;
        let behind = self.at;
        if (0xd800..0xdc00).contains(&first) && self.rest().starts_with(b"\\u") {
            self.at += 2;
            match self.hex4()? {
                second @ 0xdc00..0xe000 => {
                    put(
                        0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                        text,
                    );
                    return Ok(());
                }
                _ => self.at = behind,
            }
        }
        put(first, text);
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, Unexpected> {
        let mut value = 0;
        for _ in 0..4 {
            value = value << 4 | char::from(self.byte()?).to_digit(16).ok_or(Unexpected)?;
        }
        Ok(value)
    }

    fn byte(&mut self) -> Result<u8, Unexpected> {
        let byte = self.rest().first().copied().ok_or(Unexpected)?;
        self.at += 1;
        Ok(byte)
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }
}

/// Appends a code point as UTF-8, halves of surrogate pairs too.
fn put(code: u32, text: &mut Vec<u8>) {
    if let Some(whole) = char::from_u32(code) {
        return text.extend_from_slice(whole.encode_utf8(&mut [0; 4]).as_bytes());
    }
    let six = |shift: u32| u8::try_from(code >> shift & 0x3f).unwrap_or_default();
    text.extend_from_slice(&[0xe0 | six(12), 0x80 | six(6), 0x80 | six(0)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings() {
        let table: [(&[u8], &[u8]); 9] = [
            (b"\"\"", b""),
            (b" \"a b\"", b"a b"),
            (b"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", b"\"\\/\x08\x0c\n\r\t"),
            (b"\"\\u00e9\xc3\xa9\"", "éé".as_bytes()),
            (b"\"\\ud83d\\ude00\"", "😀".as_bytes()),
            (b"\"\\ud83d\"", b"\xed\xa0\xbd"),
            (b"\"\\ud83d\\u0041\"", b"\xed\xa0\xbdA"),
            (b"\"\\ude00\\ud83d\"", b"\xed\xb8\x80\xed\xa0\xbd"),
            (b"\"\xff\x80\"", b"\xff\x80"),
        ];
        for (text, expected) in table {
            let mut from = Scanner::new(text);
            assert_eq!(
                from.string(b'"').as_deref(),
                Ok(expected),
                "{}",
                text.escape_ascii()
            );
            assert_eq!((from.at(), from.peek()), (text.len(), None));
        }
        for bad in [
            "",
            "\"",
            "a",
            "\"\\",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\ud83d\\u1\"",
            "\"\n\"",
            "'a'",
        ] {
            assert_eq!(
                Scanner::new(bad.as_bytes()).string(b'"'),
                Err(Unexpected),
                "{bad}"
            );
        }
    }
}
