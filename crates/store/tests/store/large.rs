//! Opening a store with more bodies than memory: every body is available, and no body is written again.
//!
//! With `WINDLASS_LARGE_JOBS` it is a measurement. `WINDLASS_LARGE_DIR` keeps the directory, and the next run
//! opens it again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use windlass_engine::{JobCommand, Limits, NewJob, Protocol, Timestamp};
use windlass_store::{BodyFile, Opened, Overflow, StoreConfig, open};
use windlass_table_sled::SledTables;

use crate::daemon::QUEUE;
use crate::files::{self, home};

/// Jobs of a commit.
const AT_ONCE: u64 = 250;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn body(id: u64, bytes: usize) -> Vec<u8> {
    let head = id.to_le_bytes();
    head.iter().copied().cycle().take(bytes).collect()
}

fn config(folder: &Path, memory: u64) -> StoreConfig {
    let mut config = StoreConfig::new(folder, SledTables::default());
    config.checkpoints.overflow = Some(Overflow {
        folder: folder.into(),
        memory,
    });
    config
}

/// Fills a store. The last `behind` jobs are only in the log.
fn fill(config: &StoreConfig, jobs: u64, behind: u64, bytes: usize) {
    let mut daemon = files::Daemon::start(config, 1, Timestamp(1_000)).unwrap();
    daemon.open_clients();
    let (begun, mut checkpoints) = (Instant::now(), Duration::ZERO);
    for first in (1..=jobs).step_by(usize::try_from(AT_ONCE).unwrap()) {
        let ids = first..=jobs.min(first + AT_ONCE - 1);
        for id in ids.clone() {
            let new = NewJob::new(Protocol::GEARMAN, QUEUE, body(id, bytes).into());
            daemon.apply(JobCommand::Push(Box::new(new)));
        }
        while let Some(commit) = daemon.cut() {
            daemon.append(&commit).unwrap();
        }
        // The bodies are on the disk: this process needs none of them.
        let jobs_now: Vec<_> = ids.clone().map(windlass_engine::JobId).collect();
        for id in &jobs_now {
            assert!(daemon.engine.set_stored(*id, &body(id.0, bytes), id.0));
        }
        daemon.engine.pack(jobs_now.into_iter());
        let is_last = *ids.end() >= jobs - behind && *ids.start() <= jobs - behind;
        if is_last || daemon.checkpointer.is_due() && *ids.end() <= jobs - behind {
            let begun = Instant::now();
            daemon.checkpointer.run(is_last).unwrap();
            checkpoints += begun.elapsed();
        }
    }
    let (all, checkpoints) = (begun.elapsed().as_secs_f64(), checkpoints.as_secs_f64());
    println!("filled in {all:.1} s, {checkpoints:.1} s of them in checkpoints");
}

/// Bytes that this process has written so far.
fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    io.lines()
        .find_map(|line| line.strip_prefix("wchar: "))
        .map_or(0, |bytes| bytes.parse().unwrap())
}

fn are_right(opened: &Opened, bodies: &BodyFile, bytes: usize, one_in: usize) -> u64 {
    let mut stored = 0;
    for job in opened.recovered.engine.jobs().step_by(one_in) {
        let is = match job.payload.stored() {
            Some(at) => {
                stored += 1;
                bodies.reader().read(at).unwrap()
            }
            None => job.payload.share_body(),
        };
        assert!(is == body(job.id.0, bytes), "{:?}", job.id);
    }
    stored
}

#[test]
fn a_large_store_is_opened_in_little_memory() {
    let jobs = number("WINDLASS_LARGE_JOBS", 4_000);
    let bytes = usize::try_from(number("WINDLASS_LARGE_BYTES", 1_024)).unwrap();
    let (behind, memory) = (
        number("WINDLASS_LARGE_BEHIND", 1_000),
        number("WINDLASS_LARGE_MEMORY", 100_000),
    );
    let temporary = home();
    let dir = std::env::var("WINDLASS_LARGE_DIR")
        .map_or_else(|_| temporary.path().to_owned(), PathBuf::from);
    let config = config(&dir, memory);
    if !dir.join("store").exists() {
        fill(&config, jobs, behind, bytes);
    }
    let (begun, before) = (Instant::now(), written());
    let mut opened = open(&config, Limits::default(), 2).unwrap();
    println!(
        "opened in {:.2} s, {} bytes written",
        begun.elapsed().as_secs_f64(),
        written() - before
    );
    assert_eq!(opened.recovered.report.jobs, jobs);
    let bodies = opened.recovered.bodies.take().unwrap();
    println!(
        "{} bytes of bodies, {} on the disk",
        bodies.bytes(),
        bodies.disk_bytes()
    );
    assert!(
        are_right(
            &opened,
            &bodies,
            bytes,
            usize::try_from(jobs / 2_000).unwrap()
        ) > 1_000
    );
}
