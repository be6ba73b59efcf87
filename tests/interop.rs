//! Stock clients against the daemon. `tests/install-clients` installs them.
//!
//! Here are Debian's `gearman` and `gearadmin`. Every library that can be a client and a worker is put through the same
//! scenes (`scenes.rs`), by way of a small program around it (`peers.rs` says what those are told and what they say).
//!
//! A client that is not there is a failure, never a skip.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(unreachable_pub, reason = "the modules are this program's own")]

mod common;
#[path = "interop/peers.rs"]
mod peers;
#[path = "interop/scenes.rs"]
mod scenes;

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use common::{Peer, daemon};

/// A stock program pointed at the daemon.
fn stock(program: &str, address: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
    command
}

/// Runs to the end and insists on success.
fn run(command: &mut Command) -> Output {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; tests/install-clients installs it"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// Runs to the end with this on its standard input.
fn run_with(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; tests/install-clients installs it"));
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// A worker in the background, killed when dropped.
struct Worker(Child);

impl Worker {
    fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}; tests/install-clients installs it")))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_gearman_program_counts_lines_in_the_foreground() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let address = daemon.address("gearman");
    let _worker = Worker::start(stock("gearman", address).args(["-w", "-f", "wc", "--", "wc", "-l"]));
    let output = run_with(stock("gearman", address).args(["-f", "wc"]), b"one\ntwo\nthree\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "3", "{output:?}");
    // A megabyte, so that the packet does not come in one piece.
    let output = run_with(stock("gearman", address).args(["-f", "wc"]), &b"a line of text\n".repeat(70_000));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "70000", "{output:?}");
}

#[test]
fn a_failing_worker_fails_the_client() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let address = daemon.address("gearman");
    let mut worker = Peer::connect(address).unwrap();
    worker.can_do("doomed").unwrap();
    let client = std::thread::spawn(move || run_with(stock("gearman", address).args(["-f", "doomed"]), b"x"));
    let job = loop {
        if let Some(job) = worker.grab().unwrap() {
            break job;
        }
    };
    worker.send(&windlass_gearman::wire::Request::WorkFail { handle: job.handle }).unwrap();
    let output = client.join().unwrap();
    assert!(!output.status.success() || !output.stderr.is_empty(), "{output:?}");
}

/// The issue's own words: 10,000 jobs submitted with `gearman -b`, the daemon killed, each worked off.
#[test]
fn ten_thousand_background_jobs_survive_kill_9() {
    const JOBS: usize = 10_000;
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    let lines: String = (0..JOBS).map(|n| format!("job {n}\n")).collect();
    let mut submit = stock("gearman", daemon.address("gearman"));
    let output = run_with(submit.args(["-b", "-n", "-f", "note"]), lines.as_bytes());
    assert!(output.status.success(), "{output:?}");
    daemon.kill();
    daemon.restart();
    let status = admin(daemon.address("gearman"), "--status");
    assert_eq!(status, format!("note\t{JOBS}\t0\t0\n.\n"));

    let notes = dir.path().join("notes");
    work_off(daemon.address("gearman"), JOBS / 2, &notes);
    daemon.kill();
    daemon.restart();
    work_off(daemon.address("gearman"), waiting(daemon.address("gearman")), &notes);

    let notes = std::fs::read_to_string(&notes).unwrap();
    let mut seen: Vec<usize> = notes.lines().map(|line| line.strip_prefix("job ").unwrap().parse().unwrap()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (0..JOBS).collect::<Vec<_>>());
    assert_eq!(admin(daemon.address("gearman"), "--status"), "note\t0\t0\t0\n.\n");
}

/// Works off that many jobs with the stock worker, which prints each workload: they are lines.
fn work_off(address: SocketAddr, jobs: usize, notes: &Path) {
    let notes = std::fs::OpenOptions::new().create(true).append(true).open(notes).unwrap();
    let mut worker = stock("gearman", address);
    worker.args(["-w", "-c", &jobs.to_string(), "-f", "note"]).stdin(Stdio::null()).stdout(notes);
    let status = worker.status().unwrap_or_else(|error| panic!("{error}; tests/install-clients installs it"));
    assert!(status.success(), "{status}");
}

/// Jobs that wait in the one queue there is.
fn waiting(address: SocketAddr) -> usize {
    let status = admin(address, "--status");
    status.split('\t').nth(1).unwrap().parse().unwrap()
}

fn admin(address: SocketAddr, question: &str) -> String {
    let output = run(stock("gearadmin", address).arg(question));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn gearadmin_shows_the_truth() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let address = daemon.address("gearman");
    let mut peer = Peer::connect(address).unwrap();
    peer.can_do("paint").unwrap();
    peer.send(&windlass_gearman::wire::Request::SetClientId { id: "painter 1".into() }).unwrap();
    for n in 0..3 {
        peer.submit("paint", "", format!("wall {n}")).unwrap();
    }
    peer.grab().unwrap().unwrap();
    assert_eq!(admin(address, "--status"), "paint\t3\t1\t1\n.\n");
    let workers = admin(address, "--workers");
    let row = workers.lines().find(|line| line.ends_with("127.0.0.1 painter 1 : paint"));
    assert!(row.is_some(), "{workers}");
    assert_eq!(admin(address, "--server-version"), "1.1.20\n");
}

/// A test for every library and scene.
macro_rules! interop {
    ($($library:ident, $stock:ident;)*) => {
        $(interop! { $library, $stock: foreground background priorities coalescing status exceptions streaming
            worker_death large in_flight serves_every_client })*
    };
    ($library:ident, $stock:ident: $($scene:ident)*) => {
        mod $library {
            $(#[test]
            fn $scene() {
                crate::scenes::$scene(&crate::peers::$stock);
            })*
        }
    };
}

interop! {
    gear, GEAR;
    python3_gearman, PYTHON3_GEARMAN;
    perl, PERL;
    libgearman, LIBGEARMAN;
    crate_gearman, CRATE;
}
