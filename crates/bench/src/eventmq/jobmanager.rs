//! The released JobManager: its process, its child processes, and the jobs they have done.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::Error;
use crate::eventmq::peers::{released, url};
use crate::eventmq::wire::{self, STAMP_DIGITS};
use crate::servers::Home;

/// Worker processes, and so jobs at once.
pub const PROCESSES: u64 = 2;
/// The Python module that jobs call.
const TASKS: &str = include_str!("windlass_tasks.py");
/// A stamp and a line end.
const LINE_BYTES: usize = STAMP_DIGITS + 1;

/// A running JobManager. Dropping it kills it with its workers and waits for its end.
#[derive(Debug)]
pub struct JobManager {
    child: Child,
    done: PathBuf,
}

impl JobManager {
    /// Starts a JobManager for the server at `back`, with its module and its notes in `home`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn start(venv: &Path, back: SocketAddr, home: &Home) -> Result<Self, Error> {
        let module = home.path().join("windlass_tasks.py");
        fs::write(&module, TASKS).map_err(Error::io("write the module that jobs call"))?;
        let done = home.path().join("done");
        let env = [
            ("EVENTMQ_WORKER_ADDR", url(back)),
            ("EVENTMQ_WORKER_ADDR_DEFAULT", url(back)),
            ("EVENTMQ_WORKER_ADDR_FAILOVER", url(back)),
            ("EVENTMQ_CONCURRENT_JOBS", PROCESSES.to_string()),
            ("PYTHONPATH", home.path().display().to_string()),
            ("WINDLASS_TASKS_DONE", done.display().to_string()),
        ];
        let launch = released(venv, "emq-jobmanager", env, back.port());
        let child = Command::new(&launch.program)
            .args(&launch.args)
            .envs(launch.env)
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Its children outlive it for a while; a process group can be killed at once.
            .process_group(0)
            .spawn()
            .map_err(Error::io("start emq-jobmanager"))?;
        Ok(Self { child, done })
    }

    /// The number of finished jobs.
    pub fn count(&self) -> u64 {
        let bytes = fs::metadata(&self.done).map_or(0, |facts| facts.len());
        bytes / LINE_BYTES as u64
    }

    /// Checks that all jobs up to `jobs` were done exactly once.
    ///
    /// # Errors
    /// [`Error::Mismatch`], [`Error::Io`].
    pub fn account(&self, jobs: u64) -> Result<(), Error> {
        account(&fs::read(&self.done).map_err(Error::io("read what was done"))?, jobs)
    }
}

impl Drop for JobManager {
    fn drop(&mut self) {
        // It may have ended by itself; `wait` is needed in either case.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

fn account(notes: &[u8], jobs: u64) -> Result<(), Error> {
    let stamps = notes.chunks(LINE_BYTES).map(|line| wire::stamp_in(line.strip_suffix(b"\n")?));
    let mut numbers =
        stamps.map(|stamp| stamp.map(|stamp| stamp.number)).collect::<Option<Vec<u64>>>().ok_or_else(|| {
            Error::Mismatch(format!("a JobManager got a job without a request, among {} bytes", notes.len()))
        })?;
    numbers.sort_unstable();
    let wrong = numbers.iter().zip(0..).find(|(found, expected)| **found != *expected);
    match wrong {
        None if numbers.len() as u64 == jobs => Ok(()),
        None => Err(Error::Mismatch(format!("{} jobs were done, {jobs} were requested", numbers.len()))),
        Some((found, expected)) if *found < expected => Err(Error::Mismatch(format!("job {found} was worked twice"))),
        Some((_, expected)) => Err(Error::Mismatch(format!("job {expected} was lost"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_accounted_for() {
        let notes = |numbers: &[u64]| -> Vec<u8> {
            numbers.iter().flat_map(|number| format!("{number:016x}{:016x}\n", 7).into_bytes()).collect()
        };
        let table: [(&str, Vec<u8>, &str); 6] = [
            ("all", notes(&[2, 0, 1]), ""),
            ("one twice", notes(&[1, 0, 1]), "count mismatch: job 1 was worked twice"),
            ("one lost", notes(&[0, 2, 3]), "count mismatch: job 1 was lost"),
            ("the last lost", notes(&[0, 1]), "count mismatch: 2 jobs were done, 3 were requested"),
            ("one more", notes(&[0, 1, 2, 3]), "count mismatch: 4 jobs were done, 3 were requested"),
            (
                "half a line",
                notes(&[0, 1, 2])[1..].to_vec(),
                "count mismatch: a JobManager got a job without a request, among 98 bytes",
            ),
        ];
        for (name, notes, expected) in table {
            let error = account(&notes, 3).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(error, expected, "{name}");
        }
    }
}
