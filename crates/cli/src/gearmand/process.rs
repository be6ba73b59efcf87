//! Changes to the process itself: user, background, pid file.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Uid, User};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Written by the detached process when it serves.
const READY: &[u8] = b"ready";

// ---- the user ---------------------------------------------------------------------------------------------------------

/// Looks up a user and checks that this process can become that user. `None`: no change is needed.
pub(super) fn user(name: &str) -> Result<Option<User>, String> {
    let user = User::from_name(name)
        .map_err(|why| format!("--user={name}: cannot be looked up: {why}"))?;
    let user = user.ok_or_else(|| format!("Could not find user : {name}"))?;
    match Uid::effective() {
        own if own == user.uid => Ok(None),
        own if own.is_root() => Ok(Some(user)),
        _ => Err(
            "Must be root to switch users. (A service manager can start this as the user: User= in a unit; then leave \
                  --user out.)"
                .to_owned(),
        ),
    }
}

/// Switches to this user permanently. Creates the data directory first if it does not exist: later the process may lack
/// permission.
pub(super) fn become_user(user: &User, data_dir: &Path) -> Result<(), String> {
    let failed = |why: &dyn std::fmt::Display| format!("--user={}: {why}", user.name);
    if !data_dir.exists() {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(data_dir)
            .and_then(|()| chown(data_dir, Some(user.uid.as_raw()), Some(user.gid.as_raw())));
        made.map_err(|why| failed(&format_args!("cannot make {}: {why}", data_dir.display())))?;
    }
    let name = CString::new(user.name.as_str()).map_err(|why| failed(&why))?;
    nix::unistd::initgroups(&name, user.gid)
        .and_then(|()| nix::unistd::setgid(user.gid))
        .and_then(|()| nix::unistd::setuid(user.uid))
        .map_err(|why| failed(&why))
}

// ---- the background ---------------------------------------------------------------------------------------------------

/// Starts this program again, detached from the terminal, and waits until the new process serves or has ended. Returns
/// the exit code.
pub(super) fn detach(argv0: &str, words: &[String], through_link: bool) -> io::Result<u8> {
    // Under the same name, if possible: the system knows processes by name.
    let named = Path::new(argv0);
    let program = if through_link && argv0.contains('/') {
        named.to_owned()
    } else {
        std::env::current_exe()?
    };
    let mut command = Command::new(program);
    if through_link {
        command.arg0(argv0);
    } else {
        command.arg("gearmand");
    }
    let mut child = command
        .arg("--detached")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut said)?;
    }
    if said == READY {
        return Ok(0);
    }
    let code = child
        .wait()?
        .code()
        .and_then(|code| u8::try_from(code).ok());
    Ok(code.filter(|code| *code != 0).unwrap_or(1))
}

/// Called in the detached process: leaves the terminal.
pub(super) fn leave_terminal() -> Result<(), String> {
    rustix::process::setsid()
        .map(drop)
        .map_err(|why| format!("--daemon: {why}"))
}

/// Notifies the waiting parent that this process serves, and closes the files it shares with the parent.
pub(super) fn report_ready() -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(READY)?;
    stdout.flush()?;
    // Lines so far are for the terminal.
    windlass_daemon::logging::flush();
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

// ---- limits -----------------------------------------------------------------------------------------------------------

/// Raises the limit on core files to the maximum permitted.
pub(super) fn allow_core() -> Result<(), String> {
    let limit = getrlimit(Resource::Core);
    let highest = if Uid::effective().is_root() {
        None
    } else {
        limit.maximum
    };
    setrlimit(
        Resource::Core,
        Rlimit {
            current: highest,
            maximum: highest,
        },
    )
    .map_err(|why| format!("--coredump: {why}"))
}

// ---- the pid file -----------------------------------------------------------------------------------------------------

/// A file with the process id, removed when dropped.
#[derive(Debug)]
pub(super) struct PidFile(PathBuf);

impl PidFile {
    pub(super) fn write(path: &Path) -> Result<Self, String> {
        let written = fs::write(path, format!("{}\n", std::process::id()));
        written.map_err(|why| format!("cannot write the pid file {}: {why}", path.display()))?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Another process may have written its own id by now.
        let ours = fs::read_to_string(&self.0)
            .is_ok_and(|text| text.trim() == std::process::id().to_string());
        if ours {
            let _ = fs::remove_file(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_goes_with_its_process_unless_another_has_taken_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        let file = PidFile::write(&path).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            format!("{}\n", std::process::id())
        );
        drop(file);
        assert!(!path.exists());
        let file = PidFile::write(&path).unwrap();
        fs::write(&path, "1\n").unwrap();
        drop(file);
        assert!(path.exists());
        assert!(
            PidFile::write(&dir.path().join("no/pid"))
                .unwrap_err()
                .starts_with("cannot write the pid file ")
        );
    }

    #[test]
    fn users() {
        assert_eq!(
            user("no such user").unwrap_err(),
            "Could not find user : no such user"
        );
        let own = User::from_uid(Uid::effective()).unwrap().unwrap();
        assert!(user(&own.name).unwrap().is_none());
    }
}
