//! One run of one case on a freshly started server: steady loads, filling and draining, restarting. Every part of it ends with
//! a check of the server's own count.

use std::iter::repeat_n;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cases::{Shape, Work};
use crate::driver::{Driver, Measured, Plan};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::links::{Idle, Links, STALL};
use crate::metric::{Metric, Sample};
use crate::peers::{Peer, Programs};
use crate::process;
use crate::protocol::{Client, Protocol, await_agreement};
use crate::servers::{Home, Server};
use crate::tally::Ending;

/// Jobs that pass through a server before its memory is read.
const WARM_JOBS: u64 = 2000;
/// How long a server that writes at intervals of 100 ms may write before it is killed.
const SETTLE: Duration = Duration::from_millis(500);
/// How long a server's counts may take to reach the expected values.
const COUNTS_WITHIN: Duration = Duration::from_secs(120);

/// Everything a run needs besides its work and its peer.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) protocol: &'a Protocol,
    /// How servers are started.
    pub(crate) programs: &'a Programs,
    /// The folder for the servers' data.
    pub(crate) data_root: &'a Path,
    /// The length of steady loads.
    pub(crate) plan: Plan,
    pub(crate) idle: Idle,
    /// Checked in every wait.
    pub(crate) interrupt: &'a Interrupt,
}

impl Run<'_> {
    /// The run. Any error leaves it without figures; unaccounted jobs are [`Error::Mismatch`].
    pub(crate) fn of(&self, work: &Work, peer: Peer) -> Result<Sample, Error> {
        let home = Home::new(self.data_root)?;
        let server = self.start(peer, &home)?.0;
        let client = (self.protocol.open)(peer);
        let bout = Bout { run: self, server: &server, client: &*client };
        let mut sample = match *work {
            Work::Load(shape) => bout.load(&shape)?,
            Work::Idle(shape, plan) => {
                let measured = bout.drive(&shape, &plan, 0)?;
                let busy = (Metric::ServerBusyPercent, measured.server_busy_percent());
                measured.sample().into_iter().chain([busy]).collect()
            }
            Work::Fill { jobs, unique } => bout.fill_and_drain(jobs, unique)?,
            Work::Restart { jobs } => {
                bout.fill(jobs, true)?;
                return self.restart(jobs, peer, server, &home, &*client);
            }
            Work::Own { jobs, run } => run(self, jobs, &server, &home)?,
        };
        if peer.is_durable() {
            sample.insert(Metric::DiskMib, home.disk_mib());
        }
        Ok(sample)
    }

    fn restart(
        &self,
        jobs: u64,
        peer: Peer,
        server: Server,
        home: &Home,
        client: &dyn Client,
    ) -> Result<Sample, Error> {
        if peer.writes_late() {
            std::thread::sleep(SETTLE);
        }
        server.kill();
        let begun = Instant::now();
        let (server, accepted) = self.start(peer, home)?;
        let bout = Bout { run: self, server: &server, client };
        bout.agree(jobs)?;
        let restarted = begun.elapsed();
        let sample = Sample::from([
            (Metric::RestartMillis, restarted.as_secs_f64() * 1e3),
            (Metric::AcceptMillis, accepted.as_secs_f64() * 1e3),
            (Metric::RssMib, process::resident_mib(server.pid())?),
            (Metric::DiskMib, home.disk_mib()),
        ]);
        if peer.is_ours() {
            // A counted job is not yet a taken one: every job must come out, exactly once.
            bout.drive(&self.protocol.empty, &Plan::counted(jobs), jobs)?;
        }
        Ok(sample)
    }

    fn start(&self, peer: Peer, home: &Home) -> Result<(Server, Duration), Error> {
        Server::start(&self.programs.launch(peer, self.protocol.name, home)?, home, self.interrupt)
    }
}

/// A run's part on one running server.
struct Bout<'a> {
    run: &'a Run<'a>,
    server: &'a Server,
    client: &'a dyn Client,
}

impl Bout<'_> {
    fn load(&self, shape: &Shape) -> Result<Sample, Error> {
        if shape.queued > 0 {
            self.fill(shape.queued, false)?;
        }
        let measured = if shape.clients == 0 {
            let (jobs, warm) = (shape.queued, shape.queued / 10);
            self.drive(shape, &Plan::Counted { warm, window: jobs - warm }, jobs)?
        } else {
            self.drive(shape, &self.run.plan, 0)?
        };
        let remaining = self.client.remaining();
        if remaining > 0 {
            self.drive(&self.run.protocol.empty, &Plan::counted(remaining), 0)?;
        }
        let mut sample = measured.sample();
        if self.run.protocol.wakes && shape.ending == Ending::Worked {
            sample.insert(Metric::WakesPerJob, measured.wakes_per_job());
        }
        Ok(sample)
    }

    fn fill_and_drain(&self, jobs: u64, unique: bool) -> Result<Sample, Error> {
        let resident_mib = || process::resident_mib(self.server.pid());
        let empty = &self.run.protocol.empty;
        self.fill(WARM_JOBS, false)?;
        self.drive(empty, &Plan::counted(WARM_JOBS), WARM_JOBS)?;
        let before_mib = resident_mib()?;
        let filled = self.fill(jobs, unique)?;
        let full_mib = resident_mib()?;
        let growth_mib = (full_mib - before_mib).max(0.0);
        let drained = self.drive(empty, &Plan::counted(jobs), jobs)?;
        let mut sample = filled.sample();
        // Latencies of a fill in batches add nothing to its rates.
        sample.retain(|metric, _| !matches!(metric, Metric::P50Micros | Metric::P99Micros));
        sample.extend(filled.tenth_rates());
        sample.extend([
            (Metric::RssMib, full_mib),
            (Metric::BytesPerJob, growth_mib * 1024.0 * 1024.0 / jobs as f64),
            (Metric::DrainPerSecond, drained.rate()),
            (Metric::DrainMicrosPerJob, drained.server_micros_per_job()),
            (Metric::RssAfterDrainMib, resident_mib()?),
        ]);
        Ok(sample)
    }

    fn fill(&self, jobs: u64, unique: bool) -> Result<Measured, Error> {
        self.drive(&Shape { unique, ..self.run.protocol.fill }, &Plan::counted(jobs), 0)
    }

    /// One load, while `queued` jobs are in the queue for its workers.
    fn drive(&self, shape: &Shape, plan: &Plan, queued: u64) -> Result<Measured, Error> {
        let rules = shape.rules(self.client.is_acknowledged());
        let mut driver = Driver::new(self.client.speakers(shape), rules, plan, queued, self.server.pid())?;
        let ports = self.server.ports();
        let workers = repeat_n(&ports.back, shape.workers);
        let mut links = Links::open(workers.chain(repeat_n(&ports.front, shape.clients)), self.run.idle, STALL)?;
        links.drive(&mut driver, self.run.interrupt)?;
        let measured = driver.measured()?;
        // While the connections are open, so that the server handles the last messages on them.
        self.agree(if shape.ending == Ending::Acknowledged { measured.submitted } else { 0 })?;
        Ok(measured)
    }

    fn agree(&self, left: u64) -> Result<(), Error> {
        let ports = self.server.ports();
        await_agreement(COUNTS_WITHIN, self.run.interrupt, || self.client.difference(ports, left))
    }
}
