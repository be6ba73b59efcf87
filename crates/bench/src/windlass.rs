//! Our daemon as a server under load: its path and how to start it. Only this module uses its configuration keys.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::Error;
use crate::servers::{self, Home, Launch};

/// The daemon's front-ends with further keys; a run uses one front-end and turns the others off. In its dialect 1.4, spiderq
/// also reports counts of Pings.
const FRONT_ENDS: [(&str, &str); 4] = [
    ("gearman", ""),
    ("faktory", ""),
    ("spiderq", "dialect = \"1.4\"\n"),
    ("eventmq", "admin_listen = []\npublish_listen = []\nsubscribe_listen = []\n"),
];

/// The promise of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On the disk.
    Sync,
    /// On the disk within 100 ms.
    Interval,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Sync => "sync",
            Durability::Interval => "interval",
        })
    }
}

impl FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "sync" => Ok(Durability::Sync),
            "interval" => Ok(Durability::Interval),
            _ => Err(Error::Usage(format!("durability {text:?} is neither sync nor interval"))),
        }
    }
}

/// The path of `windlass`: as given, or beside this program.
pub fn program(said: Option<PathBuf>) -> PathBuf {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("windlass"));
    let program = said.or_else(beside).unwrap_or_else(|| PathBuf::from("windlass"));
    // The server starts in a folder of its own, where a relative path would not resolve.
    program.canonicalize().unwrap_or(program)
}

/// The first line of `--version`.
///
/// # Errors
/// [`Error::Missing`] with a remedy.
pub fn version(program: &Path) -> Result<String, Error> {
    let remedy =
        "build it with `cargo build --release`, say where it is with --windlass-bin, or leave it out of --peers";
    servers::version(program, remedy)
}

/// The command that starts the daemon with one front-end (`gearman`, `faktory`, `spiderq`, `eventmq`) on a fresh port and its
/// data in `home`. Writes the configuration there.
///
/// # Errors
/// [`Error::Io`].
pub fn launch(program: &Path, front_end: &str, durability: Durability, home: &Home) -> Result<Launch, Error> {
    launch_at(program, front_end, durability, home, None)
}

/// The same, with the load over a Unix socket in `home`. The TCP port serves only administrative requests.
///
/// # Errors
/// [`Error::Io`].
pub fn launch_unix(program: &Path, front_end: &str, durability: Durability, home: &Home) -> Result<Launch, Error> {
    launch_at(program, front_end, durability, home, Some(home.path().join("socket")))
}

fn launch_at(
    program: &Path,
    front_end: &str,
    durability: Durability,
    home: &Home,
    unix: Option<PathBuf>,
) -> Result<Launch, Error> {
    let port = servers::free_port()?;
    let file = home.path().join("windlass.toml");
    let addresses: Vec<String> = std::iter::once(format!("127.0.0.1:{port}"))
        .chain(unix.iter().map(|path| format!("unix:{}", path.display())))
        .collect();
    let text = configuration(home.path(), front_end, durability, &addresses);
    fs::write(&file, text).map_err(Error::io("write the configuration"))?;
    let args = vec!["serve".to_owned(), "-c".to_owned(), file.display().to_string()];
    Ok(Launch { program: program.to_owned(), args, env: Vec::new(), quiet: false, port, unix })
}

fn configuration(home: &Path, front_end: &str, durability: Durability, addresses: &[String]) -> String {
    let data = home.join("data").display().to_string();
    let quoted = addresses.iter().map(|address| format!("{address:?}")).collect::<Vec<_>>().join(", ");
    let listener = |(name, more): (&str, &str)| {
        let listen = if name == front_end { &*quoted } else { "" };
        format!("\n[{name}]\nlisten = [{listen}]\n{more}")
    };
    format!(
        "data_dir = {data:?}\ndurability = \"{durability}\"\ncommit_interval = \"100ms\"\n\n\
         [limits]\njobs_bytes_max = \"64GiB\"\n{}",
        FRONT_ENDS.map(listener).concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration() {
        let text =
            configuration(Path::new("/tmp/a \"b\""), "gearman", Durability::Interval, &["127.0.0.1:4730".to_owned()]);
        let expected = "data_dir = \"/tmp/a \\\"b\\\"/data\"\ndurability = \"interval\"\ncommit_interval = \"100ms\"\n\n\
                        [limits]\njobs_bytes_max = \"64GiB\"\n\n[gearman]\nlisten = [\"127.0.0.1:4730\"]\n\n[faktory]\nlisten = []\n\n[spiderq]\nlisten = []\ndialect = \"1.4\"\n\n\
                        [eventmq]\nlisten = []\nadmin_listen = []\npublish_listen = []\nsubscribe_listen = []\n";
        assert_eq!(text, expected);
        let addresses = ["127.0.0.1:5555".to_owned(), "unix:/tmp/a/socket".to_owned()];
        let text = configuration(Path::new("/tmp/a"), "spiderq", Durability::Sync, &addresses);
        let expected = "[gearman]\nlisten = []\n\n[faktory]\nlisten = []\n\n\
                        [spiderq]\nlisten = [\"127.0.0.1:5555\", \"unix:/tmp/a/socket\"]\ndialect = \"1.4\"\n\n\
                        [eventmq]\nlisten = []\nadmin_listen = []\npublish_listen = []\nsubscribe_listen = []\n";
        assert!(text.ends_with(expected), "{text}");
    }
}
