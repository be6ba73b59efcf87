//! A log that cannot be written, or that nobody reads: the daemon goes on serving.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::common::http::Http;
use crate::common::{Peer, eventmq, faktory::Fwp, spiderq, wait_until};

/// A daemon whose log the test does not read. Killed when dropped.
struct Unread {
    child: Child,
    addresses: Value,
    _stdout: BufReader<ChildStdout>,
}

impl Unread {
    fn start(dir: &Path, log: Stdio) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .args(["serve", "--ephemeral", "--log-level", "debug"])
            .env_clear()
            .current_dir(dir);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let (mut stdout, mut line) = (BufReader::new(child.stdout.take().unwrap()), String::new());
        stdout.read_line(&mut line).unwrap();
        Self {
            child,
            addresses: serde_json::from_str(&line).unwrap_or_default(),
            _stdout: stdout,
        }
    }

    fn address(&self, name: &str) -> SocketAddr {
        self.addresses[name]
            .as_str()
            .expect("the daemon serves")
            .parse()
            .unwrap()
    }

    fn http(&self) -> Http {
        Http(self.address("http"))
    }

    /// A job through each protocol, and answers of HTTP.
    fn assert_serves(&self) {
        let mut peer = Peer::connect(self.address("gearman")).unwrap();
        peer.can_do("f").unwrap();
        peer.submit("f", "", "x").unwrap();
        let job = peer.grab().unwrap().unwrap();
        peer.complete(&job.handle).unwrap();
        let mut fwp = Fwp::connect(self.address("faktory"));
        assert_eq!(
            fwp.ask(r#"PUSH {"jid":"00000001","jobtype":"T","args":[]}"#),
            "+OK"
        );
        assert!(fwp.ask("FETCH default").contains("00000001"));
        assert_eq!(fwp.ask(r#"ACK {"jid":"00000001"}"#), "+OK");
        let mut spiderq = spiderq::Bare::connect(self.address("spiderq"));
        assert_eq!(spiderq.ask(&spiderq::add("k", b"v")), spiderq::ADDED);
        eventmq::Peer::connect(self.address("eventmq"), "client").request("1", "q", "", "[]");
        for path in ["/livez", "/readyz", "/", "/metrics"] {
            assert_eq!(self.http().get(path).status, 200, "{path}");
        }
    }

    fn assert_ends(mut self) {
        assert!(
            Command::new("kill")
                .arg(self.child.id().to_string())
                .status()
                .unwrap()
                .success()
        );
        wait_until("the daemon ends", || {
            self.child.try_wait().unwrap().is_some()
        });
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    for log in [Stdio::from(full), Stdio::from(writer)] {
        let daemon = Unread::start(dir.path(), log);
        daemon.assert_serves();
        let dropped = || daemon.http().metric("windlass_log_lines_dropped_total");
        wait_until("lines are counted as dropped", || dropped() > 0.0);
        daemon.assert_ends();
    }
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    /// More lines than a pipe has room for: two for each connection.
    const CONNECTIONS: usize = 1_000;
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = io::pipe().unwrap();
    let daemon = Unread::start(dir.path(), Stdio::from(writer));
    for _ in 0..CONNECTIONS {
        let version = Peer::connect(daemon.address("gearman"))
            .unwrap()
            .line("version")
            .unwrap();
        assert!(version.starts_with("OK "), "{version}");
    }
    daemon.assert_serves();
    daemon.assert_ends();
    drop(reader);
}

#[test]
fn lines_that_waited_for_their_reader_are_all_there() {
    const CONNECTIONS: usize = 1_000;
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = io::pipe().unwrap();
    let daemon = Unread::start(dir.path(), Stdio::from(writer));
    for _ in 0..CONNECTIONS {
        Peer::connect(daemon.address("gearman"))
            .unwrap()
            .line("version")
            .unwrap();
    }
    let reading = std::thread::spawn(move || io::read_to_string(reader).unwrap());
    daemon.assert_ends();
    let text = reading.join().unwrap();
    let opened = text
        .lines()
        .filter(|line| line.contains("gearman") && line.ends_with(": open"))
        .count();
    assert_eq!(opened, CONNECTIONS, "{text}");
    assert!(
        text.lines()
            .last()
            .unwrap()
            .ends_with("stopped: everything is on the disk"),
        "{text}"
    );
}
