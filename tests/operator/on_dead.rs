//! `queues.NAME.on_dead`: workers of FWP learn of the dead of all protocols.

use std::fs;

use serde_json::Value;
use windlass_gearman::wire::{Report, Request};
use windlass_testkit::daemon::Daemon;

use crate::common::eventmq::Peer as Emq;
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::{Peer, daemon, wait_until};

const RULES: &str = "[queues.mail]\nretry = { count = -1 }\nfailure_values = [\"Error*\"]\n\
                     on_dead = { queue = \"reports\", jobtype = \"Report\" }\n\
                     [queues.reports]\nretry = { count = -1 }\non_dead = { queue = \"reports\", jobtype = \"Report\" }\n";

fn wait_for_dead(daemon: &Daemon, many: u64) {
    let http = Http(daemon.address("http"));
    wait_until("jobs are dead", || {
        http.get("/api/v1/queues/mail").json()["states"]["dead"] == many
    });
}

/// A job of each protocol dies: Gearman's, EventMQ's, FWP's. The last acknowledgement is for all of them.
fn three_die(daemon: &Daemon) {
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    gearman.can_do("mail").unwrap();
    gearman.submit("mail", "", "x").unwrap();
    let handle = gearman.grab().unwrap().unwrap().handle;
    gearman
        .send(&Request::Work {
            handle,
            report: Report::Fail,
        })
        .unwrap();
    wait_for_dead(daemon, 1);
    let mut client = Emq::connect(daemon.address("eventmq"), "client");
    let mut worker = Emq::worker(daemon.address("eventmq"), "worker", "[[10, \"mail\"]]");
    worker.ready(1);
    client.request(
        "m1",
        "mail",
        "",
        r#"["run",{"path":"a.b","callable":"send"}]"#,
    );
    let id = worker.hear().unwrap()[1].clone();
    worker
        .say(&["REPLY", "reply", r#"{"value": "Error: no route"}"#, &id])
        .unwrap();
    wait_for_dead(daemon, 2);
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert_eq!(
        fwp.ask(
            r#"PUSH {"jid":"dead00000001","queue":"mail","jobtype":"Send","args":[],"retry":-1}"#
        ),
        "+OK"
    );
    assert!(fwp.ask("FETCH mail").contains("dead00000001"));
    assert_eq!(
        fwp.ask(r#"FAIL {"jid":"dead00000001","errtype":"IOError","message":"no route"}"#),
        "+OK"
    );
}

/// The name of the next report, and its description of the dead job.
fn fetch(fwp: &mut Fwp, jobtype: &str) -> (String, Value) {
    let job: Value = serde_json::from_str(&fwp.ask("FETCH reports")).unwrap();
    assert_eq!(job["jobtype"], jobtype, "{job}");
    (
        job["jid"].as_str().unwrap().to_owned(),
        job["args"][0].clone(),
    )
}

#[test]
fn a_death_in_any_protocol_is_reported_once_even_if_the_daemon_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).set(RULES).eventmq("").start();
    three_die(&daemon);
    daemon.kill();
    daemon.restart();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (jid, dead) = fetch(&mut fwp, "Report");
        assert_eq!(fwp.ask(&format!(r#"ACK {{"jid":"{jid}"}}"#)), "+OK");
        let at = dead["died_at"].as_str().unwrap();
        assert!(
            dead["queue"] == "mail"
                && dead["failures"] == 1
                && dead["attempts"] == 1
                && at.ends_with('Z'),
            "{dead}"
        );
        seen.push(
            ["protocol", "jobtype", "message"].map(|key| dead[key].to_string().replace('"', "")),
        );
        let kept = Http(daemon.address("http"))
            .get(&format!("/api/v1/jobs/{}", dead["id"]))
            .json();
        assert_eq!(
            (&kept["state"], dead["jid"].is_string()),
            (&"dead".into(), true),
            "{kept}"
        );
    }
    seen.sort();
    let [eventmq, faktory, gearman] = &seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(faktory, &["faktory", "Send", "no route"]);
    assert_eq!(gearman[..2], ["gearman", "mail"]);
    assert_eq!(eventmq[..2], ["eventmq", "a.b.send"]);
    daemon.kill();
    daemon.restart();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert_eq!(fwp.ask("FETCH reports"), "null", "none comes again");
    wait_for_dead(&daemon, 3);
}

#[test]
fn a_report_that_dies_causes_none_and_a_reload_changes_the_rule() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set(RULES)
        .set("[log]\nlevel = \"info\"")
        .start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let dies = |fwp: &mut Fwp, number: u8| {
        let jid = format!("dead0000000{number}");
        let push = format!(
            r#"PUSH {{"jid":"{jid}","queue":"mail","jobtype":"Send","args":[],"retry":-1}}"#
        );
        assert_eq!(fwp.ask(&push), "+OK");
        assert!(fwp.ask("FETCH mail").contains(&jid));
        assert_eq!(fwp.ask(&format!(r#"FAIL {{"jid":"{jid}"}}"#)), "+OK");
    };
    dies(&mut fwp, 1);
    let (jid, _) = fetch(&mut fwp, "Report");
    assert_eq!(fwp.ask(&format!(r#"FAIL {{"jid":"{jid}"}}"#)), "+OK");
    let http = Http(daemon.address("http"));
    let queue = http.get("/api/v1/queues/reports").json();
    assert_eq!(
        (&queue["states"]["dead"], &queue["states"]["ready"]),
        (&1.into(), &0.into()),
        "{queue}"
    );

    let file = dir.path().join("windlass.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replacen("jobtype = \"Report\"", "jobtype = \"Death\"", 1),
    )
    .unwrap();
    let changes = http.post("/api/v1/reload", "");
    assert_eq!(
        changes.json()["applied"],
        serde_json::json!(["queues.mail.on_dead.jobtype"]),
        "{}",
        changes.text()
    );
    dies(&mut fwp, 2);
    assert_eq!(fetch(&mut fwp, "Death").1["jid"], "dead00000002");
}
