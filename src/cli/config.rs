//! `hermod config`: shows the settings with their sources; or checks them, with the providers and credentials that they
//! name.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{CliError, operate, print, print_json, providers};
use crate::{
    config::{Config, Setting, SettingOrigin, UserFile, redacted},
    discovery::{DiscoveredProvider, Variables},
    host,
};

/// The configuration
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Read it as a run would, and say what is wrong with it
    Check,
    /// Let the service read it again, for new runs; a bad one is refused, and the present one stays
    Reload {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show your own settings, each with where it is set; never a secret
    Show {
        /// All settings, the defaults too
        #[arg(long)]
        effective: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Output of `config show` if no key is set.
const NOTHING_SET: &str =
    "# nothing is set: every key has its default, which `hermod config show --effective` prints";

/// Checks or shows the configuration.
pub(crate) async fn execute(args: ConfigArgs, variables: &Variables) -> Result<(), CliError> {
    if let ConfigCommand::Reload { json } = args.command {
        return operate::reload(json, &host::StoreClient::new(variables)?).await;
    }
    let config = Config::read(variables)?;
    match args.command {
        ConfigCommand::Reload { .. } => Ok(()),
        ConfigCommand::Check => check(&config, variables).await,
        ConfigCommand::Show { effective, json } => {
            let is_listed = |setting: &Setting| effective || setting.origin != SettingOrigin::Default;
            let settings: Vec<_> = config.settings.iter().filter(|(_, setting)| is_listed(setting)).collect();
            match (json, settings.is_empty()) {
                (true, _) => print_json(&settings_json(&config, &settings)),
                (false, true) => print(NOTHING_SET),
                (false, false) => print(&format_settings(&settings)),
            }
        }
    }
}

async fn check(config: &Config, variables: &Variables) -> Result<(), CliError> {
    let mut report = match (config.files.as_slice(), UserFile::of(variables)) {
        ([], Some(file)) => vec![format!("file      {}: there is none", file.path().display())],
        ([], None) => {
            vec!["file      none: neither HERMOD_CONFIG, XDG_CONFIG_HOME nor HOME is set".to_owned()]
        }
        (files, _) => files.iter().map(|file| format!("file      {}", file.display())).collect(),
    };
    report.extend(config.settings.values().filter_map(|setting| match &setting.origin {
        SettingOrigin::Variable(name) => Some(format!("variable  {name}")),
        SettingOrigin::Default | SettingOrigin::File { .. } => None,
    }));
    let providers = host::discover(config, variables, host::OllamaProbe::of(config)).await;
    let provider_line = |provider: &DiscoveredProvider| {
        format!("provider  {}: {}", provider.name, providers::credentials(provider, variables))
    };
    report.extend(providers.iter().map(provider_line));
    print(&report.join("\n"))?;
    host::check_config(config, variables, (&providers, &host::state_dir(variables)?))?;
    print("ok")
}

/// The settings as a TOML file, one `key = value  # origin` per line.
fn format_settings(settings: &[(&String, &Setting)]) -> String {
    let width = |(key, setting): &(&String, &Setting)| format_setting(key, setting).chars().count();
    let width = settings.iter().map(width).max().unwrap_or(0).min(60);
    let lines = settings
        .iter()
        .map(|(key, setting)| format!("{:<width$}  # {}\n", format_setting(key, setting), setting.origin));
    lines.collect::<Vec<_>>().concat()
}

fn format_setting(key: &str, setting: &Setting) -> String {
    let value = redacted(key, &setting.value).map_or_else(String::new, |value| value.to_string());
    format!("{key} = {value}")
}

fn settings_json(config: &Config, settings: &[(&String, &Setting)]) -> Value {
    let setting = |(key, setting): &(&String, &Setting)| {
        let value = redacted(key, &setting.value);
        json!({ "key": key, "value": value, "origin": setting.origin.to_string() })
    };
    let files: Vec<_> = config.files.iter().map(|file| file.display().to_string()).collect();
    json!({ "files": files, "settings": settings.iter().map(setting).collect::<Vec<_>>() })
}
