//! A PostgreSQL server of a test's own: Debian's programs, a temporary directory, a free port on loopback.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use windlass_testkit::daemon::free_port;

use super::wait_until;

/// Where Debian keeps the programs, by version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The user that runs the server when the test is run by root, which PostgreSQL refuses to run as.
const USER: &str = "postgres";

/// A server.
#[derive(Debug)]
pub struct Postgres {
    dir: TempDir,
    programs: PathBuf,
    port: u16,
    server: Child,
    settings: Vec<String>,
}

impl Postgres {
    /// Starts an empty server.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts an empty server with these settings.
    pub fn with(settings: &[&str]) -> Self {
        Self::encoded("UTF8", settings)
    }

    /// The same, with another encoding.
    pub fn encoded(encoding: &str, settings: &[&str]) -> Self {
        let encoding = format!("--encoding={encoding}");
        let options = [
            "--auth=trust",
            "--username=windlass",
            &encoding,
            "--locale=C",
            "--no-sync",
        ];
        Self::made_by("initdb", &options, free_port(), settings)
    }

    /// Starts a standby of a server, which follows it from its present state on.
    pub fn standby_of(primary: &Self, port: u16) -> Self {
        let options = [
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--wal-method=stream",
            "--no-sync",
        ];
        let from = format!("--dbname=postgres://windlass@127.0.0.1:{}/", primary.port);
        let settings: Vec<&str> = primary.settings.iter().map(String::as_str).collect();
        Self::made_by(
            "pg_basebackup",
            &[&options[..], &[&from]].concat(),
            port,
            &settings,
        )
    }

    /// Starts a server whose data a program has made.
    fn made_by(program: &str, options: &[&str], port: u16, settings: &[&str]) -> Self {
        let programs = newest_programs();
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        if let Some((uid, gid)) = other_user() {
            chown(dir.path(), Some(uid), Some(gid)).unwrap();
            chown(&data, Some(uid), Some(gid)).unwrap();
        }
        let mut make = run_as(&programs.join(program));
        make.args(options)
            .arg("--pgdata")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        assert!(
            make.status().unwrap().success(),
            "{program}: {}",
            fs::read_to_string(dir.path().join("log")).unwrap()
        );
        let settings: Vec<String> = settings
            .iter()
            .map(|setting| (*setting).to_owned())
            .collect();
        let server = run(&programs, dir.path(), port, &settings);
        let postgres = Self {
            dir,
            programs,
            port,
            server,
            settings,
        };
        postgres.wait_until_it_answers();
        postgres
    }

    /// A standby becomes a server of its own that takes writes.
    pub fn promote(&self) {
        let mut promote = run_as(&self.programs.join("pg_ctl"));
        promote
            .args(["promote", "--silent", "--pgdata"])
            .arg(self.dir.path().join("data"));
        assert!(
            promote
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap()
                .success()
        );
    }

    /// From now on a commit is acknowledged when a standby has it on its disk. Waits until one does.
    pub fn wait_for_its_standby(&self) {
        self.ask("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.ask("SELECT pg_reload_conf()");
        wait_until("the standby is synchronous", || {
            self.number("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'")
                == 1
        });
    }

    /// The section of a daemon that keeps its store here.
    pub fn section(&self) -> String {
        format!("[postgres]\nurl = \"{}\"\n", self.url())
    }

    pub fn url(&self) -> String {
        format!("postgres://windlass@127.0.0.1:{}/postgres", self.port)
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Kills the server with all its processes, as a power cut would.
    pub fn kill(&mut self) {
        let all = children_of(self.server.id());
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        let ids: Vec<String> = all.iter().map(ToString::to_string).collect();
        let _ = Command::new("kill")
            .arg("-9")
            .args(&ids)
            .stderr(Stdio::null())
            .status();
        wait_until("all processes of the server have ended", || {
            !all.iter()
                .any(|id| Path::new(&format!("/proc/{id}/stat")).exists())
        });
    }

    /// Starts it again after [`Postgres::kill`].
    pub fn restart(&mut self) {
        self.server = run(&self.programs, self.dir.path(), self.port, &self.settings);
        self.wait_until_it_answers();
    }

    /// From now on the database's clock is this far from the machine's, for connections that open after the first call.
    pub fn set_clock(&self, ahead: &str) {
        let set = format!(
            "CREATE SCHEMA IF NOT EXISTS clock;
             CREATE OR REPLACE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
                 AS $$ SELECT pg_catalog.clock_timestamp() + interval '{ahead}' $$;
             ALTER DATABASE postgres SET search_path = clock, pg_catalog, public"
        );
        self.ask(&set);
    }

    /// From now on this user needs a password.
    pub fn ask_for_passwords_of(&self, user: &str) {
        let rules = format!(
            "host all {user} 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
        );
        fs::write(self.dir.path().join("data/pg_hba.conf"), rules).unwrap();
        self.ask("SELECT pg_reload_conf()");
    }

    /// From now on the server takes connections of TLS, too.
    pub fn use_certificate(&self, certificate: &str, key: &str) {
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = self.dir.path().join("data").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            if let Some((uid, gid)) = other_user() {
                chown(&path, Some(uid), Some(gid)).unwrap();
            }
        }
        self.ask("ALTER SYSTEM SET ssl = on");
        self.ask("SELECT pg_reload_conf()");
        wait_until("TLS is on", || self.ask("SHOW ssl") == "on");
    }

    /// The result of a query, as psql prints it without headings.
    pub fn ask(&self, sql: &str) -> String {
        let asked = self.psql(sql).unwrap();
        assert!(
            asked.status.success(),
            "{sql}: {}",
            String::from_utf8_lossy(&asked.stderr)
        );
        String::from_utf8(asked.stdout).unwrap().trim().to_owned()
    }

    /// Runs statements on a connection of their own, without waiting for them.
    pub fn begin(&self, sql: &str) -> Child {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args([
            "--no-psqlrc",
            "--quiet",
            "--dbname",
            &self.url(),
            "--command",
            sql,
        ]);
        psql.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// A number from the database.
    pub fn number(&self, sql: &str) -> u64 {
        self.ask(sql).parse().unwrap()
    }

    fn psql(&self, sql: &str) -> io::Result<std::process::Output> {
        Command::new(self.programs.join("psql"))
            .args([
                "--no-psqlrc",
                "--quiet",
                "--tuples-only",
                "--no-align",
                "--dbname",
                &self.url(),
                "--command",
                sql,
            ])
            .stdin(Stdio::null())
            .output()
    }

    fn wait_until_it_answers(&self) {
        wait_until("the database answers", || {
            TcpStream::connect(self.address()).is_ok()
                && self
                    .psql("SELECT 1")
                    .is_ok_and(|answer| answer.status.success())
        });
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Its number may be another process's by now.
        if matches!(self.server.try_wait(), Ok(Some(_))) {
            return;
        }
        let all = children_of(self.server.id());
        let _ = self.server.kill();
        let _ = self.server.wait();
        let ids: Vec<String> = all.iter().map(ToString::to_string).collect();
        if !ids.is_empty() {
            let _ = Command::new("kill")
                .arg("-9")
                .args(&ids)
                .stderr(Stdio::null())
                .status();
        }
    }
}

fn run(programs: &Path, dir: &Path, port: u16, settings: &[String]) -> Child {
    let log = fs::File::options()
        .append(true)
        .open(dir.join("log"))
        .unwrap();
    let mut command = run_as(&programs.join("postgres"));
    command
        .arg("-D")
        .arg(dir.join("data"))
        .args(["-p", &port.to_string()]);
    // The system survives these tests, so nothing is lost without waiting for the disk.
    let always = [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "fsync=off",
        "max_connections=50",
    ];
    for setting in always
        .into_iter()
        .chain(settings.iter().map(String::as_str))
    {
        command.args(["-c", setting]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Runs a program of PostgreSQL's, not as root. It has the same process id as the command.
fn run_as(program: &Path) -> Command {
    match other_user() {
        None => Command::new(program),
        Some((uid, gid)) => {
            let mut command = Command::new("setpriv");
            command
                .args([
                    format!("--reuid={uid}"),
                    format!("--regid={gid}"),
                    "--clear-groups".to_owned(),
                ])
                .arg(program);
            command.current_dir("/");
            command
        }
    }
}

/// The user that the server must have: only root needs another one.
fn other_user() -> Option<(u32, u32)> {
    let number = |option: &str, user: &[&str]| {
        let said = Command::new("id").arg(option).args(user).output().unwrap();
        String::from_utf8(said.stdout)
            .unwrap()
            .trim()
            .parse::<u32>()
            .ok()
    };
    if number("-u", &[]) != Some(0) {
        return None;
    }
    Some((
        number("-u", &[USER]).unwrap(),
        number("-g", &[USER]).unwrap(),
    ))
}

fn newest_programs() -> PathBuf {
    let versions = fs::read_dir(VERSIONS)
        .unwrap_or_else(|why| panic!("{VERSIONS}: {why}: run tests/install-clients"));
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions
        .filter_map(|entry| Some(entry.ok()?.path()))
        .max_by_key(version);
    newest.expect("a version of PostgreSQL").join("bin")
}

/// The processes that a process has started.
fn children_of(process: u32) -> Vec<u32> {
    let list =
        fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    list.split_whitespace()
        .filter_map(|id| id.parse().ok())
        .collect()
}
