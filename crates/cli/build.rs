//! The version that `windlass --version` prints: a release build names its commit.

use std::process::Command;

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release")
        // Sources without a clone may lie in the clone of another project.
        && git(&["rev-parse", "--show-prefix"]).is_some_and(|place| place == "crates/cli/");
    let commit = is_release
        .then(|| git(&["log", "-1", "--format=%h, %cs"]))
        .flatten();
    // The log of HEAD changes with every commit. A debug build need not follow.
    match git(&[
        "rev-parse",
        "--path-format=absolute",
        "--git-path",
        "logs/HEAD",
    ])
    .filter(|_| is_release)
    {
        Some(log) => println!("cargo:rerun-if-changed={log}"),
        None => println!("cargo:rerun-if-changed=build.rs"),
    }
    println!(
        "cargo:rustc-env=BUILD={version}{}",
        commit
            .map(|commit| format!(" ({commit})"))
            .unwrap_or_default()
    );
}

/// What git prints; `None` without git, or outside a clone of this project.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(words)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
