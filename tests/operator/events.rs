//! The stream of events at the HTTP door.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::Value;
use socket2::SockRef;
use windlass_testkit::daemon::Daemon;

use crate::common;
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::wait_until;

/// A reader of events.
struct Events(BufReader<TcpStream>);

impl Events {
    fn of(daemon: &Daemon, which: &str) -> Self {
        let mut stream = common::socket(daemon.address("http")).unwrap();
        // The test is not about the kernel's buffer for a slow reader.
        SockRef::from(&stream)
            .set_recv_buffer_size(16 << 10)
            .unwrap();
        write!(
            stream,
            "GET /api/v1/events{which} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        .unwrap();
        let mut events = Self(BufReader::new(stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(events.0.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(
            head.starts_with("HTTP/1.1 200") && head.contains("content-type: text/event-stream"),
            "{head}"
        );
        events
    }

    /// The next event: its name and its data.
    fn next(&mut self) -> (String, Value) {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ends");
            if let Some(text) = line.strip_prefix("event: ") {
                text.trim().clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data).unwrap());
            }
        }
    }

    fn job(&mut self) -> String {
        let (name, data) = self.next();
        assert_eq!(name, "job", "{data}");
        format!(
            "{} {} {}",
            data["job"],
            data["queue"].as_str().unwrap(),
            data["state"].as_str().unwrap_or("gone")
        )
    }
}

fn watchers(http: Http) -> usize {
    let connections = http.get("/api/v1/connections").json();
    // One is the request's own.
    connections["connections"].as_array().unwrap().len() - 1
}

#[test]
fn a_reader_sees_jobs_change() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = common::daemon(dir.path()).start();
    let http = Http(daemon.address("http"));
    let (mut all, mut one) = (Events::of(&daemon, ""), Events::of(&daemon, "?queue=b"));
    wait_until("both watch", || watchers(http) == 2);
    for queue in ["a", "b"] {
        assert_eq!(
            http.post(&format!("/api/v1/queues/{queue}/jobs"), "x")
                .status,
            201
        );
    }
    let lease = http.post("/api/v1/queues/b/take", "").json()["lease"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        http.post(&format!("/api/v1/leases/{lease}/done"), "")
            .status,
        204
    );
    assert_eq!(
        [(); 4].map(|()| all.job()),
        ["1 a ready", "2 b ready", "2 b leased", "2 b gone"]
    );
    assert_eq!(
        [(); 3].map(|()| one.job()),
        ["2 b ready", "2 b leased", "2 b gone"]
    );
    drop(one);
    wait_until("one is gone", || watchers(http) == 1);
    assert_eq!(http.get("/api/v1/events?queues=a").status, 400);
    daemon.signal("TERM");
    assert!(
        daemon.wait().success(),
        "a reader keeps no daemon from stopping"
    );
}

#[test]
fn a_reader_sees_queues_and_workers_change() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = Http(daemon.address("http"));
    assert_eq!(http.post("/api/v1/queues/a/jobs", "x").status, 201);
    let (mut all, mut one) = (Events::of(&daemon, ""), Events::of(&daemon, "?queue=a"));
    wait_until("both watch", || watchers(http) == 2);
    let fwp = Fwp::connect(daemon.address("faktory"));
    for path in [
        "queues/a/pause",
        "queues/a/resume",
        "workers/wid-1/quiet",
        "workers/stop",
        "queues/a/clear",
    ] {
        assert!(
            http.post(&format!("/api/v1/{path}"), "").status < 300,
            "{path}"
        );
    }
    drop(fwp);
    let seen = |events: &mut Events| {
        let (name, data) = events.next();
        let of = data
            .get(&name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        format!(
            "{name} {of} {}",
            data["change"].as_str().unwrap_or_default()
        )
    };
    let expected = [
        "worker wid-1 registered",
        "queue a paused",
        "queue a resumed",
        "worker wid-1 quiet",
        "worker wid-1 stopping",
        "queue a cleared",
        "job  ",
        "worker wid-1 gone",
    ];
    assert_eq!(expected.map(|_| seen(&mut all)), expected);
    let expected = [
        "queue a paused",
        "queue a resumed",
        "queue a cleared",
        "job  ",
    ];
    assert_eq!(expected.map(|_| seen(&mut one)), expected);
}

#[test]
fn a_slow_reader_is_shown_its_gaps() {
    const JOBS: u64 = 80_000;
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = Http(daemon.address("http"));
    let mut slow = Events::of(&daemon, "");
    wait_until("it watches", || watchers(http) == 1);
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    for first in (0..JOBS).step_by(1_000) {
        let job = |number| format!(r#"{{"jid":"number-{number}","jobtype":"a","args":[]}}"#);
        let jobs: Vec<String> = (first..first + 1_000).map(job).collect();
        assert_eq!(fwp.ask(&format!("PUSHB [{}]", jobs.join(","))), "{}");
    }
    let (mut seen, mut missed) = (0, 0);
    while seen + missed < JOBS {
        match slow.next() {
            (name, data) if name == "missed" => missed += data["missed"].as_u64().unwrap(),
            (name, _) => seen += u64::from(name == "job"),
        }
    }
    assert_eq!(seen + missed, JOBS, "every change is shown or counted");
    assert!(missed > 0 && seen > 1_000, "{seen} seen, {missed} missed");
}
