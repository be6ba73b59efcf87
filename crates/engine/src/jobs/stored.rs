//! The place of a body that is not in memory, and the payload without it.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

/// The place, length and hash of a body that is not in memory. Every reader compares the hash, so that wrong
/// bytes are never used as a body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Stored {
    /// The place, which only the caller of the engine interprets.
    pub at: u64,
    /// The bytes.
    pub len: u32,
    /// A hash of it.
    pub sum: u32,
}

impl Stored {
    /// A body at this place. `None`: the body is too long.
    pub fn new(at: u64, body: &[u8]) -> Option<Self> {
        Some(Self {
            at,
            len: u32::try_from(body.len()).ok()?,
            sum: sum(body),
        })
    }

    /// Returns true if these bytes are the body.
    pub fn is(&self, body: &[u8]) -> bool {
        self.len as usize == body.len() && self.sum == sum(body)
    }
}

/// The same in every process.
fn sum(body: &[u8]) -> u32 {
    let hash = FixedState::with_seed(0).hash_one(body);
    u32::try_from(hash >> 32).unwrap_or_default()
}

/// The first byte of a payload without the body: no key has this length plus one.
pub(super) const MARK: u8 = u8::MAX;

/// The head of a payload without the body: [`MARK`], the key's length plus one or 0, the name's length, the
/// body's place, length and hash. Key and name follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    key: Option<u16>,
    name: u16,
    pub(super) body: Stored,
}

impl Head {
    const BYTES: usize = 1 + 2 + 2 + 8 + 4 + 4;

    /// The head, if these bytes begin with one.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.first() == Some(&MARK) {
            Self::read_behind_mark(bytes.get(1..)?)
        } else {
            None
        }
    }

    #[inline(never)]
    fn read_behind_mark(rest: &[u8]) -> Option<Self> {
        let (key, rest) = rest.split_first_chunk()?;
        let (name, rest) = rest.split_first_chunk()?;
        let (at, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (sum, _) = rest.split_first_chunk()?;
        let body = Stored {
            at: u64::from_le_bytes(*at),
            len: u32::from_le_bytes(*len),
            sum: u32::from_le_bytes(*sum),
        };
        Some(Self {
            key: u16::from_le_bytes(*key).checked_sub(1),
            name: u16::from_le_bytes(*name),
            body,
        })
    }

    /// Returns true if key and name are short enough for a payload without the body.
    pub(super) fn fits(key: Option<&[u8]>, name: &[u8]) -> bool {
        let longest = usize::from(u16::MAX);
        key.is_none_or(|key| key.len() < longest) && name.len() <= longest
    }

    /// Encodes a payload without the body. `None`: the key or the name is too long.
    pub(super) fn write(key: Option<&[u8]>, name: &[u8], body: Stored) -> Option<Box<[u8]>> {
        let prefix = key.map_or(Some(0), |key| u16::try_from(key.len() + 1).ok())?;
        let name_bytes = u16::try_from(name.len()).ok()?;
        let (at, len, sum) = (
            body.at.to_le_bytes(),
            body.len.to_le_bytes(),
            body.sum.to_le_bytes(),
        );
        let parts: [&[u8]; 8] = [
            &[MARK],
            &prefix.to_le_bytes(),
            &name_bytes.to_le_bytes(),
            &at,
            &len,
            &sum,
            key.unwrap_or_default(),
            name,
        ];
        Some(parts.concat().into())
    }

    pub(super) fn key(self, bytes: &[u8]) -> Option<&[u8]> {
        bytes.get(Self::BYTES..)?.get(..usize::from(self.key?))
    }

    pub(super) fn name(self, bytes: &[u8]) -> &[u8] {
        let begin = Self::BYTES + self.key.map_or(0, usize::from);
        bytes
            .get(begin..begin + usize::from(self.name))
            .unwrap_or_default()
    }

    pub(super) const fn has_key(self) -> bool {
        self.key.is_some()
    }
}
