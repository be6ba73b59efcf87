//! The web pages in Debian's Chromium, headless. `tests/install-clients` installs it, and what drives it.
//!
//! A missing browser is a failure, never a skip.

use std::io::Write as _;
use std::process::{Command, Stdio};

use windlass_testkit::daemon::Daemon;

use crate::client::{installed, python, run};
use crate::common;
use crate::common::Peer;
use crate::common::http::Http;

#[track_caller]
fn plays(scene: &str, address: &str) {
    let (succeeded, said) = run(python("interop/pages_peer.py").args([scene, address]));
    assert!(succeeded, "{scene}: {said}");
}

/// A scene that speaks to Faktory's port, too. The daemon has two schedules.
#[track_caller]
fn plays_with_faktory(scene: &str, others: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let cron = |time, name| {
        format!(
            "[[faktory.cron]]\nschedule = \"{time}\"\njob = {{ type = \"{name}\", queue = \"reports\" }}\n"
        )
    };
    let history = "[history]\nkeep = \"1d\"\n[queues.mails]\nhistory = { body = \"1KiB\" }\n";
    let crons = [
        cron("0 3 * * *", "Nightly"),
        cron("@every 1h", "Hourly"),
        history.to_owned(),
    ];
    let crons = crons.concat();
    let daemon = common::daemon(dir.path()).set(&crons).start();
    let faktory = daemon.address("faktory").port().to_string();
    let address = at(&daemon);
    let words = [&[scene, &address, &faktory], others].concat();
    let (succeeded, said) = run(python("interop/pages_peer.py").args(words));
    assert!(succeeded, "{scene}: {said}");
}

#[test]
fn every_page_is_accessible_at_every_width() {
    let axe = installed("node/node_modules/axe-core/axe.min.js");
    plays_with_faktory("looks", &[axe.to_str().unwrap()]);
}

#[test]
fn keys_lead_everywhere_and_a_lost_daemon_is_shown() {
    plays_with_faktory("keys", &[]);
}

#[test]
fn each_heading_sorts_its_list() {
    plays_with_faktory("sorts", &[]);
}

#[test]
fn each_setting_of_a_queue_and_of_its_keys_has_a_button() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    plays("settings", &at(&daemon));
}

fn at(daemon: &Daemon) -> String {
    format!("http://{}", daemon.address("http"))
}

#[test]
fn a_person_finds_and_changes_things() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    plays("tour", &at(&daemon));
}

#[test]
fn a_hundred_thousand_jobs_are_retried_by_filter() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    for _ in 0..100 {
        for _ in 0..1_000 {
            peer.send(&common::submission("many", "", "x", true))
                .unwrap();
        }
        (0..1_000).for_each(|_| drop(peer.packet().unwrap()));
    }
    (0..3).for_each(|_| drop(peer.submit("few", "", "x").unwrap()));
    let http = Http(daemon.address("http"));
    let mut killed = 0;
    while killed < 100_000 {
        killed += http
            .post("/api/v1/jobs/kill?queue=many&state=ready", "")
            .json()["changed"]
            .as_u64()
            .unwrap();
    }
    plays("bulk", &at(&daemon));
    assert_eq!(
        http.get("/api/v1/queues/many").json()["states"]["ready"],
        100_000
    );
}

#[test]
fn a_reader_sees_nothing_that_changes_something() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["password", "eve", "--role", "read"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"read-read\n")
        .unwrap();
    let logins = dir.path().join("logins");
    std::fs::write(&logins, child.wait_with_output().unwrap().stdout).unwrap();
    let keys = format!("[http]\nlisten = [\"127.0.0.1:0\"]\nlogins = {logins:?}\n");
    let daemon = common::daemon(dir.path()).set(&keys).start();
    Peer::connect(daemon.address("gearman"))
        .unwrap()
        .submit("few", "", "x")
        .unwrap();
    plays("reader", &at(&daemon));
}
