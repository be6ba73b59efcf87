//! How much a connection reads, holds and executes in a turn.

use bytes::Bytes;

use super::in_hand::{InHand, Script};
use super::input::{LARGE_TURN_BYTES, RESERVE_MAX, SCRATCH_BYTES, grow};
use super::tests::BOUNDS;
use super::*;
use windlass_hub::SMALL_BYTES;

/// Leaves its input unread.
fn keeps() -> Script {
    Script {
        keeps: true,
        ..Script::default()
    }
}

/// A piece of the peer's bytes that fills the thread's buffer.
fn full() -> Vec<u8> {
    vec![7; SCRATCH_BYTES]
}

#[test]
fn the_rest_of_a_large_message_is_read_into_its_own_memory() {
    let table = [
        (0, 0, "shared"),
        (1, SCRATCH_BYTES + 1, "shared"),
        (2, SCRATCH_BYTES, "shared"),
        (2, SCRATCH_BYTES + 1, "own"),
        (SCRATCH_BYTES, 0, "shared"),
        (SCRATCH_BYTES + 1, 0, "own"),
    ];
    for (needs_bytes, held, place) in table {
        let mut it = InHand::open(Script {
            needs_bytes,
            ..keeps()
        });
        it.connection
            .incoming
            .input
            .extend_from_slice(&vec![7; held]);
        it.wire().reads.clear();
        it.arrives("x");
        it.turn(2000);
        assert_eq!(it.wire().reads, [place], "{needs_bytes} {held}");
        assert_eq!(it.connection.incoming.input.len(), held + 1);
    }
}

#[test]
fn a_turn_reads_a_bounded_number_of_bytes() {
    const ALL: [usize; 4] = [SCRATCH_BYTES, SCRATCH_BYTES, SCRATCH_BYTES, 10];
    let reads = |read_bytes_max: usize, is_drained_by_short_reads: bool, pieces: &[usize]| {
        let mut it = InHand::new(
            Bounds {
                read_bytes_max,
                ..BOUNDS
            },
            keeps(),
        );
        it.turn(1000);
        it.wire().reads.clear();
        it.wire().is_drained_by_short_reads = is_drained_by_short_reads;
        pieces.iter().for_each(|bytes| it.arrives(vec![7; *bytes]));
        let next = it.turn(2000);
        let reads = it.wire().reads.len();
        (reads, it.connection.incoming.input.len(), next)
    };
    let so = |reads, bytes, next: &str| (reads, bytes, next.to_owned());
    assert_eq!(
        reads(1 << 20, true, &ALL),
        so(2, Turn::SHARE_BYTES_MAX, "a turn")
    );
    assert_eq!(
        reads(SCRATCH_BYTES, true, &ALL),
        so(1, SCRATCH_BYTES, "7000"),
        "no more than the session may leave"
    );
    assert_eq!(
        reads(1 << 20, true, &[10, 10]),
        so(1, 10, "no time"),
        "a short read has taken all"
    );
    assert_eq!(
        reads(1 << 20, false, &[10, 10]),
        so(3, 20, "no time"),
        "of TLS it has not"
    );
    assert_eq!(
        reads(1 << 20, true, &[SCRATCH_BYTES]),
        so(2, SCRATCH_BYTES, "no time")
    );
}

#[test]
fn reads_go_on_after_an_interruption_and_end_with_an_error() {
    let mut it = InHand::open(keeps());
    it.wire()
        .arrives
        .push_back(Err(io::ErrorKind::Interrupted.into()));
    it.arrives("x");
    assert_eq!(it.turn(2000), "no time");
    assert_eq!(it.connection.incoming.input.len(), 1);
    it.wire()
        .arrives
        .push_back(Err(io::ErrorKind::ConnectionReset.into()));
    assert_eq!(
        it.turn(3000),
        "no time",
        "the kernel has not said that there is something"
    );
    it.connection.notice(true, false, false);
    assert_eq!(it.turn(3000), "peer closed");
    // After bytes of a large message.
    let mut it = InHand::open(Script {
        needs_bytes: 1 << 20,
        ..keeps()
    });
    it.wire().is_drained_by_short_reads = false;
    it.arrives("xy");
    it.wire()
        .arrives
        .push_back(Err(io::ErrorKind::ConnectionReset.into()));
    it.arrives("");
    assert_eq!(it.turn(2000), "a turn");
    assert_eq!(it.connection.incoming.input.len(), 2);
    assert_eq!(it.turn(2000), "peer closed");
}

#[test]
fn the_end_is_read_behind_the_last_bytes() {
    let mut it = InHand::open(keeps());
    it.arrives("x");
    it.arrives("");
    it.connection.notice(true, false, true);
    assert_eq!(it.turn(2000), "a turn");
    assert_eq!(it.turn(2000), "peer closed");
}

#[test]
fn bytes_count_as_received_although_a_later_read_finds_nothing() {
    let idle_max = Some(Duration::from_secs(60));
    let mut it = InHand::new(Bounds { idle_max, ..BOUNDS }, keeps());
    it.turn(1000);
    it.wire().is_drained_by_short_reads = false;
    it.arrives("hello");
    assert_eq!(it.turn(2000), "62000");
    assert!(it.connection.has_read());
    assert_eq!(it.traffic().received_bytes, 5);
    assert_eq!(it.turn(3000), "62000");
    assert!(!it.connection.has_read(), "nothing came in this turn");
    assert_eq!(it.traffic().received_bytes, 5);
}

/// The kernel does not report bytes again that are already in the socket.
#[test]
fn a_message_that_fills_its_memory_may_have_others_behind_it() {
    const HELD: usize = 10;
    const BYTES: usize = SCRATCH_BYTES + 1;
    let mut it = InHand::open(Script {
        needs_bytes: BYTES,
        ..keeps()
    });
    it.connection.incoming.input = BytesMut::from(Bytes::from(vec![7; HELD]));
    it.wire().reads.clear();
    it.arrives(vec![7; BYTES]);
    it.arrives("x");
    assert_eq!(it.turn(2000), "a turn");
    assert_eq!(it.connection.incoming.input.len(), HELD + BYTES);
    assert_eq!(it.wire().reads, ["own"], "one read, until it is full");
}

#[test]
fn a_turn_reads_a_bounded_part_of_a_large_message() {
    const PIECE: usize = LARGE_TURN_BYTES / 2;
    let mut it = InHand::new(
        Bounds {
            outbound_bytes_max: 1 << 30,
            ..BOUNDS
        },
        Script {
            needs_bytes: 8 << 20,
            ..keeps()
        },
    );
    it.turn(1000);
    it.wire().reads.clear();
    it.connection.incoming.input = BytesMut::from(Bytes::from(vec![7; 2 << 20]));
    (0..4).for_each(|_| it.arrives(vec![7; PIECE]));
    it.wire().is_drained_by_short_reads = false;
    assert_eq!(it.turn(2000), "a turn");
    assert_eq!(it.wire().reads, ["own"; 2]);
    assert_eq!(
        it.connection.incoming.input.len(),
        (2 << 20) + LARGE_TURN_BYTES
    );
    assert_eq!(it.turn(2000), "a turn");
    it.wire().reads.clear();
    it.wire().is_drained_by_short_reads = true;
    it.arrives("x");
    it.arrives("y");
    assert_eq!(it.turn(2000), "no time", "a short read has taken all");
    assert_eq!(it.wire().reads, ["own"]);
}

#[test]
fn memory_grows_with_the_bytes_that_have_arrived() {
    const MIB: usize = RESERVE_MAX;
    let table = [
        (0, 100, 100),
        (0, 5 * MIB, MIB),
        (100_000, 10, 100_000 / 16),
        (100_000, 50_000, 50_000),
        (3 * MIB, 5 * MIB, 3 * MIB),
        (3 * MIB, MIB, MIB),
    ];
    for (held, needs, more) in table {
        let mut input = vec![7; held];
        input.shrink_to_fit();
        grow(&mut input, needs);
        assert_eq!(input.capacity(), held + more, "{held} {needs}");
        let before = input.capacity();
        grow(&mut input, needs);
        assert_eq!(input.capacity(), before, "there is room");
    }
}

#[test]
fn input_is_limited_but_for_a_message_that_needs_more() {
    for (needs_bytes, reads) in [(0, 0), (1, 1)] {
        let mut it = InHand::new(
            Bounds {
                read_bytes_max: 10,
                ..BOUNDS
            },
            Script {
                needs_bytes,
                ..keeps()
            },
        );
        it.turn(1000);
        it.wire().reads.clear();
        it.connection.incoming.input.extend_from_slice(&[7; 10]);
        it.arrives("x");
        it.turn(2000);
        assert_eq!(it.wire().reads.len(), reads, "{needs_bytes}");
    }
}

#[test]
fn a_peer_that_takes_too_little_is_disconnected() {
    for (bytes, next) in [
        (1000, "no time"),
        (1001, "limit exceeded: outbound_bytes_max"),
    ] {
        let bounds = Bounds {
            outbound_bytes_max: 1000,
            ..BOUNDS
        };
        let mut it = InHand::new(
            bounds,
            Script {
                answer: vec![0; bytes],
                ..Script::default()
            },
        );
        it.takes(0);
        it.turn(1000);
        it.arrives("x");
        assert_eq!(it.turn(2000), next, "{bytes}");
    }
}

#[test]
fn what_a_connection_holds_is_counted_when_it_has_changed_much() {
    let mut it = InHand::open(Script::default());
    for (held, counted) in [
        (SMALL_BYTES - 1, 0),
        (SMALL_BYTES, SMALL_BYTES),
        (2 * SMALL_BYTES - 1, SMALL_BYTES),
        (2 * SMALL_BYTES, 2 * SMALL_BYTES),
        (SMALL_BYTES + 1, 2 * SMALL_BYTES),
        (SMALL_BYTES, SMALL_BYTES),
        (SMALL_BYTES + 100, SMALL_BYTES),
        (SMALL_BYTES - 1, 0),
        (2 * SMALL_BYTES - 1, 2 * SMALL_BYTES - 1),
        (SMALL_BYTES, 2 * SMALL_BYTES - 1),
    ] {
        it.script().held_bytes = held;
        it.turn(2000);
        assert_eq!(it.budget.held(), counted, "{held}");
    }
    drop(it.connection);
    assert_eq!(it.budget.held(), 0);
}

/// Pending requests count with the bytes from which they were made.
#[test]
fn commands_that_have_not_been_done_count_as_held_bytes() {
    const ITEMS: usize = 2000;
    const BYTES: usize = 5000;
    let mut it = InHand::open(Script {
        commands: ITEMS,
        ..Script::default()
    });
    *it.desk.goes.lock().unwrap() = Visited::Part;
    it.arrives(vec![7; BYTES]);
    it.turn(2000);
    let held = BYTES + ITEMS * size_of::<Item>();
    assert!(
        (held..held + 100).contains(&it.budget.held()),
        "{} of {held}",
        it.budget.held()
    );
    *it.desk.goes.lock().unwrap() = Visited::All;
    it.turn(2000);
    assert!(it.budget.held() < BYTES);
}

#[test]
fn answers_have_the_room_that_the_peer_and_the_disk_leave() {
    let rooms = |answered: usize, waiting: usize| {
        let mut it = InHand::open(Script {
            commands: 1,
            ..Script::default()
        });
        *it.desk.goes.lock().unwrap() = Visited::Part;
        it.takes(0);
        it.connection.outgoing.output.copy(&vec![0; answered]);
        if waiting > 0 {
            it.waits_for_commit(7, waiting);
        }
        it.arrives("x");
        // The second visit retries the same items.
        it.turn(2000);
        it.turn(2000);
        std::mem::take(&mut *it.desk.rooms.lock().unwrap())
    };
    assert_eq!(rooms(0, 0), [WRITE_HIGH_BYTES; 2]);
    assert_eq!(rooms(1000, 0), [WRITE_HIGH_BYTES - 1000; 2]);
    assert_eq!(rooms(0, 500), [WRITE_HIGH_BYTES - 500; 2]);
    assert_eq!(rooms(1000, 500), [WRITE_HIGH_BYTES - 1500; 2]);
    assert_eq!(
        rooms(1000, WRITE_HIGH_BYTES - 1000),
        [1],
        "without room new items get one visit"
    );
}

#[test]
fn reading_stops_while_too_much_waits() {
    const HIGH: usize = WRITE_HIGH_BYTES;
    let most = BOUNDS.unacknowledged_max;
    let table = [
        (HIGH - 1, None, 0, true),
        (HIGH, None, 0, false),
        (HIGH - 10, Some(9), 0, true),
        (HIGH - 10, Some(10), 0, false),
        (0, None, most - 1, true),
        (0, None, most, false),
        (0, Some(0), most, true),
    ];
    for (output, left_behind, unanswered, has_room) in table {
        let mut it = InHand::open(Script::default());
        it.connection.outgoing.output.copy(&vec![0; output]);
        it.connection.outgoing.left_behind = left_behind;
        it.desk.mailbox().forwarding.set_under_way(unanswered);
        assert_eq!(
            it.connection.has_room(),
            has_room,
            "{output} {left_behind:?} {unanswered}"
        );
    }
}

#[test]
fn room_after_a_write_gives_another_turn_to_what_waited() {
    let item = || VecDeque::from([Item::Forbidden(windlass_engine::Tag(1))]);
    let table = [
        (true, None, VecDeque::new(), "", false),
        (true, Some(0), VecDeque::new(), "", true),
        (true, None, item(), "", true),
        (true, None, VecDeque::new(), "x", true),
        (false, Some(0), item(), "x", false),
    ];
    for (n, (was_written, left_behind, items, input, has_got_room)) in table.into_iter().enumerate()
    {
        let mut it = InHand::open(Script::default());
        (
            it.connection.io.was_written,
            it.connection.outgoing.left_behind,
        ) = (was_written, left_behind);
        (it.connection.work.items, it.connection.incoming.input) = (items, BytesMut::from(input));
        assert_eq!(it.connection.has_got_room(), has_got_room, "{n}");
    }
}

#[test]
fn bytes_of_the_session_stand_behind_its_commands() {
    let mut it = InHand::open(Script {
        answer: b"now".to_vec(),
        ..Script::default()
    });
    it.arrives("x");
    it.turn(2000);
    assert_eq!(it.wire().written, b"now");
    assert!(
        it.desk.rooms.lock().unwrap().is_empty(),
        "bytes alone need no visit"
    );
    *it.script() = Script {
        commands: 1,
        says: b"tick".to_vec(),
        ..Script::default()
    };
    *it.desk.goes.lock().unwrap() = Visited::Part;
    it.arrives("x");
    it.turn(2000);
    it.script().ticks_at = Some(Timestamp(3000));
    it.turn(3000);
    assert_eq!(it.wire().written, b"now", "the command is not done");
    *it.desk.goes.lock().unwrap() = Visited::All;
    it.turn(3000);
    assert_eq!(it.wire().written, b"now!tick");
    // The same after mail that waits for the disk.
    it.waits_for_commit(7, 2);
    it.script().ticks_at = Some(Timestamp(4000));
    it.turn(4000);
    assert_eq!(it.wire().written, b"now!tick");
    it.desk
        .durable
        .store(7, std::sync::atomic::Ordering::Relaxed);
    it.turn(4000);
    assert_eq!(it.wire().written, b"now!tick\0\0tick");
}

#[test]
fn answers_do_not_wait_for_commands_that_follow_from_other_mail() {
    let mut it = InHand::open(Script {
        asks: 1,
        ..Script::default()
    });
    *it.desk.goes.lock().unwrap() = Visited::Part;
    (0..2).for_each(|_| it.has_a_reply());
    it.turn(2000);
    assert_eq!(
        (it.connection.commands(), &it.wire().written[..]),
        (1, &b"!"[..])
    );
}

#[test]
fn input_is_offered_again_while_the_session_consumes_some() {
    let mut it = InHand::open(Script {
        sips: true,
        ..Script::default()
    });
    it.arrives("abcd");
    assert_eq!(it.turn(2000), "no time");
    assert_eq!(
        it.script().told,
        ["open", "bytes", "bytes", "bytes", "bytes"]
    );
    assert!(it.connection.incoming.input.is_empty());
}

#[test]
fn writes_go_on_after_an_interruption_and_end_with_an_error() {
    let mut it = InHand::open(Script {
        answer: b"a".to_vec(),
        ..Script::default()
    });
    it.wire().fails = [io::ErrorKind::Interrupted].into();
    it.arrives("x");
    assert_eq!(it.turn(2000), "a turn");
    assert_eq!(it.turn(2000), "no time");
    assert_eq!(it.wire().written, b"a");
    it.wire().fails = [io::ErrorKind::BrokenPipe].into();
    it.arrives("x");
    assert_eq!(it.turn(3000), "peer closed");
}

#[test]
fn bytes_of_tls_alone_are_no_answer() {
    let mut it = InHand::open(keeps());
    it.wire().has_unwritten = true;
    it.arrives("x");
    assert_eq!(it.turn(2000), "no time", "the peer has taken no answer");
}

#[test]
fn every_end_is_counted_by_its_reason() {
    let table = [
        (End::Closed(Reason::WrongPassword), "wrong_password"),
        (End::Closed(Reason::Shutdown), "shutdown"),
        (
            End::NoHandshake(io::ErrorKind::TimedOut.into()),
            NO_HANDSHAKE,
        ),
    ];
    for (end, reason) in table {
        let it = InHand::open(Script::default());
        it.connection.count_end(&end);
        let closed = it
            .traffic()
            .closed
            .into_iter()
            .filter(|(_, ends)| *ends > 0);
        assert_eq!(closed.collect::<Vec<_>>(), [(reason, 1)]);
    }
}

#[test]
fn items_that_wait_to_be_rung_are_done_after_that() {
    let mut it = InHand::open(Script {
        commands: 1,
        ..Script::default()
    });
    *it.desk.goes.lock().unwrap() = Visited::UntilRung;
    it.arrives("x");
    it.turn(2000);
    *it.desk.goes.lock().unwrap() = Visited::All;
    it.turn(2000);
    assert_eq!(it.connection.commands(), 1, "not before");
    it.connection.rung();
    it.turn(2000);
    assert_eq!(
        (it.connection.commands(), &it.wire().written[..]),
        (0, &b"!"[..])
    );
}

/// Otherwise the peer and the daemon would wait for each other forever.
#[test]
fn a_peer_that_sends_on_and_takes_nothing_is_read_on_up_to_the_limit() {
    let bounds = Bounds {
        outbound_bytes_max: 3 * WRITE_HIGH_BYTES,
        ..BOUNDS
    };
    let mut it = InHand::new(
        bounds,
        Script {
            answer: vec![0; WRITE_HIGH_BYTES],
            ..Script::default()
        },
    );
    it.turn(1000);
    it.takes(0);
    let sends = |it: &mut InHand, at: u64| {
        it.arrives("x");
        it.turn(at)
    };
    assert_eq!(
        sends(&mut it, 2000),
        "no time",
        "it has sent nothing more than it was answered"
    );
    assert_eq!(
        sends(&mut it, 2000),
        "2100",
        "the second request waits in the socket"
    );
    assert_eq!(
        (it.turn(2099), it.turn(2100)),
        ("2100".to_owned(), "no time".to_owned()),
        "it is read"
    );
    assert_eq!(
        (sends(&mut it, 3000), it.turn(3100)),
        ("3100".to_owned(), "no time".to_owned()),
        "the limit itself"
    );
    assert_eq!(sends(&mut it, 4000), "limit exceeded: outbound_bytes_max");
    // A peer that reads its replies gets the original bound again.
    let mut it = InHand::new(
        bounds,
        Script {
            answer: vec![0; WRITE_HIGH_BYTES],
            ..Script::default()
        },
    );
    it.turn(1000);
    it.takes(0);
    sends(&mut it, 2000);
    sends(&mut it, 2000);
    it.turn(2100);
    it.takes(2 * WRITE_HIGH_BYTES);
    it.turn(3000);
    it.turn(3000);
    sends(&mut it, 3000);
    assert_eq!(sends(&mut it, 3000), "3100");
}

/// The thread drops the id of the wake-up, because the connection is already in its turn.
#[test]
fn a_ring_before_a_turn_counts_although_its_seat_is_dropped() {
    let mut it = InHand::open(Script {
        commands: 1,
        ..Script::default()
    });
    *it.desk.goes.lock().unwrap() = Visited::UntilRung;
    it.arrives("x");
    it.turn(2000);
    *it.desk.goes.lock().unwrap() = Visited::All;
    it.desk.mailbox().ring();
    it.arrives("y");
    it.turn(2000);
    it.turn(2000);
    assert_eq!(
        (it.connection.commands(), &it.wire().written[..]),
        (0, &b"!!"[..])
    );
}

/// An idle connection holds as little as possible, and a busy one keeps its buffers.
#[test]
fn large_empty_buffers_are_freed() {
    let capacity_of_items = |items: usize| {
        let mut it = InHand::open(Script::default());
        it.connection.work.items = VecDeque::with_capacity(items);
        it.turn(2000);
        it.connection.work.items.capacity()
    };
    assert_eq!([1024, 1025].map(capacity_of_items), [1024, 0]);
    let capacity_of_mail = |mail: usize| {
        let mut it = InHand::open(Script::default());
        it.connection.mail = Vec::with_capacity(mail);
        it.desk
            .mailbox()
            .push(0, Mail::Bytes(Bytes::from_static(b"x")), None);
        it.turn(2000);
        it.connection.mail.capacity()
    };
    assert_eq!([1024, 1025].map(capacity_of_mail), [1024, 0]);
    let capacity_of_input = |input: usize| {
        let mut it = InHand::open(Script::default());
        it.connection.incoming.input = BytesMut::with_capacity(input);
        it.turn(2000);
        it.connection.incoming.input.capacity()
    };
    assert_eq!(
        [SMALL_BYTES - 1, SMALL_BYTES].map(capacity_of_input),
        [SMALL_BYTES - 1, 0]
    );
    let mut it = InHand::open(keeps());
    it.connection.incoming.input = BytesMut::from(&full()[..]);
    it.turn(2000);
    assert_eq!(
        it.connection.incoming.input.len(),
        SCRATCH_BYTES,
        "it is not empty"
    );
}
