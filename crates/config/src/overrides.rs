//! Single keys from the environment and the command line, which override the file.
//!
//! A key is `section.key` on the command line and `WINDLASS_SECTION_KEY` in the environment. Its value is written as in
//! TOML, except that strings need no quotes and lists no brackets.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use toml::{Table, Value};

use crate::Error;
use crate::secret::{is_secret, shown_bytes};
use crate::words::{Words, nearest};

/// The prefix of all our variables.
const PREFIX: &str = "WINDLASS_";

/// Prefixes of variables that steer tests and benchmarks; the daemon ignores them.
const NOT_OURS: [&str; 3] = ["WINDLASS_TEST_", "WINDLASS_SIM_", "WINDLASS_BENCH_"];

/// The key of a list of further sections like the one that it is in.
const MORE: &str = ".more";

/// A whole configuration. Every type in it has a form in TOML.
pub trait Document: Default + Serialize + DeserializeOwned {}

impl<C: Default + Serialize + DeserializeOwned> Document for C {}

/// One key, set outside the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The variable or argument that set it, for messages.
    protocol: String,
    /// `section.key`, `section.section.key` or `key`.
    key: String,
    value: Value,
}

impl Override {
    /// A key and its value, as text. Messages name `protocol` as their source.
    ///
    /// # Errors
    ///
    /// [`Error::Override`]: the key is unknown, or the value is not TOML.
    pub fn new<C: Document>(protocol: &str, key: &str, text: &str) -> Result<Self, Error> {
        let refuse = |reason| Error::Override {
            protocol: protocol.to_owned(),
            reason,
        };
        let keys = keys::<C>();
        let Some((_, like)) = keys.iter().find(|(known, _)| known == key) else {
            let near = nearest(key, keys.iter().map(|(key, _)| &**key)).unwrap_or_default();
            return Err(refuse(format!(
                "unknown key `{key}`; the nearest is `{near}`"
            )));
        };
        let value = value(text, like).map_err(|reason| {
            let is_hidden = is_secret(key) || has_secret(text);
            refuse(if is_hidden {
                format!("the value is not a TOML {}", like.type_str())
            } else {
                reason
            })
        })?;
        Ok(Self {
            protocol: protocol.to_owned(),
            key: key.to_owned(),
            value,
        })
    }

    /// `section.key=value`, the argument of `--set`.
    ///
    /// # Errors
    ///
    /// As [`Override::new`]; or there is no `=` in the text.
    pub fn from_assignment<C: Document>(text: &str) -> Result<Self, Error> {
        let shown = match text.split_once('=') {
            Some((key, value)) if is_secret(key) || has_secret(value) => key,
            _ => text,
        };
        let protocol = format!("--set {shown}");
        match text.split_once('=') {
            Some((key, value)) => Self::new::<C>(&protocol, key.trim(), value),
            None => Err(Error::Override {
                protocol,
                reason: "section.key=value expected".to_owned(),
            }),
        }
    }

    /// All keys that the environment sets, sorted by variable name.
    ///
    /// # Errors
    ///
    /// As [`Override::new`]; or a variable has our prefix and names no key, or its value is not Unicode text.
    pub fn from_environment<C: Document>(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Vec<Self>, Error> {
        let mut ours: Vec<(String, OsString)> = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, value)| {
                is_ours(name) && !is_service_link(name, &value.to_string_lossy())
            })
            .collect();
        ours.sort_unstable();
        ours.into_iter()
            .map(|(name, value)| Self::from_variable::<C>(&name, value))
            .collect()
    }

    fn from_variable<C: Document>(name: &str, value: OsString) -> Result<Self, Error> {
        let refuse = |reason| Error::Override {
            protocol: name.to_owned(),
            reason,
        };
        let keys = keys::<C>();
        let Some((key, _)) = keys.iter().find(|(key, _)| variable(key) == name) else {
            let near = nearest(name, keys.iter().map(|(key, _)| variable(key))).unwrap_or_default();
            return Err(refuse(format!(
                "no key has this variable; the nearest is {near}"
            )));
        };
        let text = value
            .into_string()
            .map_err(|_| refuse("the value is not UTF-8".to_owned()))?;
        Self::new::<C>(name, key, &text)
    }
}

/// Replaces single keys of a configuration; a later override wins over an earlier one.
///
/// # Errors
///
/// [`Error::Override`]: a value has the wrong type for its key.
pub fn with<C: Document>(
    config: C,
    overrides: impl IntoIterator<Item = Override>,
) -> Result<C, Error> {
    overrides.into_iter().try_fold(
        config,
        |config,
         Override {
             protocol,
             key,
             value,
         }| {
            let mut table = to_table(&config);
            let is_hidden = has_secret(&value.to_string());
            put(&mut table, &key, value);
            table.try_into().map_err(|error: toml::de::Error| {
                // A wrong value is in the message.
                let is_hidden = is_hidden && error.message().starts_with("invalid");
                let reason = if is_hidden {
                    "invalid value".to_owned()
                } else {
                    Words::TOML.of(error.message()).replace('\n', "; ")
                };
                Error::Override { protocol, reason }
            })
        },
    )
}

/// Writes a path that an option may have set, and that need not be text, as people read it.
///
/// # Errors
///
/// Those of the serializer.
pub fn path_as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

fn to_table(config: &impl Document) -> Table {
    #[expect(
        clippy::expect_used,
        reason = "every type in it has a form in TOML; a test writes them all"
    )]
    Table::try_from(config).expect("a configuration can be written")
}

/// Whether a value has a secret in it, as a list of sections may.
fn has_secret(value: &str) -> bool {
    shown_bytes(value) < value.len()
}

/// Every key with its default.
pub fn keys<C: Document>() -> Vec<(String, Value)> {
    let mut keys = Vec::new();
    gather(to_table(&C::default()), "", &mut keys);
    keys
}

/// Every key of a configuration with its value, as TOML. The keys of further sections have their number, from 1:
/// `spiderq.more.1.queue`.
pub fn values(config: &impl Document) -> BTreeMap<String, String> {
    let mut keys = Vec::new();
    gather(to_table(config), "", &mut keys);
    let mut values = BTreeMap::new();
    for (key, value) in keys {
        let Some(sections) = value.as_array().filter(|_| key.ends_with(MORE)) else {
            values.insert(key, value.to_string());
            continue;
        };
        let mut own = Vec::new();
        for (section, number) in sections.iter().filter_map(Value::as_table).zip(1..) {
            gather(section.clone(), &format!("{key}.{number}."), &mut own);
        }
        values.extend(own.into_iter().map(|(key, value)| (key, value.to_string())));
    }
    values
}

/// Collects the keys of a section, and of the sections in it.
fn gather(section: Table, prefix: &str, keys: &mut Vec<(String, Value)>) {
    for (name, value) in section {
        if let Value::Table(section) = value {
            gather(section, &format!("{prefix}{name}."), keys);
        } else {
            keys.push((format!("{prefix}{name}"), value));
        }
    }
}

/// The variable of a key: `server.threads` is `WINDLASS_SERVER_THREADS`.
pub fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_ascii_uppercase())
}

fn put(table: &mut Table, key: &str, value: Value) {
    let replaced = match key.split_once('.') {
        None => table.insert(key.to_owned(), value),
        Some((section, key)) => match table.get_mut(section) {
            Some(Value::Table(section)) => return put(section, key, value),
            _ => None,
        },
    };
    debug_assert!(replaced.is_some(), "{key} is known and was there");
}

/// Reads a value of the same type as `like`.
fn value(text: &str, like: &Value) -> Result<Value, String> {
    let text = text.trim();
    if like.is_str() && !text.starts_with(['"', '\'']) {
        return Ok(Value::String(text.to_owned()));
    }
    // `[::1]:4730` is not a list.
    if like.is_array() && !(text.starts_with('[') && text.ends_with(']')) {
        let items = text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty());
        return Ok(items
            .map(|item| Value::String(item.to_owned()))
            .collect::<Vec<_>>()
            .into());
    }
    let mut table: Table = toml::from_str(&format!("it = {text}")).map_err(|_| {
        format!(
            "`{}` is not a TOML {}",
            text.escape_debug(),
            like.type_str()
        )
    })?;
    match table.remove("it") {
        Some(value) if table.is_empty() => Ok(value),
        _ => Err(format!("`{}` is more than one value", text.escape_debug())),
    }
}

fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX) && !NOT_OURS.iter().any(|prefix| name.starts_with(prefix))
}

/// Kubernetes sets variables named after services in every container; a service called `windlass` or `windlass-x` must
/// not keep the daemon from starting.
fn is_service_link(name: &str, value: &str) -> bool {
    let place = name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT");
    let port = name
        .split_once("_PORT_")
        .is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()));
    place || port || (name.ends_with("_PORT") && value.contains("://"))
}
