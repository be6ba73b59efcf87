//! The history of ended jobs across kills and stops: each end that was acknowledged is in it exactly once. And what the
//! daemon does with files that it cannot use, and with a store that is older than its history.
//!
//! `WINDLASS_TEST_ENDED_ROUNDS=500` runs it longer (6 by default), `WINDLASS_TEST_ENDED_SEED` with another seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};
use windlass_engine::{Context, Timestamp};
use windlass_gearman::wire::{Report, Request};
use windlass_testkit::daemon::Daemon;
use windlass_testkit::power::Recorder;

use crate::common::ended::{files, rows, wait_for_rows};
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::{Peer, daemon, from_env, wait_for_log, wait_until};

/// Two times for which rows are kept, so there are two files a day, each with its own count of commits.
pub(crate) const SETTINGS: &str = r#"
[history]
keep = "7d"
[queues.ended-gearman]
history = { keep = "1d", body = "64B" }
"#;

/// The combined records of all clients in all rounds. A job's number is a part of its name.
#[derive(Default)]
pub(crate) struct Ledger {
    next: AtomicU64,
    /// Jobs whose end was sent, and how often. The history may have a row for it.
    sent: Mutex<BTreeMap<u64, u64>>,
    /// Jobs whose end was acknowledged. The history must have a row for it.
    acknowledged: Mutex<BTreeSet<u64>>,
    /// The acknowledged jobs of the clients, in order.
    by_client: Mutex<BTreeMap<u64, Vec<Acknowledged>>>,
    /// Present if the daemon is recorded.
    recorder: Option<Arc<Recorder>>,
}

/// A job whose end was acknowledged before a moment of the record.
#[derive(Clone, Copy)]
pub(crate) struct Acknowledged {
    pub(crate) job: u64,
    pub(crate) moment: u64,
}

impl Ledger {
    /// Of a daemon that is recorded.
    pub(crate) fn with(recorder: &Arc<Recorder>) -> Self {
        Self {
            recorder: Some(Arc::clone(recorder)),
            ..Self::default()
        }
    }

    /// For the clients of a daemon that continues after a power cut.
    pub(crate) fn after_a_cut(&self) -> Self {
        Self {
            next: AtomicU64::new(self.next()),
            sent: Mutex::new(self.sent.lock().unwrap().clone()),
            ..Self::default()
        }
    }

    fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn send(&self, job: u64) {
        *self.sent.lock().unwrap().entry(job).or_default() += 1;
    }

    fn acknowledge(&self, client: u64, job: u64) {
        let moment = self.recorder.as_ref().map_or(0, |recorder| recorder.now());
        let mut by_client = self.by_client.lock().unwrap();
        let acknowledged = Acknowledged { job, moment };
        by_client.entry(client).or_default().push(acknowledged);
        self.acknowledged.lock().unwrap().insert(job);
    }

    /// The acknowledged jobs of the clients, in order.
    pub(crate) fn by_client(&self) -> Vec<Vec<Acknowledged>> {
        self.by_client.lock().unwrap().values().cloned().collect()
    }

    /// Whether only one client has sent the end of a job, once.
    pub(crate) fn sent_once(&self, job: u64) -> bool {
        self.sent.lock().unwrap().get(&job) == Some(&1)
    }

    pub(crate) fn acknowledged(&self) -> BTreeSet<u64> {
        self.acknowledged.lock().unwrap().clone()
    }
}

fn name(job: u64) -> String {
    format!("ended-{job:09}")
}

fn number(name: &str) -> u64 {
    name.strip_prefix("ended-").unwrap().parse().unwrap()
}

/// How the workers end a job of FWP.
fn fwp_outcome(job: u64) -> &'static str {
    match job % 7 {
        0 => "failed",
        1 => "dead",
        _ => "done",
    }
}

/// The same for Gearman, whose failed jobs all go to the dead-letter queue.
fn gearman_outcome(job: u64) -> &'static str {
    if job.is_multiple_of(7) {
        "dead"
    } else {
        "done"
    }
}

/// Pushes, takes and ends jobs until the daemon is gone. A reply to ACK and FAIL is the proof of the end.
fn fwp(ledger: &Ledger, address: SocketAddr, stop: &AtomicBool) -> io::Result<()> {
    let client = ledger.next();
    let mut fwp = Fwp::try_worker(address, &format!("worker-{client}"))?;
    while !stop.load(Ordering::Relaxed) {
        let job = ledger.next();
        let retry = match fwp_outcome(job) {
            "dead" => -1,
            _ => 0,
        };
        let jid = name(job);
        let push = format!(
            r#"PUSH {{"jid":"{jid}","jobtype":"T","queue":"ended-fwp","args":[{job}],"retry":{retry}}}"#
        );
        fwp.try_ask(&push)?;
        let fetched: Value = serde_json::from_str(&fwp.try_ask("FETCH ended-fwp")?)?;
        let Some(jid) = fetched["jid"].as_str() else {
            continue;
        };
        let job = number(jid);
        ledger.send(job);
        let end = match fwp_outcome(job) {
            "done" => format!(r#"ACK {{"jid":"{jid}"}}"#),
            _ => format!(r#"FAIL {{"jid":"{jid}","errtype":"E","message":"no luck"}}"#),
        };
        if fwp.try_ask(&end)? == "+OK" {
            ledger.acknowledge(client, job);
        }
    }
    Ok(())
}

/// The same with Gearman. The end of a job has no reply: the reply to a later submit on the same connection is the proof.
fn gearman(ledger: &Ledger, address: SocketAddr, stop: &AtomicBool) -> io::Result<()> {
    let mut peer = Peer::connect(address)?;
    peer.can_do("ended-gearman")?;
    let client = ledger.next();
    let mut last = None;
    while !stop.load(Ordering::Relaxed) {
        let job = ledger.next();
        peer.submit("ended-gearman", &name(job), name(job))?;
        if let Some(job) = last.take() {
            ledger.acknowledge(client, job);
        }
        let Some(taken) = peer.grab()? else { continue };
        let job = number(std::str::from_utf8(&taken.workload).unwrap());
        ledger.send(job);
        let report = match gearman_outcome(job) {
            "done" => Report::Complete(taken.workload.clone()),
            _ => Report::Fail,
        };
        peer.send(&Request::Work {
            handle: taken.handle,
            report,
        })?;
        last = Some(job);
    }
    Ok(())
}

type Client = fn(&Ledger, SocketAddr, &AtomicBool) -> io::Result<()>;

/// Runs four clients of FWP and two of Gearman until `more` further ends are acknowledged, then ends the daemon under them.
pub(crate) fn load_until(
    ledger: &Arc<Ledger>,
    daemon: &mut Daemon,
    more: usize,
    end: fn(&mut Daemon),
) {
    let stop = Arc::new(AtomicBool::new(false));
    let run = |client: Client, protocol: &str| {
        let (ledger, stop) = (Arc::clone(ledger), Arc::clone(&stop));
        let address = daemon.address(protocol);
        // It ends with an error, because the test ends the daemon under it.
        thread::spawn(move || {
            if let Err(error) = client(&ledger, address, &stop) {
                println!("a client ended: {error}");
            }
        })
    };
    let goal = ledger.acknowledged().len() + more;
    let threads: Vec<_> = (0..4)
        .map(|_| run(fwp, "faktory"))
        .chain((0..2).map(|_| run(gearman, "gearman")))
        .collect();
    while ledger.acknowledged.lock().unwrap().len() < goal {
        assert!(
            !threads.iter().any(JoinHandle::is_finished),
            "a client gave up before the daemon ended: {}",
            daemon.log_text()
        );
        thread::yield_now();
    }
    end(daemon);
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("a client failed an assertion");
    }
}

pub(crate) fn terminate(daemon: &mut Daemon) {
    daemon.signal("TERM");
    assert!(daemon.wait().success(), "{}", daemon.log_text());
}

/// The jobs that have a row. No job has two, each has the right outcome, and its end was sent.
pub(crate) fn recorded(ledger: &Ledger, http: Http) -> BTreeSet<u64> {
    let (mut jobs, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    let mut outcomes = BTreeMap::<_, u64>::new();
    // What is in the history was sent before it was asked.
    let rows = rows(http, "");
    let sent = ledger.sent.lock().unwrap().clone();
    for row in &rows {
        let (name, outcome) = match row["protocol"].as_str() {
            Some("faktory") => (&row["name"], fwp_outcome as fn(u64) -> &'static str),
            _ => (&row["unique"], gearman_outcome as fn(u64) -> &'static str),
        };
        let job = number(name.as_str().unwrap());
        assert!(jobs.insert(job), "{job} is there twice: {row}");
        assert!(numbers.insert(row["job"].as_u64().unwrap()), "{row}");
        assert!(sent.contains_key(&job), "no worker ended {job}: {row}");
        assert_eq!(row["outcome"], outcome(job), "{row}");
        let kept = row["protocol"] == "gearman";
        assert_eq!(
            row["body"]["text"],
            if kept { json!(name) } else { Value::Null },
            "{row}"
        );
        *outcomes.entry(outcome(job)).or_default() += 1;
    }
    let total = &http.get("/api/v1/ended/hours").json()["total"];
    let of = |outcome| outcomes.get(outcome).copied().unwrap_or_default();
    assert_eq!(
        [&total["done"], &total["failed"], &total["other"]],
        [of("done"), of("failed") + of("dead"), 0],
        "each row is counted once in its hour"
    );
    jobs
}

#[test]
fn each_acknowledged_end_is_in_the_history_once_whatever_ends_the_daemon() {
    let rounds = from_env("WINDLASS_TEST_ENDED_ROUNDS", 6);
    let mut rng = Context::new(Timestamp(0), from_env("WINDLASS_TEST_ENDED_SEED", 1));
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).set(SETTINGS).start();
    let ledger = Arc::new(Ledger::default());
    for round in 0..rounds {
        let more = usize::try_from(1 + rng.roll(300)).unwrap();
        let is_killed = rng.roll(2) == 0;
        let end = if is_killed { Daemon::kill } else { terminate };
        load_until(&ledger, &mut daemon, more, end);
        daemon.restart();
        let http = Http(daemon.address("http"));
        println!(
            "round {round}, killed: {is_killed}: {} acknowledged",
            ledger.acknowledged().len()
        );
        let is_lost = |job: &u64, found: &BTreeSet<u64>| !found.contains(job);
        if is_killed && rng.roll(2) == 0 {
            // The next kill then finds rows that are written, while the position on the disk is behind them.
            wait_until("the history has caught up", || {
                let found = rows(http, "").len();
                found >= ledger.acknowledged().len()
            });
        } else if !is_killed {
            // A daemon that stops writes everything first.
            let found = recorded(&ledger, http);
            let mut lost = ledger.acknowledged();
            lost.retain(|job| is_lost(job, &found));
            assert!(lost.is_empty(), "not written before the stop: {lost:?}");
        }
    }
    wait_until("each acknowledged end is in the history", || {
        let found = recorded(&ledger, Http(daemon.address("http")));
        ledger.acknowledged().is_subset(&found)
    });
    // There are no clients now, so the rows are all there will be, over further restarts.
    terminate(&mut daemon);
    daemon.restart();
    let all = recorded(&ledger, Http(daemon.address("http")));
    daemon.kill();
    daemon.restart();
    assert_eq!(recorded(&ledger, Http(daemon.address("http"))), all);
    assert!(!daemon.log_text().contains("damaged"));
    assert_eq!(files(dir.path(), ".damaged-1"), Vec::<PathBuf>::new());
}

/// Pushes a job of FWP and acknowledges it, both durably.
fn end_one(daemon: &Daemon, jid: &str) {
    push(daemon, jid);
    acknowledge(daemon, jid);
}

fn push(daemon: &Daemon, jid: &str) {
    let push = format!(r#"PUSH {{"jid":"{jid}","jobtype":"T","queue":"q","args":[]}}"#);
    assert_eq!(Fwp::connect(daemon.address("faktory")).ask(&push), "+OK");
}

fn acknowledge(daemon: &Daemon, jid: &str) {
    let mut worker = Fwp::connect(daemon.address("faktory"));
    assert!(worker.ask("FETCH q").contains(jid));
    assert_eq!(worker.ask(&format!("ACK {{\"jid\":\"{jid}\"}}")), "+OK");
}

fn names(rows: &[Value]) -> Vec<&str> {
    rows.iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect()
}

fn file(dir: &Path) -> PathBuf {
    let found = files(dir, ".sqlite");
    let [file] = &found[..] else {
        panic!("not one file: {found:?}")
    };
    file.clone()
}

#[test]
fn a_damaged_file_is_set_aside_and_a_new_one_takes_its_place() {
    for damage in [&b"this is no database"[..], &[0x55; 8192]] {
        let dir = tempfile::tempdir().unwrap();
        let mut daemon = daemon(dir.path()).set(SETTINGS).start();
        end_one(&daemon, "before-damage");
        wait_for_rows(Http(daemon.address("http")), "", 1);
        terminate(&mut daemon);
        let file = file(dir.path());
        fs::write(&file, damage).unwrap();
        daemon.restart();
        let http = Http(daemon.address("http"));
        let unreadable = &http.get("/api/v1/ended").json()["unreadable"];
        assert_eq!(unreadable.as_array().map(Vec::len), Some(1), "{unreadable}");
        end_one(&daemon, "after-damage");
        wait_for_log(&daemon, "is damaged and was set aside");
        assert_eq!(names(&wait_for_rows(http, "", 1)), ["after-damage"]);
        let aside = file.with_extension("damaged-1");
        assert_eq!(fs::read(&aside).unwrap(), damage, "{}", aside.display());
        // The new file survives a crash as any other.
        daemon.kill();
        daemon.restart();
        end_one(&daemon, "after-a-kill");
        assert_eq!(
            names(&wait_for_rows(Http(daemon.address("http")), "", 2)),
            ["after-damage", "after-a-kill"]
        );
        assert_eq!(files(dir.path(), ".damaged-2"), Vec::<PathBuf>::new());
    }
}

#[test]
fn jobs_go_on_while_the_history_cannot_be_written_and_their_rows_come_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).set(SETTINGS).start();
    end_one(&daemon, "before-obstacle");
    wait_for_rows(Http(daemon.address("http")), "", 1);
    terminate(&mut daemon);
    // Permissions do not stop a daemon that runs as root, but nobody opens a directory as a file.
    let (file, away) = (file(dir.path()), dir.path().join("away"));
    fs::rename(&file, &away).unwrap();
    fs::create_dir(&file).unwrap();
    daemon.restart();
    end_one(&daemon, "behind-obstacle");
    wait_for_log(&daemon, "the history is not written");
    // What waits in the log is still there after a crash.
    daemon.kill();
    daemon.restart();
    end_one(&daemon, "after-a-kill");
    wait_for_log(&daemon, "the history is not written");
    fs::remove_dir(&file).unwrap();
    fs::rename(&away, &file).unwrap();
    wait_for_log(&daemon, "the history is written again");
    assert_eq!(
        names(&wait_for_rows(Http(daemon.address("http")), "", 3)),
        ["before-obstacle", "behind-obstacle", "after-a-kill"]
    );
    assert_eq!(files(dir.path(), ".damaged-1"), Vec::<PathBuf>::new());
}

#[test]
fn a_store_that_is_older_than_its_history_has_rows_from_then_on_and_none_once_it_is_off() {
    let dir = tempfile::tempdir().unwrap();
    let start = |settings: &str| daemon(dir.path()).set(settings).start();
    let off = || start("");
    let on = || start("[history]\nkeep = \"7d\"");

    let mut daemon = off();
    end_one(&daemon, "ended-before");
    push(&daemon, "pushed-before");
    terminate(&mut daemon);
    assert!(!dir.path().join("data/history").exists(), "none is kept");

    let mut daemon = on();
    acknowledge(&daemon, "pushed-before");
    end_one(&daemon, "while-on");
    let found = wait_for_rows(Http(daemon.address("http")), "", 2);
    assert_eq!(names(&found), ["pushed-before", "while-on"]);
    for (row, is_known) in [(&found[0], false), (&found[1], true)] {
        for field in ["pushed_at", "producer"] {
            assert_eq!(row[field].is_string(), is_known, "{field} of {row}");
        }
        for field in ["ready_at", "started_at", "ended_at", "worker"] {
            assert!(row[field].is_string(), "{field} of {row}");
        }
    }
    push(&daemon, "pushed-while-on");
    terminate(&mut daemon);
    let files_before = files(dir.path(), ".sqlite");

    for is_killed in [false, true] {
        let mut daemon = off();
        if !is_killed {
            acknowledge(&daemon, "pushed-while-on");
        }
        end_one(&daemon, "while-off");
        assert_eq!(
            names(&rows(Http(daemon.address("http")), "")),
            ["while-on", "pushed-before"],
            "what was written can still be asked"
        );
        if is_killed {
            daemon.kill();
        } else {
            terminate(&mut daemon);
        }
    }
    assert_eq!(files(dir.path(), ".sqlite"), files_before);

    let mut daemon = on();
    end_one(&daemon, "on-again");
    assert_eq!(
        names(&wait_for_rows(Http(daemon.address("http")), "", 3)),
        ["pushed-before", "while-on", "on-again"]
    );
    terminate(&mut daemon);
}
