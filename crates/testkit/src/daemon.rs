//! A handle on the real binary: started on free loopback ports with a directory of its own, killed when dropped.
//!
//! Of a protocol, it uses only the name in the configuration and in the log.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use windlass_engine::Protocol;

use crate::cgroup::MemoryGroup;
use crate::disk::SmallDisk;

/// The longest wait for a daemon to listen, or to stop: generous, for a loaded machine. A test waits this long only if
/// it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A start reads all data: on a busy machine many times as long as on a quiet one.
const START_PATIENCE: Duration = Duration::from_secs(240);

/// The section of a configuration that turns EventMQ off.
pub const EVENTMQ_OFF: &str =
    "[eventmq]\nlisten = []\nadmin_listen = []\npublish_listen = []\nsubscribe_listen = []\n";

/// The section of a configuration that serves each of EventMQ's roles on a free loopback port.
const EVENTMQ_ON: &str = "[eventmq]\nlisten = [\"127.0.0.1:0\"]\nadmin_listen = [\"127.0.0.1:0\"]\n\
                          publish_listen = [\"127.0.0.1:0\"]\nsubscribe_listen = [\"127.0.0.1:0\"]\n";

/// If this variable has the address of a PostgreSQL server, a daemon whose plan names no store is one of two
/// on that server: it serves the clients, and another one leads. So the suites run over a link.
const THROUGH_EDGE: &str = "WINDLASS_TEST_THROUGH_EDGE";

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    /// The daemon that leads, if this one does not.
    leader: Option<Box<Self>>,
    child: Child,
    config: PathBuf,
    binary: PathBuf,
    way: Way,
    listening: Vec<(String, String)>,
    log: Arc<Mutex<Vec<String>>>,
    /// Ends once the daemon has closed its log.
    reader: thread::JoinHandle<()>,
}

/// The configuration of a daemon to start.
#[derive(Debug)]
pub struct Plan {
    binary: PathBuf,
    dir: PathBuf,
    config: String,
    has_http: bool,
    way: Way,
}

/// How to run the binary.
#[derive(Clone, Debug, Default)]
struct Way {
    /// Arguments that precede the binary.
    through: Vec<String>,
    /// Shell limits, as `ulimit` takes them.
    limits: Option<String>,
    /// More options for `serve`.
    options: Vec<String>,
}

impl Plan {
    /// The binary at `binary` with its data in `dir`, every protocol but EventMQ on a free loopback port, and defaults
    /// for everything else.
    #[must_use]
    pub fn new(binary: impl Into<PathBuf>, dir: &Path) -> Self {
        let config = format!("data_dir = {:?}\n", dir.join("data"));
        Self {
            binary: binary.into(),
            dir: dir.to_owned(),
            config,
            has_http: true,
            way: Way::default(),
        }
    }

    /// Adds top-level keys, as TOML.
    #[must_use]
    pub fn set(mut self, toml: &str) -> Self {
        self.config.push_str(toml);
        self.config.push('\n');
        self
    }

    /// Serves EventMQ too, on free loopback ports, with `toml` as further keys of its section. Add top-level keys
    /// before. The listeners are named `eventmq`, `eventmq-admin`, `eventmq-publish` and `eventmq-subscribe`: see
    /// [`Daemon::address`].
    #[must_use]
    pub fn eventmq(self, toml: &str) -> Self {
        self.set(EVENTMQ_ON).set(toml)
    }

    /// Leaves HTTP out of the configuration, for programs of versions that have none.
    #[must_use]
    pub fn without_http(mut self) -> Self {
        self.has_http = false;
        self
    }

    /// Runs the daemon under shell limits, as `ulimit` takes them (`-f 2048`).
    #[must_use]
    pub fn ulimit(mut self, limits: &str) -> Self {
        self.way.limits = Some(limits.to_owned());
        self
    }

    /// Runs the daemon in the namespace of a small disk.
    #[must_use]
    pub fn on(mut self, disk: &SmallDisk) -> Self {
        self.way.through = disk.enter();
        self
    }

    /// Runs the daemon through a program that takes another program behind its own options.
    #[must_use]
    pub fn through(mut self, words: &[&str]) -> Self {
        self.way.through = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Runs the daemon with this environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        if self.way.through.is_empty() {
            self.way.through.push("env".to_owned());
        }
        self.way.through.push(format!("{name}={value}"));
        self
    }

    /// Runs the daemon in a memory group.
    #[must_use]
    pub fn within(mut self, group: &MemoryGroup) -> Self {
        self.way.through = group.enter();
        self
    }

    /// Gives `serve` one more option.
    #[must_use]
    pub fn option(mut self, option: &str) -> Self {
        self.way.options.push(option.to_owned());
        self
    }

    /// Starts the daemon and waits until it listens.
    ///
    /// # Panics
    /// If it does not; the message has its log.
    #[must_use]
    pub fn start(self) -> Daemon {
        let path = self.dir.join("windlass.toml");
        let is_unset = |section: &&str| !self.config.contains(&format!("[{section}]"));
        let known = |section: &&str| self.has_http || *section != "http";
        let unset = Protocol::ALL
            .map(|row| row.name)
            .into_iter()
            .filter(|name| *name != "eventmq")
            .filter(is_unset)
            .filter(known);
        let mut defaults: String = unset
            .map(|it| format!("[{it}]\nlisten = [\"127.0.0.1:0\"]\n"))
            .collect();
        if is_unset(&"eventmq") {
            defaults.push_str(EVENTMQ_OFF);
        }
        let config = format!("{}{defaults}", self.config);
        match std::env::var(THROUGH_EDGE) {
            Ok(url) if is_unset(&"postgres") && self.way.options.is_empty() => {
                self.start_through_edge(&config, &url)
            }
            Ok(_) | Err(_) => Daemon::start_with(self.binary, path, &config, self.way),
        }
    }

    /// Starts a daemon that leads, whose addresses no client knows, and then the planned one.
    fn start_through_edge(self, config: &str, url: &str) -> Daemon {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let schema = format!(
            "t{}_{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let one_of_two = || {
            let port = free_port();
            format!(
                "{config}[postgres]\nurl = {url:?}\nschema = {schema:?}\n[cluster]\nlisten = [\"127.0.0.1:{port}\"]\n"
            )
        };
        let data = format!("{:?}", self.dir.join("data"));
        let leaders = one_of_two().replacen(&data, &format!("{:?}", self.dir.join("leader")), 1);
        let mut way = self.way.clone();
        let off = ["http.listen", "eventmq.listen"];
        let more = [
            "eventmq.admin_listen",
            "eventmq.publish_listen",
            "eventmq.subscribe_listen",
        ];
        let off = off.into_iter().chain(more).map(|key| format!("{key}=[]"));
        let others =
            ["gearman", "faktory", "spiderq"].map(|it| format!("{it}.listen=[\"127.0.0.1:0\"]"));
        way.options
            .extend(off.chain(others).flat_map(|it| ["--set".to_owned(), it]));
        let leader = Daemon::start_with(
            self.binary.clone(),
            self.dir.join("leader.toml"),
            &leaders,
            way,
        );
        leader.wait_for("became leader");
        let mut edge = Daemon::start_with(
            self.binary,
            self.dir.join("windlass.toml"),
            &one_of_two(),
            self.way,
        );
        edge.wait_for("connected to the leader");
        edge.leader = Some(Box::new(leader));
        edge
    }
}

/// A port that is free now, below those that the kernel gives out: another process may not get it before it is bound.
///
/// # Panics
/// If there is none.
#[expect(clippy::panic, reason = "a test without loopback ports cannot go on")]
#[must_use]
pub fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    for _ in 0..COUNT {
        let number = std::process::id()
            .wrapping_mul(97)
            .wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + number % COUNT).unwrap_or_default();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}

#[expect(
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test's tool: a panic is how it reports"
)]
impl Daemon {
    fn start_with(binary: PathBuf, path: PathBuf, config: &str, way: Way) -> Self {
        std::fs::write(&path, config).expect("write the configuration");
        Self::start(binary, path, way)
    }

    fn wait_for(&self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.log_text().contains(text) {
            assert!(
                Instant::now() < end,
                "not logged: {text}\n{}",
                self.log_text()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn start(binary: PathBuf, config: PathBuf, way: Way) -> Self {
        let mut command = way.command(&binary);
        command
            .arg("serve")
            .arg("-c")
            .arg(&config)
            .args(["--log-format", "json"])
            .args(&way.options);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {}: {e}", binary.display()));
        let log = Arc::new(Mutex::new(Vec::new()));
        let (sender, receiver) = channel();
        let stderr = child.stderr.take().expect("stderr is piped");
        let lines = Arc::clone(&log);
        let reader = thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line.clone());
                let _ = sender.send(line);
            }
        });
        let mut daemon = Self {
            leader: None,
            child,
            config,
            binary,
            way,
            listening: Vec::new(),
            log,
            reader,
        };
        daemon.wait_until_it_listens(&receiver);
        daemon
    }

    fn wait_until_it_listens(&mut self, lines: &Receiver<String>) {
        let end = Instant::now() + START_PATIENCE;
        loop {
            match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains("\"ready\"") => return,
                Ok(line) => {
                    if let Some(found) = listening(&line) {
                        self.listening.push(found);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("the daemon does not listen:\n{}", self.log_text())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the daemon stopped:\n{}", self.log_text())
                }
            }
        }
    }

    /// The address of a protocol.
    ///
    /// # Panics
    /// If the protocol is not served, or not over TCP.
    #[must_use]
    pub fn address(&self, protocol: &str) -> SocketAddr {
        let found = self.listening.iter().find(|(name, _)| name == protocol);
        let (_, address) = found.unwrap_or_else(|| panic!("{protocol} is not served"));
        address
            .parse()
            .unwrap_or_else(|_| panic!("{protocol} is served at {address}"))
    }

    /// All TCP addresses of a protocol, in the order of its listeners.
    #[must_use]
    pub fn addresses(&self, protocol: &str) -> Vec<SocketAddr> {
        let served = self.listening.iter().filter(|(name, _)| name == protocol);
        served
            .filter_map(|(_, address)| address.parse().ok())
            .collect()
    }

    /// `kill -9` without a warning.
    ///
    /// # Panics
    /// If the process cannot be killed.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill -9");
        self.child.wait().expect("wait for the killed daemon");
    }

    /// Starts the daemon again with the same configuration and data, on new ports chosen by the kernel.
    pub fn restart(&mut self) {
        let mut again = Self::start(self.binary.clone(), self.config.clone(), self.way.clone());
        again.leader = self.leader.take();
        if again.leader.is_some() {
            again.wait_for("connected to the leader");
        }
        drop(std::mem::replace(self, again));
    }

    /// Starts the daemon again as this program.
    pub fn restart_as(&mut self, binary: &Path) {
        self.binary = binary.to_owned();
        self.restart();
    }

    /// Starts the daemon again without its shell limits.
    pub fn restart_unlimited(&mut self) {
        self.way.limits = None;
        self.restart();
    }

    /// Sends a signal by name (`TERM`).
    ///
    /// # Panics
    /// If it cannot be sent.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(sent.expect("run kill").success(), "kill -{name}");
    }

    /// Waits until the daemon has ended by itself and its log has been read.
    ///
    /// # Panics
    /// If it does not end.
    pub fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let status = self.child.try_wait().expect("wait for the daemon");
            if let (Some(status), true) = (status, self.reader.is_finished()) {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the daemon does not stop:\n{}", self.log_text());
    }

    /// The log so far, behind that of the daemon that leads.
    #[must_use]
    pub fn log_text(&self) -> String {
        let own = self
            .log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .join("\n");
        self.leader.as_ref().map_or_else(
            || own.clone(),
            |leader| format!("{}\n{own}", leader.log_text()),
        )
    }

    /// The daemon's peak memory in bytes, without page cache.
    ///
    /// # Panics
    /// If it does not run any more.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .expect("look at the daemon");
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.trim().parse::<u64>().ok())
            .expect("its memory")
            * 1024
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Way {
    fn command(&self, binary: &Path) -> Command {
        let mut words: Vec<OsString> = self.through.iter().map(OsString::from).collect();
        if let Some(limits) = &self.limits {
            let script = format!("ulimit {limits}; exec \"$0\" \"$@\"");
            words.extend(["sh".into(), "-c".into(), script.into()]);
        }
        words.push(binary.into());
        let mut command = Command::new(words.remove(0));
        command.args(words);
        command
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The protocol and the address in a log line about a new listener.
fn listening(line: &str) -> Option<(String, String)> {
    let line = line.contains("\"listening\"").then_some(line)?;
    Some((field(line, "protocol")?, field(line, "address")?))
}

/// A text field of a JSON line in the daemon's log.
fn field(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!("\"{name}\":\""))?;
    rest.split_once('"').map(|(value, _)| value.to_owned())
}
