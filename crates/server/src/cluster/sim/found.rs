//! What the simulator has found, each as a small scene. One more is in the tests of the link's ledger: a job whose
//! earlier lease its client reports on.

use std::sync::Arc;

use windlass_engine::{Clock, Engine, Reading, Timestamp};
use windlass_link::{Edge as EdgeNumber, Say, Welcome};
use windlass_store::Journal;

use super::super::edge::Edge;
use super::lease::Lease;
use super::room::limits;
use crate::budget::Budget;
use crate::clock::simulated::{self, Machine};
use crate::clock::{self, Clocks};
use crate::hub::{Durability, Hub};

const WALL_MS: u64 = 1_700_000_000_000;

const MACHINE: Machine = Machine { boot: 1, since_boot_ms: 5_000, wall_ms: WALL_MS };

/// The link's thread hears what the leader before has sent, when the daemon leads already. (Seeds 5 and 10.)
#[test]
fn a_daemon_that_leads_has_its_own_time() {
    let edge = Edge::new(Arc::new(Budget::new(1 << 20)));
    let clock = Reading { now: Timestamp(7), clock: Clock::default(), pause_ms: None };
    let welcome = Welcome {
        epoch: 1,
        edge: EdgeNumber::new(1_025).unwrap(),
        reaches: 0,
        durable: 0,
        same_settings: true,
        clock,
        frame_bytes_max: 1 << 20,
    };
    simulated::on(MACHINE, &mut Clocks::new(), || {
        edge.open_way(&welcome);
        assert_eq!(clock::now(), Timestamp(7));
        drop(edge.hand_over(2, 0));
        edge.hear([Say::Clock(clock)]);
        edge.open_way(&welcome);
        assert_eq!(clock::now(), Timestamp(WALL_MS));
    });
}

/// A leader whose first commit was not in the store gave numbers to foreground jobs that the next leader gave again.
/// (Seed 75.)
#[test]
fn a_daemon_that_succeeds_another_leads_when_its_first_commit_is_in_the_store() {
    simulated::on(MACHINE, &mut Clocks::new(), || {
        let lease = Arc::new(Lease::new(2, MACHINE.since_boot_ms, true, true));
        let hub = Hub::new(Engine::new(limits(), 7), Journal::new(), Durability::Durable, 7);
        hub.set_failed(true);
        assert!(hub.has_begun(), "alone it serves what it can");
        let hub = hub.under(Some(Arc::clone(&lease) as Arc<_>));
        assert!(!hub.has_begun());
        let cut = hub.cut().unwrap();
        hub.committed(cut.commit);
        assert!(hub.has_begun());
    });
}
