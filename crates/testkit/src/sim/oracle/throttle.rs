//! Throttles are set. What they allow the laws in `serving` judge.

use bytes::Bytes;
use windlass_engine::{ClientId, QueueKind, Tag, Throttle};

use super::{Answer, Oracle};

impl Oracle {
    pub(super) fn throttle_queue(
        &mut self,
        client: ClientId,
        tag: Tag,
        name: &Bytes,
        throttle: Option<Throttle>,
    ) -> Answer {
        self.check_name(name)?;
        let there = self.queue_named(name).map(|queue| queue.number);
        let queue = match there {
            Some(queue) => Some(queue),
            None if throttle.is_some() => Some(self.find_or_make_queue(name, QueueKind::Work)?),
            None => None,
        };
        if let Some(queue) = queue.filter(|queue| self.queue(*queue).throttle != throttle) {
            self.queue_mut(queue).throttle = throttle;
            self.follow();
        }
        self.say_done(client, tag);
        Ok(())
    }
}
