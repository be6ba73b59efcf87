//! What operators see of schedules.

use serde_json::{Value, json};
use windlass_testkit::daemon::Daemon;

use crate::common::daemon;
use crate::common::faktory::Fwp;
use crate::common::http::Http;

const YEARLY: &str = "[faktory]\nlisten = [\"127.0.0.1:0\"]\n\
                      [[faktory.cron]]\nschedule = \"@yearly\"\njob = { type = \"T\", queue = \"q\", retry = -1 }";

/// The last run of the only schedule: whether it has one, its job, and what became of the job.
fn last(daemon: &Daemon) -> (bool, Value, Value) {
    let page = Http(daemon.address("http")).get("/api/v1/schedules").json();
    let row = &page["schedules"][0];
    assert!(page["schedules"][1].is_null(), "{page}");
    (
        row["last_run"].is_string(),
        row["last_job"].clone(),
        row["last_end"].clone(),
    )
}

/// Runs it out of turn, and returns the job's number and its `jid`.
fn run(daemon: &Daemon) -> (Value, String) {
    let http = Http(daemon.address("http"));
    let id = http.get("/api/v1/schedules").json()["schedules"][0]["id"].clone();
    let job = http.post(&format!("/api/v1/schedules/{id}/run"), "").json()["id"].clone();
    assert_eq!(last(daemon), (true, job.clone(), json!("unserved")));
    let fetched = Fwp::connect(daemon.address("faktory")).ask("FETCH q");
    let fetched: Value = serde_json::from_str(&fetched).unwrap();
    (job, fetched["jid"].as_str().unwrap().to_owned())
}

#[test]
fn a_schedule_shows_its_last_run_even_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).set(YEARLY).start();
    assert_eq!(last(&daemon), (false, Value::Null, Value::Null));
    for (report, end) in [("ACK", "done"), ("FAIL", "dead")] {
        let (job, jid) = run(&daemon);
        let mut fwp = Fwp::connect(daemon.address("faktory"));
        assert_eq!(fwp.ask(&format!("{report} {{\"jid\":\"{jid}\"}}")), "+OK");
        assert_eq!(last(&daemon), (true, job.clone(), json!(end)));
        daemon.kill();
        daemon.restart();
        assert_eq!(last(&daemon), (true, job, json!(end)));
    }
    let page = Http(daemon.address("http")).get("/schedules");
    assert!(
        page.text().contains("state-dead\">dead</small>"),
        "{}",
        page.text()
    );
}

#[test]
fn a_schedule_whose_workers_are_gone_is_unserved_and_counts_the_runs_that_wait() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).set(YEARLY).start();
    let http = Http(daemon.address("http"));
    let id = http.get("/api/v1/schedules").json()["schedules"][0]["id"].clone();
    let run = || http.post(&format!("/api/v1/schedules/{id}/run"), "").json()["id"].clone();
    let waits = || http.get("/api/v1/schedules").json()["schedules"][0]["earlier_waiting"].clone();
    let jobs = [run(), run(), run()];
    assert_eq!(
        (last(&daemon), waits()),
        ((true, jobs[2].clone(), json!("unserved")), json!(2))
    );
    let page = http.get("/schedules");
    assert!(
        page.text().contains("state-unserved\">unserved</small>"),
        "{}",
        page.text()
    );
    assert!(
        page.text().contains("2 earlier runs still wait"),
        "{}",
        page.text()
    );
    // A worker takes the first one; the others wait for it.
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let fetched: Value = serde_json::from_str(&fwp.ask("FETCH q")).unwrap();
    assert_eq!((last(&daemon).2, waits()), (json!("ready"), json!(1)));
    assert_eq!(
        fwp.ask(&format!("FAIL {{\"jid\":{}}}", fetched["jid"])),
        "+OK"
    );
    drop(fwp);
    daemon.kill();
    daemon.restart();
    let row = Http(daemon.address("http")).get("/api/v1/schedules").json()["schedules"][0].clone();
    assert_eq!(
        (&row["last_end"], &row["earlier_waiting"]),
        (&json!("unserved"), &json!(1)),
        "{row}"
    );
}
