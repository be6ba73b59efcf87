//! Questions that the engine has not answered yet, and the envelopes for their answers.
//!
//! Answers come in the order of the questions. The exception is a blocking `Lend` that finds nothing: later answers pass it by,
//! and its own answer comes when an entry is available.

use std::collections::VecDeque;

use windlass_engine::Tag;
use windlass_zmtp::Envelope;

/// What a command is for. Its tag contains this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Count,
    Add,
    Update,
    /// A blocking `Lend`.
    Lend,
    /// A non-blocking `Lend`.
    Poll,
    Repay,
    Heartbeat,
    /// `Stats`, answered with the counters of 1.3.
    Stats,
    /// `Stats`, answered with the counters of 1.4.
    StatsNew,
    Lookup,
    Flush,
    Remove,
}

/// Bits of a tag that hold the [`Ask`]. The question's number is above them.
const KIND_BITS: u32 = 4;

/// Unanswered questions.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Questions that no later answer has passed by, in order.
    open: VecDeque<Question>,
    /// Blocking lends that later answers have passed by, in order.
    passed: VecDeque<Question>,
    /// Number of blocking lends in both queues.
    lends: usize,
    /// Number of questions ever asked.
    count: u64,
}

#[derive(Debug)]
struct Question {
    tag: Tag,
    ask: Ask,
    envelope: Envelope,
}

impl Asked {
    /// Adds a question and returns the tag for its command.
    pub(super) fn push(&mut self, ask: Ask, envelope: Envelope) -> Tag {
        self.count += 1;
        self.lends += usize::from(ask == Ask::Lend);
        // Kinds begin at 1: no tag is 0.
        let tag = Tag(self.count << KIND_BITS | (ask as u64 + 1));
        self.open.push_back(Question { tag, ask, envelope });
        tag
    }

    /// Removes the question with this tag. Returns its kind and the envelope for its answer; `None` if the tag is unknown.
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
            debug_assert_eq!(question.ask, Ask::Lend, "only blocking lends are passed by");
            self.passed.push_back(question);
        }
    }

    /// Number of unanswered blocking lends.
    pub(super) const fn lends(&self) -> usize {
        self.lends
    }

    /// Number of all other unanswered questions.
    pub(super) fn others(&self) -> usize {
        self.open.len() + self.passed.len() - self.lends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_pass_by_blocking_lends() {
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
