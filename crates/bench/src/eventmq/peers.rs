//! The compared servers: their names on the command line and how each is started. Only this module uses the settings of the
//! released programs.
//!
//! The released programs are in Python, in a virtual environment that the caller has made; see the crate's README.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use crate::error::Error;
use crate::servers::{self, Home, Launch};
use crate::windlass::{self, Durability};

/// The remedy for a wrong virtual environment.
const REMEDY: &str = "make a virtual environment with eventmq 0.3.13 as the README says, or leave --eventmq-venv out";
/// A Python program that prints the installed versions.
const VERSIONS: &str = "import importlib.metadata as m, zmq\n\
                        print('eventmq', m.version('eventmq'), 'with pyzmq', m.version('pyzmq'), 'and libzmq', zmq.zmq_version())";

/// A name after `--peers`; `windlass` stands for one peer per durability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerName {
    /// `windlass`.
    Windlass,
    /// `router`.
    Router,
}

impl FromStr for PeerName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "windlass" => Ok(PeerName::Windlass),
            "router" => Ok(PeerName::Router),
            _ => Err(Error::Usage(format!("peer {text:?} is neither windlass nor router"))),
        }
    }
}

/// One server with one setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Our daemon.
    Windlass(Durability),
    /// The released `emq-router`, jobs in memory.
    Router,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Windlass(durability) => write!(f, "windlass-{durability}"),
            Peer::Router => f.write_str("router"),
        }
    }
}

impl Peer {
    /// The peers with these names, with one `windlass` per durability.
    pub fn expand(names: &[PeerName], durabilities: &[Durability]) -> Vec<Peer> {
        let expand = |name: &PeerName| match *name {
            PeerName::Windlass => durabilities.iter().copied().map(Peer::Windlass).collect(),
            PeerName::Router => vec![Peer::Router],
        };
        names.iter().flat_map(expand).collect()
    }

    /// Whether this is the daemon the other is compared with.
    pub fn is_ours(self) -> bool {
        matches!(self, Peer::Windlass(_))
    }
}

/// A server's ports, which may all be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// For clients.
    pub front: SocketAddr,
    /// For workers.
    pub back: SocketAddr,
    /// For administrators.
    pub admin: SocketAddr,
}

/// The programs.
#[derive(Debug, Clone)]
pub struct Programs {
    windlass: PathBuf,
    venv: Option<PathBuf>,
}

impl Programs {
    /// The paths: `windlass` as given, or beside this program; the released programs in a virtual environment.
    pub fn new(windlass: Option<PathBuf>, venv: Option<&Path>) -> Self {
        // A program starts in a folder of its own, where a relative path would not resolve.
        let venv = venv.map(|venv| venv.canonicalize().unwrap_or_else(|_| venv.to_owned()));
        Self { windlass: windlass::program(windlass), venv }
    }

    /// The virtual environment.
    ///
    /// # Errors
    /// [`Error::Usage`] if none was given.
    pub fn venv(&self) -> Result<&Path, Error> {
        let missing =
            || Error::Usage(format!("the released programs are needed and --eventmq-venv is not there; {REMEDY}"));
        self.venv.as_deref().ok_or_else(missing)
    }

    /// A peer's version. Checks first whether the program exists.
    ///
    /// # Errors
    /// [`Error::Missing`] with a remedy; [`Error::Usage`].
    pub fn version(&self, peer: Peer) -> Result<String, Error> {
        match peer {
            Peer::Windlass(_) => windlass::version(&self.windlass),
            Peer::Router => versions(self.venv()?),
        }
    }

    /// The command that starts a peer on fresh ports with its data in `home`, and the ports. Writes the configuration there.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Usage`].
    pub fn launch(&self, peer: Peer, home: &Home) -> Result<(Launch, Ports), Error> {
        match peer {
            Peer::Windlass(durability) => {
                let launch = windlass::launch(&self.windlass, "eventmq", durability, home)?;
                let addr = loopback(launch.port);
                Ok((launch, Ports { front: addr, back: addr, admin: addr }))
            }
            Peer::Router => {
                let [front, back, admin] = [servers::free_port()?, servers::free_port()?, servers::free_port()?];
                let ports = Ports { front: loopback(front), back: loopback(back), admin: loopback(admin) };
                let env = [
                    ("EVENTMQ_FRONTEND_ADDR", url(ports.front)),
                    ("EVENTMQ_BACKEND_ADDR", url(ports.back)),
                    ("EVENTMQ_ADMINISTRATIVE_ADDR", url(ports.admin)),
                ];
                // The router opens this port last.
                Ok((released(self.venv()?, "emq-router", env, admin), ports))
            }
        }
    }
}

/// The command that starts one of the released programs; `port` is the port it listens on, if any.
pub fn released<const N: usize>(venv: &Path, program: &str, env: [(&str, String); N], port: u16) -> Launch {
    let bin = venv.join("bin");
    Launch {
        program: bin.join("python"),
        args: vec!["-Wignore".to_owned(), bin.join(program).display().to_string()],
        env: env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        // They log every message, whatever their settings.
        quiet: true,
        port,
        unix: None,
    }
}

/// An address in the released programs' notation.
pub fn url(addr: SocketAddr) -> String {
    format!("tcp://{addr}")
}

fn versions(venv: &Path) -> Result<String, Error> {
    let program = venv.join("bin/python");
    let missing = |_| Error::Missing { program: program.clone(), remedy: REMEDY.to_owned() };
    let output = Command::new(&program).args(["-c", VERSIONS]).output().map_err(missing)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::Usage(format!("{}: {said}; {REMEDY}", program.display())))
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_peers_and_back() {
        let cases: [(&str, &[&str]); 2] =
            [("windlass", &["windlass-sync", "windlass-interval"]), ("router", &["router"])];
        for (name, expected) in cases {
            let peers = Peer::expand(&[name.parse().unwrap()], &[Durability::Sync, Durability::Interval]);
            assert_eq!(peers.iter().map(Peer::to_string).collect::<Vec<_>>(), expected, "{name}");
        }
        for wrong in ["", "Router", "windlass-sync"] {
            assert!(wrong.parse::<PeerName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn errors_for_missing_programs_have_a_remedy() {
        let programs = |venv| Programs::new(None, venv);
        let table = [
            (None, "the released programs are needed and --eventmq-venv is not there; make a virtual environment"),
            (Some(Path::new("/nowhere")), "/nowhere/bin/python: not found; make a virtual environment"),
        ];
        for (venv, expected) in table {
            let error = programs(venv).version(Peer::Router).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn the_router_gets_its_ports() {
        let home = Home::new(&std::env::temp_dir()).unwrap();
        let (launch, ports) = Programs::new(None, Some(Path::new("/nowhere"))).launch(Peer::Router, &home).unwrap();
        assert_eq!(launch.port, ports.admin.port());
        assert_eq!(launch.args, ["-Wignore", "/nowhere/bin/emq-router"]);
        let front = launch.env.iter().find(|(name, _)| name == "EVENTMQ_FRONTEND_ADDR").unwrap();
        assert_eq!(front.1, format!("tcp://127.0.0.1:{}", ports.front.port()));
        assert!(launch.quiet);
    }
}
