//! A full disk: all promises are kept, existing jobs can be completed, and new jobs are refused.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use windlass_testkit::daemon::Daemon;
use windlass_testkit::disk::SmallDisk;

use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::{Peer, daemon};

/// Submits until a submit is refused. Returns how many were acknowledged, and the refusal.
fn submit_until_refused(address: SocketAddr, bytes: usize, most: u64) -> (u64, String) {
    let mut peer = Peer::connect(address).unwrap();
    for acknowledged in 0..most {
        if let Err(refusal) = peer.submit("heavy", "", vec![b'x'; bytes]) {
            return (acknowledged, refusal.to_string());
        }
    }
    panic!("the disk never fills");
}

/// Takes and completes at most `most` jobs; returns how many there were.
fn work(address: SocketAddr, most: u64) -> u64 {
    let mut peer = Peer::connect(address).unwrap();
    peer.can_do("heavy").unwrap();
    for done in 0..most {
        let Some(job) = peer.grab().unwrap() else {
            return done;
        };
        peer.complete(&job.handle).unwrap();
    }
    // The answer proves that the completions have been processed.
    assert!(peer.line("version").unwrap().starts_with("OK "));
    most
}

fn queued(address: SocketAddr) -> u64 {
    let status = Peer::connect(address).unwrap().listing("status").unwrap();
    status
        .first()
        .map_or(0, |row| row.split('\t').nth(1).unwrap().parse().unwrap())
}

/// Waits until a submit is accepted.
fn is_taken_again(daemon: &Daemon) {
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while let Err(why) = peer.submit("heavy", "", "z") {
        assert!(Instant::now() < end, "{why}\n{}", daemon.log_text());
        thread::sleep(Duration::from_millis(5));
    }
}

fn small_disk(dir: &Path, size_mib: u32) -> SmallDisk {
    SmallDisk::new(&dir.join("data"), size_mib)
}

fn restart_after(daemon: &mut Daemon, signal: Option<&str>) {
    match signal {
        Some(signal) => {
            daemon.signal(signal);
            assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log_text());
        }
        None => daemon.kill(),
    }
    daemon.restart();
}

/// A full disk is a state, and everything that is asked says so.
fn tells_that_it_is_full(daemon: &Daemon) {
    let http = Http(daemon.address("http"));
    let probe = http.get("/readyz");
    assert!(
        probe.status == 503 && probe.text().starts_with("disk_full: disk full"),
        "{probe:?}"
    );
    assert_eq!(http.get("/api/v1/status").json()["state"], "disk_full");
    assert!(http.metric("windlass_refusing{reason=\"disk_full\"}") > 0.5);
    let page = http.get("/");
    assert!(
        page.text().contains("disk full: rejecting new jobs"),
        "{page:?}"
    );
    let url = format!("http://{}", http.0);
    let check = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["check", "--live", "--url", &url])
        .output()
        .unwrap();
    let says = String::from_utf8_lossy(&check.stdout);
    assert!(
        says.starts_with("WINDLASS CRITICAL - disk full: rejecting new jobs"),
        "{says}"
    );
    assert_eq!(check.status.code(), Some(2), "{says}");
}

#[test]
fn a_full_disk_stops_submits_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let disk = small_disk(dir.path(), 128);
    let mut daemon = daemon(dir.path()).on(&disk).start();
    let (mut left, refusal) = submit_until_refused(daemon.address("gearman"), 100_000, 2_000);
    assert!(refusal.contains("QUEUE_ERROR"), "{refusal}");
    assert!(left > 100, "{left}");
    disk.fill();

    // Reading and work continue; each protocol refuses new jobs in its own format.
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let said = fwp.ask(r#"PUSH {"jid":"jid-12345678","jobtype":"T","args":[]}"#);
    assert!(said.starts_with("-ERR"), "{said}");
    assert!(fwp.ask("INFO").starts_with('{'));
    assert_eq!(queued(daemon.address("gearman")), left);
    tells_that_it_is_full(&daemon);
    left -= work(daemon.address("gearman"), left / 4);
    assert_eq!(queued(daemon.address("gearman")), left);

    // It starts on the full disk too, however it ended.
    for signal in [Some("TERM"), None] {
        restart_after(&mut daemon, signal);
        let address = daemon.address("gearman");
        // The last completions were not acknowledged, so they may be lost.
        let found = queued(address);
        assert!(
            found == left || (signal.is_none() && (left..left + 20).contains(&found)),
            "{signal:?}: {found} of {left}"
        );
        left = found - work(address, found / 4);
        assert_eq!(queued(address), left, "{signal:?}");
    }
    let address = daemon.address("gearman");
    assert_eq!(work(address, u64::MAX), left);
    assert_eq!(queued(address), 0);

    // With room again, the same process accepts submits.
    disk.make_room();
    is_taken_again(&daemon);
    restart_after(&mut daemon, None);
    assert_eq!(work(daemon.address("gearman"), u64::MAX), 1);
}

#[test]
fn large_jobs_are_refused_before_they_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let disk = small_disk(dir.path(), 160);
    let daemon = daemon(dir.path()).on(&disk).start();
    let address = daemon.address("gearman");
    let (many, refusal) = submit_until_refused(address, 20 << 20, 100);
    assert!(refusal.contains("QUEUE_ERROR"), "{refusal}");
    assert!(many > 0);
    // A checkpoint that is under way needs room, too.
    is_taken_again(&daemon);
    disk.fill();
    assert_eq!(work(address, u64::MAX), many + 1);
    assert!(
        !daemon.log_text().contains("the store failed"),
        "{}",
        daemon.log_text()
    );
}

#[test]
fn submits_are_taken_again_once_there_is_room_and_nothing_else_happens() {
    let dir = tempfile::tempdir().unwrap();
    let disk = small_disk(dir.path(), 128);
    let daemon = daemon(dir.path()).on(&disk).start();
    disk.fill();
    submit_until_refused(daemon.address("gearman"), 100_000, 2_000);
    disk.make_room();
    is_taken_again(&daemon);
}

#[test]
fn many_small_jobs_can_be_worked_off_one_by_one_on_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let disk = small_disk(dir.path(), 96);
    let mut daemon = daemon(dir.path()).on(&disk).start();
    let address = daemon.address("faktory");
    // Many in one commit, to fill the disk with many jobs.
    let mut fwp = Fwp::connect(address);
    let (mut jobs, mut batch) = (0, 0);
    loop {
        let units: Vec<String> = (0..1_000)
            .map(|n| {
                format!(
                    r#"{{"jid":"jid-{:09}","jobtype":"T","queue":"q","args":[{n}]}}"#,
                    batch * 1_000 + n
                )
            })
            .collect();
        let said = fwp.ask(&format!("PUSHB [{}]", units.join(",")));
        if said != "{}" {
            break;
        }
        (jobs, batch) = (jobs + 1_000, batch + 1);
        assert!(batch < 5_000, "the disk never fills");
    }
    disk.fill();
    let mut done = 0;
    for goal in [jobs / 2, jobs] {
        let (mut fwp, mut in_vain) = (Fwp::connect(daemon.address("faktory")), 0);
        while done < goal {
            let job = fwp.ask("FETCH q");
            let Some((_, rest)) = job.split_once("\"jid\":\"") else {
                // On a slow and full disk a job may take longer than a FETCH waits.
                in_vain += 1;
                assert!(
                    job == "null" && in_vain < 30,
                    "{job:?} after {done} of {jobs}\n{}",
                    daemon.log_text()
                );
                continue;
            };
            let jid = rest.split('"').next().unwrap();
            assert_eq!(
                fwp.ask(&format!("ACK {{\"jid\":\"{jid}\"}}")),
                "+OK",
                "after {done} of {jobs}\n{}",
                daemon.log_text()
            );
            done += 1;
            // On a slow disk this takes longer than a worker may be silent.
            if done % 1_000 == 0 {
                assert_eq!(fwp.ask("BEAT {\"wid\":\"wid-1\"}"), "+OK");
            }
        }
        restart_after(&mut daemon, None);
    }
}
