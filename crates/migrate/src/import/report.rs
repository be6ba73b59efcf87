//! The output of an import, for all sources: the message that something is left, and the exit code.

use std::io::{self, Write};

use windlass_server::Failure;

/// The output cannot be written.
pub(super) fn cannot_say(why: &io::Error) -> Failure {
    Failure::Runtime(format!("cannot write: {why}"))
}

/// Prints the count of an earlier import.
pub(super) fn write_before(out: &mut dyn Write, before: u64, of: &str) -> io::Result<()> {
    match before {
        0 => Ok(()),
        _ => writeln!(out, "{before} taken by an earlier import of the same {of}; --again takes them once more"),
    }
}

/// The result that determines the exit code: nothing is left, or something is. `one` and `several` name the items that
/// are left.
pub(super) fn outcome(left: u64, one: &str, several: &str) -> Result<(), Failure> {
    match left {
        0 => Ok(()),
        1 => Err(Failure::Incomplete(format!("1 {one} is left; fix the reason and import again"))),
        left => Err(Failure::Incomplete(format!("{left} {several} are left; fix the reasons and import again"))),
    }
}
