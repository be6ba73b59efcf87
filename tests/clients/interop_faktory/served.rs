//! A daemon that clients reach by URL: with a password, over TLS, or plain.

use std::process::Command;

use rcgen::generate_simple_self_signed;
use tempfile::TempDir;
use windlass_testkit::daemon::Daemon;

use crate::client::run;
use crate::common::daemon;

/// A running daemon and its URL.
pub struct Served {
    url: String,
    daemon: Daemon,
    _dir: TempDir,
}

impl Served {
    pub fn plainly() -> Self {
        Self::with_password("")
    }

    pub fn with_password(password: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::start(dir, "tcp", password, "")
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
            &format!("[faktory.tls]\ncertificate = {certificate:?}\nkey = {key:?}"),
        )
    }

    fn start(dir: TempDir, scheme: &str, password: &str, more: &str) -> Self {
        // Scenes often ask for a job when there is none.
        let listen = "listen = [\"127.0.0.1:0\"]\nfetch_wait = \"200ms\"";
        let faktory = format!("[faktory]\n{listen}\npassword = {password:?}\n{more}");
        let daemon = daemon(dir.path()).set(&faktory).start();
        let user = if password.is_empty() {
            String::new()
        } else {
            format!(":{password}@")
        };
        let url = format!(
            "{scheme}://{user}localhost:{}",
            daemon.address("faktory").port()
        );
        Self {
            url,
            daemon,
            _dir: dir,
        }
    }

    /// Runs a client's scene, and asserts that it succeeds.
    pub fn play(&self, mut client: Command, scene: &str) {
        let (well, said) = run(client.args([&self.url, scene]));
        assert!(well, "{said}\n{}", self.daemon.log_text());
    }
}
