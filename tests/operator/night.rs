//! Ten scenes of a night on call. Of each the first look at the overview and at `windlass status` tells what is wrong, a
//! second look tells which jobs it is, and one action ends it. What a full disk shows: `durability/full_disk.rs`.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use windlass_testkit::daemon::Daemon;

use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::{Peer, daemon, wait_until};
use crate::failures::{fail, says};

/// A daemon at night.
struct Night {
    dir: TempDir,
    daemon: Daemon,
}

impl Night {
    fn with(settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let daemon = daemon(dir.path())
            .set(&format!(
                "[faktory]\nlisten = [\"127.0.0.1:0\"]\n{settings}"
            ))
            .start();
        Self { dir, daemon }
    }

    fn peer(&self) -> Peer {
        Peer::connect(self.daemon.address("gearman")).unwrap()
    }

    /// The first look, at the page and at the terminal.
    fn tells(&self, what: &str) {
        let page = || Http(self.daemon.address("http")).get("/").text().to_owned();
        wait_until(what, || page().contains(what));
        let status = self.run(&["status"]);
        assert!(status.contains(what), "{what}: {status}");
    }

    /// A second look, or an action.
    fn run(&self, words: &[&str]) -> String {
        says(self.path(), words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn page(&self, path: &str) -> String {
        Http(self.daemon.address("http"))
            .get(path)
            .text()
            .to_owned()
    }
}

/// The line of a table that begins with this word.
fn row<'a>(table: &'a str, word: &str) -> &'a str {
    table
        .lines()
        .find(|line| line.split_whitespace().next() == Some(word))
        .unwrap_or_else(|| panic!("{word}: {table}"))
}

#[test]
fn a_queue_grows_and_its_workers_are_dead() {
    let night = Night::with("");
    let mut peer = night.peer();
    peer.submit("small", "", "x").unwrap();
    (0..20).for_each(|_| drop(peer.submit("grows", "", "x").unwrap()));
    let mut worker = night.peer();
    worker.can_do("small").unwrap();
    assert!(worker.grab().unwrap().is_some());
    night.tells("Jobs of grows wait, and no worker serves it");
    let queues = night.run(&["queues", "--sort", "ready"]);
    assert!(
        queues
            .lines()
            .nth(1)
            .is_some_and(|line| line.starts_with("grows ") && line.contains(" 20 ")),
        "{queues}"
    );
    let why = night.run(&["why", "2"]);
    assert!(row(&why, "why").contains("no worker serves grows"), "{why}");
    // A worker comes.
    worker.can_do("grows").unwrap();
    wait_until("it is served", || {
        !night.page("/").contains("no worker serves")
    });
}

#[test]
fn all_jobs_of_one_kind_fail_and_are_retried_for_weeks() {
    let night = Night::with("");
    for number in 1..=3 {
        fail(
            &night.daemon,
            &format!("timeout {number}"),
            &[("Sync", 25), ("Charge", 25)],
        );
    }
    fail(&night.daemon, "timeout 4", &[("Sync", 25)]);
    night.tells("Failing now, in the last 5 minutes: IOError: timeout * in Sync, 4; IOError: timeout * in Charge, 3");
    let kinds = night.run(&["kinds", "--sort", "failed"]);
    assert!(
        row(&kinds, "Sync")
            .split_whitespace()
            .any(|cell| cell == "4"),
        "{kinds}"
    );
    assert!(night.page("/kinds").contains("100 %"));
    let group = [
        "--state",
        "retrying",
        "--error-group",
        "IOError: timeout *",
        "--exact-kind",
        "Sync",
    ];
    assert_eq!(
        night.run(&[&["kill"], &group[..]].concat()),
        "4 jobs changed\n"
    );
}

#[test]
fn a_poisonous_job_kills_its_workers() {
    let night = Night::with("[limits]\nlosses_max = 2\nloss_pause = '10ms'\n");
    night.peer().submit("poison", "", "x").unwrap();
    for _ in 0..2 {
        let mut worker = night.peer();
        worker.can_do("poison").unwrap();
        wait_until("the job is there", || worker.grab().unwrap().is_some());
    }
    night.tells("2 jobs lost with a worker, the last one ");
    wait_until("it is dead", || night.run(&["dead"]).contains("poison"));
    let job = night.run(&["job", "1"]);
    assert!(
        job.contains("2 workers were lost with it") && job.contains("127.0.0.1"),
        "{job}"
    );
    night.run(&["delete", "1", "--yes"]);
    wait_until("it is gone", || !night.run(&["dead"]).contains("poison"));
}

#[test]
fn one_tenant_floods_the_others() {
    let night = Night::with("[queues.mail]\nkey = { prefix = '|' }\nfair = true\n");
    let mut peer = night.peer();
    (0..30).for_each(|_| drop(peer.submit("mail", "", "whale|x").unwrap()));
    peer.submit("mail", "", "shrimp|x").unwrap();
    let mut worker = night.peer();
    worker.can_do("mail").unwrap();
    let first_two: Vec<_> = (0..2)
        .map(|_| worker.grab().unwrap().unwrap().workload)
        .collect();
    assert!(
        first_two.contains(&"shrimp|x".into()),
        "others have their turns: {first_two:?}"
    );
    let keys = night.run(&["keys", "mail"]);
    assert!(keys.contains("\"whale\": 29 waiting, 1 running"), "{keys}");
    assert!(night.page("/queues/mail").contains("whale"));
    night.run(&["pause", "mail", "--key", "whale"]);
    assert!(worker.grab().unwrap().is_none());
}

#[test]
fn the_memory_for_jobs_is_full() {
    let night = Night::with("[limits]\nmemory = \"64MiB\"\n");
    let mut fwp = Fwp::connect(night.daemon.address("faktory"));
    let mut pushed = 0;
    let refused = loop {
        let job = |n: usize| json!({"jid": format!("{:0>200}", pushed + n), "jobtype": "Fill", "args": []});
        let answer = fwp.ask(&format!(
            "PUSHB {}",
            (0..1_000).map(job).collect::<serde_json::Value>()
        ));
        pushed += 1_000;
        assert!(pushed < 400_000, "memory is never full");
        if answer != "{}" {
            break answer;
        }
    };
    assert!(
        refused.contains("daemon is full: bytes of jobs"),
        "{}",
        refused.chars().take(300).collect::<String>()
    );
    night.tells("limits.memory reached: rejecting new jobs; existing jobs continue");
    let check = says(night.path(), &["check", "--live"]);
    assert!(check.is_err() || check.is_ok_and(|text| text.contains("CRITICAL")));
    let queues = night.run(&["queues", "--sort", "ready"]);
    assert!(row(&queues, "default").starts_with("default"), "{queues}");
    night.run(&["clear", "default", "--yes"]);
    wait_until("there is room again", || {
        !night.page("/").contains("limits.memory reached")
    });
}

#[test]
fn a_schedule_has_run_and_nobody_works_on_it() {
    let cron =
        "[[faktory.cron]]\nschedule = '0 0 1 1 *'\njob = { type = 'Report', queue = 'reports' }\n";
    let night = Night::with(cron);
    let schedules = || night.run(&["schedules", "--wide"]);
    let id = schedules()
        .lines()
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned();
    night.run(&["schedule", "run", &id]);
    night.tells("Schedules whose jobs no worker takes, or that did not run: configuration: ");
    assert!(schedules().contains("unserved"), "{}", schedules());
    let mut fwp = Fwp::connect(night.daemon.address("faktory"));
    fwp.ask("FETCH reports");
    wait_until("it is worked on", || !schedules().contains("unserved"));
}

#[test]
fn a_worker_is_slow() {
    let night = Night::with("");
    night.peer().submit("slow", "", "x").unwrap();
    let mut worker = night.peer();
    worker.can_do("slow").unwrap();
    worker.grab().unwrap().unwrap();
    let queues = night.run(&["queues"]);
    assert!(row(&queues, "slow").contains(" 1 "), "{queues}");
    let job = night.run(&["job", "1"]);
    assert!(
        job.contains("127.0.0.1") && job.contains("leased"),
        "who has it, and since when: {job}"
    );
    assert!(night.page("/jobs?state=leased").contains("/jobs/1\""));
    assert!(row(&night.run(&["requeue", "1"]), "1").contains("ready"));
}

#[test]
fn clients_cannot_connect() {
    let night = Night::with("[server]\nconnections_max = 2\nconnections_reserved = 0\n");
    let _held =
        [night.peer(), night.peer()].map(|mut peer| peer.line("version").map(|_| peer).unwrap());
    let submit = || night.peer().submit("f", "", "x");
    assert!(submit().is_err(), "there is no place");
    night.tells("connection limit reached (server.connections_max or open files)");
    night.tells(" refused, the last one ");
    let connections = night.run(&["connections"]);
    let id = row(
        &connections,
        connections
            .lines()
            .nth(1)
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap(),
    );
    night.run(&["disconnect", id.split_whitespace().next().unwrap(), "--yes"]);
    wait_until("there is a place", || submit().is_ok());
}
