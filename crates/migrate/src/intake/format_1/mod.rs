//! Records of exports of version 1, which earlier programs wrote by hand, field by field. Only read.
//!
//! Stores of that format are refused: their owners export them with the program that wrote them, and import the file.

mod attempts;
mod batch;
mod job;
mod policy;
mod schedule;
mod standing;
mod template;

use std::collections::BTreeSet;

use bytes::Bytes;
use windlass_codec::{DecodeError, Reader};
use windlass_engine::{
    Clock, Coalesce, Codec, DayBegin, EngineMeta, Priority, Protocol, Protocols, QueueId,
    QueueImage, QueueKind, QueueRules, Throttle, Timestamp, Totals,
};
use windlass_store::{MetaRecord, Record};

const PUT: u8 = 1;
const QUEUE_SET: u8 = 4;
const SCHEDULE: u8 = 7;
const BATCH: u8 = 9;
const HEAD: u8 = 12;
const DAY: u8 = 13;

/// Counts, numbers and ranks stay below this.
const COUNT_MAX: u64 = 1 << 63;
/// By their codes.
const KINDS: [QueueKind; 2] = [QueueKind::Work, QueueKind::Cycle];
const CODECS: [Codec; 3] = [Codec::Text, Codec::Json, Codec::Base64];

/// Reads the one record in these bytes; `None`: something follows it.
pub(super) fn record(bytes: &[u8]) -> Result<Option<Record>, DecodeError> {
    let mut from = Reader::new(bytes);
    let record = match from.u8()? {
        PUT => Record::Put(job::read(&mut from)?),
        QUEUE_SET => Record::QueueSet(queue(&mut from)?),
        SCHEDULE => Record::Schedule(Box::new(schedule::read(&mut from)?)),
        BATCH => Record::Batch(Box::new(batch::read(&mut from)?)),
        HEAD => Record::Meta(meta(&mut from)?),
        DAY => Record::Day(day(&mut from)?),
        kind => return Err(DecodeError::Kind(kind)),
    };
    Ok((from.left() == 0).then_some(record))
}

/// Times were written one higher, so that `NEVER` took one byte.
fn time(from: &mut Reader<'_>) -> Result<Timestamp, DecodeError> {
    Ok(Timestamp(from.u64()?.wrapping_sub(1)))
}

fn owned(from: &mut Reader<'_>) -> Result<Bytes, DecodeError> {
    from.bytes().map(Bytes::copy_from_slice)
}

fn owned_if(from: &mut Reader<'_>, there: bool) -> Result<Option<Bytes>, DecodeError> {
    there.then(|| owned(from)).transpose()
}

fn queue(from: &mut Reader<'_>) -> Result<QueueImage, DecodeError> {
    let id = QueueId(from.u32("a queue's number")?);
    let name = owned(from)?;
    let kind = from.one_of(&KINDS, "a queue's kind")?;
    let flags = from.below("a queue's flags", 1 << 8)?;
    let mut jobs_max = [None; Priority::COUNT];
    for limit in &mut jobs_max {
        let coded = from.below("a queue's limit", 1 << 33)?;
        *limit = coded.checked_sub(1).and_then(|n| u32::try_from(n).ok());
    }
    let serial = from.below("a queue's serial", COUNT_MAX)?;
    let throttle = if flags & 4 != 0 {
        Some(decode_throttle(from)?)
    } else {
        None
    };
    let rules = if flags & 8 != 0 {
        Some(decode_rules(from)?)
    } else {
        None
    };
    let rules = rules
        .filter(|rules| *rules != QueueRules::default())
        .map(Box::new);
    let paused_at = if flags & 16 != 0 {
        Some(time(from)?).filter(|_| flags & 2 != 0)
    } else {
        None
    };
    let parts = if flags & 32 != 0 {
        Parts::decode(from)?
    } else {
        Parts::ALL
    };
    let known = if flags & 1 != 0 {
        parts.known
    } else {
        Protocols::NONE
    };
    let paused = if flags & 2 != 0 {
        parts.paused
    } else {
        Protocols::NONE
    };
    let jobs_max_of = parts.jobs_max_of;
    let (policy, paused_keys) = if flags & 64 != 0 {
        policy::read(from)?
    } else {
        (None, BTreeSet::new())
    };
    let saved = if flags & 128 != 0 {
        Some(Box::new(policy::read_saved(from)?))
    } else {
        None
    };
    Ok(QueueImage {
        id,
        name,
        kind,
        known,
        paused,
        paused_at,
        jobs_max,
        jobs_max_of,
        throttle,
        rules,
        policy,
        paused_keys,
        saved,
        serial,
    })
}

/// In earlier versions the first flag isolated the protocols from one another. Now the configuration decides.
fn decode_rules(from: &mut Reader<'_>) -> Result<QueueRules, DecodeError> {
    let codec = from.one_of(&CODECS, "a queue's codec")?;
    let flags = from.below("a rule's flags", 1 << 8)?;
    let retry = if flags & 2 != 0 {
        Some(job::read_retry(from)?)
    } else {
        None
    };
    let body_bytes_max = if flags & 4 != 0 {
        Some(from.u32("a limit of bodies")?)
    } else {
        None
    };
    let ttl_ms = if flags & 8 != 0 {
        Some(from.u64()?)
    } else {
        None
    };
    let dead_ms = if flags & 16 != 0 {
        Some(from.u64()?)
    } else {
        None
    };
    let dead_max = if flags & 32 != 0 {
        Some(from.u32("a limit of dead jobs")?)
    } else {
        None
    };
    let dedup_ms = if flags & 64 != 0 {
        Some(from.u64()?)
    } else {
        None
    };
    let coalesce = if flags & 128 != 0 {
        Some(decode_coalesce(from)?)
    } else {
        None
    };
    Ok(QueueRules {
        codec,
        retry,
        body_bytes_max,
        ttl_ms,
        dead_ms,
        dead_max,
        dedup_ms,
        coalesce,
        history: None,
    })
}

fn decode_coalesce(from: &mut Reader<'_>) -> Result<Coalesce, DecodeError> {
    let flags = from.below("flags of coalescing", 16)?;
    let [by_key, latest, once_more] = [1, 2, 4].map(|bit| flags & bit != 0);
    let quiet_ms = from.u64()?;
    let at_most_ms = if flags & 8 != 0 {
        Some(from.u64()?)
    } else {
        None
    };
    Ok(Coalesce {
        by_key,
        latest,
        quiet_ms,
        at_most_ms,
        once_more,
    })
}

fn decode_throttle(from: &mut Reader<'_>) -> Result<Throttle, DecodeError> {
    let flags = from.below("a throttle's flags", 16)?;
    let leased_max = if flags & 1 != 0 {
        Some(from.u32("a throttle's limit")?)
    } else {
        None
    };
    let per_worker_max = if flags & 2 != 0 {
        Some(from.u32("a throttle's limit for a worker")?)
    } else {
        None
    };
    let timeout_ms = if flags & 4 != 0 {
        Some(from.u64()?)
    } else {
        None
    };
    Ok(Throttle {
        leased_max,
        per_worker_max,
        timeout_ms,
        configured: flags & 8 != 0,
    })
}

fn meta(from: &mut Reader<'_>) -> Result<MetaRecord, DecodeError> {
    let flags = from.below("the engine meta's flags", 16)?;
    let misfits = flags & 4 != 0;
    let boot_count = if flags & 2 != 0 {
        from.below("the boot count", COUNT_MAX)?
    } else {
        0
    };
    let next_job = from.below("the next job's number", COUNT_MAX)?;
    let reserved = from.below("the reserved numbers", COUNT_MAX)?;
    let totals = read_totals(from, misfits)?;
    let mut protocols = Vec::new();
    for _ in 0..from.below("a count of protocols", 257)? {
        let protocol = Protocol(from.u8()?);
        if protocols.last().is_some_and(|(last, _)| *last >= protocol) {
            return Err(DecodeError::Range {
                field: "a protocol",
                value: protocol.0.into(),
            });
        }
        protocols.push((protocol, read_totals(from, misfits)?));
    }
    let clock = if flags & 8 != 0 {
        read_clock(from)?
    } else {
        Clock::default()
    };
    let meta = EngineMeta {
        next_job,
        reserved,
        boot_count,
        clock,
        totals,
        protocols,
    };
    Ok(MetaRecord {
        meta,
        clean: flags & 1 != 0,
    })
}

fn day(from: &mut Reader<'_>) -> Result<DayBegin, DecodeError> {
    let number = from.below("a day's number", COUNT_MAX)?;
    if number == 0 {
        return Err(DecodeError::Range {
            field: "a day's number",
            value: number,
        });
    }
    let day = from.below("a day", COUNT_MAX)?;
    Ok(DayBegin {
        number,
        day,
        totals: read_totals(from, true)?,
    })
}

fn read_clock(from: &mut Reader<'_>) -> Result<Clock, DecodeError> {
    let skew_ms = from.i64()?;
    let boot = read_le(from)?;
    Ok(Clock {
        skew_ms,
        boot,
        ahead_ms: from.i64()?,
        at: time(from)?,
    })
}

/// Eight bytes, the low one first.
fn read_le(from: &mut Reader<'_>) -> Result<u64, DecodeError> {
    Ok(from
        .slice(8)?
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn read_totals(from: &mut Reader<'_>, misfits: bool) -> Result<Totals, DecodeError> {
    let mut values = Totals::default().values();
    let told = if misfits {
        values.len()
    } else {
        values.len() - 1
    };
    for total in values.iter_mut().take(told) {
        *total = from.below("a total", COUNT_MAX)?;
    }
    Ok(Totals::of(values))
}

/// Whose a queue's settings are. A record without them has them for all protocols, as those of earlier versions.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Parts {
    known: Protocols,
    paused: Protocols,
    jobs_max_of: Option<Protocol>,
}

impl Parts {
    const ALL: Self = Self {
        known: Protocols::ALL,
        paused: Protocols::ALL,
        jobs_max_of: None,
    };

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (known, paused) = (
            Protocols::from_bits(from.u8()?),
            Protocols::from_bits(from.u8()?),
        );
        let coded = from.below("the protocol of a queue's limit", 1 << 8 | 1)?;
        let jobs_max_of = coded
            .checked_sub(1)
            .and_then(|number| u8::try_from(number).ok())
            .map(Protocol);
        Ok(Self {
            known,
            paused,
            jobs_max_of,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn unhex(path: &Path) -> Option<Vec<u8>> {
        let text = fs::read_to_string(path).ok()?;
        let digits: String = text.split_whitespace().collect();
        Some(hex::decode(digits).unwrap())
    }

    /// Each record as an earlier program wrote it is the record of the same name that this program writes.
    #[test]
    fn the_records_of_version_1_are_those_of_today() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = here.join("golden/format_1");
        let mut compared = 0;
        for file in fs::read_dir(folder).unwrap() {
            let file = file.unwrap();
            let name = file.file_name();
            let name = match name.to_str().unwrap() {
                // It also isolated the protocols from one another, which the configuration decides now.
                "queue_set_ruled.hex" => "queue_set_ruled_again.hex",
                name => name,
            };
            let earlier = unhex(&file.path()).unwrap();
            let present = unhex(&here.join("../store/golden").join(name)).unwrap();
            let present = Record::all(&present).next().unwrap().unwrap();
            assert_eq!(record(&earlier), Ok(Some(present)), "{name}");
            compared += 1;
        }
        assert_eq!(compared, 47);
    }

    #[test]
    fn cut_records_are_refused() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        for file in fs::read_dir(here.join("golden/format_1")).unwrap() {
            let whole = unhex(&file.unwrap().path()).unwrap();
            for end in 0..whole.len() {
                assert!(
                    record(whole.get(..end).unwrap()).is_err(),
                    "{end} of {whole:?}"
                );
            }
            assert_eq!(record(&[&whole[..], &[0]].concat()), Ok(None));
        }
    }
}
