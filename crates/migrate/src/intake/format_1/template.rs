//! The template of a job, as a schedule or a batch has it: everything but its body.

use bytes::Bytes;
use windlass_codec::{DecodeError, Reader};
use windlass_engine::{Clash, Expiry, KeyUntil, NewJob, Protocol, QueueKind, Unique};

use super::job::{read_key_until, read_priority, read_retry};
use super::{owned, owned_if, time};

/// Optional fields, as bits.
mod has {
    pub(super) const KEY: u64 = 1;
    pub(super) const NAME: u64 = 1 << 1;
    pub(super) const META: u64 = 1 << 2;
    pub(super) const UNIQUE: u64 = 1 << 3;
    pub(super) const NOT_BEFORE: u64 = 1 << 4;
    pub(super) const EXPIRES_AT: u64 = 1 << 5;
    pub(super) const RESULT_KEEP: u64 = 1 << 6;
    pub(super) const LEASE_MS: u64 = 1 << 7;
    pub(super) const CYCLE: u64 = 1 << 8;
    pub(super) const FRONT: u64 = 1 << 9;
    pub(super) const NAME_UNIQUE: u64 = 1 << 10;
    pub(super) const KEY_UNTIL: u64 = 1 << 11;
    pub(super) const TRACK: u64 = 1 << 12;
    pub(super) const RETRY_DEFAULT: u64 = 1 << 13;
    /// It expires by the engine's time.
    pub(super) const EXPIRES_BY: u64 = 1 << 14;
    /// A job has one time to expire, at most.
    pub(super) const EXPIRES: u64 = EXPIRES_AT | EXPIRES_BY;
    /// Above all of them.
    pub(super) const END: u64 = 1 << 15;
}

/// By their codes.
const CLASHES: [Clash; 3] = [Clash::Attach, Clash::Refuse, Clash::Keep];

/// Reads a template: its key, and the job. The job's body follows separately.
pub(super) fn read_template(from: &mut Reader<'_>) -> Result<(Option<Bytes>, NewJob), DecodeError> {
    let bits = from.below("a template's bits", has::END)?;
    if bits & has::EXPIRES == has::EXPIRES {
        return Err(DecodeError::Range {
            field: "a template's bits",
            value: bits,
        });
    }
    let is = |bit: u64| bits & bit != 0;
    let protocol = Protocol(from.u8()?);
    let priority = read_priority(from)?;
    let (queue, retry) = (owned(from)?, read_retry(from)?);
    let (key, name) = (
        owned_if(from, is(has::KEY))?,
        owned_if(from, is(has::NAME))?,
    );
    let meta = owned_if(from, is(has::META))?.unwrap_or_default();
    let unique = if is(has::UNIQUE) {
        Some(read_unique(from, is(has::KEY_UNTIL))?)
    } else {
        None
    };
    let mut time_if = |there: bool| {
        if there {
            time(from).map(Some)
        } else {
            Ok(None)
        }
    };
    let (not_before, expires_at) = (time_if(is(has::NOT_BEFORE))?, time_if(is(has::EXPIRES_AT))?);
    let result_keep_ms = if is(has::RESULT_KEEP) { from.u64()? } else { 0 };
    let lease_ms = if is(has::LEASE_MS) {
        Some(from.u64()?)
    } else {
        None
    };
    let track_ms = if is(has::TRACK) { from.u64()? } else { 0 };
    let expires_by = if is(has::EXPIRES_BY) {
        Some(Expiry::By(time(from)?))
    } else {
        None
    };
    let job = NewJob {
        track_ms,
        kind: if is(has::CYCLE) {
            QueueKind::Cycle
        } else {
            QueueKind::Work
        },
        priority,
        front: is(has::FRONT),
        name,
        name_unique: is(has::NAME_UNIQUE),
        meta,
        unique,
        not_before,
        expires: expires_by
            .or(expires_at.map(Expiry::At))
            .unwrap_or_default(),
        retry,
        retry_default: is(has::RETRY_DEFAULT),
        result_keep_ms,
        lease_ms,
        ..NewJob::new(protocol, queue, Bytes::new())
    };
    Ok((key, job))
}

fn read_unique(from: &mut Reader<'_>, has_end: bool) -> Result<Unique, DecodeError> {
    let key = owned(from)?;
    let clash = from.one_of(&CLASHES, "a clash rule")?;
    let until = if has_end {
        read_key_until(from)?
    } else {
        KeyUntil::End
    };
    Ok(Unique { key, clash, until })
}
