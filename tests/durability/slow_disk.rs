//! Kills the daemon on a slow disk, while clients of all protocols push into queues with and without policies and bodies
//! leave memory. With `sync` each acknowledged job is there afterwards. With `interval` the missing ones were acknowledged
//! within two intervals, and have 32 MiB at most, however far the disk is behind.
//!
//! `WINDLASS_TEST_SLOW_KILLS=1000` runs it longer, `WINDLASS_TEST_DISK_BYTES=2097152` on a disk of 2 MiB a second, and
//! `WINDLASS_TEST_BODY_BYTES=20000` with smaller bodies, so that a round takes seconds there. A C compiler makes the slow disk
//! (`slow_disk.c`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use windlass_testkit::daemon::Daemon;
use windlass_testkit::preload::library;

use crate::common::eventmq::Peer as EventMq;
use crate::common::faktory::Fwp;
use crate::common::spiderq::{Bare, add};
use crate::common::{Peer, daemon, from_env, wait_until};

/// Bytes a second: less than an unoptimised daemon accepts, so that the disk falls behind.
const DISK_BYTES: u64 = 4 << 20;
const INTERVAL: Duration = Duration::from_millis(100);
/// How much later than the daemon sends it a client may see an acknowledgement, on a busy machine. The disk is seconds
/// behind.
const SEEN_LATE: Duration = Duration::from_secs(2);
const LOSS_BYTES_MAX: usize = 33 << 20;

const SETTINGS: &str = r#"
limits.memory = "96MiB"
server.return_grace = "10ms"
[queues.ordered]
key = { args = "/0/key" }
ordered = true
[queues.fair]
key = { args = "/0/key" }
fair = true
rate = { jobs = 1000, per = "1s" }
"#;

/// The acknowledged jobs of a round, each with the time when its client saw that.
#[derive(Default)]
struct Seen {
    next: AtomicU64,
    acknowledged: Mutex<BTreeMap<u64, Instant>>,
}

impl Seen {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn acknowledge(&self, number: u64) {
        self.acknowledged
            .lock()
            .unwrap()
            .insert(number, Instant::now());
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }
}

/// Bytes of each body.
fn body_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| usize::try_from(from_env("WINDLASS_TEST_BODY_BYTES", 200_000)).unwrap())
}

/// The argument of a job.
fn argument(number: u64) -> String {
    format!(
        r#"{{"key":{},"number":"<{number}>","more":"{}"}}"#,
        number % 7,
        "x".repeat(body_bytes())
    )
}

fn gearman(seen: &Seen, address: SocketAddr) {
    let Ok(mut peer) = Peer::connect(address) else {
        return;
    };
    loop {
        let number = seen.number();
        let unique = if number.is_multiple_of(3) {
            format!("u{number}")
        } else {
            String::new()
        };
        let queue = ["ordered", "fair", "plain"][usize::try_from(number % 3).unwrap()];
        if peer
            .submit(queue, &unique, format!("[{}]", argument(number)))
            .is_err()
        {
            return;
        }
        seen.acknowledge(number);
    }
}

fn faktory(seen: &Seen, address: SocketAddr) {
    let Ok(mut fwp) = Fwp::try_hello(address) else {
        return;
    };
    loop {
        let number = seen.number();
        let job = format!(
            r#"{{"jid":"jid-{number:08}","jobtype":"T","queue":"fair","args":[{}]}}"#,
            argument(number)
        );
        match fwp.try_ask(&format!("PUSH {job}")) {
            Ok(said) if said == "+OK" => seen.acknowledge(number),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

fn spiderq(seen: &Seen, address: SocketAddr) {
    let Ok(mut bare) = Bare::try_connect(address) else {
        return;
    };
    loop {
        let number = seen.number();
        match bare.try_ask(&add(&format!("key {number}"), argument(number).as_bytes())) {
            Ok(said) if said == [0x02] => seen.acknowledge(number),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

fn eventmq(seen: &Seen, address: SocketAddr) {
    let Ok(mut peer) = EventMq::try_connect(address, &format!("producer {}", seen.number())) else {
        return;
    };
    loop {
        let number = seen.number();
        let job = format!(
            r#"["run",{{"path":"p","callable":"c","args":[{}]}}]"#,
            argument(number)
        );
        let id = number.to_string();
        if peer
            .say(&["REQUEST", &id, "ordered", "reply-requested", &job])
            .is_err()
        {
            return;
        }
        match peer.hear() {
            Ok(heard) if heard.first().is_some_and(|word| word == "REPLY") => {
                seen.acknowledge(number)
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// Pushes until the daemon is gone.
type Client = fn(&Seen, SocketAddr);

fn push(seen: &Arc<Seen>, daemon: &Daemon) -> Vec<JoinHandle<()>> {
    let clients: [(Client, &str); 4] = [
        (gearman, "gearman"),
        (faktory, "faktory"),
        (spiderq, "spiderq"),
        (eventmq, "eventmq"),
    ];
    let client = |(client, protocol): (Client, &str)| {
        let (seen, address) = (Arc::clone(seen), daemon.address(protocol));
        thread::spawn(move || client(&seen, address))
    };
    clients.into_iter().chain(clients).map(client).collect()
}

/// The numbers of all jobs in the store.
fn stored(data: &Path) -> BTreeSet<u64> {
    let windlass = env!("CARGO_BIN_EXE_windlass");
    let export = Command::new(windlass)
        .args(["export", "--data-dir"])
        .arg(data)
        .output()
        .unwrap();
    assert!(
        export.status.success(),
        "{}",
        String::from_utf8_lossy(&export.stderr)
    );
    let lines = String::from_utf8(export.stdout).unwrap();
    let number = |line: &str| {
        let body = line.split_once("\"body_base64\":\"")?.1.split('"').next()?;
        let body = BASE64_STANDARD.decode(body).ok()?;
        let text = String::from_utf8_lossy(&body);
        text.split_once("number\":\"<")?
            .1
            .split_once('>')?
            .0
            .parse()
            .ok()
    };
    lines.lines().filter_map(number).collect()
}

/// Kills the daemon again and again, and returns the bytes that were lost in each round, after checking their times.
fn lost_in_rounds(durability: &str, kills: u64) -> Vec<usize> {
    let dir = tempfile::tempdir().unwrap();
    let library = library(dir.path(), "slow_disk", include_str!("slow_disk.c"));
    let settings = format!("durability = \"{durability}\"\ncommit_interval = \"100ms\"{SETTINGS}");
    let plan = daemon(dir.path()).set(&settings).eventmq("");
    let disk = from_env("WINDLASS_TEST_DISK_BYTES", DISK_BYTES).to_string();
    let plan = plan
        .variable("LD_PRELOAD", library.to_str().unwrap())
        .variable("SLOW_DISK_BYTES", &disk);
    let mut daemon = plan.start();
    let (seen, mut lost_bytes) = (Arc::new(Seen::default()), Vec::new());
    for kill in 0..kills {
        seen.acknowledged.lock().unwrap().clear();
        let clients = push(&seen, &daemon);
        let more = usize::try_from(200 + kill % 5 * 50).unwrap();
        wait_until("jobs are acknowledged", || seen.count() >= more);
        daemon.kill();
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
        let stored = stored(&dir.path().join("data"));
        let acknowledged = seen.acknowledged.lock().unwrap();
        let lost = || {
            acknowledged
                .iter()
                .filter(|(number, _)| !stored.contains(number))
                .map(|(_, at)| *at)
        };
        if let (Some(first), Some(last)) = (lost().min(), lost().max()) {
            assert!(
                last - first <= 2 * INTERVAL + SEEN_LATE,
                "kill {kill}: lost over {:?}",
                last - first
            );
        }
        lost_bytes.push(lost().count() * body_bytes());
        println!(
            "kill {kill}, {durability}: {} acknowledged, {} lost",
            acknowledged.len(),
            lost().count()
        );
        drop(acknowledged);
        // A store that grows for ever makes each start longer.
        if kill % 20 == 19 {
            std::fs::remove_dir_all(dir.path().join("data")).unwrap();
        }
        daemon.restart();
    }
    lost_bytes
}

#[test]
fn on_a_slow_disk_sync_loses_nothing() {
    let kills = from_env("WINDLASS_TEST_SLOW_KILLS", 1);
    assert!(
        lost_in_rounds("sync", kills)
            .iter()
            .all(|bytes| *bytes == 0),
        "acknowledged but lost"
    );
}

#[test]
fn on_a_slow_disk_an_interval_loses_two_intervals_at_most() {
    let kills = from_env("WINDLASS_TEST_SLOW_KILLS", 1);
    let lost = lost_in_rounds("interval", kills);
    assert!(
        lost.iter().all(|bytes| *bytes <= LOSS_BYTES_MAX),
        "{lost:?}"
    );
}
