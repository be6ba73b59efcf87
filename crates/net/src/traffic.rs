//! Counters of connections since startup, by protocol, for metrics.
//!
//! Each thread has its own counters, so that counting takes a nanosecond and does not slow down
//! other threads. Readers sum them up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_session::Reason;

/// The last one stands for every other name.
const OTHER: &str = "other";

/// Why commands are refused: the codes of [`windlass_engine::Refusal`], and some of the ports.
const REFUSALS: [&str; 16] = [
    "limit",
    "name_too_long",
    "body_too_large",
    "not_found",
    "not_unique",
    "lease_not_held",
    "in_use",
    "wrong_kind",
    "never_due",
    "out_of_place",
    "unavailable",
    "disk_full",
    "outcome_unknown",
    "bad_request",
    "forbidden",
    OTHER,
];

/// Why connections end: the codes of [`Reason`], and those below.
const ENDS: [&str; 11] = [
    "peer_closed",
    "session_ended",
    "protocol_error",
    "wrong_password",
    "timed_out",
    "limit",
    "closed_by_server",
    "shutdown",
    NO_HANDSHAKE,
    NO_PLACE,
    OTHER,
];

/// The TLS handshake failed.
pub(crate) const NO_HANDSHAKE: &str = "tls_handshake";
/// The limit on connections was reached.
pub(crate) const NO_PLACE: &str = "no_place";

/// All counts of the daemon.
#[derive(Debug, Default)]
pub struct Traffic(Mutex<Vec<(&'static str, Arc<Counts>)>>);

/// The counters of one thread.
#[derive(Debug)]
pub(crate) struct ThreadTraffic {
    all: Arc<Traffic>,
    own: Vec<(&'static str, Arc<Counts>)>,
}

/// The counters of one protocol on one thread, written only by that thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counts {
    opened: Count,
    commands: Count,
    received_bytes: Count,
    sent_bytes: Count,
    auth_failures: Count,
    forgotten: Count,
    refused: [Count; REFUSALS.len()],
    closed: [Count; ENDS.len()],
}

/// The counters of one protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtocolTraffic {
    /// Opened connections.
    pub opened: u64,
    /// Complete messages received.
    pub commands: u64,
    /// Bytes received, without those of TLS.
    pub received_bytes: u64,
    /// Bytes sent, without those of TLS.
    pub sent_bytes: u64,
    /// Wrong passwords and tokens.
    pub auth_failures: u64,
    /// Ready connections that were not served for a while, which is a bug.
    pub forgotten: u64,
    /// Refused commands by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Ended connections by reason.
    pub closed: BTreeMap<&'static str, u64>,
}

/// A counter that one thread writes and others read.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    /// Cheaper than an atomic addition, because there is only one writer.
    fn add(&self, many: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(many),
            Ordering::Relaxed,
        );
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Traffic {
    /// Creates counters for the connections of a protocol, to be used by one thread.
    pub fn counts(&self, protocol: &'static str) -> Arc<Counts> {
        let counts = Arc::<Counts>::default();
        self.lock().push((protocol, Arc::clone(&counts)));
        counts
    }

    /// The sums by protocol.
    pub fn read(&self) -> BTreeMap<&'static str, ProtocolTraffic> {
        let mut sums = BTreeMap::<_, ProtocolTraffic>::new();
        for (protocol, counts) in &*self.lock() {
            counts.add_to(sums.entry(*protocol).or_default());
        }
        sums
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(&'static str, Arc<Counts>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ThreadTraffic {
    /// Creates the counters of one thread.
    pub(crate) const fn new(all: Arc<Traffic>) -> Self {
        Self {
            all,
            own: Vec::new(),
        }
    }

    /// The thread's counters of a protocol.
    pub(crate) fn of(&mut self, protocol: &'static str) -> Arc<Counts> {
        if let Some((_, counts)) = self.own.iter().find(|(other, _)| *other == protocol) {
            return Arc::clone(counts);
        }
        let counts = self.all.counts(protocol);
        self.own.push((protocol, Arc::clone(&counts)));
        counts
    }
}

impl Counts {
    /// Counts an opened connection.
    pub fn opened(&self) {
        self.opened.add(1);
    }

    /// Counts complete messages.
    pub fn commands(&self, many: u64) {
        self.commands.add(many);
    }

    /// Counts received bytes.
    pub fn received(&self, bytes: usize) {
        self.received_bytes.add(bytes as u64);
    }

    /// Counts sent bytes.
    pub fn sent(&self, bytes: usize) {
        self.sent_bytes.add(bytes as u64);
    }

    /// Counts a wrong password or token.
    pub fn auth_failed(&self) {
        self.auth_failures.add(1);
    }

    /// Counts a ready connection that was not served for a while.
    pub fn forgotten(&self) {
        self.forgotten.add(1);
    }

    /// Counts a refused command, by the code of its reason.
    pub fn refused(&self, code: &str) {
        count_in(&self.refused, REFUSALS, code);
    }

    /// Counts a closed connection, by the code of its reason.
    pub fn closed(&self, code: &str) {
        count_in(&self.closed, ENDS, code);
        if code == Reason::WrongPassword.code() {
            self.auth_failed();
        }
    }

    fn add_to(&self, sum: &mut ProtocolTraffic) {
        sum.opened += self.opened.read();
        sum.commands += self.commands.read();
        sum.received_bytes += self.received_bytes.read();
        sum.sent_bytes += self.sent_bytes.read();
        sum.auth_failures += self.auth_failures.read();
        sum.forgotten += self.forgotten.read();
        let add = |sums: &mut BTreeMap<_, u64>, names: &[&'static str], counts: &[Count]| {
            for (name, count) in names.iter().zip(counts) {
                *sums.entry(*name).or_default() += count.read();
            }
        };
        add(&mut sum.refused, &REFUSALS, &self.refused);
        add(&mut sum.closed, &ENDS, &self.closed);
    }
}

fn count_in<const N: usize>(counts: &[Count; N], names: [&str; N], name: &str) {
    let index = names
        .iter()
        .position(|other| *other == name)
        .unwrap_or(N - 1);
    counts.get(index).into_iter().for_each(|count| count.add(1));
}

#[cfg(test)]
mod tests {
    use windlass_engine::{Capacity, Refusal, Thing};

    use super::*;

    #[test]
    fn threads_are_added_up_by_protocol() {
        let all = Arc::<Traffic>::default();
        let mut threads = [
            ThreadTraffic::new(Arc::clone(&all)),
            ThreadTraffic::new(Arc::clone(&all)),
        ];
        for thread in &mut threads {
            let counts = thread.of("gearman");
            counts.opened();
            counts.received(10);
            counts.sent(5);
            counts.commands(3);
            thread.of("gearman").closed(Reason::WrongPassword.code());
            thread.of("faktory").refused("a reason that is not known");
        }
        let read = all.read();
        let [faktory, gearman] = ["faktory", "gearman"].map(|name| &read[name]);
        assert_eq!(
            (
                gearman.opened,
                gearman.received_bytes,
                gearman.commands,
                gearman.auth_failures
            ),
            (2, 20, 6, 2)
        );
        assert_eq!(gearman.sent_bytes, 10);
        assert_eq!(
            (
                gearman.closed["wrong_password"],
                gearman.closed["peer_closed"]
            ),
            (2, 0)
        );
        assert_eq!(
            (
                faktory.refused["other"],
                faktory.refused.values().sum::<u64>()
            ),
            (2, 2)
        );
    }

    #[test]
    fn every_reason_has_its_place() {
        let limit = |what| Refusal::Limit {
            what,
            held: 1,
            limit: 1,
        };
        let refusals = [
            limit(Capacity::Jobs),
            limit(Capacity::NameBytes),
            limit(Capacity::BodyBytes),
            Refusal::NotFound(Thing::Job),
            Refusal::NotUnique,
            Refusal::NotHeld,
            Refusal::InUse,
            Refusal::WrongKind,
            Refusal::NeverDue,
            Refusal::OutOfPlace,
            Refusal::Unavailable,
            Refusal::DiskFull,
            Refusal::Unknown,
        ];
        let codes = refusals.map(Refusal::code);
        assert_eq!(codes[..], REFUSALS[..REFUSALS.len() - 3]);
        let ends = [
            Reason::PeerClosed,
            Reason::Ended,
            Reason::Protocol(String::new()),
            Reason::WrongPassword,
            Reason::TimedOut(""),
            Reason::Limit(""),
            Reason::ClosedByServer,
            Reason::Shutdown,
        ];
        assert_eq!(ends.map(|reason| reason.code())[..], ENDS[..ENDS.len() - 3]);
    }
}
