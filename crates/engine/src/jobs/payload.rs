//! The bytes that a producer gives with a job: coalescing key, public name and body.
//!
//! Most payloads are small, and a queue may contain millions of them, so all three share an allocation of
//! exactly the right size. A name that is part of the body (as in FWP) is not stored twice. A large body is
//! never copied: it shares memory with the buffer in which it arrived, and with every reader. A body that is
//! not needed soon can be moved to the disk, and the payload then contains the place ([`Stored`]).

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::ser::SerializeTuple as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use windlass_codec::TAIL;

use super::stored::{self, Stored};

/// An optional key, a name, which may be empty, and a body.
///
/// ```
/// # use bytes::Bytes;
/// # use windlass_engine::Payload;
/// let payload = Payload::new(Some(b"unique"), b"jid-1", &Bytes::from_static(b"cat.png"));
/// assert_eq!(payload.key(), Some(&b"unique"[..]));
/// assert_eq!((payload.name(), payload.body()), (&b"jid-1"[..], &b"cat.png"[..]));
/// ```
#[derive(Clone)]
pub struct Payload(Form);

/// A payload as a packed job has it.
#[derive(Clone, Copy, Debug)]
pub(super) enum View<'a> {
    /// In one piece, and the bytes of the body in it.
    Whole(&'a [u8], usize),
    /// Without the body.
    Stored(Stored),
    /// In parts.
    Apart,
}

/// The encoding of a payload: a tuple, so the fields are fixed.
#[derive(Deserialize)]
struct Parts<'a>(
    #[serde(borrow)] Option<Text<'a>>,
    #[serde(borrow)] Text<'a>,
    #[serde(borrow)] Text<'a>,
);

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, [u8]>);

/// Bytes, which serde would otherwise treat as a sequence of numbers.
struct Raw<'a>(&'a [u8]);

/// The body, which is last in the encoding of a job.
struct Body<'a>(&'a Payload);

#[derive(Clone)]
enum Form {
    /// A [`Head`], then the key, the name unless it is in the body, the body. Or a [`stored::Head`], the key, the name.
    Small(Box<[u8]>),
    Large(Box<Large>),
}

#[derive(Clone)]
struct Large {
    key: Option<Box<[u8]>>,
    name: Box<[u8]>,
    body: Bytes,
}

/// The head of a small payload. The first byte is the key's length plus one, or 0 without a key; the second
/// byte is the name's length. If there is a name, the offset in the body follows in two bytes.
#[derive(Clone, Copy, Debug)]
struct Head {
    key: Option<u8>,
    name: u8,
    /// The offset of the name in the body, or [`Head::APART`] if the name is stored before the
    /// body.
    at: u16,
}

impl Head {
    /// The name is not in the body.
    const APART: u16 = u16::MAX;

    fn read(bytes: &[u8]) -> Self {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
        let (key, name) = (byte(0).checked_sub(1), byte(1));
        let at = if name == 0 {
            Self::APART
        } else {
            u16::from_le_bytes([byte(2), byte(3)])
        };
        Self { key, name, at }
    }

    /// The size of the head.
    const fn len(self) -> usize {
        if self.name == 0 { 2 } else { 4 }
    }

    fn key_bytes(self) -> usize {
        self.key.map_or(0, usize::from)
    }

    /// Bytes of a name that is stored before the body.
    fn name_bytes(self) -> usize {
        if self.at == Self::APART {
            usize::from(self.name)
        } else {
            0
        }
    }

    fn body_at(self) -> usize {
        self.len() + self.key_bytes() + self.name_bytes()
    }
}

impl Payload {
    /// A longer body is shared, not copied.
    pub const COPY_MAX: usize = 1024;

    /// A shorter body stays in memory.
    pub(super) const BODY_BYTES_MIN: usize = 48;

    /// Copies the key and the name. Copies the body too if it is small, because it may be part of a larger buffer.
    pub fn new(key: Option<&[u8]>, name: &[u8], body: &Bytes) -> Self {
        Self::small(key, name, body).unwrap_or_else(|| Self::large(key, name, body.clone()))
    }

    /// Copies all three.
    pub fn copy(key: Option<&[u8]>, name: &[u8], body: &[u8]) -> Self {
        Self::small(key, name, body)
            .unwrap_or_else(|| Self::large(key, name, Bytes::copy_from_slice(body)))
    }

    fn small(key: Option<&[u8]>, name: &[u8], body: &[u8]) -> Option<Self> {
        let prefix = key.map_or(Some(0), |key| u8::try_from(key.len() + 1).ok());
        let prefix =
            prefix.filter(|prefix| *prefix != stored::MARK && body.len() <= Self::COPY_MAX)?;
        let (key, name_bytes) = (key.unwrap_or_default(), u8::try_from(name.len()).ok()?);
        if name.is_empty() {
            return Some(Self::without_name(prefix, key, body));
        }
        let at = body
            .windows(name.len())
            .position(|part| part == name)
            .and_then(|at| u16::try_from(at).ok());
        let apart = if at.is_some() { &[] } else { name };
        let [low, high] = at.unwrap_or(Head::APART).to_le_bytes();
        Some(Self::joined([
            &[prefix, name_bytes, low, high],
            key,
            apart,
            body,
        ]))
    }

    fn without_name(prefix: u8, key: &[u8], body: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(2 + key.len() + body.len());
        bytes.extend_from_slice(&[prefix, 0]);
        if !key.is_empty() {
            bytes.extend_from_slice(key);
        }
        bytes.extend_from_slice(body);
        Self(Form::Small(bytes.into_boxed_slice()))
    }

    fn joined<const N: usize>(parts: [&[u8]; N]) -> Self {
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts
            .into_iter()
            .for_each(|part| bytes.extend_from_slice(part));
        Self(Form::Small(bytes.into_boxed_slice()))
    }

    fn large(key: Option<&[u8]>, name: &[u8], body: Bytes) -> Self {
        Self(Form::Large(Box::new(Large {
            key: key.map(Box::from),
            name: name.into(),
            body,
        })))
    }

    /// The coalescing key.
    pub fn key(&self) -> Option<&[u8]> {
        match &self.0 {
            Form::Small(bytes) => match stored::Head::read(bytes) {
                Some(head) => head.key(bytes),
                None => {
                    let head = Head::read(bytes);
                    bytes.get(head.len()..)?.get(..usize::from(head.key?))
                }
            },
            Form::Large(large) => large.key.as_deref(),
        }
    }

    /// Returns true if there is a key.
    pub fn has_key(&self) -> bool {
        match &self.0 {
            Form::Small(bytes) => match stored::Head::read(bytes) {
                Some(head) => head.has_key(),
                None => bytes.first().is_some_and(|prefix| *prefix > 0),
            },
            Form::Large(large) => large.key.is_some(),
        }
    }

    /// The producer's public name; empty if it gave no name.
    #[inline]
    pub fn name(&self) -> &[u8] {
        match &self.0 {
            Form::Small(bytes) if matches!(**bytes, [prefix, 0, ..] if prefix != stored::MARK) => {
                &[]
            }
            Form::Small(bytes) => Self::name_in(bytes),
            Form::Large(large) => &large.name,
        }
    }

    /// The name in a small payload that has one, or with a body on disk.
    #[inline(never)]
    fn name_in(bytes: &[u8]) -> &[u8] {
        if let Some(head) = stored::Head::read(bytes) {
            return head.name(bytes);
        }
        let head = Head::read(bytes);
        let inside = if head.at == Head::APART {
            0
        } else {
            usize::from(head.at)
        };
        let begin = head.body_at() - head.name_bytes() + inside;
        bytes
            .get(begin..begin + usize::from(head.name))
            .unwrap_or_default()
    }

    /// The producer's bytes, verbatim. Empty while they are stored on disk: a caller that may encounter such
    /// a payload must check [`Payload::stored`] first.
    pub fn body(&self) -> &[u8] {
        debug_assert_eq!(self.stored(), None, "the body of {self:?} is not in memory");
        match &self.0 {
            Form::Small(bytes) if bytes.first() == Some(&stored::MARK) => &[],
            Form::Small(bytes) => bytes.get(Head::read(bytes).body_at()..).unwrap_or_default(),
            Form::Large(large) => &large.body,
        }
    }

    /// The body for a reader: shared if it is large, copied if it is small.
    pub fn share_body(&self) -> Bytes {
        match &self.0 {
            Form::Small(_) => Bytes::copy_from_slice(self.body()),
            Form::Large(large) => large.body.clone(),
        }
    }

    /// The same key and name with another body.
    #[must_use]
    pub fn with_body(&self, body: &Bytes) -> Self {
        Self::new(self.key(), self.name(), body)
    }

    /// The same name and body without a key.
    #[must_use]
    pub fn without_key(&self) -> Self {
        let stored = self
            .stored()
            .and_then(|body| Self::of_stored(None, self.name(), body));
        stored.unwrap_or_else(|| Self::new(None, self.name(), &self.share_body()))
    }

    /// Where the body is, if it is not in memory.
    pub fn stored(&self) -> Option<Stored> {
        match &self.0 {
            Form::Small(bytes) => stored::Head::read(bytes).map(|head| head.body),
            Form::Large(_) => None,
        }
    }

    /// Returns true if moving the body to the disk saves memory. For a short body the place is as large as
    /// the body.
    pub fn can_leave(&self) -> bool {
        self.stored().is_none()
            && (Self::BODY_BYTES_MIN..=u32::MAX as usize).contains(&self.body().len())
            && stored::Head::fits(self.key(), self.name())
    }

    /// The same key and name, with the body on disk. `None`: the key or the name is too long.
    #[must_use]
    pub fn with_stored(&self, body: Stored) -> Option<Self> {
        Self::of_stored(self.key(), self.name(), body)
    }

    /// A payload with the body on disk. `None`: the key or the name is too long.
    pub(super) fn of_stored(key: Option<&[u8]>, name: &[u8], body: Stored) -> Option<Self> {
        stored::Head::write(key, name, body).map(|bytes| Self(Form::Small(bytes)))
    }

    /// The form of the payload in the row of a packed job.
    #[inline]
    pub(super) fn view(&self) -> View<'_> {
        match &self.0 {
            Form::Small(bytes) => match **bytes {
                [0, 0, ..] => View::Whole(bytes, bytes.len() - 2),
                [prefix, ..] if prefix != stored::MARK => View::Whole(
                    bytes,
                    bytes.len().saturating_sub(Head::read(bytes).body_at()),
                ),
                _ => stored::Head::read(bytes).map_or(View::Apart, |head| View::Stored(head.body)),
            },
            Form::Large(_) => View::Apart,
        }
    }

    /// The payload of a [`View::Whole`].
    #[inline]
    pub(super) fn of_whole(bytes: &[u8]) -> Self {
        Self(Form::Small(bytes.into()))
    }

    /// Bytes of the body, wherever it is.
    pub fn body_len(&self) -> usize {
        self.stored()
            .map_or_else(|| self.body().len(), |stored| stored.len as usize)
    }

    /// Bytes of the body, if it is in memory.
    #[inline]
    pub(super) fn bytes_here(&self) -> Option<usize> {
        match &self.0 {
            Form::Small(bytes) if matches!(**bytes, [0, 0, ..]) => Some(bytes.len() - 2),
            Form::Small(_) | Form::Large(_) => self.stored().is_none().then(|| self.body().len()),
        }
    }

    /// Bytes of key, name and body, including a name that is part of the body, and a body that is stored on
    /// disk.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            // Neither key nor name.
            Form::Small(bytes) if matches!(**bytes, [0, 0, ..]) => bytes.len() - 2,
            Form::Small(_) | Form::Large(_) => self.len_of_all(),
        }
    }

    #[inline(never)]
    fn len_of_all(&self) -> usize {
        match &self.0 {
            Form::Small(bytes) => {
                if let Some(stored) = self.stored() {
                    return self.key().map_or(0, <[u8]>::len)
                        + self.name().len()
                        + stored.len as usize;
                }
                let head = Head::read(bytes);
                bytes.len() - head.len() - head.name_bytes() + usize::from(head.name)
            }
            Form::Large(large) => {
                large.key.as_deref().map_or(0, <[u8]>::len) + large.name.len() + large.body.len()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Parts(key, name, body) = Parts::deserialize(from)?;
        let key = key.as_ref().map(|key| &*key.0);
        Ok(Self::copy(key, &name.0, &body.0))
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut parts = to.serialize_tuple(3)?;
        parts.serialize_element(&self.key().map(Raw))?;
        parts.serialize_element(&Raw(self.name()))?;
        parts.serialize_element(&Body(self))?;
        parts.end()
    }
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.stored() {
            Some(stored) => to.serialize_newtype_struct(TAIL, &u64::from(stored.len)),
            None => to.serialize_newtype_struct(TAIL, &Raw(self.0.body())),
        }
    }
}

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.0)
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        let same_body = match (self.stored(), other.stored()) {
            (None, None) => self.body() == other.body(),
            (Some(one), Some(other)) => (one.len, one.sum) == (other.len, other.sum),
            (Some(stored), None) => stored.is(other.body()),
            (None, Some(stored)) => stored.is(self.body()),
        };
        same_body && (self.key(), self.name()) == (other.key(), other.name())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| format!("\"{}\"", bytes.escape_ascii());
        write!(
            f,
            "{{ key: {:?}, name: {}, ",
            self.key().map(text),
            text(self.name())
        )?;
        match self.stored() {
            Some(stored) => write!(f, "{stored:?} }}"),
            None => write!(f, "body: {} }}", text(self.body())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_can_leave_if_key_and_name_have_room_beside_its_place() {
        let (body, most) = (Bytes::from(vec![b'b'; 100]), usize::from(u16::MAX));
        for (key, name, fits) in [
            (0, 0, true),
            (most - 1, 0, true),
            (most, 0, false),
            (0, most, true),
            (0, most + 1, false),
        ] {
            let payload = Payload::new(Some(&vec![b'k'; key]), &vec![b'n'; name], &body);
            let stored = payload.with_stored(Stored::new(7, &body).unwrap());
            assert_eq!(
                (payload.can_leave(), stored.is_some()),
                (fits, fits),
                "{key} {name}"
            );
        }
    }

    #[test]
    fn a_payload_returns_its_key_name_and_body() {
        for key_bytes in [
            None,
            Some(0),
            Some(1),
            Some(36),
            Some(253),
            Some(254),
            Some(255),
            Some(256),
            Some(9_000),
        ] {
            for body_bytes in [0, 1, 100, Payload::COPY_MAX, Payload::COPY_MAX + 1, 100_000] {
                for name in [
                    &b""[..],
                    b"n",
                    b"bbb",
                    &[b'n'; 255],
                    &[b'n'; 256],
                    &[b'b'; 300],
                ] {
                    let key = key_bytes.map(|n| vec![b'k'; n]);
                    let body = Bytes::from(vec![b'b'; body_bytes]);
                    let payload = Payload::new(key.as_deref(), name, &body);
                    assert_eq!(Payload::copy(key.as_deref(), name, &body), payload);
                    assert_eq!(
                        (payload.key(), payload.name(), payload.body()),
                        (key.as_deref(), name, &body[..])
                    );
                    assert_eq!(
                        (payload.share_body(), payload.has_key()),
                        (body.clone(), key.is_some())
                    );
                    assert_eq!(
                        payload.len(),
                        key_bytes.unwrap_or(0) + name.len() + body_bytes
                    );
                    let other = payload.with_body(&Bytes::from_static(b"x"));
                    assert_eq!(other, Payload::copy(key.as_deref(), name, b"x"));
                    assert_eq!(payload.without_key(), Payload::new(None, name, &body));
                    let place = Stored::new(7, &body).unwrap();
                    let stored = payload.with_stored(place).unwrap();
                    assert_eq!(
                        (stored.key(), stored.name(), stored.stored()),
                        (key.as_deref(), name, Some(place))
                    );
                    assert_eq!(
                        (stored.has_key(), stored.len(), stored.body_len()),
                        (key.is_some(), payload.len(), body_bytes)
                    );
                    assert_eq!((payload.stored(), &stored), (None, &payload));
                    assert_eq!(stored.with_body(&body), payload);
                    assert_eq!(stored.without_key().stored(), Some(place));
                    assert_eq!(stored.without_key(), payload.without_key());
                }
            }
        }
    }

    #[test]
    fn a_stored_body_is_known_again() {
        let place = Stored::new(1, b"cat.png").unwrap();
        assert!(place.is(b"cat.png"));
        assert!(!place.is(b"dog.png") && !place.is(b"cat") && !place.is(b""));
        let (stored, other) = (
            Payload::copy(None, b"", b"cat.png")
                .with_stored(place)
                .unwrap(),
            Payload::copy(None, b"", b"x"),
        );
        assert_ne!(stored, other);
        assert_ne!(
            other.with_stored(Stored::new(1, b"x").unwrap()).unwrap(),
            stored
        );
        let long = vec![b'k'; 1 << 16];
        assert!(
            Payload::copy(Some(&long), b"", b"x")
                .with_stored(place)
                .is_none()
        );
        assert!(
            Payload::copy(None, &long, b"x")
                .with_stored(place)
                .is_none()
        );
    }

    #[test]
    fn payloads_are_equal_in_key_name_and_body() {
        let payload = |key: &[u8], name: &[u8], body: &[u8]| Payload::copy(Some(key), name, body);
        assert_eq!(payload(b"k", b"n", b"b"), payload(b"k", b"n", b"b"));
        for other in [
            payload(b"l", b"n", b"b"),
            payload(b"k", b"m", b"b"),
            payload(b"k", b"n", b"c"),
        ] {
            assert_ne!(payload(b"k", b"n", b"b"), other);
        }
    }

    #[test]
    fn a_name_in_the_body_costs_four_bytes() {
        let bytes = |payload: Payload| match payload.0 {
            Form::Small(bytes) => bytes.len(),
            Form::Large(_) => 0,
        };
        let body = br#"{"retry":25,"jid":"0123456789"}"#;
        assert_eq!(
            bytes(Payload::copy(None, b"0123456789", body)),
            4 + body.len()
        );
        assert_eq!(
            bytes(Payload::copy(Some(b"key"), b"elsewhere", body)),
            4 + 3 + 9 + body.len()
        );
        assert_eq!(bytes(Payload::copy(None, b"", body)), 2 + body.len());
    }

    #[test]
    fn large_bodies_are_shared() {
        let body = Bytes::from(vec![7; Payload::COPY_MAX + 1]);
        let payload = Payload::new(Some(b"key"), b"name", &body);
        assert_eq!(payload.share_body().as_ptr(), body.as_ptr());
        assert_eq!(
            payload.with_body(&body).share_body().as_ptr(),
            body.as_ptr()
        );
    }

    #[test]
    fn a_payload_is_two_words() {
        assert_eq!(size_of::<Payload>(), 16);
    }
}
