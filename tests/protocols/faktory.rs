//! `windlass faktory` as unit files and containers start it.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::wait_until;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The binary under its expected name: a link named faktory.
fn link(dir: &Path) -> PathBuf {
    let path = dir.join("faktory");
    symlink(env!("CARGO_BIN_EXE_windlass"), &path).unwrap();
    path
}

/// A command line as in a unit file, with `dir` as home and data directory.
fn faktory(dir: &Path, program: &Path, line: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args(line.split_whitespace())
        .env_clear()
        .env("HOME", dir)
        .env("WINDLASS_DATA_DIR", dir.join("data"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .current_dir(dir);
    command
}

fn run(dir: &Path, line: &str) -> Output {
    faktory(
        dir,
        Path::new(env!("CARGO_BIN_EXE_windlass")),
        &format!("faktory {line}"),
    )
    .output()
    .unwrap()
}

fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A daemon that logs to a file.
struct Running(Child, PathBuf);

impl Running {
    fn start(mut command: Command, log: PathBuf) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap(), log)
    }

    fn address(&self) -> SocketAddr {
        let found = || {
            let text = fs::read_to_string(&self.1)
                .ok()
                .filter(|text| text.contains("ready"))?;
            let (_, rest) = text.split_once("address=")?;
            rest.split_once(' ')?.0.parse().ok()
        };
        wait_until("the address in the log", || found().is_some());
        found().unwrap()
    }

    fn signal(&self, name: &str) {
        assert!(
            Command::new("kill")
                .arg(format!("-{name}"))
                .arg(self.0.id().to_string())
                .status()
                .unwrap()
                .success()
        );
    }

    fn stop(mut self) -> Option<i32> {
        Command::new("kill")
            .arg(self.0.id().to_string())
            .output()
            .unwrap();
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
    write(
        dir.path(),
        "etc/conf.d/a.toml",
        "[faktory]\nbinding = \"127.0.0.1:0\"\n",
    );
    write(
        dir.path(),
        "etc/conf.d/b.toml",
        "password = \"from conf.d\"\n[web]\nbinding = \":7420\"\n",
    );
    let start = |password: &str| {
        let line = "-e production -c etc -l info -w :0 -set log.file=log";
        let mut command = faktory(dir.path(), &program, line);
        command.env("FAKTORY_PASSWORD", password);
        let _ = fs::remove_file(dir.path().join("log"));
        Running::start(command, dir.path().join("log"))
    };
    let daemon = start("");
    assert_eq!(
        Fwp::hello(daemon.address(), "wrong").1,
        "-ERR Invalid password"
    );
    let (mut fwp, said) = Fwp::hello(daemon.address(), "from conf.d");
    assert_eq!(said, "+OK");
    assert_eq!(fwp.ask(&format!("PUSH {JOB}")), "+OK");
    assert_eq!(daemon.stop(), Some(0));

    // The variable overrides conf.d, and may name a file; jobs are still there.
    write(dir.path(), "secret", " from a file\n");
    let daemon = start(&dir.path().join("secret").display().to_string());
    assert_eq!(
        Fwp::hello(daemon.address(), "from conf.d").1,
        "-ERR Invalid password"
    );
    let (mut fwp, said) = Fwp::hello(daemon.address(), "from a file");
    assert_eq!(said, "+OK");
    assert!(fwp.ask("FETCH q").contains("\"jid\":\"jid-12345678\""));
    assert_eq!(fwp.ask(r#"ACK {"jid":"jid-12345678"}"#), "+OK");
}

/// As Faktory's image and the files for it start it: `-w 0.0.0.0:7420`.
#[test]
fn pages_need_the_password_and_without_one_only_this_machine_sees_them() {
    let dir = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_windlass"));
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let http = Http(SocketAddr::from(([127, 0, 0, 1], port)));
    let start = |password: &str| {
        let line =
            format!("faktory -e production -b localhost:0 -w 0.0.0.0:{port} -set log.file=log");
        let mut command = faktory(dir.path(), program, &line);
        command
            .env("FAKTORY_PASSWORD", password)
            .env("FAKTORY_SKIP_PASSWORD", "1");
        let _ = fs::remove_file(dir.path().join("log"));
        let daemon = Running::start(command, dir.path().join("log"));
        daemon.address();
        (daemon, fs::read_to_string(dir.path().join("log")).unwrap())
    };
    let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
    let status = |path: &str, login: &str, host: &str| {
        http.request(
            "GET",
            path,
            &[("Authorization", login), ("Host", host)],
            b"",
        )
        .status
    };

    let (daemon, log) = start("sekrit");
    assert!(log.contains(&format!("address=0.0.0.0:{port}")), "{log}");
    for path in ["/", "/stats", "/api/v1/jobs"] {
        let answer = http.get(path);
        assert_eq!(
            (answer.status, answer.header("www-authenticate").is_some()),
            (401, true),
            "{path}"
        );
        assert_eq!(status(path, &basic(":wrong"), "localhost"), 401, "{path}");
        for (login, host) in [
            (":sekrit", "localhost"),
            ("anyone:sekrit", "faktory.internal:7420"),
        ] {
            assert_eq!(
                status(path, &basic(login), host),
                200,
                "{path} {login} {host}"
            );
        }
    }
    assert_eq!(http.post("/api/v1/drain", "").status, 401);
    assert_eq!(
        (http.get("/health").status, http.get("/livez").status),
        (200, 200)
    );
    assert_eq!(daemon.stop(), Some(0));

    let (_daemon, log) = start("");
    let why = format!(
        "HTTP is not served at 0.0.0.0:{port}, but at 127.0.0.1:{port}: without a password only this machine"
    );
    assert!(log.contains(&why), "{log}");
    assert_eq!(
        (
            http.get("/stats").status,
            status("/stats", "", "faktory.internal")
        ),
        (200, 421)
    );
}

#[test]
fn a_developer_who_just_starts_it() {
    let dir = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_windlass"));
    let mut command = faktory(
        dir.path(),
        program,
        "faktory -b localhost:0 -w :0 -set log.file=log",
    );
    command.env_remove("WINDLASS_DATA_DIR");
    let daemon = Running::start(command, dir.path().join("log"));
    let mut fwp = Fwp::connect(daemon.address());
    assert_eq!(fwp.ask(&format!("PUSH {JOB}")), "+OK");
    assert!(fwp.ask("FETCH q").contains("\"jid\":\"jid-12345678\""));
    assert!(dir.path().join(".faktory/windlass/lock").exists());
    // Faktory logs its state on this signal, and continues.
    daemon.signal("TTIN");
    let told = || {
        fs::read_to_string(dir.path().join("log"))
            .is_ok_and(|log| log.contains("SIGTTIN: the report ends"))
    };
    wait_until("SIGTTIN is answered", told);
    assert_eq!(fwp.ask(r#"ACK {"jid":"jid-12345678"}"#), "+OK");
    let log = fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(
        !log.contains("protocol=\"gearman\""),
        "nothing but Faktory is served: {log}"
    );
}

/// Faktory forgets the names of flushed queues, and new jobs in them after a restart, until another push.
#[test]
fn a_push_after_a_flush_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let start = || {
        let _ = fs::remove_file(&log);
        let line = "faktory -b localhost:0 -w :0 -set log.file=log";
        Running::start(
            faktory(dir.path(), Path::new(env!("CARGO_BIN_EXE_windlass")), line),
            log.clone(),
        )
    };
    let daemon = start();
    let mut fwp = Fwp::connect(daemon.address());
    assert_eq!(fwp.ask(&format!("PUSH {JOB}")), "+OK");
    assert_eq!(fwp.ask("FLUSH"), "+OK");
    assert_eq!(fwp.ask(&format!("PUSH {JOB}")), "+OK");
    assert_eq!(daemon.stop(), Some(0));
    let daemon = start();
    let mut fwp = Fwp::connect(daemon.address());
    assert!(fwp.ask("INFO").contains("\"queues\":{\"q\":1}"));
    assert_eq!(fwp.ask("QUEUE REMOVE *"), "+OK");
    assert!(fwp.ask("INFO").contains("\"queues\":{}"));
}

#[test]
fn cron_entries_follow_conf_d() {
    let dir = tempfile::tempdir().unwrap();
    let entry = |schedule: &str, rest: &str| {
        format!("[[cron]]\nschedule = \"{schedule}\"\n[cron.job]\n{rest}\n")
    };
    let (a, b) = (
        entry("@yearly", "type = \"A\"\nargs = [1.0]"),
        entry("0 0 1 1 *", "type = \"B\"\nretry = 3"),
    );
    let conf = |text: &str| write(dir.path(), "etc/conf.d/cron.toml", text);
    let log = dir.path().join("log");
    let start = || {
        let _ = fs::remove_file(&log);
        let line = "faktory -c etc -b localhost:0 -w :0 -set log.file=log";
        let daemon = Running::start(
            faktory(dir.path(), Path::new(env!("CARGO_BIN_EXE_windlass")), line),
            log.clone(),
        );
        daemon.address();
        daemon
    };
    let said = |text: &str| fs::read_to_string(&log).is_ok_and(|log| log.contains(text));
    let hear = |text: &str| wait_until(text, || said(text));
    conf(&(a.clone() + &b));
    let daemon = start();
    hear("faktory.cron: 2 new, 0 changed, 0 removed, 0 unchanged");
    assert!(
        Fwp::connect(daemon.address())
            .ask("INFO")
            .contains("\"queues\":{\"default\":0}")
    );
    assert_eq!(daemon.stop(), Some(0));
    let daemon = start();
    hear("faktory.cron: 0 new, 0 changed, 0 removed, 2 unchanged");
    conf(&(a.clone() + &b.replace("retry = 3", "retry = 4")));
    daemon.signal("HUP");
    hear("faktory.cron: 0 new, 1 changed, 0 removed, 1 unchanged");
    conf(&entry("every day", "type = \"A\""));
    daemon.signal("HUP");
    hear("etc/conf.d/cron.toml: line 1: [[cron]], entry 1: schedule: 2 fields, but");
    hear("keeping the current configuration");
    conf(&a);
    daemon.signal("HUP");
    hear("faktory.cron: 0 new, 0 changed, 1 removed, 1 unchanged");
    // After a kill, a schedule removed last may reappear; it is removed again.
    drop(daemon);
    let _daemon = start();
    hear("faktory.cron: 0 new, 0 changed, ");
    assert!(said(" removed, 1 unchanged"));
}

#[test]
fn throttles_follow_conf_d() {
    let dir = tempfile::tempdir().unwrap();
    let conf = |text: &str| write(dir.path(), "etc/conf.d/throttles.toml", text);
    conf("[throttles]\nq = { concurrency = 1 }\n");
    let line = "faktory -c etc -b localhost:0 -w :0 -set log.file=log -set faktory.fetch_wait=1ms";
    let program = Path::new(env!("CARGO_BIN_EXE_windlass"));
    let log = dir.path().join("log");
    let daemon = Running::start(faktory(dir.path(), program, line), log.clone());
    let mut fwp = Fwp::connect(daemon.address());
    let unit = |n: u8| format!(r#"{{"jid":"jid-1234567{n}","jobtype":"T","queue":"q","args":[]}}"#);
    assert_eq!(fwp.ask(&format!("PUSHB [{},{}]", unit(1), unit(2))), "{}");
    assert!(fwp.ask("FETCH q").contains("jid-12345671"));
    assert_eq!(fwp.ask("FETCH q"), "null");
    assert_eq!(fwp.ask(r#"ACK {"jid":"jid-12345671"}"#), "+OK");
    assert!(fwp.ask("FETCH q").contains("jid-12345672"));
    assert_eq!(fwp.ask(&format!("PUSH {}", unit(3))), "+OK");
    assert_eq!(fwp.ask("FETCH q"), "null");
    conf("");
    daemon.signal("HUP");
    let said = |text: &str| fs::read_to_string(&log).is_ok_and(|log| log.contains(text));
    wait_until("the throttle is gone", || {
        said("throttles: 0 new, 0 changed, 1 removed, 0 unchanged")
    });
    assert!(fwp.ask("FETCH q").contains("jid-12345673"));
}

#[test]
fn usage_errors_and_help() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        "odd/conf.d/cron.toml",
        "[[cron]]\nschedule = \"* * * *\"\n[cron.job]\ntype = \"T\"\n",
    );
    write(dir.path(), "bad/conf.d/a.toml", "[faktory]\npassword = x\n");
    let table = [
        ("-x", "windlass faktory: flag provided but not defined: -x"),
        (
            "-e bogus",
            "windlass faktory: Invalid environment \"bogus\": legal values are",
        ),
        (
            "-e production",
            "windlass faktory: staging and production need a password: ",
        ),
        (
            "-c odd",
            "windlass: odd/conf.d/cron.toml: line 1: [[cron]], entry 1: schedule: 4 fields, but ",
        ),
        ("-c bad", "windlass: bad/conf.d/a.toml: line 2: "),
        (
            "-set nonsense",
            "windlass: --set nonsense: section.key=value expected",
        ),
    ];
    for (line, reason) in table {
        let output = run(dir.path(), line);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(
            said.starts_with(reason) && said.lines().count() == 1,
            "{line}: {said}"
        );
    }
    let output = run(dir.path(), "-v");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && said.starts_with("Faktory 1.10.0 - Windlass "),
        "{said}"
    );
    for line in ["-h", "--help"] {
        let output = run(dir.path(), line);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && said.contains("-b [binding]") && said.contains("[[cron]]"),
            "{said}"
        );
    }
    assert!(!dir.path().join("data").exists(), "nothing was started");
}
