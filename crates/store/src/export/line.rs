//! A line of JSON: an object with numbers and strings.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::record::Record;

/// A line.
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

    pub(super) fn number(mut self, name: &str, value: impl Into<Option<u64>>) -> Self {
        if let Some(value) = value.into() {
            self.name(name);
            self.text.push_str(&value.to_string());
        }
        self
    }

    pub(super) fn text<'t>(mut self, name: &str, bytes: impl Into<Option<&'t [u8]>>) -> Self {
        let Some(bytes) = bytes.into() else {
            return self;
        };
        let Ok(text) = std::str::from_utf8(bytes) else {
            return self.base64(&format!("{name}_base64"), bytes);
        };
        self.name(name);
        self.string(text);
        self
    }

    pub(super) fn base64<'t>(mut self, name: &str, bytes: impl Into<Option<&'t [u8]>>) -> Self {
        if let Some(bytes) = bytes.into() {
            self.name(name);
            self.text.push('"');
            STANDARD.encode_string(bytes, &mut self.text);
            self.text.push('"');
        }
        self
    }

    /// Appends the record and completes the line.
    pub(super) fn record(self, record: &Record) -> String {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        self.base64("stored_base64", &*bytes).finish()
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
        let encoded = |bytes: &[u8]| Line::default().base64("b", bytes).finish();
        let table = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ];
        for (bytes, letters) in table {
            assert_eq!(
                encoded(bytes.as_bytes()),
                format!("{{\"b\":\"{letters}\"}}\n"),
                "{bytes}"
            );
        }
        assert_eq!(encoded(&[0xfb, 0xff, 0xfe]), "{\"b\":\"+//+\"}\n");
    }

    #[test]
    fn names_of_every_kind() {
        let line = Line::default()
            .number("n", 7)
            .number("none", None)
            .text("none", None);
        let line = line
            .text("plain", &b"a \"b\" \\ \n \xc3\xa9"[..])
            .text("raw", &b"\xff\xfe"[..]);
        assert_eq!(
            line.finish(),
            "{\"n\":7,\"plain\":\"a \\\"b\\\" \\\\ \\u000a \u{e9}\",\"raw_base64\":\"//4=\"}\n"
        );
    }
}
