//! Failures by error and kind: dead letters, and jobs that are still retried.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use windlass_testkit::daemon::Daemon;

use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::{Peer, daemon, wait_for_log, wait_until};

/// Pushes jobs, each with its kind and its retries, and lets all of them fail with this message.
pub(crate) fn fail(daemon: &Daemon, message: &str, jobs: &[(&str, i32)]) {
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    for (kind, retry) in jobs {
        let push = json!({"jid": format!("job-{kind}-{message}"), "queue": "q", "jobtype": kind, "args": [], "retry": retry});
        assert_eq!(fwp.ask(&format!("PUSH {push}")), "+OK");
        let jid = serde_json::from_str::<Value>(&fwp.ask("FETCH q")).unwrap()["jid"].clone();
        let report = json!({"jid": jid, "errtype": "IOError", "message": message});
        assert_eq!(fwp.ask(&format!("FAIL {report}")), "+OK");
    }
}

/// The groups of these conditions: error, kind, jobs.
fn groups(daemon: &Daemon, conditions: &str) -> Vec<(Value, Value, Value)> {
    let found = Http(daemon.address("http"))
        .get(&format!("/api/v1/dead?{conditions}"))
        .json();
    let groups = found["groups"]
        .as_array()
        .unwrap_or_else(|| panic!("{found}"))
        .clone();
    groups
        .iter()
        .map(|it| (it["error"].clone(), it["kind"].clone(), it["jobs"].clone()))
        .collect()
}

pub(crate) fn says(dir: &Path, words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let output = command
        .args(words)
        .arg("--data-dir")
        .arg(dir.join("data"))
        .env_clear()
        .output()
        .unwrap();
    let [said, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    if output.status.success() {
        Ok(said)
    } else {
        Err(error)
    }
}

fn all(kind: &str, jobs: u32) -> (Value, Value, Value) {
    (json!("IOError: timeout *"), json!(kind), json!(jobs))
}

#[test]
fn jobs_that_fail_are_groups_by_error_and_kind_dead_or_retried() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[faktory]\nlisten = [\"127.0.0.1:0\"]\n")
        .start();
    for number in 1..=3 {
        fail(
            &daemon,
            &format!("timeout {number}"),
            &[("Charge", 9), ("Sync", -1)],
        );
    }
    fail(
        &daemon,
        "timeout 4",
        &[("Charge*", 9), ("Charge*", -1), ("Charge", -1)],
    );
    let retried = [all("Charge", 3), all("Charge*", 1)];
    assert_eq!(groups(&daemon, "state=retrying"), retried);
    assert_eq!(groups(&daemon, "state=retrying&kind=Ch*ge"), retried[..1]);
    assert_eq!(
        groups(&daemon, ""),
        [all("Sync", 3), all("Charge", 1), all("Charge*", 1)]
    );
    assert_eq!(groups(&daemon, "state=dead&queue=other"), []);
    let http = Http(daemon.address("http"));
    let first = http.get("/api/v1/dead?state=retrying").json()["groups"][0].clone();
    let at = |field| first[field].as_str().unwrap();
    assert!(
        at("first_at") <= at("last_at") && at("last_at") < at("next_at"),
        "{first}"
    );
    assert_eq!(
        http.get("/api/v1/dead").json()["groups"][0]["next_at"],
        Value::Null
    );
    // A condition that makes no sense here is refused, and not ignored.
    assert_eq!(http.get("/api/v1/dead?state=ready").status, 400);
    let refused = says(dir.path(), &["dead", "--state", "leased"]).unwrap_err();
    assert!(
        refused.contains("only dead and retrying jobs have errors"),
        "{refused}"
    );
    let shown = says(dir.path(), &["dead", "--state", "retrying"]).unwrap();
    assert!(
        shown.contains("NEXT RETRY") && shown.contains("Charge*") && !shown.contains("Sync"),
        "{shown}"
    );
    assert!(!says(dir.path(), &["dead"]).unwrap().contains("NEXT RETRY"));
}

#[test]
fn a_change_of_a_group_takes_what_its_row_shows_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[faktory]\nlisten = [\"127.0.0.1:0\"]\n")
        .start();
    fail(
        &daemon,
        "timeout 1",
        &[("Charge", 9), ("Charge*", 9), ("Sync", 9), ("Sync", -1)],
    );
    fail(&daemon, "timeout 2", &[("Charge", 9), ("Sync", 9)]);
    let http = Http(daemon.address("http"));
    let page = http.get("/dead?state=retrying&queue=q");
    let query =
        "state=retrying&amp;error_group=IOError%3A+timeout+*&amp;exact_kind=Charge*&amp;queue=q";
    let buttons =
        ["retry", "kill", "delete"].map(|it| format!("data-many=\"{it}\" data-query=\"{query}\""));
    let text = page.text().replace("&#38;", "&amp;");
    assert!(buttons.iter().all(|button| text.contains(button)), "{text}");
    assert!(
        text.contains(">Failing jobs") && !text.contains("data-retry"),
        "{text}"
    );
    let group = [
        "--state",
        "retrying",
        "--error-group",
        "IOError: timeout *",
        "--exact-kind",
    ];
    let change = |what, kind, more: &[&str]| {
        says(dir.path(), &[&[what], &group[..], &[kind], more].concat()).unwrap()
    };
    let at_a_rate = http.post("/api/v1/jobs/retry?state=retrying&rate=1", "");
    assert_eq!(
        at_a_rate.status,
        400,
        "only dead jobs have a rate: {}",
        at_a_rate.text()
    );
    assert_eq!(change("retry", "Charge*", &[]), "1 job changed\n");
    assert_eq!(
        groups(&daemon, "state=retrying"),
        [all("Charge", 2), all("Sync", 2)]
    );
    assert_eq!(change("kill", "Sync", &[]), "2 jobs changed\n");
    assert_eq!(groups(&daemon, "state=retrying"), [all("Charge", 2)]);
    assert_eq!(groups(&daemon, "state=dead"), [all("Sync", 3)]);
    assert_eq!(change("delete", "Charge", &["--yes"]), "2 jobs changed\n");
    assert_eq!(groups(&daemon, "state=retrying"), []);
    // Jobs whose bodies show no kind are a group of their own.
    assert_eq!(http.get("/api/v1/jobs/count?exact_kind=").json()["jobs"], 0);
    assert_eq!(
        http.get("/api/v1/jobs/count?exact_kind=Sync").json()["jobs"],
        3
    );
}

#[test]
fn the_overview_names_what_needs_attention() {
    let dir = tempfile::tempdir().unwrap();
    let schedule = "[[faktory.cron]]\nschedule = \"0 0 1 1 *\"\n[faktory.cron.job]\ntype = \"Report\"\nqueue = \"reports\"\n";
    let daemon = daemon(dir.path())
        .set(&format!(
            "[faktory]\nlisten = [\"127.0.0.1:0\"]\n{schedule}"
        ))
        .start();
    let http = Http(daemon.address("http"));
    let says = |text: &str| {
        wait_until(text, || http.get("/").text().contains(text));
    };
    says("Overview");
    fail(
        &daemon,
        "timeout 1",
        &[("Charge", 9), ("Charge", 9), ("Sync", -1)],
    );
    says("Failing now, in the last 5 minutes: IOError: timeout * in Charge, 2");
    says("Died in the last hour: IOError: timeout * in Sync, 1");

    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.submit("slow", "", "x").unwrap();
    worker.can_do("slow").unwrap();
    worker.grab().unwrap().unwrap();
    drop(worker);
    says("1 job lost with a worker");
    wait_for_log(&daemon, "lost a worker that had a job");
    let log = daemon.log_text();
    let line = log
        .lines()
        .find(|line| line.contains("lost a worker"))
        .unwrap();
    assert!(
        line.contains("a worker without a name at 127.0.0.1"),
        "{line}"
    );

    assert!(http.get("/api/v1/export").text().contains("export_end"));
    let mark = dir.path().join("data/last-export");
    wait_until("the export is noted", || mark.exists());
    assert!(!http.get("/").text().contains("The last export"));
    let nine_days_ago = SystemTime::now() - Duration::from_secs(9 * 86_400);
    File::options()
        .write(true)
        .open(&mark)
        .unwrap()
        .set_modified(nine_days_ago)
        .unwrap();
    says("The last export was 9 d");

    assert_eq!(http.post("/api/v1/queues/slow/pause", "").status, 200);
    says("Paused while jobs wait: slow");
    let schedules: Value = http.get("/api/v1/schedules").json();
    let id = &schedules["schedules"][0]["id"];
    assert_eq!(
        http.post(&format!("/api/v1/schedules/{id}/run"), "").status,
        200
    );
    says("Schedules whose jobs no worker takes, or that did not run: configuration: ");
}
