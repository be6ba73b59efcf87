//! (being written)

pub mod config;
mod failure;
pub mod logging;

pub use failure::Failure;

/// (being written)
///
/// # Errors
///
/// Always.
pub fn run(_config: &config::Config) -> Result<(), Failure> {
    Err(Failure::Runtime("there is no daemon in this binary yet".to_owned()))
}
