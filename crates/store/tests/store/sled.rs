//! The store on a real disk: what was committed is there again, for one process at a time, through errors of the disk.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command as Process;

use bytes::Bytes;
use windlass_engine::{ClientId, Command, Engine, JobRef, Limits, NewJob, Origin, Tag, Timestamp, Turn};
use windlass_store::{
    Commit, Error, Fingerprint, Journal, JournalLimits, Recovered, SledConfig, SledStore, Store, VALUE_BYTES_MAX,
    recover,
};

struct Daemon {
    engine: Engine,
    journal: Journal,
    store: SledStore,
    pushed: u64,
}

impl Daemon {
    fn start(path: &Path) -> Self {
        Self::on(SledStore::open(SledConfig::new(path)).unwrap())
    }

    fn on(store: SledStore) -> Self {
        let Recovered { engine, journal, .. } =
            recover(&store, Limits::default(), JournalLimits::default(), 1).unwrap();
        Self { engine, journal, store, pushed: 0 }
    }

    fn apply(&mut self, command: Command) {
        let mut turn = Turn::new(Timestamp(1_000), 1);
        self.engine.apply(ClientId(1), Tag(1), command, &mut turn);
        self.journal.append(&self.engine, &turn.changes);
    }

    fn push(&mut self, bytes: usize) {
        self.pushed += 1;
        let body: Vec<u8> = (self.pushed..).flat_map(|n| (n * 0x9e37_79b9).to_le_bytes()).take(bytes).collect();
        let job = NewJob::new(Origin::FAKTORY, Bytes::from_static(b"q"), Bytes::from(body));
        self.apply(Command::Push(Box::new(job)));
    }

    fn cut(&mut self) -> Commit {
        self.journal.cut(&self.engine).unwrap()
    }

    fn commit(&mut self) {
        let commit = self.cut();
        self.store.commit(&commit).unwrap();
        self.journal.committed(commit.seq());
    }

    fn print(&self) -> Fingerprint {
        Fingerprint::of(&self.engine)
    }
}

#[test]
fn what_an_opening_spoilt_is_put_back() {
    let home = tempfile::tempdir().unwrap();
    let config = SledConfig::new(home.path());
    let journal = home.path().join("journal");
    let mut daemon = Daemon::start(home.path());
    for bytes in [0, 900, 1_000_000] {
        daemon.push(bytes);
        daemon.commit();
    }
    let print = daemon.print();
    drop(daemon);

    SledStore::begin_to_open(&config).unwrap();
    // The worst that a power cut may leave of an opening: the log blanked, one snapshot gone and another one empty.
    let log = fs::OpenOptions::new().write(true).open(journal.join("db")).unwrap();
    log.set_len(0).unwrap();
    for file in fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path()) {
        if file.to_string_lossy().contains("snap.") {
            fs::remove_file(file).unwrap();
        }
    }
    fs::write(journal.join("snap.7FFFFFFFFFFFFFFF"), b"").unwrap();
    fs::write(journal.join("snap.7FFFFFFFFFFFFFFF.generating"), b"half").unwrap();

    assert_eq!(Daemon::start(home.path()).print().differs_from(&print), None);
    assert!(!home.path().join("opening").exists(), "an opening that is over keeps nothing aside");
    assert_eq!(Daemon::start(home.path()).print().differs_from(&print), None);
}

#[test]
fn what_was_committed_is_there_again() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("not/there/yet");
    let mut daemon = Daemon::start(&path);
    for bytes in [0, 1, 900, 2_000, VALUE_BYTES_MAX, 1_000_000, 50] {
        daemon.push(bytes);
        daemon.commit();
    }
    let first = daemon.engine.jobs().map(|job| job.id).min().unwrap();
    daemon.apply(Command::Cancel(JobRef::Id(first)));
    daemon.commit();
    let (print, stats) = (daemon.print(), daemon.journal.stats());
    assert!(daemon.store.disk_bytes() > 1_000_000);
    drop(daemon);

    let mut again = Daemon::start(&path);
    assert_eq!(again.print().differs_from(&print), None);
    assert_eq!(again.engine.job_count(), 6);
    let is = again.journal.stats();
    assert_eq!((is.commits, is.bytes, is.live_bytes), (stats.commits, stats.bytes, stats.live_bytes));
    again.push(10);
    again.commit();
    drop(again);
    assert_eq!(Daemon::start(&path).engine.job_count(), 7);
}

#[test]
fn values_are_small_and_sled_keeps_no_page_apart() {
    let home = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(home.path());
    for _ in 0..40 {
        daemon.push(900_000);
        daemon.commit();
    }
    let mut largest = 0;
    let scanned = daemon.store.scan(&mut |_, value| {
        largest = largest.max(value.len());
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    assert_eq!(largest, VALUE_BYTES_MAX);
    assert_eq!(fs::read_dir(home.path().join("journal/blobs")).unwrap().count(), 0);
}

#[test]
fn one_daemon_at_a_time() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    let refused = SledStore::open(SledConfig::new(home.path())).unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, Error::InUse { .. }), "{text}");
    assert!(text.contains(&format!("in use by another process (process {})", std::process::id())), "{text}");
    drop(daemon);
    SledStore::open(SledConfig::new(home.path())).unwrap();
}

#[test]
fn a_store_that_was_made_in_part_is_made_again() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join("journal.new/blobs")).unwrap();
    fs::write(home.path().join("journal.new/conf"), b"segm").unwrap();
    let mut daemon = Daemon::start(home.path());
    daemon.push(10);
    daemon.commit();
    drop(daemon);
    assert_eq!(Daemon::start(home.path()).engine.job_count(), 1);
}

#[test]
fn a_damaged_store_is_refused_in_words() {
    let home = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(home.path());
    daemon.push(10);
    daemon.commit();
    drop(daemon);
    fs::write(home.path().join("journal/conf"), b"segment_size: 1\nand nonsense that is long enough").unwrap();
    let refused = SledStore::open(SledConfig::new(home.path())).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    // A refusal leaves nothing locked.
    assert!(matches!(SledStore::open(SledConfig::new(home.path())), Err(Error::Damaged { .. })));
}

/// A full disk, as far as one can be had without one: the shell sets a limit on the size of files and ignores the signal.
#[test]
fn a_full_disk_stops_commits_and_forgets_nothing() {
    let home = tempfile::tempdir().unwrap();
    let script = "trap '' XFSZ; ulimit -S -f 24000; exec \"$0\" --exact sled::on_a_full_disk --nocapture";
    let this = std::env::current_exe().unwrap();
    let done = Process::new("sh").args(["-c", script]).arg(this).env("FULL_DISK", home.path()).output().unwrap();
    let text = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(done.status.success() && text.contains("the disk was full"), "{text}");
}

/// The other half of the test above; by itself it does nothing.
#[test]
fn on_a_full_disk() {
    let Some(path) = std::env::var_os("FULL_DISK") else { return };
    let mut daemon = Daemon::start(Path::new(&path));
    let (mut print, mut full) = (daemon.print(), None);
    for _ in 0..100 {
        daemon.push(400_000);
        let commit = daemon.cut();
        if let Err(why) = daemon.store.commit(&commit) {
            assert!(matches!(why, Error::Io { .. }), "{why}");
            full = Some(commit);
            break;
        }
        daemon.journal.committed(commit.seq());
        print = daemon.print();
    }
    let commit = full.unwrap_or_else(|| panic!("the disk was never full"));
    assert!(matches!(daemon.store.commit(&commit), Err(Error::Closed)));

    // Still full: opening again may work, writing does not.
    let again = daemon.store.reopen().and_then(|()| daemon.store.commit(&commit));
    assert!(again.is_err(), "there is room all of a sudden");
    // Room again. What was acknowledged is there, possibly with the commit that failed.
    let unlimited = rustix::process::Rlimit { current: None, maximum: None };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, unlimited).unwrap();
    daemon.store.reopen().unwrap();
    let recovered = recover(&daemon.store, Limits::default(), JournalLimits::default(), 1).unwrap();
    let is = Fingerprint::of(&recovered.engine);
    let on_its_way = daemon.print();
    assert!(is.differs_from(&print).is_none() || is.differs_from(&on_its_way).is_none());

    // And the daemon goes on with the very commit that failed.
    daemon.store.commit(&commit).unwrap();
    daemon.journal.committed(commit.seq());
    for _ in 0..50 {
        daemon.push(400_000);
        daemon.commit();
    }
    let print = daemon.print();
    drop(daemon);
    assert_eq!(Daemon::start(Path::new(&path)).print().differs_from(&print), None);
    println!("the disk was full");
}
