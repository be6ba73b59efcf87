//! How far the start has read the data directory: a line in the log every few seconds, and the status for the service manager.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::notify;

const EVERY: Duration = Duration::from_secs(5);

const MIB: u64 = 1 << 20;

/// Reports progress until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    _ends: Sender<()>,
}

impl Progress {
    /// The calling thread is about to read this directory. A small directory is read before the first report.
    pub(crate) fn of(directory: &Path) -> Self {
        let (ends, ended) = channel::<()>();
        let (directory, started) = (directory.to_owned(), Instant::now());
        let read_before = bytes_read();
        thread::spawn(move || {
            let mut all = None;
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let all = *all.get_or_insert_with(|| directory_bytes(&directory)) / MIB;
                let read = (bytes_read().saturating_sub(read_before) / MIB).min(all);
                let seconds = started.elapsed().as_secs();
                tracing::info!(read_mib = read, of_mib = all, seconds, "reading the data directory");
                notify::extend_start(3 * EVERY, &format!("reading the data directory: {read} of {all} MiB"));
            }
        });
        Self { _ends: ends }
    }
}

/// Bytes that this process has read by system calls.
fn bytes_read() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok());
    read.unwrap_or_default()
}

/// Bytes of all files in a directory and below.
fn directory_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => directory_bytes(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_and_what_was_read() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("log")).unwrap();
        fs::write(directory.path().join("log/1"), vec![7; 300_000]).unwrap();
        fs::write(directory.path().join("mark"), vec![7; 1_000]).unwrap();
        assert_eq!(directory_bytes(directory.path()), 301_000);
        let before = bytes_read();
        assert!(before > 0);
        fs::read(directory.path().join("log/1")).unwrap();
        assert!(bytes_read() >= before + 300_000);
    }
}
