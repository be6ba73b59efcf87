//! Runs a stock client that `tests/install-clients` has installed.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A file that `tests/install-clients` has installed.
pub fn installed(path: &str) -> PathBuf {
    top().join("target/clients").join(path)
}

pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The longest duration of a scene, in seconds: generous, for a loaded machine. Scenes take seconds.
const PATIENCE_S: u64 = 300;

/// Runs a program; returns whether it succeeded, and its output. A program that does not end is killed.
pub fn run(command: &mut Command) -> (bool, String) {
    run_for(command, PATIENCE_S)
}

/// The same for a scene that takes longer.
pub fn run_for(command: &mut Command, patience_s: u64) -> (bool, String) {
    let mut said = tempfile::tempfile().unwrap();
    command
        .stdin(Stdio::null())
        .stdout(said.try_clone().unwrap())
        .stderr(said.try_clone().unwrap());
    let child = command.spawn();
    let mut child = child
        .unwrap_or_else(|error| panic!("{command:?}: {error}; tests/install-clients installs it"));
    let end = Instant::now() + Duration::from_secs(patience_s);
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
        None => (
            false,
            format!("{command:?} did not end in {patience_s} s:\n{text}"),
        ),
    }
}

/// A client of ours in Python.
pub fn python(file: &str) -> Command {
    let mut command = Command::new(installed("python/bin/python"));
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(top().join("tests/clients").join(file));
    command
}
