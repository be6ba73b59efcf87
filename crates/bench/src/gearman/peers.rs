//! The compared servers: their names on the command line and how each is started. Only this module uses gearmand's options.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::Error;
use crate::servers::{self, Home, Launch};
use crate::windlass::{self, Durability};

/// The path in distributions; not on every user's PATH.
const GEARMAND: &str = "/usr/sbin/gearmand";
/// The same for both servers, large enough for a thousand connections at once.
const BACKLOG: &str = "--backlog=1024";

/// A name after `--peers`; `windlass` stands for one peer per durability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerName {
    /// `windlass`.
    Windlass,
    /// `windlass-unix`.
    WindlassUnix,
    /// `gearmand` (its own number of threads) or `gearmand-tN`.
    Gearmand {
        /// `--threads`.
        threads: Option<u8>,
    },
    /// `gearmand-sqlite`.
    GearmandSqlite,
}

impl FromStr for PeerName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let threads = |digits: &str| digits.parse().map(|count| PeerName::Gearmand { threads: Some(count) });
        match (text, text.strip_prefix("gearmand-t")) {
            ("windlass", _) => Ok(PeerName::Windlass),
            ("windlass-unix", _) => Ok(PeerName::WindlassUnix),
            ("gearmand", _) => Ok(PeerName::Gearmand { threads: None }),
            ("gearmand-sqlite", _) => Ok(PeerName::GearmandSqlite),
            (_, Some(digits)) if threads(digits).is_ok() => threads(digits).map_err(|_| unknown(text)),
            _ => Err(unknown(text)),
        }
    }
}

fn unknown(name: &str) -> Error {
    Error::Usage(format!("unknown peer {name:?}: windlass, windlass-unix, gearmand, gearmand-tN, gearmand-sqlite"))
}

/// One server with one setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Our daemon.
    Windlass(Durability),
    /// Our daemon, over a Unix socket.
    WindlassUnix(Durability),
    /// gearmand, jobs in memory.
    Gearmand {
        /// `--threads`, or gearmand's own choice.
        threads: Option<u8>,
    },
    /// gearmand with its libsqlite3 queue.
    GearmandSqlite,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Windlass(durability) => write!(f, "windlass-{durability}"),
            Peer::WindlassUnix(durability) => write!(f, "windlass-unix-{durability}"),
            Peer::Gearmand { threads: None } => f.write_str("gearmand"),
            Peer::Gearmand { threads: Some(count) } => write!(f, "gearmand-t{count}"),
            Peer::GearmandSqlite => f.write_str("gearmand-sqlite"),
        }
    }
}

impl Peer {
    /// The peers with these names, with one `windlass` per durability.
    pub fn expand(names: &[PeerName], durabilities: &[Durability]) -> Vec<Peer> {
        let expand = |name: &PeerName| match *name {
            PeerName::Windlass => durabilities.iter().copied().map(Peer::Windlass).collect(),
            PeerName::WindlassUnix => durabilities.iter().copied().map(Peer::WindlassUnix).collect(),
            PeerName::Gearmand { threads } => vec![Peer::Gearmand { threads }],
            PeerName::GearmandSqlite => vec![Peer::GearmandSqlite],
        };
        names.iter().flat_map(expand).collect()
    }

    /// Whether this is the daemon the others are compared with.
    pub fn is_ours(self) -> bool {
        matches!(self, Peer::Windlass(_) | Peer::WindlassUnix(_))
    }

    /// Whether its jobs survive a crash.
    pub fn is_durable(self) -> bool {
        !matches!(self, Peer::Gearmand { .. })
    }

    /// Whether it takes part in cases without durability.
    pub fn is_for_memory(self) -> bool {
        self != Peer::GearmandSqlite
    }

    /// Whether an acknowledged job may not be on the disk yet.
    pub fn writes_late(self) -> bool {
        matches!(self, Peer::Windlass(Durability::Interval) | Peer::WindlassUnix(Durability::Interval))
    }
}

/// The programs.
#[derive(Debug, Clone)]
pub struct Programs {
    windlass: PathBuf,
    gearmand: PathBuf,
}

impl Programs {
    /// The paths: `windlass` as given, or beside this program; gearmand where distributions put it.
    pub fn new(windlass: Option<PathBuf>) -> Self {
        Self { windlass: windlass::program(windlass), gearmand: PathBuf::from(GEARMAND) }
    }

    /// The first line of `--version`. Checks first whether the program exists.
    ///
    /// # Errors
    /// [`Error::Missing`] with a remedy.
    pub fn version(&self, peer: Peer) -> Result<String, Error> {
        if peer.is_ours() {
            return windlass::version(&self.windlass);
        }
        let remedy = "install Debian's package gearman-job-server, or leave it out of --peers";
        servers::version(&self.gearmand, remedy)
    }

    /// The command that starts a peer on a fresh port with its data in `home`. Writes the configuration there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn launch(&self, peer: Peer, home: &Home) -> Result<Launch, Error> {
        let port = servers::free_port()?;
        let args = match peer {
            Peer::Windlass(durability) => return windlass::launch(&self.windlass, "gearman", durability, home),
            Peer::WindlassUnix(durability) => {
                return windlass::launch_unix(&self.windlass, "gearman", durability, home);
            }
            Peer::Gearmand { threads } => {
                let mut args = gearmand_args(home.path(), port);
                args.extend(threads.map(|count| format!("--threads={count}")));
                args
            }
            Peer::GearmandSqlite => {
                let mut args = gearmand_args(home.path(), port);
                let file = home.path().join("queue.sqlite");
                args.push("--queue-type=libsqlite3".to_owned());
                args.push(format!("--libsqlite3-db={}", file.display()));
                args
            }
        };
        Ok(Launch { program: self.gearmand.clone(), args, env: Vec::new(), quiet: false, port, unix: None })
    }
}

fn gearmand_args(home: &Path, port: u16) -> Vec<String> {
    let pid_file = home.join("gearmand.pid");
    let mut args: Vec<String> =
        ["--listen=127.0.0.1", BACKLOG, "--log-file=stderr", "--verbose=ERROR"].map(str::to_owned).to_vec();
    args.push(format!("--port={port}"));
    args.push(format!("--pid-file={}", pid_file.display()));
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_peers_and_back() {
        let cases: [(&str, &[&str]); 6] = [
            ("windlass", &["windlass-sync", "windlass-interval"]),
            ("windlass-unix", &["windlass-unix-sync", "windlass-unix-interval"]),
            ("gearmand", &["gearmand"]),
            ("gearmand-t0", &["gearmand-t0"]),
            ("gearmand-t16", &["gearmand-t16"]),
            ("gearmand-sqlite", &["gearmand-sqlite"]),
        ];
        for (name, expected) in cases {
            let peers = Peer::expand(&[name.parse().unwrap()], &[Durability::Sync, Durability::Interval]);
            assert_eq!(peers.iter().map(Peer::to_string).collect::<Vec<_>>(), expected, "{name}");
        }
        for wrong in ["", "gearmand-t", "gearmand-t300", "gearmand-x", "Windlass"] {
            assert!(wrong.parse::<PeerName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_error_for_a_missing_program_has_a_remedy() {
        let programs = Programs::new(Some(PathBuf::from("/nowhere/windlass")));
        let error = programs.version(Peer::Windlass(Durability::Sync)).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/windlass: not found; build it with"), "{error}");
    }
}
