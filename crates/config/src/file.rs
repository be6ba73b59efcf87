//! Reads a file, or its text, into a configuration.

use std::fs;
use std::ops::Range;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::error::{Error, Spot};

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
        Error::Malformed { path: path.to_owned(), spot: Box::new(spot) }
    }
}

/// Reads the text of a file.
///
/// # Errors
///
/// [`Error::Unreadable`].
pub fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|reason| Error::Unreadable { path: path.to_owned(), reason })
}

/// A library's message without the types of our language.
pub(crate) fn plain(message: &str) -> String {
    let types = [("usize", ""), ("u64", ""), ("u32", " below 2^32"), ("u16", " below 65536"), ("u8", " below 256")];
    types.into_iter().fold(message.to_owned(), |text, (name, limit)| {
        text.replace(&format!("expected {name}"), &format!("expected a whole number{limit}"))
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
        Misplaced { range, message: plain(error.message()) }.within(path, text)
    })
}
