//! A cluster whose daemons are upgraded one after the other, with clients at work.

use std::path::PathBuf;

use windlass_testkit::daemon::free_port;

use super::daemons::{Daemons, role};
use super::work::Clients;
use crate::common::postgres::Postgres;
use crate::common::wait_until;

/// Jobs of each protocol between two steps.
const JOBS: usize = 30;

/// `WINDLASS_TEST_UPGRADE_FROM` names the program of the version before (`.ci/upgrade` builds one).
#[test]
fn daemons_are_upgraded_one_after_the_other() {
    let new = PathBuf::from(env!("CARGO_BIN_EXE_windlass"));
    let old =
        std::env::var_os("WINDLASS_TEST_UPGRADE_FROM").map_or_else(|| new.clone(), PathBuf::from);
    let postgres = Postgres::start();
    let mut daemons = Daemons::on(postgres.section());
    for _ in 0..3 {
        let plan = daemons.plan_of(&old, free_port(), "");
        daemons.start_one(plan);
    }
    let clients = Clients::start(&daemons);
    // The edges first. The leader hands over to one of them when it stops.
    for number in [1, 2, 0] {
        clients.work().wait_for_more(&daemons, JOBS);
        daemons[number].signal("TERM");
        daemons[number].wait();
        daemons[number].restart_as(&new);
        wait_until("it is linked", || role(&daemons[number]) == "following");
        clients.work().look(&daemons);
    }
    clients.work().wait_for_more(&daemons, JOBS);
    clients.finish(&daemons, "three daemons upgraded");
}
