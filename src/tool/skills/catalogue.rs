//! Finds the skills in the configured folders and the workspace, and the files in a skill's folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use hermod_actors::SanitizedText;

use super::{DeclaredVariables, FileExcerpt, split};
use crate::tool::{WorkspacePath, one_line, resolve};

/// The file that makes a folder a skill.
const SKILL_FILE: &str = "SKILL.md";
/// The folder of a workspace's skills.
const WORKSPACE_FOLDER: &str = ".hermod/skills";
/// The front matter must end within these bytes.
const HEAD_BYTES: usize = 32 * 1024;
/// Entries examined per folder, in order of names.
const MAX_FOLDERS: usize = 1_000;

/// Folders of skills, besides that of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SkillFolders {
    /// The operator's folder, which precedes the workspace's.
    pub own: Option<PathBuf>,
    /// Further folders, after the workspace's.
    pub further: Vec<PathBuf>,
    /// Paths besides the workspace that commands may write: what skills in there declare is not trusted.
    pub writable: Vec<PathBuf>,
    /// Names of variables that no skill gets, beside those that are never passed: they hold credentials.
    pub withheld: BTreeSet<String>,
    /// True if there are no skills, whatever the folders have.
    pub is_off: bool,
}

/// A skill of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Name of the skill.
    pub name: String,
    /// Purpose of the skill, on one line.
    pub description: String,
    /// The real path of the skill's folder.
    pub folder: PathBuf,
    /// The variables that the skill declares for commands.
    pub variables: DeclaredVariables,
}

/// The skills that were found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalogue {
    /// Skills sorted by name; each name is unique.
    pub skills: Vec<Skill>,
    /// Reasons for the folders that are not valid skills.
    pub left_out: Vec<String>,
}

impl SkillFolders {
    /// Reads all skills. The first one of a name takes precedence.
    pub fn read(&self, workspace: &str) -> Catalogue {
        self.read_with(Some(workspace))
    }

    /// Reads the skills outside of all workspaces.
    pub fn read_operators(&self) -> Catalogue {
        self.read_with(None)
    }

    fn read_with(&self, workspace: Option<&str>) -> Catalogue {
        if self.is_off {
            return Catalogue::default();
        }
        let (mut found, mut left_out) = (BTreeMap::new(), Vec::new());
        let operators = self.own.iter().map(|path| SkillRoot::Trusted(path));
        let further = self.further.iter().map(|path| SkillRoot::Trusted(path));
        for root in operators.chain(workspace.map(SkillRoot::Confined)).chain(further) {
            let names = root.names().unwrap_or_else(|error| {
                left_out.push(format!("{}: {error}", root.display()));
                Vec::new()
            });
            if names.len() > MAX_FOLDERS {
                left_out
                    .push(format!("{}: only its first {MAX_FOLDERS} entries are looked at", root.display()));
            }
            for name in names.iter().take(MAX_FOLDERS) {
                match root.skill(name, |folder, env| self.judge(&root, folder, workspace, env)) {
                    Ok(Some(skill)) => drop(found.entry(skill.name.clone()).or_insert(skill)),
                    Ok(None) => {}
                    Err(why) => {
                        left_out.push(format!("{}/{}: {why}", root.display(), one_line(name.as_bytes())));
                    }
                }
            }
        }
        Catalogue { skills: found.into_values().collect(), left_out }
    }

    fn judge(
        &self,
        root: &SkillRoot<'_>,
        folder: &Path,
        workspace: Option<&str>,
        env: Vec<String>,
    ) -> DeclaredVariables {
        if env.is_empty() {
            return DeclaredVariables::default();
        }
        let is_confined = matches!(root, SkillRoot::Confined(_));
        match is_confined || self.is_writable(folder, workspace.map(Path::new)) {
            true => DeclaredVariables::Untrusted,
            false => DeclaredVariables::judged(env, &self.withheld),
        }
    }

    /// True if commands or file tools may write a part of the skill's folder. They never write to the operator's folder,
    /// also if the workspace is above it.
    fn is_writable(&self, folder: &Path, workspace: Option<&Path>) -> bool {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let overlaps = |path: &Path| {
            let path = real(path);
            folder.starts_with(&path) || path.starts_with(folder)
        };
        let is_own = self.own.as_deref().is_some_and(|own| folder.starts_with(real(own)));
        self.writable.iter().any(|path| overlaps(path)) || !is_own && workspace.is_some_and(overlaps)
    }
}

impl Catalogue {
    /// The skill with this name.
    pub fn get(&self, name: &str) -> Option<&Skill> {
        self.skills.iter().find(|skill| skill.name == name)
    }

    /// All names in one line, for an error.
    pub fn names(&self) -> String {
        self.skills.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl Skill {
    /// The path of a file in the skill's folder; `SKILL.md` by default. `None` if it is outside or cannot be resolved.
    pub(in crate::tool) fn file(&self, path: Option<&str>) -> Option<WorkspacePath> {
        resolve_in(&self.folder, path.unwrap_or(SKILL_FILE)).ok()
    }
}

/// A folder that contains skills.
enum SkillRoot<'a> {
    /// The operator's folder: its symlinks are followed.
    Trusted(&'a Path),
    /// A workspace, out of which no path may lead.
    Confined(&'a str),
}

impl SkillRoot<'_> {
    fn display(&self) -> String {
        match self {
            Self::Trusted(path) => one_line(path.as_os_str().as_encoded_bytes()),
            Self::Confined(_) => WORKSPACE_FOLDER.to_owned(),
        }
    }

    /// The sorted UTF-8 names in the folder; empty if the folder is missing.
    fn names(&self) -> Result<Vec<String>, String> {
        let folder = match self {
            Self::Trusted(path) => path.to_path_buf(),
            Self::Confined(workspace) => {
                let Ok(true) = Path::new(workspace).join(WORKSPACE_FOLDER).try_exists() else {
                    return Ok(Vec::new());
                };
                resolve(workspace, "folder", WORKSPACE_FOLDER).map_err(|bad| bad.error)?.absolute()
            }
        };
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| error.to_string())?,
        };
        let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
        let names: io::Result<Vec<_>> = names.filter_map(Result::transpose).collect();
        let mut names = names.map_err(|error| error.to_string())?;
        names.sort_unstable();
        Ok(names)
    }

    /// The skill in the folder `name`, with what `judge` takes of its variables; `None` without a `SKILL.md`.
    fn skill(
        &self,
        name: &str,
        judge: impl FnOnce(&Path, Vec<String>) -> DeclaredVariables,
    ) -> Result<Option<Skill>, String> {
        let folder = match self {
            Self::Trusted(path) => path.join(name),
            Self::Confined(workspace) => Path::new(workspace).join(WORKSPACE_FOLDER).join(name),
        };
        if folder.join(SKILL_FILE).symlink_metadata().is_err() {
            return Ok(None);
        }
        let folder = match self {
            Self::Trusted(_) => folder.canonicalize().map_err(|error| error.to_string())?,
            Self::Confined(workspace) => {
                let path = format!("{WORKSPACE_FOLDER}/{name}");
                resolve(workspace, "folder", &path).map_err(|bad| bad.error)?.absolute()
            }
        };
        let source = FileExcerpt::read(&resolve_in(&folder, SKILL_FILE)?, HEAD_BYTES)?;
        let text = String::from_utf8_lossy(&source.head);
        let (front_matter, _) = split(&text)?;
        let description = one_line(SanitizedText::sanitize(&front_matter.description).as_bytes());
        let variables = judge(&folder, front_matter.env);
        Ok(Some(Skill { name: front_matter.name, description, folder, variables }))
    }
}

/// A path in the folder of a skill; a path that leads out of it is an error.
fn resolve_in(folder: &Path, path: &str) -> Result<WorkspacePath, String> {
    let root = folder.to_str().ok_or("its path is not UTF-8; use another name")?;
    resolve(root, "path", path).map_err(|bad| bad.error)
}
