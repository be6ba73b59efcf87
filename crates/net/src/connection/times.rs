//! The deadlines of a connection.

use super::in_hand::{InHand, Script};
use super::tests::BOUNDS;
use super::*;
use crate::patience::Patience;
use windlass_engine::{Capacity, Reply, Tag};

const PATIENT: Bounds = Bounds {
    patience: Patience {
        timeout_ms: 30_000,
        bytes_per_s: 0,
    },
    ..BOUNDS
};

/// A connection after its first turn at 1000 ms, with a peer that reads nothing.
fn open(bounds: Bounds, script: Script) -> InHand {
    let mut it = InHand::new(bounds, script);
    it.takes(0);
    it.turn(1000);
    it
}

/// The same, with a peer that reads everything.
fn open_reading(script: Script) -> InHand {
    let mut it = open(PATIENT, script);
    it.takes(usize::MAX);
    it
}

#[test]
fn a_silent_peer_is_disconnected_after_idle_max() {
    let idle_max = Some(Duration::from_secs(60));
    let mut it = open(
        Bounds {
            idle_max,
            ..PATIENT
        },
        Script::default(),
    );
    assert_eq!(it.turn(1000), "61000");
    it.arrives("x");
    assert_eq!(it.turn(2000), "62000");
    assert_eq!(it.turn(61_999), "62000");
    it.arrives("x");
    assert_eq!(
        it.turn(62_000),
        "122000",
        "bytes that waited in the socket count first"
    );
    it.takes(usize::MAX);
    it.has_a_reply();
    assert_eq!(it.turn(100_000), "122000", "what it is sent does not count");
    assert_eq!(it.wire().written, b"!");
    assert_eq!(it.turn(122_000), "timed out: idle");
    assert_eq!(
        open(PATIENT, Script::default()).turn(1 << 40),
        "no time",
        "without a limit"
    );
}

#[test]
fn a_session_ticks_at_its_deadline_until_the_connection_ends() {
    let idle_max = Some(Duration::from_secs(60));
    let ticks = || Script {
        ticks_at: Some(Timestamp(5000)),
        ..Script::default()
    };
    let mut it = open(
        Bounds {
            idle_max,
            ..PATIENT
        },
        ticks(),
    );
    assert_eq!(it.turn(4999), "5000");
    assert_eq!(it.script().told, ["open"]);
    assert_eq!(it.turn(5000), "61000");
    assert_eq!(it.script().told, ["open", "tick"]);
    let mut it = open(
        PATIENT,
        Script {
            ends: true,
            answer: vec![0; 9],
            ..ticks()
        },
    );
    it.arrives("x");
    assert_eq!(
        it.turn(2000),
        "12000",
        "once the connection ends, the session has none"
    );
    assert_eq!(it.turn(5000), "12000");
    assert_eq!(it.script().told, ["open", "bytes"]);
}

#[test]
fn a_peer_that_was_refused_at_a_limit_of_its_namespace_rests() {
    // The thread's connections rest for 10 ms.
    let refused = |what: Capacity| Event::Reply(Tag(1), Reply::Refused(what.exceeded(1u32, 1u32)));
    let mut it = open_reading(Script::default());
    it.has(refused(Capacity::QueueJobs));
    assert_eq!(it.turn(2000), "no time", "a limit of all");
    it.has(refused(Capacity::NamespacePushes));
    assert_eq!(it.turn(3000), "3010");
    it.arrives("x");
    assert_eq!(it.turn(3001), "3010");
    it.has_a_reply();
    assert_eq!(it.turn(3002), "3010");
    assert_eq!(it.script().told, ["open"]);
    assert_eq!(it.wire().written, b"!!!", "it is answered");
    assert_eq!(it.turn(3010), "no time");
    assert_eq!(it.script().told, ["open", "excused", "bytes"]);
}

#[test]
fn an_address_pauses_after_connections_that_cost_more_than_they_did() {
    let table = [
        (0, Reason::PeerClosed, 1),
        (0, Reason::TimedOut("message incomplete"), 1),
        (1, Reason::PeerClosed, 0),
        (1, Reason::ClosedByServer, 0),
        (1, Reason::Limit("namespaces.connections"), 1),
        (1, Reason::Limit("buffer_bytes_max"), 100),
        (1, Reason::Limit("outbound_bytes_max"), 100),
    ];
    let mut it = open_reading(Script::default());
    for (messages, why, pause_ms) in table {
        it.connection.incoming.messages = messages;
        let words = why.to_string();
        let pause = it.connection.pause_after(&End::Closed(why));
        assert_eq!(pause, Duration::from_millis(pause_ms), "{words}");
    }
}

#[test]
fn a_message_must_be_finished_in_time() {
    let mut it = open(PATIENT, Script::default());
    it.begins_a_message();
    assert_eq!(it.turn(2000), "32000");
    assert_eq!(it.turn(31_999), "32000");
    it.arrives("x");
    assert_eq!(
        it.turn(32_000),
        "32000",
        "bytes that waited in the socket count first"
    );
    assert_eq!(it.turn(32_000), "timed out: message incomplete");
    let mut it = open(PATIENT, Script::default());
    it.begins_a_message();
    it.turn(2000);
    it.script().needs_bytes = 0;
    assert_eq!(it.turn(3000), "no time", "finished");
    assert_eq!(it.turn(40_000), "no time");
}

#[test]
fn a_message_has_time_while_nothing_is_read() {
    let mut it = open(
        PATIENT,
        Script {
            answer: vec![0; WRITE_HIGH_BYTES],
            ..Script::default()
        },
    );
    it.begins_a_message();
    assert_eq!(it.turn(2000), "no time");
    assert_eq!(it.turn(40_000), "no time");
    it.takes(usize::MAX);
    it.turn(40_000);
    assert_eq!(it.turn(40_000), "70000");
    assert_eq!(it.script().told, ["open", "bytes", "excused"]);
    assert_eq!(it.turn(70_000), "timed out: message incomplete");
    // The end of the stream is not a message.
    let mut it = open(
        PATIENT,
        Script {
            answer: vec![0; 9],
            ..Script::default()
        },
    );
    it.begins_a_message();
    it.turn(2000);
    it.arrives("");
    assert_eq!(it.turn(3000), "13000");
    assert_eq!(it.turn(13_000), "peer closed");
}

#[test]
fn a_peer_has_ten_seconds_to_take_the_rest() {
    let mut it = open(
        PATIENT,
        Script {
            ends: true,
            answer: vec![0; 9],
            ..Script::default()
        },
    );
    it.arrives("x");
    assert_eq!(it.turn(2000), "12000");
    assert_eq!(it.turn(11_999), "12000");
    assert_eq!(it.turn(12_000), "session ended");
    let mut it = open(
        PATIENT,
        Script {
            ends: true,
            answer: vec![0; 9],
            ..Script::default()
        },
    );
    it.arrives("x");
    it.turn(2000);
    it.takes(9);
    assert_eq!(it.turn(3000), "session ended", "it has taken all");
    // The connection waits for the disk, not for the peer.
    let mut it = open(
        PATIENT,
        Script {
            ends: true,
            commands: 1,
            ..Script::default()
        },
    );
    *it.desk.goes.lock().unwrap() = Visited::UntilRung;
    it.arrives("x");
    assert_eq!(it.turn(2000), "7000", "only the watch");
    assert_eq!(it.turn(100_000), "105000");
}

#[test]
fn a_peer_has_a_second_to_take_something_while_the_daemon_stops() {
    let mut it = open(
        PATIENT,
        Script {
            answer: vec![0; 9],
            ..Script::default()
        },
    );
    it.arrives("x");
    it.turn(2000);
    it.stopping = true;
    assert_eq!(it.turn(3000), "a turn", "it has looked for more");
    assert_eq!(it.turn(3000), "4000");
    it.takes(1);
    it.turn(3999);
    assert_eq!(it.turn(4000), "4999", "since it took something last");
    assert_eq!(
        it.turn(4999),
        "timed out: not reading while the daemon stops"
    );
    assert_eq!(it.script().told, ["open", "bytes", "shutdown"]);
    // A reply that waits for the disk gets more time.
    let mut it = open(PATIENT, Script::default());
    it.waits_for_commit(7, 9);
    it.stopping = true;
    assert_eq!(it.turn(3000), "a turn");
    assert_eq!(it.turn(3000), "13000");
    it.desk
        .durable
        .store(7, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(
        it.turn(12_999),
        "13999",
        "the peer has its second from then on"
    );
    it.takes(usize::MAX);
    assert_eq!(it.turn(13_000), "shutting down");
}

#[test]
fn what_a_peer_has_sent_when_the_daemon_stops_is_read_before_the_goodbye() {
    let mut it = open_reading(Script {
        commands: 1,
        ..Script::default()
    });
    // The kernel has not reported the bytes.
    it.wire().arrives.push_back(Ok(b"x".to_vec()));
    it.stopping = true;
    assert_eq!(it.turn(3000), "a turn");
    assert_eq!(it.turn(3000), "shutting down");
    assert_eq!(it.script().told, ["open", "bytes", "shutdown"]);
    // A peer that continues to send gets a limited time.
    let mut it = open_reading(Script::default());
    it.stopping = true;
    for at in [3000, 3100, 3199] {
        it.arrives("x");
        it.wire().is_drained_by_short_reads = false;
        it.wire().arrives.push_back(Ok(b"y".to_vec()));
        it.connection.notice(true, false, false);
        assert_eq!(it.turn(at), "a turn");
    }
    it.arrives("x");
    assert_eq!(it.turn(3200), "shutting down");
    // A command that waits for its turn delays the goodbye by as much.
    let mut it = open_reading(Script {
        commands: 1,
        ..Script::default()
    });
    *it.desk.goes.lock().unwrap() = Visited::UntilRung;
    it.arrives("x");
    it.stopping = true;
    assert_eq!(it.turn(3000), "3200");
    *it.desk.goes.lock().unwrap() = Visited::All;
    it.connection.rung();
    assert_eq!(it.turn(3100), "a turn");
    assert_eq!(it.turn(3100), "shutting down");
}

#[test]
fn a_handshake_must_be_complete_in_time() {
    let shaking = |steps: Vec<io::Result<bool>>| {
        let it = InHand::new(BOUNDS, Script::default());
        it.wire().shakes = steps.into();
        it
    };
    let mut it = shaking(vec![Ok(false), Ok(false), Ok(false)]);
    assert_eq!(it.turn(1000), "6000");
    assert!(!it.connection.waits_to_write());
    it.wire().has_unwritten = true;
    assert_eq!(it.turn(5999), "6000");
    assert!(
        it.connection.waits_to_write(),
        "the kernel takes no more of our part"
    );
    assert_eq!(it.turn(6000), "no handshake: TimedOut");
    // Received bytes restart the timeout, at most four times.
    let mut it = shaking(vec![Ok(false), Ok(false), Ok(false), Ok(false), Ok(false)]);
    it.turn(1000);
    for (at, until) in [
        (5000, "10000"),
        (9000, "14000"),
        (14_000, "19000"),
        (18_000, "21000"),
    ] {
        it.connection.notice(true, false, false);
        assert_eq!(it.turn(at), until);
    }
    it.wire().shakes.push_back(Ok(false));
    it.connection.notice(true, false, false);
    assert_eq!(it.turn(21_000), "no handshake: TimedOut");
    let mut it = shaking(vec![Ok(false)]);
    it.stopping = true;
    assert_eq!(it.turn(1000), "shutting down");
    assert_eq!(
        shaking(vec![Err(io::ErrorKind::InvalidData.into())]).turn(1000),
        "no handshake: InvalidData"
    );
    let silent = shaking(vec![Err(io::ErrorKind::ConnectionAborted.into())]).turn(1000);
    assert_eq!(
        silent,
        Reason::PeerClosed.to_string(),
        "a peer that left without a byte is no failed handshake"
    );
    let mut it = shaking(vec![Ok(false)]);
    it.turn(1000);
    assert!(it.script().told.is_empty());
    assert_eq!(it.turn(6000), "no time");
    assert_eq!(it.script().told, ["open"], "complete, even if late");
}

#[test]
fn failed_logins_are_wrong_passwords_and_strangers() {
    let table = [
        (End::Closed(Reason::WrongPassword), true),
        (End::Closed(Reason::PeerClosed), false),
        (
            End::NoHandshake(io::ErrorKind::PermissionDenied.into()),
            true,
        ),
        (End::NoHandshake(io::ErrorKind::TimedOut.into()), false),
    ];
    for (end, is_failed) in table {
        assert_eq!(end.is_failed_login(), is_failed, "{end:?}");
    }
}

#[test]
fn new_limits_are_for_new_connections() {
    let it = InHand::open(Script::default());
    let shared = it.connection.shared.clone();
    shared.limit(Bounds {
        unacknowledged_max: 77,
        ..BOUNDS
    });
    assert_eq!(shared.bounds.unacknowledged_max, BOUNDS.unacknowledged_max);
    assert_eq!(shared.renewed().bounds.unacknowledged_max, 77);
    assert_eq!(shared.renewed().renewed().bounds.unacknowledged_max, 77);
}

/// In release builds it is counted, and gets its turn.
#[test]
#[cfg_attr(
    debug_assertions,
    should_panic(expected = "a connection was neglected")
)]
fn a_connection_that_nobody_rings_is_noticed() {
    let mut it = open(
        BOUNDS,
        Script {
            commands: 1,
            ..Script::default()
        },
    );
    *it.desk.goes.lock().unwrap() = Visited::UntilRung;
    it.arrives("x");
    assert_eq!(it.turn(2000), "7000");
    assert_eq!(it.turn(7000), "12000", "it must still wait");
    *it.desk.goes.lock().unwrap() = Visited::All;
    it.connection.rung();
    it.connection.work.visited = Visited::UntilRung;
    assert_eq!(it.turn(12_000), "17000", "it was woken in time");
    it.turn(17_000);
    assert_eq!(it.traffic().forgotten, 1);
}
