//! Measures the store on the disk under a directory: its speed, the bytes it writes and occupies, and how long opening
//! takes.
//!
//! `cargo bench -p windlass-store --bench journal -- [commits|checkpoints|open] [dir]`. Without a name it runs all of
//! them. Without a directory, it works in this package's folder. `checkpoints SIZE COUNT` and `open COUNT` take other
//! numbers.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use windlass_engine::{
    ClientCommand, ClientId, Context, Engine, JobCommand, Limits, NewJob, Protocol, Tag, Timestamp,
};
use windlass_store::{Checkpointer, Journal, Log, Opened, StoreConfig, open};
use windlass_table_sled::SledTables;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const CLIENT: ClientId = ClientId(1);
/// Jobs pushed in one visit, and visits between two checkpoints.
const VISIT_JOBS: u64 = 100;
const CHECKPOINTS: u64 = 8;

fn main() -> Outcome {
    // Cargo adds options of its own.
    let mut words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"))
        .collect();
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    words.retain(|word| word.parse::<u64>().is_err());
    let what = words.first().map_or("all", String::as_str);
    let home = words
        .get(1)
        .map_or_else(|| PathBuf::from("."), PathBuf::from)
        .join("windlass-store-bench");
    if matches!(what, "commits" | "all") {
        commits(&home)?;
    }
    if matches!(what, "checkpoints" | "all") {
        let shapes = [
            (100, 400_000),
            (1_000, 80_000),
            (10_000, 12_000),
            (100_000, 1_200),
            (1_000_000, 120),
        ];
        match numbers[..] {
            [size, count] => checkpoints(&home, size, count)?,
            _ => shapes
                .into_iter()
                .try_for_each(|(size, count)| checkpoints(&home, size, count))?,
        }
    }
    if matches!(what, "open" | "all") {
        let counts = if numbers.is_empty() {
            vec![42_000, 1_000_000]
        } else {
            numbers
        };
        counts
            .into_iter()
            .try_for_each(|count| opening(&home, count))?;
    }
    Ok(())
}

struct Daemon {
    engine: Engine,
    journal: Journal,
    log: Box<dyn Log>,
    checkpointer: Checkpointer,
    context: Context,
}

impl Daemon {
    fn on(home: &Path) -> Outcome<Self> {
        let limits = Limits {
            jobs_bytes_max: 1 << 40,
            jobs_max: 1 << 40,
            ..Limits::default()
        };
        let config = StoreConfig::new(home, SledTables::default());
        let Opened {
            log,
            checkpointer,
            recovered,
            guard,
        } = open(&config, limits, 7)?;
        // Held while the process lives.
        std::mem::forget(guard);
        let mut context = Context::new(Timestamp(1_700_000_000_000), 7);
        let (mut engine, journal) = (recovered.engine, recovered.journal);
        engine.apply(
            CLIENT,
            Tag(1),
            ClientCommand::Open(Default::default()),
            &mut context,
        );
        Ok(Self {
            engine,
            journal,
            log,
            checkpointer,
            context,
        })
    }

    fn push(&mut self, body: &[u8], count: u64) -> Outcome {
        self.context.changes.clear();
        self.context.events.clear();
        for _ in 0..count {
            // Each body has separate memory, like the bodies of clients.
            let job = NewJob::new(
                Protocol::GEARMAN,
                Bytes::from_static(b"work"),
                Bytes::copy_from_slice(body),
            );
            self.engine.apply(
                CLIENT,
                Tag(1),
                JobCommand::Push(Box::new(job)),
                &mut self.context,
            );
        }
        self.journal.append(&self.engine, &self.context.changes);
        while let Some(commit) = self.journal.cut(&self.engine) {
            self.log.append(&commit)?;
            self.journal.committed(commit.seq());
        }
        Ok(())
    }
}

/// A small job per commit.
fn commits(home: &Path) -> Outcome {
    const COMMITS: u32 = 10_000;
    let mut daemon = Daemon::on(home)?;
    let (mut micros, started, cpu) = (Vec::new(), Instant::now(), cpu_seconds()?);
    for _ in 0..COMMITS {
        let one = Instant::now();
        daemon.push(&[7; 100], 1)?;
        micros.push(one.elapsed().as_micros());
    }
    let seconds = started.elapsed().as_secs_f64();
    micros.sort_unstable();
    let at = |part: usize| {
        micros
            .get(micros.len() * part / 1000)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "commits of one job of 100 B: {:.0}/s, p50 {} us, p99.9 {} us, {:.1} us of CPU each",
        f64::from(COMMITS) / seconds,
        at(500),
        at(999),
        (cpu_seconds()? - cpu) * 1e6 / f64::from(COMMITS),
    );
    std::fs::remove_dir_all(home)?;
    Ok(())
}

/// The cost of checkpoints of jobs that all live.
fn checkpoints(home: &Path, size: u64, count: u64) -> Outcome {
    let mut daemon = Daemon::on(home)?;
    let body: Vec<u8> = (0..size)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()[0])
        .collect();
    let (mut cpu, mut written, mut seconds) = (0.0, 0, 0.0);
    for _ in 0..CHECKPOINTS {
        let mut left = count / CHECKPOINTS;
        while left > 0 {
            let now = left.min(VISIT_JOBS);
            daemon.push(&body, now)?;
            left -= now;
        }
        let before = (cpu_seconds()?, written_bytes()?, Instant::now());
        daemon.checkpointer.run(true)?;
        cpu += cpu_seconds()? - before.0;
        written += written_bytes()? - before.1;
        seconds += before.2.elapsed().as_secs_f64();
    }
    let figures = daemon.checkpointer.figures();
    let (live, table) = (
        figures.live_bytes.load(Ordering::Relaxed),
        figures.table_bytes.load(Ordering::Relaxed),
    );
    println!(
        "checkpoints of {count} jobs of {size} B: {:.2} us of CPU a job, {seconds:.2} s, {:.2} B written a B of body, \
         the table takes up {:.2} times what lives in it",
        cpu * 1e6 / count as f64,
        written as f64 / (size * count) as f64,
        table as f64 / live as f64,
    );
    drop(daemon);
    std::fs::remove_dir_all(home)?;
    Ok(())
}

/// Time to open a store with `count` jobs of 100 B, all in the table.
fn opening(home: &Path, count: u64) -> Outcome {
    let mut daemon = Daemon::on(home)?;
    let mut left = count;
    while left > 0 {
        let now = left.min(1_000);
        daemon.push(&[7; 100], now)?;
        left -= now;
    }
    daemon.checkpointer.run(true)?;
    while daemon.checkpointer.is_due() {
        daemon.checkpointer.run(true)?;
    }
    drop(daemon);
    // The lock is not released until the process ends, so a copy is opened.
    let copy = home.with_extension("copy");
    std::fs::create_dir_all(&copy)?;
    std::fs::rename(home.join("store"), copy.join("store"))?;
    let (started, cpu) = (Instant::now(), cpu_seconds()?);
    let daemon = Daemon::on(&copy)?;
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    println!(
        "opening {} jobs of 100 B: {seconds:.2} s, {cpu:.2} s of CPU",
        daemon.engine.job_count()
    );
    drop(daemon);
    std::fs::remove_dir_all(home)?;
    std::fs::remove_dir_all(&copy)?;
    Ok(())
}

/// CPU time of all threads.
fn cpu_seconds() -> Outcome<f64> {
    let mut nanoseconds = 0.0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        // A thread may end meanwhile.
        let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) else {
            continue;
        };
        nanoseconds += text.split(' ').next().unwrap_or_default().parse::<f64>()?;
    }
    Ok(nanoseconds / 1e9)
}

/// Bytes passed to the system's writing calls.
fn written_bytes() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/self/io")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("wchar: "))
        .unwrap_or_default();
    Ok(line.parse()?)
}
