//! `hermod init`: writes a first configuration, by asking or by what the environment has. It never writes a secret, only
//! where one is read from.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use clap::Args;

use super::{CliError, Exit, examples, print, print_note};
use crate::{
    config::{Config, ConfigFile, OLLAMA, UserFile, VENDORS},
    discovery::{DiscoveredProvider, Variables},
    files::{IoResult as _, make, make_folder, off_thread},
    host::{OllamaProbe, discover},
    secret::Reference,
};

/// Write a first configuration: which model is asked, and where its key is read from
///
/// It asks at a terminal. The file is $HERMOD_CONFIG, else ~/.config/hermod/hermod.toml, readable by you alone.
#[derive(Debug, Args)]
#[command(after_help = examples::INIT)]
pub(crate) struct InitArgs {
    /// Ask nothing: take the first provider whose key is in the environment, else a local Ollama
    #[arg(long)]
    yes: bool,
    /// Replace a file that exists
    #[arg(long)]
    force: bool,
}

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FirstConfig {
    /// The name of a vendor, or of the local Ollama.
    provider: String,
    model: String,
    /// Where the key is read from; `None` if there is none.
    credential: Option<String>,
}

impl FirstConfig {
    /// The first configuration for a provider that was found.
    fn of(provider: &DiscoveredProvider) -> Option<Self> {
        Some(Self {
            provider: provider.name.to_string(),
            model: provider.model.as_ref().ok()?.to_string(),
            credential: provider.account.credentials.first().map(ToString::to_string),
        })
    }

    /// The text of the file.
    fn text(&self) -> String {
        let Self { provider, model, credential } = self;
        let model = toml_text(&format!("{provider}/{model}"));
        let mut text = format!(
            "# Hermod's configuration: what differs from the defaults, which `hermod config show --effective` prints.\n\n\
             # The model of a run that names none: \"provider/model\".\nmodel = {model}\n"
        );
        if let Some(credential) = credential {
            let section = format!(
                "\n[providers.{provider}]\n# Where the key is read from: env:NAME, file:PATH or command:PROGRAM. A key itself is \
                 refused.\ncredential = {}\n",
                toml_text(credential)
            );
            text.push_str(&section);
        }
        text
    }
}

/// A text as TOML writes it; the escapes of JSON are among those of TOML.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Writes the file, and names the next command.
pub(crate) async fn execute(args: &InitArgs, variables: &Variables) -> Result<(), CliError> {
    let path = UserFile::of(variables).map(|file| file.path().to_owned()).ok_or_else(|| CliError {
        exit: Exit::Config,
        text: "there is no place for the file: set HERMOD_CONFIG, XDG_CONFIG_HOME or HOME".to_owned(),
    })?;
    if path.exists() && !args.force {
        let text = format!("{} exists; --force replaces it, `hermod config check` checks it", path.display());
        return Err(CliError::usage(text));
    }
    let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !args.yes && !is_terminal {
        let text = "there is no terminal to ask at; --yes takes what the environment has";
        return Err(CliError::usage(text));
    }
    // The file is about to be written: an unusable one must not be in the way.
    let defaults = Config::load(&[], variables)?;
    let found = discover(&defaults, variables, OllamaProbe::Requested).await;
    let found: Vec<_> = found.iter().filter_map(FirstConfig::of).collect();
    let first = if args.yes { found.into_iter().next().ok_or_else(no_provider)? } else { ask(found).await? };
    let text = first.text();
    Config::load(&[ConfigFile { path: path.clone(), text: text.clone() }], variables)?;
    let written = (path.clone(), args.force);
    off_thread(move || write(&written.0, &text, written.1)).await.at(&path)?;
    print(&format!("wrote {}: {}/{}", path.display(), first.provider, first.model))?;
    print_note("next      `hermod doctor` examines it, and `hermod run \"Say hello\"` begins");
    Ok(())
}

fn no_provider() -> CliError {
    let keys: Vec<_> = VENDORS.iter().map(|vendor| vendor.key).collect();
    CliError {
        exit: Exit::Config,
        text: format!(
            "there is no key in the environment ({}), and no Ollama with a model at 127.0.0.1:11434; set one of them, or \
             start it, and try again",
            keys.join(", ")
        ),
    }
}

/// Writes the file for this user alone.
fn write(path: &Path, text: &str, replaces: bool) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
        make_folder(folder)?;
    }
    if !replaces {
        return make(path)?.write_all(text.as_bytes());
    }
    let part = PathBuf::from(format!("{}.part", path.display()));
    crate::files::remove(&part)?;
    make(&part)?.write_all(text.as_bytes())?;
    fs::rename(part, path)
}

/// Asks for the provider, the model, and where the key is.
async fn ask(found: Vec<FirstConfig>) -> Result<FirstConfig, CliError> {
    let mut choices = found;
    let is_found = choices.len();
    for vendor in VENDORS {
        if choices.iter().all(|choice| choice.provider != vendor.name) {
            choices.push(FirstConfig {
                provider: vendor.name.to_owned(),
                model: vendor.model.to_owned(),
                credential: Some(format!("env:{}", vendor.key)),
            });
        }
    }
    for (n, choice) in (1..).zip(&choices) {
        let source = match &choice.credential {
            _ if choice.provider == OLLAMA => "on this machine".to_owned(),
            Some(credential) if n <= is_found => format!("its key is in {credential}"),
            Some(credential) => format!("its key would be in {credential}, which is not set"),
            None => "without a key".to_owned(),
        };
        print_note(format!("{n}  {}: {source}", choice.provider));
    }
    let choice = loop {
        let answer = read_answer("Which provider", "1").await?;
        let number = answer.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let by_name = || choices.iter().position(|choice| choice.provider == answer);
        match number.filter(|number| *number < choices.len()).or_else(by_name) {
            Some(number) => break choices.swap_remove(number),
            None => print_note(format!("give a number from 1 to {}", choices.len())),
        }
    };
    let model = read_answer("Which model", &choice.model).await?;
    let credential = match &choice.credential {
        None => None,
        Some(proposed) => Some(ask_for_credential(proposed).await?),
    };
    Ok(FirstConfig { provider: choice.provider, model, credential })
}

/// Asks where the key is. A key itself is refused, and not repeated.
async fn ask_for_credential(proposed: &str) -> Result<String, CliError> {
    loop {
        let answer = read_answer("Where is its key read from (env:NAME or file:PATH)", proposed).await?;
        match answer.parse::<Reference>() {
            Ok(reference @ (Reference::Variable(_) | Reference::File(_))) => return Ok(reference.to_string()),
            Ok(Reference::Command(_)) | Err(_) => {
                print_note("give env:NAME or file:PATH: the key itself does not belong into the file");
            }
        }
    }
}

/// A line from the terminal; an empty one is the default.
async fn read_answer(question: &str, default: &str) -> Result<String, CliError> {
    print_note(format!("{question} [{default}]?"));
    let read = off_thread(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|length| (length, line))
    });
    let (length, line) =
        read.await.map_err(|error| CliError::internal(format!("the terminal cannot be read: {error}")))?;
    if length == 0 {
        return Err(CliError::usage("the terminal was closed before the last answer; nothing was written"));
    }
    let line = line.trim();
    Ok(if line.is_empty() { default.to_owned() } else { line.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_loaded_and_has_no_secret() {
        let variables = Variables::from([("OPENAI_API_KEY".to_owned(), "sk-0123456789abcdef".to_owned())]);
        for (provider, credential) in
            [("openai", Some("env:OPENAI_API_KEY")), ("anthropic", Some("file:/k\"ey")), (OLLAMA, None)]
        {
            let first = FirstConfig {
                provider: provider.to_owned(),
                model: "a/b:1".to_owned(),
                credential: credential.map(str::to_owned),
            };
            let text = first.text();
            let file = ConfigFile { path: "c".into(), text: text.clone() };
            let config = Config::load(&[file], &variables).unwrap();
            assert_eq!(config.model.0.as_deref(), Some(&*format!("{provider}/a/b:1")));
            let references: Vec<_> = config.secret_references().map(ToString::to_string).collect();
            assert_eq!(references, credential.into_iter().collect::<Vec<_>>());
            assert!(!text.contains("sk-0123"), "{text}");
        }
    }
}
