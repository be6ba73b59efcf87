//! How far reading the data directory is: a bar on the terminal, or else a line in the log every few seconds, and the
//! status for the service manager.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::notify;

/// Interval of log lines.
const EVERY: Duration = Duration::from_secs(5);

/// Interval of updates on the terminal. Work that ends before the first one shows nothing.
const PICTURE_EVERY: Duration = Duration::from_millis(200);

const MIB: u64 = 1 << 20;

/// Reports progress until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Called before the calling thread reads this directory. Small directories are read before the
    /// first report.
    pub(crate) fn of(directory: &Path) -> Self {
        let (ends, ended) = channel::<()>();
        let (directory, read_before) = (directory.to_owned(), bytes_read());
        let thread = thread::spawn(move || {
            let template = "{bar:40} {binary_bytes} of {binary_total_bytes} of the data directory";
            let bar = ProgressBar::no_length();
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            let every = if bar.is_hidden() {
                EVERY
            } else {
                PICTURE_EVERY
            };
            let (started, mut said_at, mut all) = (Instant::now(), Instant::now(), None);
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let all = *all.get_or_insert_with(|| directory_bytes(&directory));
                let read = bytes_read().saturating_sub(read_before).min(all);
                bar.set_length(all);
                bar.set_position(read);
                if said_at.elapsed() >= EVERY {
                    said_at = Instant::now();
                    report(read / MIB, all / MIB, started.elapsed(), bar.is_hidden());
                }
            }
            bar.finish_and_clear();
        });
        Self {
            ends: Some(ends),
            thread: Some(thread),
        }
    }
}

/// Logs a line, unless the terminal shows the progress.
fn report(read: u64, all: u64, elapsed: Duration, to_log: bool) {
    let task = if read < all {
        "reading the data directory"
    } else {
        "sorting the jobs"
    };
    if to_log {
        tracing::info!(
            read_mib = read,
            of_mib = all,
            seconds = elapsed.as_secs(),
            "{task}"
        );
    }
    notify::extend_start(3 * EVERY, &format!("{task}: {read} of {all} MiB"));
}

/// Leaves a clean line for the next output.
impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            // Failing to draw the bar is harmless.
            let _ = thread.join();
        }
    }
}

/// Bytes that this process has read with system calls.
fn bytes_read() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let read = io
        .lines()
        .find_map(|line| line.strip_prefix("rchar: ")?.parse().ok());
    read.unwrap_or_default()
}

/// Total size of the files in a directory tree.
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
