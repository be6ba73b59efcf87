//! A job's bytes: whole, or only the part that changes.
//!
//! State that ends with a connection is not written: listeners, and a connection-bound lease with the progress made
//! under it. Such a job is written as ready, without its interrupted delivery. This matches its last journalled state,
//! because taking a job under such a lease is not journalled. So it recovers the same, however often it was rewritten.
//!
//! ```text
//! put   = 1 id queue bits protocol priority standing retry [key] [extra] result-len body-len result body
//! moved = 2 id bits standing [cycle] [failure] [progress] [updated-at] [losses]
//!         one of its bits: whether its batch has counted the job
//! ```

use bytes::Bytes;
use windlass_engine::{
    Backoff, Cycle, Expiry, Extra, Failure, Holder, Job, JobId, JobState, KeyUntil, Lease, Member, OnExpiry, Payload,
    Priority, Progress, Protocol, QueueId, Retry, Role, Timestamp, Token, Track, Unfit,
};

use super::{COUNT_MAX, MOVED, PUT, owned_if};
use crate::codec::{DecodeError, Reader, code, put_bytes, put_i64, put_time, put_u32, put_u64};

/// Ranks are written as their distance from here, where the engine's ranks start.
const RANK_MIDDLE: i64 = 1 << 62;
/// The number of halvings that reduce a 64-bit number to zero.
const BOOST_MAX: u64 = 64;

/// Optional fields of a job, as bits.
mod has {
    pub(super) const KEY: u64 = 1;
    pub(super) const NAME: u64 = 1 << 1;
    pub(super) const META: u64 = 1 << 2;
    pub(super) const EXPIRES_AT: u64 = 1 << 3;
    pub(super) const KEY_UNTIL: u64 = 1 << 4;
    pub(super) const CYCLE: u64 = 1 << 5;
    pub(super) const FAILURE: u64 = 1 << 6;
    pub(super) const PROGRESS: u64 = 1 << 7;
    pub(super) const RESULT_KEEP: u64 = 1 << 8;
    pub(super) const LEASE_MS: u64 = 1 << 9;
    pub(super) const RESULT: u64 = 1 << 10;
    pub(super) const MEMBER: u64 = 1 << 11;
    /// Only in a job's standing: its batch has counted it as run.
    pub(super) const RAN: u64 = 1 << 12;
    pub(super) const TRACK: u64 = 1 << 13;
    /// A failure that was not the first.
    pub(super) const FAILED_BEFORE: u64 = 1 << 14;
    /// The result is in the format of another protocol than the job's.
    pub(super) const RESULT_BY: u64 = 1 << 15;
    /// A failure with a known time of its next try.
    pub(super) const NEXT_AT: u64 = 1 << 16;
    /// Number of workers lost with the job.
    pub(super) const LOSSES: u64 = 1 << 17;
    /// It expires by the engine's time.
    pub(super) const EXPIRES_BY: u64 = 1 << 18;
    /// The name under which its producer collects its end.
    pub(super) const COLLECTOR: u64 = 1 << 19;
    /// A job has one time to expire, at most.
    pub(super) const EXPIRES: u64 = EXPIRES_AT | EXPIRES_BY;
    /// Above all of them.
    pub(super) const END: u64 = 1 << 20;
}

/// How a job stands: the part that changes while it lives.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// The job.
    pub job: JobId,
    /// Its place. Never a connection-bound lease.
    pub state: JobState,
    /// Its rank: the sort key within the ready queue.
    pub rank: u64,
    /// When it became ready.
    pub ready_at: Timestamp,
    /// Deliveries.
    pub attempts: u32,
    /// Failures.
    pub failures: u32,
    /// Its standing in a `cycle` queue.
    pub cycle: Option<Cycle>,
    /// Its last failure.
    pub failure: Option<Box<Failure>>,
    /// Its last progress.
    pub progress: Option<Progress>,
    /// Its batch has counted it as run.
    pub ran: bool,
    /// Time of its last visible change, if it is tracked.
    pub updated_at: Option<Timestamp>,
    /// Number of workers lost with it.
    pub losses: u32,
}

impl Moved {
    /// Applies this standing to a job.
    pub(crate) fn apply(self, job: &mut Job) {
        (job.state, job.rank, job.ready_at) = (self.state, self.rank, self.ready_at);
        (job.attempts, job.failures) = (self.attempts, self.failures);
        let plain = self.cycle.is_none() && self.failure.is_none() && self.progress.is_none() && self.losses == 0;
        if job.extra.is_none() && plain {
            return;
        }
        let extra = job.extra.get_or_insert_default();
        extra.losses = self.losses;
        (extra.cycle, extra.failure, extra.progress) = (self.cycle, self.failure, self.progress);
        extra.member.iter_mut().for_each(|member| member.ran = self.ran);
        if let (Some(track), Some(at)) = (&mut extra.track, self.updated_at) {
            track.updated_at = at;
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let standing = Standing {
            state: &self.state,
            rank: self.rank,
            ready_at: self.ready_at,
            attempts: self.attempts,
            failures: self.failures,
        };
        let told = (self.cycle, self.failure.as_deref(), self.progress.as_ref());
        put_moved(self.job, &standing, told, (self.ran, self.updated_at, self.losses), out);
    }
}

/// The part of a standing that every job has, as it is written.
struct Standing<'a> {
    state: &'a JobState,
    rank: u64,
    ready_at: Timestamp,
    attempts: u32,
    failures: u32,
}

impl<'a> Standing<'a> {
    fn of(job: &'a Job) -> Self {
        let bound = is_bound(job);
        Self {
            state: if bound { &JobState::Ready } else { &job.state },
            rank: job.rank,
            ready_at: job.ready_at,
            attempts: job.attempts.saturating_sub(bound.into()),
            failures: job.failures,
        }
    }
}

fn is_bound(job: &Job) -> bool {
    job.lease().is_some_and(Lease::connection_bound)
}

/// The last bytes of a record, not yet copied: a result, then a body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    pub(crate) result: Bytes,
    pub(crate) body: Bytes,
}

impl Tail {
    pub(crate) const fn len(&self) -> usize {
        self.result.len() + self.body.len()
    }

    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.result);
        out.extend_from_slice(&self.body);
    }
}

/// Appends a whole job without its tail if that exceeds `inline_max` bytes. Such a tail is shared, not copied, and the
/// caller appends it.
pub(crate) fn encode_put(job: &Job, inline_max: usize, out: &mut Vec<u8>) -> Tail {
    let extra = job.extra.as_deref();
    let progress = extra.and_then(|e| e.progress.as_ref()).filter(|_| !is_bound(job));
    out.push(PUT);
    put_u64(out, job.id.0);
    put_u32(out, job.queue.0);
    put_u64(out, bits(job, extra, progress));
    out.push(job.protocol.0);
    out.push(job.priority.value());
    put_standing(&Standing::of(job), out);
    put_retry(job.retry, out);
    if let Some(key) = job.key() {
        put_bytes(out, key);
    }
    if !job.name().is_empty() {
        put_bytes(out, job.name());
    }
    if let Some(extra) = extra {
        put_extra(extra, progress, out);
    }
    let result = extra.and_then(|e| e.result.as_ref());
    if let Some(result) = result {
        put_u64(out, result.len() as u64);
    }
    put_u64(out, job.body().len() as u64);
    let tail_bytes = job.body().len() + result.map_or(0, Bytes::len);
    if tail_bytes > inline_max {
        return Tail { result: result.cloned().unwrap_or_default(), body: job.payload.share_body() };
    }
    if let Some(result) = result {
        out.extend_from_slice(result);
    }
    out.extend_from_slice(job.body());
    Tail::default()
}

/// Appends how a job stands.
pub(crate) fn encode_moved(job: &Job, out: &mut Vec<u8>) {
    let extra = job.extra.as_deref();
    let progress = extra.and_then(|e| e.progress.as_ref()).filter(|_| !is_bound(job));
    let told = (job.cycle(), extra.and_then(|e| e.failure.as_deref()), progress);
    let ran = extra.and_then(|e| e.member).is_some_and(|member| member.ran);
    let updated_at = extra.and_then(|e| e.track).map(|track| track.updated_at);
    let losses = extra.map_or(0, |extra| extra.losses);
    put_moved(job.id, &Standing::of(job), told, (ran, updated_at, losses), out);
}

fn bits(job: &Job, extra: Option<&Extra>, progress: Option<&Progress>) -> u64 {
    let bit = |there: bool, bit: u64| if there { bit } else { 0 };
    let key = bit(job.key().is_some(), has::KEY);
    let common = key | bit(!job.name().is_empty(), has::NAME);
    let Some(extra) = extra else { return common };
    common
        | bit(!extra.meta.is_empty(), has::META)
        | bit(matches!(extra.expires, Expiry::At(_)), has::EXPIRES_AT)
        | bit(extra.key_until != KeyUntil::End, has::KEY_UNTIL)
        | bit(extra.cycle.is_some(), has::CYCLE)
        | bit(extra.failure.is_some(), has::FAILURE)
        | bit(failed_before(extra.failure.as_deref()), has::FAILED_BEFORE)
        | bit(has_next_at(extra.failure.as_deref()), has::NEXT_AT)
        | bit(progress.is_some(), has::PROGRESS)
        | bit(extra.result_keep_ms != 0, has::RESULT_KEEP)
        | bit(extra.lease_ms.is_some(), has::LEASE_MS)
        | bit(extra.result.is_some(), has::RESULT)
        | bit(extra.result_by.is_some(), has::RESULT_BY)
        | bit(extra.member.is_some(), has::MEMBER)
        | bit(extra.track.is_some(), has::TRACK)
        | bit(extra.losses > 0, has::LOSSES)
        | bit(matches!(extra.expires, Expiry::By(_)), has::EXPIRES_BY)
        | bit(!extra.collector.is_empty(), has::COLLECTOR)
}

fn put_standing(standing: &Standing<'_>, out: &mut Vec<u8>) {
    match standing.state {
        // `Standing::of` has turned a connection-bound lease into ready.
        JobState::Ready => out.push(0),
        JobState::Leased(lease) => put_lease(lease, out),
        JobState::Scheduled(at) => put_tagged_time(2, *at, out),
        JobState::Retrying(at) => put_tagged_time(3, *at, out),
        JobState::Dead(until) => put_tagged_time(4, *until, out),
        JobState::Parked => out.push(5),
        JobState::Done(until) => put_tagged_time(6, *until, out),
    }
    put_i64(out, standing.rank.cast_signed().wrapping_sub(RANK_MIDDLE));
    put_time(out, standing.ready_at);
    put_u32(out, standing.attempts);
    put_u32(out, standing.failures);
}

fn put_tagged_time(tag: u8, at: Timestamp, out: &mut Vec<u8>) {
    out.push(tag);
    put_time(out, at);
}

/// In the place of what happens when a lease runs out: its worker's connection has ended with the daemon's earlier life.
/// The worker's name is its protocol then.
const AWAY: u8 = 3;

fn put_lease(lease: &Lease, out: &mut Vec<u8>) {
    out.push(1);
    match &lease.holder {
        Holder::Named(name) => put_bytes(out, name),
        Holder::Connection(_) => put_bytes(out, &[]),
        Holder::Away(protocol) => put_bytes(out, &[protocol.0]),
    }
    put_u64(out, lease.token.0);
    put_time(out, lease.taken_at);
    put_time(out, lease.until);
    out.push(match (&lease.holder, lease.on_expiry) {
        (Holder::Away(_), _) => AWAY,
        (_, OnExpiry::Fail) => 0,
        (_, OnExpiry::Requeue) => 1,
        (_, OnExpiry::Front) => 2,
    });
}

pub(super) fn put_retry(retry: Retry, out: &mut Vec<u8>) {
    put_i64(out, retry.failures_max.into());
    put_u32(out, retry.losses_max);
    match retry.backoff {
        Backoff::None => out.push(0),
        Backoff::Fixed(ms) => put_tagged(1, ms, out),
        Backoff::Doubling(ms) => put_tagged(2, ms, out),
        Backoff::Faktory => out.push(3),
    }
}

fn put_tagged(tag: u8, value: u32, out: &mut Vec<u8>) {
    out.push(tag);
    put_u32(out, value);
}

/// All fields with a set bit, in order of the bits.
fn put_extra(extra: &Extra, progress: Option<&Progress>, out: &mut Vec<u8>) {
    if !extra.meta.is_empty() {
        put_bytes(out, &extra.meta);
    }
    if let Expiry::At(at) = extra.expires {
        put_time(out, at);
    }
    put_key_until(extra.key_until, out);
    put_told((extra.cycle, extra.failure.as_deref(), progress), out);
    if extra.result_keep_ms != 0 {
        put_u64(out, extra.result_keep_ms);
    }
    if let Some(ms) = extra.lease_ms {
        put_u64(out, ms);
    }
    if let Some(Member { batch, role, ran }) = extra.member {
        put_u64(out, batch.0);
        out.push(code(&ROLES, role) << 1 | u8::from(ran));
    }
    if let Some(Track { keep_ms, updated_at }) = extra.track {
        put_u64(out, keep_ms);
        put_time(out, updated_at);
    }
    if let Some(by) = extra.result_by {
        out.push(by.0);
    }
    put_losses(extra.losses, out);
    if let Expiry::By(at) = extra.expires {
        put_time(out, at);
    }
    if !extra.collector.is_empty() {
        put_bytes(out, &extra.collector);
    }
}

/// Writes nothing for 0.
fn put_losses(losses: u32, out: &mut Vec<u8>) {
    if losses > 0 {
        put_u32(out, losses);
    }
}

/// Writes nothing for the most common end.
pub(super) fn put_key_until(until: KeyUntil, out: &mut Vec<u8>) {
    match until {
        KeyUntil::End => {}
        KeyUntil::Start => out.push(1),
        KeyUntil::EndOr(at) => put_tagged_time(2, at, out),
        KeyUntil::StartOr(at) => put_tagged_time(3, at, out),
        KeyUntil::Gone => out.push(4),
    }
}

fn failed_before(failure: Option<&Failure>) -> bool {
    failure.is_some_and(|failure| failure.at != failure.first_at)
}

fn has_next_at(failure: Option<&Failure>) -> bool {
    failure.is_some_and(|failure| failure.next_at.is_some())
}

type Told<'a> = (Option<Cycle>, Option<&'a Failure>, Option<&'a Progress>);

fn put_told((cycle, failure, progress): Told<'_>, out: &mut Vec<u8>) {
    if let Some(Cycle { priority, boost }) = cycle {
        put_u64(out, priority);
        put_u32(out, boost);
    }
    if let Some(Failure { at, first_at, next_at, kind, message, backtrace }) = failure {
        put_time(out, *at);
        if at != first_at {
            put_time(out, *first_at);
        }
        next_at.iter().for_each(|at| put_time(out, *at));
        put_bytes(out, kind);
        put_bytes(out, message);
        put_u64(out, backtrace.len() as u64);
        backtrace.iter().for_each(|line| put_bytes(out, line));
    }
    if let Some(Progress { numerator, denominator, text }) = progress {
        put_u32(out, *numerator);
        put_u32(out, *denominator);
        put_bytes(out, text);
    }
}

/// Whether its batch has counted a job, the time of its last visible change, and the number of workers lost with it.
type Seen = (bool, Option<Timestamp>, u32);

fn put_moved(id: JobId, standing: &Standing<'_>, told: Told<'_>, seen: Seen, out: &mut Vec<u8>) {
    let bit = |there: bool, bit: u64| if there { bit } else { 0 };
    out.push(MOVED);
    put_u64(out, id.0);
    let (cycle, failure, progress) = (told.0.is_some(), told.1.is_some(), told.2.is_some());
    let (ran, updated_at, losses) = seen;
    let bits = bit(cycle, has::CYCLE)
        | bit(failure, has::FAILURE)
        | bit(failed_before(told.1), has::FAILED_BEFORE)
        | bit(has_next_at(told.1), has::NEXT_AT)
        | bit(progress, has::PROGRESS)
        | bit(ran, has::RAN)
        | bit(updated_at.is_some(), has::TRACK)
        | bit(losses > 0, has::LOSSES);
    put_u64(out, bits);
    put_standing(standing, out);
    put_told(told, out);
    if let Some(at) = updated_at {
        put_time(out, at);
    }
    put_losses(losses, out);
}

// ---- reading -------------------------------------------------------------------------------------------------------

pub(super) fn decode_put(from: &mut Reader<'_>) -> Result<Job, DecodeError> {
    let id = JobId(from.below("a job's number", COUNT_MAX)?);
    let queue = QueueId(from.u32("a queue's number")?);
    let bits = from.below("a job's bits", has::END)?;
    if bits & has::RAN != 0 || bits & has::EXPIRES == has::EXPIRES {
        return Err(DecodeError::Range { field: "a job's bits", value: bits });
    }
    let protocol = Protocol(from.u8()?);
    let priority = match from.u8()? {
        priority @ 1..=9 => Priority::clamped(priority),
        other => return Err(DecodeError::Range { field: "a priority", value: other.into() }),
    };
    let (state, rank, ready_at, attempts, failures) = read_standing(from)?;
    let retry = read_retry(from)?;
    let key = if bits & has::KEY != 0 { Some(from.bytes()?) } else { None };
    let name = if bits & has::NAME != 0 { from.bytes()? } else { &[] };
    let mut extra = if bits & !(has::KEY | has::NAME) == 0 { None } else { Some(Box::new(read_extra(from, bits)?)) };
    let result_bytes = if bits & has::RESULT != 0 { Some(from.u64()?) } else { None };
    let body_bytes = from.u64()?;
    if let (Some(extra), Some(bytes)) = (&mut extra, result_bytes) {
        extra.result = Some(Bytes::copy_from_slice(from.slice(bytes)?));
    }
    let payload = Payload::copy(key, name, from.slice(body_bytes)?);
    let durable = true;
    let unfit = Unfit::NONE;
    Ok(Job {
        id,
        queue,
        protocol,
        priority,
        durable,
        rank,
        state,
        ready_at,
        payload,
        attempts,
        failures,
        retry,
        unfit,
        extra,
    })
}

pub(super) fn decode_moved(from: &mut Reader<'_>) -> Result<Moved, DecodeError> {
    const KNOWN: u64 = has::CYCLE
        | has::FAILURE
        | has::FAILED_BEFORE
        | has::NEXT_AT
        | has::PROGRESS
        | has::RAN
        | has::TRACK
        | has::LOSSES;
    let job = JobId(from.below("a job's number", COUNT_MAX)?);
    let bits = from.u64()?;
    if bits & !KNOWN != 0 {
        return Err(DecodeError::Range { field: "a standing's bits", value: bits });
    }
    let (state, rank, ready_at, attempts, failures) = read_standing(from)?;
    let (cycle, failure, progress) = read_told(from, bits)?;
    let ran = bits & has::RAN != 0;
    let updated_at = if bits & has::TRACK == 0 { None } else { Some(from.time()?) };
    let losses = read_losses(from, bits)?;
    Ok(Moved { job, state, rank, ready_at, attempts, failures, cycle, failure, progress, ran, updated_at, losses })
}

fn read_standing(from: &mut Reader<'_>) -> Result<(JobState, u64, Timestamp, u32, u32), DecodeError> {
    let state = match from.u8()? {
        0 => JobState::Ready,
        1 => JobState::Leased(Box::new(read_lease(from)?)),
        2 => JobState::Scheduled(from.time()?),
        3 => JobState::Retrying(from.time()?),
        4 => JobState::Dead(from.time()?),
        5 => JobState::Parked,
        6 => JobState::Done(from.time()?),
        other => return Err(DecodeError::Range { field: "a state", value: other.into() }),
    };
    let rank = from.i64()?.wrapping_add(RANK_MIDDLE).cast_unsigned();
    if rank == 0 || rank >= COUNT_MAX {
        return Err(DecodeError::Range { field: "a rank", value: rank });
    }
    Ok((state, rank, from.time()?, from.u32("attempts")?, from.u32("failures")?))
}

fn read_lease(from: &mut Reader<'_>) -> Result<Lease, DecodeError> {
    let name = from.bytes()?;
    let (token, taken_at, until) = (Token(from.u64()?), from.time()?, from.time()?);
    let (holder, on_expiry) = match (from.u8()?, name) {
        (0, name) => (Holder::Named(name.into()), OnExpiry::Fail),
        (1, name) => (Holder::Named(name.into()), OnExpiry::Requeue),
        (2, name) => (Holder::Named(name.into()), OnExpiry::Front),
        (AWAY, [protocol]) => (Holder::Away(Protocol(*protocol)), OnExpiry::Requeue),
        (other, _) => return Err(DecodeError::Range { field: "a lease's end", value: other.into() }),
    };
    Ok(Lease::new(holder, token, taken_at, until, on_expiry))
}

pub(super) fn read_retry(from: &mut Reader<'_>) -> Result<Retry, DecodeError> {
    let failures_max = from.i64()?;
    let failures_max = i32::try_from(failures_max)
        .map_err(|_| DecodeError::Range { field: "a retry budget", value: failures_max.cast_unsigned() })?;
    let losses_max = from.u32("a loss budget")?;
    let backoff = match from.u8()? {
        0 => Backoff::None,
        1 => Backoff::Fixed(from.u32("a back-off")?),
        2 => Backoff::Doubling(from.u32("a back-off")?),
        3 => Backoff::Faktory,
        other => return Err(DecodeError::Range { field: "a back-off", value: other.into() }),
    };
    Ok(Retry { failures_max, losses_max, backoff })
}

fn read_extra(from: &mut Reader<'_>, bits: u64) -> Result<Extra, DecodeError> {
    let has = |bit: u64| bits & bit != 0;
    let mut extra = Extra { meta: owned_if(from, has(has::META))?.unwrap_or_default(), ..Extra::default() };
    if has(has::EXPIRES_AT) {
        extra.expires = Expiry::At(from.time()?);
    }
    if has(has::KEY_UNTIL) {
        extra.key_until = read_key_until(from)?;
    }
    (extra.cycle, extra.failure, extra.progress) = read_told(from, bits)?;
    if has(has::RESULT_KEEP) {
        extra.result_keep_ms = from.u64()?;
    }
    if has(has::LEASE_MS) {
        extra.lease_ms = Some(from.u64()?);
    }
    if has(has::MEMBER) {
        extra.member = Some(read_member(from)?);
    }
    if has(has::TRACK) {
        extra.track = Some(Track { keep_ms: from.u64()?, updated_at: from.time()? });
    }
    if has(has::RESULT_BY) {
        extra.result_by = Some(Protocol(from.u8()?));
    }
    extra.losses = read_losses(from, bits)?;
    if has(has::EXPIRES_BY) {
        extra.expires = Expiry::By(from.time()?);
    }
    extra.collector = owned_if(from, has(has::COLLECTOR))?.unwrap_or_default();
    Ok(extra)
}

fn read_losses(from: &mut Reader<'_>, bits: u64) -> Result<u32, DecodeError> {
    if bits & has::LOSSES == 0 { Ok(0) } else { from.u32("workers lost") }
}

/// By their codes.
const ROLES: [Role; 3] = [Role::Job, Role::Complete, Role::Success];

fn read_member(from: &mut Reader<'_>) -> Result<Member, DecodeError> {
    let batch = JobId(from.below("a batch's number", COUNT_MAX)?);
    let code = from.u8()?;
    let role = ROLES.get(usize::from(code >> 1)).copied();
    let role = role.ok_or(DecodeError::Range { field: "a job's role", value: code.into() })?;
    Ok(Member { batch, role, ran: code & 1 != 0 })
}

pub(super) fn read_key_until(from: &mut Reader<'_>) -> Result<KeyUntil, DecodeError> {
    Ok(match from.u8()? {
        1 => KeyUntil::Start,
        2 => KeyUntil::EndOr(from.time()?),
        3 => KeyUntil::StartOr(from.time()?),
        4 => KeyUntil::Gone,
        other => return Err(DecodeError::Range { field: "a key's end", value: other.into() }),
    })
}

type ToldOwned = (Option<Cycle>, Option<Box<Failure>>, Option<Progress>);

fn read_told(from: &mut Reader<'_>, bits: u64) -> Result<ToldOwned, DecodeError> {
    let cycle = if bits & has::CYCLE == 0 { None } else { Some(read_cycle(from)?) };
    if bits & has::FAILURE == 0 && bits & (has::FAILED_BEFORE | has::NEXT_AT) != 0 {
        return Err(DecodeError::Range { field: "a failure's bits", value: bits });
    }
    let failure = if bits & has::FAILURE == 0 { None } else { Some(Box::new(read_failure(from, bits)?)) };
    let progress = if bits & has::PROGRESS == 0 { None } else { Some(read_progress(from)?) };
    Ok((cycle, failure, progress))
}

fn read_cycle(from: &mut Reader<'_>) -> Result<Cycle, DecodeError> {
    let priority = from.below("a cycle's priority", COUNT_MAX)?;
    let boost = from.below("a cycle's boost", BOOST_MAX)?;
    Ok(Cycle { priority, boost: u32::try_from(boost).unwrap_or_default() })
}

fn read_failure(from: &mut Reader<'_>, bits: u64) -> Result<Failure, DecodeError> {
    let at = from.time()?;
    let first_at = if bits & has::FAILED_BEFORE == 0 { at } else { from.time()? };
    let next_at = if bits & has::NEXT_AT == 0 { None } else { Some(from.time()?) };
    let (kind, message) = (from.owned()?, from.owned()?);
    let lines = from.u64()?;
    // Grown while reading: the announced count is untrusted.
    let mut backtrace = Vec::new();
    for _ in 0..lines {
        backtrace.push(from.owned()?);
    }
    Ok(Failure { at, first_at, next_at, kind, message, backtrace })
}

fn read_progress(from: &mut Reader<'_>) -> Result<Progress, DecodeError> {
    Ok(Progress { numerator: from.u32("progress")?, denominator: from.u32("progress")?, text: from.owned()? })
}
