//! The security mechanisms of stock ZeroMQ against the daemon: pyzmq, which is libzmq. `tests/install-clients` installs
//! it.
//!
//! A missing client is a failure, never a skip.

use std::fs;
use std::path::Path;
use std::process::Command;

use windlass_testkit::daemon::Daemon;

use crate::client::{python, run};
use crate::common::http::Http;
use crate::common::namespaces::{NAMES, SECTIONS, at_once};
use crate::common::{daemon, wait_for_log};

/// A pair of keys: public and secret.
struct Pair([String; 2]);

impl Pair {
    fn new() -> Self {
        let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .arg("curve-keypair")
            .env_clear()
            .output()
            .unwrap();
        let [secret, said] = [output.stdout, output.stderr]
            .map(|text| String::from_utf8(text).unwrap().trim().to_owned());
        let public = said.strip_prefix("public key: ").unwrap().to_owned();
        assert_eq!((secret.len(), public.len()), (40, 40));
        Self([public, secret])
    }

    fn public(&self) -> String {
        self.0[0].clone()
    }

    /// What makes a client use it.
    fn words(&self) -> [String; 2] {
        let [public, secret] = &self.0;
        [format!("public={public}"), format!("secret={secret}")]
    }
}

/// A daemon whose spiderq and EventMQ have these keys.
fn served(dir: &Path, keys: &str) -> Daemon {
    let lists = [
        "listen",
        "admin_listen",
        "publish_listen",
        "subscribe_listen",
    ];
    let lists: String = lists
        .iter()
        .map(|list| format!("{list} = [\"127.0.0.1:0\"]\n"))
        .collect();
    let spiderq = format!("[spiderq]\nlisten = [\"127.0.0.1:0\"]\n{keys}");
    daemon(dir)
        .set(SECTIONS)
        .set(&format!("{spiderq}[eventmq]\n{lists}{keys}"))
        .start()
}

/// Keys for a listener with this pair, and these clients.
fn curve(dir: &Path, server: &Pair, clients: &[String]) -> String {
    let file = dir.join("secret.key");
    fs::write(&file, format!("{}\n", server.0[1])).unwrap();
    format!("curve_secret_key_file = {file:?}\ncurve_clients = {clients:?}\n")
}

#[track_caller]
fn play(daemon: &Daemon, scene: &str, words: &[String]) {
    let mut client = python("interop/curve_peer.py");
    client.arg(scene).args(words);
    for (key, name) in [
        ("spiderq", "spiderq"),
        ("eventmq", "eventmq"),
        ("subscribe", "eventmq-subscribe"),
    ] {
        client.arg(format!("{key}=tcp://{}", daemon.address(name)));
    }
    let (well, said) = run(&mut client);
    assert!(well, "{scene}: {said}\n{}", daemon.log_text());
}

#[test]
fn stock_clients_are_served_with_curve() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Pair::new());
    let daemon = served(dir.path(), &curve(dir.path(), &server, &[]));
    for scene in ["spiderq", "eventmq", "publications"] {
        play(&daemon, scene, &[format!("server={}", server.public())]);
    }
    let log = daemon.log_text();
    assert!(!log.contains(&server.0[1]), "{log}");
}

#[test]
fn only_known_clients_connect() {
    let (dir, [server, known, stranger]) =
        (tempfile::tempdir().unwrap(), [(); 3].map(|()| Pair::new()));
    let daemon = served(dir.path(), &curve(dir.path(), &server, &[known.public()]));
    let server_is = format!("server={}", server.public());
    let with = |pair: &Pair| [&[server_is.clone()][..], &pair.words()].concat();
    play(&daemon, "spiderq", &with(&known));
    play(&daemon, "eventmq", &with(&known));
    play(&daemon, "refused", &with(&stranger));
    play(&daemon, "refused", &[]);
    play(
        &daemon,
        "refused",
        &[format!("server={}", stranger.public())],
    );
    play(
        &daemon,
        "refused",
        &["user=u".to_owned(), "password=p".to_owned()],
    );
    wait_for_log(&daemon, "wrong password");
    wait_for_log(&daemon, "HELLO cannot be decrypted");
    // A renewed list applies to new connections.
    let file = dir.path().join("windlass.toml");
    let text = fs::read_to_string(&file)
        .unwrap()
        .replace(&known.public(), &stranger.public());
    fs::write(&file, text).unwrap();
    daemon.signal("HUP");
    wait_for_log(&daemon, "eventmq.curve_clients");
    play(&daemon, "eventmq", &with(&stranger));
    play(&daemon, "refused", &with(&known));
}

#[test]
fn eventmq_takes_a_user_and_a_password() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = served(dir.path(), "user = \"u\"\npassword = \"secret\"\n");
    let login = |password: &str| ["user=u".to_owned(), format!("password={password}")];
    play(&daemon, "eventmq", &login("secret"));
    play(&daemon, "publications", &login("secret"));
    play(&daemon, "refused", &login("wrong"));
    play(&daemon, "refused", &[]);
}

/// Fleets with the same names at one address, told apart by these logins; the first one is in the namespace without a name.
#[track_caller]
fn are_apart(daemon: &Daemon, logins: &[Vec<String>; 3]) {
    for scene in ["spiderq", "eventmq", "publications"] {
        at_once(logins, |words| play(daemon, scene, words));
    }
    let http = Http(daemon.address("http"));
    for namespace in NAMES {
        let queues = http.get(&format!("/api/v1/queues?namespace={namespace}"));
        let queues = queues.json()["queues"].clone();
        let mut found: Vec<_> = queues.as_array().unwrap().iter().collect();
        found.retain(|queue| ["q", "spiderq"].contains(&queue["name"].as_str().unwrap()));
        assert_eq!(found.len(), 2, "{namespace}: {queues}");
    }
}

#[test]
fn a_key_tells_the_namespace() {
    let (dir, [server, none, shop, staging, stranger]) =
        (tempfile::tempdir().unwrap(), [(); 5].map(|()| Pair::new()));
    let keys = curve(dir.path(), &server, &[none.public()]);
    let of =
        |name: &str, pair: &Pair| format!("{name} = {{ curve_clients = [{:?}] }}", pair.public());
    let named = [of("shop", &shop), of("staging", &staging)].join(", ");
    let daemon = served(dir.path(), &format!("{keys}namespaces = {{ {named} }}\n"));
    let with = |pair: &Pair| {
        let server = [format!("server={}", server.public())];
        [&server[..], &pair.words()].concat()
    };
    are_apart(&daemon, &[&none, &shop, &staging].map(with));
    play(&daemon, "refused", &with(&stranger));
}

#[test]
fn a_user_tells_the_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let named = "shop = { user = \"of shop\", password = \"p\" }, staging = { user = \"of staging\", password = \"q\" }";
    let keys = format!("user = \"u\"\npassword = \"p\"\nnamespaces = {{ {named} }}\n");
    let daemon = served(dir.path(), &keys);
    let login =
        |[user, password]: [&str; 2]| vec![format!("user={user}"), format!("password={password}")];
    are_apart(
        &daemon,
        &[["u", "p"], ["of shop", "p"], ["of staging", "q"]].map(login),
    );
    play(&daemon, "refused", &login(["of staging", "p"]));
    play(&daemon, "refused", &[]);
}
