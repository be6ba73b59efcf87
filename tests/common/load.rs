//! Gearman clients that submit, and what was acknowledged to them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::{Peer, wait_until};

/// Clients that submit jobs one at a time, and what was acknowledged.
pub struct Load {
    next: AtomicU64,
    acknowledged: Mutex<BTreeSet<u64>>,
    stop: AtomicBool,
}

impl Load {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            next: AtomicU64::new(0),
            acknowledged: Mutex::default(),
            stop: AtomicBool::new(false),
        })
    }

    pub fn acknowledged(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Starts this many clients. A client ends with its connection, or begins anew if `again`.
    pub fn start(
        self: &Arc<Self>,
        clients: usize,
        address: SocketAddr,
        again: bool,
    ) -> Vec<JoinHandle<()>> {
        self.stop.store(false, Ordering::Relaxed);
        let client = |load: Arc<Self>| {
            move || {
                while !load.stop.load(Ordering::Relaxed) {
                    load.submit(address);
                    if !again {
                        return;
                    }
                }
            }
        };
        (0..clients)
            .map(|_| thread::spawn(client(Arc::clone(self))))
            .collect()
    }

    /// Submits until the connection ends.
    pub fn submit(&self, address: SocketAddr) {
        let Ok(mut peer) = Peer::connect(address) else {
            return;
        };
        while !self.stop.load(Ordering::Relaxed) {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            // Some have bodies that the table keeps in pieces.
            let mut body = id.to_string().into_bytes();
            if id % 50 == 7 {
                body.push(b' ');
                body.resize(100_000, b'x');
            }
            if peer.submit("load", "", body).is_err() {
                return;
            }
            self.acknowledged.lock().unwrap().insert(id);
        }
    }

    pub fn wait_for_more(&self, more: usize) {
        let goal = self.acknowledged() + more;
        wait_until("jobs are acknowledged", || self.acknowledged() >= goal);
    }

    pub fn end(&self, clients: Vec<JoinHandle<()>>) {
        self.stop.store(true, Ordering::Relaxed);
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
    }

    /// Works all jobs off: each acknowledged one is there, and none is there twice.
    pub fn check(&self, address: SocketAddr) {
        let mut peer = Peer::connect(address).unwrap();
        peer.can_do("load").unwrap();
        let mut seen = BTreeSet::new();
        while let Some(job) = peer.grab().unwrap() {
            let text = String::from_utf8(job.workload.to_vec()).unwrap();
            let id: u64 = text.split(' ').next().unwrap().parse().unwrap();
            assert!(seen.insert(id), "job {id} is there twice");
            peer.complete(&job.handle).unwrap();
        }
        let lost: Vec<_> = self
            .acknowledged
            .lock()
            .unwrap()
            .difference(&seen)
            .copied()
            .collect();
        assert!(lost.is_empty(), "acknowledged but lost: {lost:?}");
    }
}
