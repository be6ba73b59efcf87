//! Decimal numbers: written without allocating, and parsed as leniently as in gearmand's C. Handles are parsed in
//! `handle`, because each of their numbers has exactly one spelling.
//!
//! Rules: C's `atoi` and `strtoll` (leading blanks, one sign, digits, anything after them ignored), minus their
//! overflow.

/// The decimal digits of a number, kept inline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    pub(super) fn new(mut number: u64) -> Self {
        let mut digits = [b'0'; 20];
        let mut start = digits.len();
        for slot in digits.iter_mut().rev() {
            *slot = b'0' + (number % 10) as u8;
            number /= 10;
            start -= 1;
            if number == 0 {
                break;
            }
        }
        Self { digits, start }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }
}

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
        .try_fold(0u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

/// The value of a numerator or denominator of WORK_STATUS: the number it starts with, 0 if it starts with none, and the
/// maximum if it is too large.
pub fn status_number(text: &[u8]) -> u32 {
    let number = leading_number(text).unwrap_or(u64::MAX);
    u32::try_from(number).unwrap_or(u32::MAX)
}
