//! The writer of the log: a separate thread takes lines from a bounded queue, so that no other
//! thread waits for the log's reader or disk. Lines that do not fit, or cannot be written, are
//! dropped and counted.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum bytes of queued lines.
const QUEUE_BYTES_MAX: usize = 4 << 20;

/// How long [`Sink::flush`] waits for the reader of the log.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Pause before retrying a full pipe or terminal that another process has made non-blocking.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// Lines to be written to the log.
#[derive(Debug)]
pub(super) struct Sink {
    state: Mutex<State>,
    filled: Condvar,
    emptied: Condvar,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// When the writer began to write its current line.
    writing_since: Option<Instant>,
}

impl Sink {
    pub(super) const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                lines: VecDeque::new(),
                bytes: 0,
                writing_since: None,
            }),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            dropped: AtomicU64::new(0),
        }
    }

    /// Queues a line if there is space.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.bytes + line.len() > QUEUE_BYTES_MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line.into());
        drop(state);
        self.filled.notify_one();
    }

    /// The number of lines dropped so far.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until everything is written, with a timeout in case the reader does not read.
    pub(super) fn flush(&self) {
        let mut state = self.lock();
        let begun = Instant::now();
        while state.writing_since.is_some() || !state.lines.is_empty() {
            let since = state.writing_since.map_or(begun, |since| since.min(begun));
            let left = FLUSH_MAX.saturating_sub(since.elapsed());
            if left.is_zero() {
                return;
            }
            (state, _) = self
                .emptied
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes lines forever. `write` writes to the log file.
    pub(super) fn run(&self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> ! {
        let (mut is_torn, mut reported) = (false, 0);
        loop {
            let line = self.next();
            // The rest of a partially written line is lost. Start the next one on a new line.
            let written = if is_torn {
                write_all(&mut write, b"\n")
            } else {
                Ok(())
            };
            match written.and_then(|()| write_all(&mut write, &line)) {
                Ok(()) => {
                    is_torn = false;
                    self.report(&mut reported);
                }
                Err(written) => {
                    is_torn |= written > 0;
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Logs that lines are missing, once there is space for that.
    fn report(&self, reported: &mut u64) {
        let dropped = self.dropped();
        if dropped > *reported && self.lock().bytes < QUEUE_BYTES_MAX / 2 {
            let lines = dropped - *reported;
            *reported = dropped;
            tracing::warn!(lines, "log output was blocked: some lines were dropped");
        }
    }

    /// Records that the last line is written, and waits for the next one.
    fn next(&self) -> Box<[u8]> {
        let mut state = self.lock();
        state.writing_since = None;
        if state.lines.is_empty() {
            self.emptied.notify_all();
        }
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= line.len();
                state.writing_since = Some(Instant::now());
                return line;
            }
            state = self
                .filled
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No holder of this lock can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes all bytes. On error, returns the number of bytes written.
fn write_all(
    write: &mut impl FnMut(&[u8]) -> io::Result<usize>,
    bytes: &[u8],
) -> Result<(), usize> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match write(rest) {
            Ok(0) => return Err(written),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(FULL_PAUSE),
            Err(_) => return Err(written),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

    use super::*;

    /// A sink whose writer receives the result of each write from the test, and reports the bytes.
    fn sink() -> (
        &'static Sink,
        SyncSender<io::Result<usize>>,
        Receiver<String>,
    ) {
        let sink: &'static Sink = Box::leak(Box::new(Sink::new()));
        let ((outcome, outcomes), (given, gives)) = (sync_channel(64), channel());
        thread::spawn(move || {
            sink.run(|bytes| {
                let _ = given.send(String::from_utf8(bytes.to_vec()).unwrap());
                outcomes.recv().unwrap_or(Ok(bytes.len()))
            })
        });
        (sink, outcome, gives)
    }

    #[test]
    fn lines_beyond_the_bound_are_dropped_while_nobody_reads() {
        static LINE: [u8; 1 << 16] = [b'x'; 1 << 16];
        let (sink, outcome, given) = sink();
        sink.push(b"first\n");
        // The writer is blocked on it.
        assert_eq!(given.recv().unwrap(), "first\n");
        let room = QUEUE_BYTES_MAX / LINE.len();
        (0..room + 3).for_each(|_| sink.push(&LINE));
        assert_eq!(sink.dropped(), 3);
        // The reader continues.
        drop(outcome);
        sink.flush();
        assert_eq!(
            given
                .try_iter()
                .filter(|line| line.as_bytes() == LINE)
                .count(),
            room
        );
    }

    #[test]
    fn a_flush_does_not_wait_for_a_reader_that_was_gone_before() {
        let (sink, outcome, given) = sink();
        sink.push(b"first\n");
        given.recv().unwrap();
        sink.flush();
        // The writer has been blocked for longer than a flush waits, so no flush waits now.
        let begun = Instant::now();
        (0..1_000).for_each(|_| sink.flush());
        assert!(begun.elapsed() < 500 * FLUSH_MAX);
        drop(outcome);
    }

    #[test]
    fn a_line_that_was_written_in_part_does_not_run_into_the_next() {
        let (sink, outcome, given) = sink();
        let full = || Err(io::ErrorKind::StorageFull.into());
        for write in [
            Ok(2),
            full(),
            full(),
            Ok(1),
            Ok(6),
            Err(io::ErrorKind::Interrupted.into()),
            Ok(7),
        ] {
            outcome.send(write).unwrap();
        }
        ["first\n", "second\n", "third\n", "fourth\n"]
            .iter()
            .for_each(|line| sink.push(line.as_bytes()));
        drop(outcome);
        sink.flush();
        let given: Vec<String> = given.try_iter().collect();
        assert_eq!(
            given,
            [
                "first\n", "rst\n", "\n", "\n", "third\n", "fourth\n", "fourth\n"
            ]
        );
        assert_eq!(sink.dropped(), 2);
    }
}
