//! The bytes of a job's past attempts.
//!
//! ```text
//! attempts = count attempt…                                         the oldest first
//! attempt  = number worker began took end-and-error [kind message backtrace]
//! took     = milliseconds, signed: the wall clock may have been set meanwhile
//! ```
//!
//! Most errors of a job are the same, so an error that equals that of the attempt before is not repeated.

use std::sync::Arc;

use windlass_engine::{Attempt, AttemptEnd, AttemptError, Attempts, Timestamp};

use crate::codec::{DecodeError, Reader, code, put_bytes, put_i64, put_time, put_u32, put_u64};

/// By their codes, in the low bits.
const ENDS: [AttemptEnd; 6] = [
    AttemptEnd::Failed,
    AttemptEnd::Lost,
    AttemptEnd::TimedOut,
    AttemptEnd::Released,
    AttemptEnd::TakenBack,
    AttemptEnd::Unconvertible,
];

/// Above the end: the error follows.
const ERROR: u8 = 1 << 6;
/// Above the end: the error is that of the attempt before.
const SAME_ERROR: u8 = 1 << 7;

/// Writes nothing if there is none.
pub(super) fn put_attempts(attempts: Option<&Attempts>, out: &mut Vec<u8>) {
    let Some(attempts) = attempts else { return };
    put_u64(out, attempts.iter().count() as u64);
    let mut before = None;
    for Attempt {
        number,
        worker,
        began_at,
        ended_at,
        end,
        error,
    } in attempts.iter()
    {
        let error = error.as_deref();
        let same = error.is_some() && error == before;
        put_u32(out, *number);
        put_bytes(out, worker);
        put_time(out, *began_at);
        put_i64(out, ended_at.0.wrapping_sub(began_at.0).cast_signed());
        let told = if same {
            SAME_ERROR
        } else {
            u8::from(error.is_some()) * ERROR
        };
        out.push(code(&ENDS, *end) | told);
        if let Some(AttemptError {
            kind,
            message,
            backtrace,
        }) = error.filter(|_| !same)
        {
            [kind, message, backtrace]
                .into_iter()
                .for_each(|text| put_bytes(out, text));
        }
        before = error;
    }
}

pub(super) fn read_attempts(from: &mut Reader<'_>) -> Result<Arc<Attempts>, DecodeError> {
    let mut attempts = Attempts::default();
    let mut before = None;
    for _ in 0..from.below("a number of attempts", Attempts::MAX as u64 + 1)? {
        let (number, worker, began_at) = (
            from.u32("an attempt's number")?,
            from.bytes()?.into(),
            from.time()?,
        );
        let ended_at = Timestamp(began_at.0.wrapping_add_signed(from.i64()?));
        let told = from.u8()?;
        let end = ENDS.get(usize::from(told & !(ERROR | SAME_ERROR))).copied();
        let error = match told & (ERROR | SAME_ERROR) {
            0 => Some(None),
            ERROR => Some(Some(Arc::new(read_error(from)?))),
            SAME_ERROR => before.filter(Option::is_some),
            _ => None,
        };
        let (Some(end), Some(error)) = (end, error) else {
            return Err(DecodeError::Range {
                field: "an attempt's end",
                value: told.into(),
            });
        };
        attempts.push(Attempt {
            number,
            worker,
            began_at,
            ended_at,
            end,
            error: error.clone(),
        });
        before = Some(error);
    }
    Ok(Arc::new(attempts))
}

fn read_error(from: &mut Reader<'_>) -> Result<AttemptError, DecodeError> {
    let mut text = || from.bytes().map(Into::into);
    Ok(AttemptError {
        kind: text()?,
        message: text()?,
        backtrace: text()?,
    })
}
