//! The history of ended jobs in the database.

#[path = "../../../crates/history/src/cases.rs"]
mod cases;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_engine::JobId;
use windlass_history::shelf::Shelf;
use windlass_history::{Book, DAY_MS, Hours, Question};
use windlass_postgres::{Address, Database, SslMode};
use windlass_testkit::daemon::Daemon;

use super::{daemon, said, stop};
use crate::common::ended::{rows, wait_for_rows};
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::ledger::{Ledger, Persistent, SETTINGS, recorded, wait_for_all};
use crate::common::postgres::Postgres;
use crate::common::{from_env, wait_for_log, wait_until};

/// A shelf in a schema of this server, with a lease of epoch 1.
fn shelf(postgres: &Postgres, schema: &str) -> Arc<dyn Shelf> {
    postgres.ask(&format!(
        "CREATE SCHEMA {schema};
         CREATE TABLE {schema}.lease AS SELECT 1 AS id, 1::bigint AS epoch, 'another' AS holder, now() AS until,
             0::smallint AS hand_over"
    ));
    Arc::new(Database::at(Address {
        url: postgres.url(),
        password_file: PathBuf::new(),
        ssl_mode: SslMode::Auto,
        ca_file: PathBuf::new(),
        schema: schema.to_owned(),
        lease: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(5),
        link: String::new(),
        cluster: String::new(),
        speaks: 0,
    }))
}

#[test]
fn a_database_answers_as_every_shelf_does_whatever_its_encoding() {
    for encoding in ["UTF8", "LATIN1", "SQL_ASCII"] {
        let postgres = Postgres::encoded(encoding, &[]);
        for (number, case) in cases::ALL.into_iter().enumerate() {
            case(&shelf(&postgres, &format!("case_{number}")));
        }
    }
}

/// Tables of an earlier daemon have no column for the namespace: they are read as they are, and whoever writes adds it.
#[test]
fn tables_without_namespaces_are_read_and_then_written() {
    let postgres = Postgres::start();
    let shelf = shelf(&postgres, "earlier");
    let book = cases::book(&shelf, &[cases::ended(1, DAY_MS)]);
    postgres.ask(
        "ALTER TABLE earlier.ended DROP COLUMN namespace; ALTER TABLE earlier.hours DROP COLUMN namespace",
    );
    let found = |namespace: Option<&'static str>| {
        let question = Question {
            namespace: namespace.map(Into::into),
            queue: Some("mail".into()),
            ..Question::default()
        };
        let hours = Hours {
            until_ms: u64::MAX,
            namespace: question.namespace.clone(),
            ..Hours::default()
        };
        let hours = book.hours(&hours).unwrap().rows;
        let done: u64 = hours.iter().map(|hour| hour.done).sum();
        (cases::jobs(&book.ask(&question).unwrap()), done)
    };
    assert_eq!(found(None), (vec![1], 1));
    assert_eq!(found(Some("")), (vec![1], 1));
    assert_eq!(found(Some("shop")), (vec![], 0));
    let mut writer = shelf.writer(cases::OWNER).unwrap();
    let mut of_shop = cases::ended(2, DAY_MS + 2);
    of_shop.namespace = "shop".into();
    // One goes to the partition that is there, the other one to a new one.
    for (commit, keep_ms) in [(2, 7 * DAY_MS), (3, DAY_MS)] {
        of_shop.job = JobId(commit);
        of_shop.ended_at.0 += 1;
        of_shop.keep_ms = keep_ms;
        let rows = cases::in_commit(commit, std::slice::from_ref(&of_shop));
        assert_eq!(writer.write(&rows, commit).unwrap(), 1);
    }
    assert_eq!(found(None), (vec![3, 2, 1], 3));
    assert_eq!(found(Some("")), (vec![1], 1));
    assert_eq!(found(Some("shop")), (vec![3, 2], 2));
}

/// Whoever has lost the lease adds nothing and deletes nothing.
#[test]
fn a_daemon_that_was_replaced_does_not_write_the_history() {
    let postgres = Postgres::start();
    let shelf = shelf(&postgres, "replaced");
    let row = cases::ended(1, DAY_MS);
    let book = cases::book(&shelf, &[row]);
    let mut writer = shelf.writer(cases::OWNER).unwrap();
    postgres.ask("UPDATE replaced.lease SET epoch = epoch + 1");
    let refused = writer.sync(7).unwrap_err();
    assert!(refused.is_deposed(), "{refused}");
    let file = writer.files().unwrap()[0].file;
    assert!(writer.delete(file).unwrap_err().is_deposed());
    assert_eq!(writer.position().unwrap(), 1);
    assert_eq!(cases::jobs(&book.ask(&Question::default()).unwrap()), [1]);
}

/// Pushes a job over HTTP, takes it and ends it.
fn end(http: Http, queue: &str, body: &str, how: &str, report: &str) {
    let pushed = http.post(&format!("/api/v1/queues/{queue}/jobs?retries=-1"), body);
    assert_eq!(pushed.status, 201, "{}", pushed.text());
    end_next(http, queue, how, report);
}

fn end_next(http: Http, queue: &str, how: &str, report: &str) {
    let taken = http.post(&format!("/api/v1/queues/{queue}/take"), "");
    assert_eq!(taken.status, 200, "{}", taken.text());
    let lease = taken.json()["lease"].as_str().unwrap().to_owned();
    let ended = http.post(&format!("/api/v1/leases/{lease}/{how}"), report);
    assert!(ended.status < 300, "{}", ended.text());
}

#[test]
fn each_kind_of_end_has_its_row_and_can_be_asked_for() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let settings = "[history]\nkeep = \"7d\"\n[queues.q]\nhistory = { body = \"1KiB\" }\n";
    let mut daemon = daemon(dir.path(), &postgres).set(settings).start();
    let http = Http(daemon.address("http"));
    end(http, "q", "the body of one", "done", "");
    end(http, "q", "two", "fail", r#"{"message": "no luck"}"#);
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let push = r#"PUSH {"jid":"order-4711","jobtype":"Send","queue":"mail","args":[],"retry":0}"#;
    assert_eq!(fwp.ask(push), "+OK");
    assert!(fwp.ask("FETCH mail").contains("order-4711"));
    let fail = r#"FAIL {"jid":"order-4711","errtype":"IOError","message":"m"}"#;
    assert_eq!(fwp.ask(fail), "+OK");
    let gone = http.post("/api/v1/queues/q/jobs", "never run").json()["id"].to_string();
    assert!(http.delete(&format!("/api/v1/jobs/{gone}")).status < 300);

    let all = wait_for_rows(http, "", 4);
    let outcomes: Vec<&str> = all
        .iter()
        .map(|row| row["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["done", "dead", "failed", "cancelled"]);
    for (question, expected) in [
        ("queue=q", 3),
        ("queue=q&outcome=dead,done", 2),
        ("name=order-4711", 1),
        ("kind=Send", 1),
        ("text=BODY+of", 1),
        ("text=ioerror", 1),
        ("text=nowhere", 0),
        ("queue=none", 0),
    ] {
        assert_eq!(rows(http, question).len(), expected, "{question}");
    }
    let id = all[0]["id"].as_str().unwrap();
    let day = id.split('.').next().unwrap();
    assert_eq!(rows(http, &format!("day={day}")).len(), 4);
    assert_eq!(id, format!("{day}.7d.1"));
    let one = http.get(&format!("/api/v1/ended/{id}")).json();
    assert_eq!(one["body"]["text"], json!("the body of one"));
    let none = http.get(&format!("/api/v1/ended/{day}.7d.99"));
    assert_eq!(none.status, 404, "{}", none.text());
    // A page at a time.
    let first = http.get("/api/v1/ended?limit=3").json();
    assert_eq!(first["ended"].as_array().map(Vec::len), Some(3));
    let next = first["next"].as_str().unwrap();
    let second = http
        .get(&format!("/api/v1/ended?limit=3&cursor={next}"))
        .json();
    assert_eq!(second["ended"][0]["id"], all[0]["id"]);
    assert_eq!(second["next"], Value::Null);

    let total = &http.get("/api/v1/ended/hours").json()["total"];
    assert_eq!(
        [&total["done"], &total["failed"], &total["other"]],
        [1, 2, 1]
    );
    let kinds = http.get("/api/v1/ended/kinds").json().to_string();
    assert!(kinds.contains("Send"), "{kinds}");
    assert_eq!(http.metric("windlass_history_rows_total"), 4.0);
    assert_eq!(http.get("/history").status, 200);

    let again = http.post(&format!("/api/v1/ended/{id}/again"), "");
    assert!(again.status < 300, "{}", again.text());
    end_next(http, "q", "done", "");
    let job = &all[0]["job"];
    let runs = wait_for_rows(http, &format!("again_of={job}"), 1);
    assert_eq!(runs[0]["body"]["text"], json!("the body of one"));

    // People ask the tables.
    let named = "SELECT ending, error FROM windlass.ended WHERE name = 'order-4711'";
    assert_eq!(postgres.ask(named), "failed|IOError");
    let file = "SELECT DISTINCT file FROM windlass.ended";
    assert_eq!(postgres.ask(file), format!("{day}.7d"));
    stop(&mut daemon);
    // Other commands do not mind the tables.
    assert!(said(&["verify", &postgres.url()]).starts_with("ok"));
    assert!(said(&["compact", &postgres.url()]).contains("bytes"));
    assert!(!said(&["salvage", &postgres.url()]).contains("order-4711"));
    daemon.restart();
    wait_for_rows(Http(daemon.address("http")), "", 5);
}

/// Clients of both protocols. A machine that is busy may cost the daemon its lease for a moment.
fn load(ledger: &Arc<Ledger>, daemon: &Daemon) -> Persistent {
    let [faktory, gearman] = ["faktory", "gearman"].map(|protocol| daemon.address(protocol));
    Persistent::start(ledger, &[faktory], &[gearman])
}

#[test]
fn each_acknowledged_end_is_in_the_history_once_whatever_kills_the_daemon() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    // Short enough for checkpoints between the kills.
    let mut daemon = daemon(dir.path(), &postgres)
        .set("[store]\ncheckpoint = \"1MiB\"")
        .set(SETTINGS)
        .start();
    let ledger = Arc::new(Ledger::default());
    for round in 0..from_env("WINDLASS_TEST_ENDED_ROUNDS", 4) {
        let clients = load(&ledger, &daemon);
        clients.wait_for_more(700);
        daemon.kill();
        clients.end();
        daemon.restart();
        println!(
            "round {round}: {} acknowledged",
            ledger.acknowledged().len()
        );
    }
    let all = wait_for_all(&ledger, Http(daemon.address("http")));
    stop(&mut daemon);
    daemon.restart();
    assert_eq!(recorded(&ledger, Http(daemon.address("http"))), all);
    assert_eq!(
        postgres.number("SELECT count(DISTINCT file) FROM windlass.ended"),
        2,
        "rows are kept for two times"
    );
}

#[test]
fn each_acknowledged_end_is_in_the_history_once_although_the_database_is_killed() {
    let (mut postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let daemon = daemon(dir.path(), &postgres).set(SETTINGS).start();
    let ledger = Arc::new(Ledger::default());
    let clients = load(&ledger, &daemon);
    for _ in 0..3 {
        clients.wait_for_more(500);
        postgres.kill();
        let asked = Http(daemon.address("http")).get("/api/v1/ended");
        assert_eq!(asked.json()["code"], "unavailable", "{asked:?}");
        postgres.restart();
        clients.wait_for_more(100);
    }
    clients.end();
    wait_for_all(&ledger, Http(daemon.address("http")));
}

/// How many commits each table of the log has.
fn commits(postgres: &Postgres) -> [u64; 8] {
    std::array::from_fn(|table| {
        postgres.number(&format!("SELECT count(*) FROM windlass.log_{table}"))
    })
}

/// The log outgrows its tables: commits find their place all the same.
#[test]
fn what_the_history_cannot_write_waits_in_the_log_over_checkpoints_and_kills() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let mut daemon = daemon(dir.path(), &postgres)
        .set("[store]\ncheckpoint = \"128KiB\"\ncheckpoint_quiet = \"100ms\"")
        .set(SETTINGS)
        .start();
    let ledger = Arc::new(Ledger::default());
    let http = |daemon: &Daemon| Http(daemon.address("http"));
    let clients = load(&ledger, &daemon);
    clients.wait_for_more(50);
    clients.end();
    wait_for_all(&ledger, http(&daemon));
    postgres.ask("ALTER TABLE windlass.history_at RENAME TO away");
    for _ in 0..2 {
        let clients = load(&ledger, &daemon);
        clients.wait_for_more(3_000);
        wait_for_log(&daemon, "the history is not written");
        daemon.kill();
        clients.end();
        // Nor does a command let the log forget, which knows of no history.
        said(&["compact", &postgres.url()]);
        daemon.restart();
    }
    let before = commits(&postgres);
    assert!(
        before.iter().all(|count| *count > 0),
        "all are used: {before:?}"
    );
    postgres.ask("ALTER TABLE windlass.away RENAME TO history_at");
    wait_for_all(&ledger, http(&daemon));
    assert_eq!(
        http(&daemon).metric("windlass_history_rows_left_out_total"),
        0.0
    );
    // The log is let go, as far as the next checkpoints come.
    let body = "x".repeat(8 << 10);
    wait_until("the log is small again", || {
        let queue = http(&daemon).post("/api/v1/queues/other/jobs", &body);
        assert_eq!(queue.status, 201);
        commits(&postgres).iter().sum::<u64>() < before.iter().sum::<u64>() / 4
    });
}

#[test]
fn a_day_whose_time_is_over_is_dropped() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let mut daemon = daemon(dir.path(), &postgres).set(SETTINGS).start();
    let http = Http(daemon.address("http"));
    end(http, "q", "x", "done", "");
    wait_for_rows(http, "", 1);
    let parts = || -> BTreeSet<String> {
        let list =
            "SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r' ORDER BY relname";
        postgres.ask(list).lines().map(str::to_owned).collect()
    };
    let before = parts();
    assert_eq!(before.len(), 2);
    for table in ["ended", "hours"] {
        postgres.ask(&format!(
            "CREATE TABLE windlass.{table}_2020_02_29_7d PARTITION OF windlass.{table} FOR VALUES IN ('2020-02-29.7d')"
        ));
    }
    assert_eq!(parts().len(), 4);
    // Days are tidied when a daemon begins to lead, and each minute.
    stop(&mut daemon);
    daemon.restart();
    wait_until("the day is dropped", || parts() == before);
    wait_for_log(&daemon, "a day of the history was deleted");
    assert_eq!(rows(Http(daemon.address("http")), "").len(), 1);
}

/// Prints how long rows take to be written, and questions to be answered.
///
/// `WINDLASS_HISTORY_ROWS=1700000 cargo test --release -p windlass --test cluster many_rows -- --ignored --nocapture`
#[test]
#[ignore = "a measurement: it wants a quiet machine"]
fn questions_to_many_rows() {
    const BATCH: u64 = 20_000;
    let rows = from_env("WINDLASS_HISTORY_ROWS", 200_000);
    let postgres = Postgres::with(&["fsync=on"]);
    let shelf = shelf(&postgres, "many");
    let mut writer = shelf.writer(cases::OWNER).unwrap();
    let begun = Instant::now();
    for batch in 0..rows.div_ceil(BATCH) {
        let made: Vec<_> = (batch * BATCH..rows.min((batch + 1) * BATCH))
            .map(|n| windlass_engine::Ended {
                queue: format!("queue-{}", n % 100).into(),
                ..cases::ended(n, DAY_MS + n * (DAY_MS - 1) / rows)
            })
            .collect();
        writer
            .write(&cases::in_commit(batch + 1, &made), batch + 1)
            .unwrap();
    }
    println!(
        "a row is written in {:?}",
        begun.elapsed() / u32::try_from(rows).unwrap()
    );
    println!("it takes {} bytes", writer.files().unwrap()[0].bytes / rows);
    // Autovacuum does so within a minute.
    postgres.ask("ANALYZE many.ended");
    let book = Book::new(shelf);
    let any = Question::default;
    let questions = [
        ("the newest", any()),
        (
            "a queue",
            Question {
                queue: Some("queue-7".into()),
                ..any()
            },
        ),
        (
            "a name",
            Question {
                name: Some("jid-4711".into()),
                ..any()
            },
        ),
        (
            "a job",
            Question {
                job: Some(JobId(4_711)),
                ..any()
            },
        ),
        (
            "a text that is nowhere (bounded at 1 s)",
            Question {
                text: Some("nowhere".into()),
                ..any()
            },
        ),
    ];
    for (what, question) in questions {
        let begun = Instant::now();
        let answer = book.ask(&question).unwrap();
        let more = answer.next.is_some();
        println!(
            "{what}: {:?}, {} rows, more: {more}",
            begun.elapsed(),
            answer.rows.len()
        );
    }
}
