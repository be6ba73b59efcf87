//! Servers under load: starts a program, waits for its port, reads its cost, stops it. Independent of protocols.
//!
//! A [`Server`] ends with its value: on return, on an error, on a panic and on ctrl-c (which is an error, see
//! [`crate::interrupt`]). Its data is removed with its folder.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::process;

/// A server may replay for long; a hung server must still be detected.
const READY_WITHIN: Duration = Duration::from_secs(180);
/// How often the port is tried. Short, because start-up times are measured by it.
const READY_POLL: Duration = Duration::from_millis(1);
/// How much of a failed server's log is shown.
const LOG_BYTES_SHOWN: usize = 2000;

/// How to start a server.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables, as `(name, value)`.
    pub env: Vec<(String, String)>,
    /// Discards the output, for a program that prints so much that storing it would distort its cost.
    pub quiet: bool,
    /// The loopback port it listens on.
    pub port: u16,
    /// The Unix socket it also listens on, for its load.
    pub unix: Option<PathBuf>,
}

/// A folder for one server's data, configuration and log. It outlives restarts.
#[derive(Debug)]
pub struct Home(TempDir);

impl Home {
    /// A new empty folder under `root`.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be created.
    pub fn new(root: &Path) -> Result<Self, Error> {
        let folder = tempfile::Builder::new().prefix("windlass-bench-").tempdir_in(root);
        folder.map(Self).map_err(Error::io(format!("make a folder in {}", root.display())))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The disk space it uses, MiB.
    pub fn disk_mib(&self) -> f64 {
        process::disk_bytes(self.path()) as f64 / (1024.0 * 1024.0)
    }

    fn log(&self) -> PathBuf {
        self.path().join("server.log")
    }
}

/// A running server. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Server {
    child: Child,
    addr: SocketAddr,
    unix: Option<PathBuf>,
}

impl Server {
    /// Starts the server and waits until its port accepts. Also returns the time from the start of the process to that moment.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be started, [`Error::NotReady`] if it exits or does not listen in time, with the end
    /// of its log; [`Error::Interrupted`].
    pub fn start(launch: &Launch, home: &Home, interrupt: &Interrupt) -> Result<(Self, Duration), Error> {
        let begun = Instant::now();
        let mut server = Self { child: spawn(launch, home)?, addr: loopback(launch.port), unix: launch.unix.clone() };
        while !server.is_listening() {
            interrupt.check()?;
            let exited = server.child.try_wait().map_err(Error::io("look at the server"))?.is_some();
            if exited || begun.elapsed() > READY_WITHIN {
                return Err(Error::NotReady { port: launch.port, waited: begun.elapsed(), log: log_end(home) });
            }
            std::thread::sleep(READY_POLL);
        }
        Ok((server, begun.elapsed()))
    }

    fn is_listening(&self) -> bool {
        TcpStream::connect(self.addr).is_ok() && self.unix().is_none_or(|path| UnixStream::connect(path).is_ok())
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The Unix socket for its load, if the load does not use TCP.
    pub fn unix(&self) -> Option<&Path> {
        self.unix.as_deref()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL, as a crash would, and waits for its end.
    pub fn kill(self) {
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

/// The first line of a program's `--version`. Checks first whether the program exists.
///
/// # Errors
/// [`Error::Missing`] with `remedy`.
pub fn version(program: &Path, remedy: &str) -> Result<String, Error> {
    let missing = |_| Error::Missing { program: program.to_owned(), remedy: remedy.to_owned() };
    let output = Command::new(program).arg("--version").output().map_err(missing)?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no version").trim().to_owned())
}

/// A port on loopback that is free now.
///
/// # Errors
/// [`Error::Io`] if there is none.
pub fn free_port() -> Result<u16, Error> {
    let listener = TcpListener::bind(loopback(0)).map_err(Error::io("find a free port"))?;
    listener.local_addr().map(|addr| addr.port()).map_err(Error::io("find a free port"))
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn spawn(launch: &Launch, home: &Home) -> Result<Child, Error> {
    let path = if launch.quiet { PathBuf::from("/dev/null") } else { home.log() };
    let log = File::options().create(true).append(true).open(path).map_err(Error::io("open the server's log"))?;
    let also = log.try_clone().map_err(Error::io("open the server's log"))?;
    Command::new(&launch.program)
        .args(&launch.args)
        .envs(launch.env.iter().map(|(name, value)| (name, value)))
        .current_dir(home.path())
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(also)
        .spawn()
        .map_err(Error::io(format!("start {}", launch.program.display())))
}

fn log_end(home: &Home) -> String {
    let bytes = fs::read(home.log()).unwrap_or_default();
    let start = bytes.len().saturating_sub(LOG_BYTES_SHOWN);
    let end = String::from_utf8_lossy(bytes.get(start..).unwrap_or_default()).trim().to_owned();
    if end.is_empty() { "it logged nothing".to_owned() } else { end }
}
