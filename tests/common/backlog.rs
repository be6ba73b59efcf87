//! A backlog of every protocol whose bodies do not fit into memory, pushed, and drained with each body compared.

use std::fs;
use std::net::SocketAddr;

use serde_json::Value;
use windlass_gearman::wire::{AssignForm, Request, Response};
use windlass_testkit::daemon::Daemon;

use super::faktory::Fwp;
use super::http::Http;
use super::spiderq::{ADDED, Bare, Lease, REPAID, Status, add, repay};
use super::{Peer, eventmq, submission};

/// The configuration of a daemon that has two megabytes for jobs.
pub const SMALL_MEMORY: &str = "[limits]\nmemory = \"8MiB\"";

/// Jobs of Gearman; every hundredth is large.
pub const GEARMAN: usize = 2_000;
/// Jobs of FWP.
pub const FWP: usize = 1_500;
/// Entries of spiderq, and jobs of EventMQ.
const OTHERS: usize = 150;
/// Requests that are sent before their answers are read.
const AT_ONCE: usize = 100;

/// The body of a job: of a kilobyte, or of a megabyte.
pub fn body(of: &str, number: usize) -> String {
    let bytes = if of == "gearman" && number.is_multiple_of(100) {
        1 << 20
    } else {
        1 << 10
    };
    let head = format!("{of} {number} ");
    head.repeat(bytes / head.len() + 1)
}

/// Pushes all jobs. Each is acknowledged.
pub fn push_all(daemon: &Daemon) {
    push_gearman(daemon.address("gearman"), 0..GEARMAN);
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    for first in (0..FWP).step_by(AT_ONCE) {
        let job = |number| {
            let args = body("faktory", number);
            let at = if number.is_multiple_of(10) {
                ",\"at\":\"2099-01-01T00:00:00Z\""
            } else {
                ""
            };
            format!(
                "{{\"jid\":\"faktory-{number}\",\"jobtype\":\"T{}\",\"args\":[\"{args}\"]{at}}}",
                number % 20
            )
        };
        let jobs: Vec<String> = (first..first + AT_ONCE).map(job).collect();
        assert_eq!(fwp.ask(&format!("PUSHB [{}]", jobs.join(","))), "{}");
    }
    let mut spiderq = Bare::connect(daemon.address("spiderq"));
    for number in 0..OTHERS {
        assert_eq!(
            spiderq.ask(&add(
                &format!("entry {number}"),
                body("spiderq", number).as_bytes()
            )),
            ADDED
        );
    }
    let mut client = eventmq::Peer::connect(daemon.address("eventmq"), "client");
    for number in 0..OTHERS {
        client.request(&format!("eventmq-{number}"), "mail", "", &message(number));
    }
}

/// Submits these jobs, many at once.
pub fn push_gearman(address: SocketAddr, numbers: std::ops::Range<usize>) {
    let mut peer = Peer::connect(address).unwrap();
    let numbers: Vec<usize> = numbers.collect();
    for part in numbers.chunks(AT_ONCE) {
        for number in part {
            peer.send(&submission("backlog", "", body("gearman", *number), true))
                .unwrap();
        }
        for number in part {
            let packet = peer.packet().unwrap();
            assert!(
                matches!(Response::parse(&packet), Ok(Response::JobCreated { .. })),
                "j{number}: {packet:?}"
            );
        }
    }
}

fn message(number: usize) -> String {
    format!(
        r#"["run", {{"callable": "report", "args": ["{}"]}}]"#,
        body("eventmq", number)
    )
}

/// Takes and completes the Gearman jobs of these numbers, which are next, and compares their bodies.
pub fn drain_gearman(address: SocketAddr, numbers: impl IntoIterator<Item = usize>) {
    let mut peer = Peer::connect(address).unwrap();
    peer.can_do("backlog").unwrap();
    for number in numbers {
        let job = peer
            .grab()
            .unwrap()
            .unwrap_or_else(|| panic!("job {number} is missing"));
        assert!(
            job.workload == body("gearman", number),
            "job {number} has another body: {:.40?}",
            job.workload
        );
        peer.complete(&job.handle).unwrap();
    }
    assert!(
        peer.line("version").unwrap().starts_with("OK "),
        "the completions have been processed"
    );
}

/// Takes and acknowledges FWP's jobs until there are none, in order, and compares their bodies. Returns their numbers.
pub fn drain_fwp(address: SocketAddr) -> Vec<usize> {
    let mut fwp = Fwp::connect(address);
    let mut numbers = Vec::new();
    loop {
        let said = fwp.ask("FETCH default");
        if said == "null" {
            return numbers;
        }
        let job: Value = serde_json::from_str(&said).unwrap();
        let jid = job["jid"].as_str().unwrap();
        let number = jid.strip_prefix("faktory-").unwrap().parse().unwrap();
        assert_eq!(job["args"][0], body("faktory", number), "{jid}");
        assert_eq!(fwp.ask(&format!("ACK {{\"jid\":\"{jid}\"}}")), "+OK");
        numbers.push(number);
    }
}

/// Drains spiderq and EventMQ, and compares all bodies.
pub fn drain_others(daemon: &Daemon) {
    let mut spiderq = Bare::connect(daemon.address("spiderq"));
    for number in 0..OTHERS {
        let lease: Lease = spiderq
            .lease(false)
            .unwrap_or_else(|| panic!("entry {number} is missing"));
        assert_eq!(
            (&*lease.key, &lease.value[..]),
            (
                &*format!("entry {number}"),
                body("spiderq", number).as_bytes()
            )
        );
        assert_eq!(spiderq.ask(&repay(&lease, Status::Drop)), REPAID);
    }
    assert_eq!(spiderq.lease(false), None);
    let mut worker =
        eventmq::Peer::worker(daemon.address("eventmq"), "worker", r#"[[10, "mail"]]"#);
    worker.ready(OTHERS);
    for number in 0..OTHERS {
        let request = worker.hear().unwrap();
        assert_eq!(
            (&*request[0], &*request[1]),
            ("REQUEST", &*format!("eventmq-{number}"))
        );
        assert!(
            request.contains(&message(number)),
            "eventmq-{number}: {request:.200?}"
        );
        worker
            .say(&["REPLY", "reply", r#"{"value": 1}"#, &request[1]])
            .unwrap();
    }
}

/// Two workers ask at the same time and again and again: each gets its answer, whatever it waits for.
pub fn drain_by_two(address: SocketAddr, jobs: usize) {
    let mut peers = [(); 2].map(|()| Peer::connect(address).unwrap());
    for peer in &mut peers {
        peer.can_do("backlog").unwrap();
    }
    for _ in 0..jobs / 2 {
        for peer in &mut peers {
            peer.send(&Request::Grab(AssignForm::Plain)).unwrap();
        }
        for peer in &mut peers {
            let packet = peer.packet().unwrap();
            let Ok(Response::JobAssign { handle, .. }) = Response::parse(&packet) else {
                panic!("{packet:?}")
            };
            let handle = bytes::Bytes::copy_from_slice(handle);
            peer.complete(&handle).unwrap();
        }
    }
}

/// Bytes of the file without a name in which a daemon keeps bodies, as far as the disk has them.
pub fn bytes_on_disk(daemon: &Daemon) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in fs::read_dir(format!("/proc/{}/fd", daemon.pid()))
        .unwrap()
        .flatten()
    {
        let is_nameless = fs::read_link(entry.path()).is_ok_and(|target| {
            let target = target.to_string_lossy().into_owned();
            target.contains("/data/") && target.ends_with("(deleted)")
        });
        if is_nameless {
            bytes += fs::metadata(entry.path()).map_or(0, |file| file.blocks() * 512);
        }
    }
    bytes
}

/// A value of the HTTP API.
#[track_caller]
pub fn json(http: Http, path: &str) -> Value {
    let answer = http.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}
