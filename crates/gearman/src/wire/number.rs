//! Decimal numbers, parsed as leniently as in gearmand's C. Handles are parsed in `handle`, because each of their
//! numbers has exactly one spelling.
//!
//! Rules: C's `atoi` and `strtoll` (leading blanks, one sign, digits, anything after them ignored), minus their
//! overflow.

/// The number at the start of `text`. 0 if there is no number or it is negative, `None` if it is too large.
pub(super) fn leading_number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    if text.first() == Some(&b'-') {
        return Some(0);
    }
    text.strip_prefix(b"+")
        .unwrap_or(text)
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .try_fold(0u64, |number, digit| {
            number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })
}

/// The value of a numerator or denominator of WORK_STATUS: the number it starts with, 0 if it starts with none, and the
/// maximum if it is too large.
pub fn status_number(text: &[u8]) -> u32 {
    let number = leading_number(text).unwrap_or(u64::MAX);
    u32::try_from(number).unwrap_or(u32::MAX)
}
