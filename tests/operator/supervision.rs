//! Under a service manager: notifications, sockets that are handed over, and the unit files.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{Peer, daemon, wait_until};

// ---- notifications --------------------------------------------------------------------------------------------------

/// The daemon's notifications to its manager.
struct Manager(UnixDatagram);

impl Manager {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Self(socket)
    }

    /// Waits for this assignment, and returns the whole message.
    fn hear(&self, assignment: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            let length = self.0.recv(&mut bytes).unwrap();
            let message = String::from_utf8(bytes[..length].to_vec()).unwrap();
            if message.lines().any(|line| line == assignment) {
                return message;
            }
        }
    }
}

#[test]
fn the_manager_learns_of_the_start_reloads_life_and_the_stop() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = Manager::at(&path);
    let plan = daemon(dir.path())
        .variable("NOTIFY_SOCKET", path.to_str().unwrap())
        .variable("WATCHDOG_USEC", "3000000");
    let mut daemon = plan.start();
    assert!(manager.hear("READY=1").contains("STATUS=serving"));
    manager.hear("WATCHDOG=1");
    daemon.signal("HUP");
    assert!(manager.hear("RELOADING=1").contains("MONOTONIC_USEC="));
    manager.hear("READY=1");
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.can_do("f").unwrap();
    worker.submit("f", "", "x").unwrap();
    let job = worker.grab().unwrap().unwrap();
    daemon.signal("USR2");
    manager.hear("STATUS=draining");
    worker.complete(&job.handle).unwrap();
    manager.hear("STOPPING=1");
    assert_eq!(daemon.wait().code(), Some(0));
}

// ---- sockets handed over --------------------------------------------------------------------------------------------

/// A daemon whose Gearman listener is its parent's. Killed when dropped.
struct Heir(Child);

impl Heir {
    fn start(dir: &Path, listener: &TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let mut command = Command::new("sh");
        // The manager hands sockets over from descriptor 3 on.
        command.args([
            "-c",
            "export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" \"$@\" 3<&0 </dev/null",
        ]);
        command.arg(env!("CARGO_BIN_EXE_windlass")).args([
            "serve",
            "--only",
            "gearman",
            "--set",
            "http.listen=[]",
        ]);
        command
            .arg("--set")
            .arg(format!("gearman.listen={address}"))
            .arg("--data-dir")
            .arg(dir.join("data"));
        let socket: OwnedFd = listener.try_clone().unwrap().into();
        Self(
            command
                .stdin(Stdio::from(socket))
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    fn stop(mut self) {
        assert!(
            Command::new("kill")
                .arg(self.0.id().to_string())
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connects, asks and leaves, again and again; counts answers and refused connections.
fn visit(address: SocketAddr, answered: &AtomicU64, refused: &AtomicU64) {
    match TcpStream::connect(address) {
        // The daemon that has accepted the connection may stop before it answers.
        Ok(stream) => {
            stream
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            let answer = Peer::over(stream).line("version");
            answered.fetch_add(u64::from(answer.is_ok()), Ordering::Relaxed);
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            refused.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn an_upgrade_refuses_no_connection() {
    const VISITORS: usize = 4;
    const UPGRADES: usize = 3;
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, answered, refused) = (
        Arc::new(AtomicBool::new(false)),
        Arc::default(),
        Arc::<AtomicU64>::default(),
    );
    let mut heir = Heir::start(dir.path(), &listener);
    let visitors: Vec<_> = (0..VISITORS)
        .map(|_| {
            let (stop, answered, refused) = (
                Arc::clone(&stop),
                Arc::clone(&answered),
                Arc::clone(&refused),
            );
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    visit(address, &answered, &refused);
                }
            })
        })
        .collect();
    let more = || {
        let goal = answered.load(Ordering::Relaxed) + 50;
        wait_until("visitors are answered", || {
            answered.load(Ordering::Relaxed) >= goal
        });
    };
    more();
    for _ in 0..UPGRADES {
        heir.stop();
        // Nothing runs now: connections wait.
        thread::sleep(Duration::from_millis(50));
        heir = Heir::start(dir.path(), &listener);
        more();
    }
    stop.store(true, Ordering::Relaxed);
    visitors
        .into_iter()
        .for_each(|visitor| visitor.join().unwrap());
    assert_eq!(
        refused.load(Ordering::Relaxed),
        0,
        "of {} connections",
        answered.load(Ordering::Relaxed)
    );
}

// ---- unit files -----------------------------------------------------------------------------------------------------

fn config(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../config")
        .join(name)
}

/// `systemd-analyze`, if this machine has it.
fn analyze(words: &[&str]) -> Option<(bool, String)> {
    let output = Command::new("systemd-analyze").args(words).output().ok()?;
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8(said).unwrap()))
}

#[test]
fn the_unit_files_are_valid_and_hardened() {
    let dir = tempfile::tempdir().unwrap();
    // With the binary where it is now.
    let unit = fs::read_to_string(config("windlass.service")).unwrap();
    let service = dir.path().join("windlass.service");
    fs::write(
        &service,
        unit.replace("/usr/bin/windlass", env!("CARGO_BIN_EXE_windlass")),
    )
    .unwrap();
    let socket = dir.path().join("windlass.socket");
    fs::copy(config("windlass.socket"), &socket).unwrap();
    let (service, socket) = (service.to_str().unwrap(), socket.to_str().unwrap());
    let Some((valid, said)) = analyze(&["verify", service, socket]) else {
        return;
    };
    // Systemd before 254 does not know these, and goes on without them.
    let new = ["RestartSteps", "RestartMaxDelaySec"];
    let known = said.lines().filter(|line| {
        !new.iter()
            .any(|key| line.contains("Unknown key") && line.contains(&format!("'{key}'")))
    });
    assert!(valid && known.count() == 0, "{said}");
    let (_, said) = analyze(&["security", "--offline=yes", service]).unwrap();
    let level = said
        .lines()
        .find_map(|line| line.split_once("exposure level for windlass.service: "));
    let level: f64 = level.unwrap().1.split(' ').next().unwrap().parse().unwrap();
    assert!(level <= 2.0, "{said}");
}

/// The ports that the system lends to no connection are EventMQ's.
#[test]
fn the_reserved_ports_are_those_of_the_default_configuration() {
    let text = fs::read_to_string(config("windlass.sysctl.conf")).unwrap();
    let (_, range) = text.rsplit_once(" = ").unwrap();
    let (first, last) = range.trim().split_once('-').unwrap();
    let reserved = first.parse::<u16>().unwrap()..=last.parse().unwrap();
    let unit = fs::read_to_string(config("windlass.socket")).unwrap();
    let ports = unit.lines().filter_map(|line| {
        line.strip_prefix("ListenStream=")?
            .rsplit_once(':')?
            .1
            .parse()
            .ok()
    });
    let lent: Vec<u16> = ports.filter(|port| *port >= 32_768).collect();
    assert!(
        lent.len() == 5 && lent.iter().all(|port| reserved.contains(port)),
        "{lent:?}"
    );
}

/// The sockets that systemd holds are those of the default configuration.
#[test]
fn the_socket_unit_has_the_default_addresses() {
    let unit = fs::read_to_string(config("windlass.socket")).unwrap();
    let mut held: Vec<&str> = unit
        .lines()
        .filter_map(|line| line.strip_prefix("ListenStream="))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let check = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .arg("check")
        .current_dir(dir.path())
        .env_clear()
        .output();
    let said = String::from_utf8(check.unwrap().stdout).unwrap();
    // Systemd would not start without the IPv6 address of localhost. The daemon binds it by itself.
    let said = said.replace("localhost", "127.0.0.1");
    let mut served: Vec<&str> = said
        .lines()
        .filter_map(|line| line.strip_prefix("listen   ")?.split(' ').nth(1))
        .collect();
    held.sort_unstable();
    served.sort_unstable();
    assert_eq!(held, served);
}
