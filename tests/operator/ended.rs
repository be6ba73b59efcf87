//! The history of ended jobs from the command line: `windlass kinds --since` and `windlass history again`.

use serde_json::{Value, json};

use crate::common::daemon;
use crate::common::ended::{rows, wait_for_rows};
use crate::common::http::Http;
use crate::failures::says;

/// Pushes a job to a queue, and takes it.
fn taken(http: Http, queue: &str, body: &str) -> Value {
    let pushed = http.post(&format!("/api/v1/queues/{queue}/jobs?retries=-1"), body);
    assert_eq!(pushed.status, 201, "{}", pushed.text());
    lease(http, queue)
}

fn lease(http: Http, queue: &str) -> Value {
    let taken = http.post(&format!("/api/v1/queues/{queue}/take"), "");
    assert_eq!(taken.status, 200, "{}", taken.text());
    taken.json()
}

/// Ends a job that was taken: `done`, or `fail`.
fn end(http: Http, taken: &Value, how: &str, report: &str) {
    let lease = taken["lease"].as_str().unwrap();
    let ended = http.post(&format!("/api/v1/leases/{lease}/{how}"), report);
    assert!(ended.status < 300, "{}", ended.text());
}

#[test]
fn kinds_of_days_are_listed_however_many_there_are() {
    const QUEUES: usize = 120;
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).set("history.keep = \"7d\"\n").start();
    let http = Http(daemon.address("http"));
    for queue in 0..QUEUES {
        end(http, &taken(http, &format!("q-{queue}"), "x"), "done", "");
    }
    wait_for_rows(http, "outcome=done", QUEUES);
    let shown = says(dir.path(), &["kinds", "--since", "1d"]).unwrap();
    assert_eq!(shown.lines().count(), 1 + QUEUES, "{shown}");
}

#[test]
fn ended_jobs_are_run_again_once_each_and_those_without_a_whole_body_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let settings = "history.keep = \"7d\"\nqueues.q.history = { body = \"8B\" }\n";
    let daemon = daemon(dir.path()).set(settings).start();
    let http = Http(daemon.address("http"));
    // One that was dead, was retried and is done has two rows.
    let first = taken(http, "q", "first");
    end(http, &first, "fail", r#"{"message": "no luck"}"#);
    let job = &wait_for_rows(http, "outcome=dead", 1)[0]["job"];
    assert!(http.post(&format!("/api/v1/jobs/{job}/retry"), "").status < 300);
    end(http, &lease(http, "q"), "done", "");
    wait_for_rows(http, "queue=q", 2);

    let none = says(dir.path(), &["history", "again"]).unwrap_err();
    assert!(none.contains("name conditions, or --all"), "{none}");
    let again = ["history", "again", "--queue", "q", "--rate", "1000"];
    assert_eq!(
        says(dir.path(), &again).unwrap().trim(),
        "1 pushed, 0 refused"
    );
    let second = lease(http, "q");
    end(http, &second, "done", "");
    let runs = wait_for_rows(http, &format!("again_of={job}"), 1);
    assert_eq!(runs[0]["body"]["text"], json!("first"));

    end(http, &taken(http, "q", "more than eight bytes"), "done", "");
    let long = wait_for_rows(http, "queue=q", 4)[3]["job"].to_string();
    let refused = says(dir.path(), &["history", "again", "--job", &long]).unwrap_err();
    assert!(refused.contains("only its beginning"), "{refused}");
    assert_eq!(rows(http, &format!("again_of={long}")).len(), 0);
}

#[test]
fn jobs_that_run_again_at_a_rate_wait_in_the_daemon_for_their_turns() {
    let dir = tempfile::tempdir().unwrap();
    let settings = "history.keep = \"7d\"\nqueues.q.history = { body = \"8B\" }\n";
    let mut daemon = daemon(dir.path()).set(settings).start();
    let http = Http(daemon.address("http"));
    let bodies: Vec<String> = (10..40).map(|n| n.to_string()).collect();
    for body in &bodies {
        end(http, &taken(http, "q", body), "done", "");
    }
    wait_for_rows(http, "queue=q", bodies.len());
    let again = ["history", "again", "--queue", "q", "--rate", "1"];
    assert_eq!(
        says(dir.path(), &again).unwrap().trim(),
        "30 pushed, 0 refused"
    );
    daemon.kill();
    daemon.restart();
    let http = Http(daemon.address("http"));
    let list = http.get("/api/v1/jobs?queue=q&order=oldest").json();
    let jobs = list["jobs"].as_array().unwrap();
    let pushed: Vec<&str> = jobs
        .iter()
        .filter_map(|job| job["summary"].as_str())
        .collect();
    assert_eq!(pushed, bodies);
    // Due in one second after the other. A slow restart leaves fewer of them.
    let due: Vec<&str> = jobs
        .iter()
        .filter_map(|job| job["until"].as_str())
        .map(|at| &at["YYYY-MM-DDT".len().."YYYY-MM-DDThh:mm:ss".len()])
        .collect();
    assert!(due.len() > 1, "{jobs:#?}");
    assert!(due.is_sorted_by(|one, next| one != next), "{due:?}");
}
