//! The tests in the package of the crate `faktory`, as its authors run them against Faktory.
//!
//! Each has a daemon of its own: some requeue all failed jobs, or rely on being alone.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use crate::client::{installed, run};
use crate::common::faktory::Fwp;
use crate::common::{daemon, wait_until};

/// The number of tests at the same time. They mostly wait.
const AT_ONCE: usize = 6;

/// This test does not use the given server, but starts a Faktory in a container.
const BRINGS_ITS_OWN_FAKTORY: &str = "community::mutation_requeue_jobs";

#[test]
fn community() {
    let tests = tests("community::");
    assert_eq!(tests.len(), 17);
    pass(
        tests
            .into_iter()
            .filter(|test| test != BRINGS_ITS_OWN_FAKTORY),
        "",
    );
}

#[test]
fn password() {
    pass(
        ["community::roundtrip", "community::multi"]
            .map(str::to_owned)
            .into_iter(),
        "open-sesame",
    );
}

#[test]
fn enterprise() {
    let tests = tests("enterprise::");
    assert_eq!(tests.len(), 11);
    pass(tests.into_iter(), "");
}

fn suite() -> Command {
    Command::new(installed("faktory-suite/real"))
}

fn tests(module: &str) -> Vec<String> {
    let (well, listed) = run(suite().args(["--list", "--format", "terse", module]));
    assert!(well, "{listed}");
    listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect()
}

/// Runs each test with a daemon that requires this password, or `""` for none.
fn pass(tests: impl Iterator<Item = String>, password: &str) {
    let tests = Mutex::new(tests.collect::<VecDeque<_>>());
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(test) = tests.lock().unwrap().pop_front() else {
                        return;
                    };
                    if let Err(why) = passes(&test, password) {
                        failed.lock().unwrap().push(why);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

fn passes(test: &str, password: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let faktory = format!("[faktory]\nlisten = [\"127.0.0.1:0\"]\npassword = {password:?}");
    let daemon = daemon(dir.path()).set(&faktory).start();
    let address = daemon.address("faktory");
    // The tests assume that Faktory has been up for a second at least.
    let (mut fwp, _) = Fwp::hello(address, password);
    wait_until("the daemon has been up for a while", || {
        !fwp.ask("INFO").contains("\"uptime\":0")
    });
    drop(fwp);
    let mut suite = suite();
    // Without these variables they pass without testing anything.
    suite
        .env("FAKTORY_URL", format!("tcp://:{password}@{address}"))
        .env("FAKTORY_ENT", "1");
    let (well, said) = run(suite.args(["--exact", "--include-ignored", test]));
    let passed = well && said.contains("1 passed");
    if passed {
        Ok(())
    } else {
        Err(format!("{said}\n{}", daemon.log_text()))
    }
}
