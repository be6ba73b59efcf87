//! One run of one case on a freshly started server: steady loads, filling and draining, restarting. Every part of it
//! ends with a check of the server's own count.

use std::cell::{Cell, RefCell};
use std::iter::repeat_n;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cases::{Case, Work};
use crate::driver::{Driver, Measured, Plan};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::links::{Idle, Links, STALL};
use crate::metric::{Metric, Sample};
use crate::peers::{Peer, Programs};
use crate::process;
use crate::protocol::{Protocol, await_agreement};
use crate::servers::{Home, Ports, Server};
use crate::shape::{Ending, Shape};
use crate::tally::Tally;

/// Jobs that pass through a server before its memory is read.
const WARM_JOBS: u64 = 2000;
/// How long a server that writes at intervals of 100 ms may write before it is killed.
const SETTLE: Duration = Duration::from_millis(500);
/// How long a server's counts may take to reach the expected values.
const COUNTS_WITHIN: Duration = Duration::from_secs(120);

/// Everything a run needs besides its work and its peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    /// How servers are started.
    pub(crate) programs: &'a Programs,
    /// The folder for the servers' data.
    pub(crate) data_root: &'a Path,
    /// The length of steady loads.
    pub(crate) plan: Plan,
    pub(crate) idle: Idle,
    /// The server's count of replies must agree, too, where it has one. In a load with workers, the last replies may be
    /// unread.
    pub(crate) counts_replies: bool,
    /// Checked in every wait.
    pub(crate) interrupt: &'a Interrupt,
}

impl Run<'_> {
    /// The run. Any error leaves it without figures; unaccounted jobs are [`Error::Mismatch`].
    pub(crate) fn of(&self, case: &Case, peer: Peer) -> Result<Sample, Error> {
        let home = Home::new(self.data_root)?;
        let protocol = peer.protocol(case.protocol);
        let server = self.start(peer, protocol, &home)?.0;
        let bout = Bout::new(
            self,
            protocol,
            server.ports(),
            Some(server.pid()),
            peer.acknowledges(),
        );
        let mut sample = match case.work {
            Work::Load(shape) => bout.load(&shape)?,
            Work::Idle(shape, plan) => {
                let measured = bout.drive(&shape, &plan, 0)?;
                let busy = (Metric::ServerBusyPercent, measured.server_busy_percent());
                measured.sample().into_iter().chain([busy]).collect()
            }
            Work::Fill { jobs, unique } => bout.fill_and_drain(jobs, unique)?,
            Work::Restart { jobs } => {
                bout.fill(jobs, true)?;
                return self.restart(jobs, peer, protocol, server, &home);
            }
            Work::Own { jobs, run } => run(self, jobs, &server, &home)?,
        };
        if peer.is_durable() {
            sample.insert(Metric::DiskMib, home.disk_mib());
        }
        Ok(sample)
    }

    /// A load on a server that runs already and has other work, too: its own counts do not describe this load. The
    /// jobs that a load without workers has left are taken out again, each exactly once.
    pub(crate) fn on_running(
        &self,
        protocol: &Protocol,
        ports: &Ports,
        shape: &Shape,
    ) -> Result<Sample, Error> {
        let bout = Bout::new(self, protocol, ports, None, true);
        let measured = bout.drive(shape, &self.plan, 0)?;
        if measured.left > 0 {
            bout.empty(measured.left)?;
        }
        let mut sample = measured.sample();
        sample.retain(|metric, _| !matches!(metric, Metric::ServerMicrosPerJob | Metric::RssMib));
        Ok(sample)
    }

    fn restart(
        &self,
        jobs: u64,
        peer: Peer,
        protocol: &Protocol,
        server: Server,
        home: &Home,
    ) -> Result<Sample, Error> {
        if peer.writes_late() {
            std::thread::sleep(SETTLE);
        }
        server.kill();
        let begun = Instant::now();
        let (server, accepted) = self.start(peer, protocol, home)?;
        let bout = Bout::new(self, protocol, server.ports(), Some(server.pid()), true);
        bout.agree(jobs)?;
        let restarted = begun.elapsed();
        let sample = Sample::from([
            (Metric::RestartMillis, restarted.as_secs_f64() * 1e3),
            (Metric::AcceptMillis, accepted.as_secs_f64() * 1e3),
            (Metric::RssMib, process::resident_mib(server.pid())?),
            (Metric::DiskMib, home.disk_mib()),
        ]);
        if peer.is_ours() {
            // A counted job is not yet a taken one.
            bout.empty(jobs)?;
        }
        Ok(sample)
    }

    fn start(
        &self,
        peer: Peer,
        protocol: &Protocol,
        home: &Home,
    ) -> Result<(Server, Duration), Error> {
        Server::start(
            &self.programs.launch(peer, protocol.name, home)?,
            home,
            self.interrupt,
        )
    }
}

/// A run's part on one running server.
pub(crate) struct Bout<'a> {
    run: &'a Run<'a>,
    protocol: &'a Protocol,
    ports: &'a Ports,
    /// The process, if the server was started for this run.
    pid: Option<u32>,
    /// The server acknowledges every job.
    acknowledges: bool,
    /// All replies so far, where a server counts them.
    replies: Cell<u64>,
    /// The stamps of jobs that a load has put back.
    last: RefCell<Vec<u64>>,
}

impl<'a> Bout<'a> {
    pub(crate) fn new(
        run: &'a Run<'a>,
        protocol: &'a Protocol,
        ports: &'a Ports,
        pid: Option<u32>,
        acknowledges: bool,
    ) -> Self {
        Self {
            run,
            protocol,
            ports,
            pid,
            acknowledges,
            replies: Cell::default(),
            last: RefCell::default(),
        }
    }

    fn load(&self, shape: &Shape) -> Result<Sample, Error> {
        let queued = shape.queued;
        if queued > 0 {
            self.fill(queued, false)?;
        }
        let plan = match shape.clients {
            0 => Plan::Counted {
                warm: queued / 10,
                window: queued - queued / 10,
            },
            _ => self.run.plan,
        };
        let measured = self.drive(shape, &plan, queued)?;
        if self.protocol.drains && measured.left > 0 {
            self.empty(measured.left)?;
        }
        let mut sample = measured.sample();
        if self.protocol.wakes && shape.ending == Ending::Worked {
            sample.insert(Metric::WakesPerJob, measured.wakes_per_job());
        }
        Ok(sample)
    }

    fn fill_and_drain(&self, jobs: u64, unique: bool) -> Result<Sample, Error> {
        let resident_mib = || self.pid.map_or(Ok(0.0), process::resident_at_rest_mib);
        self.fill(WARM_JOBS, false)?;
        self.empty(WARM_JOBS)?;
        let before_mib = resident_mib()?;
        let filled = self.fill(jobs, unique)?;
        let full_mib = resident_mib()?;
        let growth_mib = (full_mib - before_mib).max(0.0);
        let drained = self.empty(jobs)?.sample();
        let mut sample = filled.sample();
        // Latencies of a fill in batches add nothing to its rates.
        sample.retain(|metric, _| !matches!(metric, Metric::P50Micros | Metric::P99Micros));
        sample.extend(filled.tenth_rates());
        sample.extend([
            (Metric::RssMib, full_mib),
            (
                Metric::BytesPerJob,
                growth_mib * 1024.0 * 1024.0 / jobs as f64,
            ),
            (Metric::RssAfterDrainMib, resident_mib()?),
        ]);
        let drains = [
            (Metric::DrainPerSecond, Metric::JobsPerSecond),
            (Metric::DrainMicrosPerJob, Metric::ServerMicrosPerJob),
        ];
        sample.extend(
            drains
                .iter()
                .filter_map(|(to, from)| Some((*to, *drained.get(from)?))),
        );
        Ok(sample)
    }

    pub(crate) fn fill(&self, jobs: u64, unique: bool) -> Result<Measured, Error> {
        self.drive(
            &Shape {
                unique,
                ..self.protocol.fill
            },
            &Plan::counted(jobs),
            0,
        )
    }

    /// Takes out all jobs: every one must come, exactly once.
    pub(crate) fn empty(&self, jobs: u64) -> Result<Measured, Error> {
        self.drive(&self.protocol.empty, &Plan::counted(jobs), jobs)
    }

    /// One load, while `queued` jobs are in the queue for its workers.
    pub(crate) fn drive(&self, shape: &Shape, plan: &Plan, queued: u64) -> Result<Measured, Error> {
        let speakers = self.protocol.speakers(shape, self.acknowledges);
        let mut tally = Tally::new(shape, self.acknowledges, plan.jobs_max(), queued)?;
        tally.last = self.last.take();
        let mut driver = Driver::new(speakers, tally, plan, self.pid);
        let workers = repeat_n(&self.ports.back, shape.workers);
        let mut links = Links::open(
            workers.chain(repeat_n(&self.ports.front, shape.clients)),
            self.run.idle,
            STALL,
        )?;
        links.drive(&mut driver, self.run.interrupt)?;
        let measured = driver.measured()?;
        self.replies.set(self.replies.get() + measured.replies);
        self.last.replace(measured.last.clone());
        // While the connections are open, so that the server handles the last messages on them.
        self.agree(measured.left)?;
        Ok(measured)
    }

    /// Waits until the server counts this number of jobs. Counts agree at once, unless messages at the end of a run
    /// were sent without waiting for their answers.
    fn agree(&self, left: u64) -> Result<(), Error> {
        if self.pid.is_none() {
            return Ok(());
        }
        await_agreement(COUNTS_WITHIN, self.run.interrupt, || {
            let (jobs, replies) = (
                self.protocol.count,
                self.protocol.replies.filter(|_| self.run.counts_replies),
            );
            let found = (
                jobs(self.ports.admin, self.acknowledges)?,
                replies.map(|of| of(self.ports.admin)).transpose()?,
            );
            let expected = (left, replies.map(|_| self.replies.get()));
            Ok((found != expected).then(|| {
                format!("jobs, replies: the server has {found:?}, the generator {expected:?}")
            }))
        })
    }
}
