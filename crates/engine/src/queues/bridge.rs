//! Which queues all protocols share, by their names.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The queues that all protocols share. Not journalled: the caller must set it anew in each engine, before the first
/// take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Bridge {
    /// Names in which `*` stands for any bytes (or none) and `?` for one byte.
    pub patterns: Vec<Bytes>,
    /// Queues configured by name, and whether they are shared. Overrides the patterns.
    pub named: BTreeMap<Bytes, bool>,
}

impl Bridge {
    /// All queues.
    #[must_use]
    pub fn all() -> Self {
        Self { patterns: vec![Bytes::from_static(b"*")], named: BTreeMap::new() }
    }

    /// Whether all protocols share the queue of this name.
    #[must_use]
    pub fn includes(&self, queue: &[u8]) -> bool {
        let named = self.named.get(queue).copied();
        named.unwrap_or_else(|| self.patterns.iter().any(|pattern| matches(pattern, queue)))
    }
}

/// Whether `name` matches a pattern in which `*` stands for any bytes (or none) and `?` for one. Takes at most the
/// product of their lengths.
#[must_use]
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // The position behind the last `*`, and the end of its current match in the name.
    let mut star = None;
    while let Some(byte) = name.get(from) {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, from));
                at += 1;
            }
            Some(own) if *own == b'?' || own == byte => (at, from) = (at + 1, from + 1),
            Some(_) | None => {
                let Some((behind, end)) = star else { return false };
                star = Some((behind, end + 1));
                (at, from) = (behind, end + 1);
            }
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_queue_names() {
        let table = [
            ("resize", "resize", true),
            ("resize", "resize2", false),
            ("thumb-*", "thumb-", true),
            ("thumb-*", "thumb-xl", true),
            ("thumb-*", "humb-xl", false),
            ("*-thumb", "a-thumb-thumb", true),
            ("*-thumb", "thumb", false),
            ("a*b*c", "a--b-b--c", true),
            ("a*b*c", "a--c--b", false),
            ("?", "x", true),
            ("?", "", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
        // No match takes longer than the product of the two lengths.
        assert!(!matches(&b"*a".repeat(2_000), &[b"a".repeat(8_000), b"b".to_vec()].concat()));
    }

    #[test]
    fn a_queue_configured_by_name_overrides_the_patterns() {
        let named = BTreeMap::from([(Bytes::from_static(b"thumb-x"), false), (Bytes::from_static(b"mail"), true)]);
        let bridge = Bridge { patterns: vec![Bytes::from_static(b"thumb-*")], named };
        let table = [("thumb-y", true), ("thumb-x", false), ("mail", true), ("default", false)];
        table.iter().for_each(|(name, expected)| assert_eq!(bridge.includes(name.as_bytes()), *expected, "{name}"));
        assert!(Bridge::all().includes(b""));
    }
}
