//! The commands for operators, as a person or a script runs them.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use windlass_testkit::daemon::Daemon;

use crate::common;
use crate::common::authority::Authority;
use crate::common::faktory;

/// An operator on the machine of the daemon whose data is in `dir`.
struct Operator<'a>(&'a Path);

impl Operator<'_> {
    fn run(&self, line: &str, input: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .args(line.split(' '))
            .arg("--data-dir")
            .arg(self.0.join("data"))
            .env_clear();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    }

    #[track_caller]
    fn says(&self, line: &str) -> String {
        let output = self.run(line, "");
        let (said, error) = (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        );
        assert!(
            output.status.success() && error.is_empty(),
            "{line}: {error}"
        );
        said
    }

    #[track_caller]
    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.says(&format!("{line} --json"))).unwrap()
    }

    #[track_caller]
    fn refused(&self, line: &str) -> String {
        let output = self.run(line, "");
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert_eq!(output.stdout, b"", "{line}");
        String::from_utf8(output.stderr).unwrap()
    }
}

fn started(dir: &Path) -> Daemon {
    common::daemon(dir).set("[http]\nlisten = []\n").start()
}

/// What bash makes of the line's last word.
fn completed(dir: &Path, line: &str) -> Vec<String> {
    const ASK: &str = r#"
        source <("$1" completions bash)
        COMP_LINE=$2 COMP_POINT=${#2}
        _windlass "$1"
        ((${#COMPREPLY[@]})) && printf '%s\n' "${COMPREPLY[@]}""#;
    let line = format!("windlass --data-dir {} {line}", dir.join("data").display());
    let words = ["-c", ASK, "bash", env!("CARGO_BIN_EXE_windlass"), &line];
    let output = Command::new("bash").args(words).output().unwrap();
    assert!(output.stderr.is_empty(), "{line}: {output:?}");
    let mut found: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    found.sort();
    found
}

#[test]
fn a_shell_completes_what_the_daemon_has_and_no_name_that_it_would_run() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = started(dir.path());
    let operator = Operator(dir.path());
    for queue in ["mails", "app:mails", "$(id)"] {
        operator.says(&format!("push {queue} hello"));
    }
    operator.says("kill 2");
    let table: [(&str, &[&str]); 8] = [
        ("pau", &["pause"]),
        ("pause ", &["app:mails", "mails", "spiderq"]),
        ("pause app:m", &["mails"]),
        ("jobs --queue m", &["mails"]),
        ("jobs --queue=m", &["mails"]),
        ("jobs --state de", &["dead"]),
        ("job ", &["1", "2", "3"]),
        ("retry ", &["2"]),
    ];
    for (line, expected) in table {
        assert_eq!(completed(dir.path(), line), expected, "{line}");
    }
    drop(daemon);
    assert_eq!(
        completed(dir.path(), "pause ma"),
        [] as [&str; 0],
        "without the daemon"
    );
}

#[test]
fn a_job_from_push_to_done() {
    let dir = tempfile::tempdir().unwrap();
    let _daemon = started(dir.path());
    let operator = Operator(dir.path());
    assert_eq!(
        operator.says("push mails hello --priority 9 --retries 0"),
        "1\n"
    );
    let output = operator.run("push mails", "from standard input");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "2\n");
    let taken = operator.json("take mails --lease 5m --worker shell");
    assert_eq!((&taken["id"], &taken["body"]), (&1.into(), &"hello".into()));
    let said = operator.says("job 1");
    assert!(
        said.contains("why           the worker shell has it, since 2"),
        "{said}"
    );
    let lease = taken["lease"].as_str().unwrap();
    assert_eq!(operator.says(&format!("done {lease} fine")), "");
    assert_eq!(
        operator.refused("job 1"),
        "windlass: there is no job 1: a job that has ended is forgotten\n"
    );
    let said = operator.says("take mails");
    assert!(said.contains("body      from standard input\n"), "{said}");
    let lease = said.split_whitespace().nth(1).unwrap();
    assert_eq!(operator.says(&format!("fail {lease} broken")), "retrying\n");
    assert_eq!(operator.says("job 2 --body"), "from standard input");
    assert_eq!(
        operator.refused("take mails"),
        "windlass: the queue mails has no job for this worker\n"
    );
    assert!(operator.says("retry 2").contains("ready"));
    assert!(operator.says("kill 2").contains("dead"));
    let said = operator.says("jobs --state dead");
    let words: Vec<Vec<&str>> = said
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(words[0][..4], ["ID", "STATE", "QUEUE", "KIND"], "{said}");
    assert_eq!(
        (&words[1][..4], words.len()),
        (&["2", "dead", "mails", "mails"][..], 2),
        "{said}"
    );
    assert!(said.contains("broken"), "{said}");
    operator.says(r#"push welcome {"jobtype":"Mail","args":[1]} --protocol faktory"#);
    assert_eq!(operator.json("jobs --queue welcome")["protocol"], "faktory");
    assert!(
        operator
            .refused("push welcome {} --protocol faktory")
            .contains("jobs must have a jobtype parameter")
    );
}

#[test]
fn queues_are_paused_and_cleared_but_not_by_accident() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = started(dir.path());
    let operator = Operator(dir.path());
    for queue in ["a", "b/c", "b/c"] {
        operator.says(&format!("push {queue} x"));
    }
    assert!(
        operator
            .says("pause a b/c")
            .lines()
            .filter(|line| line.contains("  paused since 2"))
            .count()
            == 2
    );
    assert!(!operator.says("resume b/c").contains("paused"));
    let rows: Vec<Value> = operator
        .says("queues --json")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        rows.iter()
            .map(|row| row["name"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["spiderq", "a", "b/c"]
    );
    assert!(operator.refused("clear b/c").contains("it requires --yes"));
    assert!(operator.refused("delete 1").contains("it requires --yes"));
    assert_eq!(operator.says("clear b/c --yes"), "2 jobs removed\n");
    assert_eq!(operator.says("delete --yes 1"), "");
    assert!(
        operator
            .refused("resume none")
            .contains("there is no queue none: `windlass queues` lists them")
    );
    let new = operator.run("pause none", "");
    assert!(
        new.status.success() && String::from_utf8_lossy(&new.stderr).contains("none is new"),
        "{new:?}"
    );
    assert!(
        operator
            .says("limit none --jobs 5")
            .contains("paused since 2")
            && operator.says("queues").contains("limited")
    );
    let throttled = operator.json(r#"throttle none {"concurrency":8,"worker":2,"timeout":"1h"}"#);
    assert_eq!(
        throttled,
        operator.json("throttle none --concurrency 8 --per-worker 2 --timeout 1h")
    );
    assert_eq!(
        operator.json(r#"limit none {"jobs":7}"#),
        operator.json("limit none --jobs 7")
    );
    assert!(operator.refused(r#"limit none {"job":7}"#).contains("job"));
    assert!(
        operator
            .refused("limit none 7")
            .contains("an object of JSON expected")
    );
    assert!(
        operator
            .refused("limit none {")
            .contains("the JSON ends too early")
    );
    for line in ["jobs --queue nosuch", "dead --queue nosuch"] {
        let said = operator.refused(line);
        assert!(
            said.contains("there is no queue nosuch: `windlass queues` lists them"),
            "{line}: {said}"
        );
    }
    assert!(
        operator.says("jobs --queue none").contains("STATE"),
        "a queue without jobs is no mistake"
    );
    assert!(
        operator
            .refused("remove none")
            .contains("it requires --yes")
    );
    assert_eq!(operator.says("remove none --yes"), "");
    assert!(!operator.says("queues").contains("none"));
    let status = operator.says("status");
    assert!(
        status.starts_with("windlass  ") && status.contains("\njobs      none\n"),
        "{status}"
    );
    assert!(operator.says("workers").starts_with("WORKER"));
    assert!(
        operator
            .refused("quiet nobody")
            .contains("there is no worker nobody: `windlass workers` lists them")
    );
    assert_eq!(operator.says("quiet --all"), "");

    let socket = dir.path().join("data/operator.sock");
    assert_eq!(
        socket.metadata().unwrap().permissions().mode() & 0o777,
        0o660,
        "the directory decides who may use it"
    );
    assert_eq!(
        dir.path()
            .join("data")
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
    drop(daemon);
    let said = operator.refused("status");
    assert!(
        said.contains("operator.sock") && said.contains("--data-dir"),
        "{said}"
    );
}

#[test]
fn schedules_are_run_paused_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let cron = "[http]\nlisten = []\n[[faktory.cron]]\nschedule = \"0 3 * * *\"\ntimezone = \"Europe/Berlin\"\njob = { type = \"Report\" }\n";
    let mut daemon = common::daemon(dir.path()).set(cron).start();
    let operator = Operator(dir.path());
    let schedule = operator.json("schedules");
    assert_eq!(
        (&schedule["when"], &schedule["paused"]),
        (&"CRON_TZ=Europe/Berlin 0 3 * * *".into(), &false.into())
    );
    assert!(
        schedule["name"]
            .as_str()
            .unwrap()
            .starts_with("configuration: "),
        "{schedule}"
    );
    let id = &schedule["id"];
    let job = operator.says(&format!("schedule run {id}"));
    assert_eq!(
        operator.json(&format!("job {}", job.trim()))["kind"],
        "Report"
    );
    assert!(
        operator.says("schedules").contains("unserved"),
        "no worker has ever come"
    );
    assert!(
        operator
            .says(&format!("schedule pause {id}"))
            .contains("paused")
    );
    daemon.kill();
    daemon.restart();
    assert_eq!(
        operator.json("schedules")["next_at"],
        Value::Null,
        "it stays paused"
    );
    let resumed = operator.json(&format!("schedule resume {id}"));
    assert_eq!(resumed["next_at"], schedule["next_at"]);
    assert!(
        operator
            .refused(&format!("schedule remove {id}"))
            .contains("it requires --yes")
    );
    assert_eq!(operator.says(&format!("schedule remove {id} --yes")), "");
    assert!(
        operator
            .refused(&format!("schedule run {id}"))
            .contains("there is no schedule")
    );
}

#[test]
fn batches_are_shown_and_connections_closed() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = started(dir.path());
    let operator = Operator(dir.path());
    let mut fwp = faktory::Fwp::connect(daemon.address("faktory"));
    let batch =
        fwp.ask(r#"BATCH NEW {"description":"nightly","success":{"jid":"callback-1","jobtype":"Done","args":[]}}"#);
    fwp.ask(&format!(
        r#"PUSH {{"jid":"member-01","jobtype":"Part","args":[],"custom":{{"bid":"{batch}"}}}}"#
    ));
    let shown = operator.json(&format!("batch {batch}"));
    assert_eq!(
        (&shown["description"], &shown["total"], &shown["success"]),
        (&"nightly".into(), &1.into(), &"none".into())
    );
    assert_eq!(operator.json("batches")["name"], batch.as_str());
    assert!(
        operator
            .refused("batch none")
            .contains("there is no batch none: `windlass batches` lists them")
    );
    fwp.ask(r#"PUSH {"jid":"elsewhere","jobtype":"Part","args":[]}"#);
    let member = operator.json(&format!("jobs --batch {batch}"));
    assert_eq!(
        (&member["name"], &member["batch_role"]),
        (&"member-01".into(), &"job".into())
    );
    assert_eq!(
        operator.json(&format!("job {}", member["id"]))["batch"],
        batch.as_str()
    );
    assert_eq!(operator.says("jobs --batch none --json"), "");
    fwp.ask(&format!("BATCH COMMIT {batch}"));
    fwp.ask("FETCH default");
    fwp.ask(r#"ACK {"jid":"member-01"}"#);
    common::wait_until("only the callback is left", || {
        operator.json(&format!("jobs --batch {batch}"))["batch_role"] == "success"
    });
    let callback = operator.json(&format!("jobs --batch {batch}"));
    assert_eq!(
        operator.json(&format!("job {}", callback["id"]))["batch"],
        batch.as_str()
    );
    // A batch that came later does not lend its name.
    fwp.ask(r#"BATCH NEW {"description":"later"}"#);
    assert_eq!(operator.json("job elsewhere")["batch"], Value::Null);

    let mut worker = common::Peer::connect(daemon.address("gearman")).unwrap();
    worker.can_do("f").unwrap();
    worker.submit("f", "", "x").unwrap();
    worker.grab().unwrap().unwrap();
    let rows = operator.says("connections --json");
    let row = rows
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|row| row["protocol"] == "gearman")
        .unwrap();
    assert_eq!((&row["queues"][0], &row["jobs"]), (&"f".into(), &1.into()));
    assert!(
        operator
            .refused(&format!("disconnect {}", row["id"]))
            .contains("it requires --yes")
    );
    operator.says(&format!("disconnect {} --yes", row["id"]));
    common::wait_until("its connection is closed", || worker.grab().is_err());
    common::wait_until("its job is back", || {
        operator.json("jobs --queue f")["state"] == "ready"
    });
    assert!(
        operator
            .refused("disconnect 999999 --yes")
            .contains("there is no connection 999999: `windlass connections` lists them")
    );
}

#[test]
fn a_daemon_is_asked_at_its_address() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let nowhere = tempfile::tempdir().unwrap();
    let operator = Operator(nowhere.path());
    let url = format!("http://{}", daemon.address("http"));
    assert_eq!(
        operator.json(&format!("status --url {url}"))["state"],
        "ready"
    );
    assert!(operator.refused("status").contains("no daemon answers at "));
    let ca = nowhere.path().join("ca.pem");
    std::fs::write(&ca, Authority::new().certificate).unwrap();
    let without_tls = operator.refused(&format!(
        "status --url {} --ca {}",
        url.replace("http", "https"),
        ca.display()
    ));
    assert!(
        without_tls.contains("the server does not use TLS: use http://"),
        "{without_tls}"
    );
    assert!(
        operator
            .refused("status --url ftp://x")
            .contains("expected http://HOST:PORT or https://HOST/PATH")
    );
}

#[test]
fn an_ephemeral_daemon_prints_its_addresses_and_keeps_nothing() {
    use std::io::{BufRead as _, BufReader};

    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .args(["serve", "--ephemeral", "--log-level", "warn"])
        .env_clear()
        .current_dir(dir.path());
    let mut daemon = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(daemon.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let addresses: Value = serde_json::from_str(&line).unwrap();
    let names: Vec<&String> = addresses.as_object().unwrap().keys().collect();
    let eventmq = [
        "eventmq",
        "eventmq-admin",
        "eventmq-publish",
        "eventmq-subscribe",
    ];
    assert_eq!(
        names,
        [&eventmq[..], &["faktory", "gearman", "http", "spiderq"]].concat()
    );
    let address = |name: &str| addresses[name].as_str().unwrap().parse().unwrap();
    let http = common::http::Http(address("http"));
    let wait = |terms: &str| http.post(&format!("/api/v1/wait?until=empty{terms}"), "");
    assert_eq!(wait("").json()["dead"], 0);

    let mut peer = common::Peer::connect(address("gearman")).unwrap();
    peer.submit("f", "", "x").unwrap();
    assert_eq!(wait("&timeout=50ms").status, 409);
    assert_eq!(wait("&timeout=50ms&queue=other").status, 200);
    assert_eq!(http.post("/api/v1/wait?until=full", "").status, 400);
    let waiting =
        std::thread::spawn(move || http.post("/api/v1/wait?until=empty&queue=f", "").status);
    peer.can_do("f").unwrap();
    let job = peer.grab().unwrap().unwrap();
    peer.complete(&job.handle).unwrap();
    assert_eq!(waiting.join().unwrap(), 200);
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "nothing on the disk"
    );
    assert!(
        Command::new("kill")
            .arg(daemon.id().to_string())
            .status()
            .unwrap()
            .success()
    );
    assert!(daemon.wait().unwrap().success());
    assert_eq!(
        std::io::read_to_string(daemon.stderr.unwrap()).unwrap(),
        "",
        "nothing to warn of"
    );
}

#[test]
fn top_shows_queues_and_its_keys_pause_them() {
    let dir = tempfile::tempdir().unwrap();
    let _daemon = started(dir.path());
    let operator = Operator(dir.path());
    operator.says("push mails hello");
    assert!(operator.refused("top").contains("top requires a terminal"));
    // Gives it a terminal.
    let data = dir.path().join("data");
    let line = format!(
        "stty cols 120 rows 20; exec {:?} top --every 100ms --data-dir {data:?}",
        env!("CARGO_BIN_EXE_windlass")
    );
    let mut command = Command::new("script");
    command
        .args(["-qefc", &line, "/dev/null"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("TERM", "xterm");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("mails") {
        let mut chunk = [0; 4096];
        let read = screen.read(&mut chunk).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&chunk[..read]);
    }
    for paused in [true, false] {
        keys.write_all(b"p").unwrap();
        common::wait_until("the queue is paused or resumed", || {
            let queues = operator.says("queues --json");
            queues.lines().any(|row| {
                row.contains("\"mails\"") && row.contains(&format!("\"paused\":{paused}"))
            })
        });
    }
    keys.write_all(b"q").unwrap();
    screen.read_to_end(&mut shown).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(
        String::from_utf8_lossy(&shown).contains("QUEUE"),
        "{}",
        String::from_utf8_lossy(&shown)
    );
}

#[test]
fn bench_puts_load_on_a_daemon_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let bench = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .arg("bench")
            .args(line.split_whitespace())
            .args(["--jobs", "500", "--data-root"])
            .arg(dir.path());
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let figures = |line: &str| {
        let (code, said, complaint) = bench(&format!("{line} --json"));
        assert_eq!((code, &*complaint), (Some(0), ""), "{line}: {said}");
        let figures: Value = serde_json::from_str(&said).unwrap();
        assert!(
            figures["jobs_per_second"].as_f64().unwrap() > 0.0,
            "{line}: {said}"
        );
        figures
    };
    for line in [
        "gearman --load cycle --durability interval",
        "faktory --load push",
        "spiderq",
        "eventmq --clients 2",
    ] {
        assert!(figures(line)["server_micros_per_job"].is_number(), "{line}");
    }
    for protocol in ["gearman", "faktory"] {
        for load in ["flow", "push", "cycle"] {
            let figures = figures(&format!(
                "{protocol} --load {load} --at {}",
                daemon.address(protocol)
            ));
            assert_eq!(figures["durability"], Value::Null, "{protocol} {load}");
        }
    }
    assert_eq!(
        Operator(dir.path()).json("status")["jobs"],
        0,
        "the queue of the daemon that ran is empty"
    );
    let entries: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert!(
        entries
            .iter()
            .all(|name| !name.to_string_lossy().starts_with("windlass-bench")),
        "{entries:?}"
    );
    let (code, _, complaint) = bench("eventmq --at 127.0.0.1:1");
    assert!(
        code == Some(2) && complaint.contains("in the same queue"),
        "{complaint}"
    );
}
