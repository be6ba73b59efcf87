//! Clients that may connect, their rights, and secrets that stay secret.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use crate::common::eventmq;
use crate::common::faktory::Fwp;
use crate::common::zmtp::{Dealer, command, greeting, plain_login};
use crate::common::{Peer, daemon, socket, wait_for_log, wait_until};

// ---- rights ---------------------------------------------------------------------------------------------------------

const NOT_PERMITTED: &str = "-ERR not permitted at this address";

#[test]
fn each_listener_permits_what_it_is_for() {
    let dir = tempfile::tempdir().unwrap();
    let listen = |rights: &str| format!("{{ address = \"127.0.0.1:0\", rights = [{rights}] }}");
    let three = ["\"submit\"", "\"work\"", "\"administer\""]
        .map(listen)
        .join(", ");
    let toml = format!(
        "[gearman]\nlisten = [{three}]\nshutdown = true\n[faktory]\nlisten = [{three}, \"127.0.0.1:0\"]\n"
    );
    let daemon = daemon(dir.path()).set(&toml).start();

    let [submit, work, administer] = daemon.addresses("gearman")[..] else {
        panic!("{:?}", daemon.addresses("gearman"))
    };
    let [mut client, mut worker, mut admin] =
        [submit, work, administer].map(|at| Peer::connect(at).unwrap());
    let handle = client.submit("f", "", "x").unwrap();
    assert!(client.grab().is_err());
    assert_eq!(
        client.line("shutdown").unwrap(),
        "ERR UNKNOWN_COMMAND Unknown+server+commandshutdown"
    );
    let refused = worker.submit("f", "", "x").unwrap_err().to_string();
    assert_eq!(refused, "NOT_PERMITTED: Not permitted at this address");
    assert_eq!(
        worker.line("status").unwrap(),
        "ERR NOT_PERMITTED Not+permitted+at+this+address"
    );
    assert_eq!(admin.listing("status").unwrap(), ["f\t1\t0\t0"]);
    worker.can_do("f").unwrap();
    assert_eq!(worker.grab().unwrap().unwrap().handle, handle);
    worker.complete(&handle).unwrap();

    let faktory = daemon.addresses("faktory");
    let mut peers = [0, 1, 2, 3].map(|at| Fwp::connect(faktory[at]));
    let [client, worker, admin, all] = [0, 1, 2, 3];
    let push = r#"PUSH {"jid":"securely","jobtype":"T","args":[]}"#;
    for (peer, line, expected) in [
        (client, push, "+OK"),
        (client, "FETCH default", NOT_PERMITTED),
        (client, "FLUSH", NOT_PERMITTED),
        (worker, push, NOT_PERMITTED),
        (admin, "FETCH default", NOT_PERMITTED),
        (admin, "QUEUE PAUSE default", "+OK"),
        (worker, "QUEUE RESUME default", NOT_PERMITTED),
        (all, "QUEUE RESUME *", "+OK"),
    ] {
        assert_eq!(peers[peer].ask(line), expected, "{line}");
    }
    assert!(peers[worker].ask("FETCH default").contains("securely"));

    let mut check = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let checked = check
        .args(["check", "-c"])
        .arg(dir.path().join("windlass.toml"))
        .env_clear()
        .output()
        .unwrap();
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(
        said.contains("listen   gearman 127.0.0.1:0 (only work)\n"),
        "{said}"
    );
    assert!(said.contains("listen   faktory 127.0.0.1:0\n"), "{said}");
}

#[test]
fn publications_are_for_those_who_may_submit() {
    let dir = tempfile::tempdir().unwrap();
    let keys = "listen = [\"127.0.0.1:0\"]\nadmin_listen = []\n\
                publish_listen = [{ address = \"127.0.0.1:0\", rights = [\"administer\"] }]\nsubscribe_listen = [\"127.0.0.1:0\"]\n";
    let daemon = daemon(dir.path())
        .set(&format!("[eventmq]\n{keys}"))
        .start();
    let mut subscriber = Dealer::connect_as(daemon.address("eventmq-subscribe"), "SUB", b"");
    subscriber.say(&command("SUBSCRIBE", b"news")).unwrap();
    let mut admin = eventmq::Peer::connect(daemon.address("eventmq-publish"), "a");
    let mut client = eventmq::Peer::connect(daemon.address("eventmq"), "c");
    admin
        .say(&["PUBLISH", "p", "news", "not permitted"])
        .unwrap();
    // A report shows that everything before it was read.
    admin.say(&["ROUTER_SHOW_WORKERS", "s"]).unwrap();
    admin.hear().unwrap();
    client.say(&["PUBLISH", "p", "news", "permitted"]).unwrap();
    assert_eq!(
        subscriber.hear_message().unwrap(),
        [b"news".to_vec(), b"permitted".to_vec()]
    );
}

// ---- rates ----------------------------------------------------------------------------------------------------------

/// Whether a connection is closed without a word.
fn is_shut_out(address: SocketAddr) -> bool {
    is_unanswered(address, b"version\n")
}

fn is_unanswered(address: SocketAddr, request: &[u8]) -> bool {
    let mut said = Vec::new();
    let mut stream = socket(address).unwrap();
    let _ = stream.write_all(request);
    stream.shutdown(std::net::Shutdown::Write).ok();
    // Unread bytes make it a reset.
    let _ = stream.read_to_end(&mut said);
    said.is_empty()
}

#[test]
fn an_address_that_guesses_is_shut_out_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let keys = "[server]\nfailed_logins_per_address_per_minute = 4\n\
                [faktory]\nlisten = [\"127.0.0.1:0\"]\npassword = \"right\"\n\
                [spiderq]\nlisten = [\"127.0.0.1:0\"]\nuser = \"u\"\npassword = \"right\"\n";
    let daemon = daemon(dir.path()).set(keys).start();
    for _ in 0..3 {
        assert_eq!(
            Fwp::hello(daemon.address("faktory"), "wrong").1,
            "-ERR Invalid password"
        );
    }
    assert_eq!(Fwp::hello(daemon.address("faktory"), "right").1, "+OK");
    let mut dealer = Dealer::reach(daemon.address("spiderq")).unwrap();
    dealer.say(&greeting("PLAIN")).unwrap();
    dealer
        .say(&command("HELLO", &[&b"\x01u\x05wrong"[..]].concat()))
        .unwrap();
    assert!(dealer.is_hung_up_on());
    wait_until("every protocol shuts the address out", || {
        is_shut_out(daemon.address("gearman"))
    });
    assert!(is_shut_out(daemon.address("faktory")));
    wait_for_log(&daemon, "too many failed logins: closed the new connection");
    // The configuration may relent.
    let file = dir.path().join("windlass.toml");
    let text = fs::read_to_string(&file)
        .unwrap()
        .replace("per_minute = 4", "per_minute = 0");
    fs::write(&file, text).unwrap();
    daemon.signal("HUP");
    wait_for_log(&daemon, "server.failed_logins_per_address_per_minute");
    assert_eq!(Fwp::hello(daemon.address("faktory"), "right").1, "+OK");
}

#[test]
fn an_address_connects_only_so_often() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[server]\nconnections_per_address_per_minute = 3\n")
        .start();
    let at = daemon.address("gearman");
    let shut_out = (0..5).filter(|_| is_shut_out(at)).count();
    assert!(
        (1..=2).contains(&shut_out),
        "{shut_out}: a slow machine may have forgiven one"
    );
    wait_for_log(&daemon, "connections_per_address_per_minute");
    // HTTP counts, too.
    let livez = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!((0..5).any(|_| is_unanswered(daemon.address("http"), livez)));
}

#[test]
fn an_address_has_only_so_many_connections() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[server]\nconnections_per_address_max = 3\n")
        .start();
    let http = daemon.address("http");
    let half = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ";
    let open = |address, bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let mut held: Vec<_> = (0..2).map(|_| open(http, half)).collect();
    held.push(open(daemon.address("gearman"), b"status\n"));
    let livez = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    wait_until("HTTP counts", || is_unanswered(http, livez));
    wait_for_log(&daemon, "connections_per_address_max");
    held.pop();
    wait_until("one has left", || !is_unanswered(http, livez));
}

// ---- secrets --------------------------------------------------------------------------------------------------------

/// Secrets of every kind, each of which must show up nowhere.
const SECRETS: [&str; 5] = [
    "hunter2-faktory",
    "hunter2-spiderq",
    "hunter2-eventmq",
    "hunter2-later",
    "hunter2-wrong",
];

fn credentials(dir: &Path) -> String {
    fs::create_dir(dir.join("credentials")).unwrap();
    fs::write(dir.join("credentials/faktory"), format!("{}\n", SECRETS[0])).unwrap();
    fs::write(dir.join("eventmq"), SECRETS[2]).unwrap();
    format!(
        "[log]\nlevel = \"trace\"\n\
         [faktory]\nlisten = [\"127.0.0.1:0\"]\npassword_file = \"$CREDENTIALS_DIRECTORY/faktory\"\n\
         [spiderq]\nlisten = [\"127.0.0.1:0\"]\nuser = \"u\"\npassword = {:?}\n\
         [eventmq]\nlisten = [\"127.0.0.1:0\"]\nadmin_listen = []\npublish_listen = []\nsubscribe_listen = []\nuser = \"u\"\n\
         password_file = {:?}\n",
        SECRETS[1],
        dir.join("eventmq"),
    )
}

#[test]
fn secrets_are_read_from_credentials_and_again_and_never_logged() {
    let dir = tempfile::tempdir().unwrap();
    let plan = daemon(dir.path()).set(&credentials(dir.path()));
    let credentials = dir.path().join("credentials");
    let daemon = plan
        .variable("CREDENTIALS_DIRECTORY", credentials.to_str().unwrap())
        .start();
    let [faktory, spiderq, eventmq] =
        ["faktory", "spiderq", "eventmq"].map(|name| daemon.address(name));
    assert_eq!(Fwp::hello(faktory, SECRETS[0]).1, "+OK");
    assert!(plain_login(spiderq, SECRETS[1]) && plain_login(eventmq, SECRETS[2]));
    assert_eq!(Fwp::hello(faktory, SECRETS[4]).1, "-ERR Invalid password");
    assert!(!plain_login(eventmq, SECRETS[4]));

    fs::write(credentials.join("faktory"), SECRETS[3]).unwrap();
    fs::write(dir.path().join("eventmq"), SECRETS[3]).unwrap();
    daemon.signal("HUP");
    for key in ["faktory.password_file", "eventmq.password_file"] {
        wait_until(key, || {
            daemon
                .log_text()
                .lines()
                .any(|line| line.contains(key) && line.contains("\"applied\""))
        });
    }
    assert_eq!(Fwp::hello(faktory, SECRETS[3]).1, "+OK");
    assert_eq!(Fwp::hello(faktory, SECRETS[0]).1, "-ERR Invalid password");
    assert!(plain_login(eventmq, SECRETS[3]) && !plain_login(eventmq, SECRETS[2]));

    // A mistake beside a secret, and the report of everything.
    let file = dir.path().join("windlass.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace(
            &format!("password = {:?}", SECRETS[1]),
            &format!("password = {}", SECRETS[1]),
        ),
    )
    .unwrap();
    daemon.signal("HUP");
    wait_for_log(&daemon, "keeping the current configuration");
    daemon.signal("TTIN");
    wait_for_log(&daemon, "the report ends");
    let log = daemon.log_text();
    for secret in SECRETS {
        assert!(!log.contains(secret), "{secret}");
    }
    assert!(log.contains("wrong password"));
}

#[test]
fn credentials_that_are_not_there_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("windlass.toml");
    fs::write(
        &file,
        "[faktory]\npassword_file = \"$CREDENTIALS_DIRECTORY/faktory\"\n",
    )
    .unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let output = check
        .args(["check", "-c"])
        .arg(&file)
        .env_clear()
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains(
            ":2:17: $CREDENTIALS_DIRECTORY is not set: the service manager passes no credentials"
        ),
        "{said}"
    );
}
