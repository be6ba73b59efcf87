//! The binary `windlass`: arguments in, exit code out. What it does is in `windlass-server`.

mod arguments;
mod call;
mod commands;
mod faktory;
mod gearmand;
mod import;
mod settings;
mod world;

use std::io::{self, Write as _};
use std::panic::{self, UnwindSafe};
use std::process::ExitCode;

use windlass_server::Failure;

use crate::call::Call;

/// The daemon allocates often, small, and from many threads.
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
        Err(help_or_mistake) => arguments::answer(&help_or_mistake).into(),
    }
}

/// Runs, says what went wrong, and gives back what to exit with. A panic has been told by its hook.
fn conclude(run: impl FnOnce() -> Result<u8, Failure> + UnwindSafe) -> u8 {
    match panic::catch_unwind(run) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => {
            // Standard error may be closed; the exit code still says it.
            let _ = writeln!(io::stderr(), "windlass: {failure}");
            failure.exit_code()
        }
        Err(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_code() {
        assert_eq!(conclude(|| Ok(0)), 0);
        assert_eq!(conclude(|| Err(Failure::Runtime("the store is dead".to_owned()))), 1);
        assert_eq!(conclude(|| panic!("a bug")), 1);
    }
}
