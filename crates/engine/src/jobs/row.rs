//! The bytes of a packed job: the shape, and the differences from the job before it.
//!
//! Most rows start with a single byte for the usual case: the next ID, the same queue. A payload in one piece
//! is copied into the row, so that packing neither parses nor builds payloads.

use super::job::Job;
use super::payload::{Payload, View};
use super::shape::{self, NUMBERS, Own, Shape};
use super::stored::Stored;
use crate::ids::{JobId, QueueId, Timestamp};

/// A place without a job.
pub(super) const NO_JOB: u8 = u8::MAX;

/// The limit of shapes in a page: the numbers are the lower half of a row's first byte, which never is
/// [`NO_JOB`].
pub(super) const SHAPES_MAX: usize = 15;
const SHAPE: u8 = 0x0f;

/// The ID and the rank are the next ones.
const IS_NEXT: u8 = 1 << 4;
/// The queue is the same one.
const SAME_QUEUE: u8 = 1 << 5;

/// The form of the payload.
const FORM: u8 = 3 << 6;
/// In one piece.
const WHOLE: u8 = 0;
/// Without the body.
const STORED: u8 = 1 << 6;
/// Without the body, a key and a name.
const ONLY_STORED: u8 = 2 << 6;
/// Key, name and body, one after the other.
const APART: u8 = 3 << 6;

/// The usual value, without the shape.
const USUAL: u8 = WHOLE | IS_NEXT | SAME_QUEUE;

/// The values from which the next job differs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    id: u64,
    rank: u64,
    queue: u64,
    ready_at: u64,
    body_end: u64,
    numbers: [u64; NUMBERS],
}

impl Before {
    /// Writes the row of a job of this shape. `None`: the body is too large for a row.
    #[inline]
    pub(super) fn put(
        &mut self,
        number: u8,
        shape: &Shape,
        job: &Job,
        view: View<'_>,
        to: &mut Vec<u8>,
    ) -> Option<()> {
        if let Some(()) = self.put_usual(number, shape, job, view, to) {
            return Some(());
        }
        let payload = &job.payload;
        let form = match view {
            View::Whole(..) => WHOLE,
            View::Stored(_) if payload.has_key() || !payload.name().is_empty() => STORED,
            View::Stored(_) => ONLY_STORED,
            View::Apart if payload.body().len() <= Payload::COPY_MAX => APART,
            View::Apart => return None,
        };
        let (id, queue) = (job.id.0, job.queue.0.into());
        let is_next = id == self.id.wrapping_add(1) && job.rank == self.rank.wrapping_add(1);
        let same_queue = queue == self.queue;
        to.push(
            number
                | form
                | if is_next { IS_NEXT } else { 0 }
                | if same_queue { SAME_QUEUE } else { 0 },
        );
        if is_next {
            (self.id, self.rank) = (id, job.rank);
        } else {
            put_step(&mut self.id, id, to);
            put_step(&mut self.rank, job.rank, to);
        }
        if !same_queue {
            put_step(&mut self.queue, queue, to);
        }
        put_step(&mut self.ready_at, job.ready_at.0, to);
        match view {
            View::Whole(bytes, _) => put_bytes(bytes, to),
            View::Stored(stored) => {
                if form == STORED {
                    put_key_and_name(payload, to);
                }
                self.put_place(stored, to);
            }
            View::Apart => {
                put_key_and_name(payload, to);
                put_bytes(payload.body(), to);
            }
        }
        if shape.has_numbers() {
            let numbers = self.numbers.iter_mut().zip(shape::numbers(job));
            numbers.for_each(|(last, number)| {
                number
                    .into_iter()
                    .for_each(|number| put_step(last, number, to))
            });
        }
        Some(())
    }

    /// Writes a row with a payload that is short and in one piece, and with values that are close to those of
    /// the previous row. `None`: the job does not qualify.
    #[inline]
    fn put_usual(
        &mut self,
        number: u8,
        shape: &Shape,
        job: &Job,
        view: View<'_>,
        to: &mut Vec<u8>,
    ) -> Option<()> {
        let View::Whole(bytes, _) = view else {
            return None;
        };
        let len = short(bytes.len() as u64)?;
        let later = short(job.ready_at.0.wrapping_sub(self.ready_at).checked_mul(2)?)?;
        let is_next = job.id.0 == self.id.wrapping_add(1) && job.rank == self.rank.wrapping_add(1);
        if !is_next || u64::from(job.queue.0) != self.queue || shape.has_numbers() {
            return None;
        }
        (self.id, self.rank, self.ready_at) = (job.id.0, job.rank, job.ready_at.0);
        to.reserve(3 + bytes.len());
        to.extend_from_slice(&[number | USUAL, later, len]);
        to.extend_from_slice(bytes);
        Some(())
    }

    /// Reads a row behind the first byte. `None`: the bytes are not a valid row.
    #[inline]
    pub(super) fn take(&mut self, first: u8, shapes: &[Shape], from: &mut &[u8]) -> Option<Job> {
        let shape = shapes.get(usize::from(first & SHAPE))?;
        if first & !SHAPE == USUAL
            && let Some(([later @ 0..0x80, len @ 0..0x80], rest)) = from.split_first_chunk()
            && later & 1 == 0
            && !shape.has_numbers()
        {
            let (bytes, rest) = rest.split_at_checked(usize::from(*len))?;
            *from = rest;
            let payload = Payload::of_whole(bytes);
            (self.id, self.rank) = (self.id.wrapping_add(1), self.rank.wrapping_add(1));
            self.ready_at = self.ready_at.wrapping_add(u64::from(later >> 1));
            return Some(shape.job(self.own(payload)?));
        }
        if first & IS_NEXT == 0 {
            take_step(&mut self.id, from)?;
            take_step(&mut self.rank, from)?;
        } else {
            (self.id, self.rank) = (self.id.wrapping_add(1), self.rank.wrapping_add(1));
        }
        if first & SAME_QUEUE == 0 {
            take_step(&mut self.queue, from)?;
        }
        take_step(&mut self.ready_at, from)?;
        let payload = match first & FORM {
            WHOLE => Payload::of_whole(take_bytes(from)?),
            form => self.take_payload(form, from)?,
        };
        let mut job = shape.job(self.own(payload)?);
        if shape.has_numbers() {
            for (last, number) in self.numbers.iter_mut().zip(shape::numbers_mut(&mut job)) {
                if let Some(number) = number {
                    *number = take_step(last, from)?;
                }
            }
        }
        Some(job)
    }

    #[inline]
    fn own(&self, payload: Payload) -> Option<Own> {
        let (queue, ready_at) = (
            QueueId(u32::try_from(self.queue).ok()?),
            Timestamp(self.ready_at),
        );
        Some(Own {
            id: JobId(self.id),
            queue,
            rank: self.rank,
            ready_at,
            payload,
        })
    }

    /// Reads a payload that is not in one piece.
    fn take_payload(&mut self, form: u8, from: &mut &[u8]) -> Option<Payload> {
        let (key, name) = if form == ONLY_STORED {
            (None, &[][..])
        } else {
            take_key_and_name(from)?
        };
        if form == APART {
            return Some(Payload::copy(key, name, take_bytes(from)?));
        }
        let stored = self.take_place(from)?;
        Payload::of_stored(key, name, stored)
    }

    fn put_place(&mut self, Stored { at, len, sum }: Stored, to: &mut Vec<u8>) {
        put_number(len.into(), to);
        put_step(&mut self.body_end, at, to);
        self.body_end = self.body_end.wrapping_add(len.into());
        to.extend_from_slice(&sum.to_le_bytes());
    }

    fn take_place(&mut self, from: &mut &[u8]) -> Option<Stored> {
        let (len, at) = (take_number(from)?, take_step(&mut self.body_end, from)?);
        self.body_end = self.body_end.wrapping_add(len);
        let (sum, rest) = from.split_first_chunk()?;
        *from = rest;
        Some(Stored {
            at,
            len: u32::try_from(len).ok()?,
            sum: u32::from_le_bytes(*sum),
        })
    }
}

fn put_key_and_name(payload: &Payload, to: &mut Vec<u8>) {
    let (key, name) = (payload.key(), payload.name());
    put_number(key.map_or(0, |key| key.len() as u64 + 1), to);
    put_number(name.len() as u64, to);
    to.extend_from_slice(key.unwrap_or_default());
    to.extend_from_slice(name);
}

fn take_key_and_name<'a>(from: &mut &'a [u8]) -> Option<(Option<&'a [u8]>, &'a [u8])> {
    let (key, name) = (take_number(from)?.checked_sub(1), take_number(from)?);
    let key = match key {
        Some(bytes) => Some(take_many(bytes, from)?),
        None => None,
    };
    Some((key, take_many(name, from)?))
}

/// Writes the difference of a number to `last`, which it replaces.
#[inline]
fn put_step(last: &mut u64, new: u64, to: &mut Vec<u8>) {
    let step = new.wrapping_sub(std::mem::replace(last, new)).cast_signed();
    put_number((step << 1 ^ step >> 63).cast_unsigned(), to);
}

#[inline]
fn take_step(last: &mut u64, from: &mut &[u8]) -> Option<u64> {
    let number = take_number(from)?;
    let step = (number >> 1).cast_signed() ^ -(number & 1).cast_signed();
    *last = last.wrapping_add(step.cast_unsigned());
    Some(*last)
}

/// A value that fits a one-byte varint.
#[inline]
fn short(number: u64) -> Option<u8> {
    u8::try_from(number).ok().filter(|byte| *byte < 0x80)
}

/// Writes a number, seven bits a byte, the lowest first.
#[inline]
fn put_number(number: u64, to: &mut Vec<u8>) {
    if number > 0x7f {
        put_long(number, to);
    } else {
        to.push(number.to_le_bytes()[0]);
    }
}

#[inline(never)]
fn put_long(mut number: u64, to: &mut Vec<u8>) {
    while number > 0x7f {
        to.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    to.push(number.to_le_bytes()[0]);
}

#[inline]
fn take_number(from: &mut &[u8]) -> Option<u64> {
    let (first, rest) = from.split_first()?;
    if *first > 0x7f {
        return take_long(from);
    }
    *from = rest;
    Some((*first).into())
}

#[inline(never)]
fn take_long(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = from.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(number)
}

#[inline]
fn put_bytes(bytes: &[u8], to: &mut Vec<u8>) {
    put_number(bytes.len() as u64, to);
    to.extend_from_slice(bytes);
}

#[inline]
fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let bytes = take_number(from)?;
    take_many(bytes, from)
}

#[inline]
fn take_many<'a>(bytes: u64, from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(usize::try_from(bytes).ok()?)?;
    *from = rest;
    Some(taken)
}
