//! A backlog larger than memory: everything behaves as if it were all there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use windlass_testkit::daemon::Daemon;
use windlass_testkit::disk::SmallDisk;

use crate::common::backlog::{
    FWP, GEARMAN, SMALL_MEMORY, body, bytes_on_disk, drain_by_two, drain_fwp, drain_gearman,
    drain_others, json, push_all, push_gearman,
};
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::{Peer, daemon, wait_until};

/// The numbers of the jobs that a filter finds, page by page.
fn listed(http: Http, filter: &str) -> Vec<u64> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = json(http, &format!("/api/v1/jobs?{filter}{cursor}"));
        found.extend(
            page["jobs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|job| job["id"].as_u64().unwrap()),
        );
        let Some(next) = page["next"].as_str() else {
            return found;
        };
        cursor = format!("&cursor={next}");
    }
}

/// Requests a change until all matching jobs were seen.
fn changed(http: Http, change: &str) -> u64 {
    let (mut all, mut cursor) = (0, String::new());
    loop {
        let answer = http.post(&format!("/api/v1/jobs/{change}{cursor}"), "");
        assert_eq!(answer.status, 200, "{change}: {}", answer.text());
        let answer = answer.json();
        all += answer["changed"].as_u64().unwrap();
        let Some(next) = answer["next"].as_str() else {
            return all;
        };
        cursor = format!("&cursor={next}");
    }
}

fn with_text(http: Http, of: &str, number: usize) -> u64 {
    let found = listed(http, &format!("text={of}%20{number}%20"));
    let [id] = found[..] else {
        panic!("{of} {number}: {found:?}")
    };
    id
}

/// Everything that looks into bodies finds them. Returns the Gearman jobs that are left, in order.
fn look_into_bodies(daemon: &Daemon) -> Vec<usize> {
    let http = Http(daemon.address("http"));
    for (of, number) in [
        ("gearman", 5),
        ("gearman", 1_999),
        ("gearman", 300),
        ("spiderq", 77),
        ("eventmq", 77),
    ] {
        let id = with_text(http, of, number);
        let job = http.get(&format!("/api/v1/jobs/{id}/body"));
        assert!(
            job.text().contains(&body(of, number)),
            "{of} {number}: {:.80}",
            job.text()
        );
    }
    assert_eq!(json(http, "/api/v1/jobs/count?kind=T7")["jobs"], FWP / 20);
    assert_eq!(listed(http, "kind=T7").len(), FWP / 20);
    // Dead jobs are retried, behind all others.
    let dead = with_text(http, "gearman", 7);
    assert_eq!(changed(http, "kill?text=gearman%207%20"), 1);
    assert_eq!(json(http, &format!("/api/v1/jobs/{dead}"))["state"], "dead");
    assert_eq!(changed(http, "retry?state=dead&text=gearman%207%20"), 1);
    let cancelled = with_text(http, "gearman", 8);
    assert_eq!(
        http.delete(&format!("/api/v1/jobs/{cancelled}")).status,
        204
    );
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let requeue = r#"MUTATE {"cmd":"requeue","target":"scheduled","filter":{"jobtype":"T10"}}"#;
    assert_eq!(fwp.ask(requeue), "+OK");
    (0..GEARMAN)
        .filter(|number| ![7, 8].contains(number))
        .chain([7])
        .collect()
}

#[test]
fn a_backlog_larger_than_memory_survives_kill_9_and_is_worked_off_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).set(SMALL_MEMORY).eventmq("").start();
    push_all(&daemon);
    assert!(
        bytes_on_disk(&daemon) > 10 << 20,
        "{} bytes",
        bytes_on_disk(&daemon)
    );
    let gearman = look_into_bodies(&daemon);
    daemon.kill();
    daemon.restart();
    assert!(
        stored_bytes(&daemon) > 1e7,
        "{} bytes after the start",
        stored_bytes(&daemon)
    );
    assert_eq!(
        bytes_on_disk(&daemon),
        0,
        "they are in the store's files, and nowhere else"
    );
    drain_gearman(daemon.address("gearman"), gearman.iter().copied());
    let scheduled = |number: &usize| number.is_multiple_of(10);
    let (ready, late): (Vec<usize>, Vec<usize>) = drain_fwp(daemon.address("faktory"))
        .into_iter()
        .partition(|n| !scheduled(n));
    assert_eq!(
        ready,
        (0..FWP)
            .filter(|number| !scheduled(number))
            .collect::<Vec<_>>()
    );
    let mut late = late;
    late.sort_unstable();
    assert_eq!(
        late,
        (0..FWP)
            .filter(|number| number % 20 == 10)
            .collect::<Vec<_>>()
    );
    drain_others(&daemon);
    // What is left is scheduled; its bodies are still there, and the file is nearly empty.
    let http = Http(daemon.address("http"));
    assert_eq!(
        json(http, "/api/v1/jobs/count?state=scheduled")["jobs"],
        FWP / 20
    );
    let id = with_text(http, "faktory", 20);
    assert!(
        http.get(&format!("/api/v1/jobs/{id}/body"))
            .text()
            .contains(&body("faktory", 20))
    );
    assert!(
        !daemon.log_text().contains("ERROR"),
        "{}",
        daemon.log_text()
    );
}

/// Bytes of bodies that are not in memory.
fn stored_bytes(daemon: &Daemon) -> f64 {
    Http(daemon.address("http")).metric("windlass_jobs_stored_bytes")
}

/// The log's files whose contents do not change any more, with these contents.
fn full_segments(data: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let named = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("segment-")
    };
    let files = fs::read_dir(data.join("store/log"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(named);
    let mut all: Vec<_> = files
        .map(|path| (fs::metadata(&path).unwrap().modified().unwrap(), path))
        .collect();
    all.sort();
    all.pop();
    all.into_iter()
        .map(|(_, path)| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

/// Files of the store become shorter, or have other bytes: the job whose turn it is dies, and no other one. Its body is
/// there again when the files are.
#[test]
fn a_job_whose_body_cannot_be_read_dies_alone() {
    let damages: [fn(&Path, &[u8]); 2] = [
        |path, _| {
            fs::File::options()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(0)
                .unwrap()
        },
        |path, bytes| fs::write(path, vec![7; bytes.len()]).unwrap(),
    ];
    for damage in damages {
        let dir = tempfile::tempdir().unwrap();
        let mut daemon = daemon(dir.path()).set(SMALL_MEMORY).eventmq("").start();
        push_all(&daemon);
        daemon.kill();
        daemon.restart();
        let files = full_segments(&dir.path().join("data"));
        assert!(files.len() > 1, "{} files", files.len());
        files.iter().for_each(|(path, bytes)| damage(path, bytes));
        let mut gearman = Peer::connect(daemon.address("gearman")).unwrap();
        gearman.can_do("backlog").unwrap();
        assert!(gearman.grab().unwrap().is_none());
        let http = Http(daemon.address("http"));
        let dead = json(http, "/api/v1/jobs?state=dead");
        assert_eq!(
            dead["jobs"][0]["failure"]["message"], "its body cannot be read",
            "{dead}"
        );
        files
            .iter()
            .for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        let log = daemon.log_text();
        let lines: Vec<_> = log
            .lines()
            .filter(|line| line.contains("back into memory"))
            .collect();
        assert!(
            !lines.is_empty() && lines.iter().all(|line| line.contains("segment-")),
            "{log}"
        );
        assert_eq!(changed(http, "retry?state=dead"), 1);
        drain_gearman(daemon.address("gearman"), (1..GEARMAN).chain([0]));
        assert_eq!(drain_fwp(daemon.address("faktory")).len(), FWP / 10 * 9);
        drain_others(&daemon);
    }
}

/// Runs a command on the data in a directory, which must succeed.
fn windlass(args: &[&str], data: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let ended = command
        .args(args)
        .arg("--data-dir")
        .arg(data)
        .env_clear()
        .output()
        .unwrap();
    assert!(
        ended.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

#[test]
fn an_export_of_a_backlog_has_every_body() {
    let dir = tempfile::tempdir().unwrap();
    let mut served = daemon(dir.path()).set(SMALL_MEMORY).start();
    push_gearman(served.address("gearman"), 0..500);
    assert!(bytes_on_disk(&served) > 0);
    let (file, copy) = (dir.path().join("export"), dir.path().join("copy"));
    windlass(
        &["export", "-o", file.to_str().unwrap()],
        &dir.path().join("data"),
    );
    served.kill();
    fs::create_dir(&copy).unwrap();
    windlass(
        &["import", "jsonl", file.to_str().unwrap()],
        &copy.join("data"),
    );
    let again = daemon(&copy).set(SMALL_MEMORY).start();
    assert!(stored_bytes(&again) > 0.0);
    drain_gearman(again.address("gearman"), 0..500);
}

/// Producers do not notice that bodies leave memory, and workers get jobs while it happens.
#[test]
fn workers_are_served_while_a_backlog_grows() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[limits]\nmemory = \"16MiB\"")
        .start();
    let address = daemon.address("gearman");
    push_gearman(address, 1..1_000);
    let (pushes, works) = std::thread::scope(|scope| {
        let pushes = scope.spawn(|| push_gearman(address, 1_001..2_000));
        let works = scope.spawn(|| drain_gearman(address, 1..1_000));
        (pushes.join(), works.join())
    });
    assert!(pushes.is_ok() && works.is_ok());
    drain_by_two(address, 998);
    drain_gearman(address, [1_999]);
    wait_until("the file is empty", || {
        bytes_on_disk(&daemon) == 0 || is_idle(&daemon)
    });
}

fn is_idle(daemon: &Daemon) -> bool {
    let status: Value = json(Http(daemon.address("http")), "/api/v1/jobs/count?");
    status["jobs"] == 0
}

/// On a full disk no body can leave memory either: new jobs are refused, everything else goes on.
#[test]
fn a_full_disk_keeps_bodies_and_refuses_new_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SmallDisk::new(&dir.path().join("data"), 128);
    let mut served = daemon(dir.path()).set(SMALL_MEMORY).on(&disk).start();
    let mut peer = Peer::connect(served.address("gearman")).unwrap();
    let large = |number: usize| format!("{number} ").repeat(50_000 / 4);
    let pushed = (0..5_000).find(|number| match peer.submit("backlog", "", large(*number)) {
        Ok(_) => false,
        Err(refusal) => {
            assert!(refusal.to_string().contains("QUEUE_ERROR"), "{refusal}");
            true
        }
    });
    let pushed = pushed.expect("the disk never fills");
    disk.fill();
    let before = bytes_on_disk(&served);
    let drain = |served: &Daemon, numbers: std::ops::Range<usize>| {
        let mut peer = Peer::connect(served.address("gearman")).unwrap();
        peer.can_do("backlog").unwrap();
        for number in numbers {
            let job = peer
                .grab()
                .unwrap()
                .unwrap_or_else(|| panic!("{number} of {pushed} is missing"));
            assert!(
                job.workload == large(number),
                "{number}: {:.20?}",
                job.workload
            );
            peer.complete(&job.handle).unwrap();
        }
        assert!(peer.line("version").unwrap().starts_with("OK "));
    };
    let most = pushed / 4 * 3;
    drain(&served, 0..most);
    wait_until("the disk has their bytes again", || {
        bytes_on_disk(&served) < before - (8 << 20)
    });
    disk.make_room();
    wait_until("jobs are taken again", || {
        peer.submit("other", "", "x").is_ok()
    });
    served.kill();
    served.restart();
    drain(&served, most..pushed);
}
