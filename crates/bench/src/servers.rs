//! Servers under load: starts a program, waits for its port, reads its cost, stops it. Independent of protocols.
//!
//! A [`Server`] ends with its value: on return, on an error, on a panic and on ctrl-c (which is an error, see
//! [`crate::interrupt`]). Its data is removed with its folder.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::links::{self, Endpoint};
use crate::process;
use crate::watcher::Watcher;

/// A server may replay for long; a hung server must still be detected.
const READY_WITHIN: Duration = Duration::from_secs(180);
/// How often the port is tried. Short, because start-up times are measured by it.
const READY_POLL: Duration = Duration::from_millis(1);
/// How much of a failed server's log is shown.
const LOG_BYTES_SHOWN: usize = 2000;

/// How to start a server.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(&'static str, String)>,
    /// Discards the output, for a program that prints so much that storing it would distort its cost.
    pub(crate) quiet: bool,
    pub(crate) ports: Ports,
    /// The operator's socket of a daemon that is watched while it runs.
    pub(crate) watched: Option<PathBuf>,
}

/// Where a server listens, which may all be the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ports {
    /// For clients.
    pub(crate) front: Endpoint,
    /// For workers.
    pub(crate) back: Endpoint,
    /// For administrators. The last one to accept.
    pub(crate) admin: SocketAddr,
}

impl Ports {
    /// All at one address.
    pub(crate) fn at(addr: SocketAddr) -> Self {
        Self {
            front: addr.into(),
            back: addr.into(),
            admin: addr,
        }
    }
}

impl Launch {
    /// A server that listens at one address.
    pub(crate) fn new(program: PathBuf, args: Vec<String>, addr: SocketAddr) -> Self {
        Self {
            program,
            args,
            env: Vec::new(),
            quiet: false,
            ports: Ports::at(addr),
            watched: None,
        }
    }

    /// The command, without its output.
    pub(crate) fn command(&self, home: &Home) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(self.env.clone())
            .current_dir(home.path())
            .stdin(Stdio::null());
        command
    }
}

/// A folder for one server's data, configuration and log. It outlives restarts.
#[derive(Debug)]
pub(crate) struct Home(TempDir);

impl Home {
    /// A new empty folder under `root`. [`Error::Io`] if it cannot be created.
    pub(crate) fn new(root: &Path) -> Result<Self, Error> {
        let folder = tempfile::Builder::new()
            .prefix("windlass-bench-")
            .tempdir_in(root);
        folder
            .map(Self)
            .map_err(Error::io(format!("make a folder in {}", root.display())))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The disk space it uses, MiB.
    pub(crate) fn disk_mib(&self) -> f64 {
        process::disk_bytes(self.path()) as f64 / (1024.0 * 1024.0)
    }

    fn log(&self) -> PathBuf {
        self.path().join("server.log")
    }
}

/// A running server. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    ports: Ports,
    _watcher: Option<Watcher>,
}

impl Server {
    /// Starts the server and waits until its ports accept. Also returns the time from the start of the process to that
    /// moment.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be started, [`Error::NotReady`] if it exits or does not listen in time, with the end
    /// of its log; [`Error::Interrupted`].
    pub(crate) fn start(
        launch: &Launch,
        home: &Home,
        interrupt: &Interrupt,
    ) -> Result<(Self, Duration), Error> {
        let begun = Instant::now();
        let mut server = Self {
            child: spawn(launch, home)?,
            ports: launch.ports.clone(),
            _watcher: None,
        };
        while !(TcpStream::connect(server.ports.admin).is_ok()
            && links::connect(&server.ports.front).is_ok())
        {
            interrupt.check()?;
            let exited = server
                .child
                .try_wait()
                .map_err(Error::io("look at the server"))?
                .is_some();
            if exited || begun.elapsed() > READY_WITHIN {
                let (admin, waited, log) = (server.ports.admin, begun.elapsed(), log_end(home));
                return Err(Error::NotReady(format!("{admin} within {waited:?}: {log}")));
            }
            std::thread::sleep(READY_POLL);
        }
        let ready = begun.elapsed();
        server._watcher = launch.watched.as_deref().map(Watcher::start).transpose()?;
        Ok((server, ready))
    }

    pub(crate) fn ports(&self) -> &Ports {
        &self.ports
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL, as a crash would, and waits for its end.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If it has ended by itself, `kill` fails, and `wait` is still needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first line that a program prints for its version. Checks first whether the program exists.
/// [`Error::Missing`] and [`Error::Usage`] with `remedy`.
pub(crate) fn version(program: &Path, args: &[&str], remedy: &str) -> Result<String, Error> {
    let missing = |_| Error::Missing(program.to_owned(), remedy.to_owned());
    let output = Command::new(program).args(args).output().map_err(missing)?;
    if !output.status.success() {
        let refusal = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Usage(format!(
            "{}: {}; {remedy}",
            program.display(),
            refusal.trim()
        )));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("no version")
        .trim()
        .to_owned())
}

/// A port on loopback that is free now. [`Error::Io`] if there is none.
pub(crate) fn free_port() -> Result<u16, Error> {
    let listener = TcpListener::bind(loopback(0)).map_err(Error::io("find a free port"))?;
    listener
        .local_addr()
        .map(|addr| addr.port())
        .map_err(Error::io("find a free port"))
}

/// An address on loopback.
pub(crate) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn spawn(launch: &Launch, home: &Home) -> Result<Child, Error> {
    let path = if launch.quiet {
        PathBuf::from("/dev/null")
    } else {
        home.log()
    };
    let log = File::options()
        .create(true)
        .append(true)
        .open(path)
        .map_err(Error::io("open the server's log"))?;
    let also = log
        .try_clone()
        .map_err(Error::io("open the server's log"))?;
    let started = launch.command(home).stdout(log).stderr(also).spawn();
    started.map_err(Error::io(format!("start {}", launch.program.display())))
}

fn log_end(home: &Home) -> String {
    let bytes = fs::read(home.log()).unwrap_or_default();
    let start = bytes.len().saturating_sub(LOG_BYTES_SHOWN);
    let end = String::from_utf8_lossy(bytes.get(start..).unwrap_or_default())
        .trim()
        .to_owned();
    if end.is_empty() {
        "it logged nothing".to_owned()
    } else {
        end
    }
}
