//! Administrators' commands. Not in the specification.

use windlass_engine::{Cursor, JobStateKind, Query, QueueKind, QueueRow};
use windlass_session::{Outbox, Stop};

use super::EventmqSession;
use super::asked::Ask;
use super::directory::text;
use crate::wire::{self, Status};

/// Queues in one page.
const PAGE: u32 = 256;

impl EventmqSession {
    /// `STATUS`
    pub(super) fn status(&mut self, out: &mut Outbox) {
        let mut report = Box::<Status>::default();
        self.settings.directory.report_counters(&mut report);
        self.ask_page(report, Cursor::default(), out);
    }

    fn ask_page(&mut self, report: Box<Status>, after: Cursor, out: &mut Outbox) {
        let tag = self.asked.push(Ask::Status { report });
        out.command(tag, Query::Queues { after, limit: PAGE });
    }

    /// Adds a page of queues to the report.
    pub(super) fn status_page(
        &mut self,
        mut report: Box<Status>,
        rows: &[QueueRow],
        next: Option<Cursor>,
        out: &mut Outbox,
    ) {
        for row in rows.iter().filter(|row| row.kind == QueueKind::Work) {
            let queue = text(&row.name);
            report.waiting.add(&queue, row.jobs(JobStateKind::Ready).into());
            report.inflight.add(&queue, row.jobs(JobStateKind::Leased).into());
        }
        match next {
            Some(after) => self.ask_page(report, after, out),
            None => self.report(&report.to_json(), out),
        }
    }

    /// `ROUTER_SHOW_WORKERS`
    pub(super) fn show_workers(&mut self, out: &mut Outbox) {
        let report = self.settings.directory.report_workers();
        self.report(&report.to_json(), out);
    }

    /// `ROUTER_SHOW_SCHEDULERS`
    pub(super) fn show_schedulers(&mut self, out: &mut Outbox) {
        let report = self.settings.directory.report_schedulers();
        self.report(&report.to_json(), out);
    }

    fn report(&mut self, json: &str, out: &mut Outbox) {
        self.say(wire::Command::Reply { text: json.as_bytes(), of: None }, out);
    }

    /// `DISCONNECT`. If the configuration allows it, this stops the daemon, which then sends `KBYE` to all peers. Otherwise it
    /// ends the sender's registration only.
    pub(super) fn disconnect(&mut self, id: &[u8], out: &mut Outbox) {
        if self.settings.disconnect {
            self.say(wire::Command::Ack { of: id }, out);
            out.stop_daemon(Stop::Now);
        } else {
            self.quit(out);
            self.say(wire::Command::Kbye, out);
        }
    }
}
