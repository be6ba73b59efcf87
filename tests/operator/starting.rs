//! The start: addresses before the journal, `--only`, and `check` before and after.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use windlass_gearman::wire::{Report, Request};

use crate::common;
use crate::common::{Peer, daemon};

fn windlass(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .args(words)
        .arg("--data-dir")
        .arg(dir.join("data"))
        .env_clear()
        .output()
        .unwrap()
}

#[track_caller]
fn says(output: &Output, code: i32, expected: &str) {
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(expected), "{expected}: {said}");
}

#[test]
fn all_busy_addresses_are_named_before_anything_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let busy = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [one, two] = busy
        .each_ref()
        .map(|listener| listener.local_addr().unwrap());
    let settings = [
        "--set",
        &format!("gearman.listen={one},127.0.0.1:0"),
        "--set",
        &format!("eventmq.admin_listen={two}"),
        "--set",
        "http.listen=unix:/no/such/folder/http",
        "--only",
        "gearman",
        "--only=eventmq",
        "--set",
        "eventmq.listen=[]",
        "--set",
        "eventmq.publish_listen=[]",
        "--set",
        "eventmq.subscribe_listen=[]",
    ];
    let output = windlass(dir.path(), &[&["serve"], &settings[..]].concat());
    let expected = format!(
        "windlass: cannot listen on {one}: the address is in use (gearman.listen); on {two}: the address is in use \
         (eventmq.admin_listen); on unix:/no/such/folder/http: "
    );
    says(&output, 3, &expected);
    assert!(
        !dir.path().join("data").exists(),
        "the addresses come first"
    );
}

#[test]
fn only_the_named_protocols_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let listed = |only: &[&str]| {
        let output = windlass(dir.path(), &[&["check"], only].concat());
        let said = String::from_utf8(output.stdout).unwrap();
        said.lines()
            .filter_map(|line| {
                line.strip_prefix("listen   ")?
                    .split(' ')
                    .next()
                    .map(str::to_owned)
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(&["--only", "gearman"]), ["gearman", "http"]);
    let file = dir.path().join("windlass.toml");
    fs::write(&file, "eventmq.enabled = false\nfaktory.enabled = false\n").unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(listed(&["-c", file]), ["gearman", "spiderq", "http"]);
    assert_eq!(
        listed(&["-c", file, "--set", "gearman.enabled=false"]),
        ["spiderq", "http"]
    );
    assert_eq!(
        listed(&["-c", file, "--only", "faktory"]),
        ["faktory", "http"]
    );
    assert_eq!(
        listed(&["--only", "spiderq,faktory"]),
        ["faktory", "spiderq", "http"]
    );
    says(
        &windlass(dir.path(), &["check", "--only", "kafka"]),
        2,
        "invalid value 'kafka' for '--only <PROTOCOL>'",
    );
}

#[test]
fn a_check_resolves_names_and_looks_at_the_data_directory() {
    let dir = tempfile::tempdir().unwrap();
    says(&windlass(dir.path(), &["check"]), 0, "data (sync; new)\n");
    let names = [
        "--set",
        "gearman.listen=no-such-host.invalid:1",
        "--set",
        "eventmq.listen=nor-this.invalid:2",
    ];
    let output = windlass(dir.path(), &[&["check"], &names[..]].concat());
    says(
        &output,
        3,
        "windlass: gearman.listen: no-such-host.invalid:1: ",
    );
    says(&output, 3, "; eventmq.listen: nor-this.invalid:2: ");
    let mut daemon = daemon(dir.path()).start();
    says(
        &windlass(dir.path(), &["check"]),
        0,
        "data (sync; a daemon runs on it)\n",
    );
    daemon.kill();
    says(&windlass(dir.path(), &["check"]), 0, "data (sync; kept)\n");
    fs::remove_dir_all(dir.path().join("data")).unwrap();
    fs::write(dir.path().join("data"), "").unwrap();
    says(&windlass(dir.path(), &["check"]), 4, "is not a directory");
}

#[test]
fn the_log_distinguishes_a_new_directory_from_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    assert!(
        daemon.log_text().contains("\"state\":\"new\""),
        "{}",
        daemon.log_text()
    );
    daemon.signal("TERM");
    daemon.wait();
    daemon.restart();
    assert!(
        daemon.log_text().contains("\"state\":\"stopped cleanly\""),
        "{}",
        daemon.log_text()
    );
    daemon.kill();
    daemon.restart();
    assert!(
        daemon
            .log_text()
            .contains("\"state\":\"not stopped cleanly\""),
        "{}",
        daemon.log_text()
    );
}

#[test]
fn a_live_check_has_the_exit_codes_of_nagios() {
    let dir = tempfile::tempdir().unwrap();
    let live = |words: &[&str]| windlass(dir.path(), &[&["check", "--live"], words].concat());
    says(&live(&[]), 2, "WINDLASS CRITICAL - no daemon answers at ");
    let daemon = daemon(dir.path()).start();
    says(
        &live(&[]),
        0,
        "WINDLASS OK - ready, 0 jobs ready, 0 leased, 0 dead, the oldest ready for 0s | oldest=0s;;;0 ready=0 ",
    );
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.submit("f", "", "x").unwrap();
    says(
        &live(&["--age-warning", "1h", "--dead-warning", "0"]),
        0,
        "s;3600;;0 ready=1 leased=0 dead=0;0;;0",
    );
    common::wait_until("the job has waited", || {
        live(&["--age-warning", "10ms"]).status.code() == Some(1)
    });
    says(
        &live(&["--age-warning", "10ms"]),
        1,
        "WINDLASS WARNING - ready, 1 job ready, ",
    );
    says(
        &live(&["--age-warning", "1ms", "--age-critical", "10ms"]),
        2,
        "WINDLASS CRITICAL - ready, 1 job ready, ",
    );
    peer.can_do("f").unwrap();
    let job = peer.grab().unwrap().unwrap();
    let output = live(&["--url", &format!("http://{}", daemon.address("http"))]);
    says(&output, 0, "0 jobs ready, 1 leased");
    daemon.signal("USR2");
    common::wait_for_log(&daemon, "draining");
    says(&live(&[]), 1, "WINDLASS WARNING - draining, ");
    peer.send(&Request::Work {
        handle: job.handle,
        report: Report::Fail,
    })
    .unwrap();
    says(
        &windlass(dir.path(), &["check", "--live", "--set", "no=1"]),
        3,
        "WINDLASS UNKNOWN - ",
    );
}

#[test]
fn a_default_address_in_use_keeps_no_other_from_being_served() {
    let dir = tempfile::tempdir().unwrap();
    // Another process may have one of them for a moment, as this test does, or for good, which is as good.
    let until = Instant::now() + Duration::from_secs(10);
    let bind = |address| loop {
        match TcpListener::bind(address) {
            Ok(bound) => break Some(bound),
            Err(_) if Instant::now() > until => break None,
            Err(_) => std::thread::yield_now(),
        }
    };
    let busy = ["127.0.0.1:47298", "127.0.0.1:7420"].map(|address| (address, bind(address)));
    let others = "[eventmq]\nlisten = []\nadmin_listen = []\nsubscribe_listen = []\n[http]\n";
    let daemon = daemon(dir.path()).set(others).start();
    let log = daemon.log_text();
    let keys = [
        "default address in use",
        "eventmq.publish_listen",
        "http.listen",
    ];
    assert!(keys.iter().all(|key| log.contains(key)), "{log}");
    Peer::connect(daemon.address("gearman"))
        .unwrap()
        .submit("f", "", "x")
        .unwrap();
    // Another process may release its address at any time.
    for (address, held) in busy
        .into_iter()
        .filter_map(|(address, held)| Some((address, held?)))
    {
        let listens = format!("\"address\":\"{address}\"");
        assert!(
            !daemon.log_text().contains(&listens),
            "{}",
            daemon.log_text()
        );
        drop(held);
        common::wait_for_log(&daemon, &listens);
        std::net::TcpStream::connect(address).unwrap();
    }
}

#[test]
fn a_start_fails_if_no_protocol_could_be_served() {
    let dir = tempfile::tempdir().unwrap();
    let _busy = TcpListener::bind("127.0.0.1:4730");
    let output = windlass(
        dir.path(),
        &["serve", "--only", "gearman", "--set", "http.listen=[]"],
    );
    says(
        &output,
        3,
        "cannot listen on localhost:4730: the address is in use (gearman.listen)",
    );
    assert!(!dir.path().join("data").exists());
}

#[test]
fn a_check_finds_a_queue_of_the_other_kind() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    Peer::connect(daemon.address("gearman"))
        .unwrap()
        .submit("mail", "", "x")
        .unwrap();
    daemon.signal("TERM");
    daemon.wait();
    let file = dir.path().join("more.toml");
    fs::write(
        &file,
        "[[spiderq.more]]\nlisten = [\"127.0.0.1:0\"]\nqueue = \"mail\"\n",
    )
    .unwrap();
    for command in ["check", "serve"] {
        let output = windlass(dir.path(), &[command, "-c", file.to_str().unwrap()]);
        says(
            &output,
            2,
            "windlass: spiderq.more.1.queue: mail: queue of the other kind: name another queue, or start without",
        );
    }
}

#[test]
fn localhost_is_this_machine_with_ipv6_and_without() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(dir.path())
        .set("[gearman]\nlisten = [\"localhost:0\"]\n")
        .start();
    let addresses = daemon.addresses("gearman");
    let has_ipv6 = TcpListener::bind("[::1]:0").is_ok();
    assert_eq!(addresses.len(), 1 + usize::from(has_ipv6), "{addresses:?}");
    for address in addresses {
        assert!(address.ip().is_loopback(), "{address}");
        Peer::connect(address)
            .unwrap()
            .submit("f", "", "x")
            .unwrap();
    }
}

#[test]
fn a_data_directory_need_not_be_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join(OsStr::from_bytes(b"d\xffta"));
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .args(words)
            .arg("--data-dir")
            .arg(&data)
            .env_clear()
            .output()
            .unwrap()
    };
    says(&run(&["check"]), 0, "d\u{fffd}ta (sync; new)");
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args([
        "serve",
        "--only",
        "gearman",
        "--set",
        "gearman.listen=127.0.0.1:0",
        "--set",
        "http.listen=[]",
    ]);
    let mut serving = command
        .arg("--data-dir")
        .arg(&data)
        .env_clear()
        .spawn()
        .unwrap();
    common::wait_until("a command reaches the daemon", || {
        run(&["status"]).status.success()
    });
    serving.kill().unwrap();
    serving.wait().unwrap();
    let verified = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .arg("verify")
        .arg(&data)
        .env_clear()
        .output()
        .unwrap();
    says(&verified, 0, "");
}
