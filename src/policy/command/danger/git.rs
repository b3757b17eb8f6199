//! Dangers to the work and the history in Git repositories.

use super::{DangerRule, Invocation};

/// Options of `git` itself that take a value.
const VALUES: &[&str] =
    &["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"];

pub(super) const RULES: &[DangerRule] = &[
    DangerRule {
        name: "git-force-push",
        programs: &["git"],
        matches: |c| {
            is(c, &["push"]) && (forces(c) || rest(c).iter().skip(1).any(|word| is_forced_ref(word)))
        },
        why: "overwrites or deletes commits of a remote repository",
    },
    DangerRule {
        name: "git-reset",
        programs: &["git"],
        matches: |c| is(c, &["reset"]) && c.has(&["--hard", "--merge", "--keep"]),
        why: "throws away changes that are not committed",
    },
    DangerRule {
        name: "git-clean",
        programs: &["git"],
        matches: |c| is(c, &["clean"]) && !has(c, "n", "dry-run"),
        why: "deletes files that Git does not know",
    },
    DangerRule {
        name: "git-branch-delete",
        programs: &["git"],
        matches: |c| {
            // Without force, only a branch that is merged is deleted.
            (is(c, &["branch"]) && (has(c, "DM", "") || has(c, "f", "force")))
                || (is(c, &["tag", "remote"])
                    && (has(c, "d", "delete") || second(c, &["remove", "rm", "prune"])))
                || (is(c, &["worktree"]) && second(c, &["remove", "prune"]))
        },
        why: "deletes or moves a branch, a tag or a remote",
    },
    DangerRule {
        name: "git-history",
        programs: &["git", "git-filter-repo", "bfg"],
        matches: |c| {
            c.name != "git"
                || is(c, &["filter-branch", "filter-repo", "replace", "update-ref", "gc", "prune"])
                    && (!is(c, &["gc"]) || c.begins(&["--prune", "--aggressive"]))
                || (is(c, &["reflog"]) && second(c, &["expire", "delete"]))
                || (is(c, &["rebase"])
                    && (has(c, "i", "interactive") || c.has(&["--root", "--onto", "--exec", "-x"])))
        },
        why: "rewrites or destroys history",
    },
    DangerRule {
        name: "git-discard",
        programs: &["git"],
        matches: discards,
        why: "overwrites changes in the working tree",
    },
    DangerRule {
        name: "git-stash-drop",
        programs: &["git"],
        matches: |c| is(c, &["stash"]) && second(c, &["drop", "clear"]),
        why: "deletes stashed changes",
    },
    DangerRule {
        name: "git-forced-remove",
        programs: &["git"],
        matches: |c| is(c, &["rm"]) && (has(c, "f", "force") || (has(c, "r", "") && !c.has(&["--cached"]))),
        why: "deletes files with changes, or whole folders",
    },
    DangerRule {
        name: "git-code",
        programs: &["git"],
        matches: |c| {
            let sets = |word: &str| {
                let word = word.to_ascii_lowercase();
                [
                    "core.sshcommand",
                    "core.hookspath",
                    "core.fsmonitor",
                    "core.editor",
                    "core.pager",
                    "core.gitproxy",
                    "credential.helper",
                    "diff.external",
                    "gpg.program",
                    "sequence.editor",
                    "protocol.ext",
                ]
                .iter()
                .any(|key| word.starts_with(key))
                    || (word.starts_with("alias.") && word.contains('!'))
                    || (word.starts_with("filter.") && word.contains('='))
            };
            let reads = c.has(&["--get", "--get-all", "--list", "-l", "--unset"]);
            (c.words().any(sets) && !reads)
                || c.begins(&["ext::", "--upload-pack", "--receive-pack", "--exec=", "--config-env"])
                || (is(c, &["config"])
                    && c.has(&["--global", "--system"])
                    && !reads
                    && c.operands().count() > 2)
                || is(c, &["daemon", "instaweb"])
        },
        why: "makes Git run a program, or changes its settings for the user",
    },
    DangerRule {
        name: "github-destructive",
        programs: &["gh", "glab", "hub"],
        matches: |c| {
            let operands: Vec<&str> = c.operands().take(2).collect();
            matches!(
                operands[..],
                [
                    "repo"
                        | "release"
                        | "secret"
                        | "variable"
                        | "ssh-key"
                        | "gpg-key"
                        | "gist"
                        | "run"
                        | "cache"
                        | "label",
                    "delete" | "remove" | "archive" | "rename"
                ]
            ) || matches!(
                operands[..],
                ["auth", "token" | "logout" | "login" | "refresh"]
                    | ["secret", "set"]
                    | ["extension", "install"]
            ) || matches!(operands[..], ["pr", "merge"] if c.has(&["--admin"]))
                || (operands.first() == Some(&"api")
                    && c.words().any(|word| {
                        matches!(&*word.to_ascii_uppercase(), "DELETE" | "-XDELETE" | "--METHOD=DELETE")
                    }))
        },
        why: "deletes something on the code host, or reads its token",
    },
];

fn rest<'a>(command: &Invocation<'a>) -> &'a [String] {
    command.after_options(VALUES)
}

fn is(command: &Invocation<'_>, verbs: &[&str]) -> bool {
    rest(command).first().is_some_and(|verb| verbs.contains(&verb.as_str()))
}

/// True if the first operand after the verb is one of these.
fn second(command: &Invocation<'_>, words: &[&str]) -> bool {
    let mut after = rest(command).iter().skip(1).filter(|word| !word.starts_with('-'));
    after.next().is_some_and(|word| words.contains(&word.as_str()))
}

/// True if the verb has this option.
fn has(command: &Invocation<'_>, letters: &str, long: &str) -> bool {
    Invocation { arguments: rest(command).get(1..).unwrap_or_default(), ..*command }.has_option(letters, long)
}

fn forces(command: &Invocation<'_>) -> bool {
    has(command, "fd", "force") || command.begins(&["--force-with", "--mirror", "--delete", "--prune"])
}

/// `+main`, `:main`.
fn is_forced_ref(word: &str) -> bool {
    word.starts_with('+') || (word.starts_with(':') && word.len() > 1)
}

/// `git checkout -- FILE`, `git checkout .`, `git checkout -f`, `git restore` of the working tree, `git switch -f`.
fn discards(command: &Invocation<'_>) -> bool {
    let words = rest(command).get(1..).unwrap_or_default();
    let is_path = |word: &String| matches!(word.as_str(), "." | "./" | ":/" | "*");
    let names_files = words.iter().any(|word| word == "--") || words.iter().any(is_path);
    if is(command, &["checkout"]) {
        return names_files || has(command, "fB", "force");
    }
    if is(command, &["switch"]) {
        return has(command, "fC", "force") || command.has(&["--discard-changes"]);
    }
    let only_index = command.has(&["--staged", "-S"]) && !command.has(&["--worktree", "-W"]);
    is(command, &["restore"]) && !only_index
        || (is(command, &["checkout-index", "read-tree"]) && has(command, "fu", "force"))
}
