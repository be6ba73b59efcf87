//! Listings, and changes of many jobs, a page at a time.

use bytes::Bytes;
use windlass_engine::{
    BulkCommand, ClientId, Command, Cursor, Event, Filter, JobId, JobRef, Mutation, Protocol,
    Query, Reply, Tag,
};

use super::{Life, oracle};

impl Life {
    /// Requests one page of jobs. Due events happen, and nothing else; each row must match and be listed once.
    pub(super) fn page(
        &mut self,
        client: ClientId,
        filter: &Filter,
        after: Cursor,
        limit: u32,
    ) -> (Vec<JobId>, Option<Cursor>) {
        self.note(&format!("{client:?} page {filter:?} {after:?} {limit}"));
        let command = Command::Query(Query::Jobs {
            filter: filter.clone().into(),
            after,
            limit,
        });
        self.tally.note_command(&command);
        let mut heard = self.hear(client, Tag(1), command);
        let Some((_, Event::Reply(_, Reply::Jobs { rows, next, .. }))) = heard.pop() else {
            panic!("no page: {heard:?}")
        };
        let said = self.oracle.wait();
        self.judge(None, &heard, &said);
        assert!(
            rows.len() <= limit.clamp(1, self.world.limits.page_max) as usize,
            "{} rows",
            rows.len()
        );
        for row in &rows {
            let Some(memo) = self.oracle.job(row.job.id) else {
                panic!("{:?} is listed but gone", row.job.id)
            };
            assert!(
                self.oracle.may_name(client, memo),
                "{:?} is not the client's",
                row.job
            );
            assert!(
                self.oracle.matches(&memo.job, filter),
                "{:?} does not match {filter:?}",
                row.job
            );
            assert_eq!(oracle::plain(&row.job), oracle::plain(&memo.job));
        }
        (rows.into_iter().map(|row| row.job.id).collect(), next)
    }

    /// Processes everything that is due, and drops dead jobs beyond the limits.
    pub(super) fn come_to_rest(&mut self) {
        self.tick();
        while self.oracle.has_past_to_drop() {
            self.tick();
        }
    }

    /// The protocol of a client, which has only its own keys and flushes only what is its own.
    pub(super) fn own_or(&self, client: ClientId, protocol: Protocol) -> Protocol {
        self.oracle
            .client(client)
            .and_then(|client| client.info.protocol)
            .unwrap_or(protocol)
    }

    /// Looks for a job by a key that jobs of several queues may hold. The engine chooses one of them.
    pub(super) fn look_anywhere(&mut self, client: ClientId, protocol: Protocol, key: Bytes) {
        self.tick();
        let protocol = self.own_or(client, protocol);
        let command = Command::Query(Query::Job(JobRef::KeyAnywhere {
            protocol,
            key: key.clone(),
        }));
        self.note(&format!("{client:?} {command:?}"));
        let heard = self.hear(client, Tag(2), command.clone());
        let [(_, Event::Reply(_, Reply::Looked { job, .. }))] = heard.as_slice() else {
            panic!("{heard:?}")
        };
        let found = job.as_ref().map(|view| view.job.id);
        self.laws
            .watch_anywhere(self.oracle.holders(protocol, &key), found);
        let same = Command::Query(Query::Job(JobRef::Id(found.unwrap_or(JobId(0)))));
        let said = self.oracle.apply(client, Tag(2), &same);
        self.judge(Some((client, &command)), &heard, &said);
        self.tally.note_command(&command);
    }

    /// Lists all matching jobs, a page at a time.
    pub(super) fn walk(&mut self, client: ClientId, filter: &Filter, limit: u32) {
        self.come_to_rest();
        let (mut found, mut after) = (Vec::new(), Cursor::default());
        let (wanted, ordered) = loop {
            let (rows, next) = self.page(client, filter, after, limit);
            found.extend(rows);
            match next {
                Some(next) => after = next,
                None => break self.oracle.matching(client, filter),
            }
            assert!(
                found.len() <= self.oracle.jobs.len(),
                "the listing does not end"
            );
        };
        if ordered {
            assert_eq!(found, wanted, "left: what was listed, right: what matches");
        } else {
            let (mut found, mut wanted) = (found, wanted);
            found.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "left: what was listed, right: what matches");
        }
    }

    /// Changes all matching jobs, a page at a time: a change applies to the same page that a listing shows.
    pub(super) fn mutate(
        &mut self,
        client: ClientId,
        filter: &Filter,
        action: Mutation,
        limit: u32,
    ) {
        self.come_to_rest();
        let (mut after, (wanted, _)) = (Cursor::default(), self.oracle.matching(client, filter));
        for _ in 0..200 {
            self.come_to_rest();
            let (rows, next) = self.page(client, filter, after, limit);
            self.note(&format!("{client:?} {action:?} {rows:?}"));
            self.preview(client, (filter, action, after, limit), &rows);
            let command = Command::Bulk(BulkCommand::Mutate {
                filter: filter.clone().into(),
                action,
                after,
                limit,
            });
            self.tally.note_command(&command);
            let heard = self.hear(client, Tag(2), command.clone());
            let said = self.oracle.mutate(client, &rows, action, next);
            self.judge(Some((client, &command)), &heard, &said);
            match next {
                Some(next) => after = next,
                None if action == Mutation::Discard => {
                    return self.expect_none_but_leased(client, filter, &wanted);
                }
                None => return,
            }
        }
    }

    /// Moves all matching dead jobs to another queue, a page at a time.
    pub(super) fn redrive(
        &mut self,
        client: ClientId,
        filter: &Filter,
        (to, delay_ms, per_second): (Bytes, u64, u32),
        limit: u32,
    ) {
        let mut after = Cursor::default();
        for _ in 0..200 {
            self.come_to_rest();
            let (rows, next) = self.page(client, filter, after, limit);
            self.note(&format!("{client:?} {rows:?} move to {to:?}"));
            let filter = Box::new(filter.clone());
            let command = Command::Bulk(BulkCommand::Redrive {
                filter,
                to: to.clone(),
                delay_ms,
                per_second,
                after,
                limit,
            });
            self.tally.note_command(&command);
            let heard = self.hear(client, Tag(2), command.clone());
            let said = self
                .oracle
                .redrive(client, &rows, (&to, delay_ms, per_second), next);
            self.judge(Some((client, &command)), &heard, &said);
            match next {
                Some(next) => after = next,
                None => return,
            }
        }
    }

    /// Counts the jobs of a page that a change would change.
    pub(super) fn preview(
        &mut self,
        client: ClientId,
        (filter, action, after, limit): (&Filter, Mutation, Cursor, u32),
        rows: &[JobId],
    ) {
        let command = Command::Query(Query::Preview {
            filter: filter.clone().into(),
            action,
            after,
            limit,
        });
        let heard = self.hear(client, Tag(2), command);
        let expected = rows
            .iter()
            .filter(|id| self.oracle.would_mutate(**id, action))
            .count();
        let [(_, Event::Reply(_, Reply::Counted { jobs, .. }))] = heard.as_slice() else {
            panic!("{heard:?}")
        };
        assert_eq!(*jobs as usize, expected, "{action:?} of {rows:?}");
    }

    /// Removes everything of one protocol, a page at a time.
    pub(super) fn flush(&mut self, client: ClientId, protocol: Protocol, limit: u32) {
        let protocol = self.own_or(client, protocol);
        let (mut after, filter) = (
            Cursor::default(),
            Filter {
                protocol: Some(protocol),
                ..Filter::default()
            },
        );
        for _ in 0..500 {
            self.come_to_rest();
            let Cursor(stage, at) = after;
            // Due events happen first, as they do before each page.
            let position = if stage == 1 { at } else { 0 };
            let (rows, next) = self.page(client, &filter, Cursor(position, 0), limit);
            self.note(&format!("{client:?} flush {protocol:?} {after:?} {limit}"));
            let command = Command::Bulk(BulkCommand::Flush {
                protocol,
                after,
                limit,
            });
            self.tally.note_command(&command);
            let heard = self.hear(client, Tag(2), command.clone());
            let jobs = (rows.as_slice(), next.map(|next| next.0));
            let (next, said) = self
                .oracle
                .flush(client, protocol, (stage, at), limit, jobs);
            self.judge(Some((client, &command)), &heard, &said);
            match next {
                Some(next) => after = next,
                None => return,
            }
        }
    }

    /// Everything that was to be removed is gone. Jobs may have come to match meanwhile: callbacks of batches that were
    /// pushed, and submits that start themselves because the job that had taken them in was removed without a run.
    fn expect_none_but_leased(&self, client: ClientId, filter: &Filter, wanted: &[JobId]) {
        let (left, _) = self.oracle.matching(client, filter);
        for id in left {
            let leased = self
                .oracle
                .job(id)
                .is_some_and(|memo| memo.job.lease().is_some());
            assert!(
                leased || !wanted.contains(&id),
                "{id:?} should have been removed"
            );
        }
    }
}
