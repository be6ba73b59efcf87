//! Helpers for tests of this crate and of those that depend on it.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Level};
use windlass_engine::{ClientId, Codec, JobId, Priority, Protocol, Taken, Timestamp, Token};

use crate::waker::{ConnectionId, Home, WithMail};

/// The owner of a mailbox, on no thread.
pub fn nowhere() -> Home {
    Home {
        waker: Arc::new(WithMail::default()),
        connection: ConnectionId {
            index: 0,
            client: ClientId(1),
        },
    }
}

/// A job under a time-bound lease.
pub fn taken() -> Taken {
    Taken {
        id: JobId(1),
        token: Token(1),
        queue: Bytes::new(),
        protocol: Protocol::GEARMAN,
        priority: Priority::NORMAL,
        body: Bytes::new(),
        stored: None,
        codec: Codec::default(),
        name: Bytes::new(),
        meta: Bytes::new(),
        key: Bytes::new(),
        attempts: 1,
        failures: 0,
        failures_max: 0,
        failure: None,
        ready_at: Timestamp(1),
        until: Timestamp::NEVER,
        connection_bound: false,
        heard: false,
    }
}

/// With a single subscriber, a thread that has none would disable the callsites that it reaches
/// first, for all threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .map_or(Ok(bytes.len()), |mut lines| lines.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The text that this thread logs while `run` runs, from `INFO` on and without times.
pub fn captured(run: impl FnOnce()) -> String {
    captured_from(Level::INFO, run)
}

/// The same from another level on.
pub fn captured_from(level: Level, run: impl FnOnce()) -> String {
    LazyLock::force(&SECOND);
    crate::limited::own::begin();
    let written = Lines::default();
    let to = written.clone();
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .without_time();
    let subscriber = lines.with_writer(move || to.clone()).finish();
    tracing::subscriber::with_default(subscriber, run);
    let bytes = written
        .0
        .lock()
        .map(|lines| lines.clone())
        .unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
