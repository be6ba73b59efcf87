//! Bytes that may leave a moment later, together with those that follow: one write then, and the peer wakes once.
//!
//! The handle of a foreground job is such: its client waits for the result, which often comes soon. A client that waits
//! for the handle, or whose results come late, gets the handle at once: a wait in vain makes further waits rarer.

use windlass_hub::Attempts;

/// The bytes of a connection's output that may wait.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    bytes: usize,
    attempts: Attempts<8>,
}

impl Deferred {
    /// This many more bytes of the output may wait.
    pub(super) const fn add(&mut self, bytes: usize) {
        if bytes > 0 && (self.bytes > 0 || self.attempts.begin()) {
            self.bytes += bytes;
        }
    }

    /// Whether an output of this many bytes may wait.
    pub(super) const fn is_all_of(&self, output: usize) -> bool {
        0 < output && output <= self.bytes
    }

    /// An output of this many bytes was written, all of it or a part.
    pub(super) fn written(&mut self, output: usize) {
        let waited = std::mem::take(&mut self.bytes);
        if waited > 0 {
            self.attempts.end(output > waited);
        }
    }

    /// Nothing has followed in time.
    pub(super) fn end(&mut self) {
        self.bytes = 0;
        self.attempts.end(false);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Bounds;
    use super::super::in_hand::{InHand, Script};
    use super::super::tests::BOUNDS;
    use super::*;

    /// What happens to a connection that holds its answer to an event back.
    type Happens = fn(&mut InHand);

    #[test]
    fn an_output_waits_while_all_of_it_may() {
        let mut deferred = Deferred::default();
        assert!(!deferred.is_all_of(0));
        deferred.add(10);
        assert_eq!([0, 1, 10, 11].map(|output| deferred.is_all_of(output)), [false, true, true, false]);
        deferred.add(5);
        assert_eq!([15, 16].map(|output| deferred.is_all_of(output)), [true, false]);
        deferred.written(16);
        assert!(!deferred.is_all_of(1));
    }

    #[test]
    fn bytes_wait_less_often_while_nothing_follows_them() {
        /// What follows bytes that wait, and whether the next ones wait.
        type Case = (&'static str, fn(&mut Deferred), bool);
        let table: [Case; 3] = [
            ("more", |deferred| deferred.written(11), true),
            ("nothing", Deferred::end, false),
            ("nothing, but they were written", |deferred| deferred.written(10), false),
        ];
        for (name, follows, waits) in table {
            let mut deferred = Deferred::default();
            deferred.add(10);
            follows(&mut deferred);
            deferred.add(0);
            deferred.add(10);
            assert_eq!(deferred.is_all_of(10), waits, "{name}");
            deferred.written(20);
            deferred.add(10);
            assert!(deferred.is_all_of(10), "{name}");
        }
    }

    #[test]
    fn an_answer_in_no_hurry_waits_for_the_next_one_or_the_end() {
        let table: [(&str, Happens, &str); 7] = [
            ("nothing", |_| (), ""),
            ("bytes of the peer", |it| it.arrives("x"), ""),
            ("another such answer", |it| it.has_a_reply(), ""),
            ("other answers", |it| (0..2).for_each(|_| it.has_a_reply()), "??!"),
            ("its moment has passed", |it| it.connection.hold_no_longer(), "?"),
            ("the peer's end", |it| it.arrives(""), "?"),
            ("the daemon stops", |it| it.stopping = true, "?"),
        ];
        for (name, happens, written) in table {
            let mut it = InHand::open(Script { deferred: 2, ..Script::default() });
            it.has_a_reply();
            assert_eq!(it.turn(2000), "no time");
            assert_eq!(it.connection.holds_back(), Some(BOUNDS.hold_max));
            assert!(it.wire().written.is_empty());
            happens(&mut it);
            it.turn(2000);
            assert_eq!(String::from_utf8_lossy(&it.wire().written), written, "{name}");
            assert_eq!(it.connection.holds_back().is_some(), written.is_empty(), "{name}");
        }
    }

    #[test]
    fn without_a_time_nothing_waits() {
        let bounds = Bounds { hold_max: Duration::ZERO, ..BOUNDS };
        let mut it = InHand::new(bounds, Script { deferred: 1, ..Script::default() });
        it.turn(1000);
        it.has_a_reply();
        it.turn(2000);
        assert_eq!((it.connection.holds_back(), &*it.wire().written), (None, &b"?"[..]));
    }
}
