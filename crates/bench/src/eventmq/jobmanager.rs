//! The released JobManager: its process, its child processes, and the jobs they have done.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::links::STALL;
use crate::load::strange;
use crate::metric::{Metric, Sample};
use crate::peers::{released, url};
use crate::process::{self, CpuTimes};
use crate::protocol::await_agreement;
use crate::run::Run;
use crate::servers::{Home, Server};
use crate::shape::{Ending, Shape};
use crate::stamp::{STAMP_DIGITS, Stamp, unique};
use crate::tally::Tally;
use crate::zmtp;

/// Worker processes, and so jobs at once.
const PROCESSES: u64 = 2;
/// The Python module that jobs call.
const TASKS: &str = include_str!("windlass_tasks.py");
/// A stamp and a line end.
const LINE_BYTES: usize = STAMP_DIGITS + 1;
/// Jobs after which a JobManager's processes have loaded all their modules.
const WARM_JOBS: u64 = 20;
/// How often the number of finished jobs is read.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long a JobManager's start and its registration may take.
const WORKERS_WITHIN: Duration = Duration::from_secs(60);

/// `jobs` requests at once, and the time until all are done.
pub(crate) fn run(run: &Run<'_>, jobs: u64, server: &Server, home: &Home) -> Result<Sample, Error> {
    let (ports, pid) = (server.ports(), server.pid());
    let (Some(front), Some(back)) = (ports.front.as_socket(), ports.back.as_socket()) else {
        return Err(Error::Usage("a JobManager is served over TCP".to_owned()));
    };
    let manager = JobManager::start(run, back, home)?;
    await_agreement(WORKERS_WITHIN, run.interrupt, || {
        let slots = super::status(ports.admin, "ROUTER_SHOW_WORKERS", |found| {
            let workers = found.get("connected_workers")?.as_object()?.values();
            workers
                .map(|worker| worker.get("available_slots")?.as_u64())
                .sum::<Option<u64>>()
        })?;
        Ok((slots != PROCESSES)
            .then(|| format!("workers can take {slots} jobs at once, {PROCESSES} were expected")))
    })?;
    let mut client = zmtp::connect(front, &unique(&mut fastrand::Rng::with_seed(1)))?;
    client
        .set_read_timeout(Some(LOOK_EVERY))
        .map_err(Error::io("set a timeout"))?;
    work_off(0..WARM_JOBS, &mut client, &manager, run.interrupt)?;
    let (cpu, begun, all) = (CpuTimes::now(Some(pid))?, Instant::now(), WARM_JOBS + jobs);
    work_off(WARM_JOBS..all, &mut client, &manager, run.interrupt)?;
    let (seconds, cpu) = (
        begun.elapsed().as_secs_f64(),
        CpuTimes::now(Some(pid))?.since(&cpu),
    );
    account(
        &fs::read(&manager.done).map_err(Error::io("read what was done"))?,
        all,
    )?;
    // The JobManager uses its part of the machine, so the share of other processes has no meaning.
    Ok(Sample::from([
        (Metric::JobsPerSecond, jobs as f64 / seconds),
        (
            Metric::ServerMicrosPerJob,
            cpu.server.as_secs_f64() * 1e6 / jobs as f64,
        ),
        (Metric::RssMib, process::resident_mib(pid)?),
    ]))
}

/// Sends the requests with these numbers at once, as a stock client does, and waits until all so far are done. Replies
/// are read and ignored.
fn work_off(
    jobs: Range<u64>,
    client: &mut TcpStream,
    at: &JobManager,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    let (mut out, mut scratch, mut rng) =
        (Vec::new(), [0; 4096], fastrand::Rng::with_seed(jobs.end));
    for number in jobs.clone() {
        super::put_request(
            &mut out,
            Stamp {
                number,
                sent_nanos: 0,
            },
            &mut rng,
        );
    }
    client.write_all(&out).map_err(Error::io("write"))?;
    let (mut done, mut progress) = (at.count(), Instant::now());
    while done < jobs.end {
        // Nothing within [`LOOK_EVERY`] is no error; a closed connection shows in the count.
        let _ = client.read(&mut scratch);
        interrupt.check()?;
        let found = at.count();
        if found > done {
            (done, progress) = (found, Instant::now());
        } else if progress.elapsed() > STALL {
            return Err(Error::Stalled(
                STALL,
                format!("{done} of {} jobs are done", jobs.end),
            ));
        }
    }
    Ok(())
}

/// A running JobManager. Dropping it kills it with its workers and waits for its end.
#[derive(Debug)]
struct JobManager {
    child: Child,
    done: PathBuf,
}

impl JobManager {
    /// Starts a JobManager for the server at `back`, with its module and its notes in `home`.
    fn start(run: &Run<'_>, back: SocketAddr, home: &Home) -> Result<Self, Error> {
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
        let launch = released(run.programs.venv()?, "emq-jobmanager", env, back);
        // Its children outlive it for a while; a process group can be killed at once.
        let mut command = launch.command(home);
        let started = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        Ok(Self {
            child: started.map_err(Error::io("start emq-jobmanager"))?,
            done,
        })
    }

    /// The number of finished jobs.
    fn count(&self) -> u64 {
        let bytes = fs::metadata(&self.done).map_or(0, |facts| facts.len());
        bytes / LINE_BYTES as u64
    }
}

impl Drop for JobManager {
    fn drop(&mut self) {
        // It may have ended by itself; `wait` is needed in either case.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Checks that all jobs up to `jobs` were done exactly once.
fn account(notes: &[u8], jobs: u64) -> Result<(), Error> {
    let mut tally = Tally::new(&Shape::drain(1, Ending::Worked), true, 0, jobs)?;
    for line in notes.split_inclusive(|byte| *byte == b'\n') {
        tally.worked(
            line.strip_suffix(b"\n")
                .and_then(Stamp::of_digits)
                .ok_or_else(|| strange(line))?,
        )?;
    }
    match tally.left() {
        0 => Ok(()),
        left => Err(Error::Mismatch(format!("{left} jobs were lost"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_accounted_for() {
        let notes = |numbers: &[u64]| -> Vec<u8> {
            numbers
                .iter()
                .flat_map(|number| format!("{number:016x}{:016x}\n", 7).into_bytes())
                .collect()
        };
        let table = [
            ("all", notes(&[2, 0, 1]), ""),
            (
                "one twice",
                notes(&[1, 0, 1]),
                "count mismatch: job 1 was worked twice",
            ),
            (
                "one lost",
                notes(&[0, 2]),
                "count mismatch: 1 jobs were lost",
            ),
            (
                "one more",
                notes(&[0, 1, 2, 3]),
                "count mismatch: job 3 was never submitted",
            ),
            (
                "half a line",
                notes(&[0, 1])[1..].to_vec(),
                "protocol: an unexpected reply",
            ),
        ];
        for (name, notes, expected) in table {
            let error = account(&notes, 3)
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(
                error.starts_with(expected) && error.is_empty() == expected.is_empty(),
                "{name}: {error}"
            );
        }
    }
}
