//! The rules of a queue: what holds for its jobs whatever protocol they come from.
//!
//! Not here: how much of it there may be (`push`) or may be worked on at once (`throttle`), who may take them (`isolation`),
//! and what the codec does: the engine keeps it for those who speak to workers.

use bytes::Bytes;

use crate::command::{NewJob, QueueKind};
use crate::engine::Engine;
use crate::event::Refusal;
use crate::ids::{ClientId, QueueId, Tag};
use crate::isolation::Unfit;
use crate::job::Retry;
use crate::queue::QueueImage;
use crate::turn::Turn;

/// What holds for a queue's jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QueueRules {
    /// What a job's bytes become for a worker of another protocol.
    pub codec: Codec,
    /// What failure means for a new job whose producer said nothing of it ([`NewJob::retry_default`]), in place of what
    /// comes with the job. Jobs that are there keep what they have.
    pub retry: Option<Retry>,
    /// Bytes the body of a job may have; what is there already stays.
    pub body_bytes_max: Option<u32>,
}

/// What a job's bytes become for a worker of another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Codec {
    /// Text, as far as they are text.
    #[default]
    Text,
    /// JSON, which they must be.
    Json,
    /// Base64 of whatever they are.
    Base64,
}

impl QueueImage {
    /// Its rules.
    #[must_use]
    pub fn rules(&self) -> QueueRules {
        self.rules.as_deref().copied().unwrap_or_default()
    }
}

impl Engine {
    pub(crate) fn rule_queue(
        &mut self,
        client: ClientId,
        tag: Tag,
        name: &Bytes,
        rules: QueueRules,
        turn: &mut Turn,
    ) -> Result<(), Refusal> {
        self.check_name(name)?;
        let plain = rules == QueueRules::default();
        let id = match self.queues.named(name) {
            Some(id) => Some(id),
            None if plain => None,
            None => Some(self.queues.find_or_make(name, QueueKind::Work, self.limits.queues_max)?),
        };
        if let Some(id) = id
            && self.queues.at(id).is_some_and(|queue| queue.image.rules() != rules)
        {
            let codec = self.queues.at(id).map(|queue| queue.image.rules().codec);
            let set = |image: &mut QueueImage| image.rules = (!plain).then(|| Box::new(rules));
            self.set_queue(id, set, turn);
            if codec != Some(rules.codec) {
                // Whom a job does not suit depends on it.
                self.sort_line_anew(id, |_| {}, |job| job.unfit = Unfit::NONE);
                self.serve(id, turn);
            }
            self.drop_if_unknown(id);
        }
        self.tell_done(client, tag, turn);
        Ok(())
    }

    /// Whether a new job, or what others will be made from, is short enough for its queue.
    pub(crate) fn check_new_body(&self, new: &NewJob) -> Result<(), Refusal> {
        self.queues.named(&new.queue).map_or(Ok(()), |queue| self.check_body(queue, &new.body))
    }

    /// Whether a job of this queue may have this body.
    pub(crate) fn check_body(&self, queue: QueueId, body: &[u8]) -> Result<(), Refusal> {
        let rules = self.queues.at(queue).and_then(|queue| queue.image.rules.as_deref());
        let Some(limit) = rules.and_then(|rules| rules.body_bytes_max) else { return Ok(()) };
        let given = u32::try_from(body.len()).unwrap_or(u32::MAX);
        if given > limit { Err(Refusal::BodyTooLong { given, limit }) } else { Ok(()) }
    }
}
