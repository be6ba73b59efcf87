//! Gearman workers of a queue whose jobs are ordered by key. Whatever happens to daemons, jobs of a key start in order,
//! and one at a time.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Peer, wait_until};

/// The configuration of the queue.
pub const ORDERED: &str = "[queues.ordered]\nkey = { prefix = '|' }\nordered = true\n";
const QUEUE: &str = "ordered";

/// A key, and the number of a job among those of its key.
type Job = (String, u64);

#[derive(Default)]
struct Ledger {
    /// How many jobs of each key have ended.
    ended: BTreeMap<String, u64>,
    /// The daemon that has handed out a job of a key, and how often that was killed before.
    in_hand: BTreeMap<String, (usize, u64)>,
    /// By daemon.
    kills: BTreeMap<usize, u64>,
    faults: Vec<String>,
}

impl Ledger {
    fn kills_of(&self, daemon: usize) -> u64 {
        self.kills.get(&daemon).copied().unwrap_or_default()
    }

    fn begin(&mut self, (key, number): &Job, daemon: usize) {
        let ended = self.ended.entry(key.clone()).or_default();
        if *number > *ended {
            let fault = format!("job {number} of {key} began, and job {ended} has not ended");
            self.faults.push(fault);
        }
        let kills = self.kills_of(daemon);
        if let Some((holder, before)) = self.in_hand.insert(key.clone(), (daemon, kills))
            && before == self.kills_of(holder)
        {
            self.faults.push(format!(
                "two jobs of {key} are in hand, one of them is {number}"
            ));
        }
    }

    fn end(&mut self, (key, number): &Job) {
        self.in_hand.remove(key);
        let ended = self.ended.entry(key.clone()).or_default();
        *ended = (*ended).max(number + 1);
    }
}

/// The jobs, and what workers have seen of them.
pub struct InOrder {
    keys: u64,
    jobs: u64,
    addresses: Mutex<Vec<SocketAddr>>,
    ledger: Mutex<Ledger>,
    stop: AtomicBool,
}

impl InOrder {
    /// Submits this many jobs of each of this many keys to the first of these daemons.
    pub fn submit(keys: u64, jobs: u64, daemons: Vec<SocketAddr>) -> Arc<Self> {
        Self::submit_long(keys, jobs, daemons, 0)
    }

    /// The same, with bodies of this many bytes and a few more.
    pub fn submit_long(keys: u64, jobs: u64, daemons: Vec<SocketAddr>, bytes: usize) -> Arc<Self> {
        let mut client = Peer::connect(daemons[0]).unwrap();
        for number in 0..jobs {
            for key in 0..keys {
                client
                    .submit(
                        QUEUE,
                        "",
                        format!("key-{key}|{number}{}", " ".repeat(bytes)),
                    )
                    .unwrap();
            }
        }
        let addresses = Mutex::new(daemons);
        Arc::new(Self {
            keys,
            jobs,
            addresses,
            ledger: Mutex::default(),
            stop: AtomicBool::new(false),
        })
    }

    /// Starts a worker of this daemon, which connects again and again.
    pub fn work(self: &Arc<Self>, daemon: usize) -> JoinHandle<()> {
        let all = Arc::clone(self);
        thread::spawn(move || {
            while !all.stop.load(Ordering::Relaxed) {
                let _ = all.work_once(daemon);
                thread::sleep(Duration::from_millis(5));
            }
        })
    }

    fn work_once(&self, daemon: usize) -> io::Result<()> {
        let address = self.addresses.lock().unwrap()[daemon];
        let mut worker = Peer::connect(address)?;
        worker.can_do(QUEUE)?;
        while !self.stop.load(Ordering::Relaxed) {
            // A job that other workers may not have yet is in hand for a moment.
            thread::sleep(Duration::from_millis(1));
            let Some(assigned) = worker.grab()? else {
                continue;
            };
            let text = String::from_utf8(assigned.workload.to_vec()).unwrap();
            let (key, number) = text.split_once('|').unwrap();
            let job = (key.to_owned(), number.trim_end().parse().unwrap());
            self.ledger.lock().unwrap().begin(&job, daemon);
            thread::sleep(Duration::from_millis(1));
            self.ledger.lock().unwrap().end(&job);
            worker.complete(&assigned.handle)?;
        }
        Ok(())
    }

    fn ended(&self) -> u64 {
        self.ledger.lock().unwrap().ended.values().sum()
    }

    /// Waits until a part of all jobs has ended: this many of a hundred.
    pub fn wait_for(&self, percent: u64) {
        let goal = self.keys * self.jobs * percent / 100;
        wait_until(&format!("{goal} jobs have ended"), || self.ended() >= goal);
    }

    /// A daemon has been killed: its workers have nothing in hand that counts.
    pub fn killed(&self, daemon: usize) {
        *self.ledger.lock().unwrap().kills.entry(daemon).or_default() += 1;
    }

    /// It is there again, at another address.
    pub fn restarted(&self, daemon: usize, address: SocketAddr) {
        self.addresses.lock().unwrap()[daemon] = address;
    }

    /// Waits until all jobs have ended. Some have run again: those whose end was not on the disk when a daemon was killed.
    pub fn finish(&self, workers: Vec<JoinHandle<()>>) {
        self.wait_for(100);
        self.stop.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        let ledger = self.ledger.lock().unwrap();
        assert_eq!(ledger.faults, [""; 0]);
    }
}
