//! Jobs that are not needed soon, in few bytes: all that are in one page of memory, together.
//!
//! Neighbours are alike. Of each job stands here what is its own, as a difference from the job before it: its number,
//! rank and time, and its payload, whose body is short or stored elsewhere. The rest is a *shape*, which it shares with
//! others. Jobs that wait in a queue have one or two shapes.

use bytes::{Buf, Bytes, TryGetError};

use super::bodies::SAVED_BYTES;
use super::job::Job;
use super::payload::Payload;
use super::stored::Stored;
use crate::ids::{JobId, Timestamp};

/// A page with more shapes stays as it is.
const SHAPES_MAX: usize = 16;
/// A place without a job.
const NO_JOB: u8 = u8::MAX;

/// What a packed job takes less of the bytes that [`Job::weight_bytes`] counts, if its body is elsewhere. Another one
/// takes [`SAVED_BYTES`] less.
const JOB_BYTES: u64 = size_of::<Option<Job>>() as u64 + 40;

/// The jobs of a page, and their places in it.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    shapes: Box<[Job]>,
    bytes: Box<[u8]>,
    /// Bytes that it saves.
    saved: u64,
}

/// What the next job differs from.
#[derive(Clone, Copy, Default)]
struct Before {
    id: u64,
    rank: u64,
    ready_at: u64,
    body_end: u64,
}

impl Packed {
    /// `None`: one of the jobs is handed out, or has a body in memory that could be elsewhere, or there are too many shapes.
    pub(super) fn of(jobs: &[Option<Job>]) -> Option<Self> {
        let (mut shapes, mut bytes, mut before) = (Vec::new(), Vec::new(), Before::default());
        let mut saved = 0;
        for job in jobs {
            let Some(job) = job else {
                bytes.push(NO_JOB);
                continue;
            };
            if job.lease().is_some() {
                return None;
            }
            let shape = shapes.iter().position(|shape| is_alike(shape, job));
            let shape = shape.unwrap_or_else(|| {
                shapes.push(Job { payload: Payload::copy(None, &[], &[]), ..job.clone() });
                shapes.len() - 1
            });
            bytes.push(u8::try_from(shape).ok().filter(|_| shape < SHAPES_MAX)?);
            before.put(job, &mut bytes)?;
            saved += JOB_BYTES + if job.payload.stored().is_some() { 0 } else { SAVED_BYTES };
        }
        let saved = saved.saturating_sub((bytes.len() + shapes.len() * size_of::<Job>()) as u64);
        Some(Self { shapes: shapes.into(), bytes: bytes.into(), saved })
    }

    /// The jobs in their places.
    pub(super) fn jobs(&self) -> Vec<Option<Job>> {
        let (mut jobs, mut bytes, mut before) = (Vec::new(), &self.bytes[..], Before::default());
        while let Ok(shape) = bytes.try_get_u8() {
            let job = self.shapes.get(usize::from(shape)).map(|shape| before.take(shape, &mut bytes));
            let job = job.transpose();
            debug_assert!(job.is_ok(), "a page that was packed here");
            jobs.push(job.unwrap_or_default());
        }
        jobs
    }

    /// Bytes of memory that it saves, about.
    pub(super) const fn saved_bytes(&self) -> u64 {
        self.saved
    }
}

/// Whether two jobs differ only in what [`Before::put`] writes.
fn is_alike(one: &Job, other: &Job) -> bool {
    let Job { id: _, rank: _, ready_at: _, payload: _, queue, protocol, priority, .. } = one;
    let Job { durable, state, attempts, failures, retry, unfit, extra, .. } = one;
    (queue, protocol, priority, durable, state)
        == (&other.queue, &other.protocol, &other.priority, &other.durable, &other.state)
        && (attempts, failures, retry, unfit, extra)
            == (&other.attempts, &other.failures, &other.retry, &other.unfit, &other.extra)
}

impl Before {
    /// Writes what is the job's own.
    fn put(&mut self, job: &Job, to: &mut Vec<u8>) -> Option<()> {
        put_step(&mut self.id, job.id.0, to);
        put_step(&mut self.rank, job.rank, to);
        put_step(&mut self.ready_at, job.ready_at.0, to);
        let payload = &job.payload;
        put_number(payload.key().map_or(0, |key| key.len() as u64 + 1), to);
        put_number(payload.name().len() as u64, to);
        to.extend([payload.key().unwrap_or_default(), payload.name()].concat());
        if let Some(Stored { at, len, sum }) = payload.stored() {
            put_number(u64::from(len) * 2 + 1, to);
            put_step(&mut self.body_end, at, to);
            self.body_end = self.body_end.wrapping_add(len.into());
            to.extend(sum.to_le_bytes());
        } else if payload.can_leave() || payload.body().len() > Payload::COPY_MAX {
            return None;
        } else {
            put_number(payload.body().len() as u64 * 2, to);
            to.extend(payload.body());
        }
        Some(())
    }

    /// Reads it.
    fn take(&mut self, shape: &Job, from: &mut &[u8]) -> Result<Job, TryGetError> {
        let (id, rank) = (take_step(&mut self.id, from)?, take_step(&mut self.rank, from)?);
        let ready_at = take_step(&mut self.ready_at, from)?;
        let (key, name) = (take_number(from)?.checked_sub(1), take_number(from)?);
        let key = key.map(|bytes| take_bytes(bytes, from)).transpose()?;
        let name = take_bytes(name, from)?;
        let body = take_number(from)?;
        let payload = if body % 2 == 0 {
            Payload::copy(key, name, take_bytes(body / 2, from)?)
        } else {
            let (at, len) = (take_step(&mut self.body_end, from)?, u32::try_from(body / 2).unwrap_or_default());
            self.body_end = self.body_end.wrapping_add(len.into());
            let stored = Stored { at, len, sum: from.try_get_u32_le()? };
            Payload::of_stored(key, name, stored).unwrap_or_else(|| Payload::new(key, name, &Bytes::new()))
        };
        Ok(Job { id: JobId(id), rank, ready_at: Timestamp(ready_at), payload, ..shape.clone() })
    }
}

/// Writes how far a number is from the last one, which it becomes.
fn put_step(last: &mut u64, new: u64, to: &mut Vec<u8>) {
    let step = new.wrapping_sub(std::mem::replace(last, new)).cast_signed();
    put_number((step << 1 ^ step >> 63).cast_unsigned(), to);
}

fn take_step(last: &mut u64, from: &mut &[u8]) -> Result<u64, TryGetError> {
    let number = take_number(from)?;
    let step = (number >> 1).cast_signed() ^ -(number & 1).cast_signed();
    *last = last.wrapping_add(step.cast_unsigned());
    Ok(*last)
}

/// Writes a number, seven bits a byte, the lowest first.
fn put_number(mut number: u64, to: &mut Vec<u8>) {
    while number > 0x7f {
        to.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    to.push(number.to_le_bytes()[0]);
}

fn take_number(from: &mut &[u8]) -> Result<u64, TryGetError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = from.try_get_u8()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    Ok(number)
}

fn take_bytes<'a>(bytes: u64, from: &mut &'a [u8]) -> Result<&'a [u8], TryGetError> {
    let requested = usize::try_from(bytes).unwrap_or(usize::MAX);
    let (taken, rest) = from.split_at_checked(requested).ok_or(TryGetError { requested, available: from.len() })?;
    *from = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Priority, Protocol, QueueId};
    use crate::jobs::{Extra, JobState, Retry, Unfit};

    fn job(id: u64, key: Option<&[u8]>, name: &[u8], body: &[u8]) -> Job {
        Job {
            id: JobId(id),
            queue: QueueId(1),
            protocol: Protocol(0),
            priority: Priority::NORMAL,
            durable: true,
            rank: 1 << 62 | id,
            state: JobState::Ready,
            ready_at: Timestamp(1_700_000_000_000 + id),
            payload: Payload::copy(key, name, body),
            attempts: 0,
            failures: 0,
            retry: Retry::NONE,
            unfit: Unfit::NONE,
            extra: None,
        }
    }

    fn stored(id: u64, at: u64, body: &[u8]) -> Job {
        let job = job(id, None, b"", body);
        let payload = job.payload.with_stored(Stored::new(at, body).unwrap()).unwrap();
        Job { payload, ..job }
    }

    #[test]
    fn jobs_come_back_as_they_were() {
        let long = [b'k'; 9_000];
        let retried = Job {
            failures: 3,
            state: JobState::Retrying(Timestamp(7)),
            extra: Some(Box::new(Extra { losses: 2, ..Extra::default() })),
            ..job(u64::MAX >> 2, Some(&long), &long, b"")
        };
        let jobs = vec![
            Some(job(5, None, b"", b"")),
            None,
            Some(job(3, Some(b""), b"name", b"short")),
            Some(stored(900, u64::MAX, &long)),
            Some(stored(4, 0, b"cat.png")),
            Some(retried),
            Some(Job { rank: 0, ready_at: Timestamp(0), ..job(0, Some(b"key"), b"", b"") }),
            None,
        ];
        let packed = Packed::of(&jobs).unwrap();
        assert_eq!(packed.jobs(), jobs);
        assert_eq!(packed.shapes.len(), 2);
    }

    #[test]
    fn a_job_of_a_long_queue_takes_few_bytes() {
        let body = [b'b'; 1_000];
        let jobs: Vec<_> = (0..255).map(|n| Some(stored(70_000 + n, 5_000_000 + n * 1_000, &body))).collect();
        let packed = Packed::of(&jobs).unwrap();
        assert_eq!(packed.jobs(), jobs);
        assert!(packed.bytes.len() < 255 * 14, "{}", packed.bytes.len());
        assert!(packed.saved_bytes() > 255 * 120);
    }

    #[test]
    fn what_packing_saves_is_what_it_takes_less() {
        let saved =
            |job: &dyn Fn(u64) -> Job| Packed::of(&(0..16).map(|n| Some(job(n))).collect::<Vec<_>>()).unwrap().saved;
        let alike = saved(&|n| job(n, None, b"", b""));
        // A job that has its body with it also had an allocation for it.
        assert!(alike > 16 * JOB_BYTES, "{alike}");
        let unlike = saved(&|n| Job { failures: u32::try_from(n).unwrap(), ..job(n, None, b"", b"") });
        assert_eq!(alike - unlike, 15 * size_of::<Job>() as u64, "a shape for each of them");
    }

    #[test]
    fn jobs_that_are_needed_are_not_packed() {
        let refused = |job: Job| assert!(Packed::of(&[Some(job)]).is_none());
        refused(job(1, None, b"", &[b'b'; 48]));
        refused(job(1, None, b"", &[b'b'; 5_000]));
        // Its key is too long for a body elsewhere, so the body may be as long as one that is copied.
        let keyed = |bytes| job(1, Some(&[b'k'; 70_000]), b"", &vec![b'b'; bytes]);
        refused(keyed(Payload::COPY_MAX + 1));
        assert!(Packed::of(&[Some(keyed(Payload::COPY_MAX))]).is_some());
        refused(Job { state: JobState::Leased(Box::new(lease())), ..job(1, None, b"", b"") });
        let many = |n| (0..n).map(|n| Some(Job { failures: n, ..job(1, None, b"", b"") })).collect::<Vec<_>>();
        assert!(Packed::of(&many(16)).is_some());
        assert!(Packed::of(&many(17)).is_none());
    }

    fn lease() -> crate::jobs::Lease {
        let (holder, on_expiry) = (crate::jobs::Holder::Named(b"w".as_slice().into()), crate::jobs::OnExpiry::Requeue);
        crate::jobs::Lease::new(holder, crate::ids::Token(1), Timestamp(0), Timestamp(1), on_expiry)
    }
}
