//! Reads the key of a job.

use std::borrow::Cow;

use super::KeySource;
use crate::condition::{BODY_READ_MAX, JobReader};
use crate::ids::Protocol;

/// Longer keys are ignored.
pub(crate) const KEY_BYTES_MAX: usize = 256;

/// The parts of a job that may contain the key.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) protocol: Protocol,
    /// `None`: it is not in memory.
    pub(crate) body: Option<&'a [u8]>,
    /// The coalescing key.
    pub(crate) unique: Option<&'a [u8]>,
}

impl KeySource {
    /// The key of a job; empty if no key can be read.
    pub(crate) fn read(&self, facts: Facts<'_>, reader: Option<&dyn JobReader>) -> Vec<u8> {
        let body = facts.body.unwrap_or_default();
        let sent = || {
            let sent = reader.map_or(Cow::Borrowed(body), |reader| {
                reader.sent(facts.protocol, body)
            });
            let read = sent.len().min(BODY_READ_MAX);
            match sent {
                Cow::Borrowed(all) => Cow::Borrowed(all.get(..read).unwrap_or_default()),
                Cow::Owned(all) => Cow::Owned(all.into_iter().take(read).collect()),
            }
        };
        let key = match self {
            Self::Args(_) | Self::Custom(_) => {
                reader.and_then(|reader| reader.key(facts.protocol, body, self))
            }
            Self::Unique(split) => facts
                .unique
                .and_then(|unique| before(unique, *split))
                .map(<[u8]>::to_vec),
            Self::Prefix(end) => before(&sent(), Some(*end)).map(<[u8]>::to_vec),
            Self::Header(name) => header(&sent(), name.as_bytes()).map(<[u8]>::to_vec),
        };
        key.filter(|key| key.len() <= KEY_BYTES_MAX)
            .unwrap_or_default()
    }
}

/// The part before a byte, if the byte occurs; the complete text if no byte is given.
fn before(text: &[u8], end: Option<u8>) -> Option<&[u8]> {
    let Some(end) = end else { return Some(text) };
    let at = text
        .iter()
        .take(KEY_BYTES_MAX + 1)
        .position(|byte| *byte == end)?;
    text.get(..at)
}

/// The value of a line `NAME: value` before the first empty line. Names are compared ignoring ASCII
/// case.
fn header<'a>(body: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let lines = body
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_end)
        .take_while(|line| !line.is_empty());
    let named = lines.filter_map(|line| line.split_at_checked(name.len()));
    let mut values = named
        .filter(|(own, _)| own.eq_ignore_ascii_case(name))
        .filter_map(|(_, rest)| rest.strip_prefix(b":"));
    values.next().map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_where_they_stand() {
        let header = |name: &str| KeySource::Header(name.into());
        let table: [(KeySource, &str, Option<&str>, &str); 12] = [
            (KeySource::Unique(None), "", Some("a:b"), "a:b"),
            (KeySource::Unique(Some(b':')), "", Some("a:b"), "a"),
            (KeySource::Unique(Some(b':')), "", Some("ab"), ""),
            (KeySource::Unique(None), "body", None, ""),
            (KeySource::Prefix(b'|'), "acme|x|y", None, "acme"),
            (KeySource::Prefix(b'|'), "acme", None, ""),
            (KeySource::Prefix(b'|'), "|x", None, ""),
            (
                header("tenant"),
                "Id: 7\r\nTenant:  acme \r\n\r\nbody",
                None,
                "acme",
            ),
            (header("tenant"), "id: 7\n\ntenant: late", None, ""),
            (header("tenant"), "tenants: all\ntenant: acme", None, "acme"),
            (header("tenant"), "", None, ""),
            (KeySource::Args("/0".into()), "[1]", None, ""),
        ];
        for (source, body, unique, key) in table {
            let facts = Facts {
                protocol: Protocol::GEARMAN,
                body: Some(body.as_bytes()),
                unique: unique.map(str::as_bytes),
            };
            assert_eq!(
                source.read(facts, None),
                key.as_bytes(),
                "{source:?} {body:?}"
            );
        }
        let large = format!("acme|{}", "x".repeat(2 * BODY_READ_MAX));
        let facts = Facts {
            protocol: Protocol::GEARMAN,
            body: Some(large.as_bytes()),
            unique: None,
        };
        assert_eq!(
            KeySource::Prefix(b'|').read(facts, None),
            b"acme",
            "a large body has its key, too"
        );
        let long = "x".repeat(KEY_BYTES_MAX);
        for (text, key) in [(format!("{long}|"), &*long), (format!("x{long}|"), "")] {
            let facts = Facts {
                protocol: Protocol::GEARMAN,
                body: Some(text.as_bytes()),
                unique: None,
            };
            assert_eq!(KeySource::Prefix(b'|').read(facts, None), key.as_bytes());
        }
    }
}
