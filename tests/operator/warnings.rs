//! The daemon's warnings and their frequency: every problem is logged, and no client can fill the disk with log lines.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use windlass_testkit::daemon::Daemon;

use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::{Peer, daemon, wait_until};

/// The warnings so far.
fn warnings(daemon: &Daemon) -> Vec<Value> {
    let lines = daemon
        .log_text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect::<Vec<Value>>();
    lines
        .into_iter()
        .filter(|line| line["level"] == "WARN")
        .collect()
}

/// How often an event was logged: single lines, the count of suppressed ones in a line, and later summaries.
fn times(daemon: &Daemon, message: &str, reason: &str) -> u64 {
    let count = |line: &Value| {
        let more = line["more_like_it"].as_u64().unwrap_or_default();
        match line["message"].as_str() {
            Some(said) if said == message => 1 + more,
            Some(said) if line["reason"] == reason => {
                assert_eq!(said, format!("… and {more} more like it"));
                more
            }
            _ => 0,
        }
    };
    warnings(daemon).iter().map(count).sum()
}

fn wait_for(daemon: &Daemon, expected: u64, message: &str, reason: &str) {
    wait_until(message, || times(daemon, message, reason) >= expected);
    assert_eq!(
        times(daemon, message, reason),
        expected,
        "{}",
        daemon.log_text()
    );
}

/// The first line with this message.
fn first(daemon: &Daemon, message: &str) -> Value {
    warnings(daemon)
        .into_iter()
        .find(|line| line["message"] == message)
        .unwrap()
}

#[test]
fn wrong_passwords_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[faktory]\nlisten = [\"127.0.0.1:0\"]\npassword = \"secret\"")
        .start();
    for _ in 0..20 {
        assert_eq!(
            Fwp::hello(daemon.address("faktory"), "guess").1,
            "-ERR Invalid password"
        );
    }
    let message = "closed a connection: wrong password";
    wait_for(&daemon, 20, message, "wrong password");
    let line = first(&daemon, message);
    assert_eq!(
        (&line["protocol"], &line["peer"]),
        (&"faktory".into(), &"127.0.0.1".into())
    );
    assert!(!daemon.log_text().contains("guess") && !daemon.log_text().contains("secret"));
}

#[test]
fn refused_jobs_are_counted_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).set("limits.jobs_max = 1").start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.submit("resize", "", "x").unwrap();
    for _ in 0..20 {
        peer.submit("resize", "", "x").unwrap_err();
    }
    wait_for(&daemon, 20, "job rejected", "refused: JobsFull");
    let line = first(&daemon, "job rejected");
    assert_eq!(
        (&line["queue"], &line["why"]),
        (&"resize".into(), &"daemon is full: jobs 1, limit 1".into())
    );
}

#[test]
fn peers_that_are_hung_up_on_are_counted_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    for _ in 0..5 {
        let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
        peer.send_raw(b"\0REQ\0\0\0\x07\xff\xff\xff\xff").unwrap();
        while peer.receive().is_ok() {}
        // A client that closes by itself causes no warning.
        assert!(
            Peer::connect(daemon.address("gearman"))
                .unwrap()
                .line("version")
                .unwrap()
                .starts_with("OK ")
        );
    }
    wait_for(
        &daemon,
        5,
        "closed a connection",
        "closed: gearman: protocol error",
    );
    let line = first(&daemon, "closed a connection");
    assert_eq!(
        (&line["protocol"], &line["peer"]),
        (&"gearman".into(), &"127.0.0.1".into())
    );
    assert!(
        line["why"]
            .as_str()
            .unwrap()
            .starts_with("protocol error: "),
        "{line}"
    );
}

#[test]
fn deaths_and_expired_jobs_are_counted_with_an_example() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    for number in 0..10 {
        let jid = format!("death000{number}");
        let push = format!(
            r#"PUSH {{"jid":"{jid}","jobtype":"Resize","queue":"images","args":["private"],"retry":-1}}"#
        );
        assert_eq!(fwp.ask(&push), "+OK");
        assert!(fwp.ask("FETCH images").contains(&jid));
        assert_eq!(
            fwp.ask(&format!(
                r#"FAIL {{"jid":"{jid}","errtype":"IOError","message":"no\nroom"}}"#
            )),
            "+OK"
        );
    }
    let message = "a job failed permanently: moved to the dead-letter queue";
    wait_for(&daemon, 10, message, "buried");
    let line = first(&daemon, message);
    assert_eq!(
        (&line["queue"], &line["job"]),
        (&"images".into(), &"death0000".into())
    );
    assert_eq!(
        line["why"], "IOError: no\u{fffd}room",
        "a peer's line breaks are removed"
    );

    let push = r#"PUSH {"jid":"late00001","jobtype":"Resize","queue":"q","args":[],"custom":{"expires_at":"2001-01-01T00:00:00Z"}}"#;
    assert_eq!(fwp.ask(push), "+OK");
    wait_for(
        &daemon,
        1,
        "dropped a job that expired before a worker took it",
        "expired",
    );
    assert!(
        !daemon.log_text().contains("private"),
        "never what is in a job"
    );
}

#[test]
fn what_other_users_can_read_is_logged_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let chmod =
        |name: &str, mode| fs::set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
    fs::create_dir(path("data")).unwrap();
    fs::write(path("secret"), "secret\n").unwrap();
    fs::write(path("token"), "secret\n").unwrap();
    let keys = format!(
        "[http]\nlisten = [\"127.0.0.1:0\"]\naudit = {:?}\n[faktory]\nlisten = [\"127.0.0.1:0\"]\npassword_file = {:?}\n\
         [spiderq]\nlisten = [\"127.0.0.1:0\"]\nuser = \"u\"\npassword_file = {:?}\n",
        path("audit"),
        path("secret"),
        path("token"),
    );
    for (data, secret, expected) in [
        (0o777, 0o644, vec!["", "faktory.password_file"]),
        (0o750, 0o640, vec![]),
    ] {
        chmod("data", data);
        chmod("secret", secret);
        chmod("token", 0o600);
        let daemon = daemon(dir.path()).set(&keys).start();
        let open = |line: &Value| {
            line["message"]
                .as_str()
                .unwrap()
                .contains("other users of this machine can")
        };
        let open = warnings(&daemon).into_iter().filter(open);
        let keys: Vec<String> = open
            .map(|line| line["key"].as_str().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(keys, expected, "{data:o}");
        Http(daemon.address("http")).request("POST", "/api/v1/queues/q/pause", &[], b"");
        assert_eq!(
            fs::metadata(path("audit")).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}

#[test]
fn an_open_address_is_logged_at_the_start() {
    const MESSAGE: &str =
        "no authentication: anyone who can reach this address can submit, take and remove jobs";
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("gearman.sock");
    let keys = format!(
        "[gearman]\nlisten = [\"127.0.0.1:0\", \"0.0.0.0:0\", \"unix:{}\"]\n\
         [faktory]\nlisten = [\"0.0.0.0:0\"]\npassword = \"secret\"\n\
         [spiderq]\nlisten = [\"0.0.0.0:0\"]\nuser = \"u\"\npassword = \"secret\"\n\
         more = [{{listen = [\"0.0.0.0:0\"], queue = \"b\", user = \"\"}}]\n\
         [eventmq]\nlisten = [\"0.0.0.0:0\"]\nadmin_listen = [\"127.0.0.1:0\"]\npublish_listen = []\nsubscribe_listen = []\n",
        socket.display()
    );
    let daemon = daemon(dir.path()).set(&keys).start();
    let told = warnings(&daemon);
    let of = |line: &Value| {
        (
            line["protocol"].as_str().unwrap().to_owned(),
            line["message"] == MESSAGE,
        )
    };
    let mut told: Vec<(String, bool)> = told.iter().map(of).collect();
    told.sort();
    assert_eq!(
        told,
        ["eventmq", "gearman", "spiderq"].map(|name| (name.to_owned(), true)),
        "{}",
        daemon.log_text()
    );
}
