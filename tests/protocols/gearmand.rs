//! `windlass gearmand` as unit files, init scripts and test suites start it.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::Peer;

const PATIENCE: Duration = Duration::from_secs(60);

/// The binary under its expected name: a link named gearmand.
fn link(dir: &Path) -> PathBuf {
    let path = dir.join("gearmand");
    symlink(env!("CARGO_BIN_EXE_windlass"), &path).unwrap();
    path
}

/// A command line as in a unit file, with the data in `dir`.
fn gearmand(dir: &Path, program: &Path, line: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args(line.split(' '))
        .env_clear()
        .env("WINDLASS_DATA_DIR", dir.join("data"));
    command.stdin(Stdio::null()).current_dir(dir);
    command
}

fn run(dir: &Path, program: &Path, line: &str) -> Output {
    gearmand(dir, program, line).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until `come` returns a value.
fn wait_for<T>(what: &str, mut come: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(it) = come() {
            return it;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{what} does not come");
}

/// The listening address, from the log.
fn address(log: &Path) -> SocketAddr {
    wait_for("the address in the log", || {
        let text = fs::read_to_string(log).ok()?;
        let (_, rest) = text.split_once("address=")?;
        rest.split_once(' ')?.0.parse().ok()
    })
}

/// A detached process, killed when dropped.
struct Detached(u32);

impl Detached {
    fn of(pid_file: &Path) -> Self {
        Self(
            fs::read_to_string(pid_file)
                .unwrap()
                .trim()
                .parse()
                .unwrap(),
        )
    }

    fn signal(&self, name: &str) {
        Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.0.to_string())
            .output()
            .unwrap();
    }

    fn status(&self, key: &str) -> Option<String> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?;
        text.lines()
            .find_map(|line| line.strip_prefix(key))
            .map(|value| value.trim().to_owned())
    }

    /// Whether it has ended, reaped or not.
    fn is_gone(&self) -> bool {
        self.status("State:")
            .is_none_or(|state| state.starts_with('Z'))
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        if !self.is_gone() {
            self.signal("KILL");
        }
    }
}

struct Foreground(Child);

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_unit_file_of_type_forking() {
    let dir = tempfile::tempdir().unwrap();
    let (program, pid_file, log) = (
        link(dir.path()),
        dir.path().join("pid"),
        dir.path().join("gearmand.log"),
    );
    // The options of Debian's unit and /etc/default, and a few more; relative paths are in the directory.
    let line = "--pid-file=pid --listen=127.0.0.1 --port=0 --daemon --log-file=gearmand.log --verbose=INFO \
                --hashtable-buckets=991 --keepalive --keepalive-idle=30 -t 2 -w 1 -q builtin";
    let output = run(dir.path(), &program, line);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stderr(&output);
    let argv0 = program.display();
    let expected = format!(
        "{argv0}: --hashtable-buckets is ignored: tables grow by themselves\n{argv0}: --worker-wakeup is ignored: the \
         daemon always wakes as many sleeping workers as there are jobs\n"
    );
    assert_eq!(said, expected);
    // The command has ended: the daemon serves, its pid file is in place, and it has a session of its own.
    let daemon = Detached::of(&pid_file);
    let mut peer = Peer::connect(address(&log)).unwrap();
    assert!(peer.line("version").unwrap().starts_with("OK "));
    peer.submit("later", "", "work").unwrap();
    assert_eq!(daemon.status("Name:").as_deref(), Some("gearmand"));
    assert_eq!(daemon.status("NSsid:"), Some(daemon.0.to_string()));
    for fd in 0..3 {
        assert_eq!(
            fs::read_link(format!("/proc/{}/fd/{fd}", daemon.0)).unwrap(),
            Path::new("/dev/null"),
            "{fd}"
        );
    }

    // The daemon writes a new log file after the signal that logrotate sends.
    fs::rename(&log, dir.path().join("gearmand.log.1")).unwrap();
    daemon.signal("HUP");
    wait_for("a new log", || log.exists().then_some(()));
    daemon.signal("TERM");
    wait_for("the end", || daemon.is_gone().then_some(()));
    assert!(!pid_file.exists(), "the pid file is gone with its process");

    let output = run(
        dir.path(),
        &program,
        "-P pid -L 127.0.0.1 -p 0 -d -l again.log --verbose INFO",
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let _daemon = Detached::of(&pid_file);
    let mut peer = Peer::connect(address(&dir.path().join("again.log"))).unwrap();
    assert_eq!(peer.listing("status").unwrap(), ["later\t1\t0\t0"]);
}

#[test]
fn a_test_suite_that_starts_it_in_the_foreground() {
    let dir = tempfile::tempdir().unwrap();
    let (pid_file, log) = (dir.path().join("pid"), dir.path().join("log"));
    let line = "gearmand --verbose=INFO --log-file=log --pid-file=pid --port=0 --job-retries=2 --listen=localhost";
    let program = Path::new(env!("CARGO_BIN_EXE_windlass"));
    let mut daemon = Foreground(gearmand(dir.path(), program, line).spawn().unwrap());
    let mut peer = Peer::connect(address(&log)).unwrap();
    assert!(peer.line("version").unwrap().starts_with("OK "));
    assert_eq!(
        fs::read_to_string(&pid_file).unwrap(),
        format!("{}\n", daemon.0.id())
    );
    Command::new("kill")
        .arg(daemon.0.id().to_string())
        .output()
        .unwrap();
    assert_eq!(daemon.0.wait().unwrap().code(), Some(0));
    assert!(!pid_file.exists());
}

#[test]
fn a_failed_start_is_reported_to_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let program = link(dir.path());
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port();
    let line =
        |more: &str| format!("-d -L 127.0.0.1 -l log -P pid --set server.in_use_timeout=0s {more}");
    let output = run(dir.path(), &program, &line(&format!("-p {port}")));
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!(
        "cannot listen on 127.0.0.1:{port}: the address is in use"
    )));
    assert!(!dir.path().join("pid").exists());

    let output = run(dir.path(), &program, &line("-p 0").replace("pid", "no/pid"));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("cannot write the pid file no/pid: No such file or directory")
    );
}

#[test]
fn the_daemon_starts_without_its_log_file() {
    let dir = tempfile::tempdir().unwrap();
    let program = link(dir.path());
    let output = run(
        dir.path(),
        &program,
        "-d -L 127.0.0.1 -p 0 -l no/log -P pid",
    );
    let _daemon = Detached::of(&dir.path().join("pid"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output)
            .contains("Could not open log file \"no/log\", switching to stderr. (No such file")
    );
}

/// The log's text, once it contains `text`.
fn logged(log: &Path, text: &str) -> String {
    wait_for(text, || {
        fs::read_to_string(log)
            .ok()
            .filter(|said| said.contains(text))
    })
}

#[test]
fn restarts_may_overlap() {
    let dir = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_windlass"));
    let old = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = old.local_addr().unwrap().port();
    // A timeout longer than any loaded machine needs.
    let line = |log: &str| {
        format!(
            "gearmand --verbose=INFO -l {log} -p {port} -L 127.0.0.1 --set server.in_use_timeout=10m"
        )
    };
    let mut first = Foreground(
        gearmand(dir.path(), program, &line("first"))
            .spawn()
            .unwrap(),
    );
    let told = logged(&dir.path().join("first"), "in use: retrying for a while");
    assert!(
        told.contains("WARN")
            && told.contains(&format!("127.0.0.1:{port}"))
            && !told.contains("ready"),
        "{told}"
    );
    drop(old);
    logged(&dir.path().join("first"), "ready");
    assert!(
        Peer::connect(SocketAddr::from(([127, 0, 0, 1], port)))
            .unwrap()
            .line("version")
            .unwrap()
            .starts_with("OK ")
    );

    // A second Windlass waits for the address, and then for the data directory.
    let _second = Foreground(
        gearmand(dir.path(), program, &line("second"))
            .spawn()
            .unwrap(),
    );
    logged(&dir.path().join("second"), "in use: retrying for a while");
    Command::new("kill")
        .arg(first.0.id().to_string())
        .output()
        .unwrap();
    assert_eq!(first.0.wait().unwrap().code(), Some(0));
    logged(&dir.path().join("second"), "ready");
    assert!(
        Peer::connect(SocketAddr::from(([127, 0, 0, 1], port)))
            .unwrap()
            .line("version")
            .unwrap()
            .starts_with("OK ")
    );
}

#[test]
#[cfg(feature = "sqlite")]
fn jobs_in_sqlite_are_taken_over_once() {
    let dir = tempfile::tempdir().unwrap();
    let (program, file, log) = (
        link(dir.path()),
        dir.path().join("queue"),
        dir.path().join("log"),
    );
    let sqlite = rusqlite::Connection::open(&file).unwrap();
    sqlite
        .execute_batch(
            "CREATE TABLE jobs ( unique_key TEXT, function_name TEXT, priority INTEGER, data BLOB, when_to_run INTEGER, \
             PRIMARY KEY (unique_key, function_name)); INSERT INTO jobs VALUES ('u1', 'resize', 1, x'6361740a', 0), \
             ('u2', 'resize', 0, 'dog', 0), ('u3', 'resize', 7, 'bird', 0);",
        )
        .unwrap();
    drop(sqlite);
    let before = fs::read(&file).unwrap();
    let line = "-q libsqlite3 --libsqlite3-db=queue --libsqlite3-table=jobs -L 127.0.0.1 -p 0 -l log --verbose INFO -w 1";
    // Checks the log and the number of jobs, and completes the next job.
    let serve = |told: &str, jobs: usize, next: Option<&str>| {
        let _ = fs::remove_file(&log);
        let mut daemon = Foreground(gearmand(dir.path(), &program, line).spawn().unwrap());
        let said = logged(&log, "ready");
        assert!(said.contains(told), "{said}");
        assert!(
            said.contains("WARN windlass::gearmand: --worker-wakeup is ignored: "),
            "warnings are in the log: {said}"
        );
        let mut peer = Peer::connect(address(&log)).unwrap();
        assert_eq!(peer.listing("show jobs").unwrap().len(), jobs);
        peer.can_do("resize").unwrap();
        let job = peer.grab().unwrap();
        assert_eq!(
            job.as_ref().map(|job| &job.workload[..]),
            next.map(str::as_bytes)
        );
        if let Some(job) = job {
            peer.complete(&job.handle).unwrap();
        }
        peer.line("version").unwrap();
        Command::new("kill")
            .arg(daemon.0.id().to_string())
            .output()
            .unwrap();
        assert_eq!(daemon.0.wait().unwrap().code(), Some(0));
        said
    };
    let said = serve(
        "rows=3 taken=2 later=0 known=0 before=0 left=1",
        2,
        Some("dog"),
    );
    assert!(
        said.contains("row 3 left: function \"resize\", unique id \"u3\": invalid priority 7"),
        "{said}"
    );
    assert!(
        said.contains("WARN windlass::import::take_over: rows are left in gearmand's queue"),
        "{said}"
    );
    // Completed jobs do not run again, and rows that were left are tried again.
    serve(
        "rows=3 taken=0 later=0 known=0 before=2 left=1",
        1,
        Some("cat\n"),
    );
    assert_eq!(fs::read(&file).unwrap(), before, "the file is only read");
    rusqlite::Connection::open(&file)
        .unwrap()
        .execute_batch("DELETE FROM jobs")
        .unwrap();
    serve("gearmand's queue is empty", 0, None);
    fs::remove_file(&file).unwrap();
    serve("gearmand queue not found", 0, None);
    let nowhere = line.replace("queue --", "no/queue --");
    let output = run(dir.path(), &program, &nowhere);
    assert_eq!(output.status.code(), Some(1), "as gearmand ends");
    let said = fs::read_to_string(&log).unwrap() + &stderr(&output);
    assert!(
        said.contains("Error while initializing the queue: no: no such folder"),
        "{said}"
    );
    fs::write(&file, "no database, but as long as one might be").unwrap();
    let mut daemon = Foreground(gearmand(dir.path(), &program, line).spawn().unwrap());
    assert_eq!(
        daemon.0.wait().unwrap().code(),
        Some(2),
        "an operator has to look"
    );
}

#[test]
fn usage_errors_and_help() {
    let dir = tempfile::tempdir().unwrap();
    let program = link(dir.path());
    let argv0 = program.display().to_string();
    let config = dir.path().join("gearmand.conf");
    fs::write(&config, "--verbose LOUD\n").unwrap();
    let table = [
        ("--x", "unrecognised option '--x'"),
        (
            "--port",
            "the required argument for option '--port' is missing",
        ),
        ("--verbose=LOUD", "Invalid value for --verbose supplied"),
        (
            "--config-file=gearmand.conf",
            "Invalid value for --verbose supplied",
        ),
        ("--config-file=none", "Could not open configuration file."),
        ("--user=no-such-user", "Could not find user : no-such-user"),
        (
            "--protocol=http",
            "--protocol=http is refused: gearmand's HTTP is not spoken",
        ),
        (
            "-q libsqlite3",
            "Error while initializing the queue: -q libsqlite3 needs --libsqlite3-db",
        ),
        (
            "-q MySQL --mysql-host=db",
            "--queue-type=MySQL is refused: ",
        ),
    ];
    for (line, reason) in table {
        let output = run(dir.path(), &program, line);
        assert_eq!(output.status.code(), Some(1), "{line}: {output:?}");
        assert!(
            stderr(&output).starts_with(&format!("{argv0}: {reason}")),
            "{line}: {}",
            stderr(&output)
        );
    }
    let output = run(
        dir.path(),
        Path::new(env!("CARGO_BIN_EXE_windlass")),
        "gearmand --x -d",
    );
    assert_eq!(
        (output.status.code(), stderr(&output).as_str()),
        (Some(1), "windlass gearmand: unrecognised option '--x'\n")
    );

    let output = run(dir.path(), &program, "--version");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && said.starts_with("\ngearmand 1.1.20 - Windlass "),
        "{said}"
    );
    for line in ["-h", "--help -d"] {
        let said = String::from_utf8(run(dir.path(), &program, line).stdout).unwrap();
        assert!(
            said.contains("-p, --port ARG") && said.contains("--data-dir ARG"),
            "{said}"
        );
    }
    let output = run(dir.path(), &program, "--check-args --syslog -d");
    assert_eq!(output.status.code(), Some(0));
    assert!(
        stderr(&output).starts_with(&format!("{argv0}: --syslog is ignored: ")),
        "{output:?}"
    );
    assert!(!dir.path().join("data").exists(), "nothing was started");
}

#[test]
fn only_root_can_change_the_user() {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let dir = tempfile::tempdir().unwrap();
    let program = link(dir.path());
    let line = "-u nobody -d -L 127.0.0.1 -p 0 -l log -P pid --verbose INFO";
    if !is_root {
        let output = run(dir.path(), &program, line);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            stderr(&output).contains("Must be root to switch users."),
            "{output:?}"
        );
        return;
    }
    // Like the init script, for gearmand's directories; the daemon creates the data directory.
    let (uid, gid) = user_and_group("nobody");
    chown(dir.path(), Some(uid), Some(gid)).unwrap();
    let output = run(dir.path(), &program, line);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let daemon = Detached::of(&dir.path().join("pid"));
    let mut peer = Peer::connect(address(&dir.path().join("log"))).unwrap();
    peer.submit("f", "", "work").unwrap();
    // Real, effective, saved and of the file system.
    assert_eq!(
        daemon.status("Uid:"),
        Some([uid; 4].map(|uid| uid.to_string()).join("\t"))
    );
    assert_eq!(
        daemon.status("Gid:").unwrap().split('\t').next(),
        Some(gid.to_string().as_str())
    );
    for path in ["data", "data/lock", "log", "pid"] {
        let about = fs::metadata(dir.path().join(path)).unwrap();
        assert_eq!((about.uid(), about.gid()), (uid, gid), "{path}");
    }
}

fn user_and_group(name: &str) -> (u32, u32) {
    let text = fs::read_to_string("/etc/passwd").unwrap();
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(name))
        .unwrap();
    let numbers: Vec<u32> = line
        .split(':')
        .skip(2)
        .take(2)
        .map(|number| number.parse().unwrap())
        .collect();
    (numbers[0], numbers[1])
}
