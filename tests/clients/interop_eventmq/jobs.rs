//! Jobs of the stock client on the stock JobManager.

use serde_json::{Value, json};

use super::peers::Socket;
use super::stage::{DEFAULT, Stage};
use crate::common::wait_for_log;

in_namespaces! { every_job_runs_once many_jobs_that_do_nothing replies time_out a_body_that_is_not_text_reaches_no_job_manager }

/// A job in the format of a message.
fn run(callable: &str, args: &Value) -> Value {
    json!(["run", {"path": "tasks", "callable": callable, "args": args, "kwargs": {}, "class_args": [], "class_kwargs": {}}])
}

/// The client's messages for a job with a reply: the acceptance and the result. Returns the result.
fn result(client: &Socket, id: &str) -> Value {
    assert_eq!(client.hears("REPLY"), [id]);
    let said = client.hears("REPLY");
    let [result, of] = &said[..] else {
        panic!("no result: {said:?}")
    };
    assert_eq!(of, id);
    serde_json::from_str(result).unwrap()
}

fn sorted(values: impl IntoIterator<Item = Value>) -> Vec<String> {
    let mut values: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    values.sort();
    values
}

fn every_job_runs_once(stage: &Stage) {
    let _jobs = stage.job_manager(r#"[[10, "default"], [20, "fast"]]"#);
    let client = stage.client();
    let mut wanted = Vec::new();
    for number in 0..50 {
        client.defer_job("tasks.note", &json!({"args": [number]}));
        client.defer_job(
            "tasks.note",
            &json!({"args": [number, "fast"], "queue": "fast", "guarantee": true}),
        );
        wanted.extend([json!([number]), json!([number, "fast"])]);
    }
    client.defer_job(
        "tasks.note",
        &json!({"args": ["ä€𝄞", null, 1.5], "kwargs": {"b": [{}], "a": "é"}}),
    );
    wanted.push(json!(["ä€𝄞", null, 1.5, ["a", "é"], ["b", [{}]]]));
    let greeter = json!({"args": ["world"], "class_args": ["Hello"], "class_kwargs": {"mark": "!"}, "queue": "fast"});
    client.defer_job("tasks:Greeter.greet", &greeter);
    wanted.push(json!(["Hello, world!"]));
    for queue in [None, Some("fast"), Some("nobody's")] {
        stage
            .peers
            .delay(stage.front(), queue, &json!([queue, "decorated"]));
        wanted.push(json!([queue, "decorated"]));
    }
    stage.wait_for_notes(wanted.len());
    stage.settle();
    assert_eq!(sorted(stage.notes()), sorted(wanted));
}

/// A stock JobManager checks for finished jobs once a second, unless a message arrives.
fn many_jobs_that_do_nothing(stage: &Stage) {
    let _jobs = stage.job_manager(DEFAULT);
    let client = stage.client();
    let options = json!({"reply_requested": true});
    for _ in 0..200 {
        client.defer_job("tasks.nothing", &options);
    }
    for _ in 0..400 {
        client.hears("REPLY");
    }
}

fn replies(stage: &Stage) {
    let _jobs = stage.job_manager(DEFAULT);
    let client = stage.client();
    let asked = json!({"reply_requested": true});

    // This job does not ask for a reply.
    let quiet = client.send_request(&run("note", &json!(["quiet"])), &json!({}));
    assert_eq!(client.hears("REPLY"), [quiet]);

    let id = client.send_request(&run("note", &json!([1, "two", null])), &asked);
    assert_eq!(result(&client, &id), json!({"value": [1, "two", null]}));
    let id = client.send_request(&run("fail", &json!(["no luck"])), &asked);
    assert_eq!(result(&client, &id), json!({"value": "no luck"}));
    let id = client.send_request(&run("not_there", &json!([])), &asked);
    assert_eq!(
        result(&client, &id),
        json!({"value": "module 'tasks' has no attribute 'not_there'"})
    );
    let id = client.defer_job(
        "tasks.note",
        &json!({"reply_requested": true, "guarantee": true, "queue": "nobody's"}),
    );
    assert_eq!(result(&client, &id), json!({"value": []}));
}

fn time_out(stage: &Stage) {
    let _jobs = stage.job_manager(DEFAULT);
    let client = stage.client();
    let once = json!({"args": ["once", 2], "timeout": 1, "reply_requested": true});
    let id = client.defer_job("tasks.slow", &once);
    assert_eq!(result(&client, &id), json!({"value": "TimeoutError"}));
    let twice_more =
        json!({"args": ["retried", 2], "timeout": 1, "retry_count": 2, "reply_requested": true});
    let id = client.defer_job("tasks.slow", &twice_more);
    assert_eq!(result(&client, &id), json!({"value": "TimeoutError"}));
    stage.settle();
    let notes = stage.notes();
    assert_eq!(
        notes
            .iter()
            .filter(|note| **note == json!(["once"]))
            .count(),
        1,
        "{notes:?}"
    );
    assert_eq!(
        notes
            .iter()
            .filter(|note| **note == json!(["retried"]))
            .count(),
        3,
        "{notes:?}"
    );
}

/// A stock JobManager that receives a body that is not text drops its socket, and begins all jobs in its hands again.
fn a_body_that_is_not_text_reaches_no_job_manager(stage: &Stage) {
    let jobs = stage.job_manager(DEFAULT);
    let client = stage.client();
    let held = stage.dir().join("held");
    std::fs::write(&held, "").unwrap();
    client.defer_job("tasks.hold", &json!({"args": ["held", held]}));
    stage.wait_for_notes(1);

    let poisoner = stage.peers.dealer(stage.front());
    let poison = poisoner.request(
        "default",
        "guarantee,reply-requested",
        "\u{ff}\u{fe} no text",
    );
    assert_eq!(poisoner.hears("REPLY"), [poison]);
    let mut wanted = vec![json!(["held"]), json!(["held", "let go"])];
    for number in 0..20 {
        client.defer_job("tasks.note", &json!({"args": [number]}));
        wanted.push(json!([number]));
    }
    // The manager's other process does them while the first job is still held.
    stage.wait_for_notes(wanted.len() - 1);
    std::fs::remove_file(held).unwrap();
    stage.wait_for_notes(wanted.len());
    stage.settle();
    assert_eq!(sorted(stage.notes()), sorted(wanted), "each began once");
    assert!(
        !jobs.log_text().contains("exception"),
        "the manager's loop never broke: {}",
        jobs.log_text()
    );
    wait_for_log(&stage.daemon, "moved to the dead-letter queue");
}
