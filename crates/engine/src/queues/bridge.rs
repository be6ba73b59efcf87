//! Which queues are shared by all protocols.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::patterns::{by_exactness, matches};

/// The queues shared by all protocols. Not journalled: the caller must set it in each new engine,
/// before the first take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Bridge {
    /// Patterns, in which `*` matches any bytes (or none) and `?` a single byte.
    pub patterns: Vec<Bytes>,
    /// Queues configured by name or pattern, and whether they are shared. The most specific entry
    /// applies ([`Patterns`]), and overrides `patterns`.
    ///
    /// [`Patterns`]: super::Patterns
    pub named: BTreeMap<Bytes, bool>,
}

impl Bridge {
    /// A bridge of all queues.
    pub fn all() -> Self {
        Self {
            patterns: vec![Bytes::from_static(b"*")],
            named: BTreeMap::new(),
        }
    }

    /// Returns true if the queue of this name is shared by all protocols.
    pub fn includes(&self, queue: &[u8]) -> bool {
        let named = self
            .named
            .iter()
            .filter(|(pattern, _)| matches(pattern, queue));
        let named = named
            .min_by_key(|(pattern, _)| by_exactness(pattern))
            .map(|(_, shared)| *shared);
        named.unwrap_or_else(|| self.patterns.iter().any(|pattern| matches(pattern, queue)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_configured_by_name_overrides_the_patterns() {
        let named = [
            ("thumb-x", false),
            ("mail", true),
            ("mail-*", true),
            ("mail-a*", false),
            ("mail-ab", true),
        ];
        let named = named
            .map(|(name, shared)| (Bytes::from_static(name.as_bytes()), shared))
            .into();
        let bridge = Bridge {
            patterns: vec![Bytes::from_static(b"thumb-*")],
            named,
        };
        let table = [
            ("thumb-y", true),
            ("thumb-x", false),
            ("mail", true),
            ("default", false),
            ("mail-b", true),
            ("mail-ac", false),
            ("mail-ab", true),
        ];
        table.iter().for_each(|(name, expected)| {
            assert_eq!(bridge.includes(name.as_bytes()), *expected, "{name}")
        });
        assert!(Bridge::all().includes(b""));
    }
}
