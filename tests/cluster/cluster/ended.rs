//! The history of ended jobs while the leader changes.

use std::sync::Arc;

use super::daemons::{Daemons, role};
use crate::common::http::Http;
use crate::common::ledger::{Ledger, Persistent, SETTINGS, wait_for_all};
use crate::common::postgres::Postgres;
use crate::common::wait_until;

#[test]
fn each_end_is_in_the_history_once_whoever_leads_and_each_daemon_can_be_asked() {
    let postgres = Postgres::start();
    let mut daemons = Daemons::with_lease(postgres.section(), "1s");
    (0..2).for_each(|_| daemons.add(SETTINGS));
    let ledger = Arc::new(Ledger::default());
    for signal in ["KILL", "TERM", "KILL", "TERM"] {
        let leader = (0..2).find(|number| role(&daemons[*number]) == "leading");
        let leader = leader.unwrap();
        let other = 1 - leader;
        let addresses = [0, 1].map(|number: usize| daemons[number].address("faktory"));
        let clients = Persistent::start(&ledger, &addresses, &[]);
        clients.wait_for_more(300);
        daemons[leader].signal(signal);
        daemons[leader].wait();
        wait_until("the other daemon leads", || {
            role(&daemons[other]) == "leading"
        });
        clients.wait_for_more(100);
        daemons[leader].restart();
        wait_until("the daemon is linked again", || {
            role(&daemons[leader]) == "following"
        });
        clients.wait_for_more(50);
        clients.end();
        println!("{signal}: {} acknowledged", ledger.acknowledged().len());
    }
    // The rows may still be on their way for ends whose outcome the clients did not learn.
    let [one, two] = [0, 1].map(|number: usize| Http(daemons[number].address("http")));
    wait_for_all(&ledger, one);
    wait_until("both daemons know the same", || {
        wait_for_all(&ledger, one) == wait_for_all(&ledger, two)
    });
    for number in 0..2 {
        let log = daemons[number].log_text();
        assert!(!log.contains("rows of the history were left out"), "{log}");
    }
}
