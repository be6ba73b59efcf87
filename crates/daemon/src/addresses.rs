//! The bound addresses, for a program that starts an ephemeral daemon.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use crate::failure::Failure;
use windlass_net::listen::Bound;

/// The first address of each listener's name.
#[derive(Debug, Default)]
pub(crate) struct Addresses(BTreeMap<&'static str, String>);

impl Addresses {
    /// Notes an address.
    pub(crate) fn note(&mut self, name: &'static str, bound: &Bound) {
        let address = || bound.address().map_or_else(|_| "?".to_owned(), |address| address.to_string());
        self.0.entry(name).or_insert_with(address);
    }

    /// Prints all of them as one line of JSON.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        let line = serde_json::to_string(&self.0).unwrap_or_default() + "\n";
        let mut out = io::stdout();
        let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| Failure::Runtime(format!("cannot print the addresses: {error}")))
    }
}
