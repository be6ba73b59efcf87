//! The HTTP door of the real daemon: the API, Faktory's pages, and the requests that it refuses.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_testkit::daemon::Daemon;

use crate::common;
use crate::common::faktory::Fwp;
use crate::common::http::{Answer, Http};
use crate::common::{Peer, wait_until};

fn http(daemon: &Daemon) -> Http {
    Http(daemon.address("http"))
}

#[track_caller]
fn ok(answer: &Answer) -> Value {
    assert!((200..300).contains(&answer.status), "{answer:?}");
    answer.json()
}

#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.json()["code"], code, "{answer:?}");
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
}

/// The number of a job that was pushed.
fn pushed(answer: &Answer) -> u64 {
    assert_eq!(answer.status, 201, "{answer:?}");
    let id = answer.json()["id"].as_u64().unwrap();
    assert_eq!(
        answer.header("location"),
        Some(&*format!("/api/v1/jobs/{id}"))
    );
    id
}

#[test]
fn a_job_is_pushed_taken_and_done_without_a_client_library() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = common::daemon(dir.path()).start();
    let id = pushed(&http(&daemon).post(
        "/api/v1/queues/resize/jobs?priority=7&key=k&name=n&keep_result=1h",
        "cat.png",
    ));
    let binary = pushed(&http(&daemon).post("/api/v1/queues/resize/jobs", b"\xff\x00"));
    // A 201 means that the job is on the disk.
    daemon.kill();
    daemon.restart();
    let http = http(&daemon);
    let job = ok(&http.get(&format!("/api/v1/jobs/{id}")));
    let expected = json!({"id": id, "name": "n", "queue": "resize", "protocol": "http", "kind": "resize", "state": "ready",
        "priority": 7, "attempts": 0, "key": "k", "body": "cat.png", "body_base64": null, "body_bytes": 7, "retries": 5});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(job[key], *value, "{key}: {job}");
    }
    refused(
        &http.post("/api/v1/queues/resize/jobs?key=k", "dog.png"),
        409,
        "not_unique",
    );

    let taken = ok(&http.post("/api/v1/queues/resize/take?worker=w1&lease=10m", ""));
    assert_eq!(
        (&taken["id"], &taken["body"], &taken["attempts"]),
        (&json!(id), &json!("cat.png"), &json!(1))
    );
    let job = ok(&http.get(&format!("/api/v1/jobs/{id}")));
    assert_eq!(
        (&job["state"], &job["lease"]["worker"]),
        (&json!("leased"), &json!("w1"))
    );
    assert_eq!(job["lease"]["until"], taken["until"]);
    let lease = taken["lease"].as_str().unwrap();
    assert_eq!(
        http.post(&format!("/api/v1/leases/{lease}/extend?by=20m"), "")
            .status,
        204
    );
    let later = ok(&http.get(&format!("/api/v1/jobs/{id}")))["lease"]["until"].clone();
    assert!(later.as_str() > taken["until"].as_str(), "{later}");
    assert_eq!(
        http.post(&format!("/api/v1/leases/{lease}/done"), "200 x 200")
            .status,
        204
    );
    refused(
        &http.post(&format!("/api/v1/leases/{lease}/done"), "again"),
        409,
        "lease_not_held",
    );
    let job = ok(&http.get(&format!("/api/v1/jobs/{id}")));
    assert_eq!(
        (&job["state"], &job["result"]),
        (&json!("done"), &json!("200 x 200"))
    );

    let taken = ok(&http.post("/api/v1/queues/resize/take", ""));
    assert_eq!(
        (&taken["id"], &taken["body"], &taken["body_base64"]),
        (&json!(binary), &Value::Null, &json!("/wA="))
    );
    let bytes = http.get(&format!("/api/v1/jobs/{binary}/body"));
    assert_eq!((bytes.status, &*bytes.body), (200, &b"\xff\x00"[..]));
    assert_eq!(
        http.post("/api/v1/queues/resize/take", "").status,
        204,
        "there is no third job"
    );
}

#[test]
fn a_work_unit_is_pushed_as_by_faktorys_clients() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let (http, mut fwp) = (http(&daemon), Fwp::connect(daemon.address("faktory")));
    let push = |terms: &str, unit: &str| {
        http.post(
            &format!("/api/v1/queues/mails/jobs?protocol=faktory{terms}"),
            unit,
        )
    };
    let unit = r#"{"jobtype":"Mail","args":[12345678901234567890],"custom":{"locale":"fr"},"priority":7,"reserve_for":60}"#;
    let id = pushed(&push("", unit));
    let job = ok(&http.get(&format!("/api/v1/jobs/{id}")));
    assert_eq!(
        (&job["protocol"], &job["kind"], &job["priority"]),
        (&json!("faktory"), &json!("Mail"), &json!(7))
    );
    let name = job["name"].as_str().unwrap();
    assert_eq!(name.len(), 24, "a jid is made");
    let got = fwp.ask("FETCH mails");
    for part in [
        name,
        "12345678901234567890",
        r#""queue":"mails""#,
        r#""locale":"fr""#,
        r#""reserve_for":60"#,
    ] {
        assert!(got.contains(part), "{part}: {got}");
    }
    let later = r#"{"jid":"my-own-jid","queue":"mails","jobtype":"Mail","args":[],"at":"2999-01-01T00:00:00Z"}"#;
    let job = ok(&http.get(&format!("/api/v1/jobs/{}", pushed(&push("", later)))));
    assert_eq!(
        (&job["name"], &job["state"]),
        (&json!("my-own-jid"), &json!("scheduled"))
    );

    let table = [
        ("", "{}", "jobs must have a jobtype parameter"),
        (
            "",
            r#"{"jobtype":"Mail"}"#,
            "jobs must have an args parameter",
        ),
        ("", r#"{"jobtype":"Mail","args":1}"#, "invalid JSON"),
        ("", r#"["jobtype"]"#, "a work unit is an object in JSON"),
        (
            "",
            r#"{"jobtype":"Mail","args":[],"queue":"other"}"#,
            "the work unit names the queue other, not mails",
        ),
        (
            "&priority=7",
            unit,
            "protocol excludes all other fields but the queue: the body contains them",
        ),
    ];
    for (terms, unit, reason) in table {
        let answer = push(terms, unit);
        refused(&answer, 400, "bad_request");
        assert!(
            answer.json()["detail"].as_str().unwrap().contains(reason),
            "{answer:?}"
        );
    }
    let gearman = http.post("/api/v1/queues/mails/jobs?protocol=gearman", "x");
    assert!(
        gearman.json()["detail"]
            .as_str()
            .unwrap()
            .contains("only clients of this protocol can push its jobs"),
        "{gearman:?}"
    );
    refused(
        &http.post("/api/v1/queues/a%20b/jobs?protocol=faktory", unit),
        400,
        "bad_request",
    );
}

#[test]
fn an_overview_looks_at_all_queues() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    for queue in 0..500 {
        peer.submit(&format!("q{queue}"), "", "x").unwrap();
    }
    let http = http(&daemon);
    let page = || {
        http.request("GET", "/", &[("Accept", "text/html")], b"")
            .text()
            .to_owned()
    };
    // One of the 200 of a page is that of spiderq's listener, without jobs.
    assert!(
        page().contains("and 194 more"),
        "the first page of queues, at once"
    );
    wait_until("all are looked at", || page().contains("and 495 more"));
}

#[test]
fn a_job_may_be_for_the_year_9999() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = http(&daemon);
    let id = pushed(&http.post("/api/v1/queues/q/jobs?at=9999-12-31T23:59:59Z", "x"));
    let last = "9999-12-31T23:59:59.000Z";
    assert_eq!(ok(&http.get(&format!("/api/v1/jobs/{id}")))["until"], last);
    let push = r#"PUSH {"jid":"year00009999","queue":"f","jobtype":"T","args":[],"at":"9999-12-31T23:59:59Z"}"#;
    assert_eq!(Fwp::connect(daemon.address("faktory")).ask(push), "+OK");
    assert_eq!(
        ok(&http.get("/api/v1/jobs?queue=f"))["jobs"][0]["until"],
        last
    );
    // Later than that is shown as the last moment that RFC 3339 can write.
    let id = pushed(&http.post("/api/v1/queues/q/jobs?at=9999-12-31T23:59:59-12:00", "x"));
    assert_eq!(
        ok(&http.get(&format!("/api/v1/jobs/{id}")))["until"],
        "9999-12-31T23:59:59.999Z"
    );
}

#[test]
fn a_take_waits_for_a_job_and_a_waiting_client_that_leaves_gets_none() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = http(&daemon);
    let mut gone = TcpStream::connect(http.0).unwrap();
    gone.write_all(b"POST /api/v1/queues/q/take?wait=1m HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    wait_until("the client waits", || {
        ok(&http.get("/api/v1/status"))["connections"].as_u64() > Some(0)
    });
    drop(gone);
    wait_until("the client is gone", || {
        ok(&http.get("/api/v1/status"))["connections"] == 0
    });
    let waiting = thread::spawn(move || http.post("/api/v1/queues/q/take?wait=1m", ""));
    wait_until("another waits", || {
        ok(&http.get("/api/v1/status"))["connections"].as_u64() > Some(0)
    });
    let id = pushed(&http.post("/api/v1/queues/q/jobs", "x"));
    assert_eq!(ok(&waiting.join().unwrap())["id"], id);
    let begun = Instant::now();
    assert_eq!(
        http.post("/api/v1/queues/q/take?wait=300ms", "").status,
        204
    );
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

#[test]
fn failures_are_retried_and_end_in_the_dead_letter_queue() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = http(&daemon);
    let id = pushed(&http.post("/api/v1/queues/q/jobs?retries=1", "x"));
    let fail = || {
        let lease = ok(&http.post("/api/v1/queues/q/take", ""))["lease"]
            .as_str()
            .unwrap()
            .to_owned();
        ok(&http.post(
            &format!("/api/v1/leases/{lease}/fail?kind=Timeout"),
            "no answer",
        ))
    };
    assert_eq!(fail()["state"], "retrying");
    let job = ok(&http.get(&format!("/api/v1/jobs/{id}")));
    assert_eq!(
        (&job["state"], &job["failures"]),
        (&json!("retrying"), &json!(1))
    );
    assert_eq!(
        (&job["failure"]["kind"], &job["failure"]["message"]),
        (&json!("Timeout"), &json!("no answer"))
    );
    refused(
        &http.post(&format!("/api/v1/jobs/{id}/requeue"), ""),
        409,
        "lease_not_held",
    );
    assert_eq!(
        ok(&http.post(&format!("/api/v1/jobs/{id}/retry"), ""))["state"],
        "ready"
    );
    refused(
        &http.post(&format!("/api/v1/jobs/{id}/retry"), ""),
        409,
        "conflict",
    );
    assert_eq!(fail()["state"], "dead");
    let dead = ok(&http.get("/api/v1/jobs?state=dead"));
    assert_eq!(
        (&dead["jobs"][0]["id"], &dead["next"]),
        (&json!(id), &Value::Null)
    );
    assert_eq!(
        ok(&http.post(&format!("/api/v1/jobs/{id}/retry"), ""))["state"],
        "ready"
    );
    assert_eq!(
        ok(&http.post(&format!("/api/v1/jobs/{id}/kill"), ""))["state"],
        "dead"
    );
    assert_eq!(http.delete(&format!("/api/v1/jobs/{id}")).status, 204);
    refused(
        &http.delete(&format!("/api/v1/jobs/{id}")),
        404,
        "not_found",
    );
}

#[test]
fn a_job_is_taken_back_from_a_silent_worker() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let (http, mut peer) = (
        http(&daemon),
        Peer::connect(daemon.address("gearman")).unwrap(),
    );
    peer.submit("f", "", "x").unwrap();
    peer.can_do("f").unwrap();
    peer.grab().unwrap().unwrap();
    let job = &ok(&http.get("/api/v1/jobs?protocol=gearman&queue=f"))["jobs"][0];
    assert_eq!(
        (&job["state"], &job["lease"]["connection_bound"]),
        (&json!("leased"), &json!(true))
    );
    let id = &job["id"];
    refused(
        &http.post(&format!("/api/v1/jobs/{id}/kill"), ""),
        409,
        "conflict",
    );
    assert_eq!(
        ok(&http.post(&format!("/api/v1/jobs/{id}/requeue"), ""))["state"],
        "ready"
    );
    assert!(peer.grab().unwrap().is_some(), "the job is there again");
}

/// Two fleets use one name: the pause, the limit and the listing of one do not concern the other. The operator sees
/// both.
#[test]
fn each_fleet_has_its_own_part_of_an_isolated_queue() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = http(&daemon);
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    for jid in ["job00001", "job00002"] {
        let job = json!({"jid": jid, "jobtype": "t", "queue": "default", "args": []});
        assert_eq!(fwp.ask(&format!("PUSH {job}")), "+OK");
    }
    gearman.can_do("default").unwrap();
    gearman.submit("default", "", "an egg").unwrap();
    assert_eq!(fwp.ask("QUEUE PAUSE default"), "+OK");
    assert_eq!(gearman.line("maxqueue default 1").unwrap(), "OK");

    assert_eq!(gearman.listing("status").unwrap(), ["default\t1\t0\t1"]);
    let info: Value = serde_json::from_str(&fwp.ask("INFO")).unwrap();
    assert_eq!(info["faktory"]["queues"], json!({"default": 2}));
    let row = ok(&http.get("/api/v1/queues/default"));
    assert_eq!(
        (&row["states"]["ready"], &row["paused_protocols"]),
        (&json!(3), &json!(["faktory"]))
    );
    assert_eq!(
        (&row["jobs_max"]["5"], &row["jobs_max_protocol"]),
        (&json!(1), &json!("gearman"))
    );

    assert!(gearman.submit("default", "", "one too many").is_err());
    assert!(
        fwp.ask(r#"PUSH {"jid":"job00003","jobtype":"t","queue":"default","args":[]}"#)
            .starts_with("+OK")
    );
    let egg = gearman.grab().unwrap().unwrap();
    gearman.complete(&egg.handle).unwrap();
    assert_eq!(fwp.ask("QUEUE RESUME default"), "+OK");
    assert!(fwp.ask("FETCH default").contains("job00001"));
}

#[test]
fn queues_are_listed_paused_and_cleared() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = common::daemon(dir.path()).start();
    let http = http(&daemon);
    for queue in ["a", "b", "Gr%C3%B6%C3%9Fe%2F1", "base64:_wA"] {
        pushed(&http.post(&format!("/api/v1/queues/{queue}/jobs"), "x"));
    }
    for _ in 0..1000 {
        pushed(&http.post("/api/v1/queues/many/jobs", "x"));
    }
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = ok(&http.get(&format!("/api/v1/queues?limit=2{cursor}")));
        let rows = page["queues"].as_array().unwrap();
        assert!(rows.len() <= 2);
        names.extend(
            rows.iter()
                .map(|row| row["name"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else {
            break;
        };
        cursor = format!("&cursor={next}");
    }
    names.sort_unstable();
    assert_eq!(
        names,
        ["Größe/1", "a", "b", "base64:_wA", "many", "spiderq"]
    );
    assert_eq!(
        ok(&http.get("/api/v1/queues/base64:_wA"))["states"]["ready"],
        1
    );

    let row = ok(&http.post("/api/v1/queues/a/pause", ""));
    assert_eq!(
        (&row["paused"], row["paused_at"].is_string()),
        (&json!(true), true)
    );
    assert_eq!(http.post("/api/v1/queues/a/take", "").status, 204, "paused");
    let row = ok(&http.post("/api/v1/queues/a/resume", ""));
    assert_eq!(
        (&row["paused"], &row["paused_at"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(ok(&http.post("/api/v1/queues/a/take", ""))["queue"], "a");
    refused(
        &http.post("/api/v1/queues/none/resume", ""),
        404,
        "not_found",
    );
    refused(&http.get("/api/v1/queues/none"), 404, "not_found");

    assert_eq!(
        ok(&http.post("/api/v1/queues/many/clear", ""))["changed"],
        1000
    );
    let row = ok(&http.get("/api/v1/queues/many"));
    assert_eq!(
        (&row["states"]["ready"], &row["oldest_ready_at"]),
        (&json!(0), &Value::Null)
    );
    assert_eq!(
        ok(&http.get("/api/v1/queues/b"))["states"]["ready"],
        1,
        "another queue keeps its jobs"
    );
    refused(
        &http.post("/api/v1/queues/spiderq/take", ""),
        409,
        "conflict",
    );
    refused(
        &http.post("/api/v1/queues/spiderq/jobs", "x"),
        409,
        "wrong_kind",
    );

    let paused_at = ok(&http.post("/api/v1/queues/a/pause", ""))["paused_at"].clone();
    daemon.kill();
    daemon.restart();
    assert_eq!(
        ok(&self::http(&daemon).get("/api/v1/queues/a"))["paused_at"],
        paused_at,
        "it outlasts the daemon"
    );
}

#[test]
fn jobs_are_found_by_every_condition() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let (http, mut fwp) = (http(&daemon), Fwp::connect(daemon.address("faktory")));
    fwp.ask(r#"PUSH {"jid":"jid-00000001","jobtype":"Mail","queue":"default","args":[12345678901234567890]}"#);
    fwp.ask(r#"PUSH {"jid":"jid-00000002","jobtype":"Report","queue":"default","args":[]}"#);
    fwp.ask(r#"PUSH {"jid":"jid-00000003","jobtype":"Mail","queue":"default","args":[],"at":"2999-01-01T00:00:00Z"}"#);
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.submit("Mail", "unique", "x").unwrap();
    let found = |conditions: &str| {
        let page = ok(&http.get(&format!("/api/v1/jobs?{conditions}")));
        assert_eq!(page["next"], Value::Null);
        page["jobs"].as_array().unwrap().len()
    };
    let table = [
        ("", 4),
        ("queue=default", 3),
        ("queue=none", 0),
        ("state=scheduled", 1),
        ("state=ready&queue=default", 2),
        ("protocol=gearman", 1),
        ("protocol=http", 0),
        ("kind=Mail", 3),
        ("kind=Mail&queue=Mail", 1),
        ("kind=Mail&queue=default", 2),
        ("kind=Mail&state=ready", 2),
        ("kind=default", 0),
        ("key=unique", 1),
        ("key=other", 0),
        ("name=jid-00000002", 1),
        ("name=jid-00000002&kind=Mail", 0),
        ("older_than=1h", 0),
        ("newer_than=1h", 4),
        ("newer_than=1h&older_than=1m", 0),
    ];
    for (conditions, count) in table {
        assert_eq!(found(conditions), count, "{conditions}");
    }
    // In each order that is asked for, a page at a time.
    let names = |conditions: &str| {
        let page = ok(&http.get(&format!("/api/v1/jobs?{conditions}&limit=2")));
        let name = |job: &Value| job["name"].as_str().unwrap_or("unnamed").to_owned();
        (
            page["jobs"]
                .as_array()
                .unwrap()
                .iter()
                .map(name)
                .collect::<Vec<_>>(),
            page["next"].clone(),
        )
    };
    let (first, next) = names("order=oldest");
    assert_eq!(first, ["jid-00000001", "jid-00000002"]);
    let (rest, next) = names(&format!("order=oldest&cursor={}", next.as_str().unwrap()));
    assert_eq!(
        (rest, next),
        (
            vec!["jid-00000003".to_owned(), "unnamed".to_owned()],
            Value::Null
        )
    );
    assert_eq!(
        names("order=newest&queue=default").0,
        ["jid-00000003", "jid-00000002"]
    );
    assert_eq!(
        names("order=next&queue=default").0,
        ["jid-00000001", "jid-00000002"]
    );
    assert_eq!(names("order=next&state=scheduled").0, ["jid-00000003"]);
    let page = http.request("GET", "/search", &[("Accept", "text/html")], b"");
    assert!(
        page.status == 200 && page.text().contains("The search box finds a job"),
        "{page:?}"
    );
    for like in ["defau", "Defaults"] {
        let found = ok(&http.get(&format!("/api/v1/search?q={like}")));
        assert_eq!(
            (&found["jobs"], &found["near"]),
            (&json!([]), &json!(["default"])),
            "{like}"
        );
        let page = http.request(
            "GET",
            &format!("/search?q={like}"),
            &[("Accept", "text/html")],
            b"",
        );
        assert!(
            page.text()
                .contains("Queues of a similar name: <a href=\"/queues/default\">"),
            "{page:?}"
        );
    }
    assert_eq!(ok(&http.get("/api/v1/search?q=default"))["near"], json!([]));
    assert_eq!(ok(&http.get("/api/v1/search?q=other"))["near"], json!([]));
    let without = http.get("/api/v1/search");
    assert!(
        without.json()["detail"]
            .as_str()
            .unwrap()
            .contains("the parameter `q` is missing"),
        "{without:?}"
    );
    for conditions in [
        "order=next",
        "order=next&state=ready",
        "order=next&state=dead&queue=default",
        "order=none",
    ] {
        refused(
            &http.get(&format!("/api/v1/jobs?{conditions}")),
            400,
            "bad_request",
        );
    }
    let job = &ok(&http.get("/api/v1/jobs?name=jid-00000001"))["jobs"][0];
    assert_eq!(
        (&job["kind"], &job["name"]),
        (&json!("Mail"), &json!("jid-00000001"))
    );
    let detail = ok(&http.get(&format!("/api/v1/jobs/{}", job["id"])));
    assert!(
        detail["body"]
            .as_str()
            .unwrap()
            .contains("12345678901234567890"),
        "numbers are shown as they are: {detail}"
    );
    // As a worker of Faktory.
    assert_eq!(
        http.post("/api/v1/queues/default/take", "").status,
        204,
        "the queue is not bridged"
    );
    assert_eq!(
        ok(&http.post("/api/v1/queues/default/take?protocol=faktory", ""))["name"],
        "jid-00000001"
    );
    // What a worker has: one by its name, one by its connection.
    assert!(fwp.ask("FETCH default").contains("jid-00000002"));
    peer.can_do("Mail").unwrap();
    assert!(peer.grab().unwrap().is_some());
    let connections = ok(&http.get("/api/v1/connections"))["connections"].clone();
    let has_one = connections
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["protocol"] == "gearman")
        .unwrap();
    assert_eq!(has_one["jobs"], 1);
    let on = format!("connection={}", has_one["id"]);
    let held = &ok(&http.get(&format!("/api/v1/jobs?{on}")))["jobs"][0];
    assert_eq!(
        held["lease"]["connection"], has_one["id"],
        "its row names the connection: {held}"
    );
    let named = &ok(&http.get("/api/v1/jobs?worker=wid-1"))["jobs"][0]["lease"];
    assert_eq!(
        (&named["worker"], &named["connection"]),
        (&json!("wid-1"), &Value::Null)
    );
    let table = [
        ("worker=wid-1", 1),
        ("worker=wid-2", 0),
        (&on, 1),
        ("connection=999999", 0),
        ("state=leased", 3),
    ];
    for (conditions, count) in table {
        assert_eq!(found(conditions), count, "{conditions}");
    }
    assert_eq!(found("worker=wid-1&state=ready"), 0);
    let worker = &ok(&http.get("/api/v1/workers"))["workers"][0];
    assert_eq!(
        (&worker["name"], &worker["jobs"], &worker["waiting"]),
        (&json!("wid-1"), &json!(1), &json!(0))
    );
    assert_eq!(
        (&worker["doing"][0]["job"], &worker["doing"][0]["queue"]),
        (&json!(2), &json!("default"))
    );
    let on_page = [
        ("/workers", "/jobs/2", "2"),
        ("/workers", "/jobs?worker=wid-1", "wid-1"),
    ];
    for (path, link, text) in
        on_page
            .into_iter()
            .chain([("/connections", &*format!("/jobs?{on}"), "1")])
    {
        let page = http.request("GET", path, &[("Accept", "text/html")], b"");
        assert!(
            page.text()
                .contains(&format!("<a href=\"{link}\">{text}</a>")),
            "{path}: {page:?}"
        );
        assert!(http.get(link).text().contains("leased"), "{link}");
    }
}

#[test]
fn faktorys_pages_are_as_faktory_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let (http, mut fwp) = (http(&daemon), Fwp::connect(daemon.address("faktory")));
    fwp.ask(r#"PUSH {"jid":"jid-00000001","jobtype":"Mail","queue":"default","args":[]}"#);
    fwp.ask(r#"PUSH {"jid":"jid-00000002","jobtype":"Mail","queue":"a","args":[]}"#);
    let stats = http.get("/stats");
    assert_eq!(
        (stats.header("content-type"), stats.header("cache-control")),
        (Some("application/json"), Some("no-cache"))
    );
    // The same but for what moves.
    let still = |text: &str| {
        let mut value: Value = serde_json::from_str(text).unwrap();
        for (part, key) in [
            ("", "now"),
            ("", "server_utc_time"),
            ("server", "command_count"),
            ("server", "uptime"),
            ("server", "used_memory_mb"),
        ] {
            let part = if part.is_empty() {
                &mut value
            } else {
                &mut value[part]
            };
            assert!(part[key].take() != Value::Null, "{key}: {text}");
        }
        value
    };
    let info = fwp.ask("INFO");
    assert_eq!(still(stats.text()), still(&info));
    let order = |text: &str| {
        text.split('"')
            .skip(1)
            .step_by(2)
            .filter(|word| word.is_ascii())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let moving = |word: &String| !word.starts_with("20") && !word.ends_with("UTC");
    assert_eq!(
        order(stats.text())
            .into_iter()
            .filter(moving)
            .collect::<Vec<_>>(),
        order(&info).into_iter().filter(moving).collect::<Vec<_>>()
    );

    let health = http.get("/health");
    let now = health.json()["now"].as_str().unwrap().to_owned();
    let commands = health.json()["server"]["command_count"].clone();
    let expected = format!(
        "{{\"now\":\"{now}\",\"server\":{{\"command_count\":{commands},\"connections\":1,\"description\":\"Faktory Enterprise\",\"faktory_version\":\"1.10.0\"}}}}"
    );
    assert_eq!(health.text(), expected);
    assert_eq!(health.header("content-type"), Some("application/json"));
}

#[test]
fn faktorys_addresses_lead_to_the_pages_that_show_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = http(&daemon);
    pushed(&http.post("/api/v1/queues/q/jobs", "x"));
    let table = [
        ("/retries", "/jobs?state=retrying"),
        ("/scheduled?page=2", "/jobs?state=scheduled"),
        ("/morgue", "/dead"),
        (
            "/morgue/2026-11-25T10:00:00Z%7Cjid-1%262",
            "/jobs?name=jid-1%262",
        ),
        ("/busy", "/workers"),
        ("/debug", "/"),
        ("/queues/nosuch", "/queues"),
    ];
    for (theirs, ours) in table {
        let answer = http.request("GET", theirs, &[("X-Script-Name", "/ops")], b"");
        assert_eq!(
            (answer.status, answer.header("location")),
            (303, Some(&*format!("/ops{ours}"))),
            "{theirs}"
        );
        assert_eq!(http.get(ours).status, 200, "{ours}");
    }
    for path in [
        "/?days=7",
        "/queues?page=2",
        "/queues/q?page=2",
        "/jobs?page=2&state=ready",
        "/workers?page=2",
    ] {
        assert_eq!(http.get(path).status, 200, "{path}");
    }
    assert_eq!(http.get("/?span=year").status, 400);
}

#[test]
fn probes_and_status() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("http.sock");
    let listen = format!(
        "[http]\nlisten = [\"127.0.0.1:0\", \"unix:{}\"]\n",
        socket.display()
    );
    let mut daemon = common::daemon(dir.path()).set(&listen).start();
    let http = http(&daemon);
    assert_eq!(http.get("/livez").text(), "ok\n");
    assert!(http.get("/readyz").text().starts_with("ready"));
    pushed(&http.post("/api/v1/queues/q/jobs", "x"));
    let status = ok(&http.get("/api/v1/status"));
    let expected = json!({"state": "ready", "version": env!("CARGO_PKG_VERSION"), "jobs": 1, "queues": 2, "connections": 0});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(status[key], *value, "{key}: {status}");
    }
    assert_eq!(
        (&status["states"]["ready"], &status["totals"]["pushed"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(status["protocols"][0]["protocol"], "http");

    let mut stream = UnixStream::connect(&socket).unwrap();
    stream
        .write_all(b"GET /api/v1/status HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");

    let document = ok(&http.get("/api/v1/openapi.json"));
    let described: Value =
        serde_json::from_str(include_str!("../../crates/http/openapi.json")).unwrap();
    assert!(document == described && document["openapi"] == "3.1.0");

    // A daemon that waits for a job's end before it stops takes no more work, and reports that.
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.submit("f", "", "x").unwrap();
    worker.can_do("f").unwrap();
    let job = worker.grab().unwrap().unwrap();
    daemon.signal("USR1");
    wait_until("draining", || {
        http.get("/readyz").text().starts_with("draining: ")
    });
    assert_eq!(
        (http.get("/readyz").status, http.get("/livez").status),
        (503, 200)
    );
    let waiting = thread::spawn(move || http.post("/api/v1/queues/empty/take?wait=1m", ""));
    wait_until("a client waits", || {
        ok(&http.get("/api/v1/status"))["connections"].as_u64() > Some(1)
    });
    worker.complete(&job.handle).unwrap();
    assert!(daemon.wait().success());
    refused(&waiting.join().unwrap(), 503, "unavailable");
    assert!(!socket.exists());
}

#[test]
fn requests_of_foreign_pages_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path())
        .set("[http]\nlisten = [\"127.0.0.1:0\"]\nhosts = [\"queue.example\"]")
        .start();
    let http = http(&daemon);
    pushed(&http.post("/api/v1/queues/q/jobs", "x"));
    let clear =
        |headers: &[(&str, &str)]| http.request("POST", "/api/v1/queues/q/clear", headers, b"");
    for headers in [
        [
            ("Host", "localhost:7420"),
            ("Origin", "http://evil.example"),
        ],
        [("Host", "localhost:7420"), ("Origin", "null")],
        [("Host", "localhost:7420"), ("Sec-Fetch-Site", "cross-site")],
        [("Host", "localhost:7420"), ("Sec-Fetch-Site", "same-site")],
    ] {
        refused(&clear(&headers), 403, "cross_site");
    }
    for host in [
        "evil.example",
        "evil.example:7420",
        "127.0.0.1.evil.example",
    ] {
        refused(&clear(&[("Host", host)]), 421, "foreign_host");
        refused(
            &http.request("GET", "/api/v1/jobs", &[("Host", host)], b""),
            421,
            "foreign_host",
        );
        assert_eq!(
            http.request("GET", "/livez", &[("Host", host)], b"").status,
            200
        );
    }
    assert_eq!(
        ok(&http.get("/api/v1/queues/q"))["states"]["ready"],
        1,
        "nothing was cleared"
    );
    let own = [
        ("Host", "queue.example"),
        ("Origin", "http://queue.example"),
        ("Sec-Fetch-Site", "same-origin"),
    ];
    assert_eq!(ok(&clear(&own))["changed"], 1);
}

#[test]
fn wrong_requests_are_refused_and_the_next_one_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path())
        .set("[http]\nlisten = [\"127.0.0.1:0\"]\nbody_bytes_max = \"1KiB\"")
        .start();
    let http = http(&daemon);
    let bad = [
        "/api/v1/queues?limit=0",
        "/api/v1/queues?limit=1001",
        "/api/v1/queues?limit=-1",
        "/api/v1/queues?limit=99999999999999999999",
        "/api/v1/queues?cursor=x",
        "/api/v1/queues?unknown=1",
        "/api/v1/jobs?state=READY",
        "/api/v1/jobs?protocol=amqp",
        "/api/v1/jobs?older_than=5",
        "/api/v1/jobs/-1",
        "/api/v1/jobs/18446744073709551616",
        "/api/v1/jobs/x",
        "/api/v1/queues/%ff",
        "/api/v1/queues/base64:*",
    ];
    for path in bad {
        refused(&http.get(path), 400, "bad_request");
    }
    let bad = [
        "/api/v1/queues/q/jobs?priority=0",
        "/api/v1/queues/q/jobs?priority=10",
        "/api/v1/queues/q/jobs?priority=256",
        "/api/v1/queues/q/jobs?retries=4294967296",
        "/api/v1/queues/q/jobs?retries=-2",
        "/api/v1/queues/q/jobs?at=tomorrow",
        "/api/v1/queues/q/jobs?at=2030-01-01T00:00:00Z&delay=1s",
        "/api/v1/queues/q/take?wait=6m",
        "/api/v1/queues/q/take?lease=0s",
        "/api/v1/leases/1/done",
        "/api/v1/leases/1.x/done",
        "/api/v1/leases/1.1/extend",
        "/api/v1/leases/1.1/extend?by=0s",
    ];
    for path in bad {
        refused(&http.post(path, ""), 400, "bad_request");
    }
    refused(&http.post("/api/v1/leases/1.1/done", ""), 404, "not_found");
    refused(
        &http.post(&format!("/api/v1/queues/{}/jobs", "n".repeat(9_000)), ""),
        400,
        "name_too_long",
    );
    refused(&http.get("/nothing"), 404, "not_found");
    refused(&http.post("/api/v1/status", ""), 405, "method_not_allowed");

    refused(
        &http.post("/api/v1/queues/q/jobs", [b'x'; 1025]),
        413,
        "body_too_large",
    );
    let chunked = format!(
        "POST /api/v1/queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n{}\r\n0\r\n\r\n",
        "x".repeat(0x800)
    );
    refused(&http.raw(chunked.as_bytes()), 413, "body_too_large");
    pushed(&http.post("/api/v1/queues/q/jobs", [b'x'; 1024]));
    let many = format!("GET /livez HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100));
    assert_eq!(http.raw(many.as_bytes()).status, 431);
    let long = format!("GET /livez HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(100_000));
    assert_eq!(http.raw(long.as_bytes()).status, 431);
    assert_eq!(http.raw(b"\x00\x01\x02\r\n\r\n").status, 400);
    assert_eq!(http.get("/readyz").status, 200);
}

#[test]
fn waiting_takes_leave_room_for_everything_else() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path())
        .set("[http]\nlisten = [\"127.0.0.1:0\"]\nconnections_max = 8")
        .start();
    let http = http(&daemon);
    let take = || {
        let mut stream = TcpStream::connect(http.0).unwrap();
        stream
            .write_all(b"POST /api/v1/queues/q/take?wait=1m HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
            .unwrap();
        stream
    };
    let waiting: Vec<TcpStream> = (0..4).map(|_| take()).collect();
    wait_until("four wait", || {
        ok(&http.get("/api/v1/status"))["connections"] == 4
    });
    refused(
        &http.post("/api/v1/queues/q/take?wait=1m", ""),
        503,
        "too_many_waiting",
    );
    assert_eq!(http.get("/livez").status, 200);
    drop(waiting);
    wait_until("they are gone", || {
        ok(&http.get("/api/v1/status"))["connections"] == 0
    });
}

#[test]
fn half_requests_make_room_and_probes_have_places_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path())
        .set("[http]\nlisten = [\"127.0.0.1:0\"]\nconnections_max = 8")
        .start();
    let http = http(&daemon);
    let open = |request: &str| {
        let mut stream = TcpStream::connect(http.0).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let halves: Vec<_> = (0..20)
        .map(|_| open("GET / HTTP/1.1\r\nHost: localhost\r\nX: "))
        .collect();
    assert_eq!(
        (http.get("/livez").status, http.get("/api/v1/status").status),
        (200, 200)
    );
    common::wait_for_log(&daemon, "closed a connection: incomplete request");
    // Also connections that have had an answer.
    let idle = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut idle: Vec<_> = (0..8).map(|_| open(idle)).collect();
    idle.iter_mut()
        .for_each(|stream| stream.read_exact(&mut [0]).unwrap());
    let watch = "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut at_work: Vec<_> = (0..8).map(|_| open(watch)).collect();
    at_work
        .iter_mut()
        .for_each(|stream| stream.read_exact(&mut [0]).unwrap());
    drop((halves, idle));
    // All are at work.
    for _ in 0..10 {
        let full = http.get("/api/v1/status");
        refused(&full, 503, "too_many_connections");
        assert_eq!(
            (full.header("retry-after"), full.header("connection")),
            (Some("2"), Some("close"))
        );
        assert_eq!(
            (http.get("/livez").status, http.get("/readyz").status),
            (200, 200)
        );
    }
    common::wait_for_log(&daemon, "refused a request");
    let _halves: Vec<_> = (0..20).map(|_| open("GET /livez HTTP/1.1\r\n")).collect();
    assert_eq!(http.get("/livez").status, 200);
    at_work.pop();
    wait_until("there is a place", || {
        http.get("/api/v1/status").status == 200
    });
}

#[test]
fn a_request_has_one_host_and_one_end() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = http(&daemon);
    pushed(&http.post("/api/v1/queues/q/jobs", "x"));
    let table = [
        (
            "POST /api/v1/queues/q/clear HTTP/1.1\r\nContent-Length: 0\r\n",
            400,
        ),
        ("GET /livez HTTP/1.1\r\n", 400),
        (
            "POST /api/v1/queues/q/clear HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nContent-Length: 0\r\n",
            400,
        ),
        (
            "POST /api/v1/queues/q/clear HTTP/1.1\r\nHost: localhost:1@evil.example\r\nContent-Length: 0\r\n",
            400,
        ),
        (
            "POST http://evil.example/api/v1/queues/q/clear HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n",
            400,
        ),
        (
            "GET http://localhost/api/v1/status HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n",
            200,
        ),
        ("GET /api/v1/status HTTP/1.0\r\n", 200),
        (
            "POST /api/v1/queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, chunked\r\n",
            400,
        ),
    ];
    for (head, status) in table {
        assert_eq!(
            http.raw(format!("{head}\r\n").as_bytes()).status,
            status,
            "{head}"
        );
    }
    assert_eq!(
        ok(&http.get("/api/v1/queues/q"))["states"]["ready"],
        1,
        "nothing was cleared or pushed"
    );
}

#[test]
fn a_job_tells_why_it_does_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let throttles = "[queues.t]\nthrottle = { concurrency = 1 }\n";
    let daemon = common::daemon(dir.path()).set(throttles).start();
    let http = http(&daemon);
    let why = |id: u64| {
        let job = ok(&http.get(&format!("/api/v1/jobs/{id}")));
        (
            job["why"]["code"].as_str().unwrap().to_owned(),
            job["why"]["text"].as_str().unwrap().to_owned(),
        )
    };
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    let push = |queue: &str, terms: &str| {
        pushed(&http.post(&format!("/api/v1/queues/{queue}/jobs{terms}"), "x"))
    };

    let id = push("q", "");
    assert_eq!(why(id), ("unserved".into(), "no worker serves q".into()));
    gearman.can_do("q").unwrap();
    gearman.listing("status").unwrap();
    let text = "only workers of gearman serve q, and they do not see this job of http";
    assert_eq!(why(id), ("unserved".into(), text.into()));
    let row = ok(&http.post("/api/v1/queues/q/pause", ""));
    let since = row["paused_at"].as_str().unwrap();
    assert_eq!(
        why(id),
        (
            "paused".into(),
            format!("the queue q is paused since {since}")
        )
    );

    let (first, second) = (push("t", ""), push("t", ""));
    ok(&http.post("/api/v1/queues/t/take?worker=w7", ""));
    let (code, text) = why(first);
    assert!(
        code == "leased" && text.starts_with("the worker w7 has it, since 2"),
        "{text}"
    );
    let job = ok(&http.get(&format!("/api/v1/jobs/{second}")));
    assert_eq!(
        (&job["why"]["code"], &job["why"]["held_by"]),
        (&json!("throttled"), &json!([first]))
    );

    let throttles = ok(&http.get("/api/v1/throttles"))["throttles"].clone();
    let expected = json!({"queue": "t", "used": true, "ready": 1,
        "throttle": {"concurrency": 1, "per_worker": null, "timeout_ms": null, "held": 1}});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(throttles[0][key], *value, "{key}: {throttles}");
    }
    let holder = &throttles[0]["holders"][0];
    assert_eq!(
        (
            &holder["job"],
            &holder["worker"],
            throttles.as_array().unwrap().len()
        ),
        (&json!(first), &json!("w7"), 1)
    );

    let id = push("later", "?at=2999-01-01T00:00:00Z");
    assert_eq!(
        why(id),
        (
            "scheduled".into(),
            "it is due at 2999-01-01T00:00:00.000Z".into()
        )
    );
    let id = push("doomed", "?retries=-1");
    let lease = ok(&http.post("/api/v1/queues/doomed/take", ""))["lease"]
        .as_str()
        .unwrap()
        .to_owned();
    ok(&http.post(&format!("/api/v1/leases/{lease}/fail"), "no such file"));
    let (code, text) = why(id);
    assert!(
        code == "dead" && text.ends_with("after 1 failure, the last: no such file"),
        "{text}"
    );

    // A worker that has a job of its own protocol on its connection.
    gearman.submit("g", "", "x").unwrap();
    gearman.can_do("g").unwrap();
    gearman.grab().unwrap().unwrap();
    let job = ok(&http.get("/api/v1/jobs?queue=g"))["jobs"][0]["id"]
        .as_u64()
        .unwrap();
    let (code, text) = why(job);
    assert!(
        code == "leased" && text.contains("a client of gearman at 127.0.0.1"),
        "{text}"
    );
    // It has given a name, and its connection has a number.
    gearman
        .send_raw(b"\0REQ\0\0\0\x16\0\0\0\x07resizer")
        .unwrap();
    gearman.listing("status").unwrap();
    let lease = ok(&http.get(&format!("/api/v1/jobs/{job}")))["lease"].clone();
    assert_eq!(
        (&lease["worker"], &lease["connection_bound"]),
        (&json!("resizer"), &json!(true)),
        "{lease}"
    );
    let page = http.request(
        "GET",
        &format!("/jobs/{job}"),
        &[("Accept", "text/html")],
        b"",
    );
    assert!(
        page.text()
            .contains(&format!("connection {}</a>", lease["connection"])),
        "{page:?}"
    );
}

#[test]
fn pages_are_shown_below_the_path_of_a_proxy() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = http(&daemon);
    // A proxy removes its path, or leaves it in the request.
    for path in ["/jobs?state=dead", "/ops/jobs?state=dead"] {
        let page = http.request(
            "GET",
            path,
            &[("X-Script-Name", "/ops"), ("Accept", "text/html")],
            b"",
        );
        assert_eq!(page.status, 200, "{path}");
        assert!(
            page.text().contains("<a href=\"/ops/queues\">")
                && page.text().contains("No job matches."),
            "{path}"
        );
    }
    let pushed = http.request(
        "POST",
        "/ops/api/v1/queues/q/jobs",
        &[("X-Script-Name", "/ops")],
        b"x",
    );
    assert_eq!(pushed.status, 201, "{pushed:?}");
    refused(&http.get("/ops/jobs"), 404, "not_found");
}

#[test]
fn pages_are_shown_below_a_configured_path() {
    let dir = tempfile::tempdir().unwrap();
    let config = "[http]\nlisten = [\"127.0.0.1:0\"]\npath_prefix = \"/ops/queues/\"";
    let daemon = common::daemon(dir.path()).set(config).start();
    let http = http(&daemon);
    // A proxy removes the path, or leaves it in the request.
    for path in ["/", "/jobs?state=dead"]
        .iter()
        .flat_map(|path| [(*path).to_owned(), format!("/ops/queues{path}")])
    {
        let page = http.request("GET", &path, &[("Accept", "text/html")], b"");
        assert_eq!(page.status, 200, "{path}");
        assert!(
            page.text().contains("<a href=\"/ops/queues/queues\">"),
            "{path}"
        );
    }
    assert_eq!(
        http.post("/ops/queues/api/v1/queues/q/jobs", "x").status,
        201
    );
    assert_eq!(http.get("/ops/queues/livez").status, 200);
    let page = http.request(
        "GET",
        "/jobs",
        &[("X-Script-Name", "/elsewhere"), ("Accept", "text/html")],
        b"",
    );
    assert!(
        page.text().contains("<a href=\"/elsewhere/queues\">"),
        "the header has precedence"
    );
}

#[test]
fn workers_are_listed_and_asked_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = http(&daemon);
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let workers = || ok(&http.get("/api/v1/workers"))["workers"].clone();
    let expected = json!({"name": "wid-1", "protocol": "faktory", "state": "running", "host": "h", "pid": 1,
        "labels": [], "connections": 1, "jobs": 0});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(workers()[0][key], *value, "{key}");
    }
    assert_eq!(workers()[0]["memory_bytes"], Value::Null);
    assert_eq!(fwp.ask(r#"BEAT {"wid":"wid-1","rss_kb":2048}"#), "+OK");
    assert_eq!(fwp.ask(r#"BEAT {"wid":"wid-1"}"#), "+OK");
    assert_eq!(workers()[0]["memory_bytes"], 2 << 20, "the last figure");
    let page = http.get("/workers").text().to_owned();
    assert!(page.contains(">2 MiB</td>"), "{page}");
    assert_eq!(http.post("/api/v1/workers/wid-1/quiet", "").status, 204);
    assert_eq!(fwp.ask(r#"BEAT {"wid":"wid-1"}"#), r#"{"state":"quiet"}"#);
    assert_eq!(http.post("/api/v1/workers/stop", "").status, 204);
    assert_eq!(
        fwp.ask(r#"BEAT {"wid":"wid-1"}"#),
        r#"{"state":"terminate"}"#
    );
    refused(
        &http.post("/api/v1/workers/none/quiet", ""),
        404,
        "not_found",
    );
}

#[test]
fn metrics_show_queues_within_their_bound() {
    let dir = tempfile::tempdir().unwrap();
    let config = "[metrics]\nqueues_max = 3\n";
    let daemon = common::daemon(dir.path()).set(config).start();
    let http = http(&daemon);
    for _ in 0..3 {
        pushed(&http.post("/api/v1/queues/mails/jobs", "x"));
    }
    let lease = ok(&http.post("/api/v1/queues/mails/take", ""))["lease"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        http.post(&format!("/api/v1/leases/{lease}/done"), "")
            .status,
        204
    );
    ok(&http.post("/api/v1/queues/mails/pause", ""));
    let page = || {
        let answer = http.get("/metrics");
        assert_eq!(
            answer.header("content-type"),
            Some("text/plain; version=0.0.4; charset=utf-8")
        );
        answer.text().to_owned()
    };
    let text = page();
    for line in [
        "windlass_jobs{queue=\"mails\",state=\"ready\"} 2.0",
        "windlass_queue_paused{queue=\"mails\"} 1.0",
        "# TYPE windlass_jobs_pushed_total counter",
        "windlass_jobs_pushed_total{queue=\"mails\",protocol=\"http\"} 3",
        "windlass_jobs_succeeded_total{queue=\"mails\",protocol=\"http\"} 1",
        "windlass_job_wait_seconds_count{queue=\"mails\"} 1",
        "windlass_job_run_seconds_bucket{le=\"+Inf\",queue=\"mails\"} 1",
        "windlass_store_failed 0.0",
    ] {
        assert!(
            text.lines().any(|it| it == line),
            "{line} is missing:\n{text}"
        );
    }
    for n in 0..100 {
        pushed(&http.post(&format!("/api/v1/queues/q{n:03}/jobs"), "x"));
    }
    let queues = |text: &str| {
        let ready = text
            .lines()
            .filter(|line| line.starts_with("windlass_jobs{") && line.contains("state=\"ready\""));
        ready
            .map(|line| line.split('"').nth(1).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(queues(&page()).len(), 4, "three queues and the others");
    assert!(page().contains("windlass_jobs_pushed_total{queue=\"_other\",protocol=\"http\"} 99"));
    let open = http.request(
        "GET",
        "/metrics",
        &[("Accept", "application/openmetrics-text;version=1.0.0")],
        b"",
    );
    assert!(
        open.header("content-type")
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    assert!(
        open.text().ends_with("# EOF\n")
            && open.text().contains("# TYPE windlass_jobs_pushed counter")
    );
}

#[test]
fn metrics_show_what_connections_commits_and_the_store_do() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path())
        .set("[faktory]\npassword = \"right\"\n")
        .start();
    let http = http(&daemon);
    let value = |series: &str| http.metric(series);
    let of = |name: &str, labels: &str| value(&format!("windlass_{name}{{{labels}}}"));
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    assert!(
        of("commands_total", "protocol=\"gearman\"").abs() < 0.5,
        "a protocol has its series from the start"
    );
    for _ in 0..3 {
        peer.submit("mails", "", "x").unwrap();
    }
    let body = "x".repeat(10_000);
    pushed(&http.post("/api/v1/queues/mails/jobs", &body));
    refused(&http.get("/api/v1/jobs/999"), 404, "not_found");
    assert!(
        Fwp::hello(daemon.address("faktory"), "wrong")
            .1
            .contains("Invalid password")
    );
    drop(peer);
    wait_until("the connections' ends are counted", || {
        let ends = [
            "protocol=\"gearman\",reason=\"peer_closed\"",
            "protocol=\"faktory\",reason=\"wrong_password\"",
        ];
        ends.iter()
            .all(|labels| of("connections_closed_total", labels) > 0.5)
    });
    let at_least =
        |series: f64, least: f64| assert!(series >= least, "{series} instead of {least}");
    at_least(of("commands_total", "protocol=\"gearman\""), 3.0);
    at_least(of("commands_total", "protocol=\"http\""), 3.0);
    at_least(of("connections_opened_total", "protocol=\"gearman\""), 1.0);
    at_least(of("received_bytes_total", "protocol=\"http\""), 10_000.0);
    at_least(of("sent_bytes_total", "protocol=\"gearman\""), 3.0 * 12.0);
    at_least(
        of("refusals_total", "protocol=\"http\",reason=\"not_found\""),
        1.0,
    );
    at_least(of("auth_failures_total", "protocol=\"faktory\""), 1.0);
    at_least(value("windlass_commit_seconds_count"), 2.0);
    at_least(value("windlass_journal_bytes"), 10_000.0);
    at_least(value("windlass_disk_free_bytes"), 1.0);
    at_least(value("windlass_jobs_limit"), 1_000.0);
    at_least(value("windlass_buffers_limit_bytes"), 1_000_000.0);
}

/// Another daemon, or a Faktory, may have it.
#[test]
fn a_busy_default_address_does_not_keep_the_daemon_from_starting() {
    // If this fails, another program has the port, which is as good.
    let _taken = std::net::TcpListener::bind("127.0.0.1:7420");
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path())
        .set("[http]\nlisten = [\"localhost:7420\"]\n")
        .start();
    assert!(
        daemon.log_text().contains("default address in use"),
        "{}",
        daemon.log_text()
    );
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    assert!(peer.line("version").unwrap().starts_with("OK "));
}
