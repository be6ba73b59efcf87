//! Stock Faktory clients against the daemon. `tests/install-clients` installs them.
//!
//! The crate `faktory` brings its own tests, which is what it is put through (`faktory_suite.rs`). PyPI's `pyfaktory` and
//! `faktory` play scenes of ours (`pyfaktory_peer.py`, `faktory_worker_peer.py`), each with a daemon of its own.
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
#[path = "interop/faktory_suite.rs"]
mod faktory_suite;
#[path = "interop/faktory_worker.rs"]
mod faktory_worker;
#[path = "faktory/peer.rs"]
mod peer;
#[path = "interop/pyfaktory.rs"]
mod pyfaktory;
#[path = "interop/served.rs"]
mod served;

use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A file that `tests/install-clients` has installed.
fn installed(path: &str) -> PathBuf {
    top().join("target/clients").join(path)
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// How long a client may take over a scene: generous, for a loaded machine. They take seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a program says, and whether it ended well. One that does not end is killed.
fn run(command: &mut Command) -> (bool, String) {
    let mut said = tempfile::tempfile().unwrap();
    command.stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said.try_clone().unwrap());
    let child = command.spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}; tests/install-clients installs it"));
    let end = Instant::now() + PATIENCE;
    let ended = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let mut bytes = Vec::new();
    said.rewind().unwrap();
    said.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    match ended {
        Some(status) => (status.success(), text.into_owned()),
        None => (false, format!("{command:?} did not end in {PATIENCE:?}:\n{text}")),
    }
}
