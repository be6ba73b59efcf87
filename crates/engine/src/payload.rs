//! What a job carries for others: its coalescing key and its body.
//!
//! Most are small, and a queue may hold millions of them: key and body share one allocation of just their size. A large
//! body is never copied: it shares memory with the buffer it came in, and with every reader.

use std::fmt;

use bytes::Bytes;

/// A key, if there is one, and a body.
///
/// ```
/// # use bytes::Bytes;
/// # use windlass_engine::Payload;
/// let payload = Payload::new(Some(b"unique"), &Bytes::from_static(b"cat.png"));
/// assert_eq!((payload.key(), payload.body()), (Some(&b"unique"[..]), &b"cat.png"[..]));
/// ```
#[derive(Clone)]
pub struct Payload(Form);

#[derive(Clone)]
enum Form {
    /// A byte, the key, the body. The byte is one more than the key's length, or 0 if there is no key.
    Small(Box<[u8]>),
    Large(Box<Large>),
}

#[derive(Clone)]
struct Large {
    key: Option<Box<[u8]>>,
    body: Bytes,
}

impl Payload {
    /// A body of more bytes than this is shared, not copied.
    pub const COPY_MAX: usize = 1024;

    /// Copies the key, and the body too if it is small: then it may be a part of a larger buffer.
    #[must_use]
    pub fn new(key: Option<&[u8]>, body: &Bytes) -> Self {
        Self::small(key, body).unwrap_or_else(|| Self::large(key, body.clone()))
    }

    /// Copies both.
    #[must_use]
    pub fn copy(key: Option<&[u8]>, body: &[u8]) -> Self {
        Self::small(key, body).unwrap_or_else(|| Self::large(key, Bytes::copy_from_slice(body)))
    }

    fn small(key: Option<&[u8]>, body: &[u8]) -> Option<Self> {
        let prefix = key.map_or(Some(0), |key| u8::try_from(key.len() + 1).ok());
        let prefix = prefix.filter(|_| body.len() <= Self::COPY_MAX)?;
        Some(Self(Form::Small([&[prefix], key.unwrap_or_default(), body].concat().into())))
    }

    fn large(key: Option<&[u8]>, body: Bytes) -> Self {
        Self(Form::Large(Box::new(Large { key: key.map(Box::from), body })))
    }

    /// The coalescing key.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        match &self.0 {
            Form::Small(bytes) => bytes.get(1..usize::from(*bytes.first()?)),
            Form::Large(large) => large.key.as_deref(),
        }
    }

    /// Whether there is a key.
    #[must_use]
    pub fn has_key(&self) -> bool {
        match &self.0 {
            Form::Small(bytes) => bytes.first().is_some_and(|prefix| *prefix > 0),
            Form::Large(large) => large.key.is_some(),
        }
    }

    /// The producer's own bytes, verbatim.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        match &self.0 {
            Form::Small(bytes) => {
                let prefix = bytes.first().copied().unwrap_or_default();
                bytes.get(usize::from(prefix.max(1))..).unwrap_or_default()
            }
            Form::Large(large) => &large.body,
        }
    }

    /// The body to be given away: shared if it is large, copied if it is small.
    #[must_use]
    pub fn share_body(&self) -> Bytes {
        match &self.0 {
            Form::Small(_) => Bytes::copy_from_slice(self.body()),
            Form::Large(large) => large.body.clone(),
        }
    }

    /// The same key with another body.
    #[must_use]
    pub fn with_body(&self, body: &Bytes) -> Self {
        Self::new(self.key(), body)
    }

    /// The same body without a key.
    #[must_use]
    pub fn without_key(&self) -> Self {
        Self::new(None, &self.share_body())
    }

    /// Bytes of both.
    pub(crate) fn len(&self) -> usize {
        self.key().map_or(0, <[u8]>::len) + self.body().len()
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        (self.key(), self.body()) == (other.key(), other.body())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| format!("\"{}\"", bytes.escape_ascii());
        write!(f, "{{ key: {:?}, body: {} }}", self.key().map(text), text(self.body()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        for key_bytes in [None, Some(0), Some(1), Some(36), Some(254), Some(255), Some(256), Some(9_000)] {
            for body_bytes in [0, 1, 100, Payload::COPY_MAX, Payload::COPY_MAX + 1, 100_000] {
                let key = key_bytes.map(|n| vec![b'k'; n]);
                let body = Bytes::from(vec![b'b'; body_bytes]);
                let payload = Payload::new(key.as_deref(), &body);
                assert_eq!(Payload::copy(key.as_deref(), &body), payload);
                assert_eq!((payload.key(), payload.body()), (key.as_deref(), &body[..]));
                assert_eq!((payload.share_body(), payload.has_key()), (body.clone(), key.is_some()));
                assert_eq!(payload.len(), key_bytes.unwrap_or(0) + body_bytes);
                assert_eq!(payload.with_body(&Bytes::from_static(b"x")), Payload::copy(key.as_deref(), b"x"));
                assert_eq!(payload.without_key(), Payload::new(None, &body));
            }
        }
    }

    #[test]
    fn large_bodies_are_shared() {
        let body = Bytes::from(vec![7; Payload::COPY_MAX + 1]);
        let payload = Payload::new(Some(b"key"), &body);
        assert_eq!(payload.share_body().as_ptr(), body.as_ptr());
        assert_eq!(payload.with_body(&body).share_body().as_ptr(), body.as_ptr());
    }

    #[test]
    fn a_payload_is_two_words() {
        assert_eq!(size_of::<Payload>(), 16);
    }
}
