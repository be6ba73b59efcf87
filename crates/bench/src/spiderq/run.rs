//! One run of one case on a freshly started server. Every part of it ends with a check of the server's own counts, and every
//! remaining task is taken out of the queue and checked.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::load::client::{Idle, Links};
use crate::load::driver::{Driver, Measured, Plan};
use crate::metric::{Metric, Sample};
use crate::servers::{Home, Server};
use crate::solo::{Run, Work};
use crate::spiderq::admin;
use crate::spiderq::cases::Shape;
use crate::spiderq::ledger::Ledger;
use crate::spiderq::roles::Errand;
use crate::spiderq::wire::Status;
use crate::windlass::{self, Durability};

/// Tasks in the queue before lending: many times the number in flight.
const TASKS: u64 = 10_000;
/// The load that fills the queue before a run and empties it after it: connections, in flight on each.
const BULK: (usize, usize) = (4, 64);
/// How long a server may take for its last request.
const PATIENCE: Duration = Duration::from_secs(10);

impl Work for Shape {
    fn run(&self, run: &Run<'_>, durability: Durability) -> Result<Sample, Error> {
        let home = Home::new(run.data_root)?;
        let launch = windlass::launch(run.windlass, "spiderq", durability, &home)?;
        let (server, _) = Server::start(&launch, &home, run.interrupt)?;
        let bout = Bout {
            addr: server.addr(),
            pid: server.pid(),
            idle: run.idle,
            interrupt: run.interrupt,
            patience: PATIENCE,
            ledger: Rc::default(),
        };
        let mut sample = bout.run(self, TASKS, &run.plan)?.sample();
        sample.insert(Metric::DiskMib, home.disk_mib());
        Ok(sample)
    }
}

/// One run on a running server with an empty queue and without earlier requests.
#[derive(Debug)]
pub struct Bout<'a> {
    /// The server's address.
    pub addr: SocketAddr,
    /// The server's process.
    pub pid: u32,
    /// How the generator waits for events.
    pub idle: Idle,
    /// Checked in every wait.
    pub interrupt: &'a Interrupt,
    /// How long its counts may take to reach the expected values.
    pub patience: Duration,
    /// The expected state of the queue.
    pub ledger: Rc<RefCell<Ledger>>,
}

impl Bout<'_> {
    /// Fills the queue with `tasks` if the load lends tasks it did not add; runs the load; takes out the rest.
    ///
    /// # Errors
    /// As [`Work::run`].
    pub fn run(&self, shape: &Shape, tasks: u64, plan: &Plan) -> Result<Measured, Error> {
        let (connections, in_flight) = BULK;
        if matches!(shape.errand, Errand::Cycle(_)) {
            let filling = Plan::Counted { warm: 0, window: tasks };
            self.drive(&Shape::steady(Errand::Add, connections, in_flight), &filling)?;
        }
        let measured = self.drive(shape, plan)?;
        let left = self.ledger.borrow().queued();
        if left > 0 {
            let emptying = Plan::Counted { warm: 0, window: left };
            self.drive(&Shape::steady(Errand::Cycle(Status::Drop), connections, in_flight), &emptying)?;
        }
        Ok(measured)
    }

    fn drive(&self, shape: &Shape, plan: &Plan) -> Result<Measured, Error> {
        let mut driver = Driver::new(shape.clients(&self.ledger), shape.rules(), plan, self.pid);
        let mut links = Links::open(self.addr, driver.connections(), self.idle)?;
        links.drive(&mut driver, self.interrupt)?;
        // While the connections are open, so that the server handles the last messages on them.
        admin::await_agreement(self.addr, &self.ledger.borrow(), self.patience, self.interrupt)?;
        driver.measured()
    }
}
