//! How long a broker with many jobs does without a leader: the pause of the acknowledgements, at daemons that go on,
//! when the leader gets a signal.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::daemons::{Daemons, role};
use crate::common::faktory;
use crate::common::postgres::Postgres;
use crate::common::{Peer, from_env, wait_until};

/// Jobs of one command.
const AT_ONCE: u64 = 1_000;
/// Acknowledgements that show that the broker is at work.
const MANY: usize = 50;

/// The longest wait for a leader.
const PATIENCE: Duration = Duration::from_secs(55);

/// Clients that submit at daemons that go on, and when they were acknowledged.
struct Pulse {
    at: Arc<Mutex<Vec<Instant>>>,
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Pulse {
    fn start(addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        let (at, stop) = (
            Arc::<Mutex<Vec<Instant>>>::default(),
            Arc::<AtomicBool>::default(),
        );
        let client = |address| {
            let (at, stop) = (Arc::clone(&at), Arc::clone(&stop));
            // Its connection must outlive the leader.
            let mut peer = Peer::connect(address).unwrap();
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    match peer.submit("pulse", "", "body") {
                        Ok(_) => at.lock().unwrap().push(Instant::now()),
                        // A request in flight when the leader ended is unknown.
                        Err(why) => assert_eq!(why.kind(), ErrorKind::Other, "{why}"),
                    }
                }
            })
        };
        let clients = addresses.into_iter().map(client).collect();
        Self { at, stop, clients }
    }

    fn count(&self) -> usize {
        self.at.lock().unwrap().len()
    }

    fn wait_for_more(&self) {
        let goal = self.count() + MANY;
        wait_until("jobs are acknowledged", || self.count() >= goal);
    }

    /// Ends the clients. Returns how long the longest pause after `since` was. An orderly end is followed by more
    /// acknowledgements before the pause.
    fn longest_pause(self, since: Instant) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
        let mut at = self.at.lock().unwrap().clone();
        at.retain(|at| *at > since);
        at.sort_unstable();
        let pauses = at.iter().scan(since, |before, at| {
            Some(*at - std::mem::replace(before, *at))
        });
        pauses.max().unwrap()
    }
}

/// Pushes this many jobs of 100 bytes.
fn fill(address: SocketAddr, jobs: u64) {
    let mut fwp = faktory::Fwp::connect(address);
    for batch in 0..jobs.div_ceil(AT_ONCE) {
        let job = |number| {
            let id = batch * AT_ONCE + number;
            format!(
                r#"{{"jid":"jid{id:012}","jobtype":"Thumbnail","queue":"backlog","args":["s3://bucket/{id:040}"]}}"#
            )
        };
        let list: Vec<String> = (0..AT_ONCE).map(job).collect();
        assert_eq!(fwp.ask(&format!("PUSHB [{}]", list.join(","))), "{}");
    }
}

/// The pause when the leader gets a signal. Afterwards all daemons are there again.
fn pause(daemons: &mut Daemons, signal: &str) -> Duration {
    let all = 0..daemons.all.len();
    let leader = all
        .clone()
        .find(|number| role(&daemons[*number]) == "leading")
        .unwrap();
    let others: Vec<_> = all.filter(|number| *number != leader).collect();
    let pulse = Pulse::start(
        others
            .iter()
            .map(|number| daemons[*number].address("gearman")),
    );
    pulse.wait_for_more();
    let since = Instant::now();
    daemons[leader].signal(signal);
    daemons[leader].wait();
    while !others
        .iter()
        .any(|number| role(&daemons[*number]) == "leading")
    {
        assert!(
            since.elapsed() < PATIENCE,
            "no other daemon leads:\n{}",
            daemons.said_last()
        );
        thread::sleep(Duration::from_millis(5));
    }
    pulse.wait_for_more();
    let pause = pulse.longest_pause(since);
    daemons[leader].restart();
    wait_until("the daemon is linked again", || {
        role(&daemons[leader]) == "following"
    });
    pause
}

/// `WINDLASS_TEST_LEADS` changes of each kind, with `WINDLASS_TEST_LEAD_JOBS` jobs in the database.
#[test]
#[ignore = "a measurement: it wants a quiet machine, and takes minutes"]
fn time_to_lead() {
    let (rounds, jobs) = (
        from_env("WINDLASS_TEST_LEADS", 20),
        from_env("WINDLASS_TEST_LEAD_JOBS", 1_000_000),
    );
    let postgres = Postgres::with(&["fsync=on"]);
    let mut daemons = Daemons::with_lease(postgres.section(), "2s");
    (0..3).for_each(|_| daemons.add("[limits]\njobs_bytes_max = \"2GiB\""));
    fill(daemons[0].address("faktory"), jobs);
    for signal in ["KILL", "TERM"] {
        let mut pauses: Vec<Duration> = (0..rounds).map(|_| pause(&mut daemons, signal)).collect();
        pauses.sort_unstable();
        let at = |percent: usize| pauses[(pauses.len() * percent).div_ceil(100) - 1];
        println!(
            "{jobs} jobs, {rounds} times {signal}: p50 {:.2?}, p99 {:.2?}, max {:.2?}",
            at(50),
            at(99),
            at(100)
        );
    }
}
