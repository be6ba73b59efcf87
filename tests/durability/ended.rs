//! The history of ended jobs across kills and stops: each end that was acknowledged is in it exactly once. And what the
//! daemon does with files that it cannot use, and with a store that is older than its history.
//!
//! `WINDLASS_TEST_ENDED_ROUNDS=500` runs it longer (6 by default), `WINDLASS_TEST_ENDED_SEED` with another seed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use windlass_engine::{Context, Timestamp};
use windlass_testkit::daemon::Daemon;

use crate::common::ended::{files, rows, wait_for_rows};
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::ledger::{Ledger, SETTINGS, load_until, recorded};
use crate::common::{daemon, from_env, wait_for_log, wait_until};

pub(crate) fn terminate(daemon: &mut Daemon) {
    daemon.signal("TERM");
    assert!(daemon.wait().success(), "{}", daemon.log_text());
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
fn a_daemon_starts_although_the_history_s_folder_cannot_be_made() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    terminate(&mut daemon);
    let folder = dir.path().join("data/history");
    fs::write(&folder, "not a folder").unwrap();
    let daemon = crate::common::daemon(dir.path()).set(SETTINGS).start();
    end_one(&daemon, "without-folder");
    wait_for_log(&daemon, "the history is not written");
    fs::remove_file(&folder).unwrap();
    wait_for_log(&daemon, "the history is written again");
    let found = wait_for_rows(Http(daemon.address("http")), "", 1);
    assert_eq!(names(&found), ["without-folder"]);
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
