//! The bound addresses: for a person at the terminal, the log, and a program that starts an ephemeral daemon.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;

use crate::logging;
use windlass_config::Failure;
use windlass_net::Bound;

/// The addresses, by listener.
#[derive(Debug, Default)]
pub(crate) struct Addresses(BTreeMap<&'static str, Vec<String>>);

impl Addresses {
    /// Records an address.
    pub(crate) fn note(&mut self, name: &'static str, bound: &Bound) {
        let address = bound
            .address()
            .map_or_else(|_| "?".to_owned(), |address| address.to_string());
        self.0.entry(name).or_default().push(address);
    }

    /// The URL of the pages, if HTTP listens on TCP.
    pub(crate) fn pages(&self) -> Option<String> {
        let address = self
            .0
            .get("http")?
            .iter()
            .find(|address| address.parse::<SocketAddr>().is_ok())?;
        Some(format!("http://{address}/"))
    }

    /// Prints a greeting when the daemon was started on a terminal.
    pub(crate) fn welcome(&self, data: &str) {
        if !io::stderr().is_terminal() {
            return;
        }
        let row = |name: &str, value: &str| format!("  {name:<18} {value}\n");
        let others = self.0.iter().filter(|(name, _)| **name != "http");
        let rows: String = others.map(|(name, at)| row(name, &at.join(", "))).collect();
        let pages = self
            .pages()
            .map(|pages| row("pages", &pages))
            .unwrap_or_default();
        let data = row("data", data);
        // The program as it was typed, because it may not be on the PATH, and a link to it may have
        // another program's name.
        let typed = std::env::args()
            .next()
            .filter(|program| program.ends_with("/windlass"));
        let program = typed.as_deref().unwrap_or("windlass");
        let hint =
            format!("  Ctrl-C stops it. `{program} status` in another terminal looks at it.");
        logging::say(&format!(
            "Windlass {} serves\n{pages}{rows}{data}{hint}\n",
            env!("CARGO_PKG_VERSION")
        ));
    }

    /// Prints the first address of each listener as one line of JSON.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        let firsts: BTreeMap<_, _> = self.0.iter().map(|(name, at)| (name, at.first())).collect();
        let line = serde_json::to_string(&firsts).unwrap_or_default() + "\n";
        let mut out = io::stdout();
        let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| Failure::Runtime(format!("cannot print the addresses: {error}")))
    }
}
