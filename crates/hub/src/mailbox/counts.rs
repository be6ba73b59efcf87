//! The counters of a mailbox, and when it wakes its owner.

use std::collections::VecDeque;

use bytes::Bytes;
use windlass_engine::Timestamp;

use super::mail::KEPT_MAX;
use super::*;
use crate::budget::{Evictable as _, SMALL_BYTES};
use crate::testing::nowhere;
use crate::waker::WithMail;

fn mailbox() -> Mailbox {
    Mailbox::new(1 << 20, Arc::new(Budget::new(2 << 20)), nowhere())
}

fn published(bytes: usize) -> Arc<Publication> {
    Publication::new(Bytes::from(vec![0; bytes]), &Arc::new(Budget::new(2 << 20)))
}

/// Mail of this weight.
fn words(weight: usize) -> Mail {
    Mail::Bytes(Bytes::from(vec![0; weight - Mail::FIXED_BYTES]))
}

#[test]
fn the_budget_learns_of_mail_when_it_has_changed_much() {
    let budget = Arc::new(Budget::new(2 << 20));
    let mailbox = Mailbox::new(1 << 20, Arc::clone(&budget), nowhere());
    let table = [
        (SMALL_BYTES - 100, 0),
        (100, SMALL_BYTES),
        (SMALL_BYTES - 100, SMALL_BYTES),
        (100, 2 * SMALL_BYTES),
    ];
    for (weight, counted) in table {
        mailbox.push(0, words(weight), None);
        assert_eq!(budget.held(), counted);
    }
    let take = || {
        mailbox.take(0, false, 1, &mut Vec::new());
        budget.held()
    };
    assert_eq!(
        [(); 4].map(|()| take()),
        [2 * SMALL_BYTES, SMALL_BYTES, SMALL_BYTES, 0]
    );
}

#[test]
fn answer_bytes_leave_out_publications() {
    let mailbox = mailbox();
    assert_eq!(mailbox.answer_bytes(), 0);
    mailbox.push(0, words(1000), None);
    mailbox.push(0, words(500), None);
    let answers = 1500 - 2 * Mail::FIXED_BYTES;
    assert_eq!(mailbox.answer_bytes(), answers);
    assert!(mailbox.post(&published(3000)));
    assert!((answers - Mail::FIXED_BYTES..=answers).contains(&mailbox.answer_bytes()));
}

#[test]
fn bytes_that_the_peer_does_not_take_count_fourfold_as_badness() {
    let mailbox = mailbox();
    mailbox.push(0, words(1000), None);
    mailbox.pressure.set_unsent(0, 500);
    mailbox.pressure.set_buffers(2 * SMALL_BYTES);
    assert_eq!(mailbox.pressure.holds(), 1000 + 2 * SMALL_BYTES);
    mailbox.pressure.moved(Timestamp(1_000));
    let badness = || mailbox.badness(Timestamp(2_999));
    assert_eq!(badness(), 1000 + 2 * SMALL_BYTES + 3 * 1500);
    mailbox.pressure.set_unsent(700, 500);
    assert_eq!(
        badness(),
        1000 + 2 * SMALL_BYTES + 3 * 1500,
        "it is on its way"
    );
    assert_eq!(
        mailbox.badness(Timestamp(3_000)),
        1000 + 2 * SMALL_BYTES + 3 * 1500 + 4 * 700,
        "its peer takes nothing"
    );
}

#[test]
fn room_is_reported_in_steps() {
    let mailbox = mailbox();
    let told = [0, 9, 1, 0, 25, 5, 4, 0, 3].map(|bytes| mailbox.forwarding.made_room(bytes, 10));
    assert_eq!(
        told,
        [
            None,
            None,
            Some(10),
            None,
            Some(25),
            None,
            None,
            None,
            Some(12)
        ]
    );
    assert_eq!(mailbox.forwarding.made_room(0, 0), None);
}

#[test]
fn a_closed_mailbox_accepts_nothing() {
    let mailbox = mailbox();
    mailbox.push(0, words(1000), None);
    assert!(mailbox.post(&published(10)));
    mailbox.evict(Reason::ClosedByServer);
    mailbox.push(0, words(1000), None);
    assert!(!mailbox.post(&published(10)));
    assert_eq!(
        (
            mailbox.len(),
            mailbox.pressure.holds(),
            mailbox.answer_bytes()
        ),
        (0, 0, 0)
    );
}

#[test]
fn an_owner_is_rung_once_until_it_looks() {
    let waker = Arc::new(WithMail::default());
    let mailbox = Mailbox::new(
        1 << 20,
        Arc::default(),
        Home {
            waker: Arc::clone(&waker) as Arc<dyn Waker>,
            ..nowhere()
        },
    );
    let rings = || waker.take().len();
    mailbox.ring();
    mailbox.ring();
    assert_eq!(rings(), 1);
    let _ = mailbox.wake_flag().attend();
    mailbox.ring();
    assert_eq!(rings(), 0, "its owner has a turn");
    assert!(mailbox.wake_flag().look());
    assert!(!mailbox.wake_flag().look());
    mailbox.ring();
    assert_eq!(rings(), 1);
    let _ = mailbox.wake_flag().attend();
    assert!(!mailbox.wake_flag().look(), "rung before the turn");
}

#[test]
fn a_large_empty_buffer_for_letters_is_freed() {
    let capacity = |queued: usize| {
        let mailbox = mailbox();
        mailbox.lock().mail = VecDeque::with_capacity(queued);
        mailbox.push(0, words(100), None);
        mailbox.take(0, false, 1, &mut Vec::new());
        mailbox.lock().mail.capacity()
    };
    assert_eq!([KEPT_MAX, KEPT_MAX + 1].map(capacity), [KEPT_MAX, 0]);
}
