//! A job's past attempts.

use std::sync::Arc;

use windlass_codec::{DecodeError, Reader};
use windlass_engine::{Attempt, AttemptEnd, AttemptError, Attempts, Timestamp};

use super::time;

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

pub(super) fn read_attempts(from: &mut Reader<'_>) -> Result<Arc<Attempts>, DecodeError> {
    let mut attempts = Attempts::default();
    let mut before = None;
    for _ in 0..from.below("a number of attempts", Attempts::MAX as u64 + 1)? {
        let (number, worker, began_at) = (
            from.u32("an attempt's number")?,
            from.bytes()?.into(),
            time(from)?,
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
