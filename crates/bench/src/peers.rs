//! The compared servers: their names on the command line and how each is started. Only this module uses our daemon's
//! configuration keys, the peers' options and the settings of EventMQ's released programs.
//!
//! The released programs are in Python, in a virtual environment that the caller has made; see the crate's README.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::cases::{Case, Needs, Work};
use crate::error::Error;
use crate::links::Endpoint;
use crate::protocol::Protocol;
use crate::servers::{self, Home, Launch, Ports, loopback};
use crate::shape::{Request, Shape};
use crate::{beanstalkd, redis};

/// A server from Debian's packages.
#[derive(Debug)]
struct Package {
    name: &'static str,
    program: &'static str,
    version: &'static str,
    /// `{port}` and `{data}` are its port and its folder. The arguments of a setting follow.
    args: &'static str,
    /// What it speaks in the cases that push, take and finish, the only ones for it. Without this, it is a job server.
    protocol: Option<&'static Protocol>,
}

/// The program's path in distributions is not on every user's PATH. The backlog is the same as the daemon's, large
/// enough for a thousand connections at once.
static GEARMAND: Package = Package {
    name: "gearman-job-server",
    program: "/usr/sbin/gearmand",
    version: "--version",
    args: "--listen=127.0.0.1 --backlog=1024 --log-file=stderr --verbose=ERROR --port={port} --pid-file={data}/pid",
    protocol: None,
};
/// An append-only file that is not rewritten during a run, and no snapshots.
static REDIS: Package = Package {
    name: "redis-server",
    program: "redis-server",
    version: "--version",
    args: "--bind 127.0.0.1 --save 3600 1000000000 --appendonly yes --auto-aof-rewrite-percentage 0 \
           --loglevel warning --port {port} --dir {data} --appendfsync",
    protocol: Some(&redis::REDIS),
};
static BEANSTALKD: Package = Package {
    name: "beanstalkd",
    program: "beanstalkd",
    version: "-v",
    args: "-l 127.0.0.1 -p {port}",
    protocol: Some(&beanstalkd::BEANSTALKD),
};

/// A package with one setting: the name, the further arguments, and whether jobs survive a crash.
#[derive(Debug)]
pub(crate) struct Setting(&'static str, &'static Package, &'static str, bool);

static SETTINGS: [Setting; 9] = [
    Setting("gearmand", &GEARMAND, "", false),
    Setting(
        "gearmand-sqlite",
        &GEARMAND,
        "--queue-type=libsqlite3 --libsqlite3-db={data}/queue.sqlite",
        true,
    ),
    Setting("redis-no", &REDIS, "no", true),
    Setting("redis-everysec", &REDIS, "everysec", true),
    Setting("redis-always", &REDIS, "always", true),
    Setting("beanstalkd", &BEANSTALKD, "", false),
    Setting("beanstalkd-no", &BEANSTALKD, "-b {data} -F", true),
    Setting("beanstalkd-50ms", &BEANSTALKD, "-b {data} -f 50", true),
    Setting("beanstalkd-always", &BEANSTALKD, "-b {data} -f 0", true),
];

/// The remedy for a missing daemon.
const BUILD: &str = "build it with `cargo build --release`, say where it is with --windlass-bin, or leave it out of --peers";
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
    (
        "eventmq",
        "admin_listen = []\npublish_listen = []\nsubscribe_listen = []\n",
    ),
];

/// What an acknowledgement means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// On the disk.
    Sync,
    /// On the disk within 100 ms.
    Interval,
}

/// One server with one setting.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer {
    /// Our daemon.
    Windlass { durability: Durability, way: Way },
    /// A server of others. gearmand may have a number of threads that it did not choose.
    Other {
        setting: &'static Setting,
        threads: Option<u8>,
    },
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
    /// Over TCP, while keys take turns: what stands before the first hyphen of jobs' unique ids.
    Fair,
    /// Over TCP, with a row in the history for each job that ends.
    History,
}

const WAYS: [(&str, Way); 5] = [
    ("windlass", Way::Tcp),
    ("windlass-unix", Way::Unix),
    ("windlass-watched", Way::Watched),
    ("windlass-fair", Way::Fair),
    ("windlass-history", Way::History),
];

/// The policy of every queue of a daemon whose keys take turns.
const FAIR: &str = "\n[queues.\"*\"]\nkey = { unique = true, split = \"-\" }\nfair = true\n";

/// The settings of a daemon that keeps a history.
const HISTORY: &str = "\n[history]\nkeep = \"7d\"\n";

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Windlass { durability, way } => {
                let name = WAYS
                    .iter()
                    .find(|(_, found)| found == way)
                    .map_or("", |(name, _)| name);
                write!(f, "{name}-{}", durability.name())
            }
            Peer::Other {
                setting,
                threads: Some(count),
            } => write!(f, "{}-t{count}", setting.0),
            Peer::Other {
                setting,
                threads: None,
            } => f.write_str(setting.0),
            Peer::Router => f.write_str("router"),
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
    /// The peers with a name after `--peers`: for `windlass` and its other ways one per durability. `None` for an unknown name.
    pub(crate) fn named(name: &str, durabilities: &[Durability]) -> Option<Vec<Peer>> {
        if let Some((_, way)) = WAYS.iter().find(|(found, _)| *found == name) {
            let peer = |durability: &Durability| Peer::Windlass {
                durability: *durability,
                way: *way,
            };
            return Some(durabilities.iter().map(peer).collect());
        }
        let setting = |name| SETTINGS.iter().find(|Setting(found, ..)| *found == name);
        Some(vec![match name.strip_prefix("gearmand-t") {
            _ if name == "router" => Peer::Router,
            Some(count) => Peer::Other {
                setting: setting("gearmand")?,
                threads: Some(count.parse().ok()?),
            },
            None => Peer::Other {
                setting: setting(name)?,
                threads: None,
            },
        }])
    }

    /// The protocol it speaks in a case of `protocol`.
    pub(crate) fn protocol(self, protocol: &'static Protocol) -> &'static Protocol {
        match self {
            Peer::Other { setting, .. } => setting.1.protocol.unwrap_or(protocol),
            Peer::Windlass { .. } | Peer::Router => protocol,
        }
    }

    /// Whether this is our daemon.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Peer::Windlass { .. })
    }

    /// Whether this is the daemon the others are compared with. Those that are watched or fair are some of the others.
    pub(crate) fn is_compared(self) -> bool {
        matches!(
            self,
            Peer::Windlass {
                way: Way::Tcp | Way::Unix,
                ..
            }
        )
    }

    /// Whether its jobs survive a crash.
    pub(crate) fn is_durable(self) -> bool {
        match self {
            Peer::Windlass { .. } => true,
            Peer::Other { setting, .. } => setting.3,
            Peer::Router => false,
        }
    }

    /// Whether an acknowledged job may not be on the disk yet.
    pub(crate) fn writes_late(self) -> bool {
        matches!(
            self,
            Peer::Windlass {
                durability: Durability::Interval,
                ..
            }
        )
    }

    /// Whether it acknowledges every job.
    pub(crate) fn acknowledges(self) -> bool {
        !matches!(self, Peer::Router)
    }

    /// Whether it can take part in a case.
    pub(crate) fn fits(self, case: &Case) -> bool {
        let cycles = matches!(
            case.work,
            Work::Load(Shape {
                request: Request::Job,
                ..
            })
        );
        match self {
            Peer::Windlass { way, .. } => way == Way::Tcp || !matches!(case.work, Work::Own { .. }),
            Peer::Other {
                setting: Setting(_, package, _, is_durable),
                ..
            } => {
                let needs = if *is_durable {
                    Needs::Durability
                } else {
                    Needs::Memory
                };
                case.protocol.name == "gearman"
                    && if package.protocol.is_some() {
                        cycles
                    } else {
                        case.needs == needs
                    }
            }
            Peer::Router => case.protocol.name == "eventmq" && case.needs == Needs::Memory,
        }
    }
}

/// How our daemon is started for two tenants.
#[derive(Debug)]
pub(crate) struct Tenants {
    /// Its ports are those of the quiet tenant.
    pub(crate) launch: Launch,
    pub(crate) hostile: Ports,
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
        let windlass = windlass
            .or_else(beside)
            .unwrap_or_else(|| PathBuf::from("windlass"));
        // A program starts in a folder of its own, where a relative path would not resolve.
        let absolute = |path: PathBuf| path.canonicalize().unwrap_or(path);
        Self {
            windlass: absolute(windlass),
            venv: venv.map(absolute),
        }
    }

    /// The virtual environment. [`Error::Missing`] if none was given.
    pub(crate) fn venv(&self) -> Result<&Path, Error> {
        let missing = || Error::Missing("--eventmq-venv".into(), REMEDY.to_owned());
        self.venv.as_deref().ok_or_else(missing)
    }

    /// A peer's version. Checks first whether the program exists. [`Error::Missing`] with a remedy; [`Error::Usage`].
    pub(crate) fn version(&self, peer: Peer) -> Result<String, Error> {
        match peer {
            Peer::Windlass { .. } => servers::version(&self.windlass, &["--version"], BUILD),
            Peer::Other {
                setting: Setting(_, package, ..),
                ..
            } => {
                let remedy = format!(
                    "install Debian's package {}, or leave it out of --peers",
                    package.name
                );
                servers::version(Path::new(package.program), &[package.version], &remedy)
            }
            Peer::Router => {
                servers::version(&self.venv()?.join("bin/python"), &["-c", VERSIONS], REMEDY)
            }
        }
    }

    /// The command that starts a peer with one front-end (`gearman`, `faktory`, `spiderq`, `eventmq`) on fresh ports
    /// and its data in `home`. Writes the configuration there. [`Error::Io`], [`Error::Missing`].
    pub(crate) fn launch(&self, peer: Peer, front_end: &str, home: &Home) -> Result<Launch, Error> {
        let addr = loopback(servers::free_port()?);
        match peer {
            Peer::Windlass { durability, way } => {
                self.windlass(durability, way, front_end, addr, home)
            }
            Peer::Router => self.router(addr),
            Peer::Other {
                setting: Setting(_, package, more, _),
                threads,
            } => {
                let threads = threads.map(|count| format!("--threads={count}"));
                let (port, data) = (addr.port().to_string(), home.path().display().to_string());
                let words = package
                    .args
                    .split_whitespace()
                    .chain(more.split_whitespace());
                let args = words
                    .map(|word| word.replace("{port}", &port).replace("{data}", &data))
                    .chain(threads);
                Ok(Launch::new(
                    PathBuf::from(package.program),
                    args.collect(),
                    addr,
                ))
            }
        }
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
        let mut addresses = format!("\"{addr}\"");
        if way == Way::Unix {
            addresses += &format!(", \"unix:{}\"", path.display());
        }
        let file = home.path().join("windlass.toml");
        let mut text = configuration(home.path(), front_end, durability, &addresses);
        text.extend((way == Way::Fair).then_some(FAIR));
        text.extend((way == Way::History).then_some(HISTORY));
        fs::write(&file, text).map_err(Error::io("write the configuration"))?;
        let mut launch = self.serve(&file, addr);
        if way == Way::Unix {
            let socket = Endpoint::unix(path).map_err(Error::io("name a Unix socket"))?;
            (launch.ports.front, launch.ports.back) = (socket.clone(), socket);
        }
        launch.watched =
            (way == Way::Watched).then(|| home.path().join("data").join(OPERATOR_SOCKET));
        Ok(launch)
    }

    /// The command that starts our daemon for two tenants with Gearman: `quiet` and, with these limits, `hostile`.
    /// [`Error::Io`].
    pub(crate) fn tenants(
        &self,
        durability: Durability,
        limits: &str,
        home: &Home,
    ) -> Result<Tenants, Error> {
        let quiet = loopback(servers::free_port()?);
        let hostile = loopback(servers::free_port()?);
        let address = |addr, name| format!("{{ address = \"{addr}\", namespace = \"{name}\" }}");
        let addresses = [address(quiet, "quiet"), address(hostile, "hostile")].join(", ");
        let text = configuration(home.path(), "gearman", durability, &addresses);
        let namespaces = format!("\n[namespaces]\nquiet = {{}}\nhostile.limits = {{ {limits} }}\n");
        let file = home.path().join("windlass.toml");
        fs::write(&file, text + &namespaces).map_err(Error::io("write the configuration"))?;
        let launch = self.serve(&file, quiet);
        Ok(Tenants {
            launch,
            hostile: Ports::at(hostile),
        })
    }

    fn serve(&self, file: &Path, addr: SocketAddr) -> Launch {
        let args = ["serve", "-c", &file.display().to_string()].map(str::to_owned);
        Launch::new(self.windlass.clone(), args.to_vec(), addr)
    }

    /// The router opens the port for administrators last.
    fn router(&self, admin: SocketAddr) -> Result<Launch, Error> {
        let (front, back) = (
            loopback(servers::free_port()?),
            loopback(servers::free_port()?),
        );
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
    let args = vec![
        "-Wignore".to_owned(),
        bin.join(program).display().to_string(),
    ];
    // They log every message, whatever their settings.
    Launch {
        env: env.to_vec(),
        quiet: true,
        ..Launch::new(bin.join("python"), args, addr)
    }
}

/// An address in the released programs' notation.
pub(crate) fn url(addr: SocketAddr) -> String {
    format!("tcp://{addr}")
}

fn configuration(home: &Path, front_end: &str, durability: Durability, addresses: &str) -> String {
    let data = home.join("data").display().to_string();
    let listener = |(name, more): (&str, &str)| {
        let listen = if name == front_end { addresses } else { "" };
        format!("\n[{name}]\nlisten = [{listen}]\n{more}")
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
        let found = |name| {
            Some(
                Peer::named(name, &both)?
                    .iter()
                    .map(Peer::to_string)
                    .collect::<Vec<_>>(),
            )
        };
        for name in SETTINGS.iter().map(|setting| setting.0).chain([
            "router",
            "gearmand-t0",
            "gearmand-t16",
        ]) {
            assert_eq!(found(name).unwrap(), [name]);
        }
        assert_eq!(
            found("windlass").unwrap(),
            ["windlass-sync", "windlass-interval"]
        );
        assert_eq!(
            found("windlass-unix").unwrap(),
            ["windlass-unix-sync", "windlass-unix-interval"]
        );
        assert_eq!(
            found("windlass-watched").unwrap(),
            ["windlass-watched-sync", "windlass-watched-interval"]
        );
        assert_eq!(
            found("windlass-fair").unwrap(),
            ["windlass-fair-sync", "windlass-fair-interval"]
        );
        assert_eq!(
            found("windlass-history").unwrap(),
            ["windlass-history-sync", "windlass-history-interval"]
        );
        for wrong in [
            "",
            "gearmand-t",
            "gearmand-t300",
            "gearmand-x",
            "Windlass",
            "redis",
        ] {
            assert_eq!(found(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn peers_take_part_where_it_means_something() {
        let cases = [gearman(), faktory(), eventmq()].concat();
        let case = |name: &str, protocol: &str| {
            cases
                .iter()
                .find(|case| case.name == name && case.protocol.name == protocol)
                .unwrap()
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
        let windlass = Peer::Windlass {
            durability: Durability::Sync,
            way: Way::Tcp,
        };
        let table = [
            (
                windlass,
                None,
                "/nowhere/windlass: not found; build it with",
            ),
            (
                Peer::Router,
                None,
                "--eventmq-venv: not found; make a virtual",
            ),
            (
                Peer::Router,
                Some(PathBuf::from("/nowhere")),
                "/nowhere/bin/python: not found; make a virtual",
            ),
        ];
        for (peer, venv, expected) in table {
            let programs = Programs::new(Some(PathBuf::from("/nowhere/windlass")), venv);
            let error = programs.version(peer).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
