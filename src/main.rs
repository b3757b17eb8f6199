//! The `hermod` program; its code is in `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    hermod::cli::main()
}
