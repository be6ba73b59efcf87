//! Standard input and output.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

use crate::client::failure;
use windlass_config::Failure;

/// Asks for confirmation before data is removed.
pub(crate) fn confirm(yes: bool, question: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(failure(
            "this removes data: without a terminal it requires --yes",
        ));
    }
    let mut answer = String::new();
    let _ = write!(io::stderr(), "{question} [y/N] ");
    io::stdin().read_line(&mut answer).map_err(failure)?;
    if answer.trim().eq_ignore_ascii_case("y") {
        Ok(())
    } else {
        Err(failure("nothing is changed"))
    }
}

/// The width of the terminal; unlimited without one.
pub(crate) fn width() -> usize {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        Ok(_) | Err(_) => usize::MAX / 2,
    }
}

/// The current time, for ages.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs())
        .ok()
        .and_then(|at| Timestamp::from_second(at).ok())
        .unwrap_or_default()
}

/// Prints to standard output.
///
/// # Errors
///
/// It cannot be written to. A closed pipe is not an error.
pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    match io::stdout()
        .write_all(bytes)
        .and_then(|()| io::stdout().flush())
    {
        // A reader such as `head` closed the pipe; that is not an error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| failure(format!("cannot write: {error}"))),
    }
}
