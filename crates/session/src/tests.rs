//! The outbox, and what a session is by default.

use windlass_engine::{Query, TakeCommand};

use super::*;

#[derive(Debug)]
struct Mute;

impl Session for Mute {
    fn on_open(&mut self, _: Timestamp, _: &mut Outbox) {}
    fn on_bytes(&mut self, _: Timestamp, _: &mut BytesMut, _: &mut Outbox) {}
    fn on_event(&mut self, _: Timestamp, _: Event, _: &mut Outbox) {}
}

#[test]
fn a_session_needs_nothing_by_default_and_ends_with_its_peer() {
    let (mut session, mut out) = (Mute, Outbox::new(ClientId(3)));
    let needs = (
        session.next_deadline(),
        session.needs_bytes(),
        session.messages(),
        session.held_bytes(),
    );
    assert_eq!((needs, out.client()), ((None, 0, 0, 0), ClientId(3)));
    session.on_eof(Timestamp(0), &mut out);
    assert_eq!(out.take_reason(), Some(Reason::PeerClosed));
}

#[test]
fn times_are_converted_by_the_skew() {
    let mut out = Outbox::default();
    out.set_skew_ms(7);
    let times = (out.wall(Timestamp(5)), out.by_engine(Timestamp(12)));
    assert_eq!((out.skew_ms(), times), (7, (Timestamp(12), Timestamp(5))));
}

#[test]
fn what_the_client_may_not_do_is_refused_in_its_place() {
    let mut out = Outbox::new(ClientId(3)).with_rights(Rights::from_iter([Right::Work]));
    out.command(Tag(1), TakeCommand::WaitForWork);
    out.command(
        Tag(2),
        Query::Clients {
            after: windlass_engine::Cursor::default(),
            limit: 1,
        },
    );
    out.bytes().extend_from_slice(b"behind");
    out.publish(&[ClientId(1)], Bytes::new());
    out.stop_daemon(Stop::Now);
    assert_eq!(out.take_stop(), None);
    let items: Vec<_> = out.drain().collect();
    assert!(
        matches!(
            &items[..],
            [
                Item::Command(Tag(1), _),
                Item::Forbidden(Tag(2)),
                Item::Bytes(_)
            ]
        ),
        "{items:?}"
    );
    let mut out = Outbox::new(ClientId(3)).with_rights(Rights::from_iter([Right::Submit]));
    out.publish(&[ClientId(1)], Bytes::new());
    assert!(matches!(out.drain().next(), Some(Item::Publish(..))));
}

#[test]
fn an_outbox_ends_in_waiting_if_nothing_follows_the_wait() {
    let mut out = Outbox::default();
    assert!(!out.ends_in_waiting());
    out.command(Tag(1), Query::Stats);
    assert!(!out.ends_in_waiting(), "another command");
    out.command(Tag(2), TakeCommand::WaitForWork);
    assert!(out.ends_in_waiting());
    out.bytes().extend_from_slice(b"more");
    assert!(!out.ends_in_waiting());
}

#[test]
fn bytes_are_taken_alone() {
    let mut out = Outbox::default();
    assert_eq!(out.take_bytes(), None, "nothing");
    out.bytes().extend_from_slice(b"some");
    out.command(Tag(1), Query::Stats);
    assert_eq!(out.take_bytes(), None, "bytes before a command");
    out.bytes().extend_from_slice(b"more");
    assert_eq!(out.take_bytes(), None, "bytes after a command");
}

#[test]
fn buffers_are_kept_up_to_their_limits() {
    for (capacity, kept) in [
        (Outbox::KEPT_BYTES_MAX, true),
        (Outbox::KEPT_BYTES_MAX + 1, false),
    ] {
        let mut out = Outbox {
            bytes: BytesMut::with_capacity(capacity),
            ..Outbox::default()
        };
        out.bytes().extend_from_slice(b"some");
        let taken = out.take_bytes().unwrap();
        assert_eq!((&taken[..], out.bytes().capacity()), (&b"some"[..], 0));
        out.reuse(taken);
        assert_eq!(out.bytes().capacity() > 0, kept, "{capacity} bytes");
        assert!(out.is_empty(), "the buffer comes back empty");
    }
    for (capacity, kept) in [
        (Outbox::KEPT_ITEMS_MAX, true),
        (2 * Outbox::KEPT_ITEMS_MAX, false),
    ] {
        let mut out = Outbox {
            items: VecDeque::with_capacity(capacity),
            ..Outbox::default()
        };
        assert_eq!(out.items.capacity(), capacity);
        out.command(Tag(1), Query::Stats);
        out.move_behind(&mut VecDeque::from([Item::Forbidden(Tag(1))]));
        assert_eq!(out.items.capacity() > 0, kept, "{capacity} items");
    }
}

#[test]
fn stopping_now_wins_over_stopping_gracefully() {
    let mut out = Outbox::default();
    out.stop_daemon(Stop::Now);
    out.stop_daemon(Stop::Gracefully);
    assert!(!out.is_empty());
    assert_eq!((out.take_stop(), out.take_stop()), (Some(Stop::Now), None));
    assert!(out.is_empty());
    out.hang_up(Reason::Ended);
    out.stop_daemon(Stop::Now);
    assert_eq!(out.take_stop(), None, "a stop after hang_up is ignored");
}

#[test]
fn moving_items_keeps_their_order_and_frees_large_buffers() {
    let mut out = Outbox::default();
    let mut items = VecDeque::new();
    out.bytes().extend_from_slice(b"small");
    out.command(Tag(1), Query::Stats);
    out.bytes().resize(1 << 20, 7);
    out.move_behind(&mut items);
    assert_eq!(out.bytes().capacity(), 0, "the large buffer is not kept");
    assert!(out.is_empty());
    (0..1 + Outbox::KEPT_ITEMS_MAX).for_each(|_| out.command(Tag(2), Query::Stats));
    out.hang_up(Reason::Ended);
    out.bytes().extend_from_slice(b"never sent");
    out.move_behind(&mut items);
    assert_eq!(out.items.capacity(), 0, "room for many items is freed");
    let name = |item| match item {
        Item::Command(tag, _) => format!("command {}", tag.0),
        Item::Bytes(bytes) => format!("{} bytes", bytes.len()),
        Item::Forbidden(_) | Item::Publish(..) => "other".to_owned(),
    };
    assert_eq!(items.len(), 4 + Outbox::KEPT_ITEMS_MAX);
    let first: Vec<_> = items.drain(..4).map(name).collect();
    assert_eq!(
        first,
        ["5 bytes", "command 1", "1048576 bytes", "command 2"]
    );
}

#[test]
fn items_behind_nothing_are_not_copied() {
    let mut out = Outbox::default();
    out.command(Tag(1), Query::Stats);
    let (place, mut items) = (out.items.as_slices().0.as_ptr(), VecDeque::new());
    out.move_behind(&mut items);
    assert_eq!(
        (items.as_slices().0.as_ptr(), items.len(), out.is_empty()),
        (place, 1, true)
    );
}

#[test]
fn bytes_keep_their_place_among_commands() {
    let mut out = Outbox::default();
    out.bytes().extend_from_slice(b"a");
    out.bytes().extend_from_slice(b"b");
    out.command(Tag(1), Query::Stats);
    out.bytes().extend_from_slice(b"c");
    out.hang_up(Reason::Ended);
    out.bytes().extend_from_slice(b"never sent");
    out.command(Tag(2), Query::Stats);
    assert_eq!(out.take_leading_bytes().as_deref(), Some(&b"ab"[..]));
    let items: Vec<String> = out
        .drain()
        .map(|item| match item {
            Item::Command(tag, _) => format!("command {}", tag.0),
            Item::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Item::Forbidden(_) | Item::Publish(..) => "other".to_owned(),
        })
        .collect();
    assert_eq!(items, ["command 1", "c"]);
    assert_eq!(out.take_reason(), Some(Reason::Ended));
    assert!(out.is_empty());
    out.bytes().extend_from_slice(b"still due");
    assert_eq!(out.take_leading_bytes().as_deref(), Some(&b"still due"[..]));
}

/// They move from the socket to the engine and back, several times each: beyond this size each move is a call.
#[test]
fn what_moves_with_every_command_is_small() {
    let sizes = [
        size_of::<crate::Item>(),
        size_of::<windlass_engine::Event>(),
    ];
    assert!(sizes[0] <= 120 && sizes[1] <= 64, "{sizes:?}");
}
