//! Administrators' commands. Not in the specification.

use windlass_engine::{Cursor, JobStateKind, Query, QueueRow, Refusal, Right};
use windlass_session::Stop;

use super::answer::refused;
use super::ask::Ask;
use super::directory::text;
use super::{EventmqSpeaker, Talk};
use crate::wire::{self, Status};

/// Queues in one page.
const PAGE: u32 = 256;

impl EventmqSpeaker {
    /// `STATUS`
    pub(super) fn status(&self, talk: &mut Talk<'_>) {
        let mut report = Box::<Status>::default();
        self.settings.directory.report_counters(&mut report);
        Self::ask_page(report, Cursor::default(), talk);
    }

    fn ask_page(report: Box<Status>, after: Cursor, talk: &mut Talk<'_>) {
        talk.ask(Ask::Status { report }, Query::Queues { after, limit: PAGE });
    }

    /// Adds a page of queues to the report.
    pub(super) fn status_page(
        &mut self,
        mut report: Box<Status>,
        rows: &[QueueRow],
        next: Option<Cursor>,
        talk: &mut Talk<'_>,
    ) {
        for row in rows {
            let queue = text(&row.name);
            report
                .waiting
                .add(&queue, row.jobs(JobStateKind::Ready).into());
            report
                .inflight
                .add(&queue, row.jobs(JobStateKind::Leased).into());
        }
        match next {
            Some(after) => Self::ask_page(report, after, talk),
            None => self.report(&wire::json(&*report), talk),
        }
    }

    /// `ROUTER_SHOW_WORKERS` and `ROUTER_SHOW_SCHEDULERS`. The engine's answer marks the place of the report.
    pub(super) fn show(workers: bool, talk: &mut Talk<'_>) {
        talk.ask(Ask::Show { workers }, Query::Stats);
    }

    pub(super) fn shown(&mut self, workers: bool, talk: &mut Talk<'_>) {
        let directory = &self.settings.directory;
        let json = match workers {
            true => wire::json(&directory.report_workers()),
            false => wire::json(&directory.report_schedulers()),
        };
        self.report(&json, talk);
    }

    fn report(&mut self, json: &str, talk: &mut Talk<'_>) {
        if !talk.may(Right::Administer) {
            return refused(Refusal::NotPermitted);
        }
        self.send(
            wire::Command::Reply {
                text: json.as_bytes(),
                of: None,
            },
            talk,
        );
    }

    /// `DISCONNECT`. If the configuration allows it, this stops the daemon, which then sends `KBYE` to all peers.
    /// Otherwise it ends the sender's registration only.
    pub(super) fn disconnect(&mut self, id: &[u8], talk: &mut Talk<'_>) {
        if self.settings.section.disconnect && talk.may(Right::Administer) {
            self.send(wire::Command::Ack { of: id }, talk);
            talk.stop_daemon(Stop::Now);
        } else {
            self.quit(talk);
            self.send(wire::Command::Kbye, talk);
        }
    }
}
