//! A job that fails twice, and what the daemon remembers of that.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use serde_json::{Value, json};
use windlass_testkit::daemon::Daemon;

use super::faktory::Fwp;
use super::http::Http;

/// Two workers of FWP fail with the first job, for different reasons.
pub(crate) fn fail_twice(daemon: &Daemon) {
    let push = r#"PUSH {"jid":"history00001","queue":"q","jobtype":"Send","args":[],"retry":9}"#;
    assert_eq!(Fwp::connect(daemon.address("faktory")).ask(push), "+OK");
    for (wid, error) in [
        (
            "first",
            r#""errtype":"IOError","message":"no route","backtrace":["a.rb:1","b.rb:2"]"#,
        ),
        ("second", r#""errtype":"TypeError","message":"nil""#),
    ] {
        let mut worker = Fwp::try_worker(daemon.address("faktory"), wid).unwrap();
        let job = worker.ask("FETCH q");
        assert!(job.contains("history00001"), "{job}");
        assert_eq!(
            worker.ask(&format!("FAIL {{\"jid\":\"history00001\",{error}}}")),
            "+OK"
        );
        if wid == "first" {
            let retried = Http(daemon.address("http"))
                .post(&format!("/api/v1/jobs/{}/retry", number(daemon)), "");
            assert_eq!(retried.status, 200, "{}", retried.text());
        }
    }
}

fn number(daemon: &Daemon) -> u64 {
    let found = Http(daemon.address("http"))
        .get("/api/v1/jobs?name=history00001")
        .json();
    found["jobs"][0]["id"]
        .as_u64()
        .unwrap_or_else(|| panic!("{found}"))
}

/// What a daemon must remember of that.
#[track_caller]
pub(crate) fn check(daemon: &Daemon) {
    let job = Http(daemon.address("http"))
        .get(&format!("/api/v1/jobs/{}", number(daemon)))
        .json();
    let list = job["history"].as_array().unwrap_or_else(|| panic!("{job}"));
    let without_times = |attempt: &Value| {
        let mut attempt = attempt.clone();
        for time in ["began_at", "ended_at"] {
            assert!(attempt[time].is_string(), "{job}");
            attempt.as_object_mut().unwrap().remove(time);
        }
        assert!(
            attempt["seconds"].as_f64().is_some_and(|it| it >= 0.0),
            "{job}"
        );
        attempt.as_object_mut().unwrap().remove("seconds");
        attempt
    };
    let trace = ["a.rb:1", "b.rb:2"];
    assert_eq!(
        list.iter().map(without_times).collect::<Vec<_>>(),
        [
            json!({"number": 1, "worker": "first", "end": "failed", "kind": "IOError", "message": "no route", "backtrace": trace}),
            json!({"number": 2, "worker": "second", "end": "failed", "kind": "TypeError", "message": "nil", "backtrace": []}),
        ]
    );
    assert_eq!(list[1]["ended_at"], job["failure"]["at"], "{job}");
}
