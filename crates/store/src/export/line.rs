//! A line of JSON: an object of numbers and strings.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

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
        STANDARD.encode_string(bytes, &mut self.text);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_the_rfc() {
        let encoded = |bytes: &[u8]| {
            let mut line = Line::default();
            line.base64("b", bytes);
            line.finish()
        };
        let table =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        for (bytes, letters) in table {
            assert_eq!(encoded(bytes.as_bytes()), format!("{{\"b\":\"{letters}\"}}\n"), "{bytes}");
        }
        assert_eq!(encoded(&[0xfb, 0xff, 0xfe]), "{\"b\":\"+//+\"}\n");
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
