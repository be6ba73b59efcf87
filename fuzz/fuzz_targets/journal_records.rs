//! Arbitrary bytes as records, as the commits of a log and as the values of a table: noise, and a real store with any
//! damage. It must not panic or allocate more than the input's size. An opened store is consistent, and goes through
//! commits and checkpoints again unchanged. Files are for `store_open` and `store_salvage`. Not tested here: whether a
//! real store recovers its exact state; the store's own tests do.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use windlass_engine::{
    ClientCommand, ClientId, ClientInfo, Command, Context, Engine, JobCommand, JobId, JobRef,
    Limits, NewJob, Protocol, Tag, Timestamp,
};
use windlass_store::{Checkpointer, Journal, Log as _, Record, Recovered, StoreLimits, open_parts};
use windlass_testkit::store::{Fingerprint, MemoryLog, MemoryTable};

#[derive(Arbitrary, Debug)]
enum Input {
    /// A sequence of records.
    Records(Vec<u8>),
    /// The commits of a log and the values of a table.
    Parts {
        commits: Vec<Vec<u8>>,
        values: BTreeMap<Vec<u8>, Vec<u8>>,
    },
    /// Records with correct framing, as commits of a log.
    Commits(Vec<Vec<u8>>),
    /// A real store in memory with changed values.
    Table {
        steps: Vec<Step>,
        changes: Vec<(u8, u16, u8)>,
    },
}

#[derive(Arbitrary, Debug)]
enum Step {
    Push(u16),
    Cancel(u8),
    Checkpoint,
}

const CLIENT: ClientId = ClientId(1);
const STEPS_MAX: usize = 24;

fuzz_target!(|input: Input| match input {
    Input::Records(bytes) => records(&bytes),
    Input::Parts { commits, values } =>
        check(&MemoryLog::with(commits), &MemoryTable::with(values)),
    Input::Commits(commits) => {
        let framed = commits.iter().map(|bytes| framed(bytes)).collect();
        check(&MemoryLog::with(framed), &MemoryTable::new());
    }
    Input::Table { steps, changes } => table(&steps, &changes),
});

/// A decoded record encodes to bytes that decode to the same record.
fn records(bytes: &[u8]) {
    for record in Record::all(bytes).map_while(Result::ok) {
        let mut again = Vec::new();
        record.encode(&mut again);
        let read: Vec<Record> = Record::all(&again)
            .map(|record| record.expect("our own record"))
            .collect();
        assert_eq!(format!("{read:?}"), format!("{:?}", [record]));
    }
}

/// The valid records at the front, each after its length.
fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in Record::all(bytes).map_while(Result::ok) {
        let mut one = Vec::new();
        record.encode(&mut one);
        let mut len = one.len();
        while len >= 0x80 {
            out.push((len & 0x7f) as u8 | 0x80);
            len >>= 7;
        }
        out.push(len as u8);
        out.extend(one);
    }
    out
}

fn limits() -> Limits {
    Limits {
        queues_max: 1_000,
        ..Limits::default()
    }
}

fn small() -> StoreLimits {
    StoreLimits {
        log_bytes: 1,
        keep_bytes: 500,
        table_floor_bytes: 10_000,
        table_multiple: 2,
        overflow: None,
        keep_from: None,
    }
}

/// Opening refuses, or makes a consistent engine that is the same after another round through the store.
fn check(log: &MemoryLog, table: &MemoryTable) {
    let opened =
        |table: &MemoryTable| open_parts(log, Box::new(table.clone()), &small(), limits(), 1);
    let Ok((mut checkpointer, recovered)) = opened(table) else {
        return;
    };
    let Recovered {
        engine,
        mut journal,
        ..
    } = recovered;
    engine.check();
    let before = Fingerprint::of(&engine);
    let mut log = log.clone();
    if let Some(commit) = journal.cut(&engine) {
        log.append(&commit).expect("no fault is set");
        journal.committed(commit.seq());
    }
    // A table with correct checksums may still be invalid for a checkpoint.
    let _ = checkpointer.run(true);
    if let Ok((_, again)) = opened(table) {
        again.engine.check();
        // An engine never writes numbers that no head covers.
        if again.engine.meta().next_job > 1 {
            let _ = Fingerprint::of(&again.engine).differs_from(&before);
        }
    }
}

/// Pushes jobs (by length of their bodies) and cancels them, with a commit after each.
fn run(
    engine: &mut Engine,
    journal: &mut Journal,
    steps: &[Step],
    mut write: impl FnMut(Option<&windlass_store::Commit>),
) {
    let mut context = Context::new(Timestamp(1_000), 1);
    engine.apply(
        CLIENT,
        Tag::NONE,
        ClientCommand::Open(ClientInfo::default()),
        &mut context,
    );
    for step in steps.iter().take(STEPS_MAX) {
        context.changes.clear();
        let command = match step {
            Step::Push(len) => {
                let body = Bytes::from(vec![7; usize::from(*len)]);
                Command::Job(JobCommand::Push(Box::new(NewJob::new(
                    Protocol::GEARMAN,
                    Bytes::from_static(b"q"),
                    body,
                ))))
            }
            Step::Cancel(id) => Command::Job(JobCommand::Cancel(JobRef::Id(JobId(u64::from(*id))))),
            Step::Checkpoint => {
                write(None);
                continue;
            }
        };
        engine.apply(CLIENT, Tag::NONE, command, &mut context);
        journal.append(engine, &context.changes);
        while let Some(commit) = journal.cut(engine) {
            write(Some(&commit));
            journal.committed(commit.seq());
        }
    }
}

fn table(steps: &[Step], changes: &[(u8, u16, u8)]) {
    let (mut log, table) = (MemoryLog::new(), MemoryTable::new());
    let (mut checkpointer, recovered) =
        open_parts(&log, Box::new(table.clone()), &small(), limits(), 1).expect("an empty store");
    let Recovered {
        mut engine,
        mut journal,
        ..
    } = recovered;
    run(&mut engine, &mut journal, steps, |commit| match commit {
        Some(commit) => log.append(commit).expect("memory"),
        None => drop(checkpointer.run(true).expect("memory")),
    });
    drop::<Checkpointer>(checkpointer);
    check(&log, &table);
    let mut values = table.values();
    let keys: Vec<Vec<u8>> = values.keys().cloned().collect();
    for (key, at, bits) in changes {
        let value = keys
            .get(usize::from(*key) % keys.len().max(1))
            .and_then(|key| values.get_mut(key));
        if let Some(value) = value {
            let len = value.len().max(1);
            value
                .get_mut(usize::from(*at) % len)
                .into_iter()
                .for_each(|byte| *byte ^= bits);
        }
    }
    check(&log, &MemoryTable::with(values));
}
