//! Compares EventMQ's cron expressions with croniter itself, over fresh random ones. `tests/install-clients` installs
//! it.
//!
//! A missing program is a failure, never a skip.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::played::play;

/// They take croniter some ten seconds.
const EXPRESSIONS: usize = 10_000;

#[test]
fn expressions_are_due_when_croniters_are() {
    let seed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.subsec_nanos());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut ask = Command::new(here.join("../../target/clients/python/bin/python"));
    ask.arg(here.join("tests/session/ask.py"))
        .args([seed.to_string(), EXPRESSIONS.to_string()]);
    let output = ask
        .output()
        .unwrap_or_else(|error| panic!("{ask:?}: {error}; tests/install-clients installs it"));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    println!("seed {seed}");
    let played = play(&String::from_utf8_lossy(&output.stdout));
    println!("{played:?}");
    assert_eq!(played.due + played.refused + played.seconds, EXPRESSIONS);
    assert!(played.due > EXPRESSIONS / 2);
}
