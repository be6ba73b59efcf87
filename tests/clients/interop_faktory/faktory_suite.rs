//! The tests in the package of the crate `faktory`, as its authors run them against Faktory.
//!
//! They run in three namespaces of a daemon at once: some requeue all failed jobs, or rely on being alone.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use crate::client::{installed, run};
use crate::common::faktory::Fwp;
use crate::common::{daemon, namespaces, wait_until};
use windlass_testkit::daemon::Daemon;

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

/// Runs the tests in namespaces with passwords that begin with this, or with addresses if it is `""`.
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

/// The namespaces' URLs, with their addresses or passwords.
fn urls(daemon: &Daemon, password: &str) -> Vec<String> {
    if password.is_empty() {
        let addresses = daemon.addresses("faktory").into_iter();
        return addresses.map(|at| format!("tcp://{at}")).collect();
    }
    let at = daemon.address("faktory");
    let of = |name| format!("tcp://:{password}{name}@{at}");
    namespaces::NAMES.into_iter().map(of).collect()
}

fn passes(test: &str, password: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let told = if password.is_empty() {
        namespaces::listen_tcp()
    } else {
        let of = |name| format!("{name} = \"{password}{name}\"\n");
        let others: String = namespaces::NAMES.into_iter().skip(1).map(of).collect();
        format!(
            "listen = [\"127.0.0.1:0\"]\npassword = {password:?}\n[faktory.passwords]\n{others}"
        )
    };
    let faktory = format!("{}[faktory]\n{told}", namespaces::SECTIONS);
    let daemon = daemon(dir.path()).set(&faktory).start();
    // The tests assume that Faktory has been up for a second at least.
    let (mut fwp, _) = Fwp::hello(daemon.address("faktory"), password);
    wait_until("the daemon has been up for a while", || {
        !fwp.ask("INFO").contains("\"uptime\":0")
    });
    drop(fwp);
    let urls = urls(&daemon, password);
    assert_eq!(urls.len(), namespaces::NAMES.len());
    let failed = Mutex::new(String::new());
    namespaces::at_once(&urls, |url| {
        let mut suite = suite();
        // Without these variables they pass without testing anything.
        suite.env("FAKTORY_URL", url).env("FAKTORY_ENT", "1");
        let (well, said) = run(suite.args(["--exact", "--include-ignored", test]));
        if !well || !said.contains("1 passed") {
            failed.lock().unwrap().push_str(&said);
        }
    });
    let failed = failed.into_inner().unwrap();
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("{failed}\n{}", daemon.log_text()))
    }
}
