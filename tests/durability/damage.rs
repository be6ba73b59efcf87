//! Damaged data directories: the daemon never starts from one without notice, and the readable part can be saved.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use windlass_testkit::daemon::{Daemon, Plan};

use crate::common;
use crate::common::{Peer, daemon, wait_for_log, wait_until};

// ---- directories and messages ---------------------------------------------------------------------------------------

/// Runs the binary, for a minute at most: a daemon that starts after all is then ended with an unexpected exit code.
fn windlass(args: &[&str], dir: &Path) -> Output {
    let mut command = Command::new("timeout");
    command
        .args(["60", env!("CARGO_BIN_EXE_windlass")])
        .args(args)
        .arg(dir);
    command.output().unwrap()
}

/// Its standard error, after checking the exit code.
fn said(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.code(),
        Some(code),
        "{said}{}",
        String::from_utf8_lossy(&output.stdout)
    );
    said
}

/// Starts a daemon that must not start. Returns the line with the reason.
fn refused(dir: &Path) -> String {
    let said = said(&windlass(&["serve", "-c"], &dir.join("windlass.toml")), 4);
    said.lines()
        .find(|line| line.starts_with("windlass: "))
        .expect("a reason")
        .to_owned()
}

fn verified(data: &Path, jobs: u64) {
    let output = windlass(&["verify"], data);
    assert_eq!(said(&output, 0), "");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.starts_with(&format!("ok: {}, ", windlass_config::counted(jobs, "job"))),
        "{text}"
    );
}

/// Every file in a directory, with its contents.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.is_file() {
            // A killed daemon leaves its socket for commands.
            all.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    all
}

/// Copies a directory with its contents.
fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(
        Command::new("cp")
            .arg("-a")
            .args([from, to])
            .status()
            .unwrap()
            .success()
    );
}

/// The segment of the log with the most data, and the length of the data.
fn segment(data: &Path) -> (PathBuf, usize) {
    let segments = fs::read_dir(data.join("store/log"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let used = |path: PathBuf| {
        let bytes = fs::read(&path).unwrap();
        let used = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        (path, used)
    };
    segments
        .filter(|path| path.to_string_lossy().contains("segment-"))
        .map(used)
        .max_by_key(|(_, used)| *used)
        .unwrap()
}

fn table(data: &Path) -> PathBuf {
    tables(data).max().unwrap()
}

/// The table, and another one if a checkpoint was under way.
fn tables(data: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(data.join("store"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().contains("/table-"))
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

// ---- their contents -------------------------------------------------------------------------------------------------

fn submit(daemon: &Daemon, numbers: std::ops::Range<u32>, bytes: usize) {
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    for n in numbers {
        peer.submit("later", "", format!("{n} {}", "x".repeat(bytes)))
            .unwrap();
    }
}

fn stop(mut daemon: Daemon, signal: Option<&str>) {
    match signal {
        None => daemon.kill(),
        Some(signal) => {
            daemon.signal(signal);
            assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log_text());
        }
    }
}

/// The number of jobs that a daemon reports.
fn queued(daemon: &Daemon) -> u64 {
    let status = Peer::connect(daemon.address("gearman"))
        .unwrap()
        .listing("status")
        .unwrap();
    status
        .first()
        .map_or(0, |row| row.split('\t').nth(1).unwrap().parse().unwrap())
}

/// The jobs in an export, without fields that are specific to the directory.
fn jobs(export: &[u8]) -> Vec<Value> {
    let lines = std::str::from_utf8(export)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut jobs: Vec<Value> = lines.filter(|line| line.get("job").is_some()).collect();
    jobs.iter_mut()
        .for_each(|job| drop(job.as_object_mut().unwrap().remove("stored_base64")));
    jobs
}

/// The salvageable jobs of a damaged directory, after checking that salvage changes nothing.
fn salvaged(data: &Path) -> (Vec<u8>, String) {
    let before = files(data);
    let output = windlass(&["salvage"], data);
    let said = said(&output, 5);
    assert!(files(data) == before, "salvage only reads");
    (output.stdout, said)
}

/// Checks both ways to recover: the remaining jobs are served, or imported into a new directory, with the same result.
fn is_saved(dir: &Path, plan: impl Fn() -> Plan) {
    let data = dir.join("data");
    let (export, said) = salvaged(&data);
    let left = jobs(&export);
    let many = windlass_config::counted(left.len() as u64, "job");
    assert!(
        said.contains(&format!("{many}, ")) && said.contains(" commits of the log"),
        "{said}"
    );

    let fresh = dir.join("fresh");
    let lines = dir.join("jobs.jsonl");
    fs::write(&lines, &export).unwrap();
    let import = ["import", "jsonl", "--data-dir", fresh.to_str().unwrap()];
    said_nothing(&windlass(&import, &lines));
    let again = windlass(&import, &lines);
    said_nothing(&again);
    assert!(
        String::from_utf8_lossy(&again.stdout).contains(": nothing imported"),
        "{again:?}"
    );
    let output = windlass(&["salvage"], &fresh);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        jobs(&output.stdout) == left,
        "what is taken back is what was saved"
    );

    let daemon = plan().option("--accept-loss").start();
    assert_eq!(queued(&daemon), left.len() as u64);
    let log = daemon.log_text();
    assert!(
        log.contains("its loss is accepted") && log.contains("going on with"),
        "{log}"
    );
    assert!(
        data.join("store.damaged-1").is_dir(),
        "the damaged store is set aside"
    );
    stop(daemon, Some("TERM"));
    verified(&data, left.len() as u64);
}

fn said_nothing(output: &Output) {
    assert_eq!(said(output, 0), "");
}

// ---- one bit in the log ---------------------------------------------------------------------------------------------

#[test]
fn a_flipped_bit_in_the_log_is_reported_and_costs_one_commit() {
    for signal in [Some("TERM"), None] {
        let dir = tempfile::tempdir().unwrap();
        let (dir, data) = (dir.path(), dir.path().join("data"));
        let daemon = daemon(dir).start();
        submit(&daemon, 0..2_000, 0);
        stop(daemon, signal);
        verified(&data, 2_000);

        let (path, used) = segment(&data);
        // Unused zeros lie between entries.
        let bytes = fs::read(&path).unwrap();
        flip(&path, (used / 10..used).find(|at| bytes[*at] != 0).unwrap());
        let why = refused(dir);
        for part in [
            path.to_str().unwrap(),
            "is missing",
            "windlass verify",
            "windlass salvage",
            "--accept-loss",
        ] {
            assert!(why.contains(part), "{signal:?}: {part} is not in: {why}");
        }
        assert_eq!(
            said(&windlass(&["verify"], &data), 4).trim_end(),
            why,
            "{signal:?}"
        );
        assert_eq!(jobs(&salvaged(&data).0).len(), 1_999, "{signal:?}");
        is_saved(dir, || common::daemon(dir));
    }
}

// ---- one bit in the table -------------------------------------------------------------------------------------------

/// The daemon writes everything to the table as soon as no client needs it.
const QUICK: &str = "[log]\nlevel = \"debug\"\n[store]\ncheckpoint_quiet = \"100ms\"";

fn quick(dir: &Path) -> Plan {
    daemon(dir).set(QUICK)
}

/// Waits until `jobs` jobs are in the table, and the log has nothing more.
fn wait_for_table(daemon: &Daemon, jobs: u32) {
    // The table also has the queue, that of spiderq, the engine's own numbers, and the day; at midnight a second one.
    let has = |text: &str, more: u32| text.contains(&format!("\"records\":{},", jobs + more));
    wait_until("the jobs are in the table", || {
        [4, 5].into_iter().any(|more| has(&daemon.log_text(), more))
    });
}

/// A data directory with `jobs` jobs in its table, and a few more in its log.
fn with_a_table(dir: &Path, jobs: u32) -> PathBuf {
    let daemon = quick(dir).start();
    submit(&daemon, 0..jobs, 2_000);
    wait_for_table(&daemon, jobs);
    submit(&daemon, jobs..jobs + 100, 0);
    stop(daemon, Some("TERM"));
    verified(&dir.join("data"), (jobs + 100).into());
    dir.join("data")
}

#[test]
fn a_flipped_bit_in_the_table_is_reported_and_the_rest_is_saved() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, data) = (dir.path(), with_a_table(dir.path(), 2_000));
    let whole = dir.join("whole");
    copy(&data, &whole);
    let files = tables(&data).map(|table| table.join("db"));
    let used = |db: &PathBuf| fs::read(db).unwrap().iter().rposition(|byte| *byte != 0);
    let files: Vec<_> = files
        .filter_map(|db| used(&db).map(|used| (db, used)))
        .collect();
    let mut told = 0;
    // Much of the file may be unused: how much depends on the number of checkpoints.
    for part in (1..100).map(|part| part * 37 % 100) {
        copy(&whole, &data);
        files
            .iter()
            .for_each(|(db, used)| flip(db, used / 100 * part));
        // A flipped bit in unused space loses nothing.
        if windlass(&["verify"], &data).status.code() == Some(0) {
            verified(&data, 2_100);
            continue;
        }
        let why = refused(dir);
        assert!(why.contains("the table of living jobs is damaged"), "{why}");
        assert_eq!(said(&windlass(&["verify"], &data), 4).trim_end(), why);
        let left = jobs(&salvaged(&data).0).len();
        assert!((1_000..=2_100).contains(&left), "{left}");
        if told == 0 {
            is_saved(dir, || quick(dir));
            let _ = fs::remove_dir_all(dir.join("fresh"));
        }
        told += 1;
        if told == 3 {
            break;
        }
    }
    assert!(told > 0, "no bit of the table's file matters");
}

/// Earlier versions salvaged them so, if the table with the names was lost.
#[test]
fn jobs_whose_queue_has_lost_its_name_are_imported_under_another() {
    let dir = tempfile::tempdir().unwrap();
    let (data, fresh, lines) = (
        dir.path().join("data"),
        dir.path().join("fresh"),
        dir.path().join("lines"),
    );
    let daemon = daemon(dir.path()).start();
    submit(&daemon, 0..3, 0);
    stop(daemon, Some("TERM"));
    let whole = String::from_utf8(windlass(&["salvage"], &data).stdout).unwrap();
    let jobs = whole.lines().filter(|line| line.starts_with("{\"job\":"));
    let nameless: Vec<String> = jobs
        .map(|line| line.replace("\"queue\":\"later\"", "\"queue_number\":7"))
        .collect();
    fs::write(&lines, nameless.join("\n")).unwrap();
    said_nothing(&windlass(
        &["import", "jsonl", "--data-dir", fresh.to_str().unwrap()],
        &lines,
    ));
    let again = String::from_utf8(windlass(&["salvage"], &fresh).stdout).unwrap();
    assert_eq!(
        again.matches("\"queue\":\"unnamed-queue-7\"").count(),
        3,
        "{again}"
    );
}

// ---- missing parts --------------------------------------------------------------------------------------------------

#[test]
fn a_missing_part_never_starts_empty() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, data) = (dir.path(), with_a_table(dir.path(), 2_000));
    let whole = dir.join("whole");
    copy(&data, &whole);
    let parts = [
        PathBuf::from("store/log/mark"),
        segment(&data).0.strip_prefix(&data).unwrap().to_owned(),
        table(&data).strip_prefix(&data).unwrap().to_owned(),
        table(&data).strip_prefix(&data).unwrap().join("db"),
        PathBuf::from("store/log"),
        PathBuf::from("store"),
    ];
    for part in parts {
        copy(&whole, &data);
        let path = data.join(&part);
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap()
        } else {
            fs::remove_file(&path).unwrap()
        }
        let why = refused(dir);
        assert!(
            why.contains("missing") && why.contains("--accept-loss"),
            "{part:?}: {why}"
        );
        assert_eq!(
            said(&windlass(&["verify"], &data), 4).trim_end(),
            why,
            "{part:?}"
        );
        let (export, said) = salvaged(&data);
        let left = jobs(&export).len();
        match part.to_str().unwrap() {
            "store/log/mark" => assert_eq!(left, 2_100, "{said}"),
            "store" => assert_eq!(left, 0, "{said}"),
            _ => {}
        }
        let daemon = quick(dir).option("--accept-loss").start();
        assert_eq!(queued(&daemon), left as u64, "{part:?}");
        submit(&daemon, 0..1, 0);
        stop(daemon, Some("TERM"));
        verified(&data, left as u64 + 1);
    }
}

// ---- directories that go away under a daemon ------------------------------------------------------------------------

#[test]
fn a_directory_that_moves_or_is_replaced_or_removed_takes_no_more_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, data, away) = (dir.path(), dir.path().join("data"), dir.path().join("away"));
    let mut daemon = daemon(dir).start();
    submit(&daemon, 0..10, 0);
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    fs::rename(&data, &away).unwrap();
    assert!(peer.submit("later", "", "moved").is_err());
    wait_for_log(&daemon, "the store failed: nothing is acknowledged");
    copy(&away, &data);
    let before = files(&data);
    for _ in 0..10 {
        assert!(peer.submit("later", "", "replaced").is_err());
    }
    wait_until("the commit is tried again", || {
        daemon.log_text().contains("has taken its place")
    });
    assert!(
        files(&data) == before,
        "nothing is written to the directory in its place"
    );
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&away, &data).unwrap();
    wait_until("it is back", || peer.submit("later", "", "back").is_ok());
    // The one that was on its way is kept, too.
    assert_eq!(queued(&daemon), 12);
    daemon.kill();
    verified(&data, 12);

    daemon.restart();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    fs::remove_dir_all(&data).unwrap();
    assert!(peer.submit("later", "", "removed").is_err());
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(1), "{}", daemon.log_text());
    assert!(!data.exists(), "and nothing makes it anew");
}

#[test]
fn files_of_the_log_that_are_removed_cost_no_acknowledged_job() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut daemon = daemon(dir.path()).start();
    for (which, jobs) in [("segment-", 10), ("mark", 20), ("", 30)] {
        submit(&daemon, 0..10, 100);
        let log = files(&data.join("store/log")).into_keys();
        let these = log.filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(which)
        });
        these.for_each(|path| fs::remove_file(path).unwrap());
        // At once, before anything looks for the files.
        let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
        wait_until("a job is acknowledged", || {
            peer.submit("later", "", "again").is_ok()
        });
        wait_for_log(&daemon, "removed under the running daemon");
        let acknowledged = queued(&daemon);
        assert!(acknowledged > jobs, "{acknowledged}");
        daemon.kill();
        verified(&data, acknowledged);
        daemon.restart();
        let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
        peer.can_do("later").unwrap();
        while queued(&daemon) > jobs {
            let handle = peer.grab().unwrap().unwrap().handle;
            peer.complete(&handle).unwrap();
        }
    }
}

// ---- intact directories ---------------------------------------------------------------------------------------------

#[test]
fn intact_directories_are_reported_as_intact() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, data) = (dir.path(), dir.path().join("data"));
    let daemon = daemon(dir).start();
    submit(&daemon, 0..10, 0);
    for command in ["verify", "salvage", "compact"] {
        assert!(
            said(&windlass(&[command], &data), 4).contains("in use by another process"),
            "{command}"
        );
    }
    // An operator may take the lock file for a leftover: the directory itself is locked, too.
    fs::remove_file(data.join("lock")).unwrap();
    for command in ["verify", "salvage", "compact"] {
        assert!(
            said(&windlass(&[command], &data), 4).contains("in use by another process"),
            "{command}"
        );
    }
    assert!(refused(dir).contains("in use by another process"));
    stop(daemon, Some("TERM"));
    let before = files(&data);
    verified(&data, 10);
    let output = windlass(&["salvage"], &data);
    assert!(said(&output, 0).contains("10 jobs, "), "{output:?}");
    assert!(files(&data) == before, "nothing is changed by looking");
    // There is no loss to accept, and nothing is set aside.
    let daemon = common::daemon(dir).option("--accept-loss").start();
    assert_eq!(queued(&daemon), 10);
    assert!(
        !daemon.log_text().contains("accept"),
        "{}",
        daemon.log_text()
    );
    stop(daemon, None);
    assert!(!data.join("store.damaged-1").exists());
    verified(&data, 10);

    let empty = dir.join("empty");
    for command in ["verify", "salvage", "compact"] {
        assert!(
            said(&windlass(&[command], &empty), 4).contains("there is no such directory"),
            "{command}"
        );
    }
    fs::create_dir(&empty).unwrap();
    for command in ["verify", "salvage", "compact"] {
        assert!(
            said(&windlass(&[command], &empty), 4).contains("no Windlass data in it"),
            "{command}"
        );
    }
    assert!(files(&empty).is_empty(), "nothing is made by looking");
}

// ---- handwritten lines ----------------------------------------------------------------------------------------------

#[test]
fn handwritten_lines_are_imported_and_invalid_lines_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, data) = (dir.path(), dir.path().join("data"));
    let import = |text: &[u8], more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .args(["import", "jsonl", "-", "--data-dir"])
            .arg(&data)
            .args(more);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text).unwrap();
        child.wait_with_output().unwrap()
    };
    let text =
        b"{\"queue\":\"later\",\"body\":\"hello\"}\n\n{\"queue\":\"later\"\n\xff\n{\"queue\":\"later\",\"bdy\":1}\n\
                 {\"queue\":\"later\",\"place\":\"scheduled\",\"due_at_ms\":99999999999999,\"origin\":\"gearman\"}";
    for (more, verb) in [(&["--dry-run"][..], "would be imported"), (&[], "imported")] {
        let output = import(text, more);
        assert!(said(&output, 5).contains("3 lines are left"), "{output:?}");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            told.contains("line 3 left: not a JSON object") && told.contains("line 4 left: "),
            "{told}"
        );
        assert!(
            told.contains("line 5 left: `bdy` is not a field of a new job"),
            "{told}"
        );
        assert!(told.contains(&format!("2 jobs {verb}")), "{told}");
    }
    let daemon = daemon(dir).start();
    assert_eq!(queued(&daemon), 2);
    stop(daemon, Some("TERM"));
    verified(&data, 2);
    assert!(said(&import(&[0xff; 1 << 16], &[]), 5).contains("1 line is left"));
    assert!(said(&import(&b"x\n".repeat(99_999), &[]), 2).contains("line 10: not a JSON object"));
    verified(&data, 2);
}

// ---- compaction -----------------------------------------------------------------------------------------------------

#[test]
fn compacting_makes_a_churned_directory_smaller_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, data) = (dir.path(), dir.path().join("data"));
    // The daemon must not compact by itself.
    let daemon = daemon(dir)
        .set(&format!("{QUICK}\ncompact_floor = \"1GiB\""))
        .start();
    submit(&daemon, 0..3_000, 10_000);
    wait_for_table(&daemon, 3_000);
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.can_do("later").unwrap();
    for _ in 0..2_900 {
        let job = peer.grab().unwrap().unwrap();
        peer.complete(&job.handle).unwrap();
    }
    wait_for_table(&daemon, 100);
    stop(daemon, Some("TERM"));
    let before = windlass(&["salvage"], &data);
    let output = windlass(&["compact"], &data);
    said_nothing(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse::<u64>().ok());
    let (is, was) = (numbers.next().unwrap(), numbers.next().unwrap());
    assert!(is < was / 2, "{text}");
    verified(&data, 100);
    let after = windlass(&["salvage"], &data);
    assert_eq!(jobs(&before.stdout).len(), 100);
    assert!(jobs(&after.stdout) == jobs(&before.stdout), "the same jobs");
}
