//! A connection's questions: commands to the engine that have no reply yet.
//!
//! Replies come in the order of the questions, except that later replies pass by a command that waits. Not here: the
//! order of what is sent to the peer; the outbox keeps it.

use std::collections::VecDeque;
use std::fmt;

use windlass_engine::Tag;

/// What a command was for: all that a protocol needs to handle the reply.
pub trait Question: Send + fmt::Debug {
    /// Reading stops while the weights of the open questions add up to this, or to more.
    const WEIGHT_MAX: usize;

    /// 0: any number of these may be open. [`Question::WEIGHT_MAX`]: nothing is read until this one has its reply.
    fn weight(&self) -> usize {
        1
    }
}

/// The question of a protocol that asks nothing.
impl Question for std::convert::Infallible {
    const WEIGHT_MAX: usize = 1;
}

/// Open questions, in order.
#[derive(Debug)]
pub(crate) struct Pending<Q> {
    /// By the numbers of their tags, which ascend.
    open: VecDeque<(u64, Q)>,
    /// Number of questions ever asked.
    count: u64,
    /// The sum of the open questions' weights.
    weight: usize,
}

impl<Q> Default for Pending<Q> {
    fn default() -> Self {
        Self {
            open: VecDeque::new(),
            count: 0,
            weight: 0,
        }
    }
}

impl<Q: Question> Pending<Q> {
    /// Room for more questions than this is freed when none is open.
    const KEPT_MAX: usize = 1 << 10;

    /// Adds a question and returns the tag for its command.
    pub(crate) fn push(&mut self, question: Q) -> Tag {
        self.count += 1;
        self.weight += question.weight();
        self.open.push_back((self.count, question));
        Tag(self.count)
    }

    /// Removes the question with this tag; `None` if it is not open.
    pub(crate) fn take(&mut self, tag: Tag) -> Option<Q> {
        let (first, _) = self.open.front()?;
        let (_, question) = if *first == tag.0 {
            self.open.pop_front()?
        } else {
            let at = self
                .open
                .binary_search_by_key(&tag.0, |(number, _)| *number)
                .ok()?;
            self.open.remove(at)?
        };
        self.weight -= question.weight();
        if self.open.is_empty() && self.open.capacity() > Self::KEPT_MAX {
            self.open = VecDeque::new();
        }
        Some(question)
    }

    /// Removes the last question if it is such a one, and returns whether it was. Its reply, if it still comes, is
    /// ignored.
    pub(crate) fn withdraw_last_if(&mut self, is_such: impl FnOnce(&Q) -> bool) -> bool {
        let is_last = self
            .open
            .back()
            .is_some_and(|(_, question)| is_such(question));
        if is_last && let Some((_, question)) = self.open.pop_back() {
            self.weight -= question.weight();
        }
        is_last
    }

    /// Whether reading must stop until a reply has come.
    pub(crate) const fn is_full(&self) -> bool {
        self.weight >= Q::WEIGHT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question of this weight.
    impl Question for usize {
        const WEIGHT_MAX: usize = 3;

        fn weight(&self) -> usize {
            *self
        }
    }

    #[derive(Debug)]
    struct Plain;

    impl Question for Plain {
        const WEIGHT_MAX: usize = 2;
    }

    #[test]
    fn a_question_counts_as_one_by_default() {
        let mut pending = Pending::default();
        let full = [Plain, Plain].map(|question| (pending.push(question), pending.is_full()).1);
        assert_eq!(full, [false, true]);
    }

    #[test]
    fn replies_pass_by_questions_that_wait() {
        let mut pending = Pending::default();
        let tags = [1, 0, 0, 1, 0, 1].map(|weight| pending.push(weight));
        assert!(tags.iter().all(|tag| tag.wants_answer()));
        assert!(pending.is_full());
        let table = [
            (0, Some(1), false),
            (3, Some(1), false),
            (2, Some(0), false),
            (2, None, false),
            (5, Some(1), false),
        ];
        for (index, found, full) in table {
            assert_eq!(
                (pending.take(tags[index]), pending.is_full()),
                (found, full),
                "question {index}"
            );
        }
        assert_eq!(
            [1, 4].map(|index| pending.take(tags[index])),
            [Some(0), Some(0)],
            "the ones passed by"
        );
        assert_eq!(pending.take(Tag(9)), None, "no such question");
        assert_eq!(pending.weight, 0);
    }

    #[test]
    fn a_withdrawn_question_holds_up_nothing() {
        let mut pending = Pending::default();
        let (first, last) = (pending.push(2), pending.push(1));
        assert!(pending.is_full());
        assert!(
            !pending.withdraw_last_if(|weight| *weight == 2),
            "the last one is another"
        );
        assert!(pending.withdraw_last_if(|weight| *weight == 1));
        assert!(!pending.is_full());
        assert_eq!((pending.take(last), pending.take(first)), (None, Some(2)));
    }

    #[test]
    fn room_for_many_questions_is_freed() {
        for (capacity, kept) in [
            (Pending::<usize>::KEPT_MAX, true),
            (2 * Pending::<usize>::KEPT_MAX, false),
        ] {
            let mut pending = Pending {
                open: VecDeque::with_capacity(capacity),
                ..Pending::default()
            };
            assert_eq!(pending.open.capacity(), capacity);
            let tag = pending.push(0);
            assert_eq!(pending.take(tag), Some(0));
            assert_eq!(pending.open.capacity() > 0, kept, "room for {capacity}");
        }
    }
}
