//! Dangers to files: deleting them, and opening them to all users.

use super::{DangerRule, Invocation};
use crate::policy::command::feed::NEW_TEMPORARY;

pub(super) const RULES: &[DangerRule] = &[
    DangerRule {
        name: "recursive-delete",
        programs: &["rm", "srm", "trash", "del", "erase", "rd", "rmdir"],
        matches: |c| {
            (c.has_option("rR", "recursive") && !c.operands().all(is_build_product))
                || is_windows_recursive(c)
        },
        why: "deletes folders with all that is in them",
    },
    DangerRule {
        name: "forced-delete",
        programs: &["rm", "srm", "del", "erase"],
        matches: |c| {
            let is_forced = c.has_option("f", "force") || c.has(&["/f", "/F", "/q", "/Q"]);
            is_forced
                && !c.operands().all(is_build_product)
                && (c.has_option("rR", "recursive") || !c.operands().all(is_named_file))
        },
        why: "deletes files without asking",
    },
    DangerRule {
        name: "wide-delete",
        programs: &["rm", "srm", "unlink", "shred", "del"],
        matches: |c| c.name == "shred" || c.operands().any(is_wide),
        why: "deletes files that it does not name one by one",
    },
    DangerRule {
        name: "find-delete",
        programs: &["find", "fd", "fdfind"],
        matches: find_deletes,
        why: "deletes all files that a search finds",
    },
    DangerRule {
        name: "open-permissions",
        programs: &["chmod"],
        matches: |c| c.operands().next().is_some_and(opens_to_all) || c.has(&["--reference"]),
        why: "lets every user write",
    },
    DangerRule {
        name: "set-user-id",
        programs: &["chmod", "install"],
        matches: |c| c.words().any(sets_user_id),
        why: "makes a program run with the rights of its owner",
    },
    DangerRule {
        name: "recursive-permissions",
        programs: &["chmod", "chown", "chgrp", "chattr", "setfacl"],
        matches: |c| {
            c.has_option("R", "recursive") && (c.name != "chmod" || c.operands().skip(1).any(is_outside))
        },
        why: "changes owners or permissions of whole folders",
    },
    DangerRule {
        name: "sync-delete",
        programs: &["rsync", "rclone", "aws", "gsutil", "mc"],
        matches: |c| match c.name {
            "rsync" => {
                let is_product = c.operands().next_back().is_some_and(is_build_product);
                c.begins(&["--remove-source"]) || (c.begins(&["--del"]) && !is_product)
            }
            "rclone" => c.is_verb(&["sync", "purge", "delete", "deletefile", "move"]),
            "aws" => c.has(&["rm", "rb", "--delete"]) && c.has(&["s3"]),
            _ => c.has(&["rm", "rb", "-d", "--remove"]),
        },
        why: "deletes what is not in the source",
    },
    DangerRule {
        name: "truncate",
        programs: &["truncate"],
        matches: |c| matches!(c.value(&["-s", "--size"]), Some("0")) || c.begins(&["-s0"]),
        why: "empties a file",
    },
    DangerRule {
        name: "archive-action",
        programs: &["tar", "zip", "rsync", "bsdtar", "gtar"],
        matches: |c| {
            c.begins(&[
                "--checkpoint-action",
                "--to-command",
                "--use-compress-program",
                "--rsh",
                "--unzip-command",
            ]) || (c.name == "tar" && c.has(&["-I", "-P", "--absolute-names", "--remove-files"]))
                || (c.name == "zip" && c.has(&["-T", "-TT", "-m"]))
        },
        why: "runs a program for each file, or leaves the folder",
    },
    DangerRule {
        name: "crontab",
        programs: &["crontab", "at", "batch", "systemd-run"],
        matches: |c| c.name != "crontab" || !c.has(&["-l"]) || c.has(&["-r"]),
        why: "plans commands for later",
    },
];

fn is_windows_recursive(command: &Invocation<'_>) -> bool {
    matches!(command.name, "rd" | "rmdir" | "del" | "erase") && command.has(&["/s", "/S"])
}

/// Folders that builds and tests make, and make again.
const BUILD_PRODUCTS: &[&str] = &[
    "__pycache__",
    ".cache",
    ".eggs",
    ".gradle",
    ".mypy_cache",
    ".next",
    ".nox",
    ".nuxt",
    ".nyc_output",
    ".parcel-cache",
    ".pytest_cache",
    ".ruff_cache",
    ".svelte-kit",
    ".tox",
    ".turbo",
    ".venv",
    "build",
    "coverage",
    "dist",
    "htmlcov",
    "node_modules",
    "out",
    "target",
    "venv",
];
/// Files that builds make, by the ends of their names.
const BUILD_FILES: &[&str] = &["*.pyc", "*.pyo", "*.o", "*.obj", "*.class", "*.gcda", "*.gcno"];

/// True for what a build makes below the current folder, or what `mktemp` has made.
fn is_build_product(path: &str) -> bool {
    let path = path.strip_prefix("./").unwrap_or(path).trim_end_matches('/');
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_file = BUILD_FILES.iter().any(|pattern| name.ends_with(&pattern[1..]));
    let is_inside = path.split('/').any(|name| BUILD_PRODUCTS.contains(&name));
    let is_temporary =
        path.strip_prefix(NEW_TEMPORARY).is_some_and(|rest| rest.is_empty() || is_named_file(&rest[1..]));
    is_temporary || is_named_file(path) && (is_inside || name.ends_with(".egg-info") || is_file)
}

/// Whether the path names one thing below the current folder.
fn is_named_file(path: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "._-/+@ ".contains(c);
    !path.starts_with(['/', '~', '-'])
        && path.chars().all(is_plain)
        && path.split('/').all(|name| name != ".." && name != "." && !name.is_empty())
}

/// A wildcard for everything, a path out of the input, or an unknown one.
fn is_wide(path: &str) -> bool {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    matches!(name, "*" | ".*" | "*.*" | "." | "..") || path.contains('\u{fffc}') || path.contains("{}")
}

fn find_deletes(command: &Invocation<'_>) -> bool {
    let is_program = |word: &str| {
        matches!(
            word.rsplit('/').next().unwrap_or_default(),
            "rm" | "unlink" | "shred" | "srm" | "rmdir" | "mv" | "chmod" | "chown" | "truncate" | "dd"
        )
    };
    let runs = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
    if command.name == "find" && searched_build_product(command.arguments).is_some() {
        return false;
    }
    let mut words = command.words();
    if command.name == "find" && command.has(&["-delete", "-fprint", "-fprintf", "-fls", "-fprint0"]) {
        return true;
    }
    let ran = words.by_ref().skip_while(|word| !runs.contains(word)).skip(1);
    let mut ran = ran.skip_while(|word| matches!(*word, "sudo" | "env" | "nice" | "command"));
    ran.next().is_some_and(is_program)
}

/// A path that stands for the results of a search of `find`, if that is below the current folder and by the names of build
/// products alone.
pub(in crate::policy::command) fn searched_build_product(arguments: &[String]) -> Option<String> {
    let is_below = |path: &String| path == "." || is_named_file(path.strip_prefix("./").unwrap_or(path));
    let starts: Vec<_> = arguments.iter().take_while(|word| !word.starts_with(['-', '(', '!'])).collect();
    let others = ["-o", "-or", ",", "-fprint", "-fprintf", "-fls", "-fprint0"];
    let is_other = |word: &String| others.contains(&word.as_str());
    // A path that is left out makes the search narrower.
    let is_wide_negation =
        |pair: &[String]| matches!(&*pair[0], "!" | "-not") && !matches!(&*pair[1], "-path" | "-wholename");
    if starts.is_empty()
        || !starts.into_iter().all(is_below)
        || arguments.iter().any(is_other)
        || arguments.windows(2).any(is_wide_negation)
    {
        return None;
    }
    let name = arguments.windows(2).find(|pair| pair[0] == "-name").map(|pair| pair[1].as_str())?;
    let is_product = BUILD_PRODUCTS.contains(&name) || BUILD_FILES.contains(&name);
    is_product.then(|| format!("./{}", name.replace('*', "product")))
}

/// `777`, `0666`, `o+w`, `a+rwx`, `+w` for others.
fn opens_to_all(mode: &str) -> bool {
    let is_octal = mode.len() >= 3 && mode.bytes().all(|byte| byte.is_ascii_digit());
    if is_octal {
        return matches!(mode.as_bytes().last(), Some(b'2' | b'3' | b'6' | b'7'));
    }
    mode.split(',').any(|clause| {
        let Some(at) = clause.find(['+', '=']) else { return false };
        clause[..at].contains(['o', 'a']) && clause[at..].contains('w')
    })
}

/// `u+s`, `g+s`, `4755`.
fn sets_user_id(word: &str) -> bool {
    let mode = word.strip_prefix("-m").or(word.strip_prefix("--mode=")).unwrap_or(word);
    let octal = mode.strip_prefix('0').unwrap_or(mode);
    let is_octal = octal.len() == 4 && octal.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    (is_octal && matches!(octal.as_bytes()[0], b'2' | b'4' | b'6' | b'7' | b'3' | b'5'))
        || mode.split(',').any(|clause| {
            clause.split_once(['+', '=']).is_some_and(|(users, rights)| {
                users.chars().all(|c| "ugoa".contains(c)) && rights.len() <= 5 && rights.contains('s')
            })
        })
}

fn is_outside(path: &str) -> bool {
    path.starts_with(['/', '~']) && !path.starts_with("/tmp/") || path.starts_with("${") || path == ".."
}
