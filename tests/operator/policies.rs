//! Policies that operators set while the daemon serves, and keys that they pause, by the API and by commands.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_gearman::wire::{Report, Request};
use windlass_testkit::daemon::Daemon;

use crate::common::http::{Answer, Http};
use crate::common::{Peer, daemon, wait_until};

fn http(daemon: &Daemon) -> Http {
    Http(daemon.address("http"))
}

fn row(daemon: &Daemon, queue: &str) -> Value {
    http(daemon).get(&format!("/api/v1/queues/{queue}")).json()
}

fn put(daemon: &Daemon, queue: &str, policy: &Value) -> Answer {
    let (path, body) = (format!("/api/v1/queues/{queue}/policy"), policy.to_string());
    http(daemon).request("PUT", &path, &[], body.as_bytes())
}

/// The bodies that a Gearman worker gets until there is no job for it. Then it is gone, and its jobs are back.
fn grabbed(daemon: &Daemon, queue: &str) -> Vec<String> {
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.can_do(queue).unwrap();
    let next = || Some(String::from_utf8_lossy(&peer.grab().unwrap()?.workload).into_owned());
    let all = std::iter::from_fn(next).collect();
    drop(peer);
    wait_until("its jobs are back", || {
        row(daemon, queue)["states"]["leased"] == 0
    });
    all
}

fn submit(daemon: &Daemon, queue: &str, bodies: &[&'static str]) {
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    bodies
        .iter()
        .for_each(|body| drop(peer.submit(queue, "", *body).unwrap()));
}

#[test]
fn a_policy_set_while_jobs_wait_holds_over_restarts_and_reloads_until_its_section_changes() {
    let dir = tempfile::tempdir().unwrap();
    let configured = "server.return_grace = 0\n[queues.\"mail*\"]\nkey = { prefix = '|' }\nper_key = { running = 2 }\n";
    let mut daemon = daemon(dir.path()).set(configured).start();
    submit(&daemon, "mail", &["a|1", "a|2", "b|3"]);
    let by_header = json!({"key": {"header": "Tenant"}, "ordered": true});
    for (policy, reason) in [
        (json!({"ordered": true}), "ordered require key"),
        (
            json!({"codec": "json"}),
            "unknown key `codec`: there are `rate`, `key`, `per_key`, `fair`, `weights` and `ordered`",
        ),
        (
            json!({"rate": 5}),
            "rate: expected an object, not the number 5",
        ),
        (json!({"rate": {"jobs": 0, "per": "1s"}}), "more than 0"),
        (
            json!({"key": {"header": "x".repeat(65 << 10)}, "fair": true}),
            "at most 65536 bytes",
        ),
    ] {
        let answer = put(&daemon, "mail", &policy);
        assert!(
            answer.status == 400 && answer.text().contains(reason),
            "{policy}: {}",
            answer.text()
        );
    }
    // Another place for the key: all three jobs have none, and share the empty one.
    let set = put(&daemon, "mail", &by_header);
    assert_eq!(
        (set.status, &set.json()["policy"]["ordered"]),
        (200, &json!(true))
    );
    assert!(
        row(&daemon, "mail")["policy"]["in_words"]
            .as_str()
            .unwrap()
            .contains("set by ")
    );
    assert_eq!(grabbed(&daemon, "mail"), ["a|1"]);
    assert_eq!(
        put(&daemon, "new", &json!({"rate": {"jobs": 1, "per": "1h"}})).status,
        201
    );
    daemon.kill();
    daemon.restart();
    assert_eq!(grabbed(&daemon, "mail"), ["a|1"]);
    assert_eq!(row(&daemon, "new")["policy"]["rate"], "1 per 1h, burst 1");
    let file = dir.path().join("windlass.toml");
    let text = fs::read_to_string(&file).unwrap();
    let reload_with = |text: &str| -> Value {
        fs::write(&file, text).unwrap();
        http(&daemon).post("/api/v1/reload", "").json()
    };
    let nothing = json!({"applied": [], "needs_restart": [], "taken_back": []});
    assert_eq!(reload_with(&text), nothing, "a log is rotated, say");
    assert_eq!(row(&daemon, "mail")["policy"]["ordered"], true);
    let changed = reload_with(&text.replace("running = 2", "running = 3"));
    assert_eq!(changed["applied"], json!(["queues.mail*.per_key.running"]));
    let taken_back = changed["taken_back"].to_string();
    assert!(
        taken_back.contains("the policy of mail, set by ") && !taken_back.contains("new"),
        "{taken_back}"
    );
    assert_eq!(row(&daemon, "mail")["policy"]["running_max"], 3);
    assert_eq!(
        row(&daemon, "new")["policy"]["rate"],
        "1 per 1h, burst 1",
        "its section has not changed"
    );
    reload_with(&text);
    assert_eq!(row(&daemon, "mail")["policy"]["set_by"], Value::Null);
    assert_eq!(
        http(&daemon).delete("/api/v1/queues/new/policy").status,
        200
    );
    assert_eq!(
        http(&daemon).get("/api/v1/queues/new").status,
        404,
        "only the policy kept it"
    );
    submit(&daemon, "mail", &["c|4", "c|5"]);
    let got = grabbed(&daemon, "mail");
    assert!(
        got.ends_with(&["c|4".to_owned(), "c|5".to_owned()]),
        "two of a key at once: {got:?}"
    );
    // An empty one holds in place of what is configured.
    assert_eq!(
        put(&daemon, "mail", &json!({})).json()["policy"],
        Value::Null
    );
    assert_eq!(
        http(&daemon).delete("/api/v1/queues/mail/policy").json()["policy"]["running_max"],
        2
    );
    assert_eq!(
        http(&daemon).delete("/api/v1/queues/none/policy").status,
        404
    );
}

/// What falls due while no daemon is there happens by the policies and the rules that hold, also by those of a pattern.
#[test]
fn an_ordered_key_keeps_its_order_over_a_stop_that_outlasts_a_retry() {
    let dir = tempfile::tempdir().unwrap();
    let configured = "[queues.\"m*\"]\nkey = { prefix = '|' }\nordered = true\nretry = { count = 3, backoff = '1s' }\n";
    let mut daemon = daemon(dir.path()).set(configured).start();
    submit(&daemon, "mail", &["a|1", "a|2", "a|3"]);
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.can_do("mail").unwrap();
    let first = peer.grab().unwrap().unwrap();
    assert_eq!(first.workload, "a|1");
    peer.send(&Request::Work {
        handle: first.handle,
        report: Report::Fail,
    })
    .unwrap();
    wait_until("it waits for its retry", || {
        row(&daemon, "mail")["states"]["retrying"] == 1
    });
    daemon.signal("TERM");
    daemon.wait();
    // The pause is over before the daemon is there again.
    std::thread::sleep(Duration::from_millis(1_100));
    daemon.restart();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.can_do("mail").unwrap();
    for body in ["a|1", "a|2", "a|3"] {
        let job = peer.grab().unwrap().unwrap();
        assert_eq!(job.workload, body);
        peer.complete(&job.handle).unwrap();
    }
}

#[test]
fn a_key_is_paused_over_a_restart_resumed_cleared_and_retried() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path())
        .set("[queues.q]\nkey = { prefix = '|' }\nfair = true\n")
        .start();
    submit(&daemon, "q", &["a|1", "a|2", "b|3", "x"]);
    let post = |daemon: &Daemon, path: &str| http(daemon).post(&format!("/api/v1/{path}"), "");
    assert_eq!(
        post(&daemon, "queues/q/pause?key=a").json()["policy"]["keys_paused"],
        1
    );
    assert_eq!(
        post(&daemon, "queues/other/pause?key=a").status,
        409,
        "it has no keys"
    );
    daemon.kill();
    daemon.restart();
    assert_eq!(http(&daemon).post("/api/v1/reload", "").status, 200);
    let keys = http(&daemon).get("/api/v1/queues/q/keys").json();
    assert_eq!(
        keys["keys"][0],
        json!({"key": "a", "waiting": 2, "running": 0, "paused": true, "weight": 1})
    );
    assert_eq!(
        http(&daemon).get("/api/v1/jobs/1").json()["why"]["text"],
        "the key a is paused in q"
    );
    assert_eq!(
        http(&daemon)
            .get("/api/v1/jobs?queue=q&policy_key=a")
            .json()["jobs"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let mut got = grabbed(&daemon, "q");
    got.sort();
    assert_eq!(got, ["b|3", "x"]);
    assert_eq!(post(&daemon, "queues/q/clear?key=").json()["changed"], 1);
    assert_eq!(
        post(&daemon, "jobs/kill?queue=q&policy_key=a&limit=1").json()["changed"],
        1
    );
    assert_eq!(
        post(&daemon, "jobs/retry?queue=q&policy_key=b&state=dead").json()["changed"],
        0
    );
    assert_eq!(
        post(&daemon, "jobs/retry?queue=q&policy_key=a&state=dead").json()["changed"],
        1
    );
    assert_eq!(
        post(&daemon, "queues/q/resume?key=a").json()["policy"]["keys_paused"],
        0
    );
    let mut got = grabbed(&daemon, "q");
    got.sort();
    assert_eq!(got, ["a|1", "a|2", "b|3"]);
}

#[test]
fn commands_set_a_policy_and_pause_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let operate = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        let output = command
            .args(arguments)
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let (is_set, row) = operate(&[
        "policy",
        "mail",
        r#"{"key": {"prefix": "|"}, "fair": true}"#,
    ]);
    assert!(is_set && row.contains("policy: keys take turns"), "{row}");
    submit(&daemon, "mail", &["a|1", "b|2"]);
    assert!(operate(&["pause", "mail", "--key", "a"]).0);
    let (_, keys) = operate(&["keys", "mail"]);
    assert!(
        keys.contains("\"a\": 1 waiting, 0 running, paused"),
        "{keys}"
    );
    assert_eq!(
        operate(&["clear", "mail", "--key", "b", "--yes"]).1,
        "1 job removed\n"
    );
    assert!(operate(&["resume", "mail", "--key", "a"]).0);
    assert!(operate(&["policy", "mail", "--off"]).0);
    assert!(
        !operate(&["pause", "mail", "--key", "a"]).0,
        "no jobs by key"
    );
}

#[test]
fn what_is_set_is_printed_as_it_can_be_given_back_and_fills_the_form() {
    let dir = tempfile::tempdir().unwrap();
    let configured = "[queues.\"mail*\"]\nrate = { jobs = 20, per = '1m' }\nkey = { args = '/0/tenant' }\nfair = true\n\
                      weights = { gold = 3 }\n";
    let daemon = daemon(dir.path()).set(configured).start();
    let operate = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        let output = command
            .args(arguments)
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.success(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    submit(&daemon, "mail", &["x"]);
    submit(&daemon, "plain", &["x"]);
    let (_, printed, origin) = operate(&["policy", "mail"]);
    let expected = json!({"rate": {"jobs": 20, "per": "1m"}, "key": {"args": "/0/tenant"}, "fair": true, "weights": {"gold": 3}});
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), expected);
    assert!(
        origin.contains("from the section [queues.\"mail*\"] of the configuration, "),
        "{origin}"
    );
    let (file, line) = origin
        .trim_end()
        .trim_end_matches(':')
        .rsplit_once(", ")
        .unwrap()
        .1
        .rsplit_once(':')
        .unwrap();
    let lines = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{origin}: {error}"));
    assert_eq!(
        lines.lines().nth(line.parse::<usize>().unwrap() - 1),
        Some("[queues.\"mail*\"]")
    );
    assert!(
        operate(&["policy", "other", &printed]).0,
        "it is given back"
    );
    let (_, again, origin) = operate(&["policy", "other"]);
    assert_eq!(
        (again, origin.contains("set by ")),
        (printed, true),
        "{origin}"
    );
    assert_eq!(operate(&["policy", "plain"]).1, "{}\n");
    let page = http(&daemon)
        .request(
            "GET",
            "/queues/mail/settings",
            &[("Accept", "text/html")],
            b"",
        )
        .text()
        .to_owned();
    for field in [
        r#"name="rate.jobs" type="number" min="1" value="20""#,
        r#"name="rate.per" value="1m""#,
        r#"<option value="args" selected>"#,
        r#"name="place" value="/0/tenant""#,
        r#"name="fair" type="checkbox" checked"#,
        "gold = 3",
    ] {
        assert!(page.contains(field), "{field}: {page}");
    }

    assert_eq!(operate(&["throttle", "mail"]).1, "mail has no throttle\n");
    assert!(operate(&["throttle", "mail", "--concurrency", "8", "--timeout", "1h"]).0);
    assert_eq!(
        operate(&["throttle", "mail"]).1,
        "{\"concurrency\":8,\"timeout\":\"1h\"}\n"
    );
    assert_eq!(operate(&["limit", "mail"]).1, "mail has no limit\n");
    assert!(operate(&["limit", "mail", "--jobs", "50"]).0);
    assert_eq!(operate(&["limit", "mail"]).1, "{\"jobs\":50}\n");

    let (is_done, _, why) = operate(&["keys", "plain"]);
    assert!(!is_done && why.contains("plain has no policy"), "{why}");
    let (is_done, _, why) = operate(&["policy", "m*", "{}"]);
    assert!(!is_done && why.contains("m* is a pattern"), "{why}");
}

/// The small one is next, and what the list and `why` say of the others is what happens.
#[test]
fn the_next_jobs_are_those_that_start_next() {
    let dir = tempfile::tempdir().unwrap();
    let configured = "[queues.mail]\nkey = { prefix = '|' }\nfair = true\n\
                      [queues.slow]\nrate = { jobs = 20, per = '1m', burst = 1 }\n\
                      [queues.one]\nkey = { prefix = '|' }\nper_key = { running = 1 }\n";
    let daemon = daemon(dir.path()).set(configured).start();
    let http = http(&daemon);
    let next = |queue: &str| -> Vec<String> {
        let page: Value = http
            .get(&format!(
                "/api/v1/jobs?queue={queue}&state=ready&order=next&limit=20"
            ))
            .json();
        page["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["id"].to_string())
            .collect()
    };
    let why =
        |job: u64| -> Value { http.get(&format!("/api/v1/jobs/{job}")).json()["why"].clone() };
    let serves = |queue: &str| {
        let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
        peer.can_do(queue).unwrap();
        assert!(peer.line("version").unwrap().starts_with("OK "));
        peer
    };
    let mut mail = serves("mail");
    submit(&daemon, "mail", &["big|1", "big|2", "big|3", "small|4"]);
    assert_eq!(next("mail"), ["1", "4", "2", "3"]);
    assert!(
        why(4)["text"]
            .as_str()
            .unwrap()
            .starts_with("1 job of mail is before it by the policy"),
        "{}",
        why(4)
    );
    let taken: Vec<_> = (0..2)
        .map(|_| mail.grab().unwrap().unwrap().workload)
        .collect();
    assert_eq!(taken, ["big|1", "small|4"].map(bytes::Bytes::from));

    let _slow = serves("slow");
    submit(&daemon, "slow", &["x"; 12]);
    let told = why(16);
    assert_eq!(
        (&told["code"], &told["before"]),
        (&json!("held"), &json!(11))
    );
    let text = told["text"].as_str().unwrap();
    assert!(
        text.starts_with(
            "11 jobs of slow are before it; the rate of slow lets it start in about 3"
        ),
        "{text}"
    );

    let mut one = serves("one");
    submit(&daemon, "one", &["a|1", "a|2", "a|3", "b|4"]);
    assert_eq!(next("one"), ["17", "20"]);
    assert_eq!(one.grab().unwrap().unwrap().workload, "a|1");
    let told = why(19);
    assert_eq!(told["held_by"], json!([17]));
    let text = told["text"].as_str().unwrap();
    assert_eq!(
        text,
        "1 job running or to be retried holds the key a in one; 1 job of its key is before it"
    );
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_figures_that_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let rules =
        "[queues.q]\nrate = { jobs = 9, per = '1s' }\nkey = { prefix = '|' }\nfair = true\n";
    let daemon = daemon(dir.path()).set(rules).start();
    submit(&daemon, "q", &["a|1"]);
    let page = http(&daemon).get("/metrics");
    let metrics = page.text();
    let texts = [
        include_str!("../../config/grafana.json"),
        include_str!("../../config/alerts.yml"),
    ]
    .concat();
    let is_name = |it: char| it.is_ascii_lowercase() || it == '_' || it.is_ascii_digit();
    let names = texts
        .split(|it| !is_name(it))
        .filter(|name| name.starts_with("windlass_"));
    // Only clusters and certificates have these.
    let names: Vec<&str> = names
        .filter(|name| !name.contains("_cluster_") && !name.contains("_certificate_"))
        .collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        let family = name.strip_suffix("_bucket").unwrap_or(name);
        assert!(
            metrics.contains(&format!("# HELP {family} ")),
            "{name}: {metrics}"
        );
    }
}
