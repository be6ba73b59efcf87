//! One run of one case on a freshly started server: steady loads, filling and draining, restarting. Every run ends with a
//! check of the server's own count.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::gearman::admin;
use crate::gearman::cases::Work;
use crate::gearman::peers::{Peer, Programs};
use crate::gearman::roles::Role;
use crate::gearman::shapes::{PIPELINE, Shape};
use crate::interrupt::Interrupt;
use crate::load::client::{Idle, Links};
use crate::load::driver::{Driver, Ending, Measured, Plan, tenth_rates};
use crate::metric::{Metric, Sample};
use crate::process;
use crate::servers::{Home, Server};

/// Connections that fill a queue, and workers that empty it.
const FILLERS: usize = 8;
/// Jobs that pass through a server before its memory is read.
const WARM_JOBS: u64 = 2000;
/// How long a server that writes at intervals of 100 ms may write before it is killed.
const SETTLE: Duration = Duration::from_millis(500);

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
        match *work {
            Work::Load(shape) => self.load(&shape, peer),
            Work::Fill { jobs, unique } => self.fill_and_drain(jobs, unique, peer),
            Work::Restart { jobs } => self.restart(jobs, peer),
        }
    }

    fn load(&self, shape: &Shape, peer: Peer) -> Result<Sample, Error> {
        let home = Home::new(self.data_root)?;
        let server = self.start(peer, &home)?.0;
        let measured = self.drive(&server, shape, &self.plan)?;
        let left = if shape.ending == Ending::Acknowledged { measured.submitted } else { 0 };
        admin::await_jobs(server.addr(), left, self.interrupt)?;
        let mut sample = measured.sample();
        if shape.ending == Ending::Worked {
            sample.insert(Metric::WakesPerJob, measured.wakes_per_job());
        }
        if peer.is_durable() {
            sample.insert(Metric::DiskMib, home.disk_mib());
        }
        Ok(sample)
    }

    fn fill_and_drain(&self, jobs: u64, unique: bool, peer: Peer) -> Result<Sample, Error> {
        let home = Home::new(self.data_root)?;
        let server = self.start(peer, &home)?.0;
        let warm = Plan::Counted { warm: 0, window: WARM_JOBS };
        self.drive(&server, &Shape::flow(FILLERS, PIPELINE, FILLERS), &warm)?;
        admin::await_jobs(server.addr(), 0, self.interrupt)?;
        let resident_before = process::resident_kib(server.pid())?;

        let filled = self.fill(&server, jobs, unique)?;
        let resident_full = process::resident_kib(server.pid())?;
        let growth_kib = resident_full.saturating_sub(resident_before);

        let drained = self.drain(&server, jobs)?;
        let mut sample = filled.sample();
        // Latencies of a pipelined fill add nothing to its rates.
        sample.retain(|metric, _| !matches!(metric, Metric::P50Micros | Metric::P99Micros));
        sample.extend(tenth_rates(jobs, &filled.tenths));
        sample.extend([
            (Metric::RssMib, resident_full as f64 / 1024.0),
            (Metric::BytesPerJob, growth_kib as f64 * 1024.0 / jobs as f64),
            (Metric::DrainPerSecond, drained.rate()),
            (Metric::DrainMicrosPerJob, drained.server_micros_per_job()),
            (Metric::RssAfterDrainMib, process::resident_kib(server.pid())? as f64 / 1024.0),
        ]);
        Ok(sample)
    }

    fn restart(&self, jobs: u64, peer: Peer) -> Result<Sample, Error> {
        let home = Home::new(self.data_root)?;
        let server = self.start(peer, &home)?.0;
        self.fill(&server, jobs, true)?;
        if peer.writes_late() {
            std::thread::sleep(SETTLE);
        }
        server.kill();
        let begun = Instant::now();
        let (server, accepted) = self.start(peer, &home)?;
        admin::await_jobs(server.addr(), jobs, self.interrupt)?;
        Ok(Sample::from([
            (Metric::RestartMillis, millis(begun.elapsed())),
            (Metric::AcceptMillis, millis(accepted)),
            (Metric::RssMib, process::resident_kib(server.pid())? as f64 / 1024.0),
            (Metric::DiskMib, home.disk_mib()),
        ]))
    }

    fn start(&self, peer: Peer, home: &Home) -> Result<(Server, Duration), Error> {
        Server::start(&self.programs.launch(peer, home)?, home, self.interrupt)
    }

    fn fill(&self, server: &Server, jobs: u64, unique: bool) -> Result<Measured, Error> {
        let plain = Shape::background(FILLERS, PIPELINE);
        let shape = if unique { plain.with_unique_ids() } else { plain };
        let measured = self.drive(server, &shape, &Plan::Counted { warm: 0, window: jobs })?;
        admin::await_jobs(server.addr(), jobs, self.interrupt)?;
        Ok(measured)
    }

    fn drain(&self, server: &Server, jobs: u64) -> Result<Measured, Error> {
        let (shape, plan) = (Shape::drain(FILLERS), Plan::Counted { warm: 0, window: jobs });
        let measured = self.drive_all(server, driver(server, &shape, &plan).for_queued(jobs))?;
        admin::await_jobs(server.addr(), 0, self.interrupt)?;
        Ok(measured)
    }

    fn drive(&self, server: &Server, shape: &Shape, plan: &Plan) -> Result<Measured, Error> {
        self.drive_all(server, driver(server, shape, plan))
    }

    fn drive_all(&self, server: &Server, mut driver: Driver<Role>) -> Result<Measured, Error> {
        let mut links = match server.unix() {
            Some(path) => Links::open_unix(path, driver.connections(), self.idle)?,
            None => Links::open(server.addr(), driver.connections(), self.idle)?,
        };
        links.drive(&mut driver, self.interrupt)?;
        driver.measured()
    }
}

fn driver(server: &Server, shape: &Shape, plan: &Plan) -> Driver<Role> {
    Driver::new(Role::all(shape), shape.rules(), plan, server.pid())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
