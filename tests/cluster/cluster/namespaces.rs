//! Fleets with equal names in several namespaces, at any daemon of a broker.

use super::daemons::{Daemons, role};
use crate::common::eventmq;
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::namespaces::{NAMES, SECTIONS, listen_tcp};
use crate::common::{Peer, wait_until};

/// A free address for each namespace, in three protocols.
fn sections() -> String {
    let listen = listen_tcp();
    let eventmq = format!("publish_listen = []\nadmin_listen = []\nsubscribe_{listen}{listen}");
    format!("{SECTIONS}[gearman]\n{listen}[faktory]\n{listen}[eventmq]\n{eventmq}")
}

#[test]
fn an_edge_hands_the_namespace_over_with_the_connection_and_a_new_leader_keeps_it() {
    let mut daemons = Daemons::start(0);
    (0..2).for_each(|_| daemons.add(&sections()));
    let (leader, edge) = (0, 1);
    let push = |name: &str| {
        format!(r#"PUSH {{"jid":"namespaces01","queue":"mail","jobtype":"T","args":["{name}"]}}"#)
    };
    for (at, name) in NAMES.into_iter().enumerate() {
        let mut client = Peer::connect(daemons[edge].addresses("gearman")[at]).unwrap();
        client.submit("resize", "u", name).unwrap();
        let mut fwp = Fwp::connect(daemons[edge].addresses("faktory")[at]);
        assert_eq!(fwp.ask(&push(name)), "+OK");
    }
    // A publication stays in its namespace on its way to the other daemon.
    let subscriber = |at| eventmq::Subscriber::connect(at, &["t"]);
    let subscribers = daemons[leader].addresses("eventmq-subscribe");
    let mut subscribers: Vec<_> = subscribers.into_iter().map(subscriber).collect();
    for (at, name) in NAMES.into_iter().enumerate() {
        let mut publisher = eventmq::Peer::connect(daemons[edge].addresses("eventmq")[at], "p");
        let (topic, own) = (format!("t{name}"), &mut subscribers[at]);
        own.dealer.stream.set_nonblocking(true).unwrap();
        wait_until("a subscriber hears the publisher of its namespace", || {
            publisher.say(&["PUBLISH", "p", &topic, "text"]).unwrap();
            own.dealer.stream.peek(&mut [0]).is_ok()
        });
        own.dealer.stream.set_nonblocking(false).unwrap();
        assert_eq!(own.hear().0, topic);
    }
    let jobs = |number: usize, daemons: &Daemons| {
        let http = Http(daemons[number].address("http"));
        NAMES.map(|name| {
            let status = http.get(&format!("/api/v1/status?namespace={name}"));
            status.json()["jobs"].as_u64()
        })
    };
    assert_eq!(jobs(leader, &daemons), [Some(2); 3]);
    daemons[leader].kill();
    wait_until("the other daemon leads", || {
        role(&daemons[edge]) == "leading"
    });
    assert_eq!(jobs(edge, &daemons), [Some(2); 3]);
    daemons[leader].restart();
    wait_until("the daemon is linked again", || {
        role(&daemons[leader]) == "following"
    });
    // Each fleet works on its own jobs, at the other daemon than they came from.
    for (at, name) in NAMES.into_iter().enumerate() {
        let mut worker = Peer::connect(daemons[leader].addresses("gearman")[at]).unwrap();
        worker.can_do("resize").unwrap();
        let job = worker.grab().unwrap().unwrap();
        assert_eq!(job.workload, name);
        assert!(worker.grab().unwrap().is_none());
        worker.complete(&job.handle).unwrap();
        let mut fwp = Fwp::connect(daemons[leader].addresses("faktory")[at]);
        let job = fwp.ask("FETCH mail");
        assert!(job.contains(&format!("[\"{name}\"]")), "{job}");
        assert_eq!(fwp.ask("FETCH mail"), "null");
        assert_eq!(fwp.ask(r#"ACK {"jid":"namespaces01"}"#), "+OK");
    }
    assert_eq!(jobs(edge, &daemons), [Some(0); 3]);
}
