use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use hermod_actors::Visible;

use super::{Source, split};
use crate::tool::{Place, one_line, resolve};

/// The file that makes a folder a skill.
const FILE: &str = "SKILL.md";
/// Where a workspace has skills.
const IN_WORKSPACE: &str = ".hermod/skills";
/// Bytes within which a front matter must end.
const HEAD: usize = 32 * 1024;
/// Folders that are looked at in one place, by their names.
const FOLDERS: usize = 1_000;

/// Where skills are, besides those of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SkillFolders {
    /// The operator's own; those of the workspace come behind it.
    pub own: Option<PathBuf>,
    /// Further ones, behind those.
    pub further: Vec<PathBuf>,
}

/// A skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// What it is for, on one line.
    pub description: String,
    /// The real path of its folder.
    pub folder: PathBuf,
}

/// What skills there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalogue {
    /// By their names; each name once.
    pub skills: Vec<Skill>,
    /// What looks like a skill and is none, and why.
    pub left_out: Vec<String>,
}

impl SkillFolders {
    /// Looks for skills. Of two with one name the first counts.
    pub fn read(&self, workspace: &str) -> Catalogue {
        let (mut found, mut left_out) = (BTreeMap::new(), Vec::new());
        let own = self.own.iter().map(|path| Shelf::Free(path));
        let further = self.further.iter().map(|path| Shelf::Free(path));
        for shelf in own.chain([Shelf::Bound(workspace)]).chain(further) {
            let names = shelf.names().unwrap_or_else(|error| {
                left_out.push(format!("{}: {error}", shelf.shown()));
                Vec::new()
            });
            if names.len() > FOLDERS {
                left_out.push(format!("{}: only its first {FOLDERS} entries are looked at", shelf.shown()));
            }
            for name in names.iter().take(FOLDERS) {
                match shelf.skill(name) {
                    Ok(Some(skill)) => drop(found.entry(skill.name.clone()).or_insert(skill)),
                    Ok(None) => {}
                    Err(why) => {
                        left_out.push(format!("{}/{}: {why}", shelf.shown(), one_line(name.as_bytes())));
                    }
                }
            }
        }
        Catalogue { skills: found.into_values().collect(), left_out }
    }
}

impl Catalogue {
    /// The skill of that name.
    pub fn get(&self, name: &str) -> Option<&Skill> {
        self.skills.iter().find(|skill| skill.name == name)
    }

    /// The names, for whoever asked for one that there is not.
    pub fn names(&self) -> String {
        self.skills.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl Skill {
    /// A file of it, `SKILL.md` if none is named.
    pub(in crate::tool) fn file(&self, path: Option<&str>) -> Option<Place> {
        place(&self.folder, path.unwrap_or(FILE)).ok()
    }
}

/// A folder that holds skills.
enum Shelf<'a> {
    /// The operator's: its symlinks are followed.
    Free(&'a Path),
    /// That of a workspace, which nothing may lead out of.
    Bound(&'a str),
}

impl Shelf<'_> {
    fn shown(&self) -> String {
        match self {
            Self::Free(path) => one_line(path.as_os_str().as_encoded_bytes()),
            Self::Bound(_) => IN_WORKSPACE.to_owned(),
        }
    }

    /// What is in it that can be named, sorted; nothing if it is not there.
    fn names(&self) -> Result<Vec<String>, String> {
        let folder = match self {
            Self::Free(path) => path.to_path_buf(),
            Self::Bound(workspace) => {
                let Ok(true) = Path::new(workspace).join(IN_WORKSPACE).try_exists() else {
                    return Ok(Vec::new());
                };
                resolve(workspace, "folder", IN_WORKSPACE).map_err(|bad| bad.error)?.absolute()
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

    /// The skill in the folder of that name; `None` if it holds none.
    fn skill(&self, name: &str) -> Result<Option<Skill>, String> {
        let folder = match self {
            Self::Free(path) => path.join(name),
            Self::Bound(workspace) => Path::new(workspace).join(IN_WORKSPACE).join(name),
        };
        if folder.join(FILE).symlink_metadata().is_err() {
            return Ok(None);
        }
        let folder = match self {
            Self::Free(_) => folder.canonicalize().map_err(|error| error.to_string())?,
            Self::Bound(workspace) => {
                let path = format!("{IN_WORKSPACE}/{name}");
                resolve(workspace, "folder", &path).map_err(|bad| bad.error)?.absolute()
            }
        };
        let source = Source::read(&place(&folder, FILE)?, HEAD)?;
        let text = String::from_utf8_lossy(&source.head);
        let (said, _) = split(&text)?;
        let description = one_line(Visible::text(&said.description).as_bytes());
        Ok(Some(Skill { name: said.name, description, folder }))
    }
}

/// A place in the folder of a skill; nothing leads out of it.
fn place(folder: &Path, path: &str) -> Result<Place, String> {
    let root = folder.to_str().ok_or("its path is not UTF-8; use another name")?;
    resolve(root, "path", path).map_err(|bad| bad.error)
}
