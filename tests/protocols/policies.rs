//! Policies of queues that clients of spiderq and EventMQ use.

use crate::common::http::Http;
use crate::common::spiderq::{ADDED, Bare, EMPTY, Lease, add, lend};
use crate::common::{daemon, eventmq};

#[test]
fn a_worker_with_many_credits_gets_one_job_of_each_key() {
    let dir = tempfile::tempdir().unwrap();
    let keys = "[queues.mail]\nkey = { args = '/0' }\nper_key = { running = 1 }\n";
    let daemon = daemon(dir.path()).set(keys).eventmq("").start();
    let address = daemon.address("eventmq");
    let mut client = eventmq::Peer::connect(address, "client");
    for (id, tenant) in [
        ("a1", "acme"),
        ("a2", "acme"),
        ("a3", "acme"),
        ("b1", "beta"),
    ] {
        let job =
            format!(r#"["run", {{"callable": "report", "path": "tasks", "args": ["{tenant}"]}}]"#);
        client.request(id, "mail", "", &job);
    }
    let mut worker = eventmq::Peer::worker(address, "worker", r#"[[1, "mail"]]"#);
    worker.ready(10);
    let begun = |worker: &mut eventmq::Peer| worker.hear().unwrap()[1].clone();
    assert_eq!([begun(&mut worker), begun(&mut worker)], ["a1", "b1"]);
    let leased = || {
        Http(daemon.address("http"))
            .get("/api/v1/jobs?state=leased")
            .json()["jobs"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(leased(), 2, "the other credits stay");
    for (ended, next) in [("a1", "a2"), ("a2", "a3")] {
        worker
            .say(&["REPLY", "reply", "{\"value\": 1}", ended])
            .unwrap();
        assert_eq!(begun(&mut worker), next);
    }
}

#[test]
fn a_rate_holds_for_a_cycle_queue() {
    let dir = tempfile::tempdir().unwrap();
    let rate = |jobs: &str| format!("[queues.spiderq]\nrate = {{ jobs = {jobs} }}\n");
    let daemon = daemon(dir.path()).set(&rate("1, per = '1h'")).start();
    let mut client = Bare::connect(daemon.address("spiderq"));
    assert_eq!(client.ask(&add("first", b"value")), ADDED);
    assert_eq!(client.ask(&add("entry", b"value")), ADDED);
    let lent = client.ask(&lend(60_000, false));
    assert_eq!(
        Lease::of(&lent).map(|lease| lease.key),
        Some("first".to_owned())
    );
    assert_eq!(
        client.ask(&lend(1_000, false)),
        EMPTY,
        "the next token comes after an hour"
    );
    client.say(&lend(1_000, true));
    let file = dir.path().join("windlass.toml");
    let written = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, written.replace("1, per = '1h'", "50, per = '1s'")).unwrap();
    daemon.signal("HUP");
    let lent = client.hear().unwrap();
    assert_eq!(
        Lease::of(&lent).map(|lease| lease.key),
        Some("entry".to_owned()),
        "a waiting worker is served"
    );
}
