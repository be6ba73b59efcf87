//! Reads a file, or its text, into a [`Config`].

use std::fs;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::error::{Error, Spot};
use super::sections::Config;

impl Config {
    /// Reads a file. Checks only its form; [`Config::check`] checks the values.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`], [`Error::Malformed`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(path, &text),
            Err(reason) => Err(Error::Unreadable { path: path.to_owned(), reason }),
        }
    }

    /// Reads the text of a file; the path is for messages only.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`]. The only values checked here are entries of `faktory.cron`, because there can be many of them and
    /// their line numbers are lost afterwards.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let malformed = |range, message: &str| {
            let spot = Spot::new(text, range, message);
            Error::Malformed { path: path.to_owned(), spot: Box::new(spot) }
        };
        let config: Self =
            toml::from_str(text).map_err(|error| malformed(error.span().unwrap_or_default(), error.message()))?;
        for (index, entry) in config.faktory.cron.iter().enumerate() {
            if let Err(reason) = entry.check() {
                let message =
                    format!("faktory.cron: entry {} ({}): {reason}", index + 1, entry.job.jobtype.escape_debug());
                return Err(malformed(cron_entry(text, index), &message));
            }
        }
        Ok(config)
    }
}

/// The range of the `schedule` of an entry of `faktory.cron`.
fn cron_entry(text: &str, index: usize) -> Range<usize> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct File {
        faktory: Faktory,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Faktory {
        cron: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        schedule: Spanned<String>,
    }
    let file: File = toml::from_str(text).unwrap_or_default();
    file.faktory.cron.get(index).map(|entry| entry.schedule.span()).unwrap_or_default()
}
