//! Globs as in Redis, which deployed servers use for MUTATE's `regexp`: `*`, `?`, `[a-z]`, `[^a-z]`, `\x`.
//!
//! Other patterns, which support only some of these, match by the same rule ([`fits`]).

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
    items: Vec<Item>,
}

#[derive(PartialEq, Eq, Debug)]
enum Item {
    Star,
    Byte(u8),
    Any,
    Class { not: bool, ranges: Vec<(u8, u8)> },
}

impl Item {
    fn matches(&self, byte: u8) -> bool {
        match self {
            Self::Star => false,
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
        let mut items = Vec::new();
        let mut rest = pattern;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            items.push(match byte {
                b'*' => Item::Star,
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
            });
        }
        Self(Arc::new(Compiled {
            pattern: Bytes::copy_from_slice(pattern),
            items,
        }))
    }

    /// The pattern as it was given.
    pub fn pattern(&self) -> &Bytes {
        &self.0.pattern
    }

    /// Returns true if the pattern matches the complete text.
    pub fn matches(&self, text: &[u8]) -> bool {
        fits(
            &self.0.items,
            text,
            |item| *item == Item::Star,
            Item::matches,
        )
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

/// Returns true if a pattern matches the complete text: a star matches any bytes, and each other item the
/// bytes that it `is`. Only the last star is extended when matching fails, so that the cost is bounded by the
/// product of both lengths.
pub(crate) fn fits<I>(
    pattern: &[I],
    text: &[u8],
    is_star: impl Fn(&I) -> bool,
    is: impl Fn(&I, u8) -> bool,
) -> bool {
    let mut at = 0;
    let mut from = 0;
    // The position behind the last star, and the end of the text matched by that star.
    let mut star = None;
    while let Some(byte) = text.get(from) {
        match pattern.get(at) {
            Some(item) if is_star(item) => {
                at += 1;
                star = Some((at, from));
            }
            Some(item) if is(item, *byte) => {
                at += 1;
                from += 1;
            }
            Some(_) | None => {
                let Some((behind, end)) = star else {
                    return false;
                };
                let Some(item) = pattern.get(behind) else {
                    return true;
                };
                let mut rest = text.iter().skip(end + 1);
                let Some(skipped) = rest.position(|byte| is(item, *byte)) else {
                    return false;
                };
                at = behind;
                from = end + 1 + skipped;
                star = Some((at, from));
            }
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(is_star)
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
