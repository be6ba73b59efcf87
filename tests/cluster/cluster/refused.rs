//! Daemons that do not belong to a cluster, and mistakes that a check finds before the first change of the leader.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use windlass_testkit::daemon::free_port;

use super::daemons::Daemons;
use crate::common::authority::Authority;
use crate::common::postgres::Postgres;
use crate::common::{Peer, wait_for_log};

/// Runs a command of the program for a daemon of a cluster, with these keys.
fn windlass(command: &str, dir: &Path, keys: &str) -> Output {
    let file = dir.join("other.toml");
    let off = ["faktory", "spiderq", "http", "eventmq"].map(|it| format!("[{it}]\nlisten = []\n")).concat();
    let off = off + "admin_listen = []\npublish_listen = []\nsubscribe_listen = []\n";
    let off = off + "[gearman]\nlisten = [\"127.0.0.1:0\"]\n";
    fs::write(&file, format!("data_dir = {:?}\n{keys}\n{off}", dir.join("other"))).unwrap();
    Command::new(env!("CARGO_BIN_EXE_windlass")).args([command, "-c"]).arg(&file).env_clear().output().unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat()
}

/// The sections of a daemon.
fn sections(store: &str, cluster: &str) -> String {
    format!("{store}\n[cluster]\n{cluster}\n")
}

fn on_loopback(name: &str) -> String {
    format!("listen = [\"127.0.0.1:{}\"]\nname = {name:?}", free_port())
}

/// Also one whose lease is of a version without names: its first leader names it.
#[test]
fn a_store_belongs_to_its_cluster() {
    let (postgres, dir) = (Postgres::start(), tempfile::tempdir().unwrap());
    let mut daemons = Daemons::on(postgres.section());
    daemons.add("name = \"alpha\"");
    Peer::connect(daemons[0].address("gearman")).unwrap().submit("job", "", "alpha's").unwrap();
    daemons[0].kill();
    postgres.ask("ALTER TABLE windlass.lease DROP COLUMN cluster, DROP COLUMN link_version, DROP COLUMN hand_over");
    daemons[0].restart();
    wait_for_log(&daemons[0], "this daemon leads");
    let beta = || sections(&postgres.section(), &on_loopback("beta"));
    let is_refused = |when: &str| {
        for command in ["serve", "check"] {
            let output = windlass(command, dir.path(), &beta());
            let said = said(&output);
            assert_eq!(output.status.code(), Some(4), "{when}, {command}: {said}");
            assert!(said.contains("belongs to the cluster \"alpha\"") && said.contains("\"beta\""), "{when}: {said}");
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
    let speaks = postgres.number("SELECT link_version % 256 FROM windlass.lease");
    for (leader, is_refused) in [(speaks + 1, false), (speaks + 2, true)] {
        postgres.ask(&format!("UPDATE windlass.lease SET link_version = epoch * 256 + {leader}"));
        let output = windlass("check", dir.path(), &sections(&postgres.section(), &on_loopback("alpha")));
        let said = said(&output);
        assert_eq!(output.status.code(), Some(if is_refused { 4 } else { 0 }), "{said}");
        assert_eq!(said.contains(&format!("leads with version {leader} of the link")), is_refused, "{said}");
    }
}

#[test]
fn a_check_finds_what_would_fail_when_the_daemon_leads() {
    let (postgres, dir, authority) = (Postgres::start(), tempfile::tempdir().unwrap(), Authority::new());
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let tls = |host: &str| {
        let shown = authority.sign(host);
        let (certificate, key) = (write("daemon.crt", &shown.certificate), write("daemon.key", &shown.key));
        let ca = write("ca.crt", &authority.certificate);
        format!("[cluster.tls]\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {ca:?}")
    };
    let all = "0.0.0.0:7425";
    let table = [
        ("127.0.0.1:7425", "", "127.0.0.1", 0, "listen   cluster 127.0.0.1:7425 (TLS)\n"),
        (all, "queue1.internal:7425", "queue1.internal", 0, "listen   cluster 0.0.0.0:7425 (TLS)\n"),
        (all, "", "127.0.0.1", 2, "cluster.address: 0.0.0.0:7425 does not lead the other daemons"),
        ("127.0.0.1:7425", "", "127.0.0.2", 2, "at this daemon's address, 127.0.0.1:7425"),
        ("127.0.0.1:7425", "q:1", "127.0.0.1", 2, "at this daemon's address, q:1"),
    ];
    for (listen, address, host, code, expected) in table {
        let cluster = format!("listen = [{listen:?}]\naddress = {address:?}\n{}", tls(host));
        let output = windlass("check", dir.path(), &sections(&postgres.section(), &cluster));
        let said = said(&output);
        assert_eq!((output.status.code(), said.contains(expected)), (Some(code), true), "{cluster}: {said}");
    }
    let store = format!(
        "{}sslmode = \"verify-full\"\nca_file = {:?}",
        postgres.section(),
        write("ca.crt", &authority.certificate)
    );
    let output = windlass("check", dir.path(), &sections(&store, &on_loopback("windlass")));
    assert!(said(&output).contains("postgres.sslmode"), "{}", said(&output));
    postgres.ask("CREATE USER poor");
    postgres.ask("CREATE SCHEMA rich CREATE TABLE rich.lease (id int)");
    postgres.ask("GRANT USAGE, CREATE ON SCHEMA rich TO poor");
    postgres.ask("CREATE SCHEMA closed");
    let poor = postgres.section().replace("windlass@", "poor@");
    let table = [
        ("windlass", "may not make the schema windlass: GRANT CREATE ON DATABASE postgres TO poor"),
        ("closed", "may not make tables: GRANT USAGE, CREATE ON SCHEMA closed TO poor"),
        ("rich", "do not belong to the user poor"),
    ];
    for (schema, expected) in table {
        let store = format!("{poor}schema = {schema:?}");
        for command in ["check", "serve"] {
            let output = windlass(command, dir.path(), &sections(&store, &on_loopback("windlass")));
            let said = said(&output);
            assert_eq!((output.status.code(), said.contains(expected)), (Some(4), true), "{command} {schema}: {said}");
        }
    }
}
