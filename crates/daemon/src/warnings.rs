//! Warnings for the operator: open addresses, and files that others can read.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use windlass_config::Address;

use crate::config::Config;

/// Warns of an address that other machines can reach and that requires no authentication.
pub(crate) fn open_to_all(protocol: &'static str, address: &Address) {
    tracing::warn!(
        protocol,
        %address,
        "no authentication: anyone who can reach this address can submit, take and remove jobs"
    );
}

/// Warns of a data directory that other users can enter, and of readable files with secrets.
pub(crate) fn exposed(config: &Config) {
    const OTHERS: u32 = 0o007;
    const OTHERS_READ: u32 = 0o004;
    let mode_of =
        |path: &Path| fs::metadata(path).map_or(0, |about| about.permissions().mode() & 0o7777);
    let mode = mode_of(&config.data_dir);
    if mode & OTHERS != 0 && !config.ephemeral {
        let (data_dir, mode) = (config.data_dir.display(), format!("{mode:04o}"));
        tracing::warn!(%data_dir, mode, "other users of this machine can access the data directory: chmod o= prevents it");
    }
    for (key, value) in &config.values {
        let path = Path::new(value.trim_matches('"'));
        let mode = mode_of(path);
        if is_secret_file(key) && mode & OTHERS_READ != 0 {
            let (path, mode) = (path.display(), format!("{mode:04o}"));
            tracing::warn!(key, %path, mode, "other users of this machine can read a secret: chmod o= its file");
        }
    }
}

/// Whether a key names a file with a private key, passwords or logins.
fn is_secret_file(key: &str) -> bool {
    let is_one = ["tls.key", "password_file", "secret_key_file", "http.logins"]
        .iter()
        .any(|end| key.ends_with(end));
    is_one || is_password_file(key)
}

/// Whether a key names the file of one of several passwords.
pub(crate) fn is_password_file(key: &str) -> bool {
    key.contains(".passwords.") && key.ends_with(".file")
}
