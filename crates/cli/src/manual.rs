//! Completions for shells, and manual pages, both made of the grammar.

use std::fs;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use windlass_daemon::Failure;

/// The completion script of a shell.
pub(crate) fn completions(mut grammar: Command, shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut grammar, "windlass", &mut script);
    script
}

/// Writes a page for the program and one for each command to a directory.
///
/// # Errors
///
/// A page cannot be written.
pub(crate) fn write(grammar: Command, directory: &Path) -> Result<(), Failure> {
    let written = fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(grammar, directory));
    written.map_err(|error| Failure::Runtime(format!("cannot write to {}: {error}", directory.display())))
}
