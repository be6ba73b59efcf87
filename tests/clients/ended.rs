//! The history's row of each way in which a job can end, in each protocol: stock clients push and end the jobs
//! (`ended_peer.py`), and this file compares the rows of `GET /api/v1/ended` with what the clients know.
//!
//! A missing client is a failure, never a skip.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use windlass_testkit::daemon::{Daemon, Plan};

use crate::client::{python, run};
use crate::common::daemon;
use crate::common::ended::{rows, wait_for_rows};
use crate::common::http::Http;

/// Keeps everything, and has a rule for each way in which a queue can end a job.
const SETTINGS: &str = r#"
limits.losses_max = 2
[history]
keep = "7d"

[queues."gear-*"]
history = { body = "8B", result = "1KiB", output = "6B" }

[queues."emq-*"]
history = { body = "8B", result = "1KiB" }

[queues.spiderq]
history = { body = "8B" }

[queues."fwp-*"]
history = { result = "1KiB" }

[queues."*-again"]
history = { body = "1KiB" }

[queues.fwp-done]
history = { body = "1KiB", result = "1KiB" }

[queues.fwp-expired]
ttl = "20ms"

[queues.emq-expired]
ttl = "20ms"

[queues.emq-lost]
history = { result = "1KiB" }

[queues.gear-expired]
ttl = "20ms"
history = { body = "1KiB" }

[queues.gear-dead]
retry = { count = 1, backoff = "0s" }

[queues.gear-failed]
retry = { count = 0 }

[queues.emq-failed]
failure_values = ["*no luck*"]

[queues.emq-dead]
failure_values = ["*no luck*"]

[queues.bridged]
bridge = true
codec = "text"

[queues.coalesced]
coalesce = { by = "unique", quiet = "20ms", at_most = "1h" }

[queues.once]
dedup = { window = "1h" }

[queues.not-kept]
history = { keep = "0s", body = "1KiB" }

[faktory]
listen = ["127.0.0.1:0"]
reserve_min = "1s"

[[faktory.cron]]
schedule = "@yearly"
job = { type = "Type", queue = "scheduled", retry = 0 }
"#;

/// No job of a queue without workers goes to other workers.
const EVENTMQ: &str = "fallback = \"\"";

fn plan(dir: &tempfile::TempDir) -> Plan {
    daemon(dir.path()).set(SETTINGS).eventmq(EVENTMQ)
}

/// Plays a scene, and returns what its clients know of each case.
fn play(daemon: &Daemon, scene: &str) -> BTreeMap<String, Map<String, Value>> {
    let mut peer = python("interop/ended_peer.py");
    peer.args([scene, &daemon.address("http").to_string()]);
    for protocol in ["faktory", "gearman", "eventmq", "spiderq"] {
        peer.arg(format!("{protocol}={}", daemon.address(protocol)));
    }
    let (well, said) = run(&mut peer);
    assert!(well, "{said}\n{}", daemon.log_text());
    let case = |line: &str| {
        let mut facts: Map<String, Value> = serde_json::from_str(line).unwrap();
        (
            facts.remove("case").unwrap().as_str().unwrap().to_owned(),
            facts,
        )
    };
    said.lines().map(case).collect()
}

/// What is known of a case, and what its rows must be.
struct Case<'a> {
    http: Http,
    protocol: &'a str,
    queue: &'a str,
    facts: &'a Map<String, Value>,
}

impl Case<'_> {
    /// Expects these rows of the case's job, the oldest first, and no others. Of each, only the fields are given that differ
    /// from those of other rows. Returns what differs.
    fn differences(&self, wanted: &Value) -> Vec<String> {
        let wanted = wanted.as_array().unwrap();
        let job = &self.facts["job"];
        let found = wait_for_rows(self.http, &format!("job={job}"), wanted.len());
        let pairs = found.iter().zip(wanted);
        let differences = pairs.flat_map(|(row, parts)| {
            check_times(row);
            let (row, wanted) = (comparable(row), self.whole(parts));
            let fields = [&row, &wanted].map(|it| it.as_object().unwrap().keys().cloned());
            let fields: BTreeSet<String> = fields.into_iter().flatten().collect();
            let differ = fields
                .into_iter()
                .filter(|field| row[field] != wanted[field]);
            let tell = |field: String| {
                format!(
                    "{field} of {} is {}, not {}",
                    self.queue, row[&field], wanted[&field]
                )
            };
            differ.map(tell).collect::<Vec<_>>()
        });
        differences.collect()
    }

    fn whole(&self, parts: &Value) -> Value {
        let mut row = json!({
            "outcome": "done", "queue": self.queue, "kind": null, "protocol": self.protocol, "name": null, "unique": null,
            "key": null, "due_at": null, "producer": HERE, "worker": null, "worker_address": null,
            "worker_protocol": null, "attempts": 0, "failures": 0, "submits": 1, "batch": null, "schedule": null,
            "failure": null,
        });
        if self.facts.contains_key("worker") {
            row["worker_protocol"] = json!(self.protocol);
            row["attempts"] = json!(1);
        }
        for (field, value) in self.facts.iter().chain(parts.as_object().unwrap()) {
            row[field] = value.clone();
        }
        row
    }
}

/// The address of every client.
const HERE: &str = "127.0.0.1";

/// A row without its place and its times, and with attempts and excerpts as short texts.
fn comparable(row: &Value) -> Value {
    let mut row = row.clone();
    let fields = row.as_object_mut().unwrap();
    for field in [
        "id",
        "pushed_at",
        "ready_at",
        "started_at",
        "ended_at",
        "waited_ms",
        "ran_ms",
    ] {
        assert!(fields.remove(field).is_some(), "{field} is missing");
    }
    if let Some(attempts) = fields.get_mut("history") {
        let all = attempts.as_array().unwrap().iter().map(attempt);
        *attempts = all.collect();
    }
    for field in ["body", "result", "output"] {
        if let Some(kept) = fields.get_mut(field) {
            *kept = excerpt(kept);
        }
    }
    row
}

/// An attempt as `1 failed worker ValueError: no luck`.
fn attempt(attempt: &Value) -> Value {
    let of = |field: &str| attempt[field].as_str().unwrap_or("-").to_owned();
    json!(format!(
        "{} {} {} {}: {}",
        attempt["number"],
        of("end"),
        of("worker"),
        of("kind"),
        of("message")
    ))
}

/// What was kept of some bytes: all of them, or the first ones and the number of all. Of a work unit: its arguments.
fn excerpt(kept: &Value) -> Value {
    let text = kept["text"].as_str().unwrap();
    // A work unit of FWP has the time of its push, whose length varies.
    if let Ok(unit) = serde_json::from_str::<Value>(text)
        && unit["args"].is_array()
    {
        return unit["args"].clone();
    }
    if kept["is_complete"] == true {
        json!(text)
    } else {
        json!(format!("{text}… of {}", kept["bytes"]))
    }
}

/// A job is pushed before it is ready, and so on. Times of RFC 3339 in UTC with equal digits are in the order of their texts.
fn check_times(row: &Value) {
    let fields = ["pushed_at", "ready_at", "started_at", "ended_at"];
    let times: Vec<&str> = fields
        .into_iter()
        .filter_map(|field| row[field].as_str())
        .collect();
    assert!(times.is_sorted(), "times out of order: {row}");
    let is_known = |field: &str| row[field].is_string();
    assert!(
        is_known("pushed_at") && is_known("ready_at") && is_known("ended_at"),
        "{row}"
    );
    for lasted in ["waited_ms", "ran_ms"] {
        assert_eq!(
            row[lasted].is_u64(),
            is_known("started_at"),
            "{lasted} of {row}"
        );
    }
}

/// Plays the scene of a protocol and compares the rows of each case. A queue has the name of its case, but for spiderq.
fn check(scene: &str, table: &[(&str, &str, Value)]) {
    let dir = tempfile::tempdir().unwrap();
    let daemon = plan(&dir).start();
    let known = play(&daemon, scene);
    let http = Http(daemon.address("http"));
    let mut differences = Vec::new();
    for (protocol, name, wanted) in table {
        let facts = known.get(*name);
        let facts = facts.unwrap_or_else(|| panic!("no client knows {name}"));
        let queue = if *protocol == "spiderq" {
            protocol
        } else {
            name
        };
        let case = Case {
            http,
            protocol,
            queue,
            facts,
        };
        differences.extend(case.differences(wanted));
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let number = |(_, _, wanted): &(&str, &str, Value)| wanted.as_array().unwrap().len();
    let wanted: usize = table.iter().map(number).sum();
    assert_eq!(rows(http, "").len(), wanted, "there are no other rows");
    assert_eq!(known.len(), table.len(), "each case is in the table");
}

/// What every worker reports that fails.
fn no_luck() -> Value {
    json!({"kind": "ValueError", "message": "no luck", "backtrace": ["line 1", "line 2"]})
}

#[test]
fn ends_of_faktory() {
    const P: &str = "faktory";
    const FAR: &str = "2999-01-01T00:00:00.000Z";
    let once = json!(["1 failed ended-worker ValueError: no luck"]);
    let twice = json!([
        "1 failed ended-worker IOError: no route",
        "2 failed ended-worker ValueError: no luck"
    ]);
    let expired = json!({"kind": "ReservationExpired", "message": "job reservation expired"});
    let expired_once =
        json!(["1 timed out ended-worker ReservationExpired: job reservation expired"]);
    let kind = "Type";
    let dead = json!({"kind": kind, "outcome": "dead", "failures": 1, "failure": no_luck(), "history": once});
    check(
        "faktory",
        &[
            (
                P,
                "fwp-done",
                json!([{"kind": kind, "body": ["fwp-done"], "result": ""}]),
            ),
            (
                P,
                "fwp-failed",
                json!([{"kind": kind, "outcome": "failed", "failures": 1, "failure": no_luck(), "history": once}]),
            ),
            (
                P,
                "fwp-dead",
                json!([{
                    "kind": kind, "outcome": "dead", "attempts": 2, "failures": 2, "failure": no_luck(), "history": twice,
                }]),
            ),
            (
                P,
                "fwp-retried",
                json!([
                    dead,
                    {"kind": kind, "attempts": 2, "failures": 1, "failure": no_luck(), "history": once, "result": ""},
                ]),
            ),
            (
                P,
                "fwp-cancelled",
                json!([{"kind": kind, "outcome": "cancelled", "due_at": FAR}]),
            ),
            (
                P,
                "fwp-given-up",
                json!([{
                    "kind": kind, "outcome": "cancelled", "failures": 1, "failure": no_luck(), "history": once,
                    "worker_address": null, "worker_protocol": null,
                }]),
            ),
            (
                P,
                "fwp-killed",
                json!([{"kind": kind, "outcome": "dead", "due_at": FAR}]),
            ),
            (
                P,
                "fwp-buried",
                json!([
                    dead,
                    {
                        "kind": kind, "outcome": "deleted", "failures": 1, "failure": no_luck(), "history": once,
                        "worker_address": null, "worker_protocol": null,
                    },
                ]),
            ),
            (
                P,
                "fwp-deleted",
                json!([{"kind": kind, "outcome": "deleted"}]),
            ),
            (
                P,
                "fwp-expired",
                json!([{"kind": kind, "outcome": "expired"}]),
            ),
            (
                P,
                "fwp-lost",
                json!([{
                    "kind": kind, "outcome": "failed", "failures": 1, "failure": expired, "history": expired_once,
                }]),
            ),
        ],
    );
}

#[test]
fn ends_of_gearman() {
    const P: &str = "gearman";
    let failure = json!({"kind": "GearmanFail", "message": ""});
    let raised = json!({"kind": "GearmanException", "message": "went wrong"});
    let lost = json!({"kind": "losses", "message": "2 workers were lost with it"});
    let once = json!(["1 failed ended-worker GearmanFail: -"]);
    let twice = json!([
        "1 failed ended-worker GearmanFail: -",
        "2 failed ended-worker GearmanFail: -"
    ]);
    check(
        "gearman",
        &[
            (
                P,
                "gear-done",
                json!([{
                    "body": "gear-don… of 9", "result": "whole", "output": "half o… of 20", "progress_done": 1, "progress_of": 2,
                }]),
            ),
            (
                P,
                "gear-failed",
                json!([{"outcome": "failed", "failures": 1, "failure": failure, "history": once}]),
            ),
            (
                P,
                "gear-raised",
                json!([{
                    "outcome": "dead", "failures": 1, "failure": raised, "body": "gear-rai… of 11",
                    "history": ["1 failed ended-worker GearmanException: went wrong"],
                }]),
            ),
            (
                P,
                "gear-dead",
                json!([{
                    "outcome": "dead", "attempts": 2, "failures": 2, "failure": failure, "history": twice,
                }]),
            ),
            (
                P,
                "gear-cancelled",
                json!([{"outcome": "cancelled", "body": "gear-can… of 14"}]),
            ),
            (
                P,
                "gear-left",
                json!([{"outcome": "cancelled", "body": "gear-lef… of 9"}]),
            ),
            (
                P,
                "gear-expired",
                json!([{"outcome": "expired", "body": "gear-expired"}]),
            ),
            (
                P,
                "gear-deleted",
                json!([
                    {"outcome": "dead", "failures": 1, "failure": failure, "history": once, "body": "gear-del… of 12"},
                    {
                        "outcome": "deleted", "failures": 1, "failure": failure, "history": once, "body": "gear-del… of 12",
                        "worker_address": null, "worker_protocol": null,
                    },
                ]),
            ),
            (
                P,
                "gear-lost",
                json!([{
                    "outcome": "dead", "attempts": 2, "failure": lost, "body": "gear-los… of 9",
                    "history": ["1 lost ended-first -: -", "2 lost ended-second -: -"],
                    "worker_address": null, "worker_protocol": null,
                }]),
            ),
        ],
    );
}

#[test]
fn ends_of_eventmq() {
    const P: &str = "eventmq";
    let failure = json!({"kind": "FailureValue", "message": "no luck"});
    let lost = json!({"kind": "losses", "message": "2 workers were lost with it"});
    let once = json!([format!("1 failed {HERE} FailureValue: no luck")]);
    let twice = json!([1, 2].map(|number| format!("{number} failed {HERE} FailureValue: no luck")));
    let lost_twice = json!([1, 2].map(|number| format!("{number} lost {HERE} -: -")));
    // The stock JobManager has no name.
    check(
        "eventmq",
        &[
            (
                P,
                "emq-done",
                json!([{
                    "kind": "tasks.note", "attempts": 1, "body": "[\"run\", … of 118", "result": "{\"value\": [1, \"two\"]}",
                    "worker_address": HERE, "worker_protocol": P,
                }]),
            ),
            (
                P,
                "emq-failed",
                json!([
                    {
                        "kind": "tasks.fail", "outcome": "dead", "attempts": 1, "failures": 1, "failure": failure, "history": once,
                        "worker_address": HERE, "worker_protocol": P,
                    },
                    {
                        "kind": "tasks.fail", "outcome": "deleted", "attempts": 1, "failures": 1, "failure": failure,
                        "history": once, "worker_address": HERE,
                    },
                ]),
            ),
            (
                P,
                "emq-dead",
                json!([{
                    "kind": "tasks.fail", "outcome": "dead", "attempts": 2, "failures": 2, "failure": failure, "history": twice,
                    "worker_address": HERE, "worker_protocol": P,
                }]),
            ),
            (
                P,
                "emq-cancelled",
                json!([{
                    "kind": "tasks.nothing", "outcome": "cancelled", "body": "[\"run\", … of 113",
                }]),
            ),
            (
                P,
                "emq-expired",
                json!([{"kind": "tasks.nothing", "outcome": "expired"}]),
            ),
            (
                P,
                "emq-lost",
                json!([{
                    "kind": "tasks.hold", "outcome": "dead", "attempts": 2, "failure": lost, "history": lost_twice,
                    "worker_address": HERE,
                }]),
            ),
        ],
    );
}

#[test]
fn ends_of_spiderq() {
    const P: &str = "spiderq";
    // A repayment is an end of the entry as it was lent, which goes round or is dropped.
    let repaid = |way| {
        json!([
            {"unique": way, "attempts": 1, "body": "new"},
            {"unique": way, "outcome": "cancelled", "attempts": 1, "body": "new"},
        ])
    };
    check(
        "spiderq",
        &[
            (P, "penalty", repaid("penalty")),
            (P, "reward", repaid("reward")),
            (P, "front", repaid("front")),
            (
                P,
                "drop",
                json!([{"unique": "drop", "attempts": 1, "body": "new"}]),
            ),
            (
                P,
                "lost",
                json!([{
                    "unique": "lost", "attempts": 2, "body": "new", "history": ["1 timed out - -: -"],
                }]),
            ),
            (
                P,
                "cancelled",
                json!([{"unique": "cancelled", "outcome": "cancelled", "body": "old"}]),
            ),
        ],
    );
}

#[test]
fn ends_of_jobs_that_cross_belong_together_or_meet() {
    check(
        "together",
        &[
            (
                "gearman",
                "bridged",
                json!([{"worker_protocol": "faktory"}]),
            ),
            ("faktory", "member", json!([{"kind": "Type"}])),
            (
                "faktory",
                "callback",
                json!([{"kind": "After", "producer": null}]),
            ),
            (
                "faktory",
                "scheduled",
                json!([{"kind": "Type", "producer": null}]),
            ),
            ("gearman", "coalesced", json!([{"submits": 3}])),
            ("gearman", "once", json!([{}])),
            ("gearman", "not-kept", json!([])),
        ],
    );
}

#[test]
fn an_ended_job_is_run_again_for_the_same_workers() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = plan(&dir).start();
    for protocol in ["faktory", "gearman", "eventmq", "spiderq"] {
        play(&daemon, &format!("again_{protocol}"));
    }
}

#[test]
fn the_end_of_a_job_that_failed_before_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = plan(&dir).start();
    let mut facts = play(&daemon, "fails").remove("restarted").unwrap();
    daemon.kill();
    daemon.restart();
    facts.extend(play(&daemon, "succeeds").remove("restarted").unwrap());
    let case = Case {
        http: Http(daemon.address("http")),
        protocol: "faktory",
        queue: "restarted",
        facts: &facts,
    };
    let differences = case.differences(&json!([{
        "kind": "Type", "attempts": 2, "failures": 1, "failure": no_luck(),
        "history": ["1 failed ended-before ValueError: no luck"],
    }]));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
