//! Daemons that do not belong to a cluster, and mistakes that a check finds before the first change of the leader.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

use rcgen::ExtendedKeyUsagePurpose;
use serde_json::Value;
use windlass_testkit::daemon::free_port;

use super::daemons::Daemons;
use crate::common::authority::Authority;
use crate::common::http::Http;
use crate::common::postgres::Postgres;
use crate::common::{Peer, wait_for_log, wait_until};

/// Runs a command of the program for a daemon of a cluster, with these keys.
fn windlass(command: &str, dir: &Path, keys: &str) -> Output {
    let file = dir.join("other.toml");
    let off = ["faktory", "spiderq", "http", "eventmq"]
        .map(|it| format!("[{it}]\nlisten = []\n"))
        .concat();
    let off = off + "admin_listen = []\npublish_listen = []\nsubscribe_listen = []\n";
    let off = off + "[gearman]\nlisten = [\"127.0.0.1:0\"]\n";
    fs::write(
        &file,
        format!("data_dir = {:?}\n{keys}\n{off}", dir.join("other")),
    )
    .unwrap();
    Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args([command, "-c"])
        .arg(&file)
        .env_clear()
        .output()
        .unwrap()
}

fn said_by(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]]
        .map(String::from_utf8_lossy)
        .concat()
}

/// The sections of a daemon.
fn sections(store: &str, cluster: &str) -> String {
    format!("{store}\n[cluster]\n{cluster}\n")
}

fn on_loopback(name: &str) -> String {
    format!("listen = [\"127.0.0.1:{}\"]\nname = {name:?}", free_port())
}

/// One that has no name gets that of its first leader.
#[test]
fn a_store_belongs_to_its_cluster() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let mut daemons = Daemons::on(postgres.section());
    daemons.add("name = \"alpha\"");
    Peer::connect(daemons[0].address("gearman"))
        .unwrap()
        .submit("job", "", "alpha's")
        .unwrap();
    daemons[0].kill();
    postgres.ask("UPDATE windlass.lease SET cluster = ''");
    daemons[0].restart();
    wait_for_log(&daemons[0], "became leader");
    let beta = || sections(&postgres.section(), &on_loopback("beta"));
    let is_refused = |when: &str| {
        for command in ["serve", "check"] {
            let output = windlass(command, dir.path(), &beta());
            let said = said_by(&output);
            assert_eq!(output.status.code(), Some(4), "{when}, {command}: {said}");
            assert!(
                said.contains("belongs to the cluster \"alpha\"") && said.contains("\"beta\""),
                "{when}: {said}"
            );
            let patient = format!("server.in_use_timeout = \"1h\"\n{}", postgres.section());
            let output = windlass(command, dir.path(), &patient);
            let said = said_by(&output);
            assert_eq!(
                output.status.code(),
                Some(4),
                "{when}, {command}, alone: {said}"
            );
            assert!(
                said.contains("this daemon is part of none"),
                "{when}: {said}"
            );
        }
    };
    is_refused("alpha leads");
    daemons[0].signal("TERM");
    assert!(daemons[0].wait().success());
    is_refused("no daemon leads");
    daemons[0].restart();
    let mut peer = Peer::connect(daemons[0].address("gearman")).unwrap();
    peer.can_do("job").unwrap();
    assert_eq!(peer.grab().unwrap().unwrap().workload, "alpha's");
}

#[test]
fn a_daemon_that_the_others_would_not_understand_is_refused() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let mut daemons = Daemons::on(postgres.section());
    daemons.add("name = \"alpha\"");
    let speaks = postgres.number("SELECT link_version FROM windlass.lease");
    let lease_ms = postgres.number("SELECT lease_ms FROM windlass.lease");
    let check = |lease_ms: u64| {
        let store = format!("{}lease = \"{lease_ms}ms\"\n", postgres.section());
        windlass(
            "check",
            dir.path(),
            &sections(&store, &on_loopback("alpha")),
        )
    };
    for (leader, is_refused) in [(speaks, false), (speaks + 1, true)] {
        postgres.ask(&format!(
            "UPDATE windlass.lease SET link_version = {leader}"
        ));
        let output = check(lease_ms);
        let said = said_by(&output);
        assert_eq!(
            output.status.code(),
            Some(if is_refused { 4 } else { 0 }),
            "{said}"
        );
        assert_eq!(
            said.contains(&format!("leads with version {leader} of the link")),
            is_refused,
            "{said}"
        );
    }
    postgres.ask(&format!(
        "UPDATE windlass.lease SET link_version = {speaks}"
    ));
    let said = said_by(&check(lease_ms + 1));
    assert!(
        said.contains(&format!(
            "postgres.lease is {} ms here, and {lease_ms} ms at",
            lease_ms + 1
        )),
        "{said}"
    );
}

#[test]
fn every_daemon_shows_the_versions_of_all_and_the_leader_whom_it_has_refused() {
    let daemons = Daemons::start(2);
    let shown = |at: usize| {
        Http(daemons[at].address("http"))
            .get("/api/v1/cluster")
            .json()
    };
    let version = env!("CARGO_PKG_VERSION");
    for at in 0..2 {
        wait_until("the edge's version is known", || {
            shown(at)["edges"][0]["version"] == version
        });
        let shown = shown(at);
        assert_eq!(
            (&shown["version"], &shown["edges"][0]["cannot_lead"]),
            (&version.into(), &Value::Null),
            "{shown}"
        );
    }
    assert_eq!(
        (&shown(1)["leader_version"], &shown(1)["cannot_follow"]),
        (&version.into(), &Value::Null)
    );
    assert_eq!(shown(0)["refused"], Value::Array(Vec::new()));
    let link = shown(1)["leader_link"].as_str().unwrap().to_owned();
    TcpStream::connect(link)
        .unwrap()
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .unwrap();
    wait_until("the stranger is shown", || {
        shown(0)["refused"][0]["from"] == "127.0.0.1"
    });
    let data = daemons.all[0].1.path().join("data");
    let status = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["cluster", "status", "--data-dir"])
        .arg(data)
        .env_clear()
        .output()
        .unwrap();
    let status = said_by(&status);
    assert!(
        status.contains(&format!(", version {version}")) && status.contains("127.0.0.1 at "),
        "{status}"
    );
}

/// The first change of the leader would show it.
#[test]
fn a_check_finds_a_certificate_that_other_daemons_refuse() {
    let (dir, authority, stranger) = (
        tempfile::tempdir().unwrap(),
        Authority::new(),
        Authority::new(),
    );
    let used_as = |purposes: &[ExtendedKeyUsagePurpose]| {
        authority.sign_with("127.0.0.1", |params| {
            params.extended_key_usages = purposes.to_vec()
        })
    };
    let (server, client) = (
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    );
    let expired = authority.sign_with("127.0.0.1", |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1)
    });
    let table = [
        (used_as(&[server.clone(), client.clone()]), ""),
        (used_as(&[server]), "leaders would reject it"),
        (used_as(&[client]), "at this daemon's address"),
        (expired, "at this daemon's address"),
        (stranger.sign("127.0.0.1"), "at this daemon's address"),
    ];
    for (at, (shown, expected)) in table.into_iter().enumerate() {
        let write = |name: &str, text: &str| {
            let path = dir.path().join(format!("{at}.{name}"));
            fs::write(&path, text).unwrap();
            path
        };
        let (certificate, key) = (write("crt", &shown.certificate), write("key", &shown.key));
        let ca = write("ca", &authority.certificate);
        let tls = format!(
            "[cluster.tls]\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {ca:?}"
        );
        // No database is there: the certificates come first.
        let store = "postgres.url = \"postgres://127.0.0.1:1/none\"";
        let output = windlass(
            "check",
            dir.path(),
            &sections(store, &format!("listen = [\"127.0.0.1:7425\"]\n{tls}")),
        );
        let said = said_by(&output);
        let is_refused = output.status.code() == Some(2);
        assert_eq!(
            (is_refused, said.contains(expected)),
            (!expected.is_empty(), true),
            "{at}: {said}"
        );
    }
}

#[test]
fn a_check_finds_what_would_fail_when_the_daemon_leads() {
    let (postgres, dir, authority) = (
        Postgres::start(),
        tempfile::tempdir().unwrap(),
        Authority::new(),
    );
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let tls = |host: &str| {
        let shown = authority.sign(host);
        let (certificate, key) = (
            write("daemon.crt", &shown.certificate),
            write("daemon.key", &shown.key),
        );
        let ca = write("ca.crt", &authority.certificate);
        format!("[cluster.tls]\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {ca:?}")
    };
    let all = "0.0.0.0:7425";
    let table = [
        (
            "127.0.0.1:7425",
            "",
            "127.0.0.1",
            0,
            "listen   cluster 127.0.0.1:7425 (TLS)\n",
        ),
        (
            all,
            "queue1.internal:7425",
            "queue1.internal",
            0,
            "listen   cluster 0.0.0.0:7425 (TLS)\n",
        ),
        (
            all,
            "",
            "127.0.0.1",
            2,
            "cluster.address: other daemons cannot connect to 0.0.0.0:7425",
        ),
        (
            "127.0.0.1:7425",
            "",
            "127.0.0.2",
            2,
            "at this daemon's address, 127.0.0.1:7425",
        ),
        (
            "127.0.0.1:7425",
            "q:1",
            "127.0.0.1",
            2,
            "at this daemon's address, q:1",
        ),
    ];
    for (listen, address, host, code, expected) in table {
        let cluster = format!(
            "listen = [{listen:?}]\naddress = {address:?}\n{}",
            tls(host)
        );
        let output = windlass(
            "check",
            dir.path(),
            &sections(&postgres.section(), &cluster),
        );
        let said = said_by(&output);
        assert_eq!(
            (output.status.code(), said.contains(expected)),
            (Some(code), true),
            "{cluster}: {said}"
        );
    }
    let store = format!(
        "{}sslmode = \"verify-full\"\nca_file = {:?}",
        postgres.section(),
        write("ca.crt", &authority.certificate)
    );
    let output = windlass(
        "check",
        dir.path(),
        &sections(&store, &on_loopback("windlass")),
    );
    assert!(
        said_by(&output).contains("postgres.sslmode"),
        "{}",
        said_by(&output)
    );
    postgres.ask("CREATE USER poor");
    postgres.ask("CREATE SCHEMA rich CREATE TABLE rich.lease (id int)");
    postgres.ask("GRANT USAGE, CREATE ON SCHEMA rich TO poor");
    postgres.ask("CREATE SCHEMA closed");
    postgres.ask("CREATE SCHEMA mixed CREATE TABLE mixed.lease (id int) CREATE TABLE mixed.pages (key bytea)");
    postgres.ask("GRANT USAGE, CREATE ON SCHEMA mixed TO poor");
    postgres.ask("ALTER TABLE mixed.lease OWNER TO poor");
    let poor = postgres.section().replace("windlass@", "poor@");
    let table = [
        (
            "windlass",
            "may not make the schema windlass: GRANT CREATE ON DATABASE postgres TO poor",
        ),
        (
            "closed",
            "may not make tables: GRANT USAGE, CREATE ON SCHEMA closed TO poor",
        ),
        ("rich", "do not belong to the user poor"),
        ("mixed", "do not belong to the user poor"),
    ];
    for (schema, expected) in table {
        let store = format!("{poor}schema = {schema:?}");
        for command in ["check", "serve"] {
            let output = windlass(
                command,
                dir.path(),
                &sections(&store, &on_loopback("windlass")),
            );
            let said = said_by(&output);
            assert_eq!(
                (output.status.code(), said.contains(expected)),
                (Some(4), true),
                "{command} {schema}: {said}"
            );
        }
    }
}
