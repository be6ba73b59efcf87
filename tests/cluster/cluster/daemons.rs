//! The daemons of one broker.

use std::path::Path;

use tempfile::TempDir;
use windlass_testkit::daemon::{Daemon, Plan, free_port};

use crate::common::http::Http;
use crate::common::postgres::Postgres;
use crate::common::wait_until;

/// The daemons of a broker, and the directory of each.
pub struct Daemons {
    pub all: Vec<(Daemon, TempDir)>,
    /// The section of the database.
    pub store: String,
    lease: &'static str,
    /// The server, if it is the broker's own.
    postgres: Option<Postgres>,
}

impl Daemons {
    /// Starts this many, with a database of their own. The first one leads.
    pub fn start(count: usize) -> Self {
        let postgres = Postgres::start();
        let mut daemons = Self::on(postgres.section());
        daemons.postgres = Some(postgres);
        (0..count).for_each(|_| daemons.add(""));
        daemons
    }

    /// None yet, with this section for the database.
    pub const fn on(store: String) -> Self {
        Self::with_lease(store, "3s")
    }

    /// The same, with this lease.
    pub const fn with_lease(store: String, lease: &'static str) -> Self {
        Self {
            all: Vec::new(),
            store,
            lease,
            postgres: None,
        }
    }

    /// The broker's own database server.
    pub const fn database(&self) -> &Postgres {
        self.postgres.as_ref().unwrap()
    }

    /// Starts one more, with further keys of the section `cluster`, and further sections.
    pub fn add(&mut self, keys: &str) {
        let plan = self.plan(free_port(), keys);
        self.start_one(plan);
    }

    /// The plan of a daemon with this port for its links, and its directory.
    pub fn plan(&self, port: u16, keys: &str) -> (Plan, TempDir) {
        self.plan_of(env!("CARGO_BIN_EXE_windlass").as_ref(), port, keys)
    }

    /// The same, of this program.
    pub fn plan_of(&self, program: &Path, port: u16, keys: &str) -> (Plan, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let plan = Plan::new(program, dir.path())
            .set(&self.store)
            .set(&format!("lease = {:?}", self.lease));
        let plan = plan.set(&format!(
            "[cluster]\nlisten = [\"127.0.0.1:{port}\"]\nhold = \"60s\"\n{keys}"
        ));
        let has_eventmq = keys.contains("[eventmq]");
        let plan = if has_eventmq { plan } else { plan.eventmq("") };
        (plan, dir)
    }

    /// Starts a planned daemon, and waits until it leads or is linked.
    pub fn start_one(&mut self, (plan, dir): (Plan, TempDir)) {
        let daemon = plan.start();
        // Not by its log: a program of another version may say it in other words.
        let wanted = if self.all.is_empty() {
            "leading"
        } else {
            "following"
        };
        wait_until(wanted, || role(&daemon) == wanted);
        self.all.push((daemon, dir));
    }

    /// The end of each daemon's log.
    pub fn said_last(&self) -> String {
        const LINES: usize = 30;
        let end = |log: &str| {
            log.lines()
                .rev()
                .take(LINES)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect::<Vec<_>>()
                .join("\n")
        };
        let of = |(number, (daemon, _)): (usize, &(Daemon, TempDir))| {
            format!("{number}:\n{}", end(&daemon.log_text()))
        };
        self.all
            .iter()
            .enumerate()
            .map(of)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The number of the daemon that leads: the last one in the list whose log reports that.
    pub fn leader(&self) -> Option<usize> {
        self.all
            .iter()
            .rposition(|(daemon, _)| daemon.log_text().contains("became leader"))
    }
}

impl std::ops::Index<usize> for Daemons {
    type Output = Daemon;

    fn index(&self, number: usize) -> &Daemon {
        &self.all[number].0
    }
}

impl std::ops::IndexMut<usize> for Daemons {
    fn index_mut(&mut self, number: usize) -> &mut Daemon {
        &mut self.all[number].0
    }
}

/// The role that a daemon reports.
pub fn role(daemon: &Daemon) -> String {
    Http(daemon.address("http")).get("/api/v1/cluster").json()["role"]
        .as_str()
        .unwrap()
        .to_owned()
}
