//! `hermod completions`: a script with which a shell completes hermod's command line.

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};

use super::{Cli, exit::CliError, output::print};

/// Print a script that completes hermod's command line
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell, such as in `source <(hermod completions bash)`
    shell: SupportedShell,
}

/// The shells that are supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SupportedShell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn execute(args: &CompletionsArgs) -> Result<(), CliError> {
    let shell = match args.shell {
        SupportedShell::Bash => Shell::Bash,
        SupportedShell::Zsh => Shell::Zsh,
        SupportedShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "hermod", &mut script);
    print(&String::from_utf8_lossy(&script))
}
