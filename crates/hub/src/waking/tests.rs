//! Tests of the single parts. `tests/waking` tests them with threads.

use super::*;

#[test]
fn jobs_that_fit_together_are_rung_and_those_that_never_will() {
    let mut waits = ForRoom::new();
    for (bytes, mailbox) in [(50, 'a'), (10, 'b'), (90, 'c'), (20, 'd'), (70, 'a')] {
        waits.add(bytes, &mailbox, |other| *other == mailbox);
    }
    assert_eq!(waits.most(), 90);
    assert_eq!(waits.take(9, 90), []);
    assert_eq!(
        waits.take(35, 90),
        ['b', 'd'],
        "the large ones do not hold up others"
    );
    assert_eq!(waits.take(69, 80), ['c'], "it will never fit");
    assert_eq!((waits.take(69, 80), waits.most()), (vec![], 70));
    assert_eq!((waits.take(70, 70), waits.most()), (vec!['a'], 0));
}

#[test]
fn mailboxes_come_out_in_order_of_their_commits() {
    let (durable, mut waiting) = (OnDisk::new(2), Waiting::default());
    waiting.add(5, &'a');
    waiting.add(7, &'b');
    assert!(waiting.add_unless(&durable, 4, &'c'));
    assert_eq!(waiting.publish(&durable, 3), []);
    assert_eq!(waiting.publish(&durable, 4), ['c']);
    assert!(!waiting.add_unless(&durable, 4, &'c'), "it is durable");
    assert_eq!(waiting.mailboxes(), ['a', 'b']);
    assert_eq!(waiting.publish(&durable, 9), ['a', 'b']);
}
