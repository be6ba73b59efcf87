//! Libraries that a process loads first, so that its system calls can be slowed down or recorded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds a library from C in a folder.
///
/// # Panics
/// If there is no C compiler.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "this is a test's tool: a panic is how it reports"
)]
pub fn library(folder: &Path, name: &str, source: &str) -> PathBuf {
    let file = folder.join(name).with_extension("c");
    let library = file.with_extension("so");
    fs::write(&file, source).expect("write the library's source");
    let made = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&file)
        .arg("-ldl")
        .status();
    assert!(made.is_ok_and(|made| made.success()), "no C compiler");
    library
}
