//! One argument of a line: bytes with holes that are filled in or matched.

use std::collections::BTreeMap;

use bytes::Bytes;

/// The values so far.
pub(super) type Variables = BTreeMap<String, Bytes>;

/// The hole that matches anything and stores nothing.
const ANYTHING: &str = "_";

/// Bytes with holes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pattern(pub(super) Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Literal(Vec<u8>),
    Variable(String),
}

impl Pattern {
    /// The bytes, with every hole filled.
    pub(super) fn fill(&self, variables: &Variables) -> Result<Bytes, String> {
        let mut filled = Vec::new();
        for part in &self.0 {
            match part {
                Part::Literal(bytes) => filled.extend_from_slice(bytes),
                Part::Variable(name) => {
                    let value = variables
                        .get(name)
                        .ok_or_else(|| format!("${name} has no value yet"))?;
                    filled.extend_from_slice(value);
                }
            }
        }
        Ok(filled.into())
    }

    /// Whether `bytes` match. Holes without a value match anything and are then filled. Such a hole takes at least one
    /// byte and ends at the first occurrence of what follows it.
    pub(super) fn matches(&self, bytes: &[u8], variables: &mut Variables) -> bool {
        let mut found = variables.clone();
        let matched = matches(&self.0, bytes, &mut found);
        if matched {
            *variables = found;
        }
        matched
    }
}

fn matches(parts: &[Part], bytes: &[u8], variables: &mut Variables) -> bool {
    let Some((part, rest)) = parts.split_first() else {
        return bytes.is_empty();
    };
    match known(part, variables) {
        Some(known) => match bytes.strip_prefix(&*known) {
            Some(bytes) => matches(rest, bytes, variables),
            None => false,
        },
        None => {
            let end = match rest.first() {
                None => bytes.len(),
                Some(next) => match known(next, variables) {
                    // The boundary between two adjacent unfilled holes is ambiguous.
                    None => return false,
                    Some(next) => {
                        match (1..bytes.len()).find(|at| tail(bytes, *at).starts_with(&next)) {
                            None => return false,
                            Some(at) => at,
                        }
                    }
                },
            };
            let Some((value, left)) = bytes
                .split_at_checked(end)
                .filter(|(value, _)| !value.is_empty())
            else {
                return false;
            };
            if let Part::Variable(name) = part
                && name != ANYTHING
            {
                variables.insert(name.clone(), Bytes::copy_from_slice(value));
            }
            matches(rest, left, variables)
        }
    }
}

fn known(part: &Part, variables: &Variables) -> Option<Bytes> {
    match part {
        Part::Literal(bytes) => Some(Bytes::copy_from_slice(bytes)),
        Part::Variable(name) => variables.get(name).cloned(),
    }
}

fn tail(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(parts: &[&str]) -> Pattern {
        let part = |part: &&str| match part.strip_prefix('$') {
            Some(name) => Part::Variable(name.to_owned()),
            None => Part::Literal(part.as_bytes().to_vec()),
        };
        Pattern(parts.iter().map(part).collect())
    }

    /// A name, a pattern, bytes, and the values if they match.
    type Case<'a> = (
        &'a str,
        &'a [&'a str],
        &'a str,
        Option<&'a [(&'a str, &'a str)]>,
    );

    #[test]
    fn holes_are_filled() {
        let table: [Case<'_>; 9] = [
            ("plain", &["ab"], "ab", Some(&[])),
            ("other", &["ab"], "abc", None),
            ("all of it", &["$x"], "H:vm:1", Some(&[("x", "H:vm:1")])),
            ("nothing is not something", &["$x"], "", None),
            (
                "in the middle",
                &["H:", "$x", " end"],
                "H:7 end",
                Some(&[("x", "7")]),
            ),
            (
                "up to the first",
                &["$x", " ", "$y"],
                "a b c",
                Some(&[("x", "a"), ("y", "b c")]),
            ),
            (
                "the same again",
                &["$x", "-", "$x"],
                "7-7",
                Some(&[("x", "7")]),
            ),
            ("not the same again", &["$x", "-", "$x"], "7-8", None),
            ("anything", &["$_", " ", "$_", "!"], "7 8!", Some(&[])),
        ];
        for (name, parts, bytes, expected) in table {
            let mut variables = Variables::new();
            let matched = pattern(parts).matches(bytes.as_bytes(), &mut variables);
            let expected = expected.map(|pairs| {
                pairs
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), Bytes::from(*value)))
                    .collect::<Variables>()
            });
            assert_eq!(matched.then_some(variables), expected, "{name}");
        }
    }

    #[test]
    fn a_failed_match_fills_nothing() {
        let mut variables = Variables::new();
        assert!(!pattern(&["$x", " z"]).matches(b"a b", &mut variables));
        assert!(variables.is_empty());
        assert_eq!(
            pattern(&["$x"]).fill(&variables),
            Err("$x has no value yet".to_owned())
        );
        assert!(pattern(&["$x"]).matches(b"a", &mut variables));
        assert_eq!(
            pattern(&["<", "$x", ">"]).fill(&variables),
            Ok(Bytes::from("<a>"))
        );
    }
}
