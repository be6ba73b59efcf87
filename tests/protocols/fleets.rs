//! Fleets of several protocols on one daemon: none reaches into another, unless the queue is bridged.

use crate::common::eventmq;
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::spiderq::{ADDED, Bare, add};
use crate::common::{Peer, daemon, wait_for_log, wait_until};
use windlass_gearman::wire::{Report, Request};

const TRACKED: &str =
    r#"PUSH {"jid":"fleets000001","queue":"mail","jobtype":"Send","args":[],"custom":{"track":1}}"#;

#[test]
fn no_other_protocol_pauses_empties_or_limits_a_queue_of_spiderq() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let mut spiderq = Bare::connect(daemon.address("spiderq"));
    for key in ["k0", "k1", "k2"] {
        assert_eq!(spiderq.ask(&add(key, b"value")), ADDED);
    }
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    for command in [
        "QUEUE PAUSE spiderq",
        "QUEUE PAUSE *",
        "QUEUE REMOVE spiderq",
        "QUEUE REMOVE *",
        "FLUSH",
    ] {
        assert_eq!(fwp.ask(command), "+OK", "{command}");
    }
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    let lines = [
        "maxqueue spiderq 1",
        "drop function spiderq",
        "cancel job H:vm:1",
    ];
    lines
        .into_iter()
        .for_each(|line| drop(gearman.line(line).unwrap()));
    assert_eq!(spiderq.count(), 3);
    assert_eq!(spiderq.ask(&add("k3", b"value")), ADDED);
    assert_eq!(spiderq.lease(false).unwrap().key, "k0");
    // Operators see it.
    let row = Http(daemon.address("http"))
        .get("/api/v1/queues/spiderq")
        .json();
    assert_eq!(
        (&row["kind"], &row["paused"]),
        (&"cycle".into(), &false.into()),
        "{row}"
    );
}

#[test]
fn gearmans_administrators_see_and_cancel_gearmans_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).eventmq("").start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert_eq!(fwp.ask(TRACKED), "+OK");
    let mut client = eventmq::Peer::connect(daemon.address("eventmq"), "c");
    client.request("m", "emqq", "", r#"["run",{}]"#);
    let http = Http(daemon.address("http"));
    assert_eq!(http.post("/api/v1/queues/hq/jobs", "body").status, 201);
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    for listing in ["status", "show jobs", "show unique jobs", "show dead jobs"] {
        assert_eq!(gearman.listing(listing).unwrap(), [""; 0], "{listing}");
    }
    let own = gearman
        .submit("f", "", "x")
        .unwrap()
        .escape_ascii()
        .to_string();
    assert_eq!(
        gearman.listing("show jobs").unwrap(),
        [format!("{own}\t0\t0\t1")]
    );
    let (prefix, number) = own.rsplit_once(':').unwrap();
    for job in 1..number.parse::<u64>().unwrap() {
        assert_eq!(
            gearman.line(&format!("cancel job {prefix}:{job}")).unwrap(),
            "ERR UNKNOWN_JOB"
        );
    }
    assert!(fwp.ask("TRACK GET fleets000001").contains("enqueued"));
    assert_eq!(
        http.get("/api/v1/jobs").json()["jobs"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
}

#[test]
fn http_ends_a_text_connection_of_gearman() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    assert_eq!(gearman.line("create function f").unwrap(), "OK");
    let mut page = Peer::connect(daemon.address("gearman")).unwrap();
    page.send_raw(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\ndrop function f\r\n")
        .unwrap();
    assert!(
        page.receive().is_err(),
        "the connection ends without an answer"
    );
    wait_for_log(&daemon, "HTTP instead of a text command");
    assert_eq!(gearman.listing("status").unwrap().len(), 1);
}

/// FETCHes from the queue until there is a job. Returns its reply.
fn fetch(fwp: &mut Fwp, queue: &str) -> String {
    let mut reply = String::new();
    wait_until("a job is fetched", || {
        reply = fwp.ask(&format!("FETCH {queue}"));
        reply.contains("jobtype")
    });
    reply
}

#[test]
fn after_a_restart_jobs_of_a_faktory_worker_that_is_gone_go_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let toml = "bridge.queues = [\"*\"]\nlimits.beat_timeout = \"2s\"\n[faktory]\nlisten = [\"127.0.0.1:0\"]\nrequeue_on_worker_death = true\n";
    let mut daemon = daemon(dir.path()).set(toml).start();
    let mut client = Peer::connect(daemon.address("gearman")).unwrap();
    client.submit("k9f", "", r#"["of gearman"]"#).unwrap();
    let own = r#"PUSH {"jid":"fleets000002","queue":"k9own","jobtype":"Send","args":[]}"#;
    assert_eq!(Fwp::connect(daemon.address("faktory")).ask(own), "+OK");
    let mut worker = Fwp::try_worker(daemon.address("faktory"), "worker-1").unwrap();
    assert!(fetch(&mut worker, "k9f").contains("of gearman"));
    assert!(fetch(&mut worker, "k9own").contains("fleets000002"));
    daemon.signal("TERM");
    daemon.wait();
    daemon.restart();
    let http = Http(daemon.address("http"));
    wait_until("the worker is expected", || {
        http.get("/api/v1/workers").text().contains("worker-1")
    });
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    gearman.can_do("k9f").unwrap();
    let mut got = None;
    wait_until("the job is free", || {
        got = gearman.grab().unwrap();
        got.is_some()
    });
    assert_eq!(
        got.map(|job| job.workload).as_deref(),
        Some(br#"["of gearman"]"#.as_slice())
    );
    let mut other = Fwp::try_worker(daemon.address("faktory"), "worker-2").unwrap();
    assert!(fetch(&mut other, "k9own").contains("fleets000002"));
}

#[test]
fn a_job_that_an_operator_takes_back_is_not_reported_by_the_worker_that_had_it() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let push = r#"PUSH {"jid":"fleets000003","queue":"mail","jobtype":"Send","args":[],"custom":{"track":1}}"#;
    assert_eq!(Fwp::connect(daemon.address("faktory")).ask(push), "+OK");
    let mut workers = ["worker-a", "worker-b"]
        .map(|wid| Fwp::try_worker(daemon.address("faktory"), wid).unwrap());
    let ack = r#"ACK {"jid":"fleets000003"}"#;
    fetch(&mut workers[0], "mail");
    let http = Http(daemon.address("http"));
    assert_eq!(http.post("/api/v1/jobs/1/requeue", "").status, 200);
    // FWP answers an ACK of a job that is not there in the same way.
    let state = || http.get("/api/v1/jobs/1").json()["state"].clone();
    assert_eq!(
        (workers[0].ask(ack).as_str(), state()),
        ("+OK", "ready".into())
    );
    fetch(&mut workers[1], "mail");
    let fail = r#"FAIL {"jid":"fleets000003","errtype":"E","message":"m","backtrace":[]}"#;
    assert!(workers[0].ask(fail).starts_with("-ERR"));
    assert_eq!(
        (workers[0].ask(ack).as_str(), state()),
        ("+OK", "leased".into())
    );
    assert_eq!(
        (workers[1].ask(ack).as_str(), state()),
        ("+OK", "done".into())
    );
}

#[test]
fn results_of_http_workers_reach_other_protocols_like_those_of_all_workers() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("bridge.queues = [\"shared\"]\n")
        .eventmq("")
        .start();
    let http = Http(daemon.address("http"));
    let mut client = eventmq::Peer::connect(daemon.address("eventmq"), "c");
    let table = [
        (
            "shared",
            "",
            "done",
            "the result",
            r#"{"value": "the result"}"#,
        ),
        ("shared", "", "done", "", r#"{"value": null}"#),
        (
            "shared",
            "",
            "fail",
            "the error",
            r#"{"value": "the error"}"#,
        ),
        (
            "own",
            "?protocol=eventmq",
            "done",
            "the result",
            r#"{"value": "the result"}"#,
        ),
    ];
    for (number, (queue, terms, report, body, expected)) in table.into_iter().enumerate() {
        let id = format!("m{number}");
        client.request(
            &id,
            queue,
            "reply-requested",
            r#"["run",{"path":"p","callable":"c"}]"#,
        );
        let job = http
            .post(&format!("/api/v1/queues/{queue}/take{terms}"), "")
            .json();
        let lease = job["lease"].as_str().unwrap();
        let status = http
            .post(&format!("/api/v1/leases/{lease}/{report}"), body)
            .status;
        assert!([200, 204].contains(&status), "{queue} {report}");
        assert_eq!(
            client.hear().unwrap()[2..],
            [expected, &id],
            "{queue} {report} {body}"
        );
    }
}

#[test]
fn the_numbers_of_a_gearman_worker_are_progress_without_a_description() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("bridge.queues = [\"mail\"]\n")
        .start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert_eq!(fwp.ask(TRACKED), "+OK");
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.can_do("mail").unwrap();
    let handle = worker.grab().unwrap().unwrap().handle;
    worker
        .send(&Request::Work {
            handle,
            report: Report::Status {
                numerator: b"3"[..].into(),
                denominator: b"12"[..].into(),
            },
        })
        .unwrap();
    let mut tracked = || fwp.ask("TRACK GET fleets000001");
    wait_until("the report is there", || {
        tracked().contains("\"percent\":25")
    });
    assert!(!tracked().contains("desc"));
}

#[test]
fn operators_see_which_protocols_have_a_part_of_a_queue() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    assert_eq!(Fwp::connect(daemon.address("faktory")).ask(TRACKED), "+OK");
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    for key in ["a", "b"] {
        gearman.submit("mail", key, "x").unwrap();
    }
    let http = Http(daemon.address("http"));
    let expected = serde_json::json!({ "faktory": 1, "gearman": 2 });
    assert_eq!(
        http.get("/api/v1/queues/mail").json()["ready_by_protocol"],
        expected
    );
    let listed = http.get("/api/v1/queues").json()["queues"].clone();
    let row = listed
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["name"] == "mail")
        .unwrap();
    assert_eq!(row["ready_by_protocol"], expected);
}

#[test]
fn eventmqs_message_id_is_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).eventmq("").start();
    let mut client = eventmq::Peer::connect(daemon.address("eventmq"), "c");
    for id in ["one", "two"] {
        client.request(id, "mail", "", r#"["run",{}]"#);
    }
    let http = Http(daemon.address("http"));
    let names = |query: &str| -> Vec<String> {
        let jobs = http.get(&format!("/api/v1/jobs?{query}")).json()["jobs"].clone();
        jobs.as_array()
            .unwrap()
            .iter()
            .map(|job| job["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        (names("name=two"), names("name=three"), names("key=one")),
        (vec!["two".into()], vec![], vec!["one".into()])
    );
    assert_eq!(http.get("/api/v1/jobs/count?name=one").json()["jobs"], 1);
}

#[test]
fn a_job_that_cannot_be_converted_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("bridge.queues = [\"mail\"]\n")
        .eventmq("")
        .start();
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    gearman.submit("mail", "", "no call").unwrap();
    let mut worker = eventmq::Peer::worker(daemon.address("eventmq"), "w", r#"[[10, "mail"]]"#);
    worker.ready(1);
    let http = Http(daemon.address("http"));
    let job = || {
        http.get("/api/v1/jobs").json()["jobs"][0]["id"]
            .as_u64()
            .unwrap()
    };
    let why = || {
        http.get(&format!("/api/v1/jobs/{}", job())).json()["why"]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    wait_until("the conversion has failed", || {
        why().contains("conversion: gearman to eventmq: ")
    });
}

#[test]
fn the_connection_of_a_worker_has_the_workers_name() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let _worker = Fwp::connect(daemon.address("faktory"));
    let rows = Http(daemon.address("http"))
        .get("/api/v1/connections")
        .json()["connections"]
        .clone();
    let row = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["protocol"] == "faktory")
        .unwrap();
    assert_eq!(row["name"], "wid-1");
}
