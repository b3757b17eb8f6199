//! `hermod completions`: a script with which a shell completes hermod's command line.

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use clap_complete::{Shell, generate};

use super::{CliError, command, print};

/// Print a script that completes hermod's command line
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell, such as in `source <(hermod completions bash)`
    #[arg(value_parser = PossibleValuesParser::new(["bash", "zsh", "fish"]).try_map(|name| name.parse::<Shell>()))]
    shell: Shell,
}

pub(crate) fn execute(args: &CompletionsArgs) -> Result<(), CliError> {
    let mut script = Vec::new();
    generate(args.shell, &mut command(), "hermod", &mut script);
    print(&String::from_utf8_lossy(&script))
}
