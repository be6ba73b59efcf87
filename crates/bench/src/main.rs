//! `windlass-bench`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_bench::compare()
}
