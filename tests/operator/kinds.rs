//! Figures by what jobs call: the API, the page, the command and the metrics.

use serde_json::{Value, json};

use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::{Peer, daemon, wait_until};
use crate::failures::says;

/// A row without its durations: kind, protocol, taken, done, failed, lost.
fn rows(http: Http, query: &str) -> Vec<Value> {
    let found = http.get(&format!("/api/v1/kinds?{query}")).json();
    let rows = found["kinds"]
        .as_array()
        .unwrap_or_else(|| panic!("{found}"))
        .clone();
    let fields = ["kind", "protocol", "taken", "done", "failed", "lost"];
    rows.iter()
        .map(|row| fields.iter().map(|field| row[*field].clone()).collect())
        .collect()
}

#[test]
fn what_happened_to_jobs_is_told_by_what_they_call() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[faktory]\nlisten = [\"127.0.0.1:0\"]\n")
        .start();
    let http = Http(daemon.address("http"));
    assert_eq!(rows(http, ""), [] as [Value; 0]);
    assert!(
        http.get("/kinds")
            .text()
            .contains("No worker has taken a job in this time.")
    );

    let mut fwp = Fwp::connect(daemon.address("faktory"));
    for (number, kind, report) in [
        (1, "Charge", "ACK"),
        (2, "Sync", "FAIL"),
        (3, "Charge", "FAIL"),
        (4, "Charge", "ACK"),
    ] {
        let jid = format!("jid0000000{number}");
        assert_eq!(
            fwp.ask(&format!(
                "PUSH {}",
                json!({"jid": jid, "jobtype": kind, "args": []})
            )),
            "+OK"
        );
        fwp.ask("FETCH default");
        assert_eq!(
            fwp.ask(&format!(
                "{report} {}",
                json!({"jid": jid, "errtype": "E", "message": "m"})
            )),
            "+OK"
        );
    }
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.can_do("resize").unwrap();
    worker.submit("resize", "", "x").unwrap();
    let job = worker.grab().unwrap().unwrap();
    worker.complete(&job.handle).unwrap();
    worker.submit("resize", "", "y").unwrap();
    worker.grab().unwrap().unwrap();
    drop(worker);

    let charge = json!(["Charge", "faktory", 3, 2, 1, 0]);
    let sync = json!(["Sync", "faktory", 1, 0, 1, 0]);
    let resize = json!(["resize", "gearman", 2, 1, 0, 1]);
    wait_until("the worker is lost", || {
        rows(http, "").get(1) == Some(&resize)
    });
    assert_eq!(
        rows(http, ""),
        [charge.clone(), resize.clone(), sync.clone()]
    );
    for span in ["minutes", "hour", "day", "start"] {
        assert_eq!(
            rows(http, &format!("sort=kind&span={span}")),
            [charge.clone(), resize.clone(), sync.clone()],
            "{span}"
        );
    }
    assert_eq!(rows(http, "kind=Sync"), [sync]);
    assert_eq!(rows(http, "sort=-lost&limit=1"), [resize]);
    assert_eq!(http.get("/api/v1/kinds?span=week").status, 400);
    let row = http.get("/api/v1/kinds?kind=Charge").json()["kinds"][0].clone();
    assert!(
        row["ran"]["p95"].is_u64() && row["waited"]["p50"].is_u64(),
        "{row}"
    );

    let page = http.get("/kinds?span=hour").text().to_owned();
    assert!(
        page.contains("/jobs?exact_kind=Charge\">Charge</a> <small>faktory")
            && page.contains("33 %"),
        "{page}"
    );
    // Wherever a kind stands, it leads there.
    assert!(
        http.get("/dead?state=retrying")
            .text()
            .contains("/kinds?kind=Sync")
    );
    let shown = says(
        dir.path(),
        &["kinds", "--sort", "failed", "--span", "start"],
    )
    .unwrap();
    let columns: Vec<&str> = shown
        .lines()
        .flat_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(columns, ["KIND", "Charge", "Sync", "resize"], "{shown}");
    let metrics = http.get("/metrics").text().to_owned();
    assert!(
        metrics.contains("windlass_kind_jobs_failed_total{kind=\"Charge\",protocol=\"faktory\"} 1"),
        "{metrics}"
    );
    assert!(
        !metrics.contains("kind=\"resize\""),
        "where a queue is what a job calls, its own figures say it"
    );
}
