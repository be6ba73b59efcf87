//! A file, or its text, to a [`Config`].

use std::fs;
use std::path::Path;

use super::error::{Error, Spot};
use super::sections::Config;

impl Config {
    /// Reads a file. What it says is not checked beyond its form: see [`Config::check`].
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
    /// [`Error::Malformed`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|error| {
            let spot = Spot::new(text, error.span().unwrap_or_default(), error.message());
            Error::Malformed { path: path.to_owned(), spot: Box::new(spot) }
        })
    }
}
