//! The `hermod` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    hermod::cli::main()
}
