//! A daemon that clients reach by URL: with a password, over TLS, or plain.

use std::process::Command;

use rcgen::generate_simple_self_signed;
use tempfile::TempDir;
use windlass_testkit::daemon::Daemon;

use crate::client::run;
use crate::common::{daemon, namespaces};

const ONE_ADDRESS: &str = "listen = [\"127.0.0.1:0\"]\n";

/// A running daemon and its URLs.
pub struct Served {
    urls: Vec<String>,
    daemon: Daemon,
    _dir: TempDir,
}

impl Served {
    /// With addresses of three namespaces.
    pub fn plainly() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sections = namespaces::SECTIONS;
        Self::start(dir, "tcp", "", &namespaces::listen_tcp(), sections)
    }

    pub fn with_password(password: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::start(dir, "tcp", password, ONE_ADDRESS, "")
    }

    /// With an unsigned certificate.
    pub fn over_tls(password: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (
            dir.path().join("certificate.pem"),
            dir.path().join("key.pem"),
        );
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        Self::start(
            dir,
            "tcp+tls",
            password,
            ONE_ADDRESS,
            &format!("[faktory.tls]\ncertificate = {certificate:?}\nkey = {key:?}"),
        )
    }

    fn start(dir: TempDir, scheme: &str, password: &str, listen: &str, more: &str) -> Self {
        // Scenes often ask for a job when there is none.
        let keys = format!("{listen}fetch_wait = \"200ms\"\npassword = {password:?}");
        let faktory = format!("[faktory]\n{keys}\n{more}");
        let daemon = daemon(dir.path()).set(&faktory).start();
        let user = if password.is_empty() {
            String::new()
        } else {
            format!(":{password}@")
        };
        let addresses = daemon.addresses("faktory").into_iter();
        let urls = addresses
            .map(|at| format!("{scheme}://{user}localhost:{}", at.port()))
            .collect();
        Self {
            urls,
            daemon,
            _dir: dir,
        }
    }

    /// Runs a client's scene at all URLs at once, and asserts that it succeeds.
    pub fn play(&self, client: impl Fn() -> Command + Sync, scene: &str) {
        namespaces::at_once(&self.urls, |url| {
            let (well, said) = run(client().args([url, scene]));
            assert!(well, "{said}\n{}", self.daemon.log_text());
        });
    }
}
