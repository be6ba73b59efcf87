//! The example workers of `docs/examples`, each with its language's own tools.

use std::process::Command;

use crate::client::{run, top};
use crate::common;
use crate::common::http::Http;

#[test]
fn the_example_workers_take_and_finish_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = Http(daemon.address("http"));
    let url = format!("http://{}", daemon.address("http"));
    let table: [(&str, &[&str], &str); 4] = [
        ("python3", &[], "worker.py"),
        ("ruby", &[], "worker.rb"),
        ("php", &[], "worker.php"),
        ("go", &["run"], "worker.go"),
    ];
    for (program, words, file) in table {
        for body in ["one", "two"] {
            assert_eq!(http.post("/api/v1/queues/q/jobs", body).status, 201);
        }
        let mut command = Command::new(program);
        // Go keeps what it builds in a directory of its own.
        command
            .env("GOCACHE", dir.path().join("go"))
            .args(words)
            .arg(top().join("docs/examples").join(file));
        let (succeeded, said) = run(command.args([url.as_str(), "q"]));
        assert!(
            succeeded && said.contains("working on one") && said.contains("working on two"),
            "{program}: {said}"
        );
        let queue = http.get("/api/v1/queues/q").json();
        assert_eq!(
            (&queue["states"]["ready"], &queue["states"]["leased"]),
            (&0.into(), &0.into()),
            "{program}"
        );
    }
}
