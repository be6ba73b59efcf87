//! The parts by themselves. `tests/waking` has the threads.

use super::*;

#[test]
fn mailboxes_come_out_in_order_of_their_commits() {
    let (durable, mut waiting) = (Durable::new(2), Waiting::new());
    waiting.add(5, &'a');
    waiting.add(7, &'b');
    assert!(waiting.add_unless(&durable, 4, &'c'));
    assert_eq!(waiting.publish(&durable, 3), []);
    assert_eq!(waiting.publish(&durable, 4), ['c']);
    assert!(!waiting.add_unless(&durable, 4, &'c'), "it is durable");
    assert_eq!(waiting.mailboxes(), ['a', 'b']);
    assert_eq!(waiting.publish(&durable, 9), ['a', 'b']);
}
