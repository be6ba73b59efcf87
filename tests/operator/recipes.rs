//! The recipes of `docs/policies.md`, each pasted into the configuration of a daemon: it does what the page promises.

use std::path::Path;
use std::time::{Duration, Instant};

use windlass_testkit::daemon::Daemon;

use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::{Assigned, Peer, daemon};

/// A daemon with the recipe of this title, and the moment before it started.
fn with(title: &str, dir: &Path) -> (Daemon, Instant) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, recipe) = page
        .split_once(&format!("\n**{title}.** "))
        .unwrap_or_else(|| panic!("no recipe {title}"));
    let (toml, _) = recipe
        .split_once("```toml\n")
        .unwrap()
        .1
        .split_once("```")
        .unwrap();
    let began = Instant::now();
    (daemon(dir).set(toml).start(), began)
}

fn gearman(daemon: &Daemon) -> Peer {
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.can_do("mail").unwrap();
    peer
}

fn text(job: &Assigned) -> String {
    String::from_utf8_lossy(&job.workload).into_owned()
}

/// Grabs until there is a job.
fn next(peer: &mut Peer) -> Assigned {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(job) = peer.grab().unwrap() {
            return job;
        }
        assert!(Instant::now() < end, "no job for a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Pushes a job of FWP with this jid and these further members.
fn push(fwp: &mut Fwp, jid: &str, members: &str) -> String {
    fwp.ask(&format!(
        r#"PUSH {{"jid":"{jid}-12345678","queue":"mail","jobtype":"Send",{members}}}"#
    ))
}

#[test]
fn per_customer_concurrency() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, _) = with("Per-customer concurrency", dir.path());
    let mut peer = gearman(&daemon);
    for (customer, number) in [(17, 1), (17, 2), (17, 3), (18, 4)] {
        peer.submit(
            "mail",
            "",
            format!(r#"[{{"customer": {customer}}}, {number}]"#),
        )
        .unwrap();
    }
    let jobs = [(); 3].map(|()| peer.grab().unwrap().unwrap());
    let third = [jobs[0].clone(), jobs[1].clone(), jobs[2].clone()].map(|job| text(&job));
    assert_eq!(
        third,
        [
            r#"[{"customer": 17}, 1]"#,
            r#"[{"customer": 17}, 2]"#,
            r#"[{"customer": 18}, 4]"#
        ]
    );
    assert!(peer.grab().unwrap().is_none(), "two of customer 17 run");
    // FWP's jobs of the customer have the same key.
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert_eq!(push(&mut fwp, "five", r#""args":[{"customer":17}]"#), "+OK");
    assert_eq!(push(&mut fwp, "six", r#""args":[{"customer":18}]"#), "+OK");
    assert!(fwp.ask("FETCH mail").contains("six-"));
    peer.complete(&jobs[0].handle).unwrap();
    assert_eq!(text(&next(&mut peer)), r#"[{"customer": 17}, 3]"#);
}

#[test]
fn api_quota() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, began) = with("API quota", dir.path());
    let mut peer = gearman(&daemon);
    (0..23).for_each(|_| drop(peer.submit("mail", "", "x").unwrap()));
    (0..20).for_each(|_| drop(next(&mut peer)));
    for number in 1..=2 {
        next(&mut peer);
        let at_soonest = Duration::from_millis(750) * number;
        assert!(
            began.elapsed() >= at_soonest,
            "start {number} after {:?}",
            began.elapsed()
        );
    }
    let row = Http(daemon.address("http"))
        .get("/api/v1/queues/mail")
        .json();
    assert_eq!(row["policy"]["rate"], "80 per 1m, burst 20");
}

#[test]
fn one_at_a_time_per_account() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, _) = with("One at a time per account", dir.path());
    let (mut one, mut other) = (gearman(&daemon), gearman(&daemon));
    for (unique, body) in [
        ("acct7:a", "7a"),
        ("acct7:b", "7b"),
        ("acct8:a", "8a"),
        ("acct7:c", "7c"),
    ] {
        one.submit("mail", unique, body).unwrap();
    }
    let first = one.grab().unwrap().unwrap();
    let second = other.grab().unwrap().unwrap();
    assert_eq!([text(&first), text(&second)], ["7a", "8a"]);
    assert!(
        other.grab().unwrap().is_none(),
        "account 7 has a job that runs"
    );
    // Its worker is lost: the same job is tried again before the next one.
    drop(one);
    let again = next(&mut other);
    assert_eq!(text(&again), "7a");
    other.complete(&again.handle).unwrap();
    let then = next(&mut other);
    other.complete(&then.handle).unwrap();
    assert_eq!([text(&then), text(&next(&mut other))], ["7b", "7c"]);
}

#[test]
fn a_fair_share() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, _) = with("A fair share", dir.path());
    let mut peer = gearman(&daemon);
    for (customer, many) in [("whale", 40), ("gold", 40), ("minnow", 1)] {
        for _ in 0..many {
            peer.submit("mail", "", format!(r#"[{{"customer": "{customer}"}}]"#))
                .unwrap();
        }
    }
    let starts: Vec<String> = (0..14)
        .map(|_| text(&peer.grab().unwrap().unwrap()))
        .collect();
    let of = |customer: &str| starts.iter().filter(|body| body.contains(customer)).count();
    assert!(
        starts[..7].iter().any(|body| body.contains("minnow")),
        "{starts:?}"
    );
    assert!(
        (2..=3).contains(&of("whale")) && of("minnow") == 1,
        "five turns of gold for each other one: {starts:?}"
    );
}

#[test]
fn a_quota_and_a_queue_length_for_each_customer() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, _) = with("A quota and a queue length for each customer", dir.path());
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let began = Instant::now();
    for page in 0..10 {
        let job = |number| {
            format!(
                r#"{{"jid":"bulk-{page}-{number}","queue":"mail","jobtype":"Send","args":[],"custom":{{"customer":1}}}}"#
            )
        };
        let jobs: Vec<String> = (0..1_000).map(job).collect();
        assert_eq!(fwp.ask(&format!("PUSHB [{}]", jobs.join(","))), "{}");
    }
    let refused = push(&mut fwp, "beyond", r#""args":[],"custom":{"customer":1}"#);
    assert!(
        refused.starts_with("-ERR") && refused.contains("limit 10000"),
        "{refused}"
    );
    assert_eq!(
        push(&mut fwp, "other", r#""args":[],"custom":{"customer":2}"#),
        "+OK"
    );
    // Ten starts may be saved up.
    for number in 1..=15 {
        let job = fwp.ask("FETCH mail");
        assert_ne!(job, "null");
        let of_one = number - 1;
        let at_soonest = Duration::from_millis(100) * u32::saturating_sub(of_one, 10);
        assert!(
            began.elapsed() >= at_soonest,
            "start {number} after {:?}",
            began.elapsed()
        );
    }
}

#[test]
fn last_write_wins() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, _) = with("Last write wins", dir.path());
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let mut began = Instant::now();
    for jid in ["one", "two", "three"] {
        began = Instant::now();
        assert_eq!(push(&mut fwp, jid, r#""args":[{"account":7}]"#), "+OK");
    }
    let row = Http(daemon.address("http"))
        .get("/api/v1/queues/mail")
        .json();
    assert_eq!(row["states"]["scheduled"], 1);
    let job = (0..30)
        .map(|_| fwp.ask("FETCH mail"))
        .find(|job| job != "null")
        .unwrap();
    // The daemon counts whole milliseconds, and may be one ahead.
    assert!(
        job.contains("three-") && began.elapsed() >= Duration::from_millis(4_999),
        "{job} after {:?}",
        began.elapsed()
    );
}

#[test]
fn drop_what_is_stale() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, _) = with("Drop what is stale", dir.path());
    gearman(&daemon).submit("mail", "", "x").unwrap();
    let job = Http(daemon.address("http")).get("/api/v1/jobs/1").json();
    // The hour, the minute and the second of `2026-11-27T18:15:38.123Z`.
    let seconds = |key: &str| {
        let clock = &job[key]
            .as_str()
            .unwrap_or_else(|| panic!("no {key}: {job}"))[11..19];
        clock
            .split(':')
            .fold(0, |sum, part| sum * 60 + part.parse::<i32>().unwrap())
    };
    assert_eq!(
        (seconds("expires_at") - seconds("ready_at")).rem_euclid(86_400),
        120
    );
}
