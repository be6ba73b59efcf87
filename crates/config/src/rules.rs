//! Checks that several sections need.

use std::borrow::Cow;

use crate::{ByteSize, Error};

/// The smallest limit for packets, lines and messages that clients can work with.
pub const FRAME_BYTES_MIN: u64 = 1024;

/// The largest limit for packets, lines and messages.
pub const FRAME_BYTES_CEILING: u64 = 1 << 30;

/// Refuses the first key whose value is 0.
///
/// # Errors
///
/// [`Error::Senseless`], with the key.
pub fn positive(values: &[(&'static str, u64)]) -> Result<(), Error> {
    match values.iter().find(|(_, value)| *value == 0) {
        Some((key, _)) => senseless(*key, "must be more than 0"),
        None => Ok(()),
    }
}

/// Refuses a size outside a range.
///
/// # Errors
///
/// [`Error::Senseless`], with the key.
pub fn within(key: &'static str, size: ByteSize, least: u64, most: u64) -> Result<(), Error> {
    if (least..=most).contains(&size.0) {
        return Ok(());
    }
    senseless(
        key,
        format!(
            "{size} is not between {} and {}",
            ByteSize(least),
            ByteSize(most)
        ),
    )
}

/// Refuses a value.
///
/// # Errors
///
/// Always: [`Error::Senseless`] with the key and the reason.
pub fn senseless(key: impl Into<Cow<'static, str>>, reason: impl ToString) -> Result<(), Error> {
    Err(Error::senseless(key, reason))
}
