//! The store in PostgreSQL: a daemon that serves from it, and what happens to both. The server is Debian's, started by
//! the test.

mod ended;
mod growth;

use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use windlass_gearman::wire::{AssignForm, Request};
use windlass_testkit::daemon::{Daemon, Plan};

use crate::common;
use crate::common::eventmq;
use crate::common::faktory;
use crate::common::history;
use crate::common::http::Http;
use crate::common::load::Load;
use crate::common::postgres::Postgres;
use crate::common::spiderq;
use crate::common::{Peer, submission, wait_for_log, wait_until};

/// A daemon with its store in a database, under a lease that a test need not wait long for.
fn daemon(dir: &Path, postgres: &Postgres) -> Plan {
    common::daemon(dir)
        .set(&postgres.section())
        .set("lease = \"800ms\"")
}

/// Runs the program with these arguments.
fn windlass(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(words)
        .output()
        .unwrap()
}

/// Runs the program, which must succeed, and returns its output.
fn said(words: &[&str]) -> String {
    let output = windlass(words);
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the program, which must fail with this code, and returns why.
fn refused(words: &[&str], code: i32) -> String {
    let output = windlass(words);
    let why = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {why}");
    why
}

/// Stops a daemon in order.
fn stop(daemon: &mut Daemon) {
    daemon.signal("TERM");
    assert!(daemon.wait().success(), "{}", daemon.log_text());
}

// ---- acknowledged jobs are there ------------------------------------------------------------------------------------

#[test]
fn kill_9_of_the_daemon_under_load_loses_nothing() {
    const KILLS: usize = 3;
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    // Short enough for checkpoints between the kills.
    let mut daemon = daemon(dir.path(), &postgres)
        .set("[store]\ncheckpoint = \"1MiB\"")
        .start();
    let load = Load::new();
    for _ in 0..KILLS {
        let clients = load.start(4, daemon.address("gearman"), false);
        load.wait_for_more(600);
        daemon.kill();
        load.end(clients);
        daemon.restart();
    }
    load.check(daemon.address("gearman"));
    assert!(
        !dir.path().join("data/store").exists(),
        "the data directory has no store"
    );
    assert_eq!(
        postgres.number("SELECT epoch FROM windlass.lease"),
        1 + KILLS as u64
    );
}

#[test]
fn past_attempts_of_a_job_are_in_the_database() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let mut daemon = daemon(dir.path(), &postgres).start();
    history::fail_twice(&daemon);
    for stops in [false, true] {
        history::check(&daemon);
        if stops {
            stop(&mut daemon);
        } else {
            daemon.kill();
        }
        daemon.restart();
    }
    history::check(&daemon);
}

#[test]
fn the_daemon_lives_through_a_database_that_is_killed() {
    let (mut postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let mut daemon = daemon(dir.path(), &postgres)
        .set("[store]\ncheckpoint = \"1MiB\"")
        .start();
    let load = Load::new();
    let clients = load.start(4, daemon.address("gearman"), true);
    for _ in 0..3 {
        load.wait_for_more(400);
        postgres.kill();
        // Longer than the lease: the daemon is silent until it has it again.
        wait_for_log(&daemon, "the lease was not renewed");
        thread::sleep(std::time::Duration::from_millis(900));
        postgres.restart();
        load.wait_for_more(100);
    }
    load.end(clients);
    load.check(daemon.address("gearman"));
    assert_eq!(
        postgres.number("SELECT epoch FROM windlass.lease"),
        1,
        "nobody else has had it"
    );
    stop(&mut daemon);
}

#[test]
fn http_answers_in_time_while_the_database_is_away() {
    let (mut postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let daemon = daemon(dir.path(), &postgres).start();
    let http = Http(daemon.address("http"));
    let push = || http.post("/api/v1/queues/q/jobs", "x");
    assert_eq!((push().status, http.get("/readyz").status), (201, 200));
    postgres.kill();
    wait_until("it is known", || http.get("/readyz").status == 503);
    // None of these holds another one up, whatever waits for the engine.
    let others = [(); 4].map(|()| thread::spawn(move || http.get("/metrics")));
    while !others.iter().all(thread::JoinHandle::is_finished) {
        assert_eq!(
            (http.get("/livez").status, http.get("/readyz").status),
            (200, 503)
        );
        assert_eq!(http.get("/api/v1/cluster").status, 200);
    }
    for answer in others.map(|other| other.join().unwrap()) {
        assert_eq!(
            (answer.status, answer.header("retry-after")),
            (503, Some("2")),
            "{answer:?}"
        );
        assert_eq!(answer.json()["code"], "unavailable");
    }
    assert_eq!(push().status, 503, "it has certainly not been pushed");
    postgres.restart();
    wait_until("it serves again", || push().status == 201);
    assert_eq!(
        (http.get("/readyz").status, http.get("/metrics").status),
        (200, 200)
    );
}

#[test]
fn all_protocols_push_take_and_finish() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let mut daemon = daemon(dir.path(), &postgres).eventmq("").start();
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    let mut fwp = faktory::Fwp::connect(daemon.address("faktory"));
    let mut spider = spiderq::Bare::connect(daemon.address("spiderq"));
    let mut client = eventmq::Peer::connect(daemon.address("eventmq"), "client");
    for number in 0..2 {
        gearman.submit("resize", "", format!("g{number}")).unwrap();
        let push = format!(
            r#"PUSH {{"jid":"jid{number}abcdef","jobtype":"T","queue":"mail","args":[{number}]}}"#
        );
        assert_eq!(fwp.ask(&push), "+OK");
        assert_eq!(
            spider.ask(&spiderq::add(&format!("entry {number}"), b"value")),
            spiderq::ADDED
        );
        client.request(
            &format!("e{number}"),
            "report",
            "",
            r#"["run", {"callable": "report", "path": "tasks"}]"#,
        );
    }
    work_off_one_of_each(&daemon, "0");
    daemon.kill();
    daemon.restart();
    work_off_one_of_each(&daemon, "1");
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    gearman.can_do("resize").unwrap();
    assert!(gearman.grab().unwrap().is_none());
    let mut fwp = faktory::Fwp::connect(daemon.address("faktory"));
    assert_eq!(fwp.ask("FETCH mail"), "null");
    stop(&mut daemon);
}

/// Takes and finishes the next job of each protocol, with a commit behind the end of each.
fn work_off_one_of_each(daemon: &Daemon, number: &str) {
    let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
    gearman.can_do("resize").unwrap();
    let job = gearman.grab().unwrap().unwrap();
    assert_eq!(job.workload, format!("g{number}"));
    gearman.complete(&job.handle).unwrap();
    let mut worker =
        eventmq::Peer::worker(daemon.address("eventmq"), "worker", r#"[[10, "report"]]"#);
    worker.ready(1);
    let request = worker.hear().unwrap();
    assert_eq!(request[1], format!("e{number}"));
    worker
        .say(&["REPLY", "reply", r#"{"value": 1}"#, &request[1]])
        .unwrap();
    let mut spider = spiderq::Bare::connect(daemon.address("spiderq"));
    let lease = spider.lease(false).unwrap();
    assert_eq!(lease.key, format!("entry {number}"));
    assert_eq!(
        spider.ask(&spiderq::repay(&lease, spiderq::Status::Drop)),
        spiderq::REPAID
    );
    let mut fwp = faktory::Fwp::connect(daemon.address("faktory"));
    assert!(
        fwp.ask("FETCH mail")
            .contains(&format!("jid{number}abcdef"))
    );
    // The ends of the connection-bound jobs have no answers. These are on the disk when this is.
    gearman.submit("other", "", "behind").unwrap();
    worker
        .say(&["REQUEST", "behind", "other", "", "[]"])
        .unwrap();
    while worker.hear().unwrap()[0] != "REPLY" {}
    assert_eq!(
        fwp.ask(&format!(r#"ACK {{"jid":"jid{number}abcdef"}}"#)),
        "+OK"
    );
}

// ---- one daemon at a time -------------------------------------------------------------------------------------------

#[test]
fn a_second_daemon_is_refused_while_the_lease_is_held() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let mut daemon = daemon(dir.path(), &postgres).start();
    let (data, url) = (
        dir.path().join("second"),
        format!("postgres.url={}", postgres.url()),
    );
    let where_to = ["serve", "--data-dir", data.to_str().unwrap(), "--set", &url];
    let listen = [
        "--only",
        "gearman",
        "--set",
        "gearman.listen=[\"127.0.0.1:0\"]",
        "--set",
        "http.listen=[]",
    ];
    let why = refused(&[&where_to[..], &listen[..]].concat(), 4);
    assert!(
        why.contains(&format!("(process {})", daemon.pid())),
        "{why}"
    );
    for command in ["verify", "compact", "salvage"] {
        let why = refused(&[command, &postgres.url()], 4);
        assert!(why.contains("is in use"), "{why}");
    }
    stop(&mut daemon);
    // Given back at once.
    assert_eq!(
        postgres.ask("SELECT holder FROM windlass.lease WHERE until < now()"),
        ""
    );
    assert_eq!(
        postgres.number("SELECT count(*) FROM windlass.lease WHERE until < now()"),
        1
    );
}

#[test]
fn a_stopped_daemon_whose_lease_was_taken_says_nothing_more() {
    let (postgres, dirs) = (
        Postgres::start(),
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
    );
    let mut first = daemon(dirs[0].path(), &postgres).start();
    let mut client = Peer::connect(first.address("gearman")).unwrap();
    client.submit("work", "", "before").unwrap();
    let mut worker = Peer::connect(first.address("gearman")).unwrap();
    worker.can_do("work").unwrap();
    worker
        .send(&Request::GetStatus {
            handle: "none".into(),
        })
        .unwrap();
    worker.packet().unwrap();
    first.signal("STOP");
    let mut second = daemon(dirs[1].path(), &postgres)
        .set("[server]\nin_use_timeout = \"60s\"")
        .start();
    let mut taker = Peer::connect(second.address("gearman")).unwrap();
    taker.can_do("work").unwrap();
    let job = taker.grab().unwrap().unwrap();
    assert_eq!(job.workload, "before");
    // The first one finds these in its sockets when it goes on, and must answer none of them.
    client.send(&submission("work", "", "after", true)).unwrap();
    worker.send(&Request::Grab(AssignForm::Plain)).unwrap();
    first.signal("CONT");
    let status = first.wait();
    assert_eq!(status.code(), Some(6), "{}", first.log_text());
    assert!(
        first.log_text().contains("was taken over by"),
        "{}",
        first.log_text()
    );
    assert!(
        client.packet().is_err() && worker.packet().is_err(),
        "the deposed daemon has answered"
    );
    taker.complete(&job.handle).unwrap();
    taker.submit("other", "", "behind").unwrap();
    assert!(taker.grab().unwrap().is_none());
    stop(&mut second);
}

// ---- it does not grow -----------------------------------------------------------------------------------------------

/// Bytes of everything in the schema, with indexes and large values.
const SIZE: &str = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace \
                    WHERE nspname = 'windlass' AND relkind = 'r'";
/// Bytes in the log's tables.
const LOG_ROWS: &str = "SELECT sum(octet_length(records)) FROM (SELECT records FROM windlass.log_0 UNION ALL \
                        SELECT records FROM windlass.log_1 UNION ALL SELECT records FROM windlass.log_2 UNION ALL \
                        SELECT records FROM windlass.log_3 UNION ALL SELECT records FROM windlass.log_4 UNION ALL \
                        SELECT records FROM windlass.log_5 UNION ALL SELECT records FROM windlass.log_6 UNION ALL \
                        SELECT records FROM windlass.log_7) AS log";

#[test]
fn checkpoints_trim_the_log_and_churn_does_not_make_it_grow() {
    const ROUNDS: usize = 12;
    const JOBS: usize = 300;
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let daemon = daemon(dir.path(), &postgres)
        .set("[store]\ncheckpoint = \"1MiB\"\ncheckpoint_quiet = \"100ms\"")
        .start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.can_do("churn").unwrap();
    let points = || daemon_points(&daemon);
    for _ in 0..ROUNDS {
        (0..JOBS).for_each(|_| drop(peer.submit("churn", "", vec![b'x'; 10_000]).unwrap()));
        let before = points();
        wait_until("a checkpoint has passed", || points() > before);
        while let Some(job) = peer.grab().unwrap() {
            peer.complete(&job.handle).unwrap();
        }
    }
    // 36 MB of jobs went through. The last checkpoint may still be at work.
    wait_until("the log is trimmed", || postgres.number(LOG_ROWS) < 8 << 20);
    wait_until("little is left in the database", || {
        postgres.number(SIZE) < 24 << 20
    });
    assert_eq!(peer.listing("status").unwrap(), ["churn\t0\t0\t1"]);
}

/// A daemon that stands by reads the table from the offer on, and what it has read must count.
#[test]
fn a_checkpoint_that_is_in_progress_does_not_end_once_the_store_is_offered() {
    const SLEEPS: &str =
        "FROM pg_stat_activity WHERE query LIKE '%pg_sleep(3600)%' AND pid <> pg_backend_pid()";
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let daemon = daemon(dir.path(), &postgres)
        .set("[store]\ncheckpoint_quiet = \"100ms\"")
        .start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.submit("work", "", "first").unwrap();
    wait_until("a checkpoint has passed", || daemon_points(&daemon) > 0);
    let mut reader =
        postgres.begin("BEGIN; LOCK TABLE windlass.pages IN SHARE MODE; SELECT pg_sleep(3600)");
    wait_until("the table is locked", || {
        postgres.number(&format!("SELECT count(*) {SLEEPS}")) == 1
    });
    let made = daemon_points(&daemon);
    peer.submit("work", "", "second").unwrap();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    wait_until("a checkpoint waits for the table", || {
        postgres.number(waits) == 1
    });
    let table = || {
        postgres.ask("SELECT md5(string_agg(key::text || value::text, ',' ORDER BY key)) FROM windlass.pages")
    };
    let before = table();
    postgres.ask("UPDATE windlass.lease SET hand_over = 1");
    postgres.ask(&format!("SELECT pg_terminate_backend(pid) {SLEEPS}"));
    reader.wait().unwrap();
    wait_until("the checkpoint has ended", || {
        daemon_points(&daemon) > made || daemon.log_text().contains("checkpoint failed")
    });
    assert_eq!(
        (daemon_points(&daemon), table()),
        (made, before),
        "{}",
        daemon.log_text()
    );
}

/// How many checkpoints the daemon has made.
fn daemon_points(daemon: &Daemon) -> u64 {
    let metrics = common::http::Http(daemon.address("http")).get("/metrics");
    let line = metrics
        .text()
        .lines()
        .find(|line| line.starts_with("windlass_checkpoints_total"));
    line.and_then(|line| line.split(' ').next_back()?.parse().ok())
        .unwrap_or_default()
}

// ---- commands -------------------------------------------------------------------------------------------------------

/// The lines of an export, in order. What a store keeps, line by line, without what a move changes: the heading and the
/// ending, which name the moment and the commit, and the engine's own values, which count how often the store was
/// opened.
fn exported(place: &str) -> Vec<String> {
    let changes = |line: &str| {
        ["windlass_export", "export_end", "engine"]
            .iter()
            .any(|key| line[2..].starts_with(key))
    };
    let salvaged = said(&["salvage", place]);
    let mut lines: Vec<String> = salvaged
        .lines()
        .filter(|line| !changes(line))
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

#[test]
fn a_move_there_and_back_gives_an_equal_store() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let (data, back) = (dir.path().join("data"), dir.path().join("back"));
    let (data, back) = (data.to_str().unwrap(), back.to_str().unwrap());
    let url = postgres.url();
    let mut files = common::daemon(dir.path()).start();
    let mut peer = Peer::connect(files.address("gearman")).unwrap();
    for number in 0..500_usize {
        peer.submit(
            &format!("q{}", number % 7),
            &format!("u{number}"),
            vec![b'x'; number * 37 % 9_000],
        )
        .unwrap();
    }
    let mut spider = spiderq::Bare::connect(files.address("spiderq"));
    assert_eq!(spider.ask(&spiderq::add("entry", b"value")), spiderq::ADDED);
    stop(&mut files);
    let before = exported(data);
    let told = said(&["move", "--to", &url, "--data-dir", data]);
    assert!(told.starts_with("moved 501 jobs, 8 queues, "), "{told}");
    let after = exported(&url);
    let differs = after
        .iter()
        .zip(&before)
        .find(|(after, before)| after != before);
    assert_eq!((differs, after.len()), (None, before.len()));
    let told = said(&["verify", &url]);
    assert!(told.starts_with("ok: 501 jobs, 8 queues, "), "{told}");
    // Neither place takes a store on top of another one, and the old one is not served by mistake.
    assert!(refused(&["verify", data], 4).contains("it is missing"));
    let other = tempfile::tempdir().unwrap();
    let mut files = common::daemon(other.path()).start();
    stop(&mut files);
    let other = other.path().join("data");
    let why = refused(
        &["move", "--to", &url, "--data-dir", other.to_str().unwrap()],
        4,
    );
    assert!(why.contains("has a store already"), "{why}");
    let set = format!("postgres.url={url}");
    let why = refused(&["move", "--to", other.to_str().unwrap(), "--set", &set], 4);
    assert!(why.contains("has a store already"), "{why}");
    // It serves, and goes back.
    let plan = tempfile::tempdir().unwrap();
    let mut served = daemon(plan.path(), &postgres).start();
    stop(&mut served);
    said(&["move", "--to", back, "--set", &set]);
    let after = exported(back);
    let differs = after
        .iter()
        .zip(&before)
        .find(|(after, before)| after != before);
    assert_eq!((differs, after.len()), (None, before.len()));
    assert!(refused(&["verify", &url], 4).contains("moved to another store"));
}

#[test]
fn damage_is_told_and_the_rest_is_saved() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let mut daemon = daemon(dir.path(), &postgres).start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    (0..20).for_each(|number| drop(peer.submit("work", "", format!("{number}")).unwrap()));
    stop(&mut daemon);
    assert!(said(&["verify", &postgres.url()]).starts_with("ok: 20 jobs"));
    assert!(said(&["compact", &postgres.url()]).starts_with("the table takes up "));
    assert!(said(&["verify", &postgres.url()]).starts_with("ok: 20 jobs"));
    assert!(exported(&postgres.url()).len() >= 20);
    // A page of the table changes, and a commit is missing.
    postgres
        .ask("UPDATE windlass.pages SET value = set_byte(value, 40, 7) WHERE get_byte(key, 0) = 2");
    let why = refused(&["verify", &postgres.url()], 4);
    assert!(why.contains("damaged"), "{why}");
    let output = windlass(&["salvage", &postgres.url()]);
    assert_eq!(
        output.status.code(),
        Some(5),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let why = refused(
        &[
            "serve",
            "--accept-loss",
            "--set",
            &format!("postgres.url={}", postgres.url()),
        ],
        4,
    );
    assert!(
        why.contains("--accept-loss is for data directories"),
        "{why}"
    );
}

#[test]
fn a_password_is_read_from_its_file_and_never_shown() {
    const PASSWORD: &str = "a-secret-of-the-jobs";
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    postgres.ask(&format!(
        "CREATE ROLE jobs LOGIN PASSWORD '{PASSWORD}'; GRANT CREATE ON DATABASE postgres TO jobs"
    ));
    postgres.ask_for_passwords_of("jobs");
    let file = dir.path().join("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    let url = postgres.url().replace("windlass@", "jobs@");
    let section =
        format!("[postgres]\nurl = {url:?}\npassword_file = {file:?}\n[log]\nlevel = \"debug\"\n");
    let mut daemon = common::daemon(dir.path()).set(&section).start();
    Peer::connect(daemon.address("gearman"))
        .unwrap()
        .submit("work", "", "body")
        .unwrap();
    stop(&mut daemon);
    assert!(!daemon.log_text().contains(PASSWORD));
    let wrong = dir.path().join("wrong");
    std::fs::write(&wrong, "another\n").unwrap();
    let why = refused(
        &[
            "verify",
            &url,
            "--set",
            &format!("postgres.password_file={}", wrong.display()),
        ],
        4,
    );
    assert!(
        why.contains("password authentication failed") && !why.contains("another\n"),
        "{why}"
    );
    let why = refused(
        &[
            "verify",
            &url.replace("jobs@", &format!("jobs:{PASSWORD}@")),
        ],
        2,
    );
    assert!(
        why.contains("postgres.password_file") && !why.contains(PASSWORD),
        "{why}"
    );
}

#[test]
fn over_tls_the_server_is_verified() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let [trusted, other] =
        [(), ()].map(|()| rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap());
    postgres.use_certificate(&trusted.cert.pem(), &trusted.signing_key.serialize_pem());
    let url = postgres.url().replace("127.0.0.1", "localhost");
    let [ca, wrong] = ["ca.pem", "wrong.pem"].map(|name| dir.path().join(name));
    std::fs::write(&ca, trusted.cert.pem()).unwrap();
    std::fs::write(&wrong, other.cert.pem()).unwrap();
    let section = format!("[postgres]\nurl = {url:?}\nsslmode = \"verify-full\"\nca_file = {ca:?}");
    let mut daemon = common::daemon(dir.path()).set(&section).start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.submit("work", "", "body").unwrap();
    assert_ne!(
        postgres.number("SELECT count(*) FROM pg_stat_ssl WHERE ssl"),
        0
    );
    stop(&mut daemon);
    let with = |key: &str, value: &Path| format!("postgres.{key}={}", value.display());
    let full = "postgres.sslmode=verify-full";
    assert!(
        said(&[
            "verify",
            &url,
            "--set",
            full,
            "--set",
            &with("ca_file", &ca)
        ])
        .starts_with("ok: 1 job,")
    );
    let why = refused(
        &[
            "verify",
            &url,
            "--set",
            full,
            "--set",
            &with("ca_file", &wrong),
        ],
        4,
    );
    assert!(why.contains("certificate"), "{why}");
    let why = refused(
        &[
            "verify",
            &postgres.url(),
            "--set",
            full,
            "--set",
            &with("ca_file", &ca),
        ],
        4,
    );
    assert!(why.contains("certificate"), "another name: {why}");
}
