//! A full job, with a body that is not copied on the way to the disk.

use bytes::Bytes;
use windlass_codec::{Number, encode_sharing};
use windlass_engine::{Job, Stored};

use super::PUT;

/// The body at the end of a job's record, not yet copied.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    pub(crate) body: Bytes,
    /// The place of the body, until it is read into `body`.
    pub(crate) stored: Option<Stored>,
    /// The record to write if the body cannot be read: the changing part of the job; the rest is in a
    /// previous commit.
    pub(crate) moved: Vec<u8>,
    /// Bytes of the record before the tail.
    pub(crate) inline: usize,
}

impl Tail {
    pub(crate) fn len(&self) -> usize {
        self.stored
            .map_or(self.body.len(), |stored| stored.len as usize)
    }

    /// The changing part of the job, preceded by the length.
    pub(crate) fn framed_moved(&self) -> Vec<u8> {
        let mut framed = Number::of(self.moved.len() as u64).to_vec();
        framed.extend_from_slice(&self.moved);
        framed
    }

    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.body);
    }
}

/// Appends a full job, without the body if that exceeds `inline_max` bytes or is not in memory. Such a body
/// is shared instead of copied, and the caller must append it.
pub(crate) fn encode_put(job: &Job, inline_max: usize, out: &mut Vec<u8>) -> Option<Box<Tail>> {
    out.push(PUT);
    #[expect(clippy::expect_used, reason = "as in `put`")]
    let encoded = encode_sharing(job, inline_max, out).expect("a type that can be written");
    let stored = job.payload.stored();
    if encoded.shared == 0 && stored.is_none() {
        return None;
    }
    let body = if stored.is_some() {
        Bytes::new()
    } else {
        job.payload.share_body()
    };
    Some(Box::new(Tail {
        body,
        stored,
        ..Tail::default()
    }))
}
