//! Policies where jobs are in PostgreSQL, and another daemon takes the lead.

use super::daemons::{Daemons, role};
use crate::common::in_order::{InOrder, ORDERED};
use crate::common::postgres::Postgres;
use crate::common::wait_until;

#[test]
fn jobs_of_a_key_stay_in_order_and_never_overlap_through_fail_overs() {
    let postgres = Postgres::start();
    let mut daemons = Daemons::on(format!("{ORDERED}{}", postgres.section()));
    (0..2).for_each(|_| daemons.add(""));
    let address = |daemons: &Daemons, number: usize| daemons[number].address("gearman");
    let jobs = InOrder::submit(6, 30, vec![address(&daemons, 0), address(&daemons, 1)]);
    let workers: Vec<_> = [0, 1, 0, 1].map(|daemon| jobs.work(daemon)).into();
    for (leader, percent) in [(0, 25), (1, 60)] {
        jobs.wait_for(percent);
        daemons[leader].kill();
        jobs.killed(leader);
        wait_until("the other one leads", || role(&daemons[1 - leader]) == "leading");
        daemons[leader].restart();
        jobs.restarted(leader, address(&daemons, leader));
    }
    jobs.finish(workers);
}
