//! A PostgreSQL server with a synchronous standby, and what happens when the server is lost.

use super::postgres::Postgres;

/// A primary and its standby. Each has a port, and a new server has that of the one that it replaces.
#[derive(Debug)]
pub struct Pair {
    primary: Postgres,
    standby: Postgres,
}

impl Pair {
    /// Starts both.
    pub fn start() -> Self {
        let primary = Postgres::with(&["wal_keep_size=256MB"]);
        let standby = Postgres::standby_of(&primary, windlass_testkit::daemon::free_port());
        primary.wait_for_its_standby();
        Self { primary, standby }
    }

    /// The section of a daemon that keeps its store in whichever server takes writes.
    pub fn section(&self) -> String {
        let [one, other] =
            [&self.primary, &self.standby].map(|server| format!("127.0.0.1:{}", server.port()));
        format!(
            "[postgres]\nurl = \"postgres://windlass@{one},{other}/postgres?target_session_attrs=read-write\"\n"
        )
    }

    /// The server that takes writes.
    pub const fn primary(&self) -> &Postgres {
        &self.primary
    }

    /// Kills the primary, as a power cut would, and promotes its standby.
    pub fn fail_over(&mut self) {
        self.primary.kill();
        self.standby.promote();
    }

    /// Replaces the lost primary with a new standby of the server that has taken its place.
    pub fn rebuild(&mut self) {
        std::mem::swap(&mut self.primary, &mut self.standby);
        self.standby = Postgres::standby_of(&self.primary, self.standby.port());
        self.primary.wait_for_its_standby();
    }
}
