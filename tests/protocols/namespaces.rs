//! Several fleets of one protocol on one daemon, each in its namespace: none sees anything of another.

use std::io::Read as _;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use windlass_gearman::wire::{Request, Response};
use windlass_testkit::daemon::Daemon;

use crate::common::eventmq;
use crate::common::faktory::Fwp;
use crate::common::namespaces::{NAMES, SECTIONS, listen_tcp};
use crate::common::spiderq::{ADDED, Bare, add};
use crate::common::{Peer, daemon, kind, socket, wait_for_log, wait_until};

/// The sections, and an address of this protocol for each namespace.
fn addresses(protocol: &str, more: &str) -> String {
    let listen = listen_tcp();
    format!("{SECTIONS}[{protocol}]\n{more}{listen}")
}

fn peers(daemon: &Daemon) -> Vec<Peer> {
    let found = daemon.addresses("gearman").into_iter();
    let peers: Vec<_> = found.map(|at| Peer::connect(at).unwrap()).collect();
    assert_eq!(peers.len(), NAMES.len());
    peers
}

/// Whether the server knows a handle.
fn is_known(peer: &mut Peer, handle: &Bytes) -> bool {
    let handle = handle.clone();
    peer.send(&Request::GetStatus { handle }).unwrap();
    match Response::parse(&peer.packet().unwrap()) {
        Ok(Response::StatusRes { status, .. }) => status.known,
        other => panic!("{other:?}"),
    }
}

/// The job of each namespace: known there and nowhere else, alone in its lists, and for its own worker only.
fn assert_apart(daemon: &Daemon, handles: &[Bytes]) {
    let mut clients = peers(daemon);
    for (at, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.listing("status").unwrap(), ["resize\t1\t0\t0"]);
        let known: Vec<bool> = handles.iter().map(|it| is_known(client, it)).collect();
        let expected: Vec<bool> = (0..NAMES.len()).map(|of| of == at).collect();
        assert_eq!(known, expected, "{:?}", NAMES[at]);
    }
}

#[test]
fn the_same_function_and_unique_id_at_three_addresses_are_three_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).set(&addresses("gearman", "")).start();
    let submit = |(name, mut peer): (&'static str, Peer)| peer.submit("resize", "u", name).unwrap();
    let handles: Vec<_> = NAMES.into_iter().zip(peers(&daemon)).map(submit).collect();
    assert_apart(&daemon, &handles);

    daemon.kill();
    daemon.restart();
    assert_apart(&daemon, &handles);

    // A worker of one namespace gets the job of that one, and then nothing.
    let mut workers = peers(&daemon);
    for ((name, worker), handle) in NAMES.into_iter().zip(&mut workers).zip(&handles) {
        worker.can_do("resize").unwrap();
        let job = worker.grab().unwrap().unwrap();
        assert_eq!((&job.workload[..], &job.handle), (name.as_bytes(), handle));
        assert!(worker.grab().unwrap().is_none());
    }
    for client in &mut peers(&daemon) {
        assert_eq!(client.listing("status").unwrap(), ["resize\t1\t1\t1"]);
        let workers = client.listing("workers").unwrap();
        let serving = workers.iter().filter(|line| line.contains("resize"));
        assert_eq!(serving.count(), 1, "{workers:?}");
        let unnamed = workers.iter().filter(|line| line.contains(" - :"));
        assert_eq!(unnamed.count(), workers.len(), "{workers:?}");
    }
    for (worker, handle) in workers.iter_mut().zip(&handles) {
        worker.complete(handle).unwrap();
    }
    // The unique id is free again where its job has ended.
    for client in &mut peers(&daemon) {
        wait_until("the job has ended", || {
            client.listing("status").unwrap() == ["resize\t0\t0\t1"]
        });
        assert!(!handles.contains(&client.submit("resize", "u", "x").unwrap()));
    }
}

#[test]
fn a_password_tells_the_namespace() {
    const PASSWORDS: [&str; 3] = ["of nobody", "of shop", "of staging"];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shop.secret");
    std::fs::write(&file, "of shop\n").unwrap();
    let toml = format!(
        "[namespaces.shop]\n[namespaces.staging]\n[faktory]\nlisten = [\"127.0.0.1:0\"]\npassword = \"of nobody\"\n\
         [faktory.passwords]\nshop = {{ file = {file:?} }}\nstaging = \"of staging\"\n"
    );
    let mut daemon = daemon(dir.path()).set(&toml).start();
    let enter = |daemon: &Daemon, password: &str| {
        let (fwp, said) = Fwp::hello(daemon.address("faktory"), password);
        assert_eq!(said, "+OK", "{password}");
        fwp
    };
    for wrong in ["", "of no one"] {
        let (_, said) = Fwp::hello(daemon.address("faktory"), wrong);
        assert_eq!(said, "-ERR Invalid password");
    }
    let mut open = Vec::new();
    for password in PASSWORDS {
        let mut fwp = enter(&daemon, password);
        let push = format!(
            r#"PUSH {{"jid":"namespaces01","queue":"mail","jobtype":"T","args":["{password}"],"custom":{{"track":1}}}}"#
        );
        assert_eq!(fwp.ask(&push), "+OK");
        open.push(fwp);
    }
    let info =
        |fwp: &mut Fwp| -> serde_json::Value { serde_json::from_str(&fwp.ask("INFO")).unwrap() };
    for fwp in &mut open {
        let info = info(fwp);
        let found = (
            &info["faktory"]["queues"]["mail"],
            &info["faktory"]["total_enqueued"],
            &info["server"]["connections"],
            &info["faktory"]["tasks"]["Workers"]["size"],
        );
        let one = serde_json::Value::from(1);
        assert_eq!(found, (&one, &one, &one, &one), "{info}");
    }
    daemon.kill();
    daemon.restart();
    for password in PASSWORDS {
        let mut fwp = enter(&daemon, password);
        let job = fwp.ask("FETCH mail");
        assert!(job.contains(&format!("[\"{password}\"]")), "{job}");
        assert!(fwp.ask("TRACK GET namespaces01").contains("working"));
        assert_eq!(fwp.ask("FETCH mail"), "null");
        assert_eq!(fwp.ask(r#"ACK {"jid":"namespaces01"}"#), "+OK");
    }
}

#[test]
fn at_the_address_of_a_namespace_only_its_own_password_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let more = "password = \"of nobody\"\npasswords = { shop = \"of shop\" }\n";
    let daemon = daemon(dir.path()).set(&addresses("faktory", more)).start();
    let found = daemon.addresses("faktory");
    let table = [
        ("of nobody", [true, false, true]),
        ("of shop", [true, true, false]),
    ];
    for (password, expected) in table {
        let said: Vec<_> = found
            .iter()
            .map(|at| Fwp::hello(*at, password).1 == "+OK")
            .collect();
        assert_eq!(said, expected, "{password}");
    }
}

#[test]
fn each_namespace_has_its_own_ring_of_a_listener_of_spiderq() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set(&addresses("spiderq", "queue = \"ring\"\n"))
        .start();
    for (most, at) in (1..).zip(daemon.addresses("spiderq")) {
        let mut bare = Bare::connect(at);
        for key in 0..most {
            assert_eq!(bare.ask(&add(&key.to_string(), b"v")), ADDED);
        }
        assert_eq!(bare.count(), most);
    }
}

/// Each of these keys of EventMQ with an address for each namespace.
fn eventmq_addresses() -> String {
    let list = addresses("eventmq", "");
    let (before, list) = list.split_once("listen = ").unwrap();
    let keys = ["listen", "admin_listen", "subscribe_listen"];
    let lists: String = keys.iter().map(|key| format!("{key} = {list}")).collect();
    format!("{before}{lists}publish_listen = []\n")
}

#[test]
fn eventmqs_workers_identities_and_subscribers_stay_in_their_namespaces() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).set(&eventmq_addresses()).start();
    let at = |role: &str| daemon.addresses(role).into_iter();
    // The same identity at the addresses of one role: none replaces another.
    let worker = |at| eventmq::Peer::worker(at, "w", r#"[[10, "q"]]"#);
    let mut workers: Vec<_> = at("eventmq").map(worker).collect();
    for ((name, at), worker) in NAMES.into_iter().zip(at("eventmq")).zip(&mut workers) {
        let mut client = eventmq::Peer::connect(at, "c");
        client.request("m", "q", "", &format!(r#"["run", {{"of": "{name}"}}]"#));
        worker.ready(2);
        let job = worker.hear().unwrap();
        assert!(
            job.last().unwrap().contains(&format!("\"{name}\"")),
            "{job:?}"
        );
    }
    for at in at("eventmq-admin") {
        let mut admin = eventmq::Peer::connect(at, "a");
        admin.say(&["ROUTER_SHOW_WORKERS", "show"]).unwrap();
        let report = admin.hear().unwrap();
        let report: serde_json::Value = serde_json::from_str(report.last().unwrap()).unwrap();
        let serving = report["connected_queues"]["q"].as_array().map(Vec::len);
        assert_eq!(serving, Some(1), "{report}");
    }
    let subscriber = |at| eventmq::Subscriber::connect(at, &["t"]);
    let mut subscribers: Vec<_> = at("eventmq-subscribe").map(subscriber).collect();
    for ((name, at), subscriber) in NAMES.into_iter().zip(at("eventmq")).zip(&mut subscribers) {
        let mut publisher = eventmq::Peer::connect(at, "p");
        let topic = format!("t{name}");
        subscriber.dealer.stream.set_nonblocking(true).unwrap();
        wait_until("a subscriber hears its own publisher", || {
            publisher.say(&["PUBLISH", "p", &topic, "text"]).unwrap();
            subscriber.dealer.stream.peek(&mut [0]).is_ok()
        });
        subscriber.dealer.stream.set_nonblocking(false).unwrap();
        let (heard, _) = subscriber.hear();
        assert_eq!(heard, topic);
    }
}

/// Reads until the daemon closes the connection.
fn rest(at: SocketAddr) -> Vec<u8> {
    let mut said = Vec::new();
    // The daemon may close it with unread bytes of ours.
    let _ = socket(at).unwrap().read_to_end(&mut said);
    said
}

#[test]
fn a_connection_beyond_the_limit_of_its_namespace_is_told_so_and_closed() {
    let dir = tempfile::tempdir().unwrap();
    let toml = r#"[namespaces.shop]
        limits.connections = 1
        [gearman]
        listen = ["127.0.0.1:0", { address = "127.0.0.1:0", namespace = "shop" }]
        [faktory]
        listen = [{ address = "127.0.0.1:0", namespace = "shop" }]
        [spiderq]
        listen = [{ address = "127.0.0.1:0", namespace = "shop" }]
        "#;
    let daemon = daemon(dir.path()).set(toml).start();
    let [other, shop] = daemon.addresses("gearman").try_into().unwrap();
    let mut only = Peer::connect(shop).unwrap();
    assert_eq!(only.listing("status").unwrap(), [""; 0]);

    let mut further = Peer::connect(shop).unwrap();
    // Sent before the refusal can be known: it must not end up in another namespace either.
    let _ = further.send_raw(b"\0REQ\0\0\0\x12\0\0\0\x04f\0\0x");
    let refused = further.packet().unwrap();
    match Response::parse(&refused) {
        Ok(Response::Error { code, .. }) => assert_eq!(code, b"QUEUE_ERROR"),
        _ => panic!("{:?}", kind(&refused)),
    }
    assert!(further.receive().is_err(), "closed");
    let said = rest(daemon.address("faktory"));
    let said = String::from_utf8(said).unwrap();
    assert!(
        said.ends_with("-ERR limit of connections of the namespace reached: 1\r\n"),
        "{said:?}"
    );
    assert_eq!(rest(daemon.address("spiderq")), b"");
    wait_for_log(&daemon, "limit exceeded: namespaces.connections");

    let mut elsewhere = Peer::connect(other).unwrap();
    assert_eq!(elsewhere.listing("status").unwrap(), [""; 0]);
    assert_eq!(only.listing("status").unwrap(), [""; 0]);
    drop(only);
    wait_until("there is room again", || {
        thread::sleep(Duration::from_millis(10));
        let mut next = Peer::connect(shop).unwrap();
        next.listing("status").is_ok()
    });
}

#[test]
fn a_reload_changes_limits_and_makes_namespaces() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set(&addresses("gearman", "").replacen(
            "[namespaces.shop]",
            "[namespaces.shop]\nlimits.jobs = 1",
            1,
        ))
        .start();
    let shop = daemon.addresses("gearman")[1];
    let mut peer = Peer::connect(shop).unwrap();
    peer.submit("f", "", "1").unwrap();
    peer.submit("f", "", "2").unwrap_err();
    let path = dir.path().join("windlass.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replacen("limits.jobs = 1", "limits.jobs = 2", 1);
    std::fs::write(&path, text + "[namespaces.third]\n").unwrap();
    daemon.signal("HUP");
    wait_for_log(
        &daemon,
        "namespaces: 1 new, 1 changed, 0 removed, 1 unchanged",
    );
    peer.submit("f", "", "2").unwrap();
    peer.submit("f", "", "3").unwrap_err();
}
