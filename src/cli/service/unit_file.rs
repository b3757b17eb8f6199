//! Writes the file of a unit, without the loss of another one.

use std::{fs, io, path::Path};

use crate::{
    cli::CliError,
    files::{self, IoResult as _},
};

/// Most bytes of a unit that is compared.
const MAX_UNIT_BYTES: u64 = 1 << 20;

/// Writes the unit, in one step. A unit that was changed is not overwritten without `force`.
pub(super) fn write_unit(path: &Path, unit: &str, force: bool) -> Result<(), CliError> {
    let difference = match files::read_regular_text(path, MAX_UNIT_BYTES) {
        Ok(present) if present == unit => None,
        Ok(_) => Some("there is another unit; compare it with --print".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // What cannot be read may be a file of another program.
        Err(error) => Some(format!("there is something that is no unit that can be read: {error}")),
    };
    if let Some(difference) = difference.filter(|_| !force) {
        let path = path.display();
        return Err(CliError::usage(format!("{path}: {difference}, and replace it with --force")));
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).at(folder)?;
    }
    files::replace(path, &path.with_extension("service.part"), unit.as_bytes()).at(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_was_changed_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("systemd/user/hermod.service");
        let unit = || fs::read_to_string(&path).unwrap();
        write_unit(&path, "one", false).unwrap();
        write_unit(&path, "one", false).unwrap();
        let refused = write_unit(&path, "two", false).unwrap_err();
        assert!(refused.text.contains("--force"), "{refused}");
        assert_eq!(unit(), "one");
        write_unit(&path, "two", true).unwrap();
        assert_eq!((unit().as_str(), fs::read_dir(path.parent().unwrap()).unwrap().count()), ("two", 1));
        // What cannot be read is not taken for absent.
        fs::write(&path, b"\xff").unwrap();
        let refused = write_unit(&path, "two", false).unwrap_err();
        assert!(refused.text.contains("--force"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"\xff");
        write_unit(&path, "two", true).unwrap();
        assert_eq!(unit(), "two");
    }
}
