//! Changes of many jobs by filter, over HTTP and by command.

use std::fmt::Write as _;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_testkit::daemon::Daemon;

use crate::common;
use crate::common::Peer;
use crate::common::faktory::Fwp;
use crate::common::http::{Answer, Http};

fn http(daemon: &Daemon) -> Http {
    Http(daemon.address("http"))
}

#[track_caller]
fn ok(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Requests a change until all matching jobs were seen.
#[track_caller]
fn changed(http: Http, change: &str) -> u64 {
    let (mut all, mut cursor) = (0, String::new());
    loop {
        let answer = ok(&http.post(&format!("/api/v1/jobs/{change}{cursor}"), ""));
        all += answer["changed"].as_u64().unwrap();
        let Some(next) = answer["next"].as_str() else {
            return all;
        };
        cursor = format!("&cursor={next}");
    }
}

/// Pushes jobs of this type, each with its number as argument.
fn push_many(fwp: &mut Fwp, kind: &str, numbers: std::ops::Range<u32>) {
    for first in numbers.clone().step_by(1_000) {
        let mut jobs = String::new();
        for number in first..numbers.end.min(first + 1_000) {
            let comma = if number == first { "" } else { "," };
            write!(
                jobs,
                r#"{comma}{{"jid":"{kind}-{number:08}","jobtype":"{kind}","queue":"q","args":["<{number}>"]}}"#
            )
            .unwrap();
        }
        assert_eq!(fwp.ask(&format!("PUSHB [{jobs}]")), "{}");
    }
}

fn states(http: Http) -> Value {
    ok(&http.get("/api/v1/queues/q"))["states"].take()
}

#[test]
fn a_hundred_thousand_dead_jobs_are_retried_by_filter() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let (http, mut fwp) = (http(&daemon), Fwp::connect(daemon.address("faktory")));
    push_many(&mut fwp, "Mail", 0..100_000);
    push_many(&mut fwp, "Report", 0..20_000);
    assert_eq!(changed(http, "kill?queue=q"), 120_000);

    let filter = "queue=q&state=dead&kind=Mail";
    assert_eq!(
        changed(http, &format!("retry?{filter}&dry_run=true")),
        100_000
    );
    // A slow machine finds fewer within the second.
    let counted = ok(&http.get(&format!("/api/v1/jobs/count?{filter}")));
    let (jobs, is_complete) = (
        counted["jobs"].as_u64().unwrap(),
        counted["is_complete"].as_bool().unwrap(),
    );
    assert!(
        jobs == 100_000 && is_complete || jobs <= 100_000 && !is_complete,
        "{counted}"
    );
    let counted = ok(&http.get("/api/v1/jobs/count?state=dead&ids=1,2,3"));
    assert_eq!(counted, json!({"jobs": 3, "is_complete": true}));
    assert_eq!(states(http)["dead"], 120_000, "a dry run changes nothing");
    // Other clients are served meanwhile.
    let waited = std::thread::spawn(move || {
        let mut longest = Duration::ZERO;
        for _ in 0..50 {
            let begun = Instant::now();
            fwp.ask("INFO");
            longest = longest.max(begun.elapsed());
        }
        longest
    });
    assert_eq!(changed(http, &format!("retry?{filter}")), 100_000);
    assert!(waited.join().unwrap() < Duration::from_secs(1));
    let states = states(http);
    assert_eq!(
        (&states["ready"], &states["dead"]),
        (&json!(100_000), &json!(20_000))
    );
    assert_eq!(changed(http, &format!("retry?{filter}")), 0, "done is done");
}

#[test]
fn every_condition_narrows_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let (http, mut fwp) = (http(&daemon), Fwp::connect(daemon.address("faktory")));
    push_many(&mut fwp, "Mail", 0..30);
    push_many(&mut fwp, "Report", 0..10);
    assert_eq!(
        http.post(
            "/api/v1/queues/other/jobs?retries=-1&name=n",
            "<5> in bytes \u{1}"
        )
        .status,
        201
    );
    let lease = ok(&http.post("/api/v1/queues/other/take", ""))["lease"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        http.post(
            &format!("/api/v1/leases/{lease}/fail?kind=Timeout"),
            "no answer of <7>"
        )
        .status,
        200
    );

    let would =
        |action: &str, filter: &str| changed(http, &format!("{action}?{filter}&dry_run=true"));
    let table = [
        ("kill", "all=true", 40),
        ("retry", "all=true", 1),
        ("delete", "all=true", 41),
        ("cancel", "all=true", 41),
        ("requeue", "all=true", 0),
        ("kill", "queue=q", 40),
        ("kill", "kind=Mail", 30),
        ("kill", "protocol=faktory&kind=Report", 10),
        ("delete", "text=%3C5%3E", 3),
        ("delete", "text=%3C5%3E&queue=q", 2),
        ("delete", "text=%01", 1),
        ("delete", "error=%3C7%3E", 1),
        ("retry", "error=Timeout", 1),
        ("delete", "error=%3C8%3E", 0),
        ("delete", "name=n", 1),
        ("delete", "ids=1,2,3,1,999", 3),
        ("delete", "ids=1,2,3&kind=Report", 0),
        ("delete", "ids=1&name=n", 0),
        ("delete", "older_than=1h", 0),
        ("delete", "newer_than=1h", 41),
    ];
    for (action, filter, count) in table {
        assert_eq!(would(action, filter), count, "{action} {filter}");
    }
    let listed = |filter: &str| {
        ok(&http.get(&format!("/api/v1/jobs?{filter}")))["jobs"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(
        (
            listed("text=%3C5%3E"),
            listed("error=Timeout"),
            listed("ids=1,2")
        ),
        (3, 1, 2)
    );

    let step = ok(&http.post("/api/v1/jobs/kill?kind=Mail&limit=20", ""));
    assert_eq!(step["changed"], 20);
    let cursor = step["next"].as_str().unwrap();
    assert_eq!(
        changed(http, &format!("kill?kind=Mail&limit=20&cursor={cursor}")),
        10
    );

    for wrong in [
        "",
        "dry_run=true",
        "queues=q",
        "ids=",
        "ids=1,x",
        "all=true&limit=0",
        "state=gone",
        "cursor=x&all=true",
    ] {
        let answer = http.post(&format!("/api/v1/jobs/delete?{wrong}"), "");
        assert_eq!(
            (answer.status, answer.json()["code"].as_str()),
            (400, Some("bad_request")),
            "{wrong}"
        );
    }
    assert_eq!(ok(&http.get("/api/v1/status"))["jobs"], 41);
}

#[test]
fn jobs_that_workers_have_are_taken_back_or_cancelled_but_not_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let (http, mut peer) = (
        http(&daemon),
        Peer::connect(daemon.address("gearman")).unwrap(),
    );
    peer.can_do("f").unwrap();
    for _ in 0..3 {
        peer.submit("f", "", "x").unwrap();
        peer.grab().unwrap().unwrap();
    }
    assert_eq!(changed(http, "delete?queue=f"), 0);
    assert_eq!(http.delete("/api/v1/jobs/1").status, 409);
    assert_eq!(http.post("/api/v1/jobs/1/cancel", "").status, 204);
    assert_eq!(http.post("/api/v1/jobs/1/cancel", "").status, 404);
    assert_eq!(changed(http, "requeue?ids=2"), 1);
    assert_eq!(changed(http, "cancel?state=leased"), 1);
    assert!(peer.grab().unwrap().is_some(), "one was taken back");
    assert!(peer.grab().unwrap().is_none(), "the others are gone");
}

#[test]
fn a_queue_is_throttled_and_limited() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path())
        .set("[queues.unused]\nthrottle = { concurrency = 2 }\n")
        .start();
    let http = http(&daemon);
    assert_eq!(
        ok(&http.get("/api/v1/queues/unused"))["throttle"]["concurrency"],
        2
    );
    assert_eq!(
        ok(&http.delete("/api/v1/queues/unused/throttle"))["throttle"],
        Value::Null
    );
    assert_eq!(http.get("/api/v1/queues/unused").status, 404);
    let put = |path: &str| http.request("PUT", &format!("/api/v1/queues/{path}"), &[], b"");
    for _ in 0..2 {
        assert_eq!(http.post("/api/v1/queues/q/jobs", "x").status, 201);
    }
    let row = ok(&put("q/throttle?concurrency=1&per_worker=1&timeout=1h"));
    assert_eq!(
        row["throttle"],
        json!({"concurrency": 1, "per_worker": 1, "timeout_ms": 3_600_000, "held": 0})
    );
    ok(&http.post("/api/v1/queues/q/take", ""));
    assert_eq!(
        http.post("/api/v1/queues/q/take", "").status,
        204,
        "throttled"
    );
    assert_eq!(
        ok(&http.delete("/api/v1/queues/q/throttle"))["throttle"],
        Value::Null
    );
    ok(&http.post("/api/v1/queues/q/take", ""));

    assert_eq!(ok(&put("q/limit?jobs=2"))["jobs_max"]["5"], 2);
    assert_eq!(http.post("/api/v1/queues/q/jobs", "x").status, 429);
    assert_eq!(
        ok(&http.delete("/api/v1/queues/q/limit"))["jobs_max"],
        json!({})
    );
    assert_eq!(http.post("/api/v1/queues/q/jobs", "x").status, 201);
    for wrong in [
        "q/throttle",
        "q/throttle?concurrency=0",
        "q/throttle?timeout=1h",
        "q/limit",
        "q/limit?jobs=-1",
    ] {
        assert_eq!(put(wrong).status, 400, "{wrong}");
    }
}

#[test]
fn the_keys_of_a_queue_and_what_holds_a_job_back_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let policy =
        "[queues.\"q*\"]\nkey = { prefix = '|' }\nper_key = { running = 1, waiting_max = 2 }\n";
    let daemon = common::daemon(dir.path()).set(policy).start();
    let http = http(&daemon);
    let push = |body: &str| http.post("/api/v1/queues/q1/jobs", body).status;
    assert_eq!(["a|1", "a|2", "b|3", "4"].map(push), [201; 4]);
    let full = http.post("/api/v1/queues/q1/jobs", "a|5");
    assert_eq!(full.status, 429, "two of the key wait");
    assert_eq!(
        full.json()["detail"],
        "the key a of q1 is full: jobs 2, limit 2 (per_key.waiting_max)"
    );
    let taken = || http.post("/api/v1/queues/q1/take", "");
    let (first, second) = (ok(&taken()), ok(&taken()));
    assert_eq!(
        (&first["body"], &second["body"]),
        (&json!("a|1"), &json!("b|3"))
    );
    let why = &ok(&http.get("/api/v1/jobs/2"))["why"];
    assert_eq!(
        (&why["code"], &why["text"]),
        (
            &json!("held"),
            &json!("1 job running or to be retried holds the key a in q1")
        )
    );
    let keys = ok(&http.get("/api/v1/queues/q1/keys"));
    assert_eq!(
        (&keys["count"], &keys["running_max"], &keys["waiting_max"]),
        (&json!(3), &json!(1), &json!(2))
    );
    let row = |row: &Value| ["key", "waiting", "running"].map(|it| row[it].clone());
    let rows: Vec<_> = keys["keys"].as_array().unwrap().iter().map(row).collect();
    let expected = [("", 1, 0), ("a", 1, 1), ("b", 0, 1)]
        .map(|(key, waiting, running)| [json!(key), json!(waiting), json!(running)]);
    assert_eq!(rows, expected);
    assert_eq!(http.get("/api/v1/queues/none/keys").status, 404);
}

#[test]
fn a_queue_is_paused_throttled_and_limited_before_its_first_job() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "[queues.ruled]\nretry = { count = 3 }\n";
    let mut daemon = common::daemon(dir.path()).set(rules).start();
    let ask = |http: Http, method: &str, path: &str| {
        http.request(method, &format!("/api/v1/queues/{path}"), &[], b"x")
            .status
    };
    for (method, path, status) in [
        ("POST", "paused/pause", 201),
        ("POST", "paused/pause", 200),
        ("POST", "ruled/pause", 200),
        ("PUT", "throttled/throttle?concurrency=1", 201),
        ("PUT", "limited/limit?jobs=1", 201),
        ("POST", "nothing/resume", 404),
        ("DELETE", "nothing/limit", 404),
        ("DELETE", "nothing/throttle", 404),
        ("DELETE", "nothing", 404),
    ] {
        assert_eq!(ask(http(&daemon), method, path), status, "{method} {path}");
    }
    // A throttle holds until the configuration is read again.
    let throttled = ["jobs", "jobs", "take", "take"]
        .map(|what| ask(http(&daemon), "POST", &format!("throttled/{what}")));
    assert_eq!(throttled, [201, 201, 200, 204]);
    daemon.kill();
    daemon.restart();
    let http = http(&daemon);
    let push = |queue: &str| ask(http, "POST", &format!("{queue}/jobs"));
    let take = |queue: &str| ask(http, "POST", &format!("{queue}/take"));
    for queue in ["paused", "ruled"] {
        assert_eq!((push(queue), take(queue)), (201, 204), "{queue}");
    }
    assert_eq!((push("limited"), push("limited")), (201, 429));

    // A mistake in a name is taken back.
    let remove = |queue: &str| http.delete(&format!("/api/v1/queues/{queue}")).status;
    assert_eq!(remove("paused"), 409, "it has a job");
    assert_eq!(
        ok(&http.post("/api/v1/queues/paused/clear", ""))["changed"],
        1
    );
    assert_eq!(
        (remove("paused"), http.get("/api/v1/queues/paused").status),
        (204, 404)
    );
    assert_eq!(
        (push("paused"), take("paused")),
        (201, 200),
        "the pause is gone, too"
    );
}

fn windlass(daemon: &Daemon, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let url = format!("http://{}", daemon.address("http"));
    command
        .args(line.split(' '))
        .args(["--url", &url])
        .env_clear()
        .output()
        .unwrap()
}

#[test]
fn commands_change_many_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    push_many(&mut fwp, "Mail", 0..1_200);
    let says = |line: &str| {
        let output = windlass(&daemon, line);
        assert!(
            output.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(
        says("kill --queue q --dry-run"),
        "1,200 jobs would change\n"
    );
    assert_eq!(says("kill --queue q --text <7>"), "1 job changed\n");
    assert_eq!(
        says("kill --queue q --limit 199 --json"),
        "{\"changed\":199,\"dry_run\":false}\n"
    );
    assert_eq!(says("retry --state dead --kind Mail"), "200 jobs changed\n");
    assert_eq!(
        says("delete --queue q --dry-run"),
        "1,200 jobs would change\n"
    );
    assert!(says("jobs --text <7> --json").contains("Mail-00000007"));
    for line in ["retry", "delete --yes", "delete --queue q"] {
        let output = windlass(&daemon, line);
        assert_eq!(
            (output.status.code(), &*output.stdout),
            (Some(1), &b""[..]),
            "{line}"
        );
    }
    let ids: Vec<String> = (1..=600).map(|id| id.to_string()).collect();
    assert_eq!(
        says(&format!("cancel {} --yes --limit 550", ids.join(" "))),
        "550 jobs changed\n"
    );
    assert_eq!(says("delete --all --yes"), "650 jobs changed\n");
    assert!(says("throttle q --concurrency 3").contains("throttled"));
    assert!(!says("throttle q --off").contains("throttled"));
    says("limit q --jobs 5");
}
