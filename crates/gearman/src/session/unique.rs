//! Unique ids: the key that jobs coalesce by, and how to recover the id when a worker asks for it.
//!
//! Rules: `PROTOCOL`, "SUBMIT_JOB" (coalescing), and gearmand for two special values: an empty id never coalesces, and
//! `-` stands for the workload, among jobs submitted with `-` only.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use windlass_engine::Protocol;

/// The id that stands for the workload.
const WORKLOAD: &[u8] = b"-";

/// A workload up to this length is its own key. A longer one is identified by a hash, whose key is longer than any of
/// these.
const WORKLOAD_BYTES_MAX: usize = 31;

/// The key that a submission coalesces by; `None` if it does not coalesce. The keys of workloads start with a NUL. No
/// id contains a NUL, so the two never collide.
pub(super) fn key(unique: &Bytes, workload: &[u8]) -> Option<Bytes> {
    match unique.as_ref() {
        b"" => None,
        WORKLOAD if workload.is_empty() => None,
        WORKLOAD if workload.len() <= WORKLOAD_BYTES_MAX => Some([b"\0", workload].concat().into()),
        WORKLOAD => Some(
            [b"\0".as_slice(), &Sha256::digest(workload)]
                .concat()
                .into(),
        ),
        _ => Some(unique.clone()),
    }
}

/// The bytes that the engine stores with a job for this module; empty for most jobs.
///
/// The first byte is 1 if the id was `-` but the job has no key that shows it, else 0. The rest is the reducer.
pub(super) fn meta(unique: &[u8], workload: &[u8], reducer: &[u8]) -> Bytes {
    let keyless = unique == WORKLOAD && workload.is_empty();
    match (keyless, reducer) {
        (false, b"") => Bytes::new(),
        (true, b"") => Bytes::from_static(&[1]),
        _ => [&[u8::from(keyless)], reducer].concat().into(),
    }
}

/// The id as submitted; empty for a job of another protocol.
pub(super) fn submitted<'a>(protocol: Protocol, key: &'a [u8], meta: &[u8]) -> &'a [u8] {
    match (key.first(), meta.first()) {
        _ if protocol != Protocol::GEARMAN => b"",
        (Some(0), _) | (None, Some(1)) => WORKLOAD,
        _ => key,
    }
}

/// The reducer as submitted; empty if there was none.
pub(super) fn reducer(protocol: Protocol, meta: &[u8]) -> &[u8] {
    if protocol == Protocol::GEARMAN {
        meta.get(1..).unwrap_or_default()
    } else {
        b""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_as_they_were_submitted() {
        let long = [b'w'; 400];
        let table: [(&[u8], &[u8], &[u8]); 8] = [
            (b"", b"work", b""),
            (b"id", b"work", b""),
            (b"-", b"work", b""),
            (b"-", &long, b""),
            (b"-", b"", b""),
            (b"-", b"", b"reducer"),
            (b"-", b"work", b"reducer"),
            (b"", b"", b"reducer"),
        ];
        for (unique, workload, name) in table {
            let key = key(&Bytes::copy_from_slice(unique), workload).unwrap_or_default();
            let meta = meta(unique, workload, name);
            assert_eq!(
                submitted(Protocol::GEARMAN, &key, &meta),
                unique,
                "{unique:?} {workload:?}"
            );
            assert_eq!(reducer(Protocol::GEARMAN, &meta), name);
            assert_eq!(submitted(Protocol::FAKTORY, b"key", &meta), b"");
            assert_eq!(reducer(Protocol::FAKTORY, b"{}"), b"");
        }
    }

    #[test]
    fn only_equal_workloads_coalesce() {
        let dash = Bytes::from_static(b"-");
        let hashed = key(&dash, &[7; 32]).unwrap();
        let workloads: [&[u8]; 5] = [b"a", b"b", &[7; 31], &[7; 32], &hashed[1..]];
        let keys: std::collections::BTreeSet<_> = workloads
            .iter()
            .map(|workload| key(&dash, workload))
            .collect();
        assert_eq!(keys.len(), workloads.len());
        assert!(keys.iter().flatten().all(|key| key.len() <= 33));
    }
}
