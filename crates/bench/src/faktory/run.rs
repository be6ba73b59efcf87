//! One run of one case on a freshly started server. Every run ends with a check of the server's own count.

use std::iter::repeat_n;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::faktory::admin;
use crate::faktory::cases::{BATCH, Shape, Work};
use crate::faktory::roles::Role;
use crate::faktory::wire;
use crate::load::client::Links;
use crate::load::driver::{Driver, Ending, Measured, Plan, tenth_rates};
use crate::metric::{Metric, Sample};
use crate::process;
use crate::servers::{Home, Server};
use crate::solo::{self, Run};
use crate::windlass::{self, Durability};

/// Connections that fill a queue, and workers that empty it.
const FILLERS: usize = 8;
const EMPTIERS: usize = 50;
/// Jobs that pass through a server before its memory is read.
const WARM_JOBS: u64 = 2000;
/// How long a server that writes at intervals of 100 ms may write before it is killed.
const SETTLE: Duration = Duration::from_millis(500);
/// Waiting costs so little that a window of a second would span only a few clock ticks.
const IDLE_PLAN: Plan = Plan::Timed { warm: Duration::from_secs(4), window: Duration::from_secs(12) };

impl solo::Work for Work {
    fn run(&self, run: &Run<'_>, durability: Durability) -> Result<Sample, Error> {
        let home = Home::new(run.data_root)?;
        let server = run.start(durability, &home)?.0;
        let mut sample = match *self {
            Work::Load(shape) => run.load(&shape, &server)?,
            Work::Drain { shape, jobs } => run.drain_filled(&shape, jobs, &server)?,
            Work::Idle(shape) => run.wait(&shape, &server)?,
            Work::Fill { jobs } => run.fill_and_drain(jobs, &server)?,
            Work::Restart { jobs } => return run.restart(jobs, durability, server, &home),
        };
        sample.insert(Metric::DiskMib, home.disk_mib());
        Ok(sample)
    }
}

/// The implementation of each kind of work.
impl Run<'_> {
    fn load(&self, shape: &Shape, server: &Server) -> Result<Sample, Error> {
        let measured = self.drive(server, shape, &self.plan)?;
        let left = if shape.ending == Ending::Acknowledged { measured.submitted } else { 0 };
        admin::await_jobs(server.addr(), left, self.interrupt)?;
        Ok(measured.sample())
    }

    fn drain_filled(&self, shape: &Shape, jobs: u64, server: &Server) -> Result<Sample, Error> {
        self.fill(server, jobs)?;
        let warm = jobs / 10;
        Ok(self.drain(server, shape, jobs, &Plan::Counted { warm, window: jobs - warm })?.sample())
    }

    fn wait(&self, shape: &Shape, server: &Server) -> Result<Sample, Error> {
        let measured = self.drive(server, shape, &IDLE_PLAN)?;
        admin::await_jobs(server.addr(), 0, self.interrupt)?;
        let mut sample = measured.sample();
        sample.insert(Metric::ServerBusyPercent, measured.server_busy_percent());
        Ok(sample)
    }

    fn fill_and_drain(&self, jobs: u64, server: &Server) -> Result<Sample, Error> {
        self.fill(server, WARM_JOBS)?;
        let shape = Shape::drain(EMPTIERS, true);
        self.drain(server, &shape, WARM_JOBS, &Plan::Counted { warm: 0, window: WARM_JOBS })?;
        let resident_before = process::resident_kib(server.pid())?;

        let filled = self.fill(server, jobs)?;
        let resident_full = process::resident_kib(server.pid())?;
        let growth_kib = resident_full.saturating_sub(resident_before);

        let drained = self.drain(server, &shape, jobs, &Plan::Counted { warm: 0, window: jobs })?;
        let mut sample = filled.sample();
        // Latencies of a fill in batches add nothing to its rates.
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

    fn restart(&self, jobs: u64, durability: Durability, server: Server, home: &Home) -> Result<Sample, Error> {
        self.fill(&server, jobs)?;
        if durability == Durability::Interval {
            std::thread::sleep(SETTLE);
        }
        server.kill();
        let begun = Instant::now();
        let (server, accepted) = self.start(durability, home)?;
        admin::await_jobs(server.addr(), jobs, self.interrupt)?;
        let restarted = begun.elapsed();
        let sample = Sample::from([
            (Metric::RestartMillis, restarted.as_secs_f64() * 1e3),
            (Metric::AcceptMillis, accepted.as_secs_f64() * 1e3),
            (Metric::RssMib, process::resident_kib(server.pid())? as f64 / 1024.0),
            (Metric::DiskMib, home.disk_mib()),
        ]);
        // A counted job is not yet a fetched one: every job must come out, exactly once.
        self.drain(&server, &Shape::drain(EMPTIERS, true), jobs, &Plan::Counted { warm: 0, window: jobs })?;
        Ok(sample)
    }

    fn start(&self, durability: Durability, home: &Home) -> Result<(Server, Duration), Error> {
        Server::start(&windlass::launch(self.windlass, "faktory", durability, home)?, home, self.interrupt)
    }

    fn fill(&self, server: &Server, jobs: u64) -> Result<Measured, Error> {
        let measured = self.drive(server, &Shape::push(FILLERS, BATCH), &Plan::Counted { warm: 0, window: jobs })?;
        admin::await_jobs(server.addr(), jobs, self.interrupt)?;
        Ok(measured)
    }

    fn drain(&self, server: &Server, shape: &Shape, jobs: u64, plan: &Plan) -> Result<Measured, Error> {
        let driver = Driver::new(shape.roles(), shape.rules(), plan, server.pid()).for_queued(jobs);
        let measured = self.drive_all(server, shape, driver)?;
        admin::await_jobs(server.addr(), 0, self.interrupt)?;
        Ok(measured)
    }

    fn drive(&self, server: &Server, shape: &Shape, plan: &Plan) -> Result<Measured, Error> {
        self.drive_all(server, shape, Driver::new(shape.roles(), shape.rules(), plan, server.pid()))
    }

    fn drive_all(&self, server: &Server, shape: &Shape, mut driver: Driver<Role>) -> Result<Measured, Error> {
        // Workers come first, each with its own wid.
        let workers = shape.workers + shape.idlers;
        let links = Links::open_with(repeat_n(server.addr(), driver.connections()), self.idle, |at, stream| {
            wire::greet(stream, (at < workers).then_some(at))
        });
        links?.drive(&mut driver, self.interrupt)?;
        driver.measured()
    }
}
