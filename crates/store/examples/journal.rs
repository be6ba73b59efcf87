//! How fast the journal is, what it takes up, and how long recovery takes, on the disk under a directory.
//!
//! `cargo run --release -p windlass-store --example journal -- [append|commits|churn|recover|memory] [dir] [seconds]`;
//! without a word all of them, each in a process of its own, under the present directory.

use std::collections::VecDeque;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use windlass_engine::{ClientId, Command, Engine, JobId, JobRef, Limits, NewJob, Origin, Tag, Timestamp, Turn};
use windlass_store::{Commit, Journal, JournalLimits, MemoryStore, SledConfig, SledStore, Store, recover};

type Outcome = Result<(), Box<dyn Error>>;

const QUEUE: &[u8] = b"work";
const CLIENT: ClientId = ClientId(1);
const BODY_BYTES: usize = 100;
const MILLION: u64 = 1_000_000;

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().collect();
    let words = ["append", "commits", "churn", "recover", "memory"];
    if let Some(("memory-of", rest)) = args.get(1).map(|word| (word.as_str(), args.get(2..).unwrap_or_default())) {
        return memory_of(rest);
    }
    let Some(word) = args.get(1) else {
        for word in words {
            std::process::Command::new(std::env::current_exe()?).arg(word).status()?;
        }
        return Ok(());
    };
    let home = args.get(2).map_or_else(|| PathBuf::from("."), PathBuf::from).join("windlass-journal-bench");
    let seconds = args.get(3).map_or(Ok(10), |text| text.parse())?;
    std::fs::create_dir_all(&home)?;
    let done = match word.as_str() {
        "append" => append(),
        "commits" => commits(&home, Duration::from_secs(seconds)),
        "churn" => churn(&home, Duration::from_secs(seconds)),
        "recover" => recovery(&home),
        "memory" => memory(),
        other => Err(format!("{other} is none of {words:?}").into()),
    };
    std::fs::remove_dir_all(&home)?;
    done
}

struct Daemon {
    engine: Engine,
    journal: Journal,
    turn: Turn,
}

impl Daemon {
    fn new(store: &dyn Store) -> Result<Self, Box<dyn Error>> {
        let recovered = recover(store, Limits::default(), JournalLimits::default(), 1)?;
        let turn = Turn::new(Timestamp(1_700_000_000_000), 1);
        let mut daemon = Self { engine: recovered.engine, journal: recovered.journal, turn };
        daemon.visit(Command::Open(Default::default()));
        Ok(daemon)
    }

    /// One command, not yet in the journal.
    fn apply(&mut self, command: Command) {
        self.turn.events.clear();
        self.engine.apply(CLIENT, Tag(1), command, &mut self.turn);
    }

    fn append(&mut self) {
        self.journal.append(&self.engine, &self.turn.changes);
        self.turn.changes.clear();
    }

    fn visit(&mut self, command: Command) {
        self.apply(command);
        self.append();
    }

    fn push(&mut self, body: &Bytes) {
        let job = NewJob::new(Origin::GEARMAN, Bytes::from_static(QUEUE), body.clone());
        self.apply(Command::Push(Box::new(job)));
    }

    fn cut(&mut self) -> Option<Commit> {
        self.journal.cut(&self.engine)
    }

    fn commit(&mut self, store: &mut dyn Store) -> Outcome {
        if let Some(commit) = self.cut() {
            store.commit(&commit)?;
            self.journal.committed(commit.seq());
        }
        Ok(())
    }
}

fn body(len: usize, n: u64) -> Bytes {
    let words = (n..).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    words.take(len).collect::<Vec<u8>>().into()
}

/// What the journal costs under the engine's lock.
fn append() -> Outcome {
    let mut store = MemoryStore::new();
    let mut daemon = Daemon::new(&store)?;
    let (mut engine_ns, mut append_ns, mut cut_ns, mut frame_ns, mut jobs) = (0, 0, 0, 0, 0u64);
    let body = body(BODY_BYTES, 1);
    for _ in 0..1_000 {
        let begun = Instant::now();
        (0..1_000).for_each(|_| daemon.push(&body));
        engine_ns += begun.elapsed().as_nanos();
        let begun = Instant::now();
        daemon.append();
        append_ns += begun.elapsed().as_nanos();
        let begun = Instant::now();
        let commit = daemon.cut().ok_or("nothing to commit")?;
        cut_ns += begun.elapsed().as_nanos();
        let begun = Instant::now();
        store.commit(&commit)?;
        frame_ns += begun.elapsed().as_nanos();
        daemon.journal.committed(commit.seq());
        jobs += 1_000;
    }
    let per_job = |ns: u128| ns / u128::from(jobs);
    println!(
        "append: push {} ns, append {} ns, cut {} ns a job under the lock; framing {} ns a job without it",
        per_job(engine_ns),
        per_job(append_ns),
        per_job(cut_ns),
        per_job(frame_ns)
    );
    Ok(())
}

/// Commits a second, each synced, by what is in them.
fn commits(home: &Path, time: Duration) -> Outcome {
    for (jobs, bytes) in [(1, 100), (10, 100), (100, 100), (1_000, 100), (100, 4_000), (1, 1_000_000)] {
        let path = home.join(format!("commits-{jobs}-{bytes}"));
        let mut store = SledStore::open(SledConfig::new(&path))?;
        let mut daemon = Daemon::new(&store)?;
        let (begun, mut count, mut waits) = (Instant::now(), 0u64, Vec::new());
        while begun.elapsed() < time / 5 {
            let body = body(bytes, count);
            for _ in 0..jobs {
                daemon.push(&body);
                // As many go as come, so that there is always as much.
                if daemon.engine.job_count() > 20_000_000 / (bytes + 100) {
                    let job = JobId(daemon.engine.head().next_job - 20_000_000 / (bytes as u64 + 100) - 1);
                    daemon.apply(Command::Cancel(JobRef::Id(job)));
                }
            }
            daemon.append();
            let waited = Instant::now();
            daemon.commit(&mut store)?;
            waits.push(waited.elapsed());
            count += 1;
        }
        let seconds = begun.elapsed().as_secs_f64();
        waits.sort_unstable();
        let at = |part: usize| waits.get(waits.len() * part / 100).copied().unwrap_or_default();
        let (per_second, megabytes) = (count as f64 / seconds, (count * jobs * bytes as u64) as f64 / seconds / 1e6);
        println!(
            "commits of {jobs} × {bytes} bytes: {per_second:.0}/s, {:.0} jobs/s, {megabytes:.1} MB/s; p50 {:?}, p99 {:?}",
            per_second * jobs as f64,
            at(50),
            at(99)
        );
        drop(store);
        std::fs::remove_dir_all(path)?;
    }
    Ok(())
}

/// Jobs come and go for ever, some sooner, some later: what the store takes up.
fn churn(home: &Path, time: Duration) -> Outcome {
    let cases = [
        ("5,000 jobs, all in turn", 5_000, 0, u64::MAX),
        ("5,000 in turn, one in ten joins 50,000 that go at random", 5_000, 50_000, 10),
        ("5,000 in turn, one in two joins 400,000 that go at random", 5_000, 400_000, 2),
        ("100,000 in turn, one in a thousand joins 400,000 that go at random", 100_000, 400_000, 1_000),
    ];
    for (n, (what, young_max, old_max, stays_one_in)) in (0..).zip(cases) {
        let path = home.join(format!("churn-{n}"));
        let mut store = SledStore::open(SledConfig::new(&path))?;
        let mut daemon = Daemon::new(&store)?;
        let mut crowd = Crowd { young: VecDeque::new(), old: Vec::new(), young_max, old_max, stays_one_in, jobs: 0 };
        while crowd.old.len() < old_max {
            crowd.come(&mut daemon, 1_000, true);
            daemon.commit(&mut store)?;
        }
        let (begun, first, mut peak) = (Instant::now(), crowd.jobs, Peak::default());
        while begun.elapsed() < time {
            crowd.come(&mut daemon, 200, false);
            crowd.go(&mut daemon);
            daemon.commit(&mut store)?;
            if crowd.jobs.is_multiple_of(20_000) {
                peak.see(&store, &daemon);
            }
        }
        let (stats, jobs) = (daemon.journal.stats(), crowd.jobs - first);
        println!(
            "churn, {what}: {:.0} jobs/s; alive {:.0} MB, journal at most {:.0} MB ({:.1} times), disk at most {:.0} MB; \
             {} passes rewrote {:.2} bytes for each byte that came",
            jobs as f64 / begun.elapsed().as_secs_f64(),
            megabytes(stats.live_bytes),
            megabytes(peak.journal),
            peak.journal as f64 / stats.live_bytes as f64,
            megabytes(peak.disk),
            stats.compactions,
            stats.rewritten_bytes as f64 / (jobs * 230) as f64,
        );
        drop(store);
        std::fs::remove_dir_all(path)?;
    }
    Ok(())
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[derive(Default)]
struct Peak {
    journal: u64,
    disk: u64,
}

impl Peak {
    fn see(&mut self, store: &SledStore, daemon: &Daemon) {
        self.journal = self.journal.max(daemon.journal.stats().bytes);
        self.disk = self.disk.max(store.disk_bytes());
    }
}

/// The jobs there are: young ones, which go in turn, and old ones, which go at random.
struct Crowd {
    young: VecDeque<JobId>,
    old: Vec<JobId>,
    young_max: usize,
    old_max: usize,
    stays_one_in: u64,
    jobs: u64,
}

impl Crowd {
    fn come(&mut self, daemon: &mut Daemon, count: u64, all_stay: bool) {
        let body = body(200, self.jobs);
        for _ in 0..count {
            daemon.push(&body);
            self.jobs += 1;
            let id = JobId(daemon.engine.head().next_job - 1);
            if all_stay || self.jobs.is_multiple_of(self.stays_one_in) {
                self.old.push(id);
            } else {
                self.young.push_back(id);
            }
        }
        daemon.append();
    }

    fn go(&mut self, daemon: &mut Daemon) {
        while self.young.len() > self.young_max {
            let gone = self.young.pop_front();
            gone.into_iter().for_each(|id| daemon.apply(Command::Cancel(JobRef::Id(id))));
        }
        while self.old.len() > self.old_max {
            let at = daemon.turn.roll(self.old.len() as u64);
            let gone = self.old.swap_remove(usize::try_from(at).unwrap_or_default());
            daemon.apply(Command::Cancel(JobRef::Id(gone)));
        }
        daemon.append();
    }
}

/// A million jobs, read again.
fn recovery(home: &Path) -> Outcome {
    for per_commit in [1_000, 10] {
        let path = home.join(format!("recovery-{per_commit}"));
        let mut store = SledStore::open(SledConfig::new(&path))?;
        let mut daemon = Daemon::new(&store)?;
        let body = body(BODY_BYTES, 1);
        for _ in 0..MILLION / per_commit {
            (0..per_commit).for_each(|_| daemon.push(&body));
            daemon.append();
            daemon.commit(&mut store)?;
        }
        let disk = store.disk_bytes();
        drop((store, daemon));
        let before = resident_bytes()?;
        let begun = Instant::now();
        let store = SledStore::open(SledConfig::new(&path))?;
        let opened = begun.elapsed();
        let recovered = recover(&store, Limits::default(), JournalLimits::default(), 1)?;
        println!(
            "recovery of {} jobs of {BODY_BYTES} bytes in {} commits ({:.0} MB on disk): opened in {opened:?}, all in {:?}; {} bytes resident a job",
            recovered.report.jobs,
            recovered.report.commits,
            disk as f64 / 1e6,
            begun.elapsed(),
            (resident_bytes()? - before) / MILLION
        );
        drop((store, recovered));
        std::fs::remove_dir_all(path)?;
    }
    Ok(())
}

/// What the journal remembers of a million jobs: the difference between two processes, one with and one without it.
fn memory() -> Outcome {
    for (per_commit, keep_one_in) in [(1_000, 1), (10, 1), (1, 1), (10_000, 20)] {
        let resident = |with: &str| -> Result<u64, Box<dyn Error>> {
            let mut child = std::process::Command::new(std::env::current_exe()?);
            let out =
                child.args(["memory-of", with]).args([per_commit, keep_one_in].map(|n| n.to_string())).output()?;
            Ok(String::from_utf8(out.stdout)?.trim().parse()?)
        };
        let bytes = resident("both")?.saturating_sub(resident("engine")?) as f64 / MILLION as f64;
        println!(
            "memory for {MILLION} jobs, one in {keep_one_in} left, in commits of {per_commit}: {bytes:.1} bytes a job"
        );
    }
    Ok(())
}

fn memory_of(args: &[String]) -> Outcome {
    let [with, per_commit, keep_one_in] = args else {
        return Err("memory-of both|engine per_commit keep_one_in".into());
    };
    let (per_commit, keep_one_in): (u64, u64) = (per_commit.parse()?, keep_one_in.parse()?);
    let mut daemon = Daemon::new(&MemoryStore::new())?;
    let commit = |daemon: &mut Daemon| {
        if with == "both" {
            daemon.append();
            while daemon.journal.wants_cut() {
                if let Some(commit) = daemon.cut() {
                    daemon.journal.committed(commit.seq());
                }
            }
        }
        daemon.turn.changes.clear();
    };
    let mut pushed = 0;
    while (daemon.engine.job_count() as u64) < MILLION {
        (0..per_commit).for_each(|_| daemon.push(&Bytes::new()));
        pushed += per_commit;
        commit(&mut daemon);
        let gone = (pushed - per_commit + 1..=pushed).filter(|id| id % keep_one_in != 0);
        gone.for_each(|id| daemon.apply(Command::Cancel(JobRef::Id(JobId(id)))));
        commit(&mut daemon);
    }
    println!("{}", resident_bytes()?);
    Ok(())
}

fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024)
}
