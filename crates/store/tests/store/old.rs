//! Directories in the format of version 0.1.0: its journal in sled.

use std::path::Path;

use windlass_store::{Commit, Counted, Record, records};

use crate::rng::Rng;

/// Bytes of a value, at most.
const VALUE_BYTES_MAX: usize = 4096;
const HEADER_BYTES: usize = 25;

/// Writes a journal of version 0.1.0 with these commits.
pub(crate) fn write(path: &Path, segment_bytes: usize, commits: &[Commit]) {
    write_without(path, segment_bytes, commits, 0);
}

/// The same, and then removes the last values.
pub(crate) fn write_without(path: &Path, segment_bytes: usize, commits: &[Commit], removed: u64) {
    let folder = path.join("journal");
    std::fs::create_dir_all(&folder).unwrap();
    let config = sled::Config::new().path(&folder).segment_size(segment_bytes).flush_every_ms(None);
    let db = config.open().unwrap();
    let tree = db.open_tree("journal").unwrap();
    let (mut key, mut count) = (1, Counted { commits: 0, census: 0 });
    for commit in commits {
        for value in values(commit, &mut key, &mut count) {
            tree.insert(value.0.to_be_bytes(), value.1).unwrap();
        }
        db.flush().unwrap();
    }
    (key - removed..key).for_each(|key: u64| drop(tree.remove(key.to_be_bytes()).unwrap()));
    db.flush().unwrap();
    std::fs::write(path.join("lock"), "process 1\n").unwrap();
}

/// The values of a commit. They are added to `count`.
pub(crate) fn values(commit: &Commit, key: &mut u64, count: &mut Counted) -> Vec<(u64, Vec<u8>)> {
    let seq = commit.seq();
    count.commits += 1;
    // A commit's share in the census is this generator's first output for its number.
    count.census = count.census.wrapping_add(Rng(seq).roll(u64::MAX));
    let mut bytes = Vec::new();
    for record in records(&commit.records()) {
        let mut record = Record::all(record.unwrap().1).next().unwrap().unwrap();
        if let Record::Meta(meta) = &mut record {
            meta.counted = Some(*count);
        }
        record.encode(&mut bytes);
    }
    let slices: Vec<&[u8]> = bytes.chunks(VALUE_BYTES_MAX - HEADER_BYTES).collect();
    let parts = u32::try_from(slices.len()).unwrap();
    let mut values = Vec::new();
    for (part, slice) in (0..).zip(slices) {
        let mut value = vec![0, 0, 0, 0, 1];
        value.extend(seq.to_le_bytes());
        [part, parts, 0_u32].iter().for_each(|field| value.extend(field.to_le_bytes()));
        value.extend_from_slice(slice);
        let sum = crc32(&key.to_be_bytes(), &value[4..]);
        value[..4].copy_from_slice(&sum.to_le_bytes());
        values.push((*key, value));
        *key += 1;
    }
    values
}

/// The checksum of the format, bit by bit (CRC-32, IEEE 802.3).
fn crc32(key: &[u8], rest: &[u8]) -> u32 {
    let bytes = key.iter().chain(rest);
    !bytes.fold(!0u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 })
    })
}
