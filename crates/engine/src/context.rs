//! A turn: the engine's input in addition to commands (time, a random seed) and the output (changes, events,
//! warnings).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::change::Change;
use crate::clock::Clock;
use crate::event::{Event, Notice, Reply};
use crate::ids::{ClientId, JobId, Tag, Timestamp};
use crate::jobs::Stored;
use crate::warning::{Warning, WarningKind};

/// The input and output of a visit to the engine. Create one per visit, or clear and reuse it.
#[derive(Debug)]
pub struct Context {
    /// The engine's time. It must not go back from one turn to the next; the engine ignores a value that does.
    pub now: Timestamp,
    /// The wall clock's lead over `now`, and the clock values for the journal. `at` is unused here.
    pub clock: Clock,
    /// Bytes of jobs that may be delivered in this visit. The job that exceeds them is still delivered;
    /// further takers are blocked until a visit that has space.
    pub room: u64,
    /// Changes to journal, in order.
    pub changes: Vec<Change>,
    /// Events to send, in order. The order of events to the same client is binding.
    pub events: Vec<(ClientId, Event)>,
    /// Warnings for the operator, no more than one of each kind.
    pub warnings: Vec<Warning>,
    /// Delivered jobs that exclude other jobs of the same keys. They may start only when the end of the
    /// previous jobs is durable, so the events must wait for all changes up to now. The caller clears it.
    pub exclusive: Vec<JobId>,
    /// Bodies that the last command needs. It has had no effect and gets no reply: the caller loads the
    /// bodies ([`crate::Engine::set_loaded`]) and repeats the command.
    pub missing: Vec<(JobId, Stored)>,
    /// Bodies for the next command. [`crate::BulkCommand::ReadKeys`] needs a body only once, so it
    /// does not need [`crate::Engine::set_loaded`] for these.
    pub lent: BTreeMap<JobId, (Stored, Bytes)>,
    /// Jobs with unreadable bodies. The next command skips them where it would request the bodies.
    pub unreadable: BTreeSet<JobId>,
    rng: u64,
}

impl Context {
    /// A turn at `now`, with the wall clock equal to it. `seed` determines all random values.
    pub const fn new(now: Timestamp, seed: u64) -> Self {
        let clock = Clock::skewed(0);
        Self {
            now,
            clock,
            room: u64::MAX,
            changes: Vec::new(),
            events: Vec::new(),
            warnings: Vec::new(),
            exclusive: Vec::new(),
            missing: Vec::new(),
            lent: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            rng: seed,
        }
    }

    /// The next random number below `sides` (0 if `sides` is 0), from splitmix64.
    pub const fn roll(&mut self, sides: u64) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.rng;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        match z.checked_rem(sides) {
            Some(n) => n,
            None => 0,
        }
    }

    /// Records a warning. The first of each kind supplies the example: the queue, the name and the failure.
    pub fn warn(&mut self, kind: WarningKind, example: impl FnOnce() -> (Bytes, Bytes, Bytes)) {
        match self
            .warnings
            .iter_mut()
            .find(|warning| warning.kind.is_like(&kind))
        {
            Some(warning) => warning.times = warning.times.saturating_add(1),
            None => {
                let (queue, name, why) = example();
                self.warnings.push(Warning {
                    kind,
                    times: 1,
                    queue,
                    name,
                    why,
                });
            }
        }
    }

    /// Replies to a client's command.
    pub(crate) fn reply(&mut self, client: ClientId, tag: Tag, reply: Reply) {
        self.events.push((client, Event::Reply(tag, reply)));
    }

    /// Sends a client a message without a command.
    pub(crate) fn notify(&mut self, client: ClientId, notice: Notice) {
        self.events.push((client, Event::Notice(notice)));
    }

    pub(crate) fn remember(&mut self, change: Change) {
        self.changes.push(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outputs for this seed that the authors of splitmix64 publish.
    #[test]
    fn random_numbers_are_those_of_splitmix64() {
        let mut context = Context::new(Timestamp(0), 1_234_567);
        let known: [u64; 5] = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(known.map(|_| context.roll(u64::MAX)), known);
        assert_eq!(
            (
                Context::new(Timestamp(0), 1_234_567).roll(6),
                context.roll(0)
            ),
            (known[0] % 6, 0)
        );
    }
}
