//! Reads fields one after another from the front of a frame.

/// The unread part of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

/// A field needs more bytes than are left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Short {
    pub(super) required: u32,
    pub(super) given: u32,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The unread bytes.
    pub(super) const fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn u8(&mut self) -> Result<u8, Short> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_be_bytes)
    }

    /// Takes `required` bytes.
    pub(super) fn bytes(&mut self, required: u32) -> Result<&'a [u8], Short> {
        let split = usize::try_from(required)
            .ok()
            .and_then(|required| self.0.split_at_checked(required));
        let (bytes, rest) = split.ok_or_else(|| self.short(required))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let Some((array, rest)) = self.0.split_first_chunk() else {
            return Err(self.short(u32::try_from(N).unwrap_or(u32::MAX)));
        };
        self.0 = rest;
        Ok(*array)
    }

    fn short(self, required: u32) -> Short {
        Short {
            required,
            given: u32::try_from(self.0.len()).unwrap_or(u32::MAX),
        }
    }
}
