//! The compared servers: their names on the command line and how each is started. Only this module uses our daemon's
//! configuration keys, gearmand's options and the settings of EventMQ's released programs.
//!
//! The released programs are in Python, in a virtual environment that the caller has made; see the crate's README.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::error::Error;
use crate::links::Endpoint;
use crate::servers::{self, Home, Launch, loopback};

/// The path in distributions; not on every user's PATH.
const GEARMAND: &str = "/usr/sbin/gearmand";
/// The backlog is the same for both servers, large enough for a thousand connections at once.
const GEARMAND_ARGS: [&str; 4] = ["--listen=127.0.0.1", "--backlog=1024", "--log-file=stderr", "--verbose=ERROR"];
/// The remedy for a missing daemon.
const BUILD: &str =
    "build it with `cargo build --release`, say where it is with --windlass-bin, or leave it out of --peers";
/// The remedy for a wrong virtual environment.
const REMEDY: &str = "make a virtual environment with eventmq 0.3.13 as the README says, or leave --eventmq-venv out";
/// A Python program that prints the installed versions.
const VERSIONS: &str = "import importlib.metadata as m, zmq\n\
                        print('eventmq', m.version('eventmq'), 'with pyzmq', m.version('pyzmq'), 'and libzmq', zmq.zmq_version())";
/// The daemon's front-ends with further keys; a run uses one front-end and turns the others off. In its dialect 1.4, spiderq
/// also reports counts of Pings.
const FRONT_ENDS: [(&str, &str); 4] = [
    ("gearman", ""),
    ("faktory", ""),
    ("spiderq", "dialect = \"1.4\"\n"),
    ("eventmq", "admin_listen = []\npublish_listen = []\nsubscribe_listen = []\n"),
];

/// What an acknowledgement means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// On the disk.
    Sync,
    /// On the disk within 100 ms.
    Interval,
}

/// A name after `--peers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerName {
    /// One peer per durability.
    Windlass { unix: bool },
    /// A server with one setting.
    One(Peer),
}

impl PeerName {
    pub(crate) const WINDLASS: Self = Self::Windlass { unix: false };

    /// A server that speaks Gearman. [`Error::Usage`] for any other name.
    pub(crate) fn gearman(text: &str) -> Result<Self, Error> {
        match (text, text.strip_prefix("gearmand-t").map(str::parse)) {
            ("windlass", _) => Ok(Self::WINDLASS),
            ("windlass-unix", _) => Ok(Self::Windlass { unix: true }),
            ("gearmand", _) => Ok(Self::One(Peer::Gearmand { threads: None })),
            ("gearmand-sqlite", _) => Ok(Self::One(Peer::GearmandSqlite)),
            (_, Some(Ok(count))) => Ok(Self::One(Peer::Gearmand { threads: Some(count) })),
            _ => Err(Error::Usage(format!(
                "unknown peer {text:?}: windlass, windlass-unix, gearmand, gearmand-tN, gearmand-sqlite"
            ))),
        }
    }

    /// A server that speaks eMQP. [`Error::Usage`] for any other name.
    pub(crate) fn eventmq(text: &str) -> Result<Self, Error> {
        match text {
            "windlass" => Ok(Self::WINDLASS),
            "router" => Ok(Self::One(Peer::Router)),
            _ => Err(Error::Usage(format!("peer {text:?} is neither windlass nor router"))),
        }
    }
}

/// One server with one setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Our daemon, its load over TCP or over a Unix socket.
    Windlass { durability: Durability, unix: bool },
    /// gearmand, jobs in memory; `--threads`, or gearmand's own choice.
    Gearmand { threads: Option<u8> },
    /// gearmand with its libsqlite3 queue.
    GearmandSqlite,
    /// The released `emq-router`, jobs in memory.
    Router,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Windlass { durability, unix } => {
                write!(f, "windlass-{}{}", if *unix { "unix-" } else { "" }, durability.name())
            }
            Peer::Gearmand { threads: None } => f.write_str("gearmand"),
            Peer::Gearmand { threads: Some(count) } => write!(f, "gearmand-t{count}"),
            Peer::GearmandSqlite => f.write_str("gearmand-sqlite"),
            Peer::Router => f.write_str("router"),
        }
    }
}

impl Durability {
    fn name(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Interval => "interval",
        }
    }
}

/// What a case requires of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Speed without durability.
    Memory,
    /// Jobs that survive a crash.
    Durability,
    /// A count of waiting jobs, which the released router does not report.
    Count,
}

impl Peer {
    /// The peers with these names, with one `windlass` per durability.
    pub(crate) fn expand(names: &[PeerName], durabilities: &[Durability]) -> Vec<Peer> {
        let expand = |name: &PeerName| match *name {
            PeerName::Windlass { unix } => {
                durabilities.iter().map(|durability| Peer::Windlass { durability: *durability, unix }).collect()
            }
            PeerName::One(peer) => vec![peer],
        };
        names.iter().flat_map(expand).collect()
    }

    /// Whether this is the daemon the others are compared with.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Peer::Windlass { .. })
    }

    /// Whether its jobs survive a crash.
    pub(crate) fn is_durable(self) -> bool {
        self.is_ours() || self == Peer::GearmandSqlite
    }

    /// Whether an acknowledged job may not be on the disk yet.
    pub(crate) fn writes_late(self) -> bool {
        matches!(self, Peer::Windlass { durability: Durability::Interval, .. })
    }

    /// Whether it can take part in a case.
    pub(crate) fn fits(self, needs: Needs) -> bool {
        match needs {
            Needs::Memory => self != Peer::GearmandSqlite,
            Needs::Durability => self.is_durable(),
            Needs::Count => self.is_ours(),
        }
    }
}

/// The programs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    windlass: PathBuf,
    venv: Option<PathBuf>,
}

impl Programs {
    /// The paths: `windlass` as given, or beside this program; the released programs in a virtual environment.
    pub(crate) fn new(windlass: Option<PathBuf>, venv: Option<PathBuf>) -> Self {
        let beside = || Some(std::env::current_exe().ok()?.parent()?.join("windlass"));
        let windlass = windlass.or_else(beside).unwrap_or_else(|| PathBuf::from("windlass"));
        // A program starts in a folder of its own, where a relative path would not resolve.
        let absolute = |path: PathBuf| path.canonicalize().unwrap_or(path);
        Self { windlass: absolute(windlass), venv: venv.map(absolute) }
    }

    /// The virtual environment. [`Error::Usage`] if none was given.
    pub(crate) fn venv(&self) -> Result<&Path, Error> {
        let missing =
            || Error::Usage(format!("the released programs are needed and --eventmq-venv is not there; {REMEDY}"));
        self.venv.as_deref().ok_or_else(missing)
    }

    /// A peer's version. Checks first whether the program exists. [`Error::Missing`] with a remedy; [`Error::Usage`].
    pub(crate) fn version(&self, peer: Peer) -> Result<String, Error> {
        match peer {
            Peer::Windlass { .. } => servers::version(&self.windlass, BUILD),
            Peer::Gearmand { .. } | Peer::GearmandSqlite => {
                let remedy = "install Debian's package gearman-job-server, or leave it out of --peers";
                servers::version(Path::new(GEARMAND), remedy)
            }
            Peer::Router => versions(self.venv()?),
        }
    }

    /// The command that starts a peer with one front-end (`gearman`, `faktory`, `spiderq`, `eventmq`) on fresh ports and its
    /// data in `home`. Writes the configuration there. [`Error::Io`], [`Error::Usage`].
    pub(crate) fn launch(&self, peer: Peer, front_end: &str, home: &Home) -> Result<Launch, Error> {
        let addr = loopback(servers::free_port()?);
        let threads = match peer {
            Peer::Windlass { durability, unix } => return self.windlass(durability, unix, front_end, addr, home),
            Peer::Router => return self.router(addr),
            Peer::Gearmand { threads } => threads.map(|count| format!("--threads={count}")),
            Peer::GearmandSqlite => None,
        };
        let mut args = GEARMAND_ARGS.map(str::to_owned).to_vec();
        args.push(format!("--port={}", addr.port()));
        args.push(format!("--pid-file={}", home.path().join("gearmand.pid").display()));
        args.extend(threads);
        if peer == Peer::GearmandSqlite {
            let file = home.path().join("queue.sqlite");
            args.extend(["--queue-type=libsqlite3".to_owned(), format!("--libsqlite3-db={}", file.display())]);
        }
        Ok(Launch::new(PathBuf::from(GEARMAND), args, addr))
    }

    /// The load may use a Unix socket in `home`. The TCP port then serves only administrative requests.
    fn windlass(
        &self,
        durability: Durability,
        unix: bool,
        front_end: &str,
        addr: SocketAddr,
        home: &Home,
    ) -> Result<Launch, Error> {
        let path = home.path().join("socket");
        let mut addresses = vec![addr.to_string()];
        addresses.extend(unix.then(|| format!("unix:{}", path.display())));
        let file = home.path().join("windlass.toml");
        let text = configuration(home.path(), front_end, durability, &addresses);
        fs::write(&file, text).map_err(Error::io("write the configuration"))?;
        let args = vec!["serve".to_owned(), "-c".to_owned(), file.display().to_string()];
        let mut launch = Launch::new(self.windlass.clone(), args, addr);
        if unix {
            launch.ports.front = Endpoint::Unix(path.clone());
            launch.ports.back = Endpoint::Unix(path);
        }
        Ok(launch)
    }

    /// The router opens the port for administrators last.
    fn router(&self, admin: SocketAddr) -> Result<Launch, Error> {
        let (front, back) = (loopback(servers::free_port()?), loopback(servers::free_port()?));
        let env = [
            ("EVENTMQ_FRONTEND_ADDR", url(front)),
            ("EVENTMQ_BACKEND_ADDR", url(back)),
            ("EVENTMQ_ADMINISTRATIVE_ADDR", url(admin)),
        ];
        let mut launch = released(self.venv()?, "emq-router", env, admin);
        (launch.ports.front, launch.ports.back) = (Endpoint::Tcp(front), Endpoint::Tcp(back));
        Ok(launch)
    }
}

/// The command that starts one of the released programs; `addr` is the address it listens on, if any.
pub(crate) fn released<const N: usize>(
    venv: &Path,
    program: &str,
    env: [(&'static str, String); N],
    addr: SocketAddr,
) -> Launch {
    let bin = venv.join("bin");
    let args = vec!["-Wignore".to_owned(), bin.join(program).display().to_string()];
    // They log every message, whatever their settings.
    Launch { env: env.to_vec(), quiet: true, ..Launch::new(bin.join("python"), args, addr) }
}

/// An address in the released programs' notation.
pub(crate) fn url(addr: SocketAddr) -> String {
    format!("tcp://{addr}")
}

fn versions(venv: &Path) -> Result<String, Error> {
    let program = venv.join("bin/python");
    let missing = |_| Error::Missing { program: program.clone(), remedy: REMEDY.to_owned() };
    let output = Command::new(&program).args(["-c", VERSIONS]).output().map_err(missing)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let refusal = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Usage(format!("{}: {refusal}; {REMEDY}", program.display())))
}

fn configuration(home: &Path, front_end: &str, durability: Durability, addresses: &[String]) -> String {
    let data = home.join("data").display().to_string();
    let listener = |(name, more): (&str, &str)| {
        let listen = if name == front_end { addresses } else { &[] };
        format!("\n[{name}]\nlisten = {listen:?}\n{more}")
    };
    format!(
        "data_dir = {data:?}\ndurability = \"{}\"\ncommit_interval = \"100ms\"\n\n\
         [limits]\njobs_bytes_max = \"64GiB\"\n{}",
        durability.name(),
        FRONT_ENDS.map(listener).concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_peers_and_back() {
        let cases: [(&str, &[&str]); 7] = [
            ("windlass", &["windlass-sync", "windlass-interval"]),
            ("windlass-unix", &["windlass-unix-sync", "windlass-unix-interval"]),
            ("gearmand", &["gearmand"]),
            ("gearmand-t0", &["gearmand-t0"]),
            ("gearmand-t16", &["gearmand-t16"]),
            ("gearmand-sqlite", &["gearmand-sqlite"]),
            ("router", &["router"]),
        ];
        for (name, expected) in cases {
            let found = if name == "router" { PeerName::eventmq(name) } else { PeerName::gearman(name) };
            let peers = Peer::expand(&[found.unwrap()], &[Durability::Sync, Durability::Interval]);
            assert_eq!(peers.iter().map(Peer::to_string).collect::<Vec<_>>(), expected, "{name}");
        }
        for wrong in ["", "gearmand-t", "gearmand-t300", "gearmand-x", "Windlass"] {
            assert!(PeerName::gearman(wrong).is_err() && PeerName::eventmq(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn peers_take_part_where_it_means_something() {
        let windlass = Peer::Windlass { durability: Durability::Sync, unix: false };
        let gearmand = Peer::Gearmand { threads: None };
        let table = [(windlass, [true; 3]), (gearmand, [true, false, false]), (Peer::Router, [true, false, false])];
        for (peer, expected) in table.into_iter().chain([(Peer::GearmandSqlite, [false, true, false])]) {
            let found = [Needs::Memory, Needs::Durability, Needs::Count].map(|needs| peer.fits(needs));
            assert_eq!(found, expected, "{peer}");
        }
    }

    #[test]
    fn errors_for_missing_programs_have_a_remedy() {
        let windlass = Peer::Windlass { durability: Durability::Sync, unix: false };
        let table = [
            (windlass, None, "/nowhere/windlass: not found; build it with"),
            (Peer::Router, None, "the released programs are needed and --eventmq-venv is not there; make a virtual"),
            (Peer::Router, Some(PathBuf::from("/nowhere")), "/nowhere/bin/python: not found; make a virtual"),
        ];
        for (peer, venv, expected) in table {
            let programs = Programs::new(Some(PathBuf::from("/nowhere/windlass")), venv);
            let error = programs.version(peer).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn the_router_gets_its_ports() {
        let home = Home::new(&std::env::temp_dir()).unwrap();
        let programs = Programs::new(None, Some(PathBuf::from("/nowhere")));
        let launch = programs.launch(Peer::Router, "eventmq", &home).unwrap();
        assert_eq!(launch.args, ["-Wignore", "/nowhere/bin/emq-router"]);
        let addresses = launch.env.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>();
        let Endpoint::Tcp(front) = launch.ports.front else { panic!() };
        assert_eq!((addresses[0], addresses[2]), (&*url(front), &*url(launch.ports.admin)));
        assert!(launch.quiet);
    }

    #[test]
    fn the_configuration() {
        let addresses = ["127.0.0.1:5555".to_owned(), "unix:/tmp/a/socket".to_owned()];
        let text = configuration(Path::new("/tmp/a \"b\""), "spiderq", Durability::Interval, &addresses);
        let expected = "data_dir = \"/tmp/a \\\"b\\\"/data\"\ndurability = \"interval\"\ncommit_interval = \"100ms\"\n\n\
                        [limits]\njobs_bytes_max = \"64GiB\"\n\n[gearman]\nlisten = []\n\n[faktory]\nlisten = []\n\n\
                        [spiderq]\nlisten = [\"127.0.0.1:5555\", \"unix:/tmp/a/socket\"]\ndialect = \"1.4\"\n\n\
                        [eventmq]\nlisten = []\nadmin_listen = []\npublish_listen = []\nsubscribe_listen = []\n";
        assert_eq!(text, expected);
    }
}
