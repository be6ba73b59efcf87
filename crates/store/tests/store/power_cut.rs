//! Power cuts, simulated: what was written since the last completed sync is on the disk in part only, sector by sector
//! and file by file as the dice say. Whatever they say, every commit that was acknowledged must be there.
//!
//! `WINDLASS_SEED=n` runs one seed, `WINDLASS_CUTS=n` more cuts for each seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::dice::Dice;
use bytes::Bytes;
use windlass_engine::{
    ClientId, Command, Engine, From, JobRef, LeaseTerms, Limits, NewJob, OnExpiry, Origin, Proof, Select, Tag, Take,
    Timestamp, Turn, Wait,
};
use windlass_store::{Fingerprint, Journal, JournalLimits, Recovered, SledConfig, SledStore, Store, recover};

const SECTOR: usize = 512;
const QUEUE: &[u8] = b"work";

/// Bytes that do not repeat.
fn noise(dice: &mut Dice, len: u64) -> Vec<u8> {
    let words = (0..len.div_ceil(8)).flat_map(|_| dice.roll(u64::MAX).to_le_bytes());
    words.take(usize::try_from(len).unwrap()).collect()
}

/// The files of a data directory and what is in them.
type Image = BTreeMap<PathBuf, Vec<u8>>;

/// Held by whoever is open, and worth nothing without a process.
const LOCK: &str = "lock";

fn image_of(folder: &Path) -> Image {
    fn add(root: &Path, folder: &Path, image: &mut Image) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(root, &path, image);
            } else if path != root.join(LOCK) {
                image.insert(path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    let mut image = Image::new();
    add(folder, folder, &mut image);
    image
}

fn restore(image: &Image, folder: &Path) {
    fs::create_dir_all(folder.join("journal/blobs")).unwrap();
    for (name, bytes) in image {
        fs::write(folder.join(name), bytes).unwrap();
    }
}

/// What a power cut leaves: of all that was written since `synced`, each sector, size and name with the same chance.
fn cut(synced: &Image, written: &Image, dice: &mut Dice) -> Image {
    let chance = dice.one_of(&[2, 2, 3, 10, 50, 1000]);
    let new_is_likely = dice.one_in(2);
    let takes_new = move |dice: &mut Dice| dice.one_in(chance) != new_is_likely;
    let names: BTreeSet<&PathBuf> = synced.keys().chain(written.keys()).collect();
    let mut left = Image::new();
    for name in names {
        match (synced.get(name), written.get(name)) {
            (Some(old), Some(new)) => {
                left.insert(name.clone(), mix(old, new, &mut || takes_new(dice)));
            }
            (Some(old), None) if !takes_new(dice) => {
                left.insert(name.clone(), old.clone());
            }
            (None, Some(new)) if takes_new(dice) => {
                left.insert(name.clone(), mix(&[], new, &mut || takes_new(dice)));
            }
            (_, _) => {}
        }
    }
    left
}

fn mix(old: &[u8], new: &[u8], takes_new: &mut dyn FnMut() -> bool) -> Vec<u8> {
    let len = if takes_new() { new.len() } else { old.len() };
    let mut bytes = old.to_vec();
    // What was never written to reads as zeros.
    bytes.resize(len, 0);
    for (at, sector) in (0..).step_by(SECTOR).zip(new.chunks(SECTOR)) {
        let Some(place) = bytes.get_mut(at..len.min(at + sector.len())) else { break };
        let sector = sector.split_at(place.len()).0;
        if place != sector && takes_new() {
            place.copy_from_slice(sector);
        }
    }
    bytes
}

/// The last two images that the store was about to sync.
type Images = Arc<Mutex<(Option<Image>, Option<Image>, bool)>>;

struct Daemon {
    engine: Engine,
    journal: Journal,
    store: SledStore,
    turn: Turn,
    images: Images,
    oldest: u64,
}

impl Daemon {
    fn start(config: &SledConfig, seed: u64, now: Timestamp) -> Self {
        let mut store = SledStore::open(config.clone()).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let limits = JournalLimits { floor_bytes: 1 << 20, ..JournalLimits::default() };
        let recovered = recover(&store, Limits::default(), limits, seed);
        let Recovered { engine, journal, .. } = recovered.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let images = Images::default();
        let seen = Arc::clone(&images);
        let place = config.path.clone();
        store.watch(Box::new(move |_| {
            let (before, last, wanted) = &mut *seen.lock().unwrap();
            if *wanted {
                *before = last.replace(image_of(&place));
            }
        }));
        let turn = Turn::new(now, seed);
        let mut daemon = Self { engine, journal, store, turn, images, oldest: 0 };
        daemon.apply(Command::Open(Default::default()));
        daemon.oldest = daemon.engine.jobs().map(|job| job.id.0).min().unwrap_or(1);
        daemon
    }

    fn apply(&mut self, command: Command) {
        self.turn.changes.clear();
        self.turn.events.clear();
        self.engine.apply(ClientId(1), Tag(1), command, &mut self.turn);
        self.journal.append(&self.engine, &self.turn.changes);
    }

    /// A visit: jobs come, others are taken and finished.
    fn work(&mut self, dice: &mut Dice, bytes_max: u64, alive: usize) {
        self.turn.now = self.turn.now.after_ms(10);
        for _ in 0..=dice.roll(10) {
            let len = dice.roll(bytes_max);
            let body = noise(dice, len);
            let job = NewJob::new(Origin::GEARMAN, Bytes::from_static(QUEUE), Bytes::from(body));
            self.apply(Command::Push(Box::new(job)));
        }
        while self.engine.job_count() > alive {
            let lease = LeaseTerms {
                connection_bound: false,
                lease_ms: Some(60_000),
                on_expiry: OnExpiry::Requeue,
                wish: None,
            };
            let from = From::Listed { queues: vec![Bytes::from_static(QUEUE)], lease };
            let take = Take { from, select: Select::ListOrder, wait: Wait::No, worker: Bytes::new() };
            self.apply(Command::Take(take));
            let leased = self.engine.jobs().find(|job| job.lease().is_some()).map(|job| job.id).unwrap();
            let job = JobRef::Id(leased);
            self.apply(Command::Finish { job, proof: Proof::AnyLease, result: Bytes::new() });
        }
    }

    fn print(&self) -> Fingerprint {
        Fingerprint::of(&self.engine)
    }

    fn commit(&mut self) {
        if let Some(commit) = self.journal.cut(&self.engine) {
            self.store.commit(&commit).unwrap();
            self.journal.committed(commit.seq());
        }
    }
}

struct Shape {
    segment_bytes: usize,
    body_bytes_max: u64,
    alive: usize,
    commits: u64,
}

/// What a power cut leaves while the store opens.
fn cut_in_opening(config: &SledConfig, seed: u64, dice: &mut Dice) -> Image {
    let before = image_of(&config.path);
    SledStore::begin_to_open(config).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    let begun = image_of(&config.path);
    if dice.one_in(4) {
        return cut(&before, &begun, dice);
    }
    drop(SledStore::open(config.clone()).unwrap_or_else(|why| panic!("seed {seed}: {why}")));
    let mut opened = image_of(&config.path);
    // What was kept aside is removed only when the rest is durable.
    for (name, bytes) in &begun {
        if !name.starts_with("journal") {
            opened.insert(name.clone(), bytes.clone());
        }
    }
    cut(&begun, &opened, dice)
}

/// One data directory through several power cuts.
fn live(seed: u64, cuts: u64, shape: &Shape) {
    let mut dice = Dice(seed);
    // In memory where there is such a place: what is durable is decided here, not by the disk.
    let memory = Path::new("/dev/shm");
    let home = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let mut now = Timestamp(1_000_000);
    let mut expected: Option<[Fingerprint; 2]> = None;
    let mut place = home.path().join("0");
    for n in 1..=cuts {
        let mut config = SledConfig::new(&place);
        config.segment_bytes = shape.segment_bytes;
        // Sometimes the power fails while the daemon starts, and again while it starts after that.
        while place.exists() && dice.one_in(3) {
            let left = cut_in_opening(&config, seed, &mut dice);
            fs::remove_dir_all(&place).unwrap();
            restore(&left, &place);
        }
        let mut daemon = Daemon::start(&config, seed, now);
        if let Some([durable, on_its_way]) = &expected {
            let is = daemon.print();
            if let (Some(one), Some(two)) = (is.differs_from(durable), is.differs_from(on_its_way)) {
                panic!("seed {seed}, cut {n}: neither what was acknowledged: {one}\nnor what was on its way: {two}");
            }
        }
        for _ in 0..dice.roll(shape.commits) {
            daemon.work(&mut dice, shape.body_bytes_max, shape.alive);
            daemon.commit();
        }
        daemon.images.lock().unwrap().2 = true;
        daemon.work(&mut dice, shape.body_bytes_max, shape.alive);
        daemon.commit();
        let acknowledged = daemon.print();
        daemon.work(&mut dice, shape.body_bytes_max, shape.alive);
        daemon.commit();
        expected = Some([acknowledged, daemon.print()]);
        now = daemon.turn.now;
        let (synced, written) = {
            let mut images = daemon.images.lock().unwrap();
            (images.0.take().unwrap(), images.1.take().unwrap())
        };
        assert!(!written.keys().any(|name| name.starts_with("journal/blobs")), "seed {seed}: sled keeps pages apart");
        drop(daemon);
        fs::remove_dir_all(&place).unwrap();
        place = home.path().join(n.to_string());
        restore(&cut(&synced, &written, &mut dice), &place);
    }
}

fn run(seeds: std::ops::Range<u64>, shape: &Shape) {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let cuts = number("WINDLASS_CUTS").unwrap_or(4);
    match number("WINDLASS_SEED") {
        Some(seed) => live(seed, cuts, shape),
        None => seeds.for_each(|seed| live(seed, cuts, shape)),
    }
}

#[test]
fn power_cuts_among_small_segments() {
    run(0..20, &Shape { segment_bytes: 512 << 10, body_bytes_max: 900, alive: 600, commits: 100 });
}

#[test]
fn power_cuts_among_large_commits() {
    run(100..108, &Shape { segment_bytes: 2 << 20, body_bytes_max: 100_000, alive: 40, commits: 20 });
}

#[test]
fn power_cuts_as_the_daemon_is_set_up() {
    let as_shipped = SledConfig::new("").segment_bytes;
    run(200..204, &Shape { segment_bytes: as_shipped, body_bytes_max: 200_000, alive: 60, commits: 40 });
}
