//! A link that can be cut: a relay between a daemon and those that link to it.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use windlass_testkit::daemon::free_port;

/// How often a relay that passes nothing on looks whether it ends.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Passes bytes on between its port and a daemon's.
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// In the order in which they were opened.
    open: Mutex<Vec<Arc<Connection>>>,
    /// Nothing is passed on.
    is_silent: AtomicBool,
    stop: AtomicBool,
}

/// Both ends of a connection.
struct Connection {
    ends: [TcpStream; 2],
    has_ended: AtomicBool,
}

impl Connection {
    fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.ends
            .iter()
            .for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }

    /// Passes bytes on in one direction until either end is closed, and closes both.
    fn pass_on(&self, from: usize, shared: &Shared) {
        let (mut from, mut to, mut chunk) =
            (&self.ends[from], &self.ends[1 - from], vec![0; 64 << 10]);
        while let Ok(read) = from.read(&mut chunk) {
            while shared.is_silent.load(Ordering::Relaxed) {
                thread::sleep(LOOK_EVERY);
            }
            if read == 0 || to.write_all(&chunk[..read]).is_err() {
                break;
            }
        }
        self.end();
    }
}

impl Relay {
    /// Starts a relay to a port on loopback, where nothing need listen yet.
    pub fn to(target: u16) -> Self {
        let port = free_port();
        let (listener, shared) = (
            TcpListener::bind(("127.0.0.1", port)).unwrap(),
            Arc::new(Shared::default()),
        );
        let for_thread = Arc::clone(&shared);
        let thread = thread::spawn(move || accept(&listener, target, &for_thread));
        Self {
            port,
            shared,
            thread: Some(thread),
        }
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.shared
            .open
            .lock()
            .unwrap()
            .drain(..)
            .for_each(|connection| connection.end());
    }

    /// Ends the oldest connection.
    pub fn cut_one(&self) {
        let mut open = self.shared.open.lock().unwrap();
        open.retain(|connection| !connection.has_ended.load(Ordering::Relaxed));
        if !open.is_empty() {
            open.remove(0).end();
        }
    }

    /// Passes nothing on in either direction, and leaves all connections open, while `yes`.
    pub fn silence(&self, yes: bool) {
        self.shared.is_silent.store(yes, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.silence(false);
        self.cut();
        // Wakes the thread.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn accept(listener: &TcpListener, target: u16, shared: &Arc<Shared>) {
    for near in listener.incoming() {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let (Ok(near), Ok(far)) = (near, TcpStream::connect(("127.0.0.1", target))) else {
            continue;
        };
        let connection = Arc::new(Connection {
            ends: [near, far],
            has_ended: AtomicBool::new(false),
        });
        for from in [0, 1] {
            connection.ends[from].set_nodelay(true).unwrap();
            let (connection, shared) = (Arc::clone(&connection), Arc::clone(shared));
            thread::spawn(move || connection.pass_on(from, &shared));
        }
        shared.open.lock().unwrap().push(connection);
    }
}
