//! Limits: peers that exceed their share of memory, connections or time; the daemon and the other clients continue.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use socket2::{Domain, Socket, Type};
use windlass_gearman::wire::{AssignForm, Kind, Report, Request, Response};
use windlass_testkit::cgroup::MemoryGroup;
use windlass_testkit::daemon::Daemon;

use crate::common;
use crate::common::eventmq;
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::spiderq;
use crate::common::zmtp::{Dealer, MORE, command, frame};
use crate::common::{Peer, daemon, socket, submission, wait_until};

const MIB: usize = 1 << 20;

/// Whether the daemon ends the connection, whatever it sends before.
fn is_hung_up_on(mut stream: &TcpStream) -> bool {
    let end = std::io::copy(&mut stream, &mut std::io::sink());
    end.map_or_else(
        |error| error.kind() == std::io::ErrorKind::ConnectionReset,
        |_| true,
    )
}

fn say(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = socket(address).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

// ---- time -----------------------------------------------------------------------------------------------------------

#[test]
fn half_a_message_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let keys = "[server]\nmessage_timeout = \"300ms\"\nmessage_rate_min = 0\n";
    let daemon = daemon(dir.path()).set(keys).eventmq("").start();
    let gearman = daemon.address("gearman");
    let submit = encoded(&submission("f", "", "a body", true));
    let add = spiderq::add("key", b"value");
    let mut idle = Peer::connect(gearman).unwrap();
    idle.submit("f", "", "x").unwrap();

    let mut halves = vec![
        ("a header", say(gearman, &submit[..7])),
        ("a body", say(gearman, &submit[..submit.len() - 1])),
        ("a line", say(gearman, b"stat")),
        (
            "the beginning of another",
            say(gearman, &[&submit[..], &submit[..20]].concat()),
        ),
        (
            "a bare request",
            say(daemon.address("spiderq"), &add[..add.len() - 2]),
        ),
        (
            "half a greeting",
            say(
                daemon.address("spiderq"),
                &common::zmtp::greeting("NULL")[..30],
            ),
        ),
    ];
    for (name, address) in [
        ("spiderq", daemon.address("spiderq")),
        ("eventmq", daemon.address("eventmq")),
    ] {
        let mut dealer = Dealer::connect(address, b"");
        dealer.say(&frame(MORE, b"there is more")).unwrap();
        // A heartbeat between the parts of a message does not complete the message.
        dealer.say(&command("PING", b"\0\0alive")).unwrap();
        halves.push((name, dealer.stream));
    }
    let mut fwp = say(
        daemon.address("faktory"),
        b"HELLO {\"v\":2}\r\nPUSH {\"jid\":",
    );
    assert_ne!(fwp.read(&mut [0; 10]).unwrap(), 0);
    halves.push(("a line of FWP's", fwp));
    for (what, stream) in &halves {
        assert!(is_hung_up_on(stream), "{what}");
    }
    // A client that is silent between messages stays connected.
    idle.submit("f", "", "x").unwrap();
}

fn encoded(request: &Request) -> BytesMut {
    let mut bytes = BytesMut::new();
    request.encode(&mut bytes);
    bytes
}

// ---- connections ----------------------------------------------------------------------------------------------------

#[test]
fn silent_connections_leave_room_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[server]\nconnections_max = 40\nconnections_reserved = 2\n")
        .eventmq("")
        .start();
    let silent: Vec<TcpStream> = (0..100)
        .map(|_| socket(daemon.address("gearman")).unwrap())
        .collect();
    let bare: Vec<TcpStream> = (0..100)
        .map(|_| socket(daemon.address("spiderq")).unwrap())
        .collect();
    // By now each is accepted or disconnected, in the order of arrival.
    assert!(is_hung_up_on(&silent[0]) && is_hung_up_on(&bare[0]));
    let mut producers: Vec<Fwp> = (0..3)
        .map(|_| Fwp::connect(daemon.address("faktory")))
        .collect();
    assert_eq!(
        producers[2].ask(r#"PUSH {"jid":"survivor1","jobtype":"T","args":[]}"#),
        "+OK"
    );
    let mut client = Peer::connect(daemon.address("gearman")).unwrap();
    client.submit("f", "", "x").unwrap();
    let mut dealer = Dealer::connect(daemon.address("spiderq"), b"");
    assert_eq!(dealer.ask(spiderq::PING).unwrap(), spiderq::PONG);
    let _worker =
        eventmq::Peer::worker(daemon.address("eventmq"), "worker", r#"[[10, "default"]]"#);
}

#[test]
fn active_connections_leave_places_for_other_protocols_and_administrators() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[server]\nconnections_max = 20\nconnections_reserved = 2\n")
        .start();
    let mut inside = Vec::new();
    loop {
        let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
        if peer.submit("f", "", "x").is_err() {
            break;
        }
        inside.push(peer);
    }
    assert_eq!(inside.len(), 16, "two are kept for each of the others");
    let mut admin = Peer::connect(daemon.address("gearman")).unwrap();
    assert_eq!(admin.listing("status").unwrap(), ["f\t16\t0\t0"]);
    let mut fwp = [(); 2].map(|()| Fwp::connect(daemon.address("faktory")));
    assert!(fwp[1].ask("INFO").contains("faktory"));
}

#[test]
fn connections_per_address_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[server]\nconnections_per_address_max = 2\n")
        .start();
    let mut inside = [(); 2].map(|()| Peer::connect(daemon.address("gearman")).unwrap());
    inside
        .iter_mut()
        .for_each(|peer| drop(peer.submit("f", "", "x").unwrap()));
    let outside = || Fwp::try_hello(daemon.address("faktory"));
    assert!(outside().is_err());
    drop(inside);
    // A freed place can be taken again once the daemon has noticed.
    while outside().is_err() {}
}

// ---- memory ---------------------------------------------------------------------------------------------------------

/// Clients that do not read their answers.
const READERS: usize = 300;

/// All that the shipped configuration serves.
const HTTP_CONNECTIONS: usize = 256;

/// The configuration promises that a machine of this size survives any queue contents.
const MACHINE_BYTES: u64 = 1 << 30;

/// The part of it that the system needs.
const SYSTEM_BYTES: u64 = 64 << 20;

/// The shipped configuration. Where a memory group can be made, the daemon gets all the machine's memory, and no more.
fn small_machine(dir: &Path) -> (Daemon, Option<MemoryGroup>) {
    let group = MemoryGroup::new("windlass-bounds", MACHINE_BYTES - SYSTEM_BYTES);
    if group.is_none() {
        println!("no memory cgroup can be made here: only the daemon's own memory is looked at");
    }
    let plan = daemon(dir).eventmq("");
    let plan = group
        .iter()
        .fold(plan, windlass_testkit::daemon::Plan::within);
    (plan.start(), group)
}

/// A key that no other job has. Keys stay in memory, unlike bodies.
fn new_key(bytes: usize) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{:0>bytes$}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Submits background jobs, made of a key and a body, many at a time, until `jobs_max` are queued or one is refused.
/// Returns the number of jobs.
fn fill(
    daemon: &Daemon,
    function: &str,
    job: impl Fn() -> (String, Bytes),
    jobs_max: usize,
) -> usize {
    const AT_ONCE: usize = 64;
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    let mut jobs = 0;
    while jobs < jobs_max {
        let mut batch = BytesMut::new();
        for _ in 0..AT_ONCE {
            let (key, body) = job();
            submission(function, &key, body, true).encode(&mut batch);
        }
        peer.send_raw(&batch).unwrap();
        for _ in 0..AT_ONCE {
            match peer.packet().unwrap().kind {
                Kind::JOB_CREATED => jobs += 1,
                Kind::ERROR => return jobs,
                other => panic!("{other:?}"),
            }
        }
    }
    jobs
}

/// Takes and completes this many jobs.
fn work_off(daemon: &Daemon, function: &str, jobs: usize) {
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.can_do(function).unwrap();
    for _ in 0..jobs {
        let handle = worker.grab().unwrap().unwrap().handle;
        worker.complete(&handle).unwrap();
    }
}

/// Checks the minimum that every connection needs, and that refusals leave the connection open.
fn assert_polite(daemon: &Daemon) {
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    // Memory was full; some of it may be free again since then.
    let mut push = |_| peer.submit("small", "", vec![b'x'; 4096]).err();
    let refused = (0..100_000)
        .find_map(&mut push)
        .expect("memory is full")
        .to_string();
    assert!(refused.contains("QUEUE_ERROR"), "{refused}");
    assert!(
        !peer.listing("status").unwrap().is_empty(),
        "the same connection goes on"
    );
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let large = "x".repeat(4096);
    let mut pushes = (0..100_000).map(|n| {
        fwp.ask(&format!(
            r#"PUSH {{"jid":"refused{n}","jobtype":"T","args":["{large}"]}}"#
        ))
    });
    assert!(
        pushes.any(|answer| answer.starts_with("-ERR")),
        "memory is full"
    );
    assert!(fwp.ask("INFO").contains("faktory"));
}

#[test]
fn requests_are_executed_in_order_as_answers_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let mut client = Peer::connect(daemon.address("gearman")).unwrap();
    for number in 0..20u8 {
        client.submit("large", "", vec![number; MIB]).unwrap();
    }
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.can_do("large").unwrap();
    (0..20).for_each(|_| worker.send(&Request::Grab(AssignForm::Plain)).unwrap());
    worker.send(&submission("small", "", "x", true)).unwrap();
    worker
        .send(&Request::Echo {
            data: Bytes::from_static(b"last"),
        })
        .unwrap();
    let mut running = || {
        let lines = client.listing("status").unwrap();
        assert!(
            !lines.iter().any(|line| line.starts_with("small")),
            "not before it has taken its answers"
        );
        let large = lines
            .iter()
            .find_map(|line| line.strip_prefix("large\t20\t"))
            .unwrap();
        large.split('\t').next().unwrap().parse::<u32>().unwrap()
    };
    wait_until("the first is handed out", || running() > 0);
    settle(&daemon);
    assert!(running() < 3, "the others could have taken them");
    for number in 0..20 {
        let packet = worker.packet().unwrap();
        let Ok(Response::JobAssign { workload, .. }) = Response::parse(&packet) else {
            panic!("{:?}", packet.kind)
        };
        assert_eq!(
            (workload.len(), workload[0], workload[MIB - 1]),
            (MIB, number, number)
        );
    }
    assert_eq!(worker.packet().unwrap().kind, Kind::JOB_CREATED);
    assert_eq!(worker.packet().unwrap().kind, Kind::ECHO_RES);
}

/// Announces a job of 1 MiB over HTTP.
fn announce_post(daemon: &Daemon) -> TcpStream {
    let head = "POST /api/v1/queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: 100-continue\r\n";
    say(
        daemon.address("http"),
        format!("{head}Content-Length: {MIB}\r\n\r\n").as_bytes(),
    )
}

#[test]
fn bodies_of_http_wait_for_room_and_small_ones_do_not() {
    const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let is_let_in = |stream: &mut TcpStream| {
        let mut answer = [0; CONTINUE.len()];
        stream
            .read_exact(&mut answer)
            .is_ok_and(|()| answer == CONTINUE)
    };
    let mut posts: Vec<TcpStream> = (0..16).map(|_| announce_post(&daemon)).collect();
    assert!(posts.iter_mut().all(is_let_in));
    let mut next = announce_post(&daemon);
    assert_eq!(
        Http(daemon.address("http"))
            .post("/api/v1/queues/q/jobs", "small")
            .status,
        201
    );
    next.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    assert!(!is_let_in(&mut next), "there is room for 16 MiB");
    drop(posts);
    next.set_read_timeout(None).unwrap();
    assert!(is_let_in(&mut next));
    next.write_all(&[b'n'; MIB]).unwrap();
    let mut answer = String::new();
    next.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

/// Workers that ask for twenty large jobs each and read nothing. The daemon may close some of them before the others
/// have asked.
fn deaf_workers(daemon: &Daemon) -> Vec<Peer> {
    let workers = (0..READERS).map(|_| {
        let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
        worker.can_do("large").unwrap();
        (0..20).for_each(|_| drop(worker.send(&Request::Grab(AssignForm::Plain))));
        worker
    });
    workers.collect()
}

/// Clients that wait for a job with much progress data, and that do not read.
fn deaf_clients(daemon: &Daemon) -> Vec<Peer> {
    let mut worker = Peer::connect(daemon.address("gearman")).unwrap();
    worker.can_do("talk").unwrap();
    let mut clients: Vec<Peer> = (0..READERS)
        .map(|_| Peer::connect(daemon.address("gearman")).unwrap())
        .collect();
    for client in &mut clients {
        client
            .send(&submission("talk", "same", "x", false))
            .unwrap();
        assert_eq!(client.packet().unwrap().kind, Kind::JOB_CREATED);
    }
    let handle = worker.grab().unwrap().unwrap().handle;
    let data = Bytes::from(vec![b'd'; MIB / 2]);
    for _ in 0..40 {
        worker
            .send(&Request::Work {
                handle: handle.clone(),
                report: Report::Data(data.clone()),
            })
            .unwrap();
    }
    // The echo's answer proves that all data has been forwarded.
    worker
        .send(&Request::Echo {
            data: Bytes::from_static(b"all said"),
        })
        .unwrap();
    assert_eq!(worker.packet().unwrap().kind, Kind::ECHO_RES);
    clients
}

/// Packets that lack their last byte.
fn half_sent(daemon: &Daemon) -> Vec<TcpStream> {
    let whole = encoded(&submission("half", "", vec![b'h'; 2 * MIB], true));
    let halves = (0..READERS).filter_map(|_| {
        let mut stream = socket(daemon.address("gearman")).unwrap();
        // A stream that the daemon closed meanwhile fails here.
        stream
            .write_all(&whole[..whole.len() - 1])
            .ok()
            .map(|()| stream)
    });
    halves.collect()
}

/// Posts of a job of 1 MiB that lack their last byte.
fn half_posted(daemon: &Daemon) -> Vec<TcpStream> {
    let posts = (0..HTTP_CONNECTIONS).map(|_| {
        let mut stream = announce_post(daemon);
        // The daemon does not read all of them.
        stream.set_nonblocking(true).unwrap();
        let _ = stream.write(&[b'h'; MIB - 1]);
        stream
    });
    posts.collect()
}

/// Subscribers that do not read publications.
fn deaf_subscribers(daemon: &Daemon) -> Vec<eventmq::Subscriber> {
    let at = daemon.address("eventmq-subscribe");
    let mut subscribers: Vec<_> = (0..READERS)
        .map(|_| eventmq::Subscriber::connect(at, &["news"]))
        .collect();
    let mut publisher = eventmq::Peer::connect(daemon.address("eventmq-publish"), "publisher");
    let text = "n".repeat(100_000);
    let last = &mut subscribers[READERS - 1].dealer.stream;
    last.set_nonblocking(true).unwrap();
    wait_until("the last one is notified", || {
        publisher.say(&["PUBLISH", "p", "news", "begin"]).unwrap();
        last.peek(&mut [0]).is_ok()
    });
    for _ in 0..2000 {
        publisher.say(&["PUBLISH", "p", "news", &text]).unwrap();
    }
    subscribers
}

/// Waits until the daemon has processed everything in its sockets that it will process.
fn settle(daemon: &Daemon) {
    for _ in 0..20 {
        let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
        peer.send(&Request::Echo {
            data: Bytes::from_static(b"there?"),
        })
        .unwrap();
        assert!(matches!(
            Response::parse(&peer.packet().unwrap()),
            Ok(Response::EchoRes { .. })
        ));
    }
}

#[test]
fn a_machine_with_one_gib_survives_whatever_is_queued_and_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let (mut daemon, group) = small_machine(dir.path());
    let mut said = String::new();
    let mut look = |daemon: &Daemon, what: &str| {
        let (own, all) = (
            daemon.peak_bytes() >> 20,
            group.as_ref().map_or(0, MemoryGroup::peak) >> 20,
        );
        writeln!(said, "{what}: {own} MiB, with the page cache {all} MiB").unwrap();
        assert!(daemon.peak_bytes() < MACHINE_BYTES - SYSTEM_BYTES, "{said}");
        assert_eq!(group.as_ref().map_or(0, MemoryGroup::kills), 0, "{said}");
    };
    let body = Bytes::from(vec![b'x'; MIB]);
    let large = fill(&daemon, "large", || (String::new(), body.clone()), READERS);
    let small_job = || (new_key(60), Bytes::new());
    let small = fill(&daemon, "small", small_job, usize::MAX);
    look(&daemon, &format!("{large} large and {small} small jobs"));
    assert_polite(&daemon);
    let workers = deaf_workers(&daemon);
    settle(&daemon);
    look(&daemon, "workers that do not read");
    // The bookkeeping for a lost worker's jobs counts too: there may be no room for new jobs.
    work_off(&daemon, "small", 4_000);
    let clients = deaf_clients(&daemon);
    settle(&daemon);
    look(&daemon, "clients that do not read");
    let halves = half_sent(&daemon);
    settle(&daemon);
    look(&daemon, "half a packet each");
    let posted = half_posted(&daemon);
    settle(&daemon);
    look(&daemon, "half a body each");
    let subscribers = deaf_subscribers(&daemon);
    settle(&daemon);
    look(&daemon, "subscribers that do not read");
    fill(&daemon, "small", small_job, usize::MAX);
    assert_polite(&daemon);
    drop((workers, clients, halves, posted, subscribers));

    // Data that fits must also fit when the data directory is opened again.
    daemon.kill();
    daemon.restart();
    look(&daemon, "opened again");
    fill(&daemon, "small", small_job, usize::MAX);
    assert_polite(&daemon);
    println!("{said}");
}

/// As libgearman's own test does: with small buffers, both sides would wait for each other.
#[test]
fn clients_that_write_everything_before_they_read_are_read_on() {
    const REQUESTS: usize = 3_000;
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let mut echo = b"\0REQ\0\0\0\x10\0\0\x08\0".to_vec();
    echo.resize(12 + 2048, b'x');
    let track = b"TRACK GET some-job\r\n".to_vec();
    for (protocol, login, request) in [
        ("gearman", &b""[..], echo),
        ("faktory", b"HELLO {\"v\":2}\r\n", track),
    ] {
        let small = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        small.set_send_buffer_size(32 << 10).unwrap();
        small.set_recv_buffer_size(32 << 10).unwrap();
        small.connect(&daemon.address(protocol).into()).unwrap();
        let mut stream = TcpStream::from(small);
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut answer = vec![0; 1 << 16];
        if !login.is_empty() {
            stream.write_all(login).unwrap();
            let mut greeted = 0;
            while !answer[..greeted].ends_with(b"+OK\r\n") {
                greeted += stream.read(&mut answer[greeted..]).unwrap();
            }
        }
        // One answer shows how long each is.
        stream.write_all(&request).unwrap();
        let ends = |answer: &[u8]| match protocol {
            "gearman" => answer.len() == request.len(),
            _ => answer.ends_with(b"}\r\n"),
        };
        let mut length = 0;
        while !ends(&answer[..length]) {
            length += stream.read(&mut answer[length..]).unwrap();
        }
        let times = REQUESTS.max((3 << 20) / length);
        stream.write_all(&request.repeat(times)).unwrap();
        let mut all = vec![0; length * times];
        stream.read_exact(&mut all).unwrap();
        assert!(
            all.chunks(length).all(|one| one == &answer[..length]),
            "{protocol}"
        );
    }
}
