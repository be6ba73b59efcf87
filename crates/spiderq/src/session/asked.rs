//! What the engine has been asked and has not answered, and the envelopes the answers go into.
//!
//! Answers come in the order of the questions, but for blocking `Lend`s that found nothing: those are passed by, and answered
//! whenever there is something.

use std::collections::VecDeque;

use windlass_engine::Tag;
use windlass_zmtp::Envelope;

/// What a command was for; it is part of its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Count,
    Add,
    Update,
    /// A `Lend` that blocks.
    Lend,
    /// A `Lend` that does not.
    Poll,
    Repay,
    Heartbeat,
    /// `Stats`, to be answered with the counters of 1.3.
    Stats,
    /// The same with those of 1.4.
    StatsNew,
    Lookup,
    Flush,
    Remove,
}

/// Bits of a tag that say what; above them stands which.
const KIND_BITS: u32 = 4;

/// Questions without an answer.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// In order.
    open: VecDeque<Question>,
    /// Blocking lends that others have passed by, in order.
    passed: VecDeque<Question>,
    /// How many there are that block, in both.
    lends: usize,
    /// How many there were, ever.
    count: u64,
}

#[derive(Debug)]
struct Question {
    tag: Tag,
    ask: Ask,
    envelope: Envelope,
}

impl Asked {
    /// One more. The tag is for the command.
    pub(super) fn push(&mut self, ask: Ask, envelope: Envelope) -> Tag {
        self.count += 1;
        self.lends += usize::from(ask == Ask::Lend);
        // Kinds begin at 1: no tag is 0.
        let tag = Tag(self.count << KIND_BITS | (ask as u64 + 1));
        self.open.push_back(Question { tag, ask, envelope });
        tag
    }

    /// The answer to this one has come: what it was, and where its answer goes. `None` if it was not asked here.
    pub(super) fn take(&mut self, tag: Tag) -> Option<(Ask, Envelope)> {
        let question = if self.open.front().is_some_and(|first| first.tag.0 <= tag.0) {
            self.pass_to(tag)
        } else {
            let index = self.passed.iter().position(|question| question.tag == tag)?;
            self.passed.remove(index)
        };
        let Question { ask, envelope, .. } = question?;
        self.lends -= usize::from(ask == Ask::Lend);
        Some((ask, envelope))
    }

    fn pass_to(&mut self, tag: Tag) -> Option<Question> {
        loop {
            let question = self.open.pop_front()?;
            if question.tag == tag {
                return Some(question);
            }
            debug_assert_eq!(question.ask, Ask::Lend, "only who waits for an entry is passed by");
            self.passed.push_back(question);
        }
    }

    /// Blocking lends among them.
    pub(super) const fn lends(&self) -> usize {
        self.lends
    }

    /// All others.
    pub(super) fn others(&self) -> usize {
        self.open.len() + self.passed.len() - self.lends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_pass_by_those_who_wait() {
        let mut asked = Asked::default();
        let tags: Vec<Tag> = [Ask::Add, Ask::Lend, Ask::Lend, Ask::Count, Ask::Lend, Ask::Poll]
            .map(|ask| asked.push(ask, Envelope::default()))
            .into();
        assert!(tags.iter().all(|tag| tag.wants_answer()));
        let mut take = |index: usize| asked.take(tags[index]).map(|(ask, _)| ask);
        assert_eq!(take(0), Some(Ask::Add));
        assert_eq!(take(3), Some(Ask::Count), "both lends before it are passed by");
        assert_eq!(take(2), Some(Ask::Lend));
        assert_eq!(take(2), None, "no question is answered twice");
        assert_eq!(take(4), Some(Ask::Lend));
        assert_eq!(take(1), Some(Ask::Lend));
        assert_eq!((asked.lends(), asked.others()), (0, 1));
        assert_eq!(asked.take(tags[5]).map(|(ask, _)| ask), Some(Ask::Poll));
        assert_eq!((asked.lends(), asked.others()), (0, 0));
        assert!(asked.take(Tag(1)).is_none());
    }

    const ALL: [Ask; 12] = [
        Ask::Count,
        Ask::Add,
        Ask::Update,
        Ask::Lend,
        Ask::Poll,
        Ask::Repay,
        Ask::Heartbeat,
        Ask::Stats,
        Ask::StatsNew,
        Ask::Lookup,
        Ask::Flush,
        Ask::Remove,
    ];

    #[test]
    fn every_kind_has_a_number() {
        for (index, ask) in ALL.into_iter().enumerate() {
            assert_eq!(ask as usize, index);
            assert!(index + 1 < 1 << KIND_BITS);
        }
    }
}
