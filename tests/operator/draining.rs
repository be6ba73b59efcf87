//! Drains: `windlass drain`, SIGUSR2, and the API's own, with busy workers of every protocol.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use windlass_gearman::wire::Request;
use windlass_testkit::daemon::Daemon;

use crate::common::eventmq;
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::spiderq::{ADDED, Bare, EMPTY, FOREVER_MS, REPAID, Status, add, lend, repay};
use crate::common::{Peer, daemon, wait_for_log, wait_until};

const JOB: &str = r#"["run", {"callable": "report", "path": "tasks"}]"#;

fn drain_command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .arg("drain")
        .arg("--data-dir")
        .arg(dir.join("data"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// What a drain waits for: jobs by protocol.
fn held(status: &Value) -> Vec<(String, u64)> {
    let held = status["drain"]["held"].as_array().into_iter().flatten();
    held.map(|it| {
        (
            it["protocol"].as_str().unwrap().to_owned(),
            it["jobs"].as_u64().unwrap(),
        )
    })
    .collect()
}

fn waits_for(http: Http, expected: &[(&str, u64)]) {
    let expected: Vec<(String, u64)> = expected
        .iter()
        .map(|(name, jobs)| ((*name).to_owned(), *jobs))
        .collect();
    wait_until(&format!("it waits for {expected:?}"), || {
        held(&http.get("/api/v1/status").json()) == expected
    });
}

fn assert_stopped(daemon: &mut Daemon, why: &str) {
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log_text());
    assert!(
        daemon.log_text().contains(why),
        "{why}: {}",
        daemon.log_text()
    );
}

/// A Gearman worker with a job, and one more job behind it.
fn busy_gearman_worker(daemon: &Daemon) -> (Peer, bytes::Bytes) {
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.can_do("f").unwrap();
    worker.submit("f", "", "first").unwrap();
    worker.submit("f", "", "second").unwrap();
    let job = worker.grab().unwrap().unwrap();
    (worker, job.handle)
}

#[test]
fn a_drain_waits_for_busy_workers_of_every_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path())
        .eventmq("heartbeat_timeout = \"1m\"")
        .start();
    let http = Http(daemon.address("http"));
    let (mut gearman, handle) = busy_gearman_worker(&daemon);
    let mut sleeper = Peer::connect(daemon.address("gearman")).unwrap();
    sleeper.can_do("later").unwrap();
    sleeper.send(&Request::PreSleep).unwrap();
    let mut faktory = Fwp::connect(daemon.address("faktory"));
    for number in 0..3 {
        assert_eq!(
            faktory.ask(&format!(
                r#"PUSH {{"jid":"job00000{number}","jobtype":"T","args":[]}}"#
            )),
            "+OK"
        );
    }
    assert!(
        faktory.ask("FETCH default").contains("job000000")
            && faktory.ask("FETCH default").contains("job000001")
    );
    assert_eq!(faktory.ask(r#"BEAT {"wid":"wid-1"}"#), "+OK");
    let mut eventmq =
        eventmq::Peer::worker(daemon.address("eventmq"), "worker", r#"[[10, "mail"]]"#);
    let mut client = eventmq::Peer::connect(daemon.address("eventmq"), "client");
    client.request("one", "mail", "", JOB);
    client.request("two", "mail", "", JOB);
    eventmq.ready(1);
    let request = eventmq.hear().unwrap();
    let mut spiderq = Bare::connect(daemon.address("spiderq"));
    assert_eq!(
        (spiderq.ask(&add("a", b"1")), spiderq.ask(&add("b", b"2"))),
        (ADDED.to_vec(), ADDED.to_vec())
    );
    let lease = spiderq.lease(false).unwrap();

    let mut command = drain_command(dir.path()).spawn().unwrap();
    waits_for(
        http,
        &[
            ("faktory", 2),
            ("gearman", 1),
            ("spiderq", 1),
            ("eventmq", 1),
        ],
    );
    let status = http.get("/api/v1/status").json();
    assert_eq!(status["state"], "draining");
    assert!(
        status["drain"]["until"].as_str() > status["drain"]["since"].as_str(),
        "{status}"
    );
    let readyz = http.get("/readyz");
    assert!(
        readyz.status == 503 && readyz.text().starts_with("draining"),
        "{}",
        readyz.text()
    );
    for protocol in ["gearman", "faktory", "eventmq", "spiderq"] {
        assert!(
            TcpStream::connect(daemon.address(protocol)).is_err(),
            "{protocol}: no new connections"
        );
    }
    // Connections go on, and may submit; but no worker gets a job.
    client.request("three", "mail", "", JOB);
    gearman.submit("later", "", "x").unwrap();
    assert_eq!(
        faktory.ask(r#"PUSH {"jid":"job000003","jobtype":"T","args":[]}"#),
        "+OK"
    );
    assert_eq!(
        faktory.ask(r#"BEAT {"wid":"wid-1"}"#),
        r#"{"state":"quiet"}"#
    );
    assert_eq!(faktory.ask("FETCH default"), "null");
    gearman.complete(&handle).unwrap();
    assert!(gearman.grab().unwrap().is_none());
    waits_for(http, &[("faktory", 2), ("spiderq", 1), ("eventmq", 1)]);
    assert_eq!(faktory.ask(r#"ACK {"jid":"job000000"}"#), "+OK");
    eventmq.ready(1);
    eventmq
        .say(&["REPLY", "reply", r#"{"value": 1}"#, &request[1]])
        .unwrap();
    waits_for(http, &[("faktory", 1), ("spiderq", 1)]);
    assert_eq!(faktory.ask(r#"FAIL {"jid":"job000001"}"#), "+OK");
    assert_eq!(
        spiderq.ask(&lend(FOREVER_MS, false)),
        EMPTY,
        "the other entry stays"
    );
    waits_for(http, &[("spiderq", 1)]);
    assert_eq!(spiderq.ask(&repay(&lease, Status::Reward)), REPAID);

    assert_stopped(&mut daemon, "no connected worker has a job");
    assert!(sleeper.receive().is_err(), "the sleeper was never woken");
    assert_eq!(command.wait().unwrap().code(), Some(0));
    let said = std::io::read_to_string(command.stdout.take().unwrap()).unwrap();
    assert!(
        said.lines()
            .next()
            .unwrap()
            .contains("2 jobs of faktory workers, 1 job of gearman workers"),
        "{said}"
    );
    daemon.restart();
    let states = Http(daemon.address("http")).get("/api/v1/status").json()["states"].clone();
    // second, later; job000002, job000003; two, three; a, b.
    let expected = json!({"dead": 0, "done": 0, "leased": 0, "parked": 0, "ready": 8, "retrying": 1, "scheduled": 0});
    assert_eq!(states, expected);
}

#[test]
fn a_drain_ends_by_its_time_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path())
        .set("server.drain_timeout = \"300ms\"")
        .start();
    let (mut worker, _) = busy_gearman_worker(&daemon);
    daemon.signal("USR2");
    assert_stopped(
        &mut daemon,
        "connected workers still have jobs after server.drain_timeout",
    );
    assert!(worker.line("version").is_err());
    daemon.restart();
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    assert_eq!(
        worker.listing("status").unwrap(),
        ["f\t2\t1\t0"],
        "both jobs are on the disk, and one waits for its worker"
    );
}

#[test]
fn a_drain_does_not_wait_for_workers_that_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    let (worker, _) = busy_gearman_worker(&daemon);
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert_eq!(
        fwp.ask(r#"PUSH {"jid":"job000000","jobtype":"T","args":[]}"#),
        "+OK"
    );
    assert!(fwp.ask("FETCH default").contains("job000000"));
    daemon.signal("USR2");
    wait_for_log(&daemon, "draining: not accepting connections");
    drop((worker, fwp));
    assert_stopped(&mut daemon, "no connected worker has a job");
}

#[test]
fn a_second_drain_stops_immediately() {
    let second: [fn(&Daemon, &Path); 4] = [
        |daemon, _| daemon.signal("USR2"),
        |daemon, _| daemon.signal("TERM"),
        |_, dir| assert!(!drain_command(dir).output().unwrap().status.success()),
        |daemon, _| {
            assert_eq!(
                Http(daemon.address("http"))
                    .post("/api/v1/drain", "")
                    .status,
                409
            )
        },
    ];
    for second in second {
        let dir = tempfile::tempdir().unwrap();
        let mut daemon = daemon(dir.path()).set("server.drain_timeout = 0").start();
        let _busy = busy_gearman_worker(&daemon);
        let drain = drain_command(dir.path()).arg("--no-wait").output().unwrap();
        let said = String::from_utf8(drain.stdout).unwrap();
        assert_eq!(
            (drain.status.code(), &said[..]),
            (Some(0), "waiting for 1 job of gearman workers\n")
        );
        second(&daemon, dir.path());
        assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log_text());
    }
}
