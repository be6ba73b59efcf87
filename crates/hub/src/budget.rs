//! The memory of all connections together: incomplete messages, unsent bytes, and mail.
//!
//! Each connection has limits of its own, but ten thousand connections at their limits would exceed
//! a machine's memory. The budget counts allocated memory, not used memory. When the sum exceeds
//! the limit, the daemon closes the connection that holds most, then the next, until the rest fits.
//! Bytes that a peer does not read count fourfold in that comparison, because a peer that only
//! sends much may be well-behaved.
//!
//! Jobs in flight to workers may use half of the budget. Further jobs are not handed out: the
//! engine makes workers wait ([`Budget::room`]). While they wait, a worker that reads nothing of
//! its jobs is disconnected. A worker that reads them is not, whatever others hold.
//!
//! Amounts below [`SMALL_BYTES`] are not counted, because any connection costs that much. Bytes in
//! several mailboxes exist once, and are counted once (`Hold`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use foldhash::HashMap;
use windlass_engine::{ClientId, Event, Timestamp};
use windlass_session::Reason;

use crate::clock;
use crate::published::SharedBudget;
use crate::shared::lock;

/// Smaller buffers of a connection are not counted, because `connections_max` covers them.
pub const SMALL_BYTES: usize = 4 * 1024;

/// The accounting of all connections.
#[derive(Debug, Default)]
pub struct Budget {
    held: AtomicUsize,
    bytes_max: AtomicUsize,
    /// Bytes of jobs in flight to workers, which `held` excludes.
    handed_out: AtomicUsize,
    /// Published bytes may use half as much memory in addition.
    pub published: SharedBudget,
    members: Mutex<HashMap<ClientId, Arc<dyn Evictable>>>,
}

/// The bytes reported by one holder.
#[derive(Debug, Default)]
pub struct Share(AtomicUsize);

/// A connection that the budget can close.
pub trait Evictable: std::fmt::Debug + Send + Sync {
    /// The priority for closing connections when all together hold too much: the bytes that wait
    /// for its client, multiplied if the peer does not read them, and 0 if it is already closed.
    fn badness(&self, now: Timestamp) -> usize;

    /// Called when workers wait for buffer space: if the peer seems to read nothing of its jobs,
    /// the owner checks that and closes the connection.
    fn suspect(&self, now: Timestamp);

    /// Closes it, and drops all mail. Its owner's buffers count as freed immediately.
    fn evict(&self, why: Reason);
}

/// Large bytes in any number of mailboxes, counted until the last of them is gone; or the bytes of
/// a job in flight to one worker.
#[derive(Debug)]
pub struct Hold {
    budget: Arc<Budget>,
    bytes: usize,
    is_job: bool,
}

impl Budget {
    /// Creates a budget of this many bytes.
    pub fn new(bytes_max: usize) -> Self {
        let published = SharedBudget::new(bytes_max / 2);
        Self {
            bytes_max: AtomicUsize::new(bytes_max),
            published,
            ..Self::default()
        }
    }

    /// Sets the limit.
    pub fn limit(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.published.limit(bytes_max / 2);
        self.relieve();
    }

    /// Adds a connection, which can then be closed by the budget.
    pub fn enter(&self, client: ClientId, member: Arc<dyn Evictable>) {
        self.members().insert(client, member);
    }

    /// Removes a connection.
    pub fn leave(&self, client: ClientId) {
        let gone = self.members().remove(&client);
        // Dropping the mailbox may free much memory, so not under the lock.
        drop(gone);
    }

    /// Sets how many bytes a holder has now. The caller must call [`Budget::relieve`] soon.
    pub fn report(&self, share: &Share, bytes: usize) {
        let now = if bytes < SMALL_BYTES { 0 } else { bytes };
        let before = share.0.swap(now, Ordering::AcqRel);
        // A decrease wraps around, and so does the sum, which contains `before`.
        if now != before {
            self.held
                .fetch_add(now.wrapping_sub(before), Ordering::AcqRel);
        }
    }

    /// Bytes of jobs that may still be handed out.
    pub fn room(&self) -> u64 {
        let most = self.bytes_max.load(Ordering::Relaxed) / 2;
        most.saturating_sub(self.handed_out.load(Ordering::Acquire)) as u64
    }

    /// Called when workers wait for buffer space, to close connections that read nothing of their
    /// jobs. Each connection decides after it has tried to write, because its thread may have
    /// stalled instead of its peer.
    pub fn cut_stalled(&self, now: Timestamp) {
        for member in self.members().values() {
            member.suspect(now);
        }
    }

    /// Closes the connection that holds most, until the sum is within the limit. Its bytes count as
    /// freed immediately: its mail is dropped here, and its task is woken to free the rest.
    pub fn relieve(&self) {
        while self.used().0 > self.bytes_max.load(Ordering::Relaxed) {
            let now = clock::now();
            let most = self
                .members()
                .values()
                .max_by_key(|member| member.badness(now))
                .cloned();
            // Every connection that holds much is already being closed.
            let Some(member) = most.filter(|member| member.badness(now) >= SMALL_BYTES) else {
                return;
            };
            member.evict(Reason::Limit("buffer_bytes_max"));
        }
    }

    fn members(&self) -> MutexGuard<'_, HashMap<ClientId, Arc<dyn Evictable>>> {
        lock(&self.members)
    }

    /// The bytes counted now.
    #[cfg(any(test, feature = "testing"))]
    pub fn held(&self) -> usize {
        self.used().0
    }

    /// The bytes that all connections hold, and the limit.
    pub fn used(&self) -> (usize, usize) {
        let held = self.held.load(Ordering::Acquire) + self.handed_out.load(Ordering::Acquire);
        (held, self.bytes_max.load(Ordering::Relaxed))
    }
}

impl Share {
    /// The counted bytes.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Hold {
    /// The counted bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes, if they are a job's.
    pub const fn job_bytes(&self) -> usize {
        if self.is_job { self.bytes } else { 0 }
    }

    /// Counts the large bytes of an event, once for all its recipients. `last` has the bytes of the
    /// previous event. Returns `None` if the event has no large bytes.
    pub fn on(
        event: &Event,
        last: &mut Option<(Bytes, Arc<Self>)>,
        budget: &Arc<Budget>,
    ) -> Option<Arc<Self>> {
        let hold = |bytes, is_job| {
            let hold = Self {
                budget: Arc::clone(budget),
                bytes,
                is_job,
            };
            hold.counted().fetch_add(bytes, Ordering::AcqRel);
            Arc::new(hold)
        };
        if let Some(job) = event.handed_out() {
            let bytes = job.body_len();
            return (bytes >= SMALL_BYTES).then(|| hold(bytes, true));
        }
        let bytes = event.large_body(SMALL_BYTES)?;
        if let Some((same, hold)) = last
            && same.as_ptr() == bytes.as_ptr()
            && same.len() == bytes.len()
        {
            return Some(Arc::clone(hold));
        }
        let hold = hold(bytes.len(), false);
        *last = Some((bytes.clone(), Arc::clone(&hold)));
        Some(hold)
    }

    /// The sum that contains its bytes.
    fn counted(&self) -> &AtomicUsize {
        if self.is_job {
            &self.budget.handed_out
        } else {
            &self.budget.held
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.counted().fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::{JobId, Note, Notice};

    use super::*;
    use crate::mailbox::{Mail, Mailbox};
    use crate::testing::nowhere;

    fn member(budget: &Arc<Budget>, client: u64) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::new(usize::MAX, Arc::clone(budget), nowhere()));
        budget.enter(ClientId(client), Arc::<Mailbox>::clone(&mailbox));
        mailbox
    }

    /// Connections that hold this many bytes each.
    fn members<const MANY: usize>(
        budget: &Arc<Budget>,
        bytes: [usize; MANY],
    ) -> [Arc<Mailbox>; MANY] {
        let mut client = 0;
        bytes.map(|bytes| {
            client += 1;
            let member = member(budget, client);
            member.pressure.set_buffers(bytes);
            member
        })
    }

    fn said(bytes: &Bytes) -> Event {
        Event::Notice(Notice::Progress {
            job: JobId(1),
            note: Note::Data(bytes.clone()),
        })
    }

    #[test]
    fn shares_add_up_and_small_ones_do_not_count() {
        let budget = Budget::new(1_000_000);
        let (one, other) = (Share::default(), Share::default());
        budget.report(&one, SMALL_BYTES - 1);
        assert_eq!(budget.held(), 0);
        budget.report(&one, 900_000);
        budget.report(&other, 90_000);
        budget.report(&one, 10_000);
        assert_eq!(budget.held(), 100_000);
        budget.report(&one, 0);
        budget.report(&other, 0);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn a_connection_that_has_left_is_not_the_one_to_close() {
        let budget = Arc::new(Budget::new(1_000_000));
        let members = members(&budget, [300_000, 600_000]);
        budget.leave(ClientId(2));
        budget.limit(800_000);
        assert_eq!(
            members.map(|member| member.close_reason().is_some()),
            [true, false]
        );
    }

    #[test]
    fn a_lower_limit_closes_the_largest_connections() {
        let budget = Arc::new(Budget::new(1_000_000));
        let members = members(&budget, [300_000, 400_000]);
        budget.limit(700_000);
        assert!(members.iter().all(|member| member.close_reason().is_none()));
        budget.limit(699_999);
        assert_eq!(
            members.map(|member| member.close_reason().is_some()),
            [false, true]
        );
        assert_eq!(budget.used(), (300_000, 699_999));
    }

    #[test]
    fn the_largest_connections_are_closed_until_the_rest_fits() {
        let budget = Arc::new(Budget::new(1_000_000));
        let members = members(&budget, [300_000, 200_000, 400_000, 100_000]);
        budget.relieve();
        assert!(
            members.iter().all(|member| member.close_reason().is_none()),
            "exactly at the limit"
        );
        // The connection that requests more is not the one that is closed.
        members[3].pressure.set_buffers(300_000);
        budget.relieve();
        let gone = || {
            members
                .iter()
                .map(|member| member.close_reason().is_some())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (gone(), budget.held()),
            (vec![false, false, true, false], 800_000)
        );
        // Its later reports, until its task notices, cancel out.
        members[2].pressure.set_buffers(350_000);
        members[2].pressure.set_buffers(0);
        members[1].pressure.set_buffers(900_000);
        budget.relieve();
        assert_eq!(
            (gone(), budget.held()),
            (vec![false, true, true, false], 600_000)
        );
        // A connection that does not read its replies is closed before one that sends as much.
        members[3].pressure.set_unsent(0, 250_000);
        members[0].pressure.set_buffers(800_000);
        budget.relieve();
        assert_eq!(
            (gone(), budget.held()),
            (vec![false, true, true, true], 800_000)
        );
    }

    #[test]
    fn shared_bytes_are_counted_once_until_the_last_mailbox_drops_them() {
        let budget = Arc::new(Budget::new(1_000_000));
        let members = [1, 2, 3].map(|client| member(&budget, client));
        let (large, other) = (Bytes::from(vec![7; 300_000]), Bytes::from(vec![7; 200_000]));
        let mut last = None;
        for bytes in [&large, &other] {
            for member in &members {
                let event = said(bytes);
                let hold = Hold::on(&event, &mut last, &budget);
                member.push(0, Mail::Event(event), hold);
            }
        }
        drop(last);
        assert_eq!(budget.held(), 500_000);
        assert!(
            members
                .iter()
                .all(|member| member.pressure.holds() >= 500_000)
        );
        let mut mail = Vec::new();
        members[0].take(0, false, usize::MAX, &mut mail);
        members[1].evict(Reason::ClosedByServer);
        assert_eq!(budget.held(), 500_000, "one mailbox still has them");
        members[2].evict(Reason::ClosedByServer);
        drop(mail);
        assert_eq!(budget.held(), 0);
        members[2].push(0, Mail::Event(said(&large)), None);
        assert_eq!(
            members[2].pressure.holds(),
            0,
            "a closed mailbox accepts nothing"
        );
        assert!(Hold::on(&said(&Bytes::from_static(b"small")), &mut None, &budget).is_none());
    }

    #[test]
    fn many_small_letters_count_together() {
        let budget = Arc::new(Budget::new(1_000_000));
        let member = member(&budget, 1);
        let events = 10_000;
        for _ in 0..events {
            member.push(0, Mail::Event(Event::Notice(Notice::WorkAvailable)), None);
        }
        assert!(budget.held() > 32 * events, "{}", budget.held());
        let mut mail = Vec::new();
        member.take(0, false, usize::MAX, &mut mail);
        assert!(budget.held() < SMALL_BYTES);
    }
}
