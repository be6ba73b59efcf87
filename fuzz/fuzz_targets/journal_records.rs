//! Any bytes as journal records, and as a store to recover from: noise, a real journal with any damage, and commits
//! that are framed as they should be around records that may be anything. Never a panic, never more memory than the
//! bytes there are; what is recovered holds together, and goes through the journal again unchanged.
//! Not whether a real journal is recovered as it was: that is what the store's own tests are for.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use windlass_engine::{ClientId, ClientInfo, Command, Head, JobRef, Limits, NewJob, Origin, Tag, Timestamp, Turn};
use windlass_store::{Fingerprint, HeadRecord, JournalLimits, MemoryStore, Record, Recovered, Store, recover, salvage};

/// The format's own numbers, written down a second time.
const HEADER_BYTES: usize = 25;
const VERSION: u8 = 1;

#[derive(Arbitrary, Debug)]
enum Input {
    /// A row of records.
    Records(Vec<u8>),
    /// What lies in a store, one piece behind the other.
    Pieces(Vec<Piece>),
    /// A real journal: jobs pushed (by length of their bodies) and cancelled, a commit after each, then damaged.
    Damaged { steps: Vec<Step>, damage: Vec<(u8, u16, u8)>, lost: Option<u8> },
}

#[derive(Arbitrary, Debug)]
enum Piece {
    /// A commit as it should be, of records that may be anything.
    Commit { records: Vec<u8>, slice_bytes: u16, clean: bool, next_job: u32 },
    /// A frame as it should be, around anything, under any key.
    Frame { key: u64, seq: u64, part: u8, parts: u8, starts_at: u8, slice: Vec<u8> },
    /// Anything.
    Noise { key: u64, value: Vec<u8> },
    /// A value is gone.
    Lost { key: u8 },
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
    Input::Pieces(pieces) => check(&MemoryStore::with(values(&pieces))),
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

/// Recovery says no, or makes an engine that holds together, and that comes out of a store again as it went in.
fn check(store: &MemoryStore) {
    let found = salvage(store).expect("a store in memory can be read");
    found.export(&mut std::io::sink()).expect("a sink takes all");
    let limits = || Limits { queues_max: 1_000, ..Limits::default() };
    // So low that everything is rewritten at once.
    let journal = || JournalLimits { floor_bytes: 0, live_multiple: 1, step_bytes: 100, commits_max: 3 };
    let Ok(Recovered { engine, journal: mut books, .. }) = recover(store, limits(), journal(), 1) else { return };
    engine.check();
    let before = Fingerprint::of(&engine);
    let mut store = store.clone();
    while books.wants_cut() {
        if let Some(commit) = books.cut(&engine) {
            store.commit(&commit).expect("nothing was told to fail");
            books.committed(commit.seq());
        }
    }
    let again = recover(&store, limits(), journal(), 2).expect("what was written can be read");
    assert_eq!(Fingerprint::of(&again.engine).differs_from(&before), None);
}

fn values(pieces: &[Piece]) -> BTreeMap<u64, Vec<u8>> {
    let (mut values, mut seq, mut key, mut census) = (BTreeMap::new(), 0u64, 1u64, 0u64);
    for piece in pieces {
        match piece {
            Piece::Commit { records, slice_bytes, clean, next_job } => {
                seq += 1;
                census = census.wrapping_add(share(seq));
                let head = Head { next_job: u64::from(*next_job), reserved: u64::from(*next_job), ..Head::default() };
                let mut bytes: Vec<u8> = readable(records);
                Record::Head(HeadRecord { head, clean: *clean, commits: seq, census }).encode(&mut bytes);
                let slices: Vec<&[u8]> = bytes.chunks(usize::from(*slice_bytes).max(16)).collect();
                let parts = u32::try_from(slices.len()).expect("few");
                for (part, slice) in (0..).zip(slices) {
                    values.insert(key, frame(key, seq, (part, parts), 0, slice));
                    key += 1;
                }
            }
            Piece::Frame { key, seq, part, parts, starts_at, slice } => {
                let value = frame(*key, *seq, ((*part).into(), (*parts).into()), (*starts_at).into(), slice);
                values.insert(*key, value);
            }
            Piece::Noise { key, value } => drop(values.insert(*key, value.clone())),
            Piece::Lost { key } => drop(values.remove(&u64::from(*key))),
        }
    }
    values
}

/// The records at the front that can be read, heads left out; each is written as it was read.
fn readable(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in Record::all(bytes).flatten() {
        let begin = out.len();
        record.encode(&mut out);
        let again: Result<Vec<Record>, _> = Record::all(&out[begin..]).collect();
        assert_eq!(again, Ok(vec![record.clone()]), "written otherwise than read");
        if matches!(record, Record::Head(_)) {
            out.truncate(begin);
        }
    }
    out
}

fn frame(key: u64, seq: u64, (part, parts): (u32, u32), starts_at: u32, slice: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(HEADER_BYTES + slice.len());
    value.extend_from_slice(&[0; 4]);
    value.push(VERSION);
    value.extend_from_slice(&seq.to_le_bytes());
    [part, parts, starts_at].iter().for_each(|field| value.extend_from_slice(&field.to_le_bytes()));
    value.extend_from_slice(slice);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&key.to_be_bytes());
    hasher.update(&value[4..]);
    value[..4].copy_from_slice(&hasher.finalize().to_le_bytes());
    value
}

/// A commit's share in the head's census.
fn share(seq: u64) -> u64 {
    let mut z = seq.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
