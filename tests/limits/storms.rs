//! Fleets that come back at once, from far away: each step of a handshake takes a round trip, and a peer that is cut
//! begins anew, as libzmq does.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::http::Http;
use crate::common::zmtp::{Dealer, frame, greeting, half_open, message, ready};
use crate::common::{daemon, socket, wait_until};
use crate::common::{eventmq, spiderq};

/// What a peer sends, and how many bytes of an answer it then waits for at least.
type Step = (Vec<u8>, usize);

const ROUND_TRIP: Duration = Duration::from_millis(100);

/// How long libzmq waits before it connects again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Clients: more than one round of handshakes takes.
fn fleet_size() -> usize {
    std::env::var("WINDLASS_TEST_STORM").map_or(600, |size| size.parse().unwrap())
}

/// A peer far away.
struct Distant<'a> {
    address: SocketAddr,
    steps: &'a [Step],
    stream: Option<TcpStream>,
    /// Steps done.
    done: usize,
    /// When the next step begins: a round trip after the answer to the last one.
    due: Instant,
    /// Bytes of the answer that are still missing; 0 between two steps.
    missing: usize,
    cuts: usize,
}

impl<'a> Distant<'a> {
    fn new(address: SocketAddr, steps: &'a [Step]) -> Self {
        let due = Instant::now() + ROUND_TRIP;
        Self {
            address,
            steps,
            stream: None,
            done: 0,
            due,
            missing: 0,
            cuts: 0,
        }
    }

    fn is_in(&self) -> bool {
        self.done == self.steps.len()
    }

    /// Does what it can do now.
    fn go_on(&mut self) {
        if self.try_step().is_err() {
            let due = Instant::now() + AGAIN_AFTER + ROUND_TRIP;
            *self = Self {
                due,
                cuts: self.cuts + 1,
                ..Self::new(self.address, self.steps)
            };
        }
    }

    fn try_step(&mut self) -> std::io::Result<()> {
        if self.is_in() || Instant::now() < self.due {
            return Ok(());
        }
        if self.stream.is_none() {
            let stream = socket(self.address)?;
            stream.set_nonblocking(true)?;
            self.stream = Some(stream);
            self.due = Instant::now() + ROUND_TRIP;
            return Ok(());
        }
        let (say, hear) = &self.steps[self.done];
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        if self.missing == 0 {
            stream.write_all(say)?;
            self.missing = *hear;
        }
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => self.missing = self.missing.saturating_sub(read),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if self.missing == 0 {
            self.done += 1;
            self.due = Instant::now() + ROUND_TRIP;
        }
        Ok(())
    }
}

/// Lets a fleet connect at once. Returns how often peers were cut before all were in.
fn storm(address: SocketAddr, steps: &[Step]) -> usize {
    let begun = Instant::now();
    let mut fleet: Vec<_> = (0..fleet_size())
        .map(|_| Distant::new(address, steps))
        .collect();
    wait_until("all are in", || {
        fleet.iter_mut().for_each(Distant::go_on);
        fleet.iter().all(Distant::is_in)
    });
    println!("{address}: {} peers in {:?}", fleet.len(), begun.elapsed());
    fleet.iter().map(|peer| peer.cuts).sum()
}

fn zmtp(socket_type: &str, last: Step) -> Vec<Step> {
    vec![(greeting("NULL"), 64), (ready(socket_type, b""), 2), last]
}

#[test]
fn a_fleet_whose_handshakes_take_long_comes_back_without_a_cut() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).eventmq("").start();
    let ping = [frame(1, b""), frame(0, spiderq::PING)].concat();
    assert_eq!(
        storm(daemon.address("spiderq"), &zmtp("DEALER", (ping, 1))),
        0,
        "spiderq"
    );
    let status = message(&[b"", b"eMQP/1.0", b"STATUS", b"1"]);
    assert_eq!(
        storm(daemon.address("eventmq"), &zmtp("DEALER", (status, 1))),
        0,
        "EventMQ"
    );
    let hello = b"HELLO {\"v\":2}\r\n".to_vec();
    assert_eq!(
        storm(daemon.address("faktory"), &[(Vec::new(), 1), (hello, 1)]),
        0,
        "FWP"
    );
}

#[test]
fn a_fleet_comes_back_beside_peers_that_stop_half_way() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[zmtp]\nhandshake_timeout = \"1h\"\n")
        .start();
    let address = daemon.address("spiderq");
    let _half_open = half_open(address, 100);
    let ping = [frame(1, b""), frame(0, spiderq::PING)].concat();
    assert_eq!(storm(address, &zmtp("DEALER", (ping, 1))), 0);
}

#[test]
fn more_connections_than_there_are_places_wait_for_the_silent_ones_to_leave() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[server]\nconnections_max = 40\nconnections_reserved = 0\n")
        .start();
    let silent: Vec<_> = (0..40)
        .map(|_| socket(daemon.address("gearman")).unwrap())
        .collect();
    let ping = [frame(1, b""), frame(0, spiderq::PING)].concat();
    let steps = zmtp("DEALER", (ping, 1));
    let mut fleet: Vec<_> = (0..30)
        .map(|_| Distant::new(daemon.address("spiderq"), &steps))
        .collect();
    wait_until("all are in", || {
        fleet.iter_mut().for_each(Distant::go_on);
        fleet.iter().all(Distant::is_in)
    });
    assert_eq!(fleet.iter().map(|peer| peer.cuts).sum::<usize>(), 0);
    drop(silent);
}

/// A report costs much and has few bytes.
#[test]
fn reports_that_a_peer_asked_for_before_it_left_are_not_made() {
    const REPORTS: usize = 2_000;
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).eventmq("").start();
    let mut client = eventmq::Peer::connect(daemon.address("eventmq"), "client");
    // More than one page of a report.
    (0..300).for_each(|queue| client.request("id", &format!("queue-{queue}"), "", "[]"));
    let status = message(&[b"", b"eMQP/1.0", b"STATUS", b"1"]).repeat(REPORTS);
    for _ in 0..10 {
        let mut peer = Dealer::connect(daemon.address("eventmq"), b"");
        let _ = peer.say(&status);
    }
    let http = Http(daemon.address("http"));
    let others = || {
        let connections = http.get("/api/v1/connections").json();
        let connections = connections["connections"].as_array().unwrap();
        connections
            .iter()
            .filter(|connection| connection["protocol"] == "eventmq")
            .count()
    };
    wait_until("the peers are gone", || others() == 1);
    let metrics = http.get("/metrics");
    let commands = metrics
        .text()
        .lines()
        .find(|line| line.starts_with("windlass_commands_total{protocol=\"eventmq\"}"));
    let commands: usize = commands
        .unwrap()
        .split(' ')
        .next_back()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        commands < 10 * REPORTS / 2,
        "{commands} messages were carried out"
    );
}
