//! The common part of plans: how another program's command line becomes a configuration, and how a mistake in it is
//! reported.

use windlass_config::Failure;

use crate::call::{Call, print_error};
use crate::config::Config;
use crate::foreign::Given;
use crate::settings::{Settings, resolve_with};
use crate::world::World;

/// Why there is no plan.
#[derive(Debug)]
pub(crate) enum Error {
    /// An option or setting is invalid. Printed behind the name of the program.
    Usage(String),
    /// As from `windlass serve`.
    Failure(Failure),
}

impl From<windlass_config::Error> for Error {
    fn from(error: windlass_config::Error) -> Self {
        Self::Failure(error.into())
    }
}

/// For a running daemon, such a mistake is a failure like any other.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Usage(sentence) => Self::Runtime(sentence),
            Error::Failure(failure) => failure,
        }
    }
}

/// The exit code of a call; `usage` after a usage error, which is printed.
///
/// # Errors
/// Any other failure.
pub(crate) fn exit_code(outcome: Result<u8, Error>, call: &Call, usage: u8) -> Result<u8, Failure> {
    match outcome {
        Ok(code) => Ok(code),
        Err(Error::Usage(sentence)) => {
            print_error(&call.argv0, &sentence);
            Ok(usage)
        }
        Err(Error::Failure(failure)) => Err(failure),
    }
}

/// The options of Windlass; `data_dir` names the one of the data directory.
pub(crate) fn settings(given: &Given, data_dir: &str) -> Settings {
    Settings {
        file: given.text("windlass-config").map(Into::into),
        set: given.all("set").map(str::to_owned).collect(),
        data_dir: given.text(data_dir).map(Into::into),
        durability: given.text("durability").map(str::to_owned),
        ..Settings::default()
    }
}

/// The configuration: Windlass's own settings, and between them those that `apply` takes from the command line. `last`
/// sets what is no key.
pub(crate) fn resolve(
    settings: &Settings,
    world: &World,
    apply: impl FnOnce(&mut Config) -> Result<(), String>,
    last: impl FnOnce(&mut Config),
) -> Result<Config, Error> {
    let mut usage = None;
    let between = |config: &mut Config| usage = apply(config).err();
    let resolved = resolve_with(settings, world.environment.iter().cloned(), between, last);
    match usage {
        Some(sentence) => Err(Error::Usage(sentence)),
        None => Ok(resolved?),
    }
}

/// An address in the notation of the configuration.
pub(crate) fn address(host: &str, port: impl std::fmt::Display) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Every key of a configuration, as `section.key = value`.
#[cfg(test)]
pub(crate) fn keys(config: &Config) -> Vec<String> {
    fn put(section: &str, table: &toml::Table, lines: &mut Vec<String>) {
        for (key, value) in table {
            match value.as_table() {
                Some(inner) => put(&format!("{section}{key}."), inner, lines),
                None => lines.push(format!("{section}{key} = {value}")),
            }
        }
    }
    let mut lines = Vec::new();
    put("", &toml::Table::try_from(config).unwrap(), &mut lines);
    lines
}
