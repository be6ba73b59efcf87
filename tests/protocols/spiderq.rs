//! spiderq on the real daemon: restarts, and hostile peers. Stock clients are in `interop_spiderq`.

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use windlass_testkit::daemon::Daemon;

use crate::common;
use crate::common::bystander::Bystander;
use crate::common::spiderq::{
    ADDED, Bare, EMPTY, FLUSH, FLUSHED, FOREVER_MS, Lease, PING, PONG, REPAID, Status, add, lend,
    lookup, repay,
};
use crate::common::zmtp::{
    COMMAND, Dealer, LONG, MORE, command, frame, greeting, half_open, impossible_frames,
};
use crate::common::{daemon, wait_until};

// ---- restarts -------------------------------------------------------------------------------------------------------

/// The first byte of a reply that lends.
const LENT: u8 = 0x06;

/// A day of a cycle queue, as its replies: entries are added, lent, repaid in every way, and taken again until none is
/// left. `between` is called between any two requests.
fn a_day(mut between: impl FnMut(), mut ask: impl FnMut(&[u8]) -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut replies = Vec::new();
    let mut say = |request: &[u8]| {
        between();
        let reply = ask(request);
        let mut known = reply.clone();
        if reply[0] == LENT {
            // The upper twenty bits of a lend key identify the daemon's start.
            known[1..3].fill(0);
            known[3] &= 0x0F;
        }
        replies.push(known);
        reply
    };
    for number in 0..12 {
        assert_eq!(say(&add(&format!("entry {number}"), &[number; 3])), ADDED);
    }
    let take = lend(FOREVER_MS, false);
    let cycle = [
        Status::Reward,
        Status::Penalty,
        Status::Reward,
        Status::Drop,
        Status::Front,
        Status::Reward,
    ];
    for round in 0..3 {
        let leases: Vec<_> = (0..5).map(|_| Lease::of(&say(&take)).unwrap()).collect();
        // Some are repaid in another order than they were taken in.
        for (lease, status) in leases.iter().rev().zip(cycle.iter().cycle().skip(round)) {
            assert_eq!(say(&repay(lease, *status)), REPAID);
        }
        // The lease has been used up.
        assert_eq!(say(&repay(&leases[0], Status::Front)), [0x05]);
    }
    while let Some(lease) = Lease::of(&say(&take)) {
        assert_eq!(say(&repay(&lease, Status::Drop)), REPAID);
    }
    for number in 0..12 {
        // Every value still exists, and none is lent again.
        assert_eq!(say(&lookup(&format!("entry {number}")))[0], 0x0D);
        assert_eq!(say(&add(&format!("entry {number}"), b"")), [0x03]);
    }
    assert_eq!(say(&take), EMPTY);
    replies
}

fn a_day_with_kills(every: u32) -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let daemon = std::cell::RefCell::new(daemon(dir.path()).start());
    let peer = std::cell::RefCell::new(Bare::connect(daemon.borrow().address("spiderq")));
    let mut requests = 0;
    let kill = || {
        requests += 1;
        if requests % every == 0 {
            // A lease is granted before it is written to disk; the flush ensures that it is there.
            assert_eq!(peer.borrow_mut().ask(FLUSH), FLUSHED);
            daemon.borrow_mut().kill();
            daemon.borrow_mut().restart();
            *peer.borrow_mut() = Bare::connect(daemon.borrow().address("spiderq"));
        }
    };
    a_day(kill, |request| peer.borrow_mut().ask(request))
}

#[test]
fn kill_9_changes_nothing() {
    let undisturbed = a_day_with_kills(u32::MAX);
    for every in [3, 7] {
        let disturbed = a_day_with_kills(every);
        for (at, (disturbed, undisturbed)) in disturbed.iter().zip(&undisturbed).enumerate() {
            assert_eq!(
                disturbed, undisturbed,
                "reply {at}, killed after every {every} requests"
            );
        }
        assert_eq!(disturbed.len(), undisturbed.len());
    }
}

#[test]
fn each_address_serves_its_cycle_queue_and_no_other_protocol_shares_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let more = "[spiderq]\nlisten = [\"tcp://127.0.0.1:0\"]\nqueue = \"a\"\n\
                [[spiderq.more]]\nlisten = [\"127.0.0.1:0\", \"localhost:0\"]\nqueue = \"b\"\n";
    let mut daemon = daemon(dir.path()).set(more).start();
    let addresses = daemon.addresses("spiderq");
    assert!(addresses.len() >= 3, "{addresses:?}");
    let mut peers: Vec<Bare> = addresses.into_iter().map(Bare::connect).collect();
    assert_eq!(peers[0].ask(&add("x", b"in a")), ADDED);
    assert_eq!(peers[1].ask(&add("x", b"in b")), ADDED);
    assert_eq!(peers[2].lease(false).unwrap().value, b"in b");
    assert_eq!((peers[0].count(), peers[1].count()), (1, 0));
    let mut gearman = common::Peer::connect(daemon.address("gearman")).unwrap();
    assert!(
        gearman.submit("a", "", b"not here".to_vec()).is_err(),
        "a cycle is no function"
    );
    daemon.signal("TERM");
    assert!(daemon.wait().success());
}

// ---- hostile peers --------------------------------------------------------------------------------------------------

/// A client that is served all the while.
fn bystander(address: SocketAddr) -> Bystander {
    let mut dealer = Dealer::connect(address, b"bystander");
    let ping = |dealer: &mut Dealer| assert_eq!(dealer.ask(PING).unwrap(), PONG);
    Bystander::new(
        move |_| ping(&mut dealer),
        move || ping(&mut Dealer::connect(address, b"")),
    )
}

/// A daemon with these keys, and its address for spiderq.
fn served(keys: &str) -> (Daemon, SocketAddr, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).set(keys).start();
    let address = daemon.address("spiderq");
    (daemon, address, dir)
}

#[test]
fn impossible_frames_end_the_connection() {
    let (_daemon, address, _dir) = served("");
    let bystander = bystander(address);
    let within = [&[LONG | MORE][..], &(60_u64 << 20).to_be_bytes()].concat();
    for (what, bytes) in impossible_frames() {
        let mut dealer = Dealer::connect(address, b"");
        // The daemon may have closed the connection already.
        let _ = dealer.say(&bytes);
        assert!(dealer.is_hung_up_on(), "{what}");
        bystander.is_served();
    }
    // A peer that only announces a large frame costs nothing, however long it waits.
    let mut slow: Vec<_> = (0..50).map(|_| Dealer::connect(address, b"")).collect();
    slow.iter_mut()
        .for_each(|dealer| dealer.say(&within).unwrap());
    bystander.is_served();
}

#[test]
fn an_endless_message_ends_the_connection() {
    let (_daemon, address, _dir) =
        served("zmtp.parts_max = 65536\nzmtp.message_bytes_max = \"1MiB\"");
    let bystander = bystander(address);
    let mut dealer = Dealer::connect(address, b"");
    let part = [
        &[LONG | MORE][..],
        &100_000_u64.to_be_bytes(),
        &[0; 100_000],
    ]
    .concat();
    let said = (0..1000).take_while(|_| dealer.say(&part).is_ok()).count();
    assert!(said < 1000 || dealer.is_hung_up_on());
    assert!(dealer.is_hung_up_on());
    bystander.is_served();
}

#[test]
fn hundreds_of_half_open_greetings_block_no_client() {
    let (_daemon, address, _dir) = served("[zmtp]\nhandshake_timeout = \"1h\"\n");
    let bystander = bystander(address);
    let _half_open = half_open(address, 400);
    bystander.is_served();
}

#[test]
fn unfinished_greetings_time_out() {
    let (_daemon, address, _dir) = served("zmtp.handshake_timeout = \"50ms\"");
    let bystander = bystander(address);
    for begun in [&b"\xFF"[..], &greeting("NULL")] {
        let mut dealer = Dealer::reach(address).unwrap();
        dealer.say(begun).unwrap();
        assert!(dealer.is_hung_up_on());
    }
    bystander.is_served();
}

#[test]
fn a_peer_that_never_reads_delays_no_other() {
    let (_daemon, address, _dir) = served("");
    let bystander = bystander(address);
    let mut bare = Bare::connect(address);
    assert_eq!(bare.ask(&add("large", &vec![7; 1 << 20])), ADDED);
    let mut deaf: Vec<_> = (0..4).map(|_| Dealer::connect(address, b"")).collect();
    // Bytes behind a request are ignored: so few requests fill every buffer on the way.
    let padded = [&lookup("large")[..], &[0; 100_000]].concat();
    let request = [
        &frame(MORE, b"")[..],
        &[LONG],
        &(padded.len() as u64).to_be_bytes(),
        &padded,
    ]
    .concat();
    for dealer in &mut deaf {
        dealer
            .stream
            .set_write_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let said = (0..1000)
            .take_while(|_| dealer.say(&request).is_ok())
            .count();
        assert!(said < 1000, "100 MB were taken");
        bystander.is_served();
    }
    // A peer that reads late gets its answers, unless more of them wait than may.
    let mut late = Dealer::connect(address, b"");
    (0..16).for_each(|_| late.say(&request).unwrap());
    bystander.is_served();
    for _ in 0..16 {
        let reply = late.hear().unwrap();
        assert_eq!((reply[0], reply.len()), (0x0D, 5 + (1 << 20)));
    }
}

#[test]
fn of_two_peers_with_one_identity_the_newer_is_served() {
    let (_daemon, address, _dir) = served("");
    let bystander = bystander(address);
    let mut old = Dealer::connect(address, b"worker");
    assert_eq!(old.ask(PING).unwrap(), PONG);
    old.say(&frame(0, &lend(FOREVER_MS, true))).unwrap();
    for _ in 0..3 {
        let mut new = Dealer::connect(address, b"worker");
        assert_eq!(new.ask(PING).unwrap(), PONG);
        assert!(old.is_hung_up_on());
        old = new;
    }
    // Peers that reconnect repeatedly under one identity stay connected, and are all served.
    let mut beside: Vec<Dealer> = (0..20)
        .map(|_| Dealer::connect(address, b"worker"))
        .collect();
    for dealer in beside.iter_mut().chain([&mut old]) {
        assert_eq!(dealer.ask(PING).unwrap(), PONG);
    }
    // The replaced peer no longer waits: new entries go to others.
    let mut bare = Bare::connect(address);
    assert_eq!(bare.ask(&add("x", b"")), ADDED);
    assert!(bare.lease(false).is_some());
    bystander.is_served();
}

#[test]
fn a_waiter_that_leaves_waits_no_more() {
    let (_daemon, address, _dir) = served("");
    let mut bare = Bare::connect(address);
    for number in 0..20 {
        let mut waiter = Dealer::connect(address, b"");
        waiter.say(&frame(0, &lend(FOREVER_MS, true))).unwrap();
        assert_eq!(
            waiter.ask(PING).unwrap(),
            PONG,
            "it waits, and is served beside that"
        );
        waiter.stream.shutdown(Shutdown::Both).unwrap();
        // The daemon may not notice at once: until then, new entries are lent to the closed connection.
        let mut tries = 0;
        wait_until("it is gone", || {
            tries += 1;
            assert_eq!(bare.ask(&add(&format!("{number} {tries}"), b"")), ADDED);
            bare.lease(false).is_some()
        });
    }
}

#[test]
fn release_on_disconnect_returns_lent_entries() {
    let (_daemon, address, _dir) =
        served("[spiderq]\nlisten = [\"127.0.0.1:0\"]\nrelease_on_disconnect = true\n");
    let mut bare = Bare::connect(address);
    assert_eq!(bare.ask(&add("x", b"")), ADDED);
    let mut worker = Dealer::connect(address, b"");
    assert!(Lease::of(&worker.ask(&lend(FOREVER_MS, false)).unwrap()).is_some());
    assert_eq!(bare.ask(&lend(FOREVER_MS, false)), EMPTY);
    drop(worker);
    // Waits until the entry has returned.
    assert_eq!(bare.lease(true).unwrap().key, "x");
}

#[test]
fn mechanisms_must_agree() {
    let plain = "[spiderq]\nlisten = [\"127.0.0.1:0\"]\nuser = \"u\"\npassword = \"secret\"\n";
    let (_open, open_address, _dir) = served("");
    let (_closed, closed_address, _other_dir) = served(plain);
    for (address, theirs) in [
        (open_address, "PLAIN"),
        (open_address, "CURVE"),
        (closed_address, "NULL"),
    ] {
        let mut dealer = Dealer::reach(address).unwrap();
        dealer.say(&greeting(theirs)).unwrap();
        assert!(dealer.is_hung_up_on(), "{theirs}");
    }
    for (user, password) in [("u", "wrong"), ("v", "secret"), ("", "")] {
        let mut dealer = Dealer::reach(closed_address).unwrap();
        dealer.say(&greeting("PLAIN")).unwrap();
        let login = [user, password]
            .map(|text| frame(u8::try_from(text.len()).unwrap(), text.as_bytes())[..].to_vec());
        let login: Vec<u8> = login
            .iter()
            .flat_map(|it| [&it[..1], &it[2..]].concat())
            .collect();
        dealer.say(&command("HELLO", &login)).unwrap();
        dealer.hear_bytes(64).unwrap();
        let (flags, body) = dealer.hear_frame().unwrap();
        assert_eq!(
            (flags, &body[..]),
            (COMMAND, &b"\x05ERROR\x03400"[..]),
            "{user}"
        );
        assert!(dealer.is_hung_up_on());
    }
    // Frames without ZeroMQ cannot carry a password.
    let mut bare = Dealer::reach(closed_address).unwrap();
    bare.stream.write_all(PING).unwrap();
    let mut heard = Vec::new();
    let _ = std::io::Read::read_to_end(&mut bare.stream, &mut heard);
    assert!(!heard.contains(&PONG[0]), "{heard:?}");
}
