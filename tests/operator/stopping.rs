//! Graceful stops and other signals and commands to a running daemon: SIGUSR1, SIGHUP, `shutdown`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;
use windlass_gearman::wire::{Kind, Message, Report, Request, Response};
use windlass_testkit::daemon::{Daemon, EVENTMQ_OFF};

use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::{
    self, Peer, daemon, eventmq, kind, spiderq, submission, wait_for_log, wait_until,
};

/// Waits until no new connection is accepted.
fn wait_until_closed(address: SocketAddr) {
    wait_until("the listener is closed", || {
        TcpStream::connect(address).is_err()
    });
}

fn assert_stopped(daemon: &mut Daemon) {
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log_text());
}

// ---- SIGTERM --------------------------------------------------------------------------------------------------------

#[test]
fn a_faktory_worker_is_notified_and_keeps_its_reservation() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    let (mut worker, mut idle) = (
        Fwp::connect(daemon.address("faktory")),
        Fwp::connect(daemon.address("faktory")),
    );
    assert_eq!(
        worker.ask(r#"PUSH {"jid":"surv0001","jobtype":"T","args":[]}"#),
        "+OK"
    );
    assert_eq!(
        worker.ask(r#"PUSH {"jid":"surv0002","jobtype":"T","args":[]}"#),
        "+OK"
    );
    assert!(
        worker.ask("FETCH default").contains("surv0001")
            && worker.ask("FETCH default").contains("surv0002")
    );
    daemon.signal("TERM");
    assert_stopped(&mut daemon);
    assert_eq!(idle.ask("INFO"), "-ERR shutdown in progress");

    daemon.restart();
    let mut worker = Fwp::connect(daemon.address("faktory"));
    assert!(
        worker
            .ask("INFO")
            .contains(r#""sets":{"dead":0,"retries":0,"scheduled":0,"working":2}"#)
    );
    assert_eq!(worker.ask(r#"FAIL {"jid":"surv0001"}"#), "+OK");
    assert_eq!(worker.ask(r#"ACK {"jid":"surv0002"}"#), "+OK");
    assert!(
        worker
            .ask("INFO")
            .contains(r#""sets":{"dead":0,"retries":1,"scheduled":0,"working":0}"#)
    );
}

/// An HTTP connection that stays open.
struct KeptOpen(TcpStream);

impl KeptOpen {
    /// Sends a request without a body.
    fn say(&mut self, method: &str, path: &str) {
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        self.0.write_all(request.as_bytes()).unwrap();
    }

    /// What comes up to this text.
    fn hear(&mut self, end: &str) -> String {
        let mut heard = Vec::new();
        while !heard.ends_with(end.as_bytes()) {
            let mut byte = [0];
            self.0
                .read_exact(&mut byte)
                .unwrap_or_else(|why| panic!("{why}: {}", String::from_utf8_lossy(&heard)));
            heard.push(byte[0]);
        }
        String::from_utf8(heard).unwrap()
    }
}

/// A daemon that stands still reads nothing, and then finds the reports and the signal at once.
#[test]
fn reports_that_have_been_sent_when_the_daemon_is_stopped_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).eventmq("").start();
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    gearman.can_do("f").unwrap();
    gearman.submit("f", "", "x").unwrap();
    let handle = gearman.grab().unwrap().unwrap().handle;
    let mut faktory = Fwp::connect(daemon.address("faktory"));
    // Nothing but its own report shows that it is at work.
    let mut nameless = Fwp::try_hello(daemon.address("faktory")).unwrap();
    for (worker, jid) in [(&mut faktory, "job000001"), (&mut nameless, "job000002")] {
        assert_eq!(
            worker.ask(&format!(
                r#"PUSH {{"jid":"{jid}","jobtype":"T","args":[],"retry":0}}"#
            )),
            "+OK"
        );
        assert!(worker.ask("FETCH default").contains(jid));
    }
    let mut eventmq =
        eventmq::Peer::worker(daemon.address("eventmq"), "worker", r#"[[10, "mail"]]"#);
    let job = r#"["run", {"callable": "report", "path": "tasks"}]"#;
    eventmq::Peer::connect(daemon.address("eventmq"), "client").request("one", "mail", "", job);
    eventmq.ready(1);
    assert_eq!(eventmq.hear().unwrap()[0], "REQUEST");
    let mut spiderq = spiderq::Bare::connect(daemon.address("spiderq"));
    assert_eq!(spiderq.ask(&spiderq::add("a", b"1")), spiderq::ADDED);
    let lease = spiderq.lease(false).unwrap();
    let mut http = KeptOpen(common::socket(daemon.address("http")).unwrap());
    assert_eq!(
        faktory.ask(r#"PUSH {"jid":"job000003","jobtype":"T","queue":"web","args":[]}"#),
        "+OK"
    );
    http.say("POST", "/api/v1/queues/web/take?protocol=faktory");
    let head = http.hear("\r\n\r\n");
    let length = head
        .to_lowercase()
        .split_once("content-length: ")
        .unwrap_or_else(|| panic!("{head}"))
        .1
        .to_owned();
    let mut taken = vec![0; length.split("\r\n").next().unwrap().parse().unwrap()];
    http.0.read_exact(&mut taken).unwrap();
    let taken: serde_json::Value = serde_json::from_slice(&taken).unwrap();

    daemon.signal("STOP");
    gearman.complete(&handle).unwrap();
    faktory.say(r#"ACK {"jid":"job000001"}"#);
    nameless.say(r#"FAIL {"jid":"job000002"}"#);
    eventmq
        .say(&["REPLY", "reply", r#"{"value": 1}"#, "one"])
        .unwrap();
    spiderq.say(&spiderq::repay(&lease, spiderq::Status::Reward));
    http.say(
        "POST",
        &format!("/api/v1/leases/{}/done", taken["lease"].as_str().unwrap()),
    );
    daemon.signal("TERM");
    daemon.signal("CONT");
    assert_stopped(&mut daemon);
    assert_eq!(
        [faktory.hear().unwrap(), nameless.hear().unwrap()],
        ["+OK", "+OK"]
    );
    assert_eq!(spiderq.hear().unwrap(), spiderq::REPAID);
    assert!(http.hear("\r\n").contains("204"));
    assert_eq!(eventmq.hear().unwrap()[0], "KBYE");

    daemon.restart();
    let states = Http(daemon.address("http")).get("/api/v1/status").json()["states"].clone();
    // The entry of spiderq.
    let expected = json!({"dead": 0, "done": 0, "leased": 0, "parked": 0, "ready": 1, "retrying": 0, "scheduled": 0});
    assert_eq!(states, expected);
}

#[test]
fn a_worker_has_a_moment_to_report_when_the_daemon_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).set("server.return_grace = 0").start();
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.can_do("f").unwrap();
    worker.submit("f", "", "first").unwrap();
    worker.submit("f", "", "second").unwrap();
    let handle = worker.grab().unwrap().unwrap().handle;
    daemon.signal("TERM");
    wait_until_closed(daemon.address("gearman"));
    worker.complete(&handle).unwrap();
    assert_stopped(&mut daemon);
    daemon.restart();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    assert_eq!(
        peer.listing("status").unwrap(),
        ["f\t1\t0\t0"],
        "the second job is left"
    );
}

#[test]
fn a_fetch_that_waits_when_the_daemon_is_stopped_gets_no_job_and_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    let (mut waits, mut idle) = (
        Fwp::connect(daemon.address("faktory")),
        Fwp::connect(daemon.address("faktory")),
    );
    waits.say("FETCH default");
    daemon.signal("TERM");
    assert_stopped(&mut daemon);
    assert_eq!(waits.hear().unwrap(), "null");
    assert!(waits.hear().is_err(), "the connection is closed");
    assert_eq!(idle.ask("INFO"), "-ERR shutdown in progress");
}

#[test]
fn a_stop_does_not_wait_for_a_peer_that_reads_nothing() {
    const BODY_BYTES: usize = 1 << 20;
    const PACKETS: usize = 64;
    let dir = tempfile::tempdir().unwrap();
    // Longer than the test: only peers without pending work may end before this.
    let mut daemon = daemon(dir.path())
        .set("server.shutdown_timeout = \"1h\"")
        .start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    let mut echoes = bytes::BytesMut::new();
    for _ in 0..PACKETS {
        Request::Echo {
            data: vec![b'x'; BODY_BYTES].into(),
        }
        .encode(&mut echoes);
    }
    // More than both sides' kernel buffers hold: the daemon has answers that the peer does not read.
    let mut stream = common::socket(daemon.address("gearman")).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let mut write = |sent: &mut usize| match stream.write(&echoes[*sent..]) {
        Ok(bytes) => {
            *sent += bytes;
            bytes > 0
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            false
        }
    };
    wait_until(
        "nothing more is read from a peer that reads nothing",
        || {
            while write(&mut sent) {}
            // The daemon has had time to read more.
            peer.line("version").unwrap();
            !write(&mut sent)
        },
    );
    assert!(sent < echoes.len());
    daemon.signal("TERM");
    assert_stopped(&mut daemon);
    let log = daemon.log_text();
    assert!(
        log.contains("timed out: not reading while the daemon stops"),
        "{log}"
    );
}

// ---- SIGTTIN --------------------------------------------------------------------------------------------------------

#[test]
fn sigttin_logs_the_state_and_disturbs_no_client() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).set("server.threads = 1").start();
    let (mut peer, mut fwp) = (
        Peer::connect(daemon.address("gearman")).unwrap(),
        Fwp::connect(daemon.address("faktory")),
    );
    peer.submit("resize", "", "private").unwrap();
    assert_eq!(
        fwp.ask(
            r#"PUSH {"jid":"job000001","jobtype":"T","queue":"mail","args":["private"],"retry":3}"#
        ),
        "+OK"
    );
    assert!(fwp.ask("FETCH mail").contains("job000001"));
    for round in 1..=2 {
        daemon.signal("TTIN");
        wait_until("everything is logged", || {
            daemon
                .log_text()
                .matches("SIGTTIN: the report ends")
                .count()
                == round
        });
    }
    let told: Vec<serde_json::Value> = daemon
        .log_text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let find = |message: &str, key: &str, value: serde_json::Value| {
        let found = told
            .iter()
            .find(|line| line["message"] == message && line[key] == value);
        found.unwrap_or_else(|| panic!("no {message} with {key} {value}: {}", daemon.log_text()))
    };
    assert_eq!(find("totals", "connections", 2.into())["workers"], 1);
    assert_eq!(find("jobs", "jobs", 2.into())["running"], 1);
    assert_eq!(
        find("connection", "protocol", "gearman".into())["address"],
        "127.0.0.1"
    );
    find("connection", "protocol", "faktory".into());
    assert_eq!(find("worker", "protocol", "faktory".into())["jobs"], 1);
    assert_eq!(find("queue", "queue", "resize".into())["ready"], 1);
    assert_eq!(find("queue", "queue", "mail".into())["running"], 1);
    find("serving thread", "connections", 2.into());
    find("thread", "name", "commit".into());
    assert!(
        !daemon.log_text().contains("private"),
        "never what is in a job"
    );
    daemon.signal("TERM");
    assert_stopped(&mut daemon);
}

// ---- SIGUSR1 --------------------------------------------------------------------------------------------------------

#[test]
fn a_graceful_stop_does_not_wait_for_queued_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    let mut sleeper = Peer::connect(daemon.address("gearman")).unwrap();
    sleeper.can_do("other").unwrap();
    sleeper.send(&Request::PreSleep).unwrap();
    peer.submit("later", "", "x").unwrap();
    daemon.signal("USR1");
    assert_stopped(&mut daemon);
    assert!(
        peer.receive().is_err() && sleeper.receive().is_err(),
        "the connections are closed"
    );
    daemon.restart();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    assert!(
        peer.listing("status")
            .unwrap()
            .contains(&"later\t1\t0\t0".to_owned())
    );
}

#[test]
fn a_graceful_stop_waits_for_running_jobs_and_waiting_clients() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    let address = daemon.address("gearman");
    let (mut client, mut worker) = (
        Peer::connect(address).unwrap(),
        Peer::connect(address).unwrap(),
    );
    worker.can_do("f").unwrap();
    client.submit("f", "", "background").unwrap();
    let running = worker.grab().unwrap().unwrap();
    daemon.signal("USR1");
    wait_until_closed(address);
    // Existing connections continue, and may send new requests.
    client
        .send(&submission("f", "", "foreground", false))
        .unwrap();
    assert_eq!(kind(&client.packet().unwrap()), Kind::JOB_CREATED);
    worker.complete(&running.handle).unwrap();
    let awaited = worker.grab().unwrap().unwrap();
    assert_eq!(awaited.workload, "foreground");
    client.submit("f", "", "left").unwrap();
    assert!(worker.line("version").unwrap().starts_with("OK "));
    worker
        .send(&Request::Work {
            handle: awaited.handle,
            report: Report::Complete("done".into()),
        })
        .unwrap();
    let packet = client.packet().unwrap();
    assert!(
        matches!(
            Response::parse(&packet),
            Ok(Response::Work {
                report: Report::Complete(b"done"),
                ..
            })
        ),
        "{packet:?}"
    );
    assert_stopped(&mut daemon);
    daemon.restart();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    assert_eq!(
        peer.listing("status").unwrap(),
        ["f\t1\t0\t0"],
        "completed jobs are gone, the rest is there"
    );
}

#[test]
fn a_second_signal_stops_immediately() {
    for again in ["USR1", "TERM", "INT"] {
        let dir = tempfile::tempdir().unwrap();
        let mut daemon = daemon(dir.path()).start();
        let address = daemon.address("gearman");
        let mut worker = Peer::connect(address).unwrap();
        worker.can_do("f").unwrap();
        worker.submit("f", "", "x").unwrap();
        worker.grab().unwrap().unwrap();
        daemon.signal("USR1");
        wait_until_closed(address);
        daemon.signal("HUP");
        assert!(
            worker.line("version").unwrap().starts_with("OK "),
            "that does not count as a second signal to stop"
        );
        daemon.signal(again);
        assert_stopped(&mut daemon);
        daemon.restart();
        let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
        assert_eq!(
            peer.listing("status").unwrap(),
            ["f\t1\t1\t0"],
            "{again}: the running job is not lost"
        );
    }
}

// ---- the log file ---------------------------------------------------------------------------------------------------

/// A daemon without a connection of the test, ended when dropped.
struct Mute(Child);

impl Mute {
    fn start(dir: &Path, log: &Path) -> Self {
        let config = dir.join("windlass.toml");
        let text = format!("data_dir = {:?}\n[log]\nfile = {log:?}\n", dir.join("data"));
        fs::write(
            &config,
            text + EVENTMQ_OFF
                + "[faktory]\nlisten = []\n[spiderq]\nlisten = []\n[gearman]\nlisten = [\"127.0.0.1:0\"]\n",
        )
        .unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .args(["serve", "-c"])
            .arg(config)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        assert!(
            Command::new("kill")
                .arg(format!("-{name}"))
                .arg(self.0.id().to_string())
                .status()
                .unwrap()
                .success()
        );
    }

    /// Its standard error, once it has ended.
    fn said(&mut self) -> String {
        let mut said = String::new();
        self.0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        said
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_log_file_that_was_moved_away_is_left_alone_after_sighup() {
    let dir = tempfile::tempdir().unwrap();
    let (log, old): (PathBuf, PathBuf) = (
        dir.path().join("windlass.log"),
        dir.path().join("windlass.log.1"),
    );
    let has =
        |path: &Path, text: &str| fs::read_to_string(path).is_ok_and(|said| said.contains(text));
    fs::write(&log, "from before\n").unwrap();
    let mut daemon = Mute::start(dir.path(), &log);
    wait_until("it is ready", || has(&log, "ready"));
    assert!(has(&log, "from before"), "appended to");
    fs::rename(&log, &old).unwrap();
    daemon.signal("HUP");
    wait_until("a new file is begun", || has(&log, "SIGHUP"));
    assert_eq!(
        fs::metadata(&log).unwrap().permissions().mode() & 0o777,
        0o640,
        "for the owner and a group"
    );
    // If the new file cannot be opened, the old one stays in use.
    let aside = dir.path().join("windlass.log.2");
    fs::rename(&log, &aside).unwrap();
    fs::create_dir(&log).unwrap();
    daemon.signal("HUP");
    wait_until("the mistake is logged", || {
        has(&aside, "still writing to the old file")
    });
    daemon.signal("TERM");
    assert_eq!(daemon.0.wait().unwrap().code(), Some(0));
    assert!(has(&aside, "everything is on the disk") && !has(&old, "SIGHUP"));
    assert_eq!(daemon.said(), "", "nothing on standard error");
}

#[test]
fn a_sighup_during_recovery_does_not_end_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("windlass.log");
    let said = |text: &str| fs::read_to_string(&log).is_ok_and(|said| said.contains(text));
    {
        let mut daemon = daemon(dir.path()).start();
        let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
        (0..2_000).for_each(|_| drop(peer.submit("f", "", "x").unwrap()));
        daemon.signal("TERM");
        assert_stopped(&mut daemon);
    }
    let daemon = Mute::start(dir.path(), &log);
    // Waits until the daemon catches SIGHUP, which is before it opens its data.
    let status = format!("/proc/{}/status", daemon.0.id());
    let heeds = || {
        let status = fs::read_to_string(&status).unwrap();
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 == 1
    };
    wait_until("it catches SIGHUP", heeds);
    daemon.signal("HUP");
    wait_until("it is ready", || said("ready"));
    wait_until("it has processed SIGHUP", || said("SIGHUP"));
}

/// The rules of a queue that a reload cannot apply are named at every reload until the daemon starts anew.
#[test]
fn a_reload_names_the_queues_with_rules_for_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "[queues.a]\nfailure_values = [\"e*\"]\n[queues.b]\naliases.gearman = \"c\"\nretry = { count = 1 }\n";
    let daemon = daemon(dir.path()).set(rules).start();
    let config = dir.path().join("windlass.toml");
    let text = fs::read_to_string(&config).unwrap();
    let line =
        |queues: &str| format!("{queues}: changed aliases and failure_values need a restart");
    let reload = |text: String, times: usize| {
        fs::write(&config, text).unwrap();
        daemon.signal("HUP");
        wait_until("it has read the rules", || {
            daemon.log_text().matches("queues: ").count() == times
        });
    };
    // The first report is from the start.
    reload(text.replace("count = 1", "count = 2"), 2);
    reload(text.replace("e*", "f*"), 3);
    wait_for_log(&daemon, &line("queues a"));
    reload(
        text.replace("e*", "f*")
            .replace("aliases.gearman", "aliases.eventmq"),
        4,
    );
    wait_for_log(&daemon, &line("queues a, b"));
    assert_eq!(
        daemon.log_text().matches(&line("")).count(),
        2,
        "not for rules that a reload applies"
    );
}

#[test]
fn a_log_file_that_cannot_be_written_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("no/such/folder");
    let mut daemon = Mute::start(dir.path(), &log);
    let status = daemon.0.wait().unwrap();
    let said = daemon.said();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(
        said.starts_with(&format!(
            "windlass: log.file: cannot log to {}: ",
            log.display()
        )),
        "{said}"
    );
}

// ---- shutdown -------------------------------------------------------------------------------------------------------

#[test]
fn clients_stop_the_daemon_only_where_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    for command in ["shutdown", "shutdown graceful"] {
        assert!(
            peer.line(command)
                .unwrap()
                .starts_with("ERR UNKNOWN_COMMAND"),
            "{command}"
        );
    }
    assert!(
        Peer::connect(daemon.address("gearman"))
            .unwrap()
            .line("version")
            .unwrap()
            .starts_with("OK ")
    );
}

#[test]
fn an_allowed_client_stops_the_daemon() {
    let allowed = "[gearman]\nlisten = [\"127.0.0.1:0\"]\nshutdown = true";
    for command in ["shutdown", "shutdown graceful"] {
        let dir = tempfile::tempdir().unwrap();
        let mut daemon = daemon(dir.path()).set(allowed).start();
        let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
        // In one packet with a job, which is acknowledged first.
        let mut bytes = bytes::BytesMut::new();
        submission("later", "", "x", true).encode(&mut bytes);
        bytes.extend_from_slice(format!("{command}\n").as_bytes());
        peer.send_raw(&bytes).unwrap();
        assert_eq!(
            kind(&peer.packet().unwrap()),
            Kind::JOB_CREATED,
            "{command}"
        );
        assert_eq!(
            peer.receive().unwrap(),
            Message::Line("OK".into()),
            "{command}"
        );
        assert!(peer.receive().is_err(), "the connection is closed");
        assert_stopped(&mut daemon);
        daemon.restart();
        let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
        assert_eq!(
            peer.listing("status").unwrap(),
            ["later\t1\t0\t0"],
            "{command}"
        );
    }
}

#[test]
fn an_allowed_client_stops_the_daemon_gracefully() {
    let dir = tempfile::tempdir().unwrap();
    let allowed = "[gearman]\nlisten = [\"127.0.0.1:0\"]\nshutdown = true";
    let mut daemon = daemon(dir.path()).set(allowed).start();
    let address = daemon.address("gearman");
    let mut worker = Peer::connect(address).unwrap();
    worker.can_do("f").unwrap();
    worker.submit("f", "", "x").unwrap();
    let job = worker.grab().unwrap().unwrap();
    assert_eq!(
        Peer::connect(address)
            .unwrap()
            .line("shutdown graceful")
            .unwrap(),
        "OK"
    );
    wait_until_closed(address);
    assert!(worker.line("version").unwrap().starts_with("OK "));
    worker.complete(&job.handle).unwrap();
    assert_stopped(&mut daemon);
}
