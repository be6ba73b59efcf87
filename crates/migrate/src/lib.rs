//! Migration: jobs of other servers, and of exports, come to Windlass.
//!
//! Reading order: [`intake`] (jobs and records into a data directory that no daemon uses) · `import` (the sources that
//! it reads: `windlass import`) · `transfer` (`windlass bridge`: works an old broker empty into a running daemon).
//!
//! The binary's configuration names all protocols. This crate needs the parts in [`Configured`]; a function of the
//! binary makes them of the options that an import was given.

mod configured;
#[cfg(test)]
mod fixture;
mod import;
pub mod intake;
mod transfer;

pub use self::configured::Configured;
pub use self::import::snapshot;
#[cfg(feature = "sqlite")]
pub use self::import::take_over;
pub use self::import::{Import, run};
pub use self::transfer::Bridge;
