//! A queue's own policy, and its paused keys, as a part of its record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{KeySource, OwnPolicy, Policy, Rate, SavedRates};

use crate::codec::{DecodeError, Reader, put_bytes, put_time, put_u64};

/// More keys than a record may name.
const KEYS_MAX: u64 = 1 << 20;

/// The paused keys, then flags for the parts of the policy, 0 for none, and these parts.
pub(super) fn encode(own: Option<&OwnPolicy>, paused: &BTreeSet<Bytes>, out: &mut Vec<u8>) {
    put_u64(out, paused.len() as u64);
    paused.iter().for_each(|key| put_bytes(out, key));
    let Some(OwnPolicy { policy, by, at }) = own else {
        return put_u64(out, 0);
    };
    let Policy {
        rate,
        key,
        key_running_max,
        key_rate,
        key_waiting_max,
        fair,
        weights,
        ordered,
        ..
    } = &**policy;
    let has = [
        rate.is_some(),
        key.is_some(),
        key_running_max.is_some(),
        key_rate.is_some(),
        key_waiting_max.is_some(),
    ];
    let flags = [true]
        .into_iter()
        .chain(has)
        .chain([*fair, *ordered, !weights.is_empty()]);
    put_u64(
        out,
        (0..)
            .zip(flags)
            .map(|(bit, flag)| u64::from(flag) << bit)
            .sum(),
    );
    put_bytes(out, by);
    put_time(out, *at);
    for Rate {
        jobs,
        per_ms,
        burst,
    } in rate.iter().chain(key_rate)
    {
        [*jobs, *per_ms, *burst]
            .into_iter()
            .for_each(|part| put_u64(out, part.into()));
    }
    if let Some(key) = key {
        let end = |end: u8| Bytes::copy_from_slice(&[end]);
        let (code, text) = match key {
            KeySource::Args(at) => (0, Bytes::copy_from_slice(at.as_bytes())),
            KeySource::Custom(at) => (1, Bytes::copy_from_slice(at.as_bytes())),
            KeySource::Unique(split) => (2, split.map(end).unwrap_or_default()),
            KeySource::Prefix(byte) => (3, end(*byte)),
            KeySource::Header(name) => (4, Bytes::copy_from_slice(name.as_bytes())),
        };
        out.push(code);
        put_bytes(out, &text);
    }
    key_running_max
        .iter()
        .chain(key_waiting_max)
        .for_each(|max| put_u64(out, (*max).into()));
    if !weights.is_empty() {
        put_u64(out, weights.len() as u64);
        for (key, weight) in weights {
            put_bytes(out, key);
            put_u64(out, (*weight).into());
        }
    }
}

pub(super) fn decode(
    from: &mut Reader<'_>,
) -> Result<(Option<Box<OwnPolicy>>, BTreeSet<Bytes>), DecodeError> {
    let count = from.below("paused keys", KEYS_MAX)?;
    let paused = (0..count).map(|_| from.owned()).collect::<Result<_, _>>()?;
    let flags = from.below("a policy's flags", 1 << 9)?;
    if flags == 0 {
        return Ok((None, paused));
    }
    let has = |bit: u32| flags & 1 << bit != 0;
    let (by, at) = (from.owned()?, from.time()?);
    let rate = if has(1) {
        Some(decode_rate(from)?)
    } else {
        None
    };
    let key_rate = if has(4) {
        Some(decode_rate(from)?)
    } else {
        None
    };
    let key = if has(2) {
        Some(decode_source(from)?)
    } else {
        None
    };
    let key_running_max = if has(3) {
        Some(from.u32("running jobs of a key")?)
    } else {
        None
    };
    let key_waiting_max = if has(5) {
        Some(from.u32("waiting jobs of a key")?)
    } else {
        None
    };
    let (fair, ordered) = (has(6), has(7));
    let count = if has(8) {
        from.below("weights", KEYS_MAX)?
    } else {
        0
    };
    let weight = |_| Ok((from.owned()?, from.u32("a weight")?));
    let weights = (0..count)
        .map(weight)
        .collect::<Result<BTreeMap<_, _>, DecodeError>>()?;
    let policy = Policy {
        rate,
        key,
        key_running_max,
        key_rate,
        key_waiting_max,
        fair,
        weights,
        ordered,
    };
    Ok((
        Some(Box::new(OwnPolicy {
            policy: Arc::new(policy),
            by,
            at,
        })),
        paused,
    ))
}

/// When the buckets of a queue are full: its own, then those of keys.
pub(super) fn encode_saved(saved: &SavedRates, out: &mut Vec<u8>) {
    put_time(out, saved.full_at);
    put_u64(out, saved.keys.len() as u64);
    for (key, full_at) in &saved.keys {
        put_bytes(out, key);
        put_time(out, *full_at);
    }
}

pub(super) fn decode_saved(from: &mut Reader<'_>) -> Result<SavedRates, DecodeError> {
    let full_at = from.time()?;
    let count = from.below("keys that lack tokens", KEYS_MAX)?;
    let keys = (0..count)
        .map(|_| Ok((from.owned()?, from.time()?)))
        .collect::<Result<_, DecodeError>>()?;
    Ok(SavedRates { full_at, keys })
}

fn decode_rate(from: &mut Reader<'_>) -> Result<Rate, DecodeError> {
    Ok(Rate {
        jobs: from.u32("jobs of a rate")?,
        per_ms: from.u32("a rate's time")?,
        burst: from.u32("a rate's burst")?,
    })
}

fn decode_source(from: &mut Reader<'_>) -> Result<KeySource, DecodeError> {
    let code = from.below("where a key is", 5)?;
    let text = from.owned()?;
    let words = || String::from_utf8_lossy(&text).into();
    Ok(match code {
        0 => KeySource::Args(words()),
        1 => KeySource::Custom(words()),
        2 => KeySource::Unique(text.first().copied()),
        3 => KeySource::Prefix(text.first().copied().unwrap_or_default()),
        _ => KeySource::Header(words()),
    })
}
