//! Manual pages, made of the grammar.

use std::fs;
use std::path::Path;

use clap::Command;
use windlass_config::Failure;

/// Writes a page for the program and one for each command to a directory.
///
/// # Errors
///
/// A page cannot be written.
pub(crate) fn write(grammar: Command, directory: &Path) -> Result<(), Failure> {
    let written =
        fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(grammar, directory));
    written.map_err(|error| {
        Failure::Runtime(format!("cannot write to {}: {error}", directory.display()))
    })
}
