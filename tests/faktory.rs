//! `windlass faktory` as unit files and containers start it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "faktory/peer.rs"]
mod peer;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::wait_until;
use peer::Fwp;

/// The binary under the name it is looked for by: a link named faktory.
fn link(dir: &Path) -> PathBuf {
    let path = dir.join("faktory");
    symlink(env!("CARGO_BIN_EXE_windlass"), &path).unwrap();
    path
}

/// A command line as in a unit file, with `dir` for a home and the data in it.
fn faktory(dir: &Path, program: &Path, line: &str) -> Command {
    let mut command = Command::new(program);
    command.args(line.split_whitespace()).env_clear().env("HOME", dir).env("WINDLASS_DATA_DIR", dir.join("data"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir(dir);
    command
}

fn run(dir: &Path, line: &str) -> Output {
    faktory(dir, Path::new(env!("CARGO_BIN_EXE_windlass")), &format!("faktory {line}")).output().unwrap()
}

fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A daemon whose log is in a file.
struct Running(Child, PathBuf);

impl Running {
    fn start(mut command: Command, log: PathBuf) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap(), log)
    }

    fn address(&self) -> SocketAddr {
        let found = || {
            let text = fs::read_to_string(&self.1).ok().filter(|text| text.contains("ready"))?;
            let (_, rest) = text.split_once("address=")?;
            rest.split_once(' ')?.0.parse().ok()
        };
        wait_until("the address in the log", || found().is_some());
        found().unwrap()
    }

    fn stop(mut self) -> Option<i32> {
        Command::new("kill").arg(self.0.id().to_string()).output().unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const JOB: &str = r#"{"jid":"jid-12345678","jobtype":"T","queue":"q","args":[1]}"#;

#[test]
fn a_unit_file_in_production() {
    let dir = tempfile::tempdir().unwrap();
    let program = link(dir.path());
    write(dir.path(), "etc/conf.d/a.toml", "[faktory]\nbinding = \"127.0.0.1:0\"\n");
    write(dir.path(), "etc/conf.d/b.toml", "password = \"from conf.d\"\n[web]\nbinding = \":7420\"\n");
    let start = |password: &str| {
        let line = "-e production -c etc -l info -w :0 -set log.file=log";
        let mut command = faktory(dir.path(), &program, line);
        command.env("FAKTORY_PASSWORD", password);
        let _ = fs::remove_file(dir.path().join("log"));
        Running::start(command, dir.path().join("log"))
    };
    let daemon = start("");
    assert_eq!(Fwp::hello(daemon.address(), "wrong").1, "-ERR Invalid password");
    let (mut fwp, said) = Fwp::hello(daemon.address(), "from conf.d");
    assert_eq!(said, "+OK");
    assert_eq!(fwp.ask(&format!("PUSH {JOB}")), "+OK");
    assert_eq!(daemon.stop(), Some(0));

    // The variable goes before conf.d, and may name a file; jobs are where they were.
    write(dir.path(), "secret", " from a file\n");
    let daemon = start(&dir.path().join("secret").display().to_string());
    assert_eq!(Fwp::hello(daemon.address(), "from conf.d").1, "-ERR Invalid password");
    let (mut fwp, said) = Fwp::hello(daemon.address(), "from a file");
    assert_eq!(said, "+OK");
    assert!(fwp.ask("FETCH q").contains("\"jid\":\"jid-12345678\""));
    assert_eq!(fwp.ask(r#"ACK {"jid":"jid-12345678"}"#), "+OK");
}

#[test]
fn a_developer_who_just_starts_it() {
    let dir = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_windlass"));
    let mut command = faktory(dir.path(), program, "faktory -b localhost:0 -set log.file=log");
    command.env_remove("WINDLASS_DATA_DIR");
    let daemon = Running::start(command, dir.path().join("log"));
    let mut fwp = Fwp::connect(daemon.address());
    assert_eq!(fwp.ask(&format!("PUSH {JOB}")), "+OK");
    assert!(fwp.ask("FETCH q").contains("\"jid\":\"jid-12345678\""));
    assert!(dir.path().join(".faktory/windlass/lock").exists());
    let log = fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(!log.contains("protocol=\"gearman\""), "nothing but Faktory is served: {log}");
}

#[test]
fn mistakes_and_questions() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "odd/conf.d/cron.toml", "[[cron]]\nschedule = \"* * * * *\"\n[cron.job]\ntype = \"T\"\n");
    write(dir.path(), "bad/conf.d/a.toml", "[faktory]\npassword = x\n");
    let table = [
        ("-x", "windlass faktory: flag provided but not defined: -x"),
        ("-e bogus", "windlass faktory: Invalid environment \"bogus\": legal values are"),
        ("-e production", "windlass faktory: staging and production need a password: "),
        ("-c odd", "windlass: odd/conf.d: [[cron]] is refused: "),
        ("-c bad", "windlass: bad/conf.d/a.toml: line 2: "),
        ("-set nonsense", "windlass: --set nonsense: section.key=value expected"),
    ];
    for (line, reason) in table {
        let output = run(dir.path(), line);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.starts_with(reason) && said.lines().count() == 1, "{line}: {said}");
    }
    let output = run(dir.path(), "-v");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.starts_with("Faktory 1.10.0 - Windlass "), "{said}");
    for line in ["-h", "--help"] {
        let output = run(dir.path(), line);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.contains("-b [binding]") && said.contains("[[cron]]"), "{said}");
    }
    assert!(!dir.path().join("data").exists(), "nothing was started");
}
