//! `windlass faktory`, also reached through a link named `faktory`: accepts Faktory's command line, variables and
//! configuration directory, so that unit files and containers work unchanged.
//!
//! Reading order: `options` (every Faktory setting and its effect) · `parse` (its command line) · `conf` (its `conf.d`)
//! · `plan` (all of that to a configuration) · here, the order of the steps.

mod conf;
mod options;
mod parse;
mod plan;

use windlass_config::Failure;
use windlass_daemon::logging;
use windlass_faktory::session::FAKTORY_VERSION;

use self::options::help;
use self::parse::parse;
use self::plan::Plan;
use crate::call::{Call, print, print_error};
use crate::plan::{Error, exit_code};
use crate::world::World;

/// The name of the sub-command. A link to this program whose name ends in it starts the sub-command.
pub(crate) const NAME: &str = "faktory";

/// The exit code after invalid Faktory settings.
const USAGE: u8 = 2;

/// Runs the command and returns the exit code.
///
/// # Errors
/// As `windlass serve`.
pub(crate) fn run(call: &Call) -> Result<u8, Failure> {
    exit_code(attempt(call), call, USAGE)
}

fn attempt(call: &Call) -> Result<u8, Error> {
    let given = call
        .texts()
        .and_then(|words| parse(&words))
        .map_err(Error::Usage)?;
    if given.has("h") {
        return Ok(print(&help(&call.argv0)));
    }
    if given.has("v") {
        return Ok(print(&version()));
    }
    let Plan { config, warnings } = Plan::new(&given, &World::around())?;
    warnings
        .iter()
        .for_each(|warning| print_error(&call.argv0, warning));
    logging::init(&config.log).map_err(|error| Error::Failure(error.into()))?;
    warnings
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    let reread = || Ok(Plan::new(&given, &World::around())?.config.for_server());
    windlass_daemon::run(&config.for_server(), reread, || Ok(()))
        .map(|()| 0)
        .map_err(Error::Failure)
}

fn version() -> String {
    format!(
        "Faktory {FAKTORY_VERSION} - Windlass {}\n",
        env!("CARGO_PKG_VERSION")
    )
}
