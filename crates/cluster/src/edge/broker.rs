//! The edge as a [`Broker`]: it forwards its clients' commands.

use super::state::{ASKED, OWN_REQUESTS};
use super::*;

impl Broker for Edge {
    fn open(&self, client: ClientId, mailbox: Arc<Mailbox>) {
        self.lock().clients.insert(client, Member::new(mailbox));
    }

    fn visit(&self, _now: &Reading, batches: &mut dyn Iterator<Item = Batch<'_>>) -> CommitDuty {
        let (mut state, mut published) = (self.lock(), Vec::new());
        let had_any = !state.to_leader.is_empty();
        for Batch {
            client,
            items,
            visited,
            ..
        } in batches
        {
            *visited = state.go(client, items, &mut published);
        }
        let has_any = !state.to_leader.is_empty();
        drop(state);
        if has_any && !had_any {
            self.to_send.notify_one();
        }
        self.publish(published);
        self.budget.relieve();
        CommitDuty::None
    }

    fn visit_nonblocking(&self, now: &Reading, batch: Batch<'_>) -> bool {
        self.visit(now, &mut std::iter::once(batch));
        true
    }

    fn mail_nonblocking(&self, mailbox: &Mailbox, into: &mut Vec<Mail>) -> bool {
        self.mail(mailbox, usize::MAX, into);
        true
    }

    fn mail(&self, mailbox: &Mailbox, room: usize, into: &mut Vec<Mail>) -> Option<usize> {
        let before = into.len();
        let left = mailbox.take(
            self.durable.load(Ordering::Acquire),
            self.failed.load(Ordering::Acquire),
            room,
            into,
        );
        let taken = into.iter().skip(before).map(|mail| {
            if let Mail::Event(event) = mail {
                event.bytes()
            } else {
                0
            }
        });
        if let Some(bytes) = mailbox.forwarding.made_room(taken.sum(), ROOM_STEP) {
            self.lock()
                .ask_for(mailbox.client(), |client| ToLeader::Room {
                    client,
                    bytes: bytes as u64,
                });
            self.to_send.notify_one();
        }
        left
    }

    fn sent_jobs(&self, client: ClientId, jobs: u32) {
        self.lock()
            .ask_for(client, |client| ToLeader::Sent { client, jobs });
        self.to_send.notify_one();
    }

    fn close(&self, client: ClientId) -> bool {
        let mut state = self.lock();
        let Some(member) = state.clients.remove(&client) else {
            return true;
        };
        state.under_way_bytes -= member.under_way_bytes;
        if member.has_spoken && !self.stopping.load(Ordering::Acquire) {
            let unsent = member.mailbox.take_unsent_jobs(usize::MAX);
            let release = |(job, token)| {
                let (job, proof) = (JobRef::Id(job), Proof::Token(token));
                LeaseCommand::Release {
                    job,
                    proof,
                    front: false,
                }
                .into()
            };
            let unwait = (!unsent.is_empty()).then(|| TakeCommand::Unwait.into());
            for command in unwait.into_iter().chain(unsent.into_iter().map(release)) {
                state.ask_for(client, |client| ToLeader::Command {
                    client,
                    tag: Tag::NONE,
                    command,
                });
            }
            state.ask_for(client, |client| ToLeader::Close { client });
            self.to_send.notify_one();
        }
        true
    }

    fn ask(&self, command: Command) -> Result<Reply, Refusal> {
        let mut state = self.lock();
        if state.link != LinkState::Open {
            return Err(Refusal::Unavailable);
        }
        state.asked += 1;
        let client = ClientId(OWN_REQUESTS + state.asked);
        state.questions.insert(client, None);
        state.open(client);
        let opening = Command::from(ClientCommand::Open(ClientInfo::default()));
        for (tag, command) in [(Tag::NONE, opening), (ASKED, command)] {
            state.ask_for(client, |client| ToLeader::Command {
                client,
                tag,
                command,
            });
        }
        state.ask_for(client, |client| ToLeader::Close { client });
        self.to_send.notify_one();
        let waits = |state: &mut State| state.questions.get(&client).is_some_and(Option::is_none);
        let waited = self.replied.wait_timeout_while(state, ASK_MAX, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state
            .questions
            .remove(&client)
            .flatten()
            .unwrap_or(Err(Refusal::Unknown))
    }

    fn health(&self) -> Health {
        let has_link = self.lock().link == LinkState::Open && !self.in_doubt();
        match (
            self.stopping.load(Ordering::Acquire),
            has_link && !self.failed.load(Ordering::Acquire),
        ) {
            (true, _) => Health::Stopping,
            (false, false) => Health::StoreFailed,
            (false, true) => Health::Serving,
        }
    }

    /// Jobs are tracked by the leader, so this broker is idle as soon as its clients have
    /// disconnected.
    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        clock::go_on();
        let mailboxes: Vec<_> = self
            .lock()
            .clients
            .values()
            .map(|member| Arc::clone(&member.mailbox))
            .collect();
        Mailbox::ring_all(&mailboxes);
    }
}
