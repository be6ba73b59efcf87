//! Any bytes as journal records, and any bytes, or a real journal with any damage, as a store to recover from: never a
//! panic, never more memory than the bytes there are; what can be read is read back the same, and what is recovered holds together.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use windlass_engine::{ClientId, ClientInfo, Command, JobRef, Limits, NewJob, Origin, Tag, Timestamp, Turn};
use windlass_store::{JournalLimits, MemoryStore, Record, Recovered, Store, recover};

#[derive(Arbitrary, Debug)]
enum Input {
    /// A row of records.
    Records(Vec<u8>),
    /// A store with these values.
    Values(Vec<(u8, Vec<u8>)>),
    /// A real journal: jobs pushed (by length of their bodies) and cancelled, a commit after each, then damaged.
    Damaged { steps: Vec<Step>, damage: Vec<(u8, u16, u8)>, lost: Option<u8> },
}

#[derive(Arbitrary, Debug)]
enum Step {
    Push(u16),
    Cancel(u8),
}

const CLIENT: ClientId = ClientId(1);
const STEPS_MAX: usize = 24;

fuzz_target!(|input: Input| match input {
    Input::Records(bytes) => records(&bytes),
    Input::Values(values) => {
        let values: BTreeMap<u64, Vec<u8>> = values.into_iter().map(|(key, value)| (key.into(), value)).collect();
        check(&MemoryStore::with(values));
    }
    Input::Damaged { steps, damage, lost } => {
        let store = journal(&steps);
        check(&store);
        let keys: Vec<u64> = store.values().keys().copied().collect();
        let key = |n: u8| keys.get(usize::from(n) % keys.len().max(1)).copied();
        for (n, at, bits) in damage {
            if let Some(key) = key(n) {
                store.damage(key, |value| {
                    let len = value.len().max(1);
                    if let Some(byte) = value.get_mut(usize::from(at) % len) {
                        *byte ^= bits;
                    }
                });
            }
        }
        if let Some(key) = lost.and_then(key) {
            store.lose(key);
        }
        check(&store);
    }
});

/// What decodes encodes to what decodes to the same.
fn records(bytes: &[u8]) {
    for record in Record::all(bytes).map_while(Result::ok) {
        let mut again = Vec::new();
        record.encode(&mut again);
        let read: Vec<Record> = Record::all(&again).map(|record| record.expect("our own record")).collect();
        assert_eq!(format!("{read:?}"), format!("{:?}", [record]));
    }
}

/// A store as the journal leaves it.
fn journal(steps: &[Step]) -> MemoryStore {
    let mut store = MemoryStore::new();
    let limits = JournalLimits { floor_bytes: 512, step_bytes: 128, ..JournalLimits::default() };
    let Recovered { mut engine, mut journal, .. } =
        recover(&store, Limits::default(), limits, 1).expect("an empty store");
    let mut turn = Turn::new(Timestamp(1_000), 1);
    engine.apply(CLIENT, Tag::NONE, Command::Open(ClientInfo::default()), &mut turn);
    for step in steps.iter().take(STEPS_MAX) {
        turn.changes.clear();
        let command = match step {
            Step::Push(len) => {
                let body = Bytes::from(vec![7; usize::from(*len)]);
                Command::Push(Box::new(NewJob::new(Origin::GEARMAN, Bytes::from_static(b"q"), body)))
            }
            Step::Cancel(id) => Command::Cancel(JobRef::Id(windlass_engine::JobId(u64::from(*id)))),
        };
        engine.apply(CLIENT, Tag::NONE, command, &mut turn);
        journal.append(&engine, &turn.changes);
        if let Some(commit) = journal.cut(&engine) {
            store.commit(&commit).expect("memory");
            journal.committed(commit.seq());
        }
    }
    store
}

/// Recovery says no, or makes an engine that holds together.
fn check(store: &MemoryStore) {
    if let Ok(recovered) = recover(store, Limits::default(), JournalLimits::default(), 1) {
        recovered.engine.check();
    }
}
