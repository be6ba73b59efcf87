//! The compared servers: their names on the command line and how each is started. Only this module uses our daemon's
//! configuration keys, the peers' options and the settings of EventMQ's released programs.
//!
//! The released programs are in Python, in a virtual environment that the caller has made; see the crate's README.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::cases::{Case, Needs, Request, Shape, Work};
use crate::error::Error;
use crate::links::Endpoint;
use crate::protocol::Protocol;
use crate::servers::{self, Home, Launch, loopback};
use crate::{beanstalkd, redis};

/// The path in distributions; not on every user's PATH.
const GEARMAND: &str = "/usr/sbin/gearmand";
/// The backlog is the same as the daemon's, large enough for a thousand connections at once.
const GEARMAND_ARGS: &str = "--listen=127.0.0.1 --backlog=1024 --log-file=stderr --verbose=ERROR";
const REDIS: &str = "redis-server";
/// An append-only file that is not rewritten during a run, and no snapshots.
const REDIS_ARGS: &str =
    "--bind 127.0.0.1 --save 3600 1000000000 --appendonly yes --auto-aof-rewrite-percentage 0 --loglevel warning";
const BEANSTALKD: &str = "beanstalkd";
/// The remedy for a missing daemon.
const BUILD: &str =
    "build it with `cargo build --release`, say where it is with --windlass-bin, or leave it out of --peers";
/// The remedy for a wrong virtual environment.
const REMEDY: &str = "make a virtual environment with eventmq 0.3.13 as the README says, or leave --eventmq-venv out";
/// A Python program that prints the installed versions.
const VERSIONS: &str = "import importlib.metadata as m, zmq\n\
                        print('eventmq', m.version('eventmq'), 'with pyzmq', m.version('pyzmq'), 'and libzmq', zmq.zmq_version())";
/// In the daemon's data directory.
const OPERATOR_SOCKET: &str = "operator.sock";
/// The daemon's front-ends with further keys; a run uses one front-end and turns the others off. In its dialect 1.4,
/// spiderq also reports counts of Pings.
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

/// When a peer's journal reaches the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fsync {
    /// When the kernel writes it.
    No,
    /// Within a second (redis) or 50 ms (beanstalkd).
    Late,
    /// Before the reply.
    Always,
}

/// One server with one setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Our daemon.
    Windlass { durability: Durability, way: Way },
    /// gearmand, jobs in memory; `--threads`, or gearmand's own choice.
    Gearmand { threads: Option<u8> },
    /// gearmand with its libsqlite3 queue.
    GearmandSqlite,
    /// Redis with an append-only file.
    Redis(Fsync),
    /// beanstalkd, jobs in memory or in a journal.
    Beanstalkd(Option<Fsync>),
    /// The released `emq-router`, jobs in memory.
    Router,
}

/// How our daemon is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Its load comes over TCP.
    Tcp,
    /// Its load comes over a Unix socket.
    Unix,
    /// Over TCP, while it is scraped and a browser shows its overview.
    Watched,
}

/// The peers with a fixed name.
const NAMED: [(&str, Peer); 10] = [
    ("gearmand", Peer::Gearmand { threads: None }),
    ("gearmand-sqlite", Peer::GearmandSqlite),
    ("redis-no", Peer::Redis(Fsync::No)),
    ("redis-everysec", Peer::Redis(Fsync::Late)),
    ("redis-always", Peer::Redis(Fsync::Always)),
    ("beanstalkd", Peer::Beanstalkd(None)),
    ("beanstalkd-no", Peer::Beanstalkd(Some(Fsync::No))),
    ("beanstalkd-50ms", Peer::Beanstalkd(Some(Fsync::Late))),
    ("beanstalkd-always", Peer::Beanstalkd(Some(Fsync::Always))),
    ("router", Peer::Router),
];

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Peer::Windlass { durability, way } = self {
            let way = match way {
                Way::Tcp => "",
                Way::Unix => "unix-",
                Way::Watched => "watched-",
            };
            write!(f, "windlass-{way}{}", durability.name())
        } else if let Peer::Gearmand { threads: Some(count) } = self {
            write!(f, "gearmand-t{count}")
        } else {
            f.write_str(NAMED.iter().find(|(_, peer)| peer == self).map_or("", |(name, _)| name))
        }
    }
}

impl Durability {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Interval => "interval",
        }
    }
}

impl Peer {
    /// The peers with a name after `--peers`: for `windlass`, `windlass-unix` and `windlass-watched` one per
    /// durability. `None` for an unknown name.
    pub(crate) fn named(name: &str, durabilities: &[Durability]) -> Option<Vec<Peer>> {
        let windlass = |way| durabilities.iter().map(move |durability| Peer::Windlass { durability: *durability, way });
        Some(match (name, name.strip_prefix("gearmand-t").map(str::parse)) {
            ("windlass", _) => windlass(Way::Tcp).collect(),
            ("windlass-unix", _) => windlass(Way::Unix).collect(),
            ("windlass-watched", _) => windlass(Way::Watched).collect(),
            (_, Some(Ok(count))) => vec![Peer::Gearmand { threads: Some(count) }],
            _ => vec![NAMED.iter().find(|(found, _)| *found == name)?.1],
        })
    }

    /// The protocol it speaks in a case of `protocol`.
    pub(crate) fn protocol(self, protocol: &'static Protocol) -> &'static Protocol {
        match self {
            Peer::Redis(_) => &redis::REDIS,
            Peer::Beanstalkd(_) => &beanstalkd::BEANSTALKD,
            Peer::Windlass { .. } | Peer::Gearmand { .. } | Peer::GearmandSqlite | Peer::Router => protocol,
        }
    }

    /// Whether this is our daemon.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Peer::Windlass { .. })
    }

    /// Whether this is the daemon the others are compared with. The one that is watched is one of the others.
    pub(crate) fn is_compared(self) -> bool {
        matches!(self, Peer::Windlass { way: Way::Tcp | Way::Unix, .. })
    }

    /// Whether its jobs survive a crash.
    pub(crate) fn is_durable(self) -> bool {
        !matches!(self, Peer::Gearmand { .. } | Peer::Beanstalkd(None) | Peer::Router)
    }

    /// Whether an acknowledged job may not be on the disk yet.
    pub(crate) fn writes_late(self) -> bool {
        matches!(self, Peer::Windlass { durability: Durability::Interval, .. })
    }

    /// Whether it acknowledges every job.
    pub(crate) fn acknowledges(self) -> bool {
        self != Peer::Router
    }

    /// Whether it can take part in a case.
    pub(crate) fn fits(self, case: &Case) -> bool {
        let cycles = matches!(case.work, Work::Load(Shape { request: Request::Job, .. }));
        match self {
            Peer::Windlass { way, .. } => way == Way::Tcp || !matches!(case.work, Work::Own { .. }),
            Peer::Gearmand { .. } => case.protocol.name == "gearman" && case.needs == Needs::Memory,
            Peer::GearmandSqlite => case.protocol.name == "gearman" && case.needs == Needs::Durability,
            Peer::Redis(_) | Peer::Beanstalkd(_) => case.protocol.name == "gearman" && cycles,
            Peer::Router => case.protocol.name == "eventmq" && case.needs == Needs::Memory,
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

    /// The virtual environment. [`Error::Missing`] if none was given.
    pub(crate) fn venv(&self) -> Result<&Path, Error> {
        let missing = || Error::Missing("--eventmq-venv".into(), REMEDY.to_owned());
        self.venv.as_deref().ok_or_else(missing)
    }

    /// A peer's version. Checks first whether the program exists. [`Error::Missing`] with a remedy; [`Error::Usage`].
    pub(crate) fn version(&self, peer: Peer) -> Result<String, Error> {
        let packaged = |program: &str, flag, package| {
            let remedy = format!("install Debian's package {package}, or leave it out of --peers");
            servers::version(Path::new(program), flag, &remedy)
        };
        match peer {
            Peer::Windlass { .. } => servers::version(&self.windlass, "--version", BUILD),
            Peer::Gearmand { .. } | Peer::GearmandSqlite => packaged(GEARMAND, "--version", "gearman-job-server"),
            Peer::Redis(_) => packaged(REDIS, "--version", "redis-server"),
            Peer::Beanstalkd(_) => packaged(BEANSTALKD, "-v", "beanstalkd"),
            Peer::Router => versions(self.venv()?),
        }
    }

    /// The command that starts a peer with one front-end (`gearman`, `faktory`, `spiderq`, `eventmq`) on fresh ports
    /// and its data in `home`. Writes the configuration there. [`Error::Io`], [`Error::Missing`].
    pub(crate) fn launch(&self, peer: Peer, front_end: &str, home: &Home) -> Result<Launch, Error> {
        let addr = loopback(servers::free_port()?);
        let (port, data) = (addr.port(), home.path().display());
        let (program, args) = match peer {
            Peer::Windlass { durability, way } => return self.windlass(durability, way, front_end, addr, home),
            Peer::Router => return self.router(addr),
            Peer::Gearmand { threads } => {
                let threads = threads.map_or(String::new(), |count| format!(" --threads={count}"));
                (GEARMAND, format!("{GEARMAND_ARGS} --port={port} --pid-file={data}/gearmand.pid{threads}"))
            }
            Peer::GearmandSqlite => {
                let queue = format!("--queue-type=libsqlite3 --libsqlite3-db={data}/queue.sqlite");
                (GEARMAND, format!("{GEARMAND_ARGS} --port={port} --pid-file={data}/gearmand.pid {queue}"))
            }
            Peer::Redis(fsync) => {
                let fsync = match fsync {
                    Fsync::No => "no",
                    Fsync::Late => "everysec",
                    Fsync::Always => "always",
                };
                (REDIS, format!("{REDIS_ARGS} --port {port} --dir {data} --appendfsync {fsync}"))
            }
            Peer::Beanstalkd(journal) => {
                let journal = match journal {
                    None => String::new(),
                    Some(Fsync::No) => format!(" -b {data} -F"),
                    Some(Fsync::Late) => format!(" -b {data} -f 50"),
                    Some(Fsync::Always) => format!(" -b {data} -f 0"),
                };
                (BEANSTALKD, format!("-l 127.0.0.1 -p {port}{journal}"))
            }
        };
        Ok(Launch::new(PathBuf::from(program), args.split_whitespace().map(str::to_owned).collect(), addr))
    }

    /// The load may use a Unix socket in `home`. The TCP port then serves only administrative requests.
    fn windlass(
        &self,
        durability: Durability,
        way: Way,
        front_end: &str,
        addr: SocketAddr,
        home: &Home,
    ) -> Result<Launch, Error> {
        let path = home.path().join("socket");
        let mut addresses = vec![addr.to_string()];
        addresses.extend((way == Way::Unix).then(|| format!("unix:{}", path.display())));
        let file = home.path().join("windlass.toml");
        let text = configuration(home.path(), front_end, durability, &addresses);
        fs::write(&file, text).map_err(Error::io("write the configuration"))?;
        let args = vec!["serve".to_owned(), "-c".to_owned(), file.display().to_string()];
        let mut launch = Launch::new(self.windlass.clone(), args, addr);
        if way == Way::Unix {
            let socket = Endpoint::unix(path).map_err(Error::io("name a Unix socket"))?;
            (launch.ports.front, launch.ports.back) = (socket.clone(), socket);
        }
        launch.watched = (way == Way::Watched).then(|| home.path().join("data").join(OPERATOR_SOCKET));
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
        (launch.ports.front, launch.ports.back) = (front.into(), back.into());
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
    let missing = |_| Error::Missing(program.clone(), REMEDY.to_owned());
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
    use crate::table::{eventmq, faktory, gearman};

    #[test]
    fn names_lead_to_peers_and_back() {
        let both = [Durability::Sync, Durability::Interval];
        let found = |name| Some(Peer::named(name, &both)?.iter().map(Peer::to_string).collect::<Vec<_>>());
        for name in NAMED.map(|(name, _)| name).into_iter().chain(["gearmand-t0", "gearmand-t16"]) {
            assert_eq!(found(name).unwrap(), [name]);
        }
        assert_eq!(found("windlass").unwrap(), ["windlass-sync", "windlass-interval"]);
        assert_eq!(found("windlass-unix").unwrap(), ["windlass-unix-sync", "windlass-unix-interval"]);
        assert_eq!(found("windlass-watched").unwrap(), ["windlass-watched-sync", "windlass-watched-interval"]);
        for wrong in ["", "gearmand-t", "gearmand-t300", "gearmand-x", "Windlass", "redis"] {
            assert_eq!(found(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn peers_take_part_where_it_means_something() {
        let cases = [gearman(), faktory(), eventmq()].concat();
        let case = |name: &str, protocol: &str| {
            cases.iter().find(|case| case.name == name && case.protocol.name == protocol).unwrap()
        };
        let cases = [
            case("bg-1", "gearman"),
            case("durable-bg-1", "gearman"),
            case("cycle-8", "gearman"),
            case("cycle-8", "faktory"),
            case("e2e-1x1", "eventmq"),
            case("request-1x1", "eventmq"),
        ];
        let table = [
            ("windlass-unix", [true; 6]),
            ("gearmand", [true, false, true, false, false, false]),
            ("gearmand-sqlite", [false, true, false, false, false, false]),
            ("redis-no", [false, false, true, false, false, false]),
            ("beanstalkd", [false, false, true, false, false, false]),
            ("router", [false, false, false, false, true, false]),
        ];
        for (name, expected) in table {
            let peer = Peer::named(name, &[Durability::Sync]).unwrap()[0];
            assert_eq!(cases.map(|case| peer.fits(case)), expected, "{name}");
        }
    }

    #[test]
    fn errors_for_missing_programs_have_a_remedy() {
        let windlass = Peer::Windlass { durability: Durability::Sync, way: Way::Tcp };
        let table = [
            (windlass, None, "/nowhere/windlass: not found; build it with"),
            (Peer::Router, None, "--eventmq-venv: not found; make a virtual"),
            (Peer::Router, Some(PathBuf::from("/nowhere")), "/nowhere/bin/python: not found; make a virtual"),
        ];
        for (peer, venv, expected) in table {
            let programs = Programs::new(Some(PathBuf::from("/nowhere/windlass")), venv);
            let error = programs.version(peer).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
