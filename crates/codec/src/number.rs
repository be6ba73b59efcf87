//! Numbers and byte strings: how they are written.

use std::ops::Deref;

/// Appends a number as LEB128: seven bits a byte, the low ones first; each byte but the last has its top bit set.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(low_byte(value));
    } else {
        put_long(out, value);
    }
}

/// Appends a number of two bytes or more.
fn put_long(out: &mut Vec<u8>, value: u64) {
    let Number { bytes, len } = Number::of(value);
    // The compiler copies a fixed number of bytes without a call; the rest is cut off again.
    out.extend_from_slice(&bytes);
    out.truncate(out.len() - (bytes.len() - len));
}

/// A number as LEB128, before it has its place.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    bytes: [u8; 10],
    len: usize,
}

impl Number {
    /// Up to eight bytes are computed at once.
    #[inline]
    pub fn of(value: u64) -> Self {
        let len = (u64::BITS - (value | 1).leading_zeros()).div_ceil(7);
        let more = MORE
            & 1_u64
                .checked_shl(8 * (len - 1))
                .unwrap_or_default()
                .wrapping_sub(1);
        let [a, b, c, d, e, f, g, h] = (spread(value) | more).to_le_bytes();
        let [y, z] = [value >> 56, value >> 63].map(|rest| low_byte(rest) & 0x7f);
        let y = y | if len == 10 { 0x80 } else { 0 };
        Self {
            bytes: [a, b, c, d, e, f, g, h, y, z],
            len: len as usize,
        }
    }
}

impl Deref for Number {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The top bits of eight bytes.
const MORE: u64 = 0x8080_8080_8080_8080;

/// Spreads 56 bits over eight bytes, seven bits each.
const fn spread(value: u64) -> u64 {
    let halves = (value & 0x0fff_ffff) | ((value & 0x00ff_ffff_f000_0000) << 4);
    let quarters = (halves & 0x3fff_0000_3fff) | ((halves & 0x0fff_c000_0fff_c000) << 2);
    (quarters & 0x007f_007f_007f_007f) | ((quarters & 0x3f80_3f80_3f80_3f80) << 1)
}

/// Appends a number of 32 bits as LEB128.
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    put_u64(out, value.into());
}

/// Appends a signed number, zigzagged.
pub(crate) fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_u64(
        out,
        (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned(),
    );
}

/// Appends a byte string: its length and its bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

const fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{DecodeError, Reader};

    #[test]
    fn numbers_at_their_edges() {
        let table: [(u64, &[u8]); 6] = [
            (0, &[0]),
            (127, &[127]),
            (128, &[128, 1]),
            (300, &[0xac, 2]),
            (
                u64::MAX >> 1,
                &[255, 255, 255, 255, 255, 255, 255, 255, 127],
            ),
            (u64::MAX, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ];
        for (value, bytes) in table {
            let mut out = Vec::new();
            put_u64(&mut out, value);
            assert_eq!(out, bytes, "{value}");
            assert_eq!(Reader::new(bytes).u64(), Ok(value));
        }
        for value in (0..u64::BITS).flat_map(|bit| [1 << bit, (1 << bit) - 1, u64::MAX << bit]) {
            let mut out = Vec::new();
            put_u64(&mut out, value);
            let groups = (u64::BITS - value.leading_zeros()).div_ceil(7).max(1);
            assert_eq!(
                (Reader::new(&out).u64(), out.len()),
                (Ok(value), groups as usize),
                "{value:#x}"
            );
        }
    }

    #[test]
    fn invalid_numbers_are_refused() {
        let too_long = [0x80; 11];
        let too_big = [255, 255, 255, 255, 255, 255, 255, 255, 255, 2];
        for bytes in [&too_long[..], &too_big[..]] {
            assert!(
                matches!(Reader::new(bytes).u64(), Err(DecodeError::Range { .. })),
                "{bytes:?}"
            );
        }
        assert_eq!(Reader::new(&[0x80]).u64(), Err(DecodeError::Short));
        assert_eq!(
            Reader::new(&[200, 1, 7]).bytes(),
            Err(DecodeError::Short),
            "a length beyond the end"
        );
        assert_eq!(Reader::new(&[6]).below("it", 7), Ok(6));
        assert_eq!(
            Reader::new(&[7]).below("it", 7),
            Err(DecodeError::Range {
                field: "it",
                value: 7
            })
        );
        let beyond = [0x80, 0x80, 0x80, 0x80, 0x10];
        assert_eq!(
            Reader::new(&beyond).u32("it"),
            Err(DecodeError::Range {
                field: "it",
                value: 1 << 32
            })
        );
    }

    proptest! {
        #[test]
        fn written_values_read_back(n in any::<u64>(), i in any::<i64>(), b in any::<Vec<u8>>()) {
            let mut out = Vec::new();
            put_u64(&mut out, n);
            put_i64(&mut out, i);
            put_bytes(&mut out, &b);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.u64(), Ok(n));
            prop_assert_eq!(reader.i64(), Ok(i));
            prop_assert_eq!(reader.owned(), Ok(bytes::Bytes::from(b)));
            prop_assert_eq!(reader.left(), 0);
        }
    }
}
