//! EventMQ on the real daemon: restarts, publications, and hostile peers.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use windlass_testkit::daemon::Daemon;

use crate::common;
use crate::common::bystander::Bystander;
use crate::common::eventmq::{Peer, Subscriber};
use crate::common::http::Http;
use crate::common::zmtp::{Dealer, command, greeting, half_open, impossible_frames, message};
use crate::common::{daemon, wait_until};

const JOB: &str = r#"["run", {"callable": "report", "path": "tasks"}]"#;

/// A daemon with these keys under `[eventmq]`, and its directory.
fn served(keys: &str) -> (Daemon, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (daemon(dir.path()).eventmq(keys).start(), dir)
}

/// Completes one job.
fn work_off(worker: &mut Peer) -> (String, String) {
    let request = worker.hear().unwrap();
    assert_eq!(request[0], "REQUEST");
    worker
        .say(&["REPLY", "reply", r#"{"value": 1}"#, &request[1]])
        .unwrap();
    (request[1].clone(), request[2].clone())
}

// ---- jobs -----------------------------------------------------------------------------------------------------------

#[test]
fn every_address_serves_every_role() {
    let (daemon, _dir) = served("");
    let addresses =
        ["eventmq", "eventmq-admin", "eventmq-publish"].map(|role| daemon.address(role));
    for (number, worker_at) in addresses.into_iter().enumerate() {
        let queue = format!("q{number}");
        let mut worker = Peer::worker(worker_at, "worker", &format!("[[10, \"{queue}\"]]"));
        worker.ready(addresses.len());
        for (of, client_at) in addresses.into_iter().enumerate() {
            let (id, mut client) = (format!("{number}-{of}"), Peer::connect(client_at, "client"));
            client.request(&id, &queue, "reply-requested", JOB);
            assert_eq!(work_off(&mut worker), (id.clone(), queue.clone()));
            assert_eq!(
                client.hear().unwrap()[2..],
                [r#"{"value": 1}"#.to_owned(), id]
            );
        }
    }
    let mut admin = Peer::connect(daemon.address("eventmq-admin"), "admin");
    let _worker = Peer::worker(addresses[0], "someone", r#"[[10, "mail"]]"#);
    admin.say(&["ROUTER_SHOW_WORKERS", "show"]).unwrap();
    let shown = admin.hear().unwrap().concat();
    assert!(
        shown.contains("someone") && shown.contains("mail"),
        "{shown}"
    );
}

#[test]
fn acknowledged_jobs_survive_kill_9() {
    let (mut daemon, _dir) = served("");
    let mut client = Peer::connect(daemon.address("eventmq"), "client");
    let asked: BTreeSet<String> = (0..200).map(|number| format!("job-{number:03}")).collect();
    for id in &asked {
        client.request(id, "mail", "timeout:60", JOB);
    }
    let mut worker = Peer::worker(daemon.address("eventmq"), "worker", r#"[[10, "mail"]]"#);
    worker.ready(50);
    let mut done = BTreeSet::new();
    for _ in 0..20 {
        done.insert(work_off(&mut worker).0);
    }
    // The worker holds thirty more. The acknowledgement of a later request proves that their completion is on the disk.
    worker
        .say(&["REQUEST", "behind", "other", "", JOB])
        .unwrap();
    while worker.hear().unwrap()[0] != "REPLY" {}
    daemon.kill();
    daemon.restart();
    let mut worker = Peer::worker(
        daemon.address("eventmq"),
        "worker",
        r#"[[10, "mail"], [1, "other"]]"#,
    );
    worker.ready(asked.len());
    let rest: Vec<String> = (done.len()..=asked.len())
        .map(|_| worker.hear().unwrap()[1].clone())
        .collect();
    let again: BTreeSet<String> = rest.iter().cloned().collect();
    assert_eq!(again.len(), rest.len(), "none is there twice");
    let expected: BTreeSet<String> = asked
        .difference(&done)
        .cloned()
        .chain(["behind".to_owned()])
        .collect();
    assert_eq!(again, expected);
}

/// The number of clients and workers that the daemon knows.
fn connections(daemon: &Daemon) -> usize {
    let all = Http(daemon.address("http"))
        .get("/api/v1/connections")
        .json();
    all["connections"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["protocol"] == "eventmq")
        .count()
}

/// The client of this identity comes back, and hears the results of these requests.
fn returns(daemon: &Daemon, ids: &[&str]) -> Peer {
    let mut client = Peer::connect(daemon.address("eventmq"), "client");
    for id in ids {
        assert_eq!(
            client.hear().unwrap()[2..],
            [r#"{"value": 1}"#, id],
            "{ids:?}"
        );
    }
    client
}

#[test]
fn a_client_that_comes_back_gets_its_results() {
    let (mut daemon, _dir) = served("heartbeat_timeout = \"1h\"\n");
    let mut client = Peer::connect(daemon.address("eventmq"), "client");
    let mut worker = Peer::worker(daemon.address("eventmq"), "worker", r#"[[10, "mail"]]"#);
    worker.ready(4);

    // It comes back while the job runs.
    client.request("runs", "mail", "reply-requested", JOB);
    let request = worker.hear().unwrap();
    drop(client);
    let mut client = returns(&daemon, &[]);
    worker
        .say(&["REPLY", "reply", r#"{"value": 1}"#, &request[1]])
        .unwrap();
    assert_eq!(client.hear().unwrap()[2..], [r#"{"value": 1}"#, "runs"]);

    // The job ends while it is away.
    client.request("ended", "mail", "reply-requested", JOB);
    drop(client);
    wait_until("the client is gone", || connections(&daemon) == 1);
    assert_eq!(work_off(&mut worker).0, "ended");
    // An acknowledgement shows that what was before it is done.
    worker.request("behind", "other", "", JOB);
    let mut client = returns(&daemon, &["ended"]);

    // The daemon is killed, before and after the job has ended.
    client.request("before", "mail", "reply-requested", JOB);
    client.request("after", "mail", "reply-requested", JOB);
    drop(client);
    wait_until("the client is gone", || connections(&daemon) == 1);
    assert_eq!(work_off(&mut worker).0, "before");
    assert_eq!(worker.hear().unwrap()[1], "after");
    worker.request("behind 2", "other", "", JOB);
    daemon.kill();
    daemon.restart();
    let mut client = returns(&daemon, &["before"]);
    let mut worker = Peer::worker(daemon.address("eventmq"), "worker", r#"[[10, "mail"]]"#);
    worker.ready(1);
    assert_eq!(work_off(&mut worker).0, "after");
    assert_eq!(client.hear().unwrap()[2..], [r#"{"value": 1}"#, "after"]);
}

/// A result is of the identity that requested it. Connections without one do not collect.
#[test]
fn results_are_of_an_identity() {
    let (daemon, _dir) = served("heartbeat_timeout = \"1h\"\n");
    let address = daemon.address("eventmq");
    let mut worker = Peer::worker(address, "worker", r#"[[10, "mail"]]"#);
    for identity in ["", "one"] {
        let mut client = Peer::connect(address, identity);
        client.request(&format!("of {identity}"), "mail", "reply-requested", JOB);
        drop(client);
        wait_until("the client is gone", || connections(&daemon) == 1);
    }
    worker.ready(2);
    assert_eq!([(); 2].map(|()| work_off(&mut worker).0), ["of ", "of one"]);
    worker.request("behind", "other", "", JOB);
    let mut others = ["", "other"].map(|identity| Peer::connect(address, identity));
    let mut one = Peer::connect(address, "one");
    assert_eq!(one.hear().unwrap()[3], "of one");
    for other in others.iter_mut().chain([&mut one]) {
        other.request("nothing before", "other", "", JOB);
    }
}

#[test]
fn the_jobs_of_a_worker_that_is_gone_go_to_others() {
    let (daemon, _dir) = served("");
    let address = daemon.address("eventmq");
    let mut client = Peer::connect(address, "client");
    for number in 0..10 {
        client.request(&format!("{number}"), "mail", "", JOB);
    }
    let mut lost = Peer::worker(address, "lost", r#"[[10, "mail"]]"#);
    lost.ready(10);
    let had: BTreeSet<String> = (0..10).map(|_| lost.hear().unwrap()[1].clone()).collect();
    let mut other = Peer::worker(address, "other", r#"[[10, "mail"]]"#);
    other.ready(10);
    drop(lost);
    let got: BTreeSet<String> = (0..10).map(|_| work_off(&mut other).0).collect();
    assert_eq!(got, had);
}

#[test]
fn a_job_from_a_unix_socket_reaches_gearman_workers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("eventmq.ipc");
    let off = windlass_testkit::daemon::EVENTMQ_OFF.replacen(
        "listen = []",
        &format!("listen = [\"ipc://{}\"]", path.display()),
        1,
    );
    let bridge = "bridge.queues = [\"rep*\"]\n";
    let daemon = daemon(dir.path()).set(bridge).set(&off).start();
    assert!(daemon.addresses("eventmq-admin").is_empty());
    let mut peer = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let words = [greeting("NULL"), common::zmtp::ready("DEALER", b"client")].concat();
    let request = message(&[
        b"",
        b"eMQP/1.0",
        b"REQUEST",
        b"id",
        b"report",
        b"",
        JOB.as_bytes(),
    ]);
    std::io::Write::write_all(&mut peer, &[words, request].concat()).unwrap();
    let mut gearman = common::Peer::connect(daemon.address("gearman")).unwrap();
    gearman.can_do("report").unwrap();
    wait_until("the job is there", || {
        gearman
            .grab()
            .unwrap()
            .is_some_and(|job| job.workload == JOB.as_bytes())
    });
}

// ---- schedules ------------------------------------------------------------------------------------------------------

#[test]
fn an_external_scheduler_receives_the_schedules() {
    let (daemon, _dir) = served("scheduler = \"external\"\n");
    let address = daemon.address("eventmq");
    let mut first = Peer::scheduler(address, "first");
    let mut second = Peer::scheduler(address, "second");
    let mut client = Peer::connect(address, "client");
    let schedule = ["SCHEDULE", "s", "mail", "nohaste", "60", JOB, ""];
    let unschedule = ["UNSCHEDULE", "u", "mail", "", "60", JOB, ""];
    client.say(&schedule).unwrap();
    assert_eq!(second.hear().unwrap(), schedule, "it came last");
    client.say(&unschedule).unwrap();
    assert_eq!(second.hear().unwrap(), unschedule);
    assert_eq!(first.hear().unwrap(), unschedule, "and nothing before");
    // When the newer scheduler is gone, the older one takes its place.
    drop(second);
    wait_until("the first is the last", || {
        client.say(&schedule).unwrap();
        client.say(&unschedule).unwrap();
        let heard = first.hear().unwrap();
        if heard == schedule {
            assert_eq!(first.hear().unwrap(), unschedule);
        }
        heard == schedule
    });
}

// ---- the end --------------------------------------------------------------------------------------------------------

#[test]
fn disconnect_stops_the_daemon_only_where_allowed() {
    for (keys, role) in [
        ("", "eventmq"),
        ("", "eventmq-admin"),
        ("disconnect = true\n", "eventmq"),
    ] {
        let (daemon, _dir) = served(keys);
        let mut admin = Peer::connect(daemon.address(role), "admin");
        admin.say(&["DISCONNECT", "d"]).unwrap();
        assert_eq!(admin.hear().unwrap()[0], "KBYE", "{keys} {role}");
        admin.request("still there", "mail", "", JOB);
    }
    let (mut daemon, _dir) = served("disconnect = true\n");
    let mut worker = Peer::worker(daemon.address("eventmq"), "worker", "");
    let mut admin = Peer::connect(daemon.address("eventmq-admin"), "admin");
    admin.say(&["DISCONNECT", "d"]).unwrap();
    assert_eq!(admin.hear().unwrap()[0], "ACK");
    assert_eq!(worker.hear().unwrap()[0], "KBYE");
    assert!(daemon.wait().success());
}

// ---- publications ---------------------------------------------------------------------------------------------------

#[test]
fn a_subscriber_receives_topics_that_begin_with_its_prefix() {
    let (daemon, _dir) = served("");
    let at = daemon.address("eventmq-subscribe");
    let mut publisher = Peer::connect(daemon.address("eventmq-publish"), "publisher");
    let (mut all, mut news, none) = (
        Subscriber::connect(at, &[""]),
        Subscriber::connect(at, &["news", "x"]),
        Subscriber::connect(at, &[]),
    );
    // Publishes until the subscriptions have arrived.
    let mut publish = |topic: &str| publisher.say(&["PUBLISH", "p", topic, "text"]).unwrap();
    for (subscriber, topic) in [(&mut all, "begin"), (&mut news, "xbegin")] {
        subscriber.dealer.stream.set_nonblocking(true).unwrap();
        wait_until("it receives a message", || {
            publish(topic);
            subscriber.dealer.stream.peek(&mut [0]).is_ok()
        });
        subscriber.dealer.stream.set_nonblocking(false).unwrap();
    }
    publish("news of today");
    publish("old");
    publish("xend");
    let mut heard = Vec::new();
    while heard.last().is_none_or(|topic| topic != "xend") {
        heard.push(news.hear().0);
    }
    heard.dedup();
    assert_eq!(heard, ["xbegin", "news of today", "xend"]);
    let mut heard = Vec::new();
    while heard.last().is_none_or(|topic| topic != "xend") {
        heard.push(all.hear().0);
    }
    heard.dedup();
    assert_eq!(heard, ["begin", "xbegin", "news of today", "old", "xend"]);
    none.dealer.stream.set_nonblocking(true).unwrap();
    assert!(
        none.dealer.stream.peek(&mut [0]).is_err(),
        "it subscribes to nothing"
    );
}

#[test]
fn a_subscriber_that_does_not_read_misses_messages_and_harms_no_other() {
    const BYTES: usize = 100_000;
    const MESSAGES: usize = 600;
    let (daemon, _dir) = served("");
    let at = daemon.address("eventmq-subscribe");
    let bystander = bystander(daemon.address("eventmq"));
    let mut publisher = Peer::connect(daemon.address("eventmq-publish"), "publisher");
    let text = "x".repeat(BYTES);
    let mut deaf: Vec<_> = (0..20).map(|_| Subscriber::connect(at, &["t"])).collect();
    let mut reader = Subscriber::connect(at, &["t", "r"]);
    // Once this subscriber receives a message, its subscription and all earlier ones have arrived: earlier subscribers
    // are served first.
    for subscriber in deaf.iter_mut().chain([&mut reader]) {
        subscriber.dealer.stream.set_nonblocking(true).unwrap();
        wait_until("it receives a message", || {
            publisher.say(&["PUBLISH", "p", "t", "small"]).unwrap();
            subscriber.dealer.stream.peek(&mut [0]).is_ok()
        });
        subscriber.dealer.stream.set_nonblocking(false).unwrap();
    }
    for _ in 0..MESSAGES {
        publisher.say(&["PUBLISH", "p", "t", &text]).unwrap();
        while reader.hear().1 != BYTES {}
    }
    bystander.is_served();
    // A subscriber that begins to read receives messages in order, and all new ones. It has missed some.
    let mut heard = 0;
    loop {
        publisher.say(&["PUBLISH", "p", "tend", "small"]).unwrap();
        match deaf[7].hear() {
            (topic, _) if topic == "tend" => break,
            (_, BYTES) => heard += 1,
            (_, _) => {}
        }
    }
    assert!((1..MESSAGES).contains(&heard), "{heard}");
    bystander.is_served();
    drop(deaf);
    publisher.say(&["PUBLISH", "p", "r", "end"]).unwrap();
    while reader.hear().0 != "r" {}
}

#[test]
fn subscriptions_are_limited() {
    let (daemon, _dir) = served("topics_max = 3\ntopic_bytes_max = 100\n");
    let at = daemon.address("eventmq-subscribe");
    let long = "l".repeat(60);
    for topics in [&["a", "b", "c", "d"][..], &[&long, &format!("{long}l")]] {
        assert!(Subscriber::connect(at, topics).dealer.is_hung_up_on());
    }
    let mut subscriber = Subscriber::connect(at, &["a", "b", "c"]);
    subscriber.cancel("a");
    subscriber.dealer.say(&command("SUBSCRIBE", b"d")).unwrap();
    let mut publisher = Peer::connect(daemon.address("eventmq"), "publisher");
    subscriber.dealer.stream.set_nonblocking(true).unwrap();
    wait_until("it receives a message", || {
        publisher.say(&["PUBLISH", "p", "d", ""]).unwrap();
        subscriber.dealer.stream.peek(&mut [0]).is_ok()
    });
}

// ---- hostile peers --------------------------------------------------------------------------------------------------

/// A worker and a client that are served all the while.
fn bystander(address: SocketAddr) -> Bystander {
    let mut worker = Peer::worker(address, "bystander's worker", r#"[[1, "bystander"]]"#);
    let mut client = Peer::connect(address, "bystander");
    let job = move |number| {
        let id = format!("bystander {number}");
        worker.ready(1);
        client.request(&id, "bystander", "reply-requested", JOB);
        assert_eq!(work_off(&mut worker).0, id);
        assert_eq!(client.hear().unwrap()[3], id);
    };
    Bystander::new(job, move || drop(Peer::worker(address, "", "[]")))
}

#[test]
fn impossible_frames_end_the_connection() {
    let (daemon, _dir) = served("");
    let bystander = bystander(daemon.address("eventmq"));
    for (role, socket_type) in [("eventmq", "DEALER"), ("eventmq-subscribe", "SUB")] {
        for (what, bytes) in impossible_frames() {
            let mut dealer = Dealer::connect_as(daemon.address(role), socket_type, b"");
            // The daemon may have closed the connection already.
            let _ = dealer.say(&bytes);
            assert!(dealer.is_hung_up_on(), "{role}: {what}");
        }
        bystander.is_served();
    }
    // A socket of an unsuitable type is refused.
    for (role, socket_type) in [("eventmq", "SUB"), ("eventmq-subscribe", "DEALER")] {
        let mut dealer = Dealer::reach(daemon.address(role)).unwrap();
        let _ = dealer.say(&[greeting("NULL"), common::zmtp::ready(socket_type, b"")].concat());
        assert!(dealer.is_hung_up_on(), "{role}: {socket_type}");
    }
}

#[test]
fn invalid_messages_are_ignored() {
    let (daemon, _dir) = served("");
    let mut peer = Peer::connect(daemon.address("eventmq"), "peer");
    let nested = format!("[[1, {}1{}]]", "[".repeat(100_000), "]".repeat(100_000));
    let table: [&[&[u8]]; 12] = [
        &[],
        &[b"READY"],
        &[b"NONSENSE", b"id"],
        &[b"\xFF\xFE", b"\xFF"],
        &[b"INFORM", b"i", b"{\"a\": 1}", b"worker"],
        &[b"INFORM", b"i", nested.as_bytes(), b"worker"],
        &[b"INFORM", b"i", b"", b"somebody"],
        &[b"REQUEST", b"id"],
        &[b"REPLY", b"id", b"\xFF", b"of nothing"],
        &[b"SCHEDULE", b"s", b"q", b"", b"soon", b"{", b""],
        &[
            b"SCHEDULE",
            b"s",
            b"q",
            b"",
            b"-1",
            JOB.as_bytes(),
            b"61 * * * *",
        ],
        &[b"HEARTBEAT", b"h", b"yesterday"],
    ];
    for frames in table {
        peer.say_bytes(frames).unwrap();
        // The same without a head.
        let bare: &[&[u8]] = if frames.is_empty() { &[b""] } else { frames };
        peer.dealer.say(&message(bare)).unwrap();
    }
    peer.request("heard", "mail", "", JOB);
}

#[test]
fn hundreds_of_half_open_greetings_block_no_client() {
    let dir = tempfile::tempdir().unwrap();
    let keys = "[zmtp]\nhandshake_timeout = \"1h\"\n";
    let daemon = daemon(dir.path()).set(keys).eventmq("").start();
    let bystander = bystander(daemon.address("eventmq"));
    for role in ["eventmq", "eventmq-subscribe"] {
        let _half_open = half_open(daemon.address(role), 200);
        bystander.is_served();
        Subscriber::connect(daemon.address("eventmq-subscribe"), &["t"]);
    }
}

#[test]
fn of_two_peers_with_one_identity_the_newer_is_served() {
    let (daemon, _dir) = served("");
    let address = daemon.address("eventmq");
    let mut client = Peer::connect(address, "client");
    let mut old = Peer::worker(address, "worker", r#"[[1, "mail"]]"#);
    for number in 0..3 {
        let id = format!("{number}");
        old.ready(1);
        client.request(&id, "mail", "", JOB);
        assert_eq!(old.hear().unwrap()[1], id);
        let mut new = Peer::worker(address, "worker", r#"[[1, "mail"]]"#);
        assert!(old.dealer.is_hung_up_on());
        new.ready(1);
        assert_eq!(work_off(&mut new).0, id, "what the old one had in hand");
        old = new;
    }
    // Two live peers do not close each other for ever: both are served.
    let mut beside = Peer::worker(address, "worker", r#"[[1, "mail"]]"#);
    for (worker, id) in [(&mut beside, "one"), (&mut old, "other")] {
        worker.ready(1);
        client.request(id, "mail", "", JOB);
        assert_eq!(work_off(worker).0, id);
    }
}
