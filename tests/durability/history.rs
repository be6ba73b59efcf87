//! The past attempts of a job outlive the daemon, and go with the job to another one.

use std::fs;
use std::process::Command;

use crate::common::{daemon, history};

#[test]
fn past_attempts_outlive_a_kill_a_checkpoint_and_an_export() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = daemon(dir.path()).start();
    history::fail_twice(&first);
    history::check(&first);
    first.kill();
    first.restart();
    history::check(&first);
    // An orderly stop moves the log into the table.
    first.signal("TERM");
    assert!(first.wait().success(), "{}", first.log_text());
    let windlass = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        let output = command
            .args(args)
            .current_dir(dir.path())
            .env_clear()
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    };
    let export = windlass(&["salvage", "data"]);
    fs::write(dir.path().join("export.jsonl"), export).unwrap();
    windlass(&[
        "import",
        "jsonl",
        "export.jsonl",
        "--data-dir",
        "other/data",
    ]);
    first.restart();
    history::check(&first);
    let second = daemon(&dir.path().join("other")).start();
    history::check(&second);
}
