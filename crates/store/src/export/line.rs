//! A line of JSON: an object of numbers and strings.

use crate::record::Record;

/// One line.
#[derive(Debug, Default)]
pub(super) struct Line {
    text: String,
}

impl Line {
    fn name(&mut self, name: &str) {
        self.text.push(if self.text.is_empty() { '{' } else { ',' });
        self.string(name);
        self.text.push(':');
    }

    pub(super) fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        self.text.push_str(&value.to_string());
    }

    pub(super) fn text(&mut self, name: &str, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                self.name(name);
                self.string(text);
            }
            Err(_) => self.base64(&format!("{name}_base64"), bytes),
        }
    }

    pub(super) fn base64(&mut self, name: &str, bytes: &[u8]) {
        self.name(name);
        self.text.push('"');
        bytes.chunks(3).for_each(|three| self.text.extend(four_letters(three)));
        self.text.push('"');
    }

    pub(super) fn record(&mut self, record: &Record) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        self.base64("record_base64", &bytes);
    }

    fn string(&mut self, text: &str) {
        self.text.push('"');
        for letter in text.chars() {
            match letter {
                '"' | '\\' => self.text.extend(['\\', letter]),
                '\0'..='\x1f' => self.text.push_str(&format!("\\u{:04x}", u32::from(letter))),
                _ => self.text.push(letter),
            }
        }
        self.text.push('"');
    }

    pub(super) fn finish(mut self) -> String {
        self.text.push_str("}\n");
        self.text
    }
}

/// Encodes three bytes as four letters of base64 (RFC 4648), fewer bytes padded.
fn four_letters(bytes: &[u8]) -> [char; 4] {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = (0..3).fold(0, |bits, i| bits << 8 | u32::from(bytes.get(i).copied().unwrap_or_default()));
    [0, 1, 2, 3].map(|i| {
        let letter = LETTERS.get((bits >> (18 - 6 * i) & 63) as usize).copied().unwrap_or_default();
        if i as usize <= bytes.len() { char::from(letter) } else { '=' }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_the_rfc() {
        let table =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        for (bytes, letters) in table {
            let encoded: String = bytes.as_bytes().chunks(3).flat_map(four_letters).collect();
            assert_eq!(encoded, letters, "{bytes}");
        }
        assert_eq!(four_letters(&[0xfb, 0xff, 0xfe]).iter().collect::<String>(), "+//+");
    }

    #[test]
    fn names_of_every_kind() {
        let mut line = Line::default();
        line.number("n", 7);
        line.text("plain", b"a \"b\" \\ \n \xc3\xa9");
        line.text("raw", b"\xff\xfe");
        assert_eq!(line.finish(), "{\"n\":7,\"plain\":\"a \\\"b\\\" \\\\ \\u000a \u{e9}\",\"raw_base64\":\"//4=\"}\n");
    }
}
