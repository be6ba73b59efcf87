//! The namespaces of a thread's connections, and what each may use of a turn.
//!
//! A turn lasts as long as all its work. A connection that sends much at once makes it long, and many of them much
//! longer, which costs nothing while they are alone: their replies are many. Beside connections of another namespace
//! they read less at a time, and one of them has each turn. So the others wait for little, and connections with one message
//! at a time are not affected.

use windlass_engine::Timestamp;

/// How long nothing is read from a connection that was refused at a limit of its namespace, ms. Many clients try
/// again at once, and only the other namespaces would pay for that.
const REST_MS: u64 = 10;

/// The time between those of a namespace, and the longest rest, ms: at once they would make a long turn.
const REST_STEP_MS: u64 = 1;
const REST_MS_MAX: u64 = 1_000;

/// How long a thread remembers that several namespaces were active, ms.
const MIXED_MS: u64 = 1_000;

/// A thread's namespaces.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    known: Vec<Tenant>,
    /// The namespace that was active last.
    last: usize,
    /// When that was another one than before.
    mixed_at: Option<Timestamp>,
    /// The number of the turn.
    turn: u64,
}

#[derive(Debug)]
struct Tenant {
    namespace: Option<Box<str>>,
    /// The last turn in which it had a connection with much to do.
    turn: u64,
    /// When the last of its resting connections is read again.
    rests_until: Timestamp,
}

impl Tenants {
    /// The number of a namespace on this thread.
    pub(super) fn number(&mut self, namespace: Option<&str>) -> usize {
        let known = self.known.iter();
        let mut known = known.map(|tenant| tenant.namespace.as_deref());
        known.position(|it| it == namespace).unwrap_or_else(|| {
            self.known.push(Tenant {
                namespace: namespace.map(Into::into),
                turn: 0,
                rests_until: Timestamp(0),
            });
            self.known.len() - 1
        })
    }

    pub(super) const fn begin_turn(&mut self) {
        self.turn += 1;
    }

    /// Whether several namespaces are active.
    pub(super) fn are_mixed(&self, now: Timestamp) -> bool {
        self.mixed_at
            .is_some_and(|at| now.0.saturating_sub(at.0) < MIXED_MS)
    }

    /// Whether another connection with much to do may have this turn.
    pub(super) fn admit(&self, tenant: usize) -> bool {
        self.known.get(tenant).is_none_or(|it| it.turn != self.turn)
    }

    /// Until when a connection rests that was refused.
    pub(super) fn rest(&mut self, tenant: usize, now: Timestamp) -> Timestamp {
        let soonest = now.after_ms(REST_MS);
        let Some(it) = self.known.get_mut(tenant) else {
            return soonest;
        };
        let behind = it.rests_until.after_ms(REST_STEP_MS);
        it.rests_until = behind.clamp(soonest, now.after_ms(REST_MS_MAX));
        it.rests_until
    }

    /// Records that a connection has read something in this turn.
    pub(super) fn was_active(&mut self, tenant: usize, is_deep: bool, now: Timestamp) {
        if self.last != tenant {
            self.last = tenant;
            self.mixed_at = Some(now);
        }
        if is_deep && let Some(it) = self.known.get_mut(tenant) {
            it.turn = self.turn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_namespaces_share_a_thread_until_one_has_been_alone_for_a_while() {
        let mut tenants = Tenants::default();
        let [quiet, hostile] = [Some("quiet"), None].map(|name| tenants.number(name));
        assert_eq!(tenants.number(Some("quiet")), quiet);
        let table = [
            (quiet, 1_000, false),
            (quiet, 1_001, false),
            (hostile, 1_002, true),
            (hostile, 2_001, true),
            (hostile, 2_002, false),
            (quiet, 9_000, true),
        ];
        for (tenant, at, expected) in table {
            tenants.was_active(tenant, false, Timestamp(at));
            assert_eq!(tenants.are_mixed(Timestamp(at)), expected, "{at}");
        }
    }

    #[test]
    fn refused_connections_of_a_namespace_are_read_one_after_the_other() {
        let mut tenants = Tenants::default();
        let [quiet, hostile] = [Some("quiet"), None].map(|name| tenants.number(name));
        let mut rest = |tenant, now| tenants.rest(tenant, Timestamp(now)).0;
        assert_eq!(
            [5_000, 5_000, 5_001].map(|now| rest(hostile, now)),
            [5_010, 5_011, 5_012]
        );
        assert_eq!(rest(quiet, 5_001), 5_011);
        assert_eq!(rest(hostile, 5_020), 5_030);
        let last = (0..2_000).map(|_| rest(hostile, 6_000)).last();
        assert_eq!(last, Some(7_000));
    }

    #[test]
    fn a_namespace_has_one_deep_connection_in_each_turn() {
        let mut tenants = Tenants::default();
        let [quiet, hostile] = [Some("quiet"), None].map(|name| tenants.number(name));
        for _ in 0..2 {
            tenants.begin_turn();
            tenants.was_active(hostile, false, Timestamp(1));
            assert!(tenants.admit(hostile));
            tenants.was_active(hostile, true, Timestamp(1));
            assert!(!tenants.admit(hostile) && tenants.admit(quiet));
        }
    }
}
