//! A new operator: what `--help` names first answers the first questions, and pages show the same. Six jobs do not run,
//! each for another reason.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "a part of the tests of the protocol"
)]
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use bytes::BytesMut;
use serde_json::Value;
use windlass_testkit::daemon::{Daemon, Plan};

use crate::common;
use crate::common::faktory::Fwp;
use crate::common::http::{Answer, Http};
use crate::common::spiderq;
use crate::common::{Peer, submission, wait_until};

/// The jobs that do not run, by their numbers, and the code and the words of the reason.
const STUCK: [(u64, &str, &str); 6] = [
    (1, "paused", "the queue paused is paused since 2"),
    (
        3,
        "throttled",
        "jobs in progress hold all slots of the throttle of throttled",
    ),
    (4, "unserved", "no worker serves nobody"),
    (5, "leased", "the worker wid-1 has it, since 2"),
    (6, "scheduled", "it is due at 2"),
    (7, "dead", "the last: disk on fire"),
];

/// The trace of the job that the silent worker has.
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// All jobs, that one included which holds the throttle's slot.
const JOBS: u64 = 7;

/// A person on the daemon's machine, with a terminal and a browser.
struct Newcomer {
    dir: PathBuf,
    http: Http,
}

impl Newcomer {
    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .args(line.split(' '))
            .arg("--data-dir")
            .arg(self.dir.join("data"))
            .env_clear()
            .output()
            .unwrap()
    }

    /// What a command prints.
    #[track_caller]
    fn says(&self, line: &str) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.run(line);
        assert!(
            status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&stderr)
        );
        String::from_utf8(stdout).unwrap()
    }

    /// What a command for a stopped daemon's data prints.
    #[track_caller]
    fn says_of_data(&self, command: &str) -> String {
        let mut program = Command::new(env!("CARGO_BIN_EXE_windlass"));
        let output = program
            .arg(command)
            .arg(self.dir.join("data"))
            .env_clear()
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a page shows.
    #[track_caller]
    fn sees(&self, path: &str) -> String {
        let page = self
            .http
            .request("GET", path, &[("Accept", "text/html")], b"");
        assert_eq!(page.status, 200, "{path}: {page:?}");
        page.text().to_owned()
    }

    /// Presses a button of a page, as a browser does.
    #[track_caller]
    fn presses(&self, path: &str, label: &str) -> Answer {
        let page = self.sees(path);
        let button = page
            .split("<button")
            .find(|button| button.contains(&format!(">{label}</button>")));
        let sends =
            button.and_then(|button| button.split("data-send=\"").nth(1)?.split('"').next());
        let (method, change) = sends
            .unwrap_or_else(|| panic!("{label} on {path}: {page}"))
            .split_once(' ')
            .unwrap();
        let headers = [
            ("Sec-Fetch-Site", "same-origin"),
            ("Origin", "http://localhost"),
        ];
        let answer = self
            .http
            .request(method, &format!("/api/v1{change}"), &headers, b"");
        assert!(
            (200..300).contains(&answer.status),
            "{label} on {path}: {answer:?}"
        );
        answer
    }

    fn count(&self) -> Value {
        serde_json::from_str::<Value>(&self.says("status --json")).unwrap()["jobs"].clone()
    }
}

/// The jobs of [`STUCK`], made on purpose. The worker is silent, and stays connected.
fn make(newcomer: &Newcomer, daemon: &Daemon) -> Fwp {
    // Settings may come before the jobs.
    newcomer.says("pause paused");
    newcomer.says("throttle throttled --concurrency 1");
    newcomer.says("push paused a");
    newcomer.says("push throttled b");
    newcomer.says("push throttled c");
    newcomer.says("take throttled --lease 1h --worker busy-1");
    newcomer.says("push nobody d");
    let mut silent = Fwp::connect(daemon.address("faktory"));
    let trace = format!(",\"custom\":{{\"traceparent\":\"{TRACE}\"}}");
    let job =
        r#""jid":"report-0001","jobtype":"Report","args":[],"queue":"reports","reserve_for":3600"#;
    assert_eq!(silent.ask(&format!("PUSH {{{job}{trace}}}")), "+OK");
    assert!(silent.ask("FETCH reports").contains("report-0001"));
    newcomer.says("push later e --delay 2h");
    newcomer.says("push broken f --retries=-1");
    let taken: Value = serde_json::from_str(&newcomer.says("take broken --json")).unwrap();
    let mut fail = Command::new(env!("CARGO_BIN_EXE_windlass"));
    fail.args([
        "fail",
        taken["lease"].as_str().unwrap(),
        "disk on fire",
        "--data-dir",
    ]);
    assert!(
        fail.arg(newcomer.dir.join("data"))
            .env_clear()
            .output()
            .unwrap()
            .status
            .success()
    );
    silent
}

fn newcomer(dir: &Path, daemon: &Daemon) -> Newcomer {
    Newcomer {
        dir: dir.to_owned(),
        http: Http(daemon.address("http")),
    }
}

#[test]
fn help_leads_to_every_answer() {
    let printed = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        let output = command
            .args(line.split_whitespace())
            .env_clear()
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}");
        String::from_utf8(output.stdout).unwrap()
    };
    let help = |command: &str| printed(&format!("{command} --help"));
    let all = help("");
    let first = all.split("First questions:").nth(1).unwrap();
    for command in ["windlass status", "windlass job ID", "windlass queues"] {
        assert!(first.contains(command), "{command}: {all}");
    }
    let commands = [
        "retry", "pause", "clear", "quiet", "drain", "export", "import", "explain", "jobs",
        "workers",
    ];
    for command in commands {
        assert!(
            all.lines()
                .any(|line| line.trim_start().starts_with(&format!("{command} "))),
            "{command}: {all}"
        );
        assert!(help(command).contains("Usage: windlass"), "{command}");
    }
    for (_, code, _) in STUCK {
        assert!(printed(&format!("explain {code}")).contains(code), "{code}");
    }
}

#[test]
fn a_new_operator_asks_and_acts_by_command_and_by_page() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = common::daemon(dir.path()).start();
    let newcomer = newcomer(dir.path(), &daemon);
    let mut silent = make(&newcomer, &daemon);

    // How many jobs are there?
    let status = newcomer.says("status");
    for part in ["1 dead", "2 leased", "3 ready", "1 scheduled"] {
        assert!(status.contains(part), "{part}: {status}");
    }
    assert!(
        newcomer
            .sees("/")
            .contains(&format!("<b data-jobs>{JOBS}</b>"))
    );
    assert_eq!(newcomer.count(), JOBS);

    // Why does this one not run, and who has it?
    for (id, code, words) in STUCK {
        let said = newcomer.says(&format!("job {id}"));
        assert!(said.contains(words), "{code}: {said}");
        let page = newcomer.sees(&format!("/jobs/{id}"));
        assert!(
            page.contains(&format!("<strong>{code}</strong>: ")) && page.contains(words),
            "{code}: {page}"
        );
    }
    let page = newcomer.sees("/jobs/3");
    assert!(
        page.contains("<a href=\"/jobs/2\">2</a>"),
        "the job that holds the slot: {page}"
    );
    let said = newcomer.says("job 3");
    assert!(
        said.lines()
            .any(|line| line.starts_with("held by ") && line.ends_with(" job 2")),
        "{said}"
    );
    assert!(
        newcomer.sees("/throttles").contains("busy-1") && newcomer.says("job 2").contains("busy-1")
    );
    for shown in [newcomer.says("job 5"), newcomer.sees("/jobs/5")] {
        assert!(shown.contains(TRACE), "{shown}");
    }
    for shown in [newcomer.says("workers"), newcomer.sees("/workers")] {
        assert!(shown.contains("wid-1"), "{shown}");
    }
    for shown in [
        newcomer.says("jobs --state dead --error fire"),
        newcomer.sees("/jobs?state=dead&error=fire"),
    ] {
        assert!(
            shown.contains("disk on fire") && !shown.contains("report-0001"),
            "{shown}"
        );
    }

    // Retry it.
    newcomer.says("retry 7");
    assert!(newcomer.says("job 7").contains("ready"));
    newcomer.presses("/jobs/6", "Retry now");
    assert!(newcomer.sees("/jobs/6").contains("state-ready\">ready"));

    // Take it back from the worker that is silent.
    newcomer.presses("/jobs/5", "Take back");
    assert!(newcomer.says("job 5").contains("ready"));
    assert!(silent.ask("FETCH reports").contains("report-0001"));
    newcomer.says("requeue 5");
    assert!(silent.ask("FETCH reports").contains("report-0001"));

    // Pause, resume and clear.
    newcomer.presses("/queues/paused", "Resume");
    assert!(!newcomer.says("queues").contains("paused since"));
    newcomer.says("pause paused");
    assert!(newcomer.sees("/queues").contains("paused since"));
    newcomer.presses("/queues/nobody/settings", "Clear");
    assert!(
        newcomer.says("jobs --queue nobody").lines().count() == 1,
        "only the head of the table"
    );
    newcomer.says("clear broken --yes");
    assert_eq!(newcomer.count(), JOBS - 2);

    // Quiet a worker.
    assert_eq!(silent.ask(r#"BEAT {"wid":"wid-1"}"#), "+OK");
    newcomer.says("quiet wid-1");
    assert_eq!(
        silent.ask(r#"BEAT {"wid":"wid-1"}"#),
        r#"{"state":"quiet"}"#
    );
    newcomer.presses("/workers", "Stop");
    assert_eq!(
        silent.ask(r#"BEAT {"wid":"wid-1"}"#),
        r#"{"state":"terminate"}"#
    );

    // Drain: by page, and what it waits for by both.
    newcomer.presses("/", "Drain and stop");
    wait_until("the drain is shown", || {
        newcomer
            .sees("/")
            .contains("It waits for 1 job of workers of faktory")
    });
    assert!(newcomer.says("status").contains("1 job of faktory workers"));
    assert_eq!(silent.ask(r#"ACK {"jid":"report-0001"}"#), "+OK");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log_text());
}

/// Jobs in a data directory that another version fills, and what the new version must find of them.
struct Upgraded {
    /// In the queue `many`: most of them ready, every tenth scheduled.
    jobs: u64,
    ready: u64,
}

impl Upgraded {
    /// Leased, dead, of Gearman's, of spiderq's: one each.
    const OTHERS: u64 = 4;

    /// Fills a daemon of any version, in words that all of them know.
    fn fill(daemon: &Daemon, jobs: u64) -> Self {
        const AT_ONCE: u64 = 1_000;
        let mut fwp = Fwp::connect(daemon.address("faktory"));
        let ready = jobs - jobs / 10;
        let mut push = |from: u64, upto: u64, more: &str| {
            for first in (from..upto).step_by(usize::try_from(AT_ONCE).unwrap()) {
                let job = |n| {
                    format!(
                        "{{\"jid\":\"job-{n:08}\",\"jobtype\":\"Send\",\"args\":[{n}],\"queue\":\"many\"{more}}}"
                    )
                };
                let list: Vec<String> = (first..upto.min(first + AT_ONCE)).map(job).collect();
                assert_eq!(fwp.ask(&format!("PUSHB [{}]", list.join(","))), "{}");
            }
        };
        push(0, ready, "");
        push(ready, jobs, ",\"at\":\"2099-01-01T00:00:00Z\"");
        for (jid, retry) in [("held-00001", 25), ("failed-001", -1)] {
            let job = format!(
                "\"jid\":{jid:?},\"jobtype\":\"T\",\"args\":[],\"queue\":{jid:?},\"retry\":{retry}"
            );
            assert_eq!(
                fwp.ask(&format!("PUSH {{{job},\"reserve_for\":86400}}")),
                "+OK"
            );
            assert!(fwp.ask(&format!("FETCH {jid}")).contains(jid));
        }
        assert_eq!(
            fwp.ask(r#"FAIL {"jid":"failed-001","errtype":"E","message":"on fire"}"#),
            "+OK"
        );
        assert_eq!(fwp.ask("QUEUE PAUSE many"), "+OK");
        Peer::connect(daemon.address("gearman"))
            .unwrap()
            .submit("gears", "", "oil")
            .unwrap();
        let mut bare = spiderq::Bare::connect(daemon.address("spiderq"));
        assert_eq!(bare.ask(&spiderq::add("key", b"value")), spiderq::ADDED);
        Self { jobs, ready }
    }

    /// Looks at all of it.
    fn check(&self, newcomer: &Newcomer) {
        let status: Value = serde_json::from_str(&newcomer.says("status --json")).unwrap();
        assert_eq!(status["jobs"], self.jobs + Self::OTHERS, "{status}");
        let states = [
            ("ready", self.ready + 2),
            ("scheduled", self.jobs - self.ready),
            ("leased", 1),
            ("dead", 1),
        ];
        states.iter().for_each(|(state, count)| {
            assert_eq!(status["states"][state], *count, "{state}: {status}")
        });
        assert!(newcomer.sees("/queues/many").contains("paused"));
        assert!(newcomer.says("jobs --state dead").contains("on fire"));
    }

    /// Works on some of it: ends the leased jobs, and takes the waiting ones in their order.
    fn work(&self, daemon: &Daemon) {
        let mut fwp = Fwp::connect(daemon.address("faktory"));
        assert_eq!(fwp.ask(r#"ACK {"jid":"held-00001"}"#), "+OK");
        assert_eq!(fwp.ask("QUEUE RESUME many"), "+OK");
        for n in 0..self.ready.min(100) {
            assert!(
                fwp.ask("FETCH many").contains(&format!("\"job-{n:08}\"")),
                "{n}"
            );
            assert_eq!(fwp.ask(&format!("ACK {{\"jid\":\"job-{n:08}\"}}")), "+OK");
        }
        let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
        worker.can_do("gears").unwrap();
        assert_eq!(worker.grab().unwrap().unwrap().workload, "oil");
        let mut bare = spiderq::Bare::connect(daemon.address("spiderq"));
        assert_eq!(
            bare.lease(false).map(|lease| (lease.key, lease.value)),
            Some(("key".to_owned(), b"value".to_vec()))
        );
    }
}

/// `WINDLASS_TEST_UPGRADE_JOBS` sets the number of jobs, `WINDLASS_TEST_UPGRADE_FROM` names the program of an earlier
/// version: also one without commands for operators, which is stopped by a signal, and whose directory is copied by an
/// export of the new version.
#[test]
fn a_new_operator_upgrades_and_restores() {
    let dir = tempfile::tempdir().unwrap();
    let jobs = common::from_env("WINDLASS_TEST_UPGRADE_JOBS", 20_000);
    let from = std::env::var_os("WINDLASS_TEST_UPGRADE_FROM");
    let old = from.unwrap_or_else(|| env!("CARGO_BIN_EXE_windlass").into());
    let can_drain = Command::new(&old)
        .args(["drain", "--help"])
        .env_clear()
        .output()
        .unwrap()
        .status
        .success();
    let plan = Plan::new(old, dir.path()).set("[limits]\njobs_bytes_max = \"2GiB\"\n");
    let mut daemon = if can_drain { plan } else { plan.without_http() }.start();
    let upgraded = Upgraded::fill(&daemon, jobs);

    // A copy, while the daemon serves if it can, and then its end.
    let file = dir.path().join("jobs.jsonl");
    let export = format!("export -o {}", file.display());
    let operator = |http: Option<std::net::SocketAddr>| {
        let nowhere = ([127, 0, 0, 1], 0).into();
        Newcomer {
            dir: dir.path().to_owned(),
            http: Http(http.unwrap_or(nowhere)),
        }
    };
    let before = operator(daemon.addresses("http").first().copied());
    if can_drain {
        before.says(&export);
        before.says("drain");
    } else {
        daemon.signal("TERM");
    }
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log_text());
    if !can_drain {
        before.says(&export);
    }
    let verified = before.says_of_data("verify");

    // The new version starts where the old one ended.
    let begun = Instant::now();
    let limits = "[limits]\njobs_bytes_max = \"2GiB\"\n";
    let mut daemon = common::daemon(dir.path()).set(limits).start();
    println!(
        "{verified}the new version serves {jobs} jobs after {:?}",
        begun.elapsed()
    );
    upgraded.check(&newcomer(dir.path(), &daemon));
    daemon.kill();
    daemon.restart();
    upgraded.check(&newcomer(dir.path(), &daemon));
    upgraded.work(&daemon);
    daemon.kill();

    // The copy in a new directory.
    let restored = tempfile::tempdir().unwrap();
    let mut import = Command::new(env!("CARGO_BIN_EXE_windlass"));
    import
        .args(["import", "jsonl", "--data-dir"])
        .arg(restored.path().join("data"))
        .arg(&file);
    let output = import
        .args(["--set", "limits.jobs_bytes_max=2GiB"])
        .env_clear()
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let daemon = common::daemon(restored.path()).set(limits).start();
    upgraded.check(&newcomer(restored.path(), &daemon));
    upgraded.work(&daemon);
}

/// `WINDLASS_TEST_PAGE_JOBS` sets the number of jobs, and the times are printed.
#[test]
fn the_pages_of_a_long_queue() {
    const AT_ONCE: u64 = 5_000;
    const LOOKS: usize = 50;
    let dir = tempfile::tempdir().unwrap();
    let jobs = common::from_env("WINDLASS_TEST_PAGE_JOBS", 20_000);
    let limits =
        "durability = \"interval\"\n[limits]\njobs_max = 20000000\njobs_bytes_max = \"12GiB\"\n";
    let daemon = common::daemon(dir.path()).set(limits).start();
    let mut producer = Peer::connect(daemon.address("gearman")).unwrap();
    let mut many = BytesMut::new();
    (0..AT_ONCE).for_each(|_| submission("many", "", "sixteen bytes ok", true).encode(&mut many));
    for _ in 0..jobs / AT_ONCE {
        producer.send_raw(&many).unwrap();
        (0..AT_ONCE).for_each(|_| drop(producer.packet().unwrap()));
    }
    let newcomer = newcomer(dir.path(), &daemon);
    let next = |page: &str| {
        let link = page
            .split("rel=\"next\" href=\"")
            .nth(1)?
            .split('"')
            .next()?;
        Some(link.replace("&amp;", "&"))
    };
    for path in [
        "/queues/many",
        "/jobs?queue=many",
        "/jobs?queue=many&state=ready",
        "/jobs",
        "/queues",
        "/",
    ] {
        let (mut times, mut at) = (Vec::new(), path.to_owned());
        for _ in 0..LOOKS {
            let begun = Instant::now();
            let page = newcomer.sees(&at);
            times.push(begun.elapsed());
            if path.contains("queue=many") {
                assert_eq!(page.matches("data-id=").count(), 100, "{at}");
            }
            if let Some(query) = next(&page) {
                at = format!("{}{query}", path.split('?').next().unwrap());
            }
        }
        times.sort_unstable();
        println!(
            "{jobs} jobs, {path}: p50 {:?}, the slowest of {LOOKS} {:?}",
            times[LOOKS / 2],
            times[LOOKS - 1]
        );
    }
    assert_eq!(newcomer.count(), jobs);
}
