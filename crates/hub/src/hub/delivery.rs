//! The end of a visit: its events and bytes are put into their clients' mailboxes, in order.
//!
//! Consecutive mail for one client opens the client's mailbox once. At most one mailbox is open at
//! a time.

use std::sync::Arc;

use foldhash::HashMap;
use windlass_engine::ClientId;

use super::Core;
use crate::budget::{Budget, Hold};
use crate::loads::Load;
use crate::mailbox::{Filling, Mail, Mailbox};
use crate::waking::Waiting;

/// The commits on which the mail of a visit may depend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gates {
    /// The commit that acknowledgements must wait for; 0 = none.
    pub(super) acknowledgement: u64,
    /// The commit that time-bound leases must wait for; 0 = none.
    pub(super) lease: u64,
    /// The commit that jobs with exclusive keys must wait for, which makes the ends of their
    /// predecessors durable; 0 = none.
    pub(super) ends: u64,
    /// The commit after which all changes up to now are on disk.
    pub(super) barrier: u64,
    /// The newest commit on disk.
    pub(super) durable: u64,
}

impl Core {
    /// Puts the context's events and bytes into their clients' mailboxes.
    pub(super) fn deliver(&mut self, gates: Gates, budget: &Arc<Budget>) {
        let Self {
            mailboxes,
            ends,
            own_bytes,
            waiting,
            acknowledgements,
            awaited,
            journal,
            context,
            loads,
            ..
        } = self;
        let pending = journal.pending_seq();
        let mut delivery = Delivery {
            mailboxes,
            waiting,
            acknowledgements,
            awaited,
            loads,
            pending,
            open: None,
        };
        let mut last = None;
        for (index, (client, event)) in context.events.drain(..).enumerate() {
            while own_bytes.front().is_some_and(|(place, ..)| *place <= index)
                && let Some((_, client, bytes)) = own_bytes.pop_front()
            {
                delivery.add(client, 0, Mail::Bytes(bytes), None);
            }
            let gate = if event.is_barrier() {
                gates.barrier
            } else {
                gates.acknowledgement
            };
            let needs = if let Some(job) = event.handed_out() {
                let after_ends =
                    !context.exclusive.is_empty() && context.exclusive.contains(&job.id);
                let lease = u64::from(event.grants_lasting_lease()) * gates.lease;
                ends.gate(client)
                    .max(lease)
                    .max(u64::from(after_ends) * gates.ends)
            } else {
                u64::from(event.acknowledges()) * gate
            };
            let needs = if needs > gates.durable { needs } else { 0 };
            let hold = Hold::on(&event, &mut last, budget);
            delivery.add(client, needs, Mail::Event(event), hold);
        }
        for (_, client, bytes) in own_bytes.drain(..) {
            delivery.add(client, 0, Mail::Bytes(bytes), None);
        }
        delivery.close();
    }
}

/// The delivery of one visit's mail.
struct Delivery<'a> {
    mailboxes: &'a HashMap<ClientId, Arc<Mailbox>>,
    waiting: &'a mut Waiting<Arc<Mailbox>>,
    acknowledgements: &'a mut usize,
    /// The newest commit that an acknowledgement waits for.
    awaited: &'a mut u64,
    /// Bodies that mail waits for.
    loads: &'a mut Vec<Load>,
    /// The commit that is not cut yet.
    pending: u64,
    /// The mailbox of the client of the last mail.
    open: Option<(ClientId, &'a Arc<Mailbox>, Filling<'a>)>,
}

impl Delivery<'_> {
    fn add(&mut self, client: ClientId, gate: u64, mail: Mail, hold: Option<Arc<Hold>>) {
        if self
            .open
            .as_ref()
            .is_none_or(|(whose, ..)| *whose != client)
        {
            self.close();
            self.open = self
                .mailboxes
                .get(&client)
                .map(|mailbox| (client, mailbox, mailbox.fill()));
        }
        let Some((_, mailbox, filling)) = &mut self.open else {
            return;
        };
        *self.acknowledgements += usize::from(gate >= self.pending);
        *self.awaited = gate.max(*self.awaited);
        if let Mail::Event(event) = &mail
            && event.waits_for_body()
        {
            let load = |(job, from)| Load {
                job,
                from,
                who: Some(Arc::clone(mailbox)),
                is_for_mail: true,
            };
            self.loads.extend(event.bodies().map(load));
        }
        if filling.push(gate, mail, hold) {
            self.waiting.add(gate, mailbox);
        }
    }

    fn close(&mut self) {
        if let Some((.., filling)) = self.open.take() {
            filling.finish();
        }
    }
}
