//! Tests: an export restores the engine, whatever its state was, and whatever happened while it was written.

use std::collections::BTreeSet;
use std::io::{self, Write};

use windlass_engine::{ClientCommand, ClientInfo, Clock, Context, Engine, JobStateKind, Tag};
use windlass_store::{Checkpointer, Journal, Log, Opened};
use windlass_testkit::store::Fingerprint;

use super::round::{CLIENT, about, any_command, config, export, lines, read};
use super::*;

/// Steps of a life before an export. Nearly all commands change something.
const STEPS: u64 = 150;

/// An engine on its store, in a directory.
struct Live {
    engine: Engine,
    journal: Journal,
    log: Box<dyn Log>,
    checkpointer: Checkpointer,
    context: Context,
    /// As of the last commit: jobs that a connection has taken since are in no commit.
    durable: Fingerprint,
    _guard: Guard,
}

impl Live {
    fn new(config: &Config, seed: u64) -> Self {
        let Opened {
            log,
            checkpointer,
            recovered,
            guard,
        } = windlass_daemon::open(config).unwrap();
        let mut context = Context::new(clock::read().now, seed);
        context.clock = Clock::skewed([0, 77_000, -77_000][usize::try_from(seed % 3).unwrap()]);
        let (engine, journal) = (recovered.engine, recovered.journal);
        let durable = Fingerprint::of(&engine);
        let mut live = Self {
            engine,
            journal,
            log,
            checkpointer,
            context,
            durable,
            _guard: guard,
        };
        live.apply(ClientCommand::Open(ClientInfo::default()).into());
        live
    }

    fn apply(&mut self, command: Command) {
        self.context.changes.clear();
        self.context.events.clear();
        self.engine
            .apply(CLIENT, Tag(1), command, &mut self.context);
        self.journal.append(&self.engine, &self.context.changes);
        while let Some(commit) = self.journal.cut(&self.engine) {
            self.log.append(&commit).unwrap();
            self.journal.committed(commit.seq());
            self.durable = Fingerprint::of(&self.engine);
        }
    }

    /// Something happens; sometimes there is a checkpoint.
    fn step(&mut self) {
        let command = any_command(&mut self.context, &self.engine);
        self.apply(command);
        if self.context.roll(25) == 0 {
            self.checkpointer.run(true).unwrap();
        }
    }
}

/// Receives an export, while life goes on.
struct Meanwhile<'a> {
    live: &'a mut Live,
    lines: Vec<u8>,
}

impl Write for Meanwhile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.live.step();
        self.lines.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn source() -> Source {
    Source {
        kind: "jsonl",
        digest: "00ff".to_owned(),
    }
}

fn restore(config: &Config, lines: &[Vec<u8>]) {
    let mut survey = Survey::default();
    lines
        .iter()
        .for_each(|line| survey.see(line, read(line).ok().as_ref()));
    assert!(matches!(survey.completeness(), Completeness::Whole(_)));
    let mut restorer = Restorer::begin(config, &source()).unwrap().unwrap();
    lines
        .iter()
        .for_each(|line| restorer.take(read(line).unwrap()).unwrap());
    restorer.finish().unwrap();
    assert!(was_taken(config, &source(), lines.len() as u64));
    assert!(
        Restorer::begin(config, &source()).unwrap().is_none(),
        "it has a store now"
    );
}

/// The fingerprint of a directory, as the next daemon sees it.
fn print(config: &Config) -> Fingerprint {
    let engine = windlass_daemon::open(config).unwrap().recovered.engine;
    engine.check();
    Fingerprint::of(&engine)
}

#[test]
fn an_export_of_a_busy_daemon_restores_the_engine_of_its_commit() {
    let mut seen = BTreeSet::new();
    for seed in 0..24 {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (
            config(&dir.path().join("from")),
            config(&dir.path().join("to")),
        );
        let mut live = Live::new(&from, seed);
        (0..STEPS).for_each(|_| live.step());
        let (picture, before) = (live.checkpointer.picture().unwrap(), live.durable.clone());
        seen.extend(
            live.engine
                .jobs()
                .filter(|job| job.durable)
                .map(|job| format!("{:?}", job.state.kind())),
        );
        let mut meanwhile = Meanwhile {
            live: &mut live,
            lines: Vec::new(),
        };
        let exported = picture.export(about(), &mut meanwhile).unwrap();
        let lines = lines(&meanwhile.lines);
        let heading = read(&lines[0]).unwrap();
        assert_eq!(
            heading,
            Line::Heading(Heading {
                version: 2,
                commit: picture.commit(),
                whole: true
            })
        );
        assert!(
            before.differs_from(&live.durable).is_some(),
            "seed {seed}: something happened"
        );
        assert_eq!(exported.jobs, before.jobs.len() as u64);

        restore(&to, &lines);
        assert_eq!(before.differs_from(&print(&to)), None, "seed {seed}");
    }
    let all: BTreeSet<String> = JobStateKind::ALL
        .iter()
        .map(|kind| format!("{kind:?}"))
        .collect();
    assert_eq!(seen, all, "jobs in every state");
}

/// A directory with a life's end, one without anything, and the lines of the first.
fn salvaged(seed: u64) -> (tempfile::TempDir, Config, Config, Vec<Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (
        config(&dir.path().join("from")),
        config(&dir.path().join("to")),
    );
    let mut live = Live::new(&from, seed);
    (0..STEPS).for_each(|_| live.step());
    drop(live);
    let lines = lines(&export(&from.data_dir));
    (dir, from, to, lines)
}

#[test]
fn a_salvage_without_losses_restores_the_engine() {
    for seed in 0..8 {
        let (_dir, from, to, lines) = salvaged(seed);
        restore(&to, &lines);
        let before = print(&from);
        assert_eq!(before.differs_from(&print(&to)), None, "seed {seed}");
    }
}

/// An interruption before the store has its place leaves nothing but the folder of records.
#[test]
fn an_interrupted_restoration_begins_again() {
    let (_dir, from, to, lines) = salvaged(3);
    let mut restorer = Restorer::begin(&to, &source()).unwrap().unwrap();
    assert!(Restorer::begin(&to, &source()).is_err_and(|why| why.to_string().contains("in use")));
    lines
        .iter()
        .take(40)
        .for_each(|line| restorer.take(read(line).unwrap()).unwrap());
    drop(restorer);
    restore(&to, &lines);
    assert_eq!(print(&from).differs_from(&print(&to)), None);
}

#[test]
fn contradictions_and_new_jobs_are_refused() {
    let (_dir, _, to, lines) = salvaged(5);
    let mut restorer = Restorer::begin(&to, &source()).unwrap().unwrap();
    assert!(restorer.take(read(br#"{"queue":"q"}"#).unwrap()).is_err());
    let without_queues = lines
        .iter()
        .map(|line| read(line).unwrap())
        .filter(|line| !matches!(line, Line::Queue(_)));
    without_queues.for_each(|line| restorer.take(line).unwrap());
    let why = restorer.finish().unwrap_err();
    assert_eq!(why.exit_code(), 4);
    assert!(why.to_string().contains("does not exist"), "{why}");
    assert!(
        Restorer::begin(&to, &source()).unwrap().is_some(),
        "there is still no store"
    );
}
