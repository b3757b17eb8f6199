//! Finds and reads the user's configuration file; the only I/O of `config`.

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use super::{
    error::{ConfigErrors, SettingError},
    load::ConfigFile,
    sections::Config,
};
use crate::files::read_regular_text;

/// Limit of a configuration file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The path of the user's configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserFile {
    /// Named by `HERMOD_CONFIG`; the file must exist.
    Named(PathBuf),
    /// The default path; the file may be missing.
    Default(PathBuf),
}

impl UserFile {
    /// `$HERMOD_CONFIG`, else `$XDG_CONFIG_HOME/hermod/hermod.toml`, else `~/.config/hermod/hermod.toml`.
    pub fn of(variables: &BTreeMap<String, String>) -> Option<Self> {
        let non_empty = |key: &str| variables.get(key).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(path) = non_empty("HERMOD_CONFIG") {
            return Some(Self::Named(path));
        }
        let folder = non_empty("XDG_CONFIG_HOME").or_else(|| Some(non_empty("HOME")?.join(".config")))?;
        Some(Self::Default(folder.join("hermod/hermod.toml")))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Named(path) | Self::Default(path) => path,
        }
    }

    fn read(&self) -> Result<Option<ConfigFile>, SettingError> {
        let path = self.path().to_owned();
        match (read_regular_text(&path, MAX_BYTES), self) {
            (Ok(text), _) => Ok(Some(ConfigFile { path, text })),
            (Err(error), Self::Default(_)) if error.kind() == ErrorKind::NotFound => Ok(None),
            (Err(error), _) => Err(SettingError::unreadable(&path, error)),
        }
    }
}

impl Config {
    /// Reads the user's file and loads the configuration.
    pub fn read(variables: &BTreeMap<String, String>) -> Result<Self, ConfigErrors> {
        let file = match UserFile::of(variables) {
            Some(file) => file.read()?,
            None => None,
        };
        Self::load(file.as_slice(), variables)
    }
}
