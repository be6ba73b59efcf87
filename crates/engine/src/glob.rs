//! Globs as in Redis, which deployed servers use for MUTATE's `regexp`: `*`, `?`, `[a-z]`, `[^a-z]`, `\x`.
//!
//! The stars cut a pattern into pieces. A match looks for each piece from left to right and never goes back, so it
//! takes at most the length of the text times the length of the pattern.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A pattern. Clones share it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(from = "Bytes", into = "Bytes")]
pub struct Glob(Arc<Compiled>);

#[derive(PartialEq, Eq, Debug)]
struct Compiled {
    pattern: Bytes,
    /// The pieces between the stars: one more than there are stars.
    pieces: Vec<Vec<Item>>,
}

#[derive(PartialEq, Eq, Debug)]
enum Item {
    Byte(u8),
    Any,
    Class { not: bool, ranges: Vec<(u8, u8)> },
}

impl Item {
    fn matches(&self, byte: u8) -> bool {
        match self {
            Self::Byte(this) => *this == byte,
            Self::Any => true,
            Self::Class { not, ranges } => {
                ranges
                    .iter()
                    .any(|(low, high)| (*low..=*high).contains(&byte))
                    != *not
            }
        }
    }
}

impl Glob {
    /// Parses a pattern; any text is valid.
    pub fn new(pattern: &[u8]) -> Self {
        let mut pieces = vec![Vec::new()];
        let mut rest = pattern;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            let item = match byte {
                b'*' => {
                    pieces.push(Vec::new());
                    continue;
                }
                b'?' => Item::Any,
                b'[' => class(&mut rest),
                b'\\' => match rest.split_first() {
                    Some((escaped, after)) => {
                        rest = after;
                        Item::Byte(*escaped)
                    }
                    None => Item::Byte(b'\\'),
                },
                byte => Item::Byte(*byte),
            };
            if let Some(piece) = pieces.last_mut() {
                piece.push(item);
            }
        }
        Self(Arc::new(Compiled {
            pattern: Bytes::copy_from_slice(pattern),
            pieces,
        }))
    }

    /// The pattern as it was given.
    pub fn pattern(&self) -> &Bytes {
        &self.0.pattern
    }

    /// Whether the pattern matches the whole text.
    pub fn matches(&self, text: &[u8]) -> bool {
        let Some((first, rest)) = self.0.pieces.split_first() else {
            return text.is_empty();
        };
        if !begins(text, first) {
            return false;
        }
        let Some((last, between)) = rest.split_last() else {
            return text.len() == first.len();
        };
        let mut text = text.get(first.len()..).unwrap_or_default();
        for piece in between {
            match find(text, piece) {
                Some(at) => text = text.get(at + piece.len()..).unwrap_or_default(),
                None => return false,
            }
        }
        let end = text.len().checked_sub(last.len());
        end.and_then(|end| text.get(end..))
            .is_some_and(|end| begins(end, last))
    }
}

impl From<Bytes> for Glob {
    fn from(pattern: Bytes) -> Self {
        Self::new(&pattern)
    }
}

impl From<Glob> for Bytes {
    fn from(glob: Glob) -> Self {
        glob.pattern().clone()
    }
}

/// A class in brackets. Without a closing bracket it extends to the end of the pattern.
fn class(rest: &mut &[u8]) -> Item {
    let mut take = || {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        Some(*byte)
    };
    let mut next = take();
    let not = next == Some(b'^');
    if not {
        next = take();
    }
    let mut ranges: Vec<(u8, u8)> = Vec::new();
    let mut open = false;
    while let Some(byte) = next {
        let (byte, escaped) = match byte {
            b'\\' => (take().unwrap_or(b'\\'), true),
            byte => (byte, false),
        };
        match byte {
            b']' if !escaped => break,
            b'-' if !escaped && !open && !ranges.is_empty() => open = true,
            byte => match ranges.last_mut().filter(|_| open) {
                Some(range) => {
                    *range = (range.0.min(byte), range.0.max(byte));
                    open = false;
                }
                None => ranges.push((byte, byte)),
            },
        }
        next = take();
    }
    if open {
        ranges.push((b'-', b'-'));
    }
    Item::Class { not, ranges }
}

fn begins(text: &[u8], piece: &[Item]) -> bool {
    text.len() >= piece.len()
        && piece
            .iter()
            .zip(text)
            .all(|(item, byte)| item.matches(*byte))
}

fn find(text: &[u8], piece: &[Item]) -> Option<usize> {
    let last = text.len().checked_sub(piece.len())?;
    let Some(Item::Byte(first)) = piece.first() else {
        return (0..=last).find(|at| text.get(*at..).is_some_and(|text| begins(text, piece)));
    };
    memchr::memchr_iter(*first, text.get(..=last).unwrap_or(text))
        .find(|at| text.get(*at..).is_some_and(|text| begins(text, piece)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let table = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "abc", true),
            ("a*", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            ("*b*", "abc", true),
            ("*bc*bc*", "abc", false),
            ("*bc*bc*", "abcbc", true),
            ("*a*a*b", "aaab", true),
            ("ab*ba", "aba", false),
            ("?", "a", true),
            ("?", "", false),
            ("a?c*", "abcd", true),
            ("[a-c]x", "bx", true),
            ("[c-a]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[a-]", "-", true),
            ("[]", "a", false),
            ("[abc", "b", true),
            ("[a\\-c]", "b", false),
            ("[a\\-c]", "-", true),
            ("[\\]a]", "]", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("\\", "\\", true),
            ("*uid:1*", "{\"args\":[\"uid:1\"]}", true),
            ("*\\[1,2]*", "{\"args\":[1,2]}", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(
                Glob::new(pattern.as_bytes()).matches(text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn a_hostile_pattern_is_fast() {
        let pattern = "*a".repeat(500) + "*b";
        assert!(!Glob::new(pattern.as_bytes()).matches("a".repeat(1_000_000).as_bytes()));
    }
}
