//! The daemon from the view of its operator and of a hostile client: how it stops, what it refuses, what it survives.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use windlass_gearman::wire::{Request, Response, Schedule, Status, Submission};
use windlass_testkit::daemon::{Daemon, EVENTMQ_OFF};

use crate::common;
use crate::common::{Peer, daemon, submission, wait_until};

// ---- start and stop -------------------------------------------------------------------------------------------------

#[test]
fn sigterm_keeps_everything_and_exits_0() {
    for signal in ["TERM", "INT"] {
        for durability in ["sync", "interval"] {
            let dir = tempfile::tempdir().unwrap();
            // The interval is longer than the test: only the last commit can have saved the jobs.
            let keys = format!("durability = \"{durability}\"\ncommit_interval = \"1h\"");
            let mut daemon = daemon(dir.path()).set(&keys).start();
            let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
            for n in 0..100 {
                peer.submit("later", "", n.to_string()).unwrap();
            }
            daemon.signal(signal);
            let status = daemon.wait();
            assert_eq!(
                status.code(),
                Some(0),
                "{signal} {durability}: {}",
                daemon.log_text()
            );
            assert!(peer.receive().is_err(), "the connection is closed");
            daemon.restart();
            let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
            assert_eq!(
                peer.listing("status").unwrap(),
                ["later\t100\t0\t0"],
                "{signal} {durability}"
            );
        }
    }
}

#[test]
fn a_schedule_survives_kill_9_and_its_end_does_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    // Once in four years: it does not run during the test.
    let fields = ["0", "0", "29", "2", ""].map(|field| Bytes::copy_from_slice(field.as_bytes()));
    let [minute, hour, day_of_month, month, day_of_week] = fields;
    let schedule = Box::new(Schedule {
        minute,
        hour,
        day_of_month,
        month,
        day_of_week,
    });
    let job = Submission {
        function: "leap".into(),
        unique: "id".into(),
        workload: "body".into(),
    };
    let submit = Request::SubmitSched { job, schedule };
    peer.send(&submit).unwrap();
    let created = peer.packet().unwrap();
    let Ok(Response::JobCreated { handle }) = Response::parse(&created) else {
        panic!("{created:?}")
    };
    let row = format!("{}\t0\t0\t1", handle.escape_ascii());

    daemon.kill();
    daemon.restart();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    assert_eq!(peer.listing("show jobs").unwrap(), [row.as_str()]);
    assert_eq!(peer.listing("status").unwrap(), ["leap\t0\t0\t0"]);
    peer.send(&Request::GetStatus {
        handle: Bytes::copy_from_slice(handle),
    })
    .unwrap();
    let answer = peer.packet().unwrap();
    let status = Status {
        known: true,
        ..Status::default()
    };
    assert_eq!(
        Response::parse(&answer),
        Ok(Response::StatusRes { handle, status })
    );
    peer.send(&submit).unwrap();
    assert_eq!(
        peer.packet().unwrap(),
        created,
        "the same function and unique id, the same handle"
    );
    assert_eq!(
        peer.line(&format!("cancel job {}", handle.escape_ascii()))
            .unwrap(),
        "OK"
    );

    daemon.kill();
    daemon.restart();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    assert_eq!(peer.listing("show jobs").unwrap(), [""; 0]);
}

/// Runs a second daemon that must not start, and returns its output.
fn refused(dir: &Path, config: &str) -> Output {
    let path = dir.join("second.toml");
    std::fs::write(&path, config).unwrap();
    // `timeout` ends a daemon that starts after all, with another exit code than any we expect.
    Command::new("timeout")
        .args(["60", env!("CARGO_BIN_EXE_windlass"), "serve", "-c"])
        .arg(path)
        .output()
        .unwrap()
}

#[test]
fn a_busy_port_and_a_busy_directory_are_reported_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let port = daemon.address("gearman").port();
    let data = dir.path().join("data");
    let other = dir.path().join("other");
    let file = dir.path().join("thesis.txt");
    std::fs::write(&file, "years of work").unwrap();
    let table = [
        (
            "port",
            3,
            format!(
                "data_dir = {other:?}\nfaktory.listen = []\nspiderq.listen = []\n{EVENTMQ_OFF}[gearman]\nlisten = [\"127.0.0.1:{port}\"]\n"
            ),
            format!("127.0.0.1:{port}"),
        ),
        (
            "port of another key of the protocol",
            3,
            format!(
                "data_dir = {other:?}\nfaktory.listen = []\nspiderq.listen = []\ngearman.listen = []\n[eventmq]\n\
                 listen = [\"127.0.0.1:0\"]\nadmin_listen = [\"127.0.0.1:{port}\"]\n\
                 publish_listen = []\nsubscribe_listen = []\n"
            ),
            "the address is in use (eventmq.admin_listen)".to_owned(),
        ),
        (
            "directory",
            4,
            format!(
                "data_dir = {data:?}\nfaktory.listen = []\nspiderq.listen = []\n{EVENTMQ_OFF}[gearman]\nlisten = [\"127.0.0.1:0\"]\n"
            ),
            data.display().to_string(),
        ),
        (
            "somebody's file",
            3,
            format!(
                "data_dir = {other:?}\nfaktory.listen = []\nspiderq.listen = []\n{EVENTMQ_OFF}[gearman]\nlisten = [\"unix:{}\"]\n",
                file.display()
            ),
            "the file there is not a socket".to_owned(),
        ),
        (
            "configuration",
            2,
            "no_such_key = 1\n".to_owned(),
            "no_such_key".to_owned(),
        ),
    ];
    for (case, code, config, named) in table {
        let output = refused(dir.path(), &config);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{case}: {said}");
        let reason = said.lines().find(|line| line.starts_with("windlass: "));
        assert!(reason.is_some() && said.contains(&named), "{case}: {said}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"years of work");
}

/// How many connections each serving thread has, as SIGTTIN logs it.
fn connections_by_thread(daemon: &Daemon) -> Vec<u64> {
    const END: &str = "SIGTTIN: the report ends";
    let reports = |log: &str| log.matches(END).count();
    let before = reports(&daemon.log_text());
    // A report that has just ended may still be under way for the daemon: then the signal is in vain.
    wait_until("the report", || {
        daemon.signal("TTIN");
        reports(&daemon.log_text()) > before
    });
    let log = daemon.log_text();
    let (whole, _) = log.rsplit_once(END).unwrap();
    let lines = whole
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let lines: Vec<_> = lines
        .filter(|line| line["message"] == "serving thread")
        .collect();
    let threads = lines.len() / reports(&log);
    lines[lines.len() - threads..]
        .iter()
        .map(|line| line["connections"].as_u64().unwrap())
        .collect()
}

/// A thread that is full leaves connections to its helper, and takes them back later. All requests are answered in order,
/// and the connections keep the state that they have set.
#[test]
fn connections_that_pipeline_move_to_a_helper_and_back() {
    const CONNECTIONS: usize = 8;
    const DEPTH: usize = 128;
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return; // No thread has a helper then.
    }
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).set("durability = \"interval\"").start();
    let address = daemon.address("gearman");
    let is_deep = AtomicBool::new(true);
    let stop = AtomicBool::new(false);
    let client = |number: usize| {
        let function = format!("f{number}");
        let mut peer = Peer::connect(address).unwrap();
        peer.can_do(&function).unwrap();
        let (mut submits, mut last, mut jobs) = (BytesMut::new(), 0, 0);
        let submit = submission(&function, "", "x", true);
        (0..DEPTH).for_each(|_| submit.encode(&mut submits));
        let mut answered = |peer: &mut Peer, many: usize| {
            for _ in 0..many {
                let packet = peer.packet().unwrap();
                let Ok(Response::JobCreated { handle }) = Response::parse(&packet) else {
                    panic!("{packet:?}")
                };
                let number: u64 = String::from_utf8_lossy(handle)
                    .rsplit(':')
                    .next()
                    .unwrap()
                    .parse()
                    .unwrap();
                assert!(number > last, "{number} after {last}");
                last = number;
            }
            jobs += many;
        };
        while !stop.load(Ordering::Relaxed) {
            if is_deep.load(Ordering::Relaxed) {
                peer.send_raw(&submits).unwrap();
                answered(&mut peer, DEPTH);
            } else {
                peer.send(&submit).unwrap();
                answered(&mut peer, 1);
            }
        }
        for _ in 0..jobs {
            let job = peer.grab().unwrap().unwrap();
            peer.complete(&job.handle).unwrap();
        }
        assert!(peer.grab().unwrap().is_none());
    };
    std::thread::scope(|scope| {
        let client = &client;
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|number| scope.spawn(move || client(number)))
            .collect();
        for (deep, helped) in [(true, true), (false, false), (true, true)] {
            is_deep.store(deep, Ordering::Relaxed);
            wait_until("the connections move", || {
                let threads = connections_by_thread(&daemon);
                assert!(
                    clients.iter().all(|client| !client.is_finished()),
                    "a client has failed"
                );
                threads.iter().sum::<u64>() == CONNECTIONS as u64
                    && (threads.last() > Some(&0)) == helped
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_unix_socket_serves_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gearman.sock");
    let listen = format!("[gearman]\nlisten = [\"unix:{}\"]", path.display());
    let mut daemon = daemon(dir.path()).set(&listen).start();
    for _ in 0..2 {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"version\n").unwrap();
        let mut said = [0; 3];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"OK ");
        // A killed daemon leaves its socket file behind, and reuses the address at the next start.
        daemon.kill();
        daemon.restart();
    }
}

#[test]
fn salvage_works_without_a_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    for n in 0..3 {
        peer.submit("later", "", format!("job {n}")).unwrap();
    }
    daemon.kill();
    let salvage = |dir: &Path| {
        Command::new(env!("CARGO_BIN_EXE_windlass"))
            .arg("salvage")
            .arg(dir)
            .output()
            .unwrap()
    };
    let output = salvage(&dir.path().join("data"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        lines
            .lines()
            .filter(|line| line.starts_with("{\"job\":") && line.contains("later"))
            .count(),
        3,
        "{lines}"
    );
    assert_eq!(salvage(&dir.path().join("nothing")).status.code(), Some(4));
}

// ---- hostile clients ------------------------------------------------------------------------------------------------

/// The bytes that the daemon sends until it closes the connection or answers a final `version`.
fn answer(address: SocketAddr, bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream.write_all(bytes).unwrap();
    // The connection may be closed already.
    let _ = stream.write_all(b"version\n");
    let mut said = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return (said, true),
            Ok(read) => said.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return (said, true),
            Err(error) => panic!("neither answered nor closed: {error}"),
        }
        if let Some(at) = said.windows(3).position(|window| window == b"OK ") {
            said.truncate(at);
            return (said, false);
        }
    }
}

fn packet(magic: &[u8; 4], kind: u32, declared: u32, body: &[u8]) -> Vec<u8> {
    [
        &magic[..],
        &kind.to_be_bytes(),
        &declared.to_be_bytes(),
        body,
    ]
    .concat()
}

#[test]
fn malformed_packets_are_answered_or_hung_up_on() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let address = daemon.address("gearman");
    // Another client, connected all along.
    let mut bystander = Peer::connect(address).unwrap();
    let error = |code: &str, text: &str| {
        let body = format!("{code}\0{text}");
        packet(
            b"\0RES",
            19,
            u32::try_from(body.len()).unwrap(),
            body.as_bytes(),
        )
    };
    let long_unique = [&b"f\0"[..], &[b'u'; 65], b"\0data"].concat();
    // The case, the bytes sent, and the answer: `None` means that the daemon closes the connection.
    type Case = (&'static str, Vec<u8>, Option<Vec<u8>>);
    let table: Vec<Case> = vec![
        ("wrong magic", packet(b"\0XXX", 16, 0, b""), None),
        ("type 0", packet(b"\0REQ", 0, 0, b""), None),
        ("type 43", packet(b"\0REQ", 43, 0, b""), None),
        ("type 2^32 - 1", packet(b"\0REQ", u32::MAX, 0, b""), None),
        (
            "two gigabytes announced",
            packet(b"\0REQ", 18, 0x7fff_ffff, b"f\0u\0"),
            None,
        ),
        (
            "four gigabytes announced",
            packet(b"\0REQ", 18, u32::MAX, b"f\0u\0"),
            None,
        ),
        ("a line without end", vec![b'x'; 9000], None),
        (
            "response magic",
            packet(b"\0RES", 16, 2, b"hi"),
            Some(error("INVALID_MAGIC", "Request magic expected")),
        ),
        (
            "a response type",
            packet(b"\0REQ", 8, 0, b""),
            Some(error("INVALID_COMMAND", "Command not expected")),
        ),
        (
            "unused type 5",
            packet(b"\0REQ", 5, 0, b""),
            Some(error("INVALID_COMMAND", "Command not expected")),
        ),
        (
            "unique of 65 bytes",
            packet(
                b"\0REQ",
                18,
                u32::try_from(long_unique.len()).unwrap(),
                &long_unique,
            ),
            Some(error("ARGUMENT_TOO_LARGE", "Unique value too large")),
        ),
        (
            "a result nobody waits for",
            packet(b"\0REQ", 13, 8, b"H:no:1\0x"),
            Some(error("JOB_NOT_FOUND", "Job given in work result not found")),
        ),
        (
            "an option nobody knows",
            packet(b"\0REQ", 26, 4, b"nope"),
            Some(error(
                "UNKNOWN_OPTION",
                "Server does not recognize given option",
            )),
        ),
        (
            "a body where none belongs",
            packet(b"\0REQ", 9, 3, b"xyz"),
            Some(packet(b"\0RES", 10, 0, b"")),
        ),
    ];
    for (case, bytes, expected) in table {
        let (said, closed) = answer(address, &bytes);
        match expected {
            None => assert!(
                closed && said.is_empty(),
                "{case}: {said:?}, closed: {closed}"
            ),
            Some(expected) => {
                assert_eq!(
                    String::from_utf8_lossy(&said),
                    String::from_utf8_lossy(&expected),
                    "{case}"
                );
                assert!(!closed, "{case}: hung up");
            }
        }
        assert!(
            bystander.line("version").unwrap().starts_with("OK "),
            "{case}"
        );
    }
    // A packet with too few arguments fails alone, with an error text of our own: deployed servers would wait for more
    // for ever.
    let (said, closed) = answer(address, &packet(b"\0REQ", 18, 8, b"funconly"));
    assert!(said.starts_with(b"\0RES\0\0\0\x13") && !closed, "{said:?}");
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let address = daemon.address("gearman");
    let mut flood = TcpStream::connect(address).unwrap();
    flood
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let echo = packet(b"\0REQ", 16, 65536, &[7; 65536]);
    let mut taken = 0;
    // The daemon stops reading, the kernel's buffers fill up, the write times out.
    while flood.write_all(&echo).is_ok() {
        taken += echo.len();
        assert!(taken < 256 << 20, "the daemon takes and takes");
    }
    assert!(
        Peer::connect(address)
            .unwrap()
            .line("version")
            .unwrap()
            .starts_with("OK ")
    );
    assert!(
        resident_bytes(daemon.pid()) < 256 << 20,
        "{} bytes resident",
        resident_bytes(daemon.pid())
    );
}

fn resident_bytes(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[server]\nconnections_max = 3")
        .start();
    let address = daemon.address("gearman");
    let mut inside: Vec<Peer> = (0..3).map(|_| Peer::connect(address).unwrap()).collect();
    for peer in &mut inside {
        assert!(peer.line("version").unwrap().starts_with("OK "));
    }
    let submit = || Peer::connect(address).unwrap().submit("f", "", "x");
    assert!(submit().is_err(), "the fourth is closed");
    assert!(inside[0].line("version").unwrap().starts_with("OK "));
    // A freed place can be taken again once the daemon has noticed.
    drop(inside.pop());
    while submit().is_err() {}
}

#[test]
fn a_very_short_timeout_is_logged_with_its_worker_and_function() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.send(&Request::SetClientId {
        id: "perl 7".into(),
    })
    .unwrap();
    for (function, timeout_ms) in [("long", 1_000), ("none", 0), ("resize", 60), ("resize", 60)] {
        peer.send(&Request::CanDoTimeout {
            function: function.into(),
            timeout_ms,
        })
        .unwrap();
    }
    assert!(
        peer.line("version").unwrap().starts_with("OK "),
        "what was sent before has been dealt with"
    );
    common::wait_for_log(&daemon, "CAN_DO_TIMEOUT");
    let log = daemon.log_text();
    let warnings: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("CAN_DO_TIMEOUT"))
        .collect();
    let [warning] = warnings[..] else {
        panic!("one for each function: {log}")
    };
    for part in [
        "\"WARN\"",
        "perl 7",
        "127.0.0.1",
        "\"resize\"",
        "gearman.timeout_unit",
    ] {
        assert!(warning.contains(part), "{part} in {warning}");
    }
}

#[test]
fn half_closed_clients_get_their_answers() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path()).start();
    let mut stream = TcpStream::connect(daemon.address("gearman")).unwrap();
    let mut bytes = bytes::BytesMut::new();
    submission("late", "", "x", true).encode(&mut bytes);
    stream.write_all(&bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert!(
        said.starts_with(b"\0RES\0\0\0\x08"),
        "JOB_CREATED: {said:?}"
    );
}
