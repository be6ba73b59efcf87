//! Reads a file, or its text, into a configuration.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use crate::error::{Error, Spot, TlsError};
use crate::words::Words;

/// A wrong value at a place in the text, which its section finds only after the text was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplaced {
    /// The place, in bytes.
    pub range: Range<usize>,
    /// What is wrong there.
    pub message: String,
}

impl Misplaced {
    /// The error for the text of this file.
    pub fn within(self, path: &Path, text: &str) -> Error {
        let spot = Spot::new(text, self.range, &self.message);
        Error::Malformed {
            path: path.to_owned(),
            spot: Box::new(spot),
        }
    }
}

/// Reads the text of a file.
///
/// # Errors
///
/// [`Error::Unreadable`].
pub fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|reason| Error::Unreadable {
        path: path.to_owned(),
        reason,
    })
}

/// Reads a configuration from the text of a file; the path is for messages only. Checks only the form.
///
/// # Errors
///
/// [`Error::Malformed`].
pub fn parse<C: DeserializeOwned>(path: &Path, text: &str) -> Result<C, Error> {
    toml::from_str(text).map_err(|error| {
        let range = error.span().unwrap_or_default();
        Misplaced {
            range,
            message: Words::TOML.of(error.message()),
        }
        .within(path, text)
    })
}

/// Where each of the sections below a table stands in the text of a file, as `path:line`.
pub fn places(path: &Path, text: &str, table: &str) -> BTreeMap<String, String> {
    let Ok(file) = DeTable::parse(text) else {
        return BTreeMap::new();
    };
    let found = file
        .get_ref()
        .iter()
        .find(|(name, _)| name.get_ref() == table)
        .map(|(_, value)| value.get_ref());
    let Some(DeValue::Table(sections)) = found else {
        return BTreeMap::new();
    };
    let line = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
    let place = |at: usize| format!("{}:{}", path.display(), line(at));
    sections
        .keys()
        .map(|name| {
            (
                name.get_ref().clone().into_owned(),
                place(name.span().start),
            )
        })
        .collect()
}

impl Error {
    /// The same error with its place in the text of the file, if the key is there.
    #[must_use]
    pub fn placed(self, path: &Path, text: &str) -> Self {
        let message = match &self {
            Self::Senseless { .. } => self.to_string(),
            // The missing key has no place.
            Self::Tls {
                protocol,
                reason: TlsError::Missing { with, .. },
            } => format!("{protocol}.tls.{with}"),
            Self::Tls { .. } => self.to_string(),
            Self::Unreadable { .. } | Self::Malformed { .. } | Self::Override { .. } => {
                return self;
            }
        };
        match place(text, &message) {
            Some(range) => Misplaced {
                range,
                message: self.to_string(),
            }
            .within(path, text),
            None => self,
        }
    }
}

/// The place of the key that a message is about: `queues: mail: ttl must be more than 0` is about `queues.mail.ttl`.
fn place(text: &str, message: &str) -> Option<Range<usize>> {
    let file = DeTable::parse(text).ok()?;
    let (mut found, mut key) = (None, String::new());
    for part in message.split(": ") {
        let at = |name: &str| find(file.get_ref(), &format!("{key}{name}"));
        if let Some(range) = at(part) {
            found = Some(range);
        } else {
            return part.split(' ').next().and_then(at).or(found);
        }
        key = format!("{key}{part}.");
    }
    found
}

/// The place of a key in a table. Its names may have dots.
fn find(table: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    table.iter().find_map(|(name, value)| {
        let rest = key.strip_prefix(&name.get_ref().escape_debug().to_string())?;
        if rest.is_empty() {
            return Some(name.span());
        }
        let DeValue::Table(section) = value.get_ref() else {
            return None;
        };
        find(section, rest.strip_prefix('.')?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_found_by_their_names() {
        let text = "data_dir = 'x'\n[queues.mail]\nfair = true\n\n[queues.\"a-*\"]\nttl = '1s'\n[queues]\nb = { fair = true }\n";
        let found = places(Path::new("/etc/w.toml"), text, "queues");
        let expected = [
            ("a-*", "/etc/w.toml:5"),
            ("b", "/etc/w.toml:8"),
            ("mail", "/etc/w.toml:2"),
        ];
        assert_eq!(
            found,
            expected
                .map(|(name, place)| (name.to_owned(), place.to_owned()))
                .into()
        );
        assert!(
            places(Path::new("f"), text, "limits").is_empty()
                && places(Path::new("f"), "[", "queues").is_empty()
        );
    }

    #[test]
    fn a_senseless_value_shows_its_place() {
        let text = "data_dir = ''\n[queues.mail]\nfair = true\n[queues.\"a.b c\"]\nttl = '0s'\nper_key = { running = 0 }\n\
                    [gearman.tls]\ncertificate = 'x'\n";
        let senseless = |key: &'static str, reason: &str| Error::senseless(key, reason);
        let missing = Error::Tls {
            protocol: "gearman",
            reason: TlsError::Missing {
                key: "key",
                with: "certificate",
            },
        };
        let table = [
            (
                senseless("data_dir", "must not be empty"),
                Some("1:1: data_dir: must not be empty"),
            ),
            (
                senseless("queues", "mail: key must be given"),
                Some("2:9: queues: mail: key must be given"),
            ),
            (
                senseless("queues", "a.b c: ttl must be more than 0"),
                Some("5:1: queues: a.b c: ttl must be"),
            ),
            (
                senseless("queues", "a.b c: per_key.running must be"),
                Some("6:13: queues: a.b c: per_key.running must be"),
            ),
            (
                missing,
                Some("8:1: gearman.tls.key: must be given with certificate"),
            ),
            (senseless("server.backlog", "must be more than 0"), None),
        ];
        for (error, expected) in table {
            let plain = error.to_string();
            let said = error.placed(Path::new("f"), text).to_string();
            let is_as_expected = expected.map_or(said == plain, |place| {
                said.starts_with(&format!("f:{place}"))
            });
            assert!(is_as_expected, "{said}");
        }
    }
}
