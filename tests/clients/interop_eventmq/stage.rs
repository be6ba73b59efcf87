//! A daemon for one test, and the stock programs around it.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::Value;
use windlass_testkit::daemon::Daemon;

use super::peers::{Peers, Socket};
use crate::client::{installed, top};
use crate::common::namespaces::{self, NAMES};
use crate::common::{daemon, wait_until};

/// The queues of a worker by default.
pub const DEFAULT: &str = r#"[[10, "default"]]"#;

/// A daemon, its addresses in a namespace, and a directory for all programs.
pub struct Stage {
    pub daemon: Arc<Daemon>,
    pub peers: Peers,
    ports: Ports,
    dir: PathBuf,
    _home: Arc<tempfile::TempDir>,
}

/// Addresses that stay the same when the daemon is restarted, in ZeroMQ's notation.
pub struct Ports {
    /// For clients and schedulers, from the stock programs' view.
    pub front: String,
    /// For workers.
    pub back: String,
    pub admin: String,
    /// For subscribers.
    pub publish: String,
}

impl Ports {
    /// Free ports, on an address of this machine that no other test uses: they stay free while the daemon is down.
    pub fn free() -> Self {
        static COUNT: AtomicU8 = AtomicU8::new(1);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, high, low, COUNT.fetch_add(1, Ordering::Relaxed));
        let listeners = [(); 4].map(|()| TcpListener::bind((address, 0)).unwrap());
        let [front, back, admin, publish] = listeners
            .each_ref()
            .map(|listener| format!("tcp://{}", listener.local_addr().unwrap()));
        Self {
            front,
            back,
            admin,
            publish,
        }
    }
}

impl Stage {
    pub fn new() -> Self {
        Self::with("")
    }

    /// With further keys of `[eventmq]`.
    pub fn with(keys: &str) -> Self {
        let [stage] = Self::of([""], keys);
        stage
    }

    /// In namespaces of one daemon.
    pub fn in_namespaces() -> [Self; NAMES.len()] {
        Self::of(NAMES, "")
    }

    fn of<const N: usize>(names: [&str; N], keys: &str) -> [Self; N] {
        let home = Arc::new(tempfile::tempdir().unwrap());
        let ports = names.map(|_| Ports::free());
        let entry = |name: &str, at: &String| {
            let namespace = format!(", namespace = {name:?}");
            let told = if name.is_empty() { "" } else { &namespace };
            format!("{{ address = {at:?}{told} }}, ")
        };
        let list = |of: fn(&Ports) -> &String| -> String {
            let each = names.iter().zip(&ports);
            each.map(|(name, ports)| entry(name, of(ports))).collect()
        };
        let [front, back, admin, publish] = [
            list(|ports| &ports.front),
            list(|ports| &ports.back),
            list(|ports| &ports.admin),
            list(|ports| &ports.publish),
        ];
        let section = format!(
            "{}[eventmq]\nlisten = [{front}{back}]\nadmin_listen = [{admin}]\nsubscribe_listen = [{publish}]\n\
             publish_listen = []\n{keys}\n",
            namespaces::SECTIONS
        );
        let daemon = Arc::new(daemon(home.path()).set(&section).start());
        let mut names = names.into_iter();
        ports.map(|ports| {
            let name = names.next().unwrap_or_default();
            let dir = home.path().join(format!("of-{name}"));
            std::fs::create_dir(&dir).unwrap();
            Self {
                daemon: Arc::clone(&daemon),
                peers: Peers::start(),
                ports,
                dir,
                _home: Arc::clone(&home),
            }
        })
    }

    /// To stop and start it, if no other stage has it.
    pub fn daemon_mut(&mut self) -> &mut Daemon {
        Arc::get_mut(&mut self.daemon).unwrap()
    }

    /// The address for clients and schedulers.
    pub fn front(&self) -> &str {
        &self.ports.front
    }

    /// The address for workers.
    pub fn back(&self) -> &str {
        &self.ports.back
    }

    /// The address for administrators.
    pub fn admin(&self) -> &str {
        &self.ports.admin
    }

    /// The address for subscribers.
    pub fn publish(&self) -> &str {
        &self.ports.publish
    }

    /// A stock client.
    pub fn client(&self) -> Socket {
        self.peers.stock(self.front())
    }

    /// A directory for the test's files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Everything that tasks have noted so far, in order.
    pub fn notes(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.notes_file()).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Waits until tasks have made this many notes.
    pub fn wait_for_notes(&self, number: usize) -> Vec<Value> {
        wait_until(&format!("{number} notes"), || self.notes().len() >= number);
        self.notes()
    }

    /// Waits until no job waits or runs.
    pub fn settle(&self) {
        let admin = self.peers.dealer(self.admin());
        wait_until("everything is done", || {
            let status = admin.report("STATUS");
            ["waiting_messages_by_queue", "inflight_messages_by_queue"]
                .iter()
                .all(|counts| {
                    status[counts]
                        .as_object()
                        .unwrap()
                        .values()
                        .all(|count| count == 0)
                })
        });
    }

    /// A stock JobManager with two processes. `queues` is JSON.
    pub fn job_manager(&self, queues: &str) -> Program {
        let mut command = self.stock("emq-jobmanager");
        command
            .env("EVENTMQ_QUEUES", queues)
            .env("EVENTMQ_CONCURRENT_JOBS", "2");
        // It checks for silence this often and gives up at the third time.
        command.env("EVENTMQ_HEARTBEAT_TIMEOUT", "2");
        Program::start(command, self.log_file("jobmanager"))
    }

    /// The released router, at these addresses.
    pub fn router(&self, ports: &Ports) -> Program {
        let mut command = self.stock("emq-router");
        let Ports {
            front, back, admin, ..
        } = ports;
        command
            .env("EVENTMQ_FRONTEND_ADDR", front)
            .env("EVENTMQ_BACKEND_ADDR", back);
        command.env("EVENTMQ_ADMINISTRATIVE_ADDR", admin);
        command.env("EVENTMQ_WAL", self.dir().join("wal.log"));
        Program::start(command, self.log_file("router"))
    }

    /// The stock scheduler.
    pub fn scheduler(&self) -> Program {
        Program::start(self.stock("emq-scheduler"), self.log_file("scheduler"))
    }

    /// The stock scheduler of the router at these addresses, with this Redis.
    pub fn scheduler_of(&self, ports: &Ports, redis: SocketAddr) -> Program {
        let mut command = self.stock("emq-scheduler");
        command
            .env("EVENTMQ_SCHEDULER_ADDR", &ports.front)
            .env("EVENTMQ_REDIS_CLIENT_CLASS", "redis.StrictRedis");
        command
            .env("EVENTMQ_RQ_HOST", redis.ip().to_string())
            .env("EVENTMQ_RQ_PORT", redis.port().to_string());
        Program::start(command, self.log_file("scheduler"))
    }

    /// One of the released programs, with all addresses.
    pub fn stock(&self, program: &str) -> Command {
        let mut command = Command::new(installed("python/bin/python"));
        command
            .args(["-W", "ignore"])
            .arg(installed("python/bin").join(program));
        command
            .env("PYTHONPATH", top().join("tests/clients/interop_eventmq"))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
            .env("TASK_NOTES", self.notes_file())
            .env("EVENTMQ_CONFIG_FILE", "/nonexistent");
        for name in ["WORKER_ADDR", "WORKER_ADDR_DEFAULT", "WORKER_ADDR_FAILOVER"] {
            command.env(format!("EVENTMQ_{name}"), self.back());
        }
        command.env("EVENTMQ_SCHEDULER_ADDR", self.front());
        // Without a Redis client, the scheduler continues without Redis.
        command
            .env("EVENTMQ_REDIS_STARTUP_ERROR_HARD_KILL", "false")
            .env("EVENTMQ_REDIS_CLIENT_CLASS", "none.None");
        command
    }

    fn notes_file(&self) -> PathBuf {
        self.dir().join("notes")
    }

    fn log_file(&self, name: &str) -> PathBuf {
        let free = (0..).map(|number| self.dir().join(format!("{name}-{number}.log")));
        free.into_iter().find(|path| !path.exists()).unwrap()
    }
}

/// A stock program in the background, killed with all its processes when dropped.
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    fn start(mut command: Command, log: PathBuf) -> Self {
        let file = File::create(&log).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .process_group(0);
        let child = command.spawn();
        let child = child.unwrap_or_else(|error| {
            panic!("{command:?}: {error}; tests/install-clients installs it")
        });
        Self { child, log }
    }

    /// The log so far.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// `kill -9` of the program alone. Its processes survive for a while.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        kill("-TERM", &self.child.id().to_string());
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the program ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.log.display(), self.log_text());
        }
        kill("-KILL", &format!("-{}", self.child.id()));
        let _ = self.child.wait();
    }
}

/// A dash before the number addresses a process group.
fn kill(signal: &str, process: &str) {
    let mut kill = Command::new("kill");
    let _ = kill
        .args([signal, "--", process])
        .stderr(Stdio::null())
        .status()
        .unwrap();
}
