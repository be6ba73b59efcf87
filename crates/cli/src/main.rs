//! The binary `windlass`: arguments in, exit code out. `windlass-daemon` does the work.

mod arguments;
mod call;
mod commands;
mod completion;
mod config;
mod explain;
mod faktory;
mod foreign;
mod gearmand;
mod logins;
mod plan;
mod settings;
mod world;

use std::panic::{self, UnwindSafe};
use std::process::ExitCode;

use windlass_config::Failure;
use windlass_daemon::logging;

use crate::call::Call;

/// The daemon makes frequent, small allocations from many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(call) = Call::through_link(std::env::args_os(), gearmand::NAME) {
        return conclude(|| gearmand::run(&call)).into();
    }
    if let Some(call) = Call::through_link(std::env::args_os(), faktory::NAME) {
        return conclude(|| faktory::run(&call)).into();
    }
    match arguments::parse(std::env::args_os()) {
        Ok(command) => conclude(|| commands::run(command)).into(),
        Err(mistake) if mistake.use_stderr() && arguments::is_live_check(std::env::args_os()) => {
            windlass_operate::not_checked(
                arguments::reason(&mistake)
                    .lines()
                    .next()
                    .unwrap_or_default(),
            )
            .into()
        }
        Err(help_or_mistake) => arguments::answer(&help_or_mistake).into(),
    }
}

/// Runs a command, prints its error and returns the exit code. A panic has been reported by its hook.
fn conclude(run: impl FnOnce() -> Result<u8, Failure> + UnwindSafe) -> u8 {
    let code = match panic::catch_unwind(run) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => {
            // Standard error may be closed; the exit code still reports the failure.
            logging::say(&format!("windlass: {failure}\n"));
            failure.exit_code()
        }
        Err(_) => 1,
    };
    logging::flush();
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_exit_code() {
        assert_eq!(conclude(|| Ok(0)), 0);
        assert_eq!(
            conclude(|| Err(Failure::Runtime("the store failed".to_owned()))),
            1
        );
        assert_eq!(conclude(|| panic!("a bug")), 1);
    }
}
