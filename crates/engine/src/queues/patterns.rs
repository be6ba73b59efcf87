//! Settings by names and patterns of queues. The most specific match applies.

use std::cmp::Reverse;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::glob::fits;

/// Settings by name, or by pattern: `*` matches any bytes (or none) and `?` a single byte.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Patterns<T>(Vec<(Bytes, T)>);

impl<T> Default for Patterns<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> FromIterator<(Bytes, T)> for Patterns<T> {
    fn from_iter<I: IntoIterator<Item = (Bytes, T)>>(settings: I) -> Self {
        let mut sorted: Vec<(Bytes, T)> = settings.into_iter().collect();
        sorted.sort_by(|(one, _), (other, _)| by_exactness(one).cmp(&by_exactness(other)));
        Self(sorted)
    }
}

impl<T> IntoIterator for Patterns<T> {
    type Item = (Bytes, T);
    type IntoIter = std::vec::IntoIter<(Bytes, T)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<T> Patterns<T> {
    /// The setting that applies to a queue.
    pub fn find(&self, queue: &[u8]) -> Option<&T> {
        self.holding(queue).map(|(_, setting)| setting)
    }

    /// The name or pattern of the setting that applies to a queue.
    pub fn find_name(&self, queue: &[u8]) -> Option<&Bytes> {
        self.holding(queue).map(|(pattern, _)| pattern)
    }

    fn holding(&self, queue: &[u8]) -> Option<&(Bytes, T)> {
        self.0.iter().find(|(pattern, _)| matches(pattern, queue))
    }

    /// All settings, the most specific first.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &T)> {
        self.0.iter().map(|(pattern, setting)| (pattern, setting))
    }

    /// Returns true if there are no settings.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Names before patterns, then patterns by length of literal text, then alphabetically.
pub(super) fn by_exactness(pattern: &[u8]) -> (bool, Reverse<usize>, &[u8]) {
    let text = pattern
        .iter()
        .filter(|byte| !matches!(byte, b'*' | b'?'))
        .count();
    (is_pattern(pattern), Reverse(text), pattern)
}

/// Returns true if a text can match more than one name.
pub fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'*' | b'?'))
}

/// Returns true if `name` matches a pattern in which `*` matches any bytes (or none) and `?` a
/// single byte.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let is = |own: &u8, byte| *own == b'?' || *own == byte;
    fits(pattern, name, |own| *own == b'*', is)
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
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
        // No match takes longer than the product of the two lengths.
        assert!(!matches(
            &b"*a".repeat(2_000),
            &[b"a".repeat(8_000), b"b".to_vec()].concat()
        ));
    }

    #[test]
    fn the_most_exact_setting_holds_in_whatever_order_they_come() {
        let mut all = ["*", "mail-*", "mail-a?", "mail-a*", "*mail-ab", "mail-ab"].map(Bytes::from);
        let table = [
            ("x", "*"),
            ("mail-", "mail-*"),
            ("mail-ac", "mail-a*"),
            ("mail-ab", "mail-ab"),
        ];
        for _ in 0..all.len() {
            all.rotate_left(1);
            let patterns: Patterns<Bytes> = all
                .iter()
                .map(|pattern| (pattern.clone(), pattern.clone()))
                .collect();
            table.iter().for_each(|(name, holds)| {
                assert_eq!(
                    patterns.find(name.as_bytes()).map(Bytes::as_ref),
                    Some(holds.as_bytes()),
                    "{name}"
                );
            });
        }
        let patterns: Patterns<()> = all.into_iter().map(|pattern| (pattern, ())).collect();
        let order: Vec<&[u8]> = patterns.iter().map(|(pattern, ())| &**pattern).collect();
        assert_eq!(
            (order, patterns.is_empty()),
            (
                vec![
                    &b"mail-ab"[..],
                    b"*mail-ab",
                    b"mail-a*",
                    b"mail-a?",
                    b"mail-*",
                    b"*"
                ],
                false
            )
        );
        assert_eq!(
            (
                Patterns::<()>::default().find(b"q"),
                Patterns::<()>::default().is_empty()
            ),
            (None, true)
        );
    }
}
