//! A file written by sled, read beside it. `damage`: cut, mixed with an older one, damaged. `made_up`.

mod damage;
mod made_up;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const TREE: &[u8] = b"journal";

/// A value that identifies its own key.
fn value(key: &[u8], version: u64, bytes: usize) -> Vec<u8> {
    let mut value = u32::try_from(key.len()).unwrap().to_le_bytes().to_vec();
    value.extend_from_slice(key);
    value.extend_from_slice(&version.to_le_bytes());
    let seed = crc32fast::hash(&value);
    let filler = (0u32..).flat_map(|n| seed.wrapping_mul(n | 1).rotate_left(n % 32).to_le_bytes());
    value.extend(filler.take(bytes));
    value
}

fn genuine(key: &[u8], given: &[u8]) -> bool {
    let version = given
        .get(key.len() + 4..key.len() + 12)
        .and_then(|bytes| bytes.try_into().ok());
    version.is_some_and(|version| {
        value(
            key,
            u64::from_le_bytes(version),
            given.len() - key.len() - 12,
        ) == given
    })
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// sled, and its expected contents.
struct Beside {
    home: TempDir,
    segment_bytes: usize,
    sled: Option<(sled::Tree, sled::Db)>,
    entries: Entries,
    version: u64,
}

impl Beside {
    fn new(segment_bytes: usize) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut beside = Self {
            home,
            segment_bytes,
            sled: None,
            entries: Entries::new(),
            version: 0,
        };
        beside.open();
        beside
    }

    fn open(&mut self) {
        let config = sled::Config::new()
            .path(self.home.path())
            .segment_size(self.segment_bytes);
        let config = config.cache_capacity(1 << 20).flush_every_ms(None);
        // sled's threads may release the file slightly later than its last handle.
        let db = (0..1_000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            config.open().ok()
        });
        let db = db.unwrap();
        self.sled = Some((db.open_tree(TREE).unwrap(), db));
    }

    fn tree(&self) -> &sled::Tree {
        &self.sled.as_ref().unwrap().0
    }

    fn set(&mut self, key: &[u8], bytes: usize) {
        self.version += 1;
        let value = value(key, self.version, bytes);
        self.tree().insert(key, value.as_slice()).unwrap();
        self.entries.insert(key.to_vec(), value);
    }

    fn remove(&mut self, key: &[u8]) {
        self.tree().remove(key).unwrap();
        self.entries.remove(key);
    }

    fn flush(&self) {
        self.sled.as_ref().unwrap().1.flush().unwrap();
    }

    fn close(&mut self) {
        self.sled = None;
    }

    fn file(&self) -> SledFile {
        SledFile::open(&self.home.path().join("db"), self.segment_bytes).unwrap()
    }

    /// Checks that the file holds exactly the values passed to sled.
    fn check(&self) -> Index {
        let file = self.file();
        let index = file.index(None).unwrap();
        let (entries, walk) = read(&file, &index);
        assert_eq!(walk, None);
        assert!(
            entries == self.entries,
            "{} entries instead of {}",
            entries.len(),
            self.entries.len()
        );
        assert_eq!(index.unreadable, 0, "{:?}", index.unreadable);
        let (entries, walk) = read(&file, &file.outline().unwrap());
        assert!(
            walk.is_none() && entries == self.entries,
            "by headers alone: {:?}",
            walk
        );
        index
    }

    fn check_sled(&self) {
        let entries: Entries = self
            .tree()
            .iter()
            .map(|pair| {
                pair.map(|(key, value)| (key.to_vec(), value.to_vec()))
                    .unwrap()
            })
            .collect();
        assert!(entries == self.entries);
    }
}

fn read(file: &SledFile, index: &Index) -> (Entries, Option<Gap>) {
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let walk = file.for_each(index, TREE, &mut |key, value, at| {
        assert!(
            entries.last().is_none_or(|(last, _)| last.as_slice() < key),
            "keys in order"
        );
        if let Some(at) = at {
            let mut there = vec![0; value.len()];
            fs::File::open(&file.path)
                .unwrap()
                .read_exact_at(&mut there, at)
                .unwrap();
            assert!(there == value, "its place");
        }
        entries.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    (entries.into_iter().collect(), walk.unwrap())
}

fn rng(seed: &mut u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Keys ascend and the oldest are removed, as in the journal.
fn churn(beside: &mut Beside, keys: std::ops::Range<u64>, kept: u64, bytes: std::ops::Range<u64>) {
    let mut seed = keys.start;
    for key in keys {
        let bytes = bytes.start + rng(&mut seed) % (bytes.end - bytes.start);
        beside.set(&key.to_be_bytes(), usize::try_from(bytes).unwrap());
        if key >= kept {
            beside.remove(&(key - kept).to_be_bytes());
        }
        if key % 97 == 0 {
            beside.flush();
            beside.check();
        }
    }
    beside.flush();
}

#[test]
fn what_sled_returns_is_read_while_it_is_open_once_it_is_closed_and_after_it_was_opened_again() {
    let cases = [
        ("reused segments", 512 << 10, 1_500, 2_048..8_192, 0),
        (
            "pages in files of their own",
            512 << 10,
            400,
            2_048..50_000,
            1,
        ),
        ("large segments", 8 << 20, 1_000, 2_048..50_000, 0),
        ("thousands of small values", 512 << 10, 8_000, 0..100, 0),
    ];
    for (name, segment_bytes, values, bytes, blobs) in cases {
        let mut beside = Beside::new(segment_bytes);
        // sled's threads decide when a segment is used again.
        let mut written = 0;
        loop {
            churn(
                &mut beside,
                written..written + values,
                values / 5,
                bytes.clone(),
            );
            written += values;
            let index = beside.check();
            if index.end > (index.segments + 1) * segment_bytes as u64 {
                break;
            }
            assert!(written < 20 * values, "{name}: no segment was reused");
        }
        assert_eq!(
            fs::read_dir(beside.home.path().join(BLOBS))
                .unwrap()
                .count()
                .min(1),
            blobs,
            "{name}"
        );
        beside.check_sled();
        beside.close();
        beside.check();
        beside.open();
        beside.check();
        beside.check_sled();
        churn(&mut beside, written..written + 100, values / 5, 0..100);
        beside.check();
    }
}

#[test]
fn empty_trees_and_missing_trees() {
    let mut beside = Beside::new(64 << 10);
    let gap = |beside: &Beside, tree: &[u8]| {
        let file = beside.file();
        file.for_each(&file.index(None).unwrap(), tree, &mut |_, _, _| {
            panic!("an entry")
        })
        .unwrap()
    };
    beside.flush();
    assert_eq!(gap(&beside, TREE), None);
    assert_eq!(gap(&beside, b"__sled__default"), None);
    assert_eq!(gap(&beside, b"nothing"), Some(Gap::NoTree));
    churn(&mut beside, 0..500, 500, 0..100);
    for key in 0..500u64 {
        beside.remove(&key.to_be_bytes());
    }
    beside.flush();
    beside.check();
    assert_eq!(gap(&beside, TREE), None);
    beside.close();
    fs::write(beside.home.path().join("db"), []).unwrap();
    assert_eq!(gap(&beside, TREE), Some(Gap::NoMeta));
    assert!(SledFile::open(&beside.home.path().join("db"), 1_000).is_err());
    assert!(SledFile::open(&beside.home.path().join("no"), 64 << 10).is_err());
}

/// A random number below `of`.
fn one(seed: &mut u64, of: u64) -> usize {
    usize::try_from(rng(seed) % of).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<u8>, usize),
    Remove(Vec<u8>),
    Batch(Vec<(Vec<u8>, Option<usize>)>),
    RemoveRange(Vec<u8>, usize),
    Flush,
    Reopen,
}

/// Keys with common starts of many lengths, and some without.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0..400u64).prop_map(|key| key.to_be_bytes().to_vec()),
        2 => (0..100u64).prop_map(|key| format!("a/common/beginning/{key}").into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 0..6),
        1 => (200..300usize, any::<u8>()).prop_map(|(len, end)| [vec![9; len], vec![end]].concat()),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![10 => 0..300usize, 1 => 1_000..20_000usize];
    let write = (key(), proptest::option::weighted(0.7, 0..300usize));
    prop_oneof![
        60 => (key(), bytes).prop_map(|(key, bytes)| Step::Set(key, bytes)),
        30 => key().prop_map(Step::Remove),
        3 => proptest::collection::vec(write, 0..20).prop_map(Step::Batch),
        2 => (key(), 1..200usize).prop_map(|(key, keys)| Step::RemoveRange(key, keys)),
        4 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

impl Beside {
    fn step(&mut self, step: Step) {
        match step {
            Step::Set(key, bytes) => self.set(&key, bytes),
            Step::Remove(key) => self.remove(&key),
            Step::Batch(writes) => {
                let mut batch = sled::Batch::default();
                for (key, bytes) in writes {
                    self.version += 1;
                    if let Some(bytes) = bytes {
                        let value = value(&key, self.version, bytes);
                        batch.insert(key.as_slice(), value.as_slice());
                        self.entries.insert(key, value);
                    } else {
                        batch.remove(key.as_slice());
                        self.entries.remove(&key);
                    }
                }
                self.tree().apply_batch(batch).unwrap();
            }
            Step::RemoveRange(from, keys) => {
                let keys: Vec<_> = self
                    .entries
                    .range(from..)
                    .take(keys)
                    .map(|(key, _)| key.clone())
                    .collect();
                keys.iter().for_each(|key| self.remove(key));
            }
            Step::Flush => {
                self.flush();
                self.check();
            }
            Step::Reopen => {
                self.close();
                self.check();
                self.open();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_changes_reads_back(
        segment_bytes in prop_oneof![Just(4usize << 10), Just(16 << 10), Just(64 << 10)],
        steps in proptest::collection::vec(step(), 100..1_500),
    ) {
        let mut beside = Beside::new(segment_bytes);
        for step in steps {
            beside.step(step);
        }
        beside.flush();
        beside.check();
        beside.check_sled();
    }
}
