//! The rules of a queue, which apply to its jobs in any protocol.
//!
//! Not here: limits on their number (`push`) and on parallel work (`throttle`), which clients may take them (`isolation`), and
//! the codec's conversions: the engine only stores the codec for the sessions.

use bytes::Bytes;

use crate::context::Context;
use crate::engine::Engine;
use crate::ids::{ClientId, QueueId, Tag};
use crate::isolation::Unfit;
use crate::job::Retry;
use crate::queue::QueueImage;
use crate::refusal::{Capacity, Refusal};
use crate::request::{NewJob, QueueKind};

/// The rules for a queue's jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QueueRules {
    /// How a job's bytes are converted for a worker of another protocol.
    pub codec: Codec,
    /// The retry policy for new jobs whose producer set none ([`NewJob::retry_default`]), in place of the policy that comes
    /// with the job. Existing jobs keep theirs.
    pub retry: Option<Retry>,
    /// The longest body of a new job, in bytes. Existing jobs stay.
    pub body_bytes_max: Option<u32>,
}

/// How a job's bytes are converted for a worker of another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Codec {
    /// As text, where they are text.
    #[default]
    Text,
    /// As JSON, which they must be.
    Json,
    /// As Base64, whatever they are.
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
        context: &mut Context,
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
            self.set_queue(id, set, context);
            if codec != Some(rules.codec) {
                // The codec decides which protocols can express a job.
                self.sort_line_anew(id, |_| {}, |job| job.unfit = Unfit::NONE);
                self.serve(id, context);
            }
            self.drop_if_unknown(id);
        }
        self.tell_done(client, tag, context);
        Ok(())
    }

    /// Checks the body of a new job, or of a schedule's or batch's template, against the limit of its queue.
    pub(crate) fn check_new_body(&self, new: &NewJob) -> Result<(), Refusal> {
        self.queues.named(&new.queue).map_or(Ok(()), |queue| self.check_body(queue, &new.body))
    }

    /// Checks a body against the limit of a queue.
    pub(crate) fn check_body(&self, queue: QueueId, body: &[u8]) -> Result<(), Refusal> {
        let rules = self.queues.at(queue).and_then(|queue| queue.image.rules.as_deref());
        let Some(limit) = rules.and_then(|rules| rules.body_bytes_max) else { return Ok(()) };
        let given = u32::try_from(body.len()).unwrap_or(u32::MAX);
        if given > limit { Err(Capacity::BodyBytes.exceeded(given, limit)) } else { Ok(()) }
    }
}
