//! A queue's own policy, and its paused keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use windlass_codec::{DecodeError, Reader};
use windlass_engine::{KeySource, OwnPolicy, Policy, Rate, SavedRates};

use super::{owned, time};

/// More keys than a record may name.
const KEYS_MAX: u64 = 1 << 20;

pub(super) fn read(
    from: &mut Reader<'_>,
) -> Result<(Option<Box<OwnPolicy>>, BTreeSet<Bytes>), DecodeError> {
    let count = from.below("paused keys", KEYS_MAX)?;
    let paused = (0..count).map(|_| owned(from)).collect::<Result<_, _>>()?;
    let flags = from.below("a policy's flags", 1 << 9)?;
    if flags == 0 {
        return Ok((None, paused));
    }
    let has = |bit: u32| flags & 1 << bit != 0;
    let (by, at) = (owned(from)?, time(from)?);
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
    let weight = |_| Ok((owned(from)?, from.u32("a weight")?));
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

pub(super) fn read_saved(from: &mut Reader<'_>) -> Result<SavedRates, DecodeError> {
    let full_at = time(from)?;
    let count = from.below("keys that lack tokens", KEYS_MAX)?;
    let keys = (0..count)
        .map(|_| Ok((owned(from)?, time(from)?)))
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
    let text = owned(from)?;
    let words = || String::from_utf8_lossy(&text).into();
    Ok(match code {
        0 => KeySource::Args(words()),
        1 => KeySource::Custom(words()),
        2 => KeySource::Unique(text.first().copied()),
        3 => KeySource::Prefix(text.first().copied().unwrap_or_default()),
        _ => KeySource::Header(words()),
    })
}
