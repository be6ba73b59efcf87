//! Numbers and byte strings: how they are read.

use bytes::Bytes;

use crate::error::DecodeError;

/// Reads from the front of a slice. It never allocates more than the slice holds.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of these bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that are left.
    pub const fn left(&self) -> usize {
        self.rest.len()
    }

    /// One byte.
    ///
    /// # Errors
    ///
    /// The bytes end.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.rest.split_first().ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(*first)
    }

    /// A number.
    ///
    /// # Errors
    ///
    /// The bytes end inside it, or it is larger.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Range {
                    field: "a number's tenth byte",
                    value: bits,
                });
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Range {
            field: "a number's length",
            value: 11,
        })
    }

    /// A number that must be below `limit`.
    ///
    /// # Errors
    ///
    /// It is not, or the bytes end.
    pub fn below(&mut self, field: &'static str, limit: u64) -> Result<u64, DecodeError> {
        let value = self.u64()?;
        if value < limit {
            Ok(value)
        } else {
            Err(DecodeError::Range { field, value })
        }
    }

    /// A number of 32 bits.
    ///
    /// # Errors
    ///
    /// As [`Reader::u64`].
    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        let value = self.u64()?;
        u32::try_from(value).map_err(|_| DecodeError::Range { field, value })
    }

    /// A signed number.
    ///
    /// # Errors
    ///
    /// As [`Reader::u64`].
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        let value = self.u64()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    /// The next bytes.
    ///
    /// # Errors
    ///
    /// There are fewer.
    pub fn slice(&mut self, len: u64) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(len).map_err(|_| DecodeError::Short)?;
        let (slice, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(slice)
    }

    /// A byte string, by its length.
    ///
    /// # Errors
    ///
    /// The bytes end inside it.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u64()?;
        self.slice(len)
    }

    /// A value by its code: its place in this table.
    ///
    /// # Errors
    ///
    /// The table has no such place.
    pub fn one_of<T: Copy>(&mut self, table: &[T], field: &'static str) -> Result<T, DecodeError> {
        let code = self.u8()?;
        table
            .get(usize::from(code))
            .copied()
            .ok_or(DecodeError::Range {
                field,
                value: code.into(),
            })
    }

    /// Everything that is left, read one after the other, until something cannot be read.
    pub fn each<T>(
        mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> impl Iterator<Item = Result<T, DecodeError>> {
        std::iter::from_fn(move || {
            let next = (self.left() > 0).then(|| read(&mut self));
            if matches!(next, Some(Err(_))) {
                self.rest = &[];
            }
            next
        })
    }

    /// A byte string in memory of its own, so that it does not keep the rest of the input alive.
    ///
    /// # Errors
    ///
    /// As [`Reader::bytes`].
    pub fn owned(&mut self) -> Result<Bytes, DecodeError> {
        self.bytes().map(Bytes::copy_from_slice)
    }
}
