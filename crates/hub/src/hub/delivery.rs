//! The end of a visit: its events and bytes are put into their clients' mailboxes, in order.
//!
//! Consecutive mail for one client opens the client's mailbox once. At most one mailbox is open at
//! a time.

use std::sync::Arc;

use foldhash::HashMap;
use windlass_engine::ClientId;

use super::core::Core;
use super::durable::Pending;
use crate::budget::{Budget, Hold};
use crate::loads::Load;
use crate::mailbox::{Filling, Mail, Mailbox};

/// The commits on which the mail of a visit may depend.
pub(super) struct Gates {
    /// The commit after which all changes up to now are on disk.
    pub(super) barrier: u64,
    /// The same, if acknowledgements wait for the disk. Jobs with exclusive keys wait for it, too,
    /// because it makes the ends of their predecessors durable.
    pub(super) acknowledgement: Option<u64>,
    /// The same, if time-bound leases wait for the disk.
    pub(super) lease: Option<u64>,
    /// The newest commit on disk.
    pub(super) durable: u64,
}

impl Core {
    /// Puts the context's events and bytes into their clients' mailboxes.
    pub(super) fn deliver(&mut self, gates: Gates, budget: &Arc<Budget>) {
        let Self {
            mailboxes,
            visit,
            pending,
            journal,
            context,
            ..
        } = self;
        let own_bytes = &mut visit.own_bytes;
        let mut delivery = Delivery {
            mailboxes,
            pending,
            loads: &mut visit.loads,
            next: journal.pending_seq(),
            open: None,
        };
        let mut last = None;
        for (index, (client, event)) in context.events.drain(..).enumerate() {
            while own_bytes.front().is_some_and(|(place, ..)| *place <= index)
                && let Some((_, client, bytes)) = own_bytes.pop_front()
            {
                delivery.add(client, None, Mail::Bytes(bytes), None);
            }
            let gate = if let Some(job) = event.handed_out() {
                let mut gate = delivery.pending.ends.get(&client).copied();
                if event.grants_lasting_lease() {
                    gate = gate.max(gates.lease);
                }
                if !context.exclusive.is_empty() && context.exclusive.contains(&job.id) {
                    gate = gate.max(gates.acknowledgement);
                }
                gate
            } else if !event.acknowledges() {
                None
            } else if event.is_barrier() {
                Some(gates.barrier)
            } else {
                gates.acknowledgement
            };
            let gate = gate.filter(|commit| *commit > gates.durable);
            let hold = Hold::on(&event, &mut last, budget);
            delivery.add(client, gate, Mail::Event(event), hold);
        }
        for (_, client, bytes) in own_bytes.drain(..) {
            delivery.add(client, None, Mail::Bytes(bytes), None);
        }
        delivery.close();
    }
}

/// The delivery of one visit's mail.
struct Delivery<'a> {
    mailboxes: &'a HashMap<ClientId, Arc<Mailbox>>,
    pending: &'a mut Pending,
    /// Bodies that mail waits for.
    loads: &'a mut Vec<Load>,
    /// The commit that is not cut yet.
    next: u64,
    /// The mailbox of the client of the last mail.
    open: Option<(ClientId, &'a Arc<Mailbox>, Filling<'a>)>,
}

impl Delivery<'_> {
    fn add(&mut self, client: ClientId, gate: Option<u64>, mail: Mail, hold: Option<Arc<Hold>>) {
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
        if let Some(commit) = gate {
            self.pending.await_commit(commit, self.next);
        }
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
        if let Some(commit) = filling.push(gate, mail, hold) {
            self.pending.waiting.add(commit, mailbox);
        }
    }

    fn close(&mut self) {
        if let Some((.., filling)) = self.open.take() {
            filling.finish();
        }
    }
}
