//! `windlass import faktory-redis`: imports from a Redis with Faktory's data, and checks that a daemon then has its
//! jobs.
//!
//! The Redis is a minimal one of our own; with `WINDLASS_TEST_REDIS=/usr/bin/redis-server`, the real one.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::fake_redis;
use crate::common::faktory::Fwp;
use crate::common::{daemon, wait_until};

/// A Redis for one test.
struct Redis {
    address: String,
    process: Option<Child>,
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Redis {
    fn start(dir: &Path) -> Self {
        let Some(program) = std::env::var_os("WINDLASS_TEST_REDIS") else {
            return Self {
                address: fake_redis::start(None).to_string(),
                process: None,
            };
        };
        let socket = dir.join("redis.sock");
        let mut command = Command::new(program);
        command
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(dir);
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Self {
            address: format!("unix://{}", socket.display()),
            process: Some(process),
        };
        wait_until("Redis answers", || {
            fake_redis::ask(&redis.address, &["PING"]).is_ok()
        });
        redis
    }

    /// Runs commands, each of words separated by blanks; a job contains none.
    fn tell(&self, commands: &[String]) {
        for command in commands {
            fake_redis::ask(&self.address, &command.split(' ').collect::<Vec<_>>()).unwrap();
        }
    }

    /// Everything in it that can hold a job.
    fn contents(&self) -> Vec<Vec<String>> {
        let ask = |words: &[&str]| fake_redis::ask(&self.address, words).unwrap();
        let lists = ["default", "q:default", "q:hidden", "old"];
        let sets = ["scheduled", "retries", "dead", "working"];
        let lists = lists.map(|key| ask(&["LRANGE", key, "0", "-1"]));
        let sets = sets.map(|key| ask(&["ZRANGE", key, "0", "-1", "WITHSCORES"]));
        lists.into_iter().chain(sets).collect()
    }
}

fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// A job as Faktory writes it into a queue.
fn job(jid: &str, queue: &str, more: &str) -> String {
    format!(
        r#"{{"retry":25,{more}"jid":"{jid}-12345678","queue":"{queue}","jobtype":"T","created_at":"2026-11-21T03:59:09.366883261Z","enqueued_at":"2026-11-21T03:59:09.367Z","args":[12345678901234567890,1.0,"a\u003cb"]}}"#
    )
}

const FAILED: &str = r#""failure":{"failed_at":"2026-11-21T03:00:00Z","next_at":"2026-11-21T03:00:20Z","message":"no","errtype":"E","retry_count":1,"remaining":24},"custom":{"big":9007199254740993},"#;

/// Faktory's data: both layouts, a queue missing from the set of names, every sorted set.
fn faktory(redis: &Redis) {
    let soon = now_s() + 3_600;
    let add = |key: &str, at: u64, entry: String| format!("ZADD {key} {at}.5 {entry}");
    let reservation = format!(
        r#"{{"job":{},"reserved_at":"2026-11-21T04:00:00Z","expires_at":"2026-11-21T04:30:00Z","wid":"w1"}}"#,
        job("working", "default", "")
    );
    redis.tell(&[
        "SADD queues default old empty".to_owned(),
        "SADD paused old".to_owned(),
        "SET v 1".to_owned(),
        "SET processed 77".to_owned(),
        "SET processed:2026-11-21 77".to_owned(),
        // The first in is the first out.
        format!("LPUSH q:default {}", job("new1", "default", "")),
        format!("LPUSH q:default {}", job("new2", "default", FAILED)),
        format!("LPUSH default {}", job("stranded1", "default", "")),
        format!("LPUSH default {}", job("stranded2", "default", "")),
        format!("LPUSH old {}", job("old1", "old", "")),
        format!("LPUSH q:hidden {}", job("hidden1", "hidden", "")),
        add("scheduled", soon, job("later", "default", "")),
        add("scheduled", 5, job("due", "due", "")),
        add("retries", soon, job("retried", "default", FAILED)),
        add("dead", soon, job("dead1", "default", FAILED)),
        add("working", soon, reservation),
    ]);
}

const FAKTORYS_JOBS: usize = 11;

fn import(dir: &Path, redis: &Redis, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .args(["import", "faktory-redis", "--data-dir"])
        .arg(dir.join("data"))
        .arg(&redis.address)
        .args(more);
    command.env_clear().stdin(Stdio::null()).output().unwrap()
}

/// Its output, after checking the exit code.
fn printed(output: &Output, code: i32) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    format!("{out}{err}")
}

#[test]
fn all_jobs_of_faktory_are_imported() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path());
    faktory(&redis);
    let before = redis.contents();
    let said = printed(&import(dir.path(), &redis, &[]), 0);
    for line in [
        "not imported: Faktory's counters of jobs processed and failed; they begin anew\n",
        "2 imported: queue \"default\"\n",
        "2 imported: queue \"q:default\"\n",
        "1 imported: queue \"q:hidden\"\n",
        "2 imported: scheduled\n",
        "1 imported: working\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(
        said.ends_with(&format!("{FAKTORYS_JOBS} jobs: {FAKTORYS_JOBS} imported\n")),
        "{said}"
    );
    assert_eq!(redis.contents(), before, "Redis is only read");

    let daemon = daemon(dir.path()).start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let info = fwp.ask("INFO");
    for part in [
        r#""queues":{"default":4,"due":1,"empty":0,"hidden":1,"old":1}"#,
        r#""sets":{"dead":1,"retries":1,"scheduled":1,"working":1}"#,
    ] {
        assert!(info.contains(part), "{part}: {info}");
    }
    // The oldest first, byte for byte.
    for (jid, more) in [
        ("stranded1", ""),
        ("stranded2", ""),
        ("new1", ""),
        ("new2", FAILED),
    ] {
        assert_eq!(fwp.ask("FETCH default"), job(jid, "default", more));
    }
    assert_eq!(
        fwp.ask("FETCH old hidden due"),
        job("hidden1", "hidden", ""),
        "a paused queue stays paused"
    );
    assert!(
        fwp.ask("FETCH due").contains("\"jid\":\"due-12345678\""),
        "a due job is due"
    );
    // The worker that held it when Faktory stopped can end it here.
    assert_eq!(
        fwp.ask(r#"FAIL {"jid":"working-12345678","errtype":"E","message":"m"}"#),
        "+OK"
    );
    assert!(
        fwp.ask("INFO")
            .contains(r#""sets":{"dead":1,"retries":2,"scheduled":1,"working":6}"#)
    );
}

#[test]
fn jobs_and_queues_go_into_a_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path());
    faktory(&redis);
    for more in [&[][..], &["--namespace", "shop"]] {
        let said = printed(&import(dir.path(), &redis, more), 0);
        assert!(
            said.contains(&format!(": {FAKTORYS_JOBS} imported\n")),
            "{said}"
        );
    }
    let listen = "[\"127.0.0.1:0\", { address = \"127.0.0.1:0\", namespace = \"shop\" }]";
    let set = format!("[namespaces.shop]\n[faktory]\nlisten = {listen}\n");
    let daemon = daemon(dir.path()).set(&set).start();
    for address in daemon.addresses("faktory") {
        let mut fwp = Fwp::connect(address);
        let info = fwp.ask("INFO");
        for part in [
            r#""queues":{"default":4,"due":1,"empty":0,"hidden":1,"old":1}"#,
            r#""sets":{"dead":1,"retries":1,"scheduled":1,"working":1}"#,
        ] {
            assert!(info.contains(part), "{part}: {info}");
        }
        assert_eq!(fwp.ask("FETCH old"), "null", "a paused queue stays paused");
    }
}

#[test]
fn a_second_import_takes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path());
    faktory(&redis);
    printed(&import(dir.path(), &redis, &[]), 0);
    let mut daemon = daemon(dir.path()).start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert!(fwp.ask("FETCH hidden").contains("hidden1"));
    assert_eq!(fwp.ask(r#"ACK {"jid":"hidden1-12345678"}"#), "+OK");
    assert!(printed(&import(dir.path(), &redis, &[]), 4).contains("is in use by another process"));
    daemon.signal("TERM");
    daemon.wait();

    let said = printed(&import(dir.path(), &redis, &[]), 0);
    let before = format!("{FAKTORYS_JOBS} imported earlier from");
    assert!(
        said.contains("jobs: 0 imported") && said.contains(&before),
        "{said}"
    );
    // With `--again` they are imported once more, except those that still exist here.
    let said = printed(&import(dir.path(), &redis, &["--again"]), 0);
    assert!(
        said.contains("jobs: 1 imported") && said.contains("10 here already, with the same jid"),
        "{said}"
    );
    // The same applies if the contents have changed.
    redis.tell(&[format!("LPUSH q:default {}", job("new3", "default", ""))]);
    let said = printed(&import(dir.path(), &redis, &[]), 0);
    assert!(
        said.contains("12 jobs: 1 imported") && said.contains("11 here already"),
        "{said}"
    );
}

#[test]
fn imported_jobs_are_removed_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path());
    faktory(&redis);
    // Enough for several pages, with an invalid one in their midst.
    let many = |n: usize| {
        if n == 700 {
            "{}".to_owned()
        } else {
            job(&format!("many{n}"), "default", "")
        }
    };
    redis.tell(
        &(0..2_500)
            .map(|n| format!("LPUSH q:default {}", many(n)))
            .collect::<Vec<_>>(),
    );
    redis.tell(&["ZADD dead 9e9 nonsense".to_owned()]);
    let said = printed(&import(dir.path(), &redis, &["--remove"]), 5);
    let taken = FAKTORYS_JOBS + 2_499;
    assert!(
        said.contains(&format!("{taken} removed from Redis\n")),
        "{said}"
    );
    assert!(
        said.contains("queue \"q:default\", job 703 left: `{}`: jobs must have a reasonable jid"),
        "{said}"
    );
    let kept: Vec<_> = redis
        .contents()
        .into_iter()
        .filter(|key| !key.is_empty())
        .collect();
    assert_eq!(
        kept,
        [
            vec!["{}".to_owned()],
            vec!["nonsense".to_owned(), "9000000000".to_owned()]
        ]
    );
    // Repaired entries are imported; the rest is here already.
    redis.tell(&[
        "ZREM dead nonsense".to_owned(),
        "LREM q:default -1 {}".to_owned(),
    ]);
    redis.tell(&[format!("LPUSH q:default {}", job("many700", "default", ""))]);
    assert!(
        printed(&import(dir.path(), &redis, &["--remove"]), 0)
            .contains("1 job: 1 imported\n1 removed")
    );
    let daemon = daemon(dir.path()).start();
    let info = Fwp::connect(daemon.address("faktory")).ask("INFO");
    assert!(info.contains(r#""default":2504"#), "{info}");
}

#[test]
fn invalid_jobs_are_named_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path());
    faktory(&redis);
    redis.tell(&[
        format!("LPUSH q:default {}", job("lost", "elsewhere", "")),
        format!("ZADD working 9e9 {}", job("nobody", "default", "")),
        "SET retrying x".to_owned(),
        "SADD other x".to_owned(),
        "LPUSH list x".to_owned(),
    ]);
    let said = printed(
        &import(dir.path(), &redis, &["--set", "limits.jobs_max=9"]),
        5,
    );
    for line in [
        "queue \"q:default\", job 3 left: jid \"lost-12345678\": its queue field is \"elsewhere\"\n",
        "not a reservation\n",
        "not imported: key \"retrying\", which does not hold jobs of a Faktory\n",
        "not imported: key \"list\"",
        "daemon is full: jobs 9, limit 9",
        "13 jobs: 9 imported",
        "windlass: 4 jobs are left",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let said = printed(&import(dir.path(), &redis, &[]), 5);
    assert!(
        said.contains("13 jobs: 2 imported") && said.contains("windlass: 2 jobs are left"),
        "{said}"
    );
}

#[test]
fn a_dry_run_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path());
    faktory(&redis);
    let _faktory = fake_redis::connect(&redis.address).unwrap();
    let said = printed(&import(dir.path(), &redis, &["--dry-run"]), 0);
    assert!(
        said.contains("1 would be imported: working\n")
            && said.contains("11 jobs: 11 would be imported"),
        "{said}"
    );
    assert!(!dir.path().join("data").exists());
}

#[test]
fn an_invalid_or_busy_redis_is_reported_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path());
    faktory(&redis);
    {
        let _faktory = fake_redis::connect(&redis.address).unwrap();
        let said = printed(&import(dir.path(), &redis, &[]), 2);
        assert!(
            said.contains("is connected to it: stop Faktory first, or its jobs run twice"),
            "{said}"
        );
        assert!(!dir.path().join("data").exists(), "nothing was begun");
        assert!(printed(&import(dir.path(), &redis, &["--shared"]), 0).contains("11 imported"));
    }
    let at = |address: &str| Redis {
        address: address.to_owned(),
        process: None,
    };
    let table = [
        ("unix:///no/such.sock", "cannot connect: "),
        ("redis", "a URL, a path or host:port expected"),
        ("rediss://localhost", "TLS to Redis is not supported"),
    ];
    for (address, reason) in table {
        let said = printed(&import(dir.path(), &at(address), &[]), 2);
        assert!(
            said.starts_with("windlass: ") && said.contains(reason),
            "{said}"
        );
    }
    let locked = fake_redis::start(Some("secret")).to_string();
    let said = printed(&import(dir.path(), &at(&locked), &[]), 2);
    assert!(
        said.to_lowercase().contains("authentication required"),
        "{said}"
    );
    let said = printed(
        &import(dir.path(), &at(&format!("redis://:secret@{locked}")), &[]),
        0,
    );
    assert!(said.contains("0 jobs: 0 imported"), "{said}");
    let said = printed(
        &import(dir.path(), &at(&format!("redis://:wrong@{locked}")), &[]),
        2,
    );
    assert!(
        !said.contains("wrong@") && said.contains(&format!("redis://{locked}: cannot connect")),
        "{said}"
    );
}

#[test]
fn jobs_of_batches_are_left_or_imported_without_their_batch() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path());
    redis.tell(&[
        "SADD queues default".to_owned(),
        format!("LPUSH q:default {}", job("alone", "default", "")),
        format!(
            "LPUSH q:default {}",
            job("member", "default", r#""custom":{"bid":"b-gone"},"#)
        ),
    ]);
    let said = printed(&import(dir.path(), &redis, &["--dry-run"]), 5);
    let left = "queue \"q:default\", job 2 left: jid \"member-12345678\": it is in a batch that does not exist here; --without-batches imports it without its batch";
    assert!(said.contains(left), "{said}");
    printed(&import(dir.path(), &redis, &[]), 5);
    let said = printed(&import(dir.path(), &redis, &["--without-batches"]), 0);
    assert!(
        said.contains("2 jobs: 1 imported\n1 of these imported without their batches, which do not exist here\n"),
        "{said}"
    );
    assert!(
        printed(&import(dir.path(), &redis, &["--without-batches"]), 0)
            .contains("2 jobs: 0 imported\n")
    );

    let daemon = daemon(dir.path()).start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert!(fwp.ask("FETCH default").contains("alone-12345678"));
    assert!(
        fwp.ask("FETCH default")
            .contains(r#""custom":{"bid":"b-gone"},"jid":"member-12345678""#)
    );
    assert_eq!(fwp.ask(r#"ACK {"jid":"member-12345678"}"#), "+OK");
}
