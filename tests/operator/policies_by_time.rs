//! `ttl`, `dead` and `dedup` of queues that match a pattern: clients of each protocol, none of which sets any of it.

use windlass_gearman::wire::Request;
use windlass_testkit::daemon::Daemon;

use crate::common::eventmq::Peer as Emq;
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::{Peer, daemon, wait_until};

const RULES: &str = "[queues.\"mail-*\"]\ndedup.window = \"1h\"\n\
                     [queues.\"code-*\"]\nttl = \"300ms\"\n\
                     [queues.\"sms-*\"]\nretry.count = -1\ndead.max = 2\n";

fn jobs(daemon: &Daemon, queue: &str, state: &str) -> u64 {
    let row = Http(daemon.address("http")).get(&format!("/api/v1/queues/{queue}"));
    if row.status == 404 { 0 } else { row.json()["states"][state].as_u64().unwrap() }
}

#[test]
fn a_push_that_is_repeated_after_its_job_ended_runs_no_second_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).set(RULES).eventmq("").start();
    let push = r#"PUSH {"jid":"order0000007","queue":"mail-fwp","jobtype":"Send","args":[]}"#;
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert_eq!(fwp.ask(push), "+OK");
    assert_eq!(fwp.ask(push), "+OK", "the answer was lost, and the job waits");
    assert!(fwp.ask("FETCH mail-fwp").contains("order0000007"));
    assert_eq!(fwp.ask(r#"ACK {"jid":"order0000007"}"#), "+OK");
    let mut worker = Emq::worker(daemon.address("eventmq"), "worker", "[[10, \"mail-emq\"]]");
    worker.ready(1);
    let mut client = Emq::connect(daemon.address("eventmq"), "client");
    client.request("m7", "mail-emq", "", r#"["run",{"path":"a.b","callable":"send"}]"#);
    let id = worker.hear().unwrap()[1].clone();
    worker.say(&["REPLY", "reply", r#"{"value": "sent"}"#, &id]).unwrap();
    wait_until("the job of EventMQ is done", || jobs(&daemon, "mail-emq", "done") == 1);
    daemon.kill();
    daemon.restart();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert_eq!(fwp.ask(push), "+OK", "it has ended");
    let mut client = Emq::connect(daemon.address("eventmq"), "client");
    client.request("m7", "mail-emq", "", r#"["run",{"path":"a.b","callable":"send"}]"#);
    client.request("m8", "mail-emq", "", r#"["run",{"path":"a.b","callable":"send"}]"#);
    wait_until("another job of EventMQ is there", || jobs(&daemon, "mail-emq", "ready") == 1);
    assert_eq!(jobs(&daemon, "mail-fwp", "ready"), 0);
}

#[test]
fn a_job_that_waited_for_too_long_expires_and_a_queue_keeps_its_newest_dead() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).set(RULES).start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert_eq!(fwp.ask(r#"PUSH {"jid":"code00000001","queue":"code-fwp","jobtype":"T","args":[]}"#), "+OK");
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    gearman.submit("code-gearman", "", "x").unwrap();
    for queue in ["code-fwp", "code-gearman"] {
        wait_until("the job has expired", || jobs(&daemon, queue, "ready") == 0);
    }
    assert_eq!(fwp.ask("FETCH code-fwp"), "null");
    gearman.can_do("sms-gearman").unwrap();
    let mut numbers = Vec::new();
    for n in 0..4 {
        gearman.submit("sms-gearman", "", n.to_string()).unwrap();
        let handle = gearman.grab().unwrap().unwrap().handle;
        let number = String::from_utf8_lossy(&handle).rsplit(':').next().and_then(|number| number.parse::<u64>().ok());
        numbers.push(number.unwrap());
        gearman.send(&Request::WorkFail { handle }).unwrap();
    }
    wait_until("the newest two are left", || {
        let dead = Http(daemon.address("http")).get("/api/v1/jobs?queue=sms-gearman&state=dead").json();
        let mut left: Vec<_> = dead["jobs"].as_array().unwrap().iter().filter_map(|job| job["id"].as_u64()).collect();
        left.sort_unstable();
        left == numbers[2..]
    });
}
