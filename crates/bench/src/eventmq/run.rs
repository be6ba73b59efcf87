//! One run of one case on a freshly started server. Every run ends with a check of the server's own counts.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::count;
use crate::error::Error;
use crate::eventmq::admin::Desk;
use crate::eventmq::cases::{Shape, Work};
use crate::eventmq::dealer::Dealer;
use crate::eventmq::jobmanager::{JobManager, PROCESSES};
use crate::eventmq::peers::{Peer, Ports, Programs};
use crate::eventmq::roles::Pace;
use crate::eventmq::wire;
use crate::interrupt::Interrupt;
use crate::load::client::{Idle, Links};
use crate::load::driver::{Driver, Measured, Plan};
use crate::load::stamp::{Random, Stamp};
use crate::metric::{Metric, Sample};
use crate::process::{self, CpuTimes};
use crate::servers::{Home, Server};

/// Jobs after which a JobManager's processes have loaded all their modules.
const WARM_JOBS: u64 = 20;
/// How often the number of finished jobs is read.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The released programs stall for a second now and then.
const STALL: Duration = Duration::from_secs(20);

/// Everything a run needs besides its case and its peer.
#[derive(Debug)]
pub struct Run<'a> {
    /// How servers are started.
    pub programs: &'a Programs,
    /// The folder for the servers' data.
    pub data_root: &'a Path,
    /// The length of steady loads.
    pub plan: Plan,
    /// How the generator waits for events.
    pub idle: Idle,
    /// Checked in every wait.
    pub interrupt: &'a Interrupt,
}

impl Run<'_> {
    /// One run.
    ///
    /// # Errors
    /// Any error that leaves the run without figures; unaccounted jobs are [`Error::Mismatch`].
    pub fn run(&self, work: &Work, peer: Peer) -> Result<Sample, Error> {
        let home = Home::new(self.data_root)?;
        let (launch, ports) = self.programs.launch(peer, &home)?;
        let (server, _) = Server::start(&launch, &home, self.interrupt)?;
        let mut sample = match *work {
            Work::Load(shape) => {
                let bout = Bout {
                    ports,
                    pid: server.pid(),
                    pace: if peer.is_ours() { Pace::Accepted } else { Pace::Delivered },
                    idle: self.idle,
                    interrupt: self.interrupt,
                };
                bout.run(&shape, &self.plan)?.sample()
            }
            Work::JobManager { jobs } => self.jobmanager(jobs, ports, server.pid(), &home)?,
        };
        if peer.is_ours() {
            sample.insert(Metric::DiskMib, home.disk_mib());
        }
        Ok(sample)
    }

    fn jobmanager(&self, jobs: u64, ports: Ports, pid: u32, home: &Home) -> Result<Sample, Error> {
        let manager = JobManager::start(self.programs.venv()?, ports.back, home)?;
        Desk::open(ports.admin)?.await_slots(PROCESSES, self.interrupt)?;
        let mut client =
            Batcher { dealer: Dealer::open(ports.front, &mut Random::new(1))?, rng: Random::new(2), sent: 0 };
        client.work_off(WARM_JOBS, &manager, self.interrupt)?;
        let (cpu, begun) = (CpuTimes::now(pid)?, Instant::now());
        client.work_off(jobs, &manager, self.interrupt)?;
        let (seconds, cpu) = (begun.elapsed().as_secs_f64(), CpuTimes::now(pid)?.since(&cpu));
        manager.account(client.sent)?;
        // The JobManager uses its part of the machine, so the share of other processes has no meaning.
        Ok(Sample::from([
            (Metric::JobsPerSecond, jobs as f64 / seconds),
            (Metric::ServerMicrosPerJob, cpu.server.as_secs_f64() * 1e6 / jobs as f64),
            (Metric::RssMib, process::resident_kib(pid)? as f64 / 1024.0),
        ]))
    }
}

/// One steady load on a running server with an empty queue.
#[derive(Debug)]
pub struct Bout<'a> {
    /// The server's ports.
    pub ports: Ports,
    /// The server's process.
    pub pid: u32,
    /// The event that lets a client send its next request.
    pub pace: Pace,
    /// How the generator waits for events.
    pub idle: Idle,
    /// Checked in every wait.
    pub interrupt: &'a Interrupt,
}

impl Bout<'_> {
    /// Runs the load.
    ///
    /// # Errors
    /// As [`Run::run`].
    pub fn run(&self, shape: &Shape, plan: &Plan) -> Result<Measured, Error> {
        let mut driver = Driver::new(shape.connections(self.pace), shape.rules(self.pace), plan, self.pid);
        let workers = std::iter::repeat_n(self.ports.back, shape.workers);
        let clients = std::iter::repeat_n(self.ports.front, shape.clients);
        let mut links = Links::open_to(workers.chain(clients), self.idle)?;
        links.drive(&mut driver, self.interrupt)?;
        let measured = driver.measured()?;
        // While the connections are open, so that the server handles the last messages on them.
        let mut desk = Desk::open(self.ports.admin)?;
        let left = if shape.workers == 0 { measured.submitted } else { 0 };
        count::settled(left, self.interrupt, || match self.pace {
            Pace::Accepted => desk.unfinished(),
            Pace::Delivered => desk.waiting(),
        })?;
        Ok(measured)
    }
}

/// A client that sends many requests at once, as a stock client does: it reads replies and ignores them.
struct Batcher {
    dealer: Dealer,
    rng: Random,
    sent: u64,
}

impl Batcher {
    /// Sends `jobs` more requests and waits until all are done.
    fn work_off(&mut self, jobs: u64, manager: &JobManager, interrupt: &Interrupt) -> Result<(), Error> {
        for number in self.sent..self.sent + jobs {
            let (id, job) = (wire::id_of(&mut self.rng, number), wire::job_of(Stamp { number, sent_nanos: 0 }));
            self.dealer.put(wire::request(&id, &job));
        }
        self.sent += jobs;
        self.dealer.flush()?;
        let (mut done, mut progress) = (manager.count(), Instant::now());
        while done < self.sent {
            self.dealer.receive(LOOK_EVERY)?;
            interrupt.check()?;
            let found = manager.count();
            if found > done {
                (done, progress) = (found, Instant::now());
            } else if progress.elapsed() > STALL {
                return Err(Error::Stalled { waited: STALL, state: format!("{done} of {} jobs are done", self.sent) });
            }
        }
        Ok(())
    }
}
