//! Exports of the real daemon: while it serves, from its directory, and back.

mod namespaces;
mod states;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use states::{fill, fill_much, lacking, started};
use windlass_engine::{Limits, Protocol, Totals};
use windlass_store::StoreConfig;
use windlass_table_sled::SledTables;
use windlass_testkit::daemon::Daemon;
use windlass_testkit::store::Fingerprint;

use crate::common;
use crate::common::http::Http;
use crate::common::{Peer, daemon, wait_until};

/// A directory with data, exports and copies.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Runs a command on the data in the directory `data`.
    fn run(&self, data: &str, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .args(args)
            .arg("--data-dir")
            .arg(self.path(data))
            .env_clear()
            .output()
            .unwrap()
    }

    /// The same for a command that must succeed. Returns both outputs.
    #[track_caller]
    fn says(&self, data: &str, args: &[&str]) -> (String, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = self.run(data, args);
        let (said, error) = (
            String::from_utf8(stdout).unwrap(),
            String::from_utf8(stderr).unwrap(),
        );
        assert!(status.success(), "{args:?}: {said}{error}");
        (said, error)
    }

    /// The reason of a command that must fail with this code.
    #[track_caller]
    fn refused(&self, data: &str, args: &[&str], code: i32) -> String {
        let output = self.run(data, args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        error
    }

    fn lines(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(name)).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The engine in a directory, as the next daemon would have it.
    fn print(&self, data: &str) -> Fingerprint {
        let config = StoreConfig::new(self.path(data), SledTables::default());
        let opened = windlass_store::open(&config, Limits::default(), 1).unwrap();
        Fingerprint::of(&opened.recovered.engine)
    }
}

fn stop(mut daemon: Daemon) {
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log_text());
}

fn queue_bodies(lines: &[Value], queue: &str) -> Vec<u64> {
    let jobs = lines
        .iter()
        .filter(|line| line.get("job").is_some() && line["queue"] == queue);
    let body = |job: &Value| {
        BASE64_STANDARD
            .decode(job["body_base64"].as_str().unwrap())
            .unwrap()
    };
    jobs.map(|job| String::from_utf8(body(job)).unwrap().parse().unwrap())
        .collect()
}

/// One client pushes numbers, one worker takes and ends them in their order. So at every commit the queue holds all
/// numbers from one to another.
struct Traffic {
    stop: Arc<AtomicBool>,
    pushed: Arc<AtomicU64>,
    ended: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Traffic {
    fn begin(daemon: &Daemon) -> Self {
        let address = daemon.address("gearman");
        let (stop, pushed, ended) = (
            Arc::<AtomicBool>::default(),
            Arc::<AtomicU64>::default(),
            Arc::default(),
        );
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&pushed));
        let pusher = thread::spawn(move || {
            let mut peer = Peer::connect(address).unwrap();
            for n in 1.. {
                if stopped.load(Ordering::Acquire) {
                    break;
                }
                peer.submit("numbers", "", n.to_string()).unwrap();
                count.store(n, Ordering::Release);
            }
        });
        let (stopped, last, count): (_, _, Arc<AtomicU64>) =
            (Arc::clone(&stop), Arc::clone(&pushed), Arc::clone(&ended));
        let worker = thread::spawn(move || {
            let mut peer = Peer::connect(address).unwrap();
            peer.can_do("numbers").unwrap();
            loop {
                // Some numbers are always left.
                if last.load(Ordering::Acquire) < count.load(Ordering::Acquire) + 20 {
                    if stopped.load(Ordering::Acquire) {
                        break;
                    }
                    thread::yield_now();
                    continue;
                }
                let job = peer.grab().unwrap().unwrap();
                peer.complete(&job.handle).unwrap();
                count.fetch_add(1, Ordering::Release);
            }
        });
        let threads = vec![pusher, worker];
        let traffic = Self {
            stop,
            pushed,
            ended,
            threads,
        };
        wait_until("some traffic", || {
            traffic.ended.load(Ordering::Acquire) > 100
        });
        traffic
    }

    fn figures(&self) -> (u64, u64) {
        (
            self.ended.load(Ordering::Acquire),
            self.pushed.load(Ordering::Acquire),
        )
    }

    fn end(self) {
        self.stop.store(true, Ordering::Release);
        self.threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn an_export_under_load_shows_one_moment_and_restores_everything() {
    let home = Home::new();
    let daemon = started(&home, 3);
    fill(&daemon, &home);
    let traffic = Traffic::begin(&daemon);
    let still = |lines: &[Value]| -> BTreeSet<String> {
        let entities = ["job", "schedule", "batch", "queue_settings"];
        let is_still = |line: &&Value| entities.iter().any(|it| line.get(it).is_some());
        // A failed job is soon tried again.
        let is_still = |line: &&Value| {
            is_still(line)
                && !["numbers", "failed"]
                    .iter()
                    .any(|queue| line["queue"] == *queue)
        };
        lines
            .iter()
            .filter(is_still)
            .map(Value::to_string)
            .collect()
    };
    let mut seen = BTreeSet::new();
    for round in 0..4 {
        let file = home.text(&format!("export-{round}"));
        let (_, pushed_before) = traffic.figures();
        let (said, error) = home.says("data", &["export", "-o", &file]);
        assert!(
            said.is_empty() && error.contains(" jobs, ") && error.contains(" as of commit "),
            "{said}{error}"
        );
        let (ended_after, pushed_after) = traffic.figures();
        let lines = home.lines(&format!("export-{round}"));
        let numbers = queue_bodies(&lines, "numbers");
        let (first, last) = (numbers[0], *numbers.last().unwrap());
        assert_eq!(
            numbers,
            (first..=last).collect::<Vec<_>>(),
            "all numbers of one moment"
        );
        assert!(
            last >= pushed_before && last <= pushed_after + 1,
            "{pushed_before} {last} {pushed_after}"
        );
        // Two ends may be on their way.
        assert!(first <= ended_after + 2, "{first} {ended_after}");
        seen.insert(lines[0]["commit"].as_u64().unwrap());

        // Untouched jobs are the same in all exports, and come back.
        let copy = format!("copy-{round}");
        let (said, _) = home.says(&copy, &["import", "jsonl", &file]);
        assert!(
            said.starts_with(&format!("{} lines: ", lines.len())),
            "{said}"
        );
        let again = home.text(&format!("again-{round}"));
        home.says(&copy, &["export", "-o", &again]);
        let restored = home.lines(&format!("again-{round}"));
        assert_eq!(queue_bodies(&restored, "numbers"), numbers);
        assert_eq!(still(&restored), still(&lines));
        assert_eq!(still(&restored), still(&home.lines("export-0")));
    }
    assert_eq!(seen.len(), 4, "each shows another commit: {seen:?}");
    traffic.end();

    // A daemon that serves, and nothing that changes: the engines are equal.
    home.says("data", &["export", "-o", &home.text("last")]);
    stop(daemon);
    home.says("equal", &["import", "jsonl", &home.text("last")]);
    let (before, after) = (home.print("data"), home.print("equal"));
    assert_eq!(lacking(&before), Vec::<String>::new());
    assert_eq!(before.differs_from(&after), None);
    // An export under load is equal in all that the load did not touch.
    for round in 0..4 {
        let copy = home.print(&format!("copy-{round}"));
        assert_eq!(
            untouched(&before).differs_from(&untouched(&copy)),
            None,
            "{round}"
        );
    }
    // It is served.
    fs::create_dir(home.path("second")).unwrap();
    fs::rename(home.path("equal"), home.path("second/data")).unwrap();
    let second = common::daemon(&home.path("second")).start();
    let page = Http(second.address("http"))
        .get("/api/v1/queues/dead")
        .json();
    assert_eq!(
        (&page["paused"], &page["states"]["dead"]),
        (&true.into(), &1.into()),
        "{page}"
    );
}

/// A fingerprint without the queue of [`Traffic`], and without the counters that it moves.
fn untouched(print: &Fingerprint) -> Fingerprint {
    let mut print = print.clone();
    let queue = print
        .queues
        .values()
        .find(|queue| queue.name == "numbers")
        .unwrap()
        .id;
    print.queues.remove(&queue);
    print.jobs.retain(|_, job| job.queue != queue);
    print.meta.totals = Totals::default();
    print
        .meta
        .protocols
        .retain(|(protocol, _)| *protocol != Protocol::GEARMAN);
    print.days.clear();
    print
}

/// A command's time, and its peak of memory in MiB.
fn measured(home: &Home, data: &str, args: &[&str]) -> (Duration, u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .args(args)
        .env_clear()
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if args[0] == "salvage" {
        command
            .arg(home.path(data))
            .stdout(fs::File::create(home.path("salvage")).unwrap());
    } else {
        command.arg("--data-dir").arg(home.path(data));
    }
    let (started, mut peak_kib) = (Instant::now(), 0);
    let mut child = command.spawn().unwrap();
    let status = loop {
        let about = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let peak = about.lines().find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .trim()
                .strip_suffix(" kB")?
                .parse()
                .ok()
        });
        peak_kib = peak_kib.max(peak.unwrap_or_default());
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    assert!(status.success(), "{args:?}");
    (started.elapsed(), peak_kib >> 10)
}

/// How long a job takes to be on the disk, one at a time, until `stop`.
fn submit_times(daemon: &Daemon, stop: &Arc<AtomicBool>) -> thread::JoinHandle<Vec<Duration>> {
    let (address, stop) = (daemon.address("gearman"), Arc::clone(stop));
    thread::spawn(move || {
        let (mut peer, mut times) = (Peer::connect(address).unwrap(), Vec::new());
        while !stop.load(Ordering::Acquire) {
            let started = Instant::now();
            peer.submit("timed", "", "x").unwrap();
            times.push(started.elapsed());
        }
        times
    })
}

/// Quantiles in microseconds, and the number.
fn told(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |thousandths: usize| times[(times.len() - 1) * thousandths / 1_000].as_micros();
    format!(
        "{} submits, p50 {} µs, p99 {} µs, longest {} µs",
        times.len(),
        at(500),
        at(990),
        at(1_000)
    )
}

/// `WINDLASS_TEST_EXPORT_JOBS=1000000 cargo test --release -p windlass --test operator export::many -- --nocapture` measures.
#[test]
fn many_jobs_in_all_states_are_equal_after_an_export_and_after_a_salvage() {
    let home = Home::new();
    let jobs = common::from_env("WINDLASS_TEST_EXPORT_JOBS", 4_000);
    let daemon = started(&home, jobs / 20);
    fill(&daemon, &home);
    fill_much(&daemon, &home, jobs);
    let times = |while_doing: &mut dyn FnMut()| {
        let stop = Arc::<AtomicBool>::default();
        let thread = submit_times(&daemon, &stop);
        while_doing();
        stop.store(true, Ordering::Release);
        told(thread.join().unwrap())
    };
    let before = daemon.peak_bytes() >> 20;
    println!(
        "alone: {}",
        times(&mut || thread::sleep(Duration::from_millis(300)))
    );
    for file in ["first", "second"] {
        let mut taken = None;
        let told = times(&mut || {
            taken = Some(measured(&home, "data", &["export", "-o", &home.text(file)]))
        });
        let bytes = fs::metadata(home.path(file)).unwrap().len();
        println!(
            "export {file}: {taken:?} MiB peak, {} MB; meanwhile {told}",
            bytes / 1_000_000
        );
    }
    println!(
        "daemon: {before} MiB peak before, {} MiB after",
        daemon.peak_bytes() >> 20
    );

    // Nothing changes any more, and the daemon serves.
    println!(
        "export: {:?} MiB peak",
        measured(&home, "data", &["export", "-o", &home.text("export")])
    );
    stop(daemon);
    println!(
        "import: {:?} MiB peak",
        measured(&home, "equal", &["import", "jsonl", &home.text("export")])
    );
    println!(
        "salvage: {:?} MiB peak",
        measured(&home, "data", &["salvage"])
    );
    println!(
        "import: {:?} MiB peak",
        measured(
            &home,
            "salvaged",
            &["import", "jsonl", &home.text("salvage")]
        )
    );
    println!(
        "export without a daemon: {:?} MiB peak",
        measured(&home, "data", &["export", "-o", &home.text("stopped")])
    );
    let before = home.print("data");
    assert!(before.jobs.len() as u64 >= jobs, "{before:?}");
    assert_eq!(lacking(&before), Vec::<String>::new());
    for copy in ["equal", "salvaged"] {
        assert_eq!(before.differs_from(&home.print(copy)), None, "{copy}");
    }
    println!(
        "{} jobs, {} queues: equal",
        before.jobs.len(),
        before.queues.len()
    );
}

#[test]
fn a_directory_is_exported_and_a_salvage_is_restored() {
    let home = Home::new();
    let daemon = started(&home, 3);
    fill(&daemon, &home);
    stop(daemon);
    let (export, error) = home.says("data", &["export"]);
    assert!(error.contains("batches as of commit"), "{error}");
    fs::write(home.path("export"), &export).unwrap();
    let salvage = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .arg("salvage")
        .arg(home.path("data"))
        .output()
        .unwrap();
    assert!(salvage.status.success());
    fs::write(home.path("salvage"), &salvage.stdout).unwrap();
    for file in ["export", "salvage"] {
        let (said, _) = home.says(
            &format!("from-{file}"),
            &["import", "jsonl", &home.text(file)],
        );
        assert!(said.contains(" 3 schedules, 5 batches, "), "{said}");
        let (said, _) = home.says(
            &format!("from-{file}"),
            &["import", "jsonl", &home.text(file)],
        );
        assert!(
            said.contains(": nothing imported") && said.contains("imported earlier from"),
            "{said}"
        );
        assert_eq!(
            home.print("data")
                .differs_from(&home.print(&format!("from-{file}"))),
            None,
            "{file}"
        );
    }
    assert!(
        home.refused("nothing", &["export"], 4)
            .contains("no such directory")
    );
    assert!(!home.path("nothing").exists());
    let folder = fs::read_dir(home.path("data/store/log"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    folder
        .filter(|path| path.to_string_lossy().contains("segment-"))
        .for_each(|path| fs::remove_file(path).unwrap());
    let error = home.refused("data", &["export", "-o", &home.text("damaged")], 4);
    assert!(error.contains("windlass salvage"), "{error}");
    assert!(!home.path("damaged").exists());
}

#[test]
fn a_file_that_was_cut_short_or_changed_is_refused() {
    let home = Home::new();
    let daemon = started(&home, 3);
    fill(&daemon, &home);
    home.says("data", &["export", "-o", &home.text("whole")]);
    assert!(
        home.refused("data", &["import", "jsonl", &home.text("whole")], 4)
            .contains("in use")
    );
    stop(daemon);
    let whole = fs::read_to_string(home.path("whole")).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let without = |at: usize| {
        let kept = lines
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != at)
            .map(|(_, line)| *line);
        kept.collect::<Vec<_>>().join("\n")
    };
    let later = whole.replacen("{\"windlass_export\":2,", "{\"windlass_export\":3,", 1);
    let table = [
        (
            "cut",
            whole[..whole.len() / 2].to_owned(),
            "the export is cut short after",
        ),
        (
            "without-end",
            without(lines.len() - 1),
            "its last line is missing",
        ),
        (
            "without-begin",
            without(0),
            "the first line of the export is missing",
        ),
        ("a-line-less", without(7), "lines of the export"),
        (
            "changed",
            whole.replacen("\"attempts\":0", "\"attempts\":1", 1),
            "are not as they were written",
        ),
        (
            "later",
            later,
            "it is an export of version 3; this daemon reads version 2",
        ),
        (
            "twice",
            format!("{whole}{whole}"),
            "an export begins within it",
        ),
        (
            "more",
            format!("{whole}{}\n", lines[9]),
            "there are lines behind the end",
        ),
    ];
    for (name, text, expected) in table {
        fs::write(home.path(name), text).unwrap();
        let error = home.refused("to", &["import", "jsonl", &home.text(name)], 2);
        assert!(
            error.contains(expected) && error.contains("--incomplete imports what is there"),
            "{name}: {error}"
        );
        assert!(!home.path("to").exists(), "{name}");
    }
    let (said, _) = home.says(
        "part",
        &["import", "jsonl", "--incomplete", &home.text("without-end")],
    );
    assert!(said.contains(" jobs, 3 schedules, 5 batches"), "{said}");
    assert_eq!(home.print("part").jobs.len(), home.print("data").jobs.len());
    // Into a directory that has something, jobs are added, and counters go on.
    let (said, _) = home.says("part", &["import", "jsonl", &home.text("whole")]);
    assert!(
        said.contains("here already") && said.contains("without counters"),
        "{said}"
    );
}

/// Reads an answer's head, and as much of its body as `read` takes.
fn begun(daemon: &Daemon) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(daemon.address("http")).unwrap();
    stream
        .write_all(b"GET /api/v1/export HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.contains("filename=\"windlass-export.jsonl\""),
        "{head}"
    );
    reader
}

#[test]
fn a_slow_reader_holds_up_neither_commits_nor_checkpoints() {
    let home = Home::new();
    let set =
        "[store]\ncheckpoint = \"64KiB\"\ncheckpoint_quiet = \"100ms\"\n[log]\nlevel = \"debug\"\n";
    let daemon = daemon(home.0.path()).set(set).start();
    let http = Http(daemon.address("http"));
    let push = || {
        assert_eq!(
            http.post("/api/v1/queues/large/jobs", vec![b'x'; 300_000])
                .status,
            201
        )
    };
    (0..80).for_each(|_| push());
    let mut slow = begun(&daemon);
    let error = home.refused("data", &["export"], 1);
    assert!(error.contains("another export is running"), "{error}");
    let checkpoints = || daemon.log_text().matches("\"records\":").count();
    let before = checkpoints();
    (0..40).for_each(|_| push());
    wait_until("checkpoints go on", || checkpoints() > before + 1);
    let mut text = Vec::new();
    slow.read_to_end(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.matches("{\"job\":").count(), 80, "as of its beginning");
    assert!(text.contains("\"export_end\":") && text.ends_with("\r\n0\r\n\r\n"));
    // A reader that goes away makes room for the next one.
    drop(begun(&daemon));
    wait_until("the next export", || {
        home.run("data", &["export", "-o", &home.text("next")])
            .status
            .success()
    });
    assert_eq!(
        home.lines("next")
            .iter()
            .filter(|line| line.get("job").is_some())
            .count(),
        120
    );
}

#[test]
fn only_an_administrator_exports_and_the_audit_log_has_it() {
    let home = Home::new();
    let login = |role: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        let output = command
            .args(["token", role, "--role", role])
            .output()
            .unwrap();
        let token = String::from_utf8(output.stderr).unwrap().trim().to_owned();
        fs::write(home.path(role), &token).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    fs::write(
        home.path("logins"),
        ["read", "operate", "admin"].map(login).concat(),
    )
    .unwrap();
    let (logins, audit) = (home.path("logins"), home.path("audit"));
    let set =
        format!("[http]\nlisten = [\"127.0.0.1:0\"]\nlogins = {logins:?}\naudit = {audit:?}\n");
    let daemon = daemon(home.0.path()).set(&set).start();
    let url = format!("http://{}", daemon.address("http"));
    let export = |role: &str| {
        home.run(
            "data",
            &["export", "--url", &url, "--login", &home.text(role)],
        )
    };
    for role in ["read", "operate"] {
        let output = export(role);
        assert_eq!(
            (output.status.code(), &output.stdout[..]),
            (Some(1), &b""[..]),
            "{role}"
        );
        assert!(String::from_utf8_lossy(&output.stderr).contains("requires the role admin"));
    }
    assert!(export("admin").status.success());
    let audit = fs::read_to_string(audit).unwrap();
    let lines: Vec<Value> = audit
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let told: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                line["who"].as_str().unwrap(),
                line["status"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(told, [("read", 403), ("operate", 403), ("admin", 200)]);
    assert!(
        lines
            .iter()
            .all(|line| line["change"] == "GET /api/v1/export"),
        "{audit}"
    );
}

#[test]
fn an_ephemeral_daemon_is_exported_too() {
    let home = Home::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .args(["serve", "--ephemeral", "--log-level", "error"])
        .env_clear()
        .current_dir(home.0.path());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let addresses: Value = serde_json::from_str(&line).unwrap();
    let url = format!("http://{}", addresses["http"].as_str().unwrap());
    let address = url.strip_prefix("http://").unwrap().parse().unwrap();
    assert_eq!(
        Http(address).post("/api/v1/queues/q/jobs", "hello").status,
        201
    );
    home.says(
        "data",
        &["export", "--url", &url, "-o", &home.text("export")],
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let (said, _) = home.says("data", &["import", "jsonl", &home.text("export")]);
    assert!(said.contains(": 1 job, "), "{said}");
    assert_eq!(home.print("data").jobs.len(), 1);
}
