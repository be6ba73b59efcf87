//! Notifies the service manager (systemd's `sd_notify`). Without a manager nothing happens, and a
//! manager that does not read never blocks the daemon.

use std::env;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use sd_notify::NotifyState;

/// How long the manager may take to read earlier messages before one that it waits for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same for other messages, which are dropped after that.
const SHORT: Duration = Duration::from_millis(50);

/// The daemon is ready.
pub(crate) fn ready() {
    send(
        PATIENCE,
        &[NotifyState::Ready, NotifyState::Status("serving")],
    );
}

/// The daemon is reloading, until [`reloaded`].
pub(crate) fn reloading() {
    // Only systemd's `notify-reload` needs the time, and cannot use the message without it.
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        send(PATIENCE, &[NotifyState::Reloading, now]);
    }
}

/// The reload is complete. The status remains, because the daemon may be draining.
pub(crate) fn reloaded() {
    send(PATIENCE, &[NotifyState::Ready]);
}

/// The daemon is stopping.
pub(crate) fn stopping() {
    send(
        SHORT,
        &[NotifyState::Stopping, NotifyState::Status("stopping")],
    );
}

/// Sets the line for `systemctl status`.
pub(crate) fn status(text: &str) {
    send(SHORT, &[NotifyState::Status(text)]);
}

/// Extends the start timeout by at least this much.
pub(crate) fn extend_start(by: Duration, text: &str) {
    let by = u32::try_from(by.as_micros()).unwrap_or(u32::MAX);
    send(
        SHORT,
        &[
            NotifyState::ExtendTimeoutUsec(by),
            NotifyState::Status(text),
        ],
    );
}

/// Resets the watchdog.
pub(crate) fn watchdog() {
    if sd_notify::watchdog_enabled().is_some() {
        send(SHORT, &[NotifyState::Watchdog]);
    }
}

fn send(patience: Duration, states: &[NotifyState<'_>]) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send_to(Path::new(&path), patience, states) {
        tracing::debug!(%error, "cannot notify the service manager");
    }
}

/// The library's `sd_notify` would block on a manager that does not read.
fn send_to(path: &Path, patience: Duration, states: &[NotifyState<'_>]) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_write_timeout(Some(patience))?;
    let text: String = states.iter().map(|state| format!("{state}\n")).collect();
    socket.send(text.as_bytes()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_does_not_read_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let send = || send_to(&path, Duration::from_millis(1), &[NotifyState::Watchdog]);
        let error = (0..10_000)
            .find_map(|_| send().err())
            .expect("its queue is full some day");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let mut bytes = [0; 64];
        let length = manager.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"WATCHDOG=1\n");
        send().unwrap();
    }
}
