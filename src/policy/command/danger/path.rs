//! The dangers of paths: what a write to a file can change, and what a read of it can reveal.

use super::Invocation;
use crate::policy::command::{Danger, target::PathTarget};

const SYSTEM_FILE: Danger = Danger { name: "system-file", why: "changes a file of the system" };
const LOGIN_FILE: Danger =
    Danger { name: "login-file", why: "changes a file that runs or gives access at a login, or by itself" };
const CREDENTIAL_FILE: Danger =
    Danger { name: "credential-file", why: "changes a file with credentials or settings of a program" };
const AGENT_FILE: Danger =
    Danger { name: "agent-state", why: "changes the configuration or the state of an agent itself" };
const HISTORY_FILE: Danger =
    Danger { name: "history", why: "tampers with the history of commands or with logs" };
const NETWORK_DEVICE: Danger = Danger { name: "network-device", why: "connects a shell with the network" };
const SECRET_READ: Danger = Danger { name: "secret-read", why: "reads a file with secrets" };

/// All of them.
pub(super) const ALL: &[Danger] =
    &[SYSTEM_FILE, LOGIN_FILE, CREDENTIAL_FILE, AGENT_FILE, HISTORY_FILE, NETWORK_DEVICE, SECRET_READ];

/// Names of files that a shell, a session or a service manager runs, or that give access.
const LOGIN_NAMES: &[&str] = &[
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".inputrc",
    ".xinitrc",
    ".xsession",
    ".xprofile",
    ".vimrc",
    ".gitconfig",
    ".pythonstartup",
    "authorized_keys",
    "config.fish",
    "sitecustomize.py",
    "usercustomize.py",
    ".envrc",
];
/// Folders whose files run by themselves or give access.
const LOGIN_FOLDERS: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".config/autostart",
    "LaunchAgents",
    "LaunchDaemons",
    "crontabs",
    "cron.d",
    "systemd/user",
    "systemd/system",
];
const CREDENTIAL_NAMES: &[&str] = &[
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".htpasswd",
    ".dockercfg",
    "credentials.json",
    "credentials.toml",
    ".boto",
    ".s3cfg",
    ".vault-token",
];
const CREDENTIAL_FOLDERS: &[&str] =
    &[".aws", ".kube", ".docker", ".azure", ".config/gcloud", ".gcloud", ".config/gh"];
/// Configuration files that hold credentials, by their folder: the name alone says nothing.
const CREDENTIAL_CONFIGS: &[&str] = &[
    ".config/aichat/config.yaml",
    ".config/doctl/config.yaml",
    ".config/glab-cli/config.yml",
    ".config/scw/config.yaml",
    ".config/tea/config.yml",
    ".continue/config.yaml",
    ".fly/config.yml",
    "Application Support/aichat/config.yaml",
    "Application Support/doctl/config.yaml",
    "Application Support/glab-cli/config.yml",
    "Application Support/tea/config.yml",
];
const AGENT_FOLDERS: &[&str] =
    &[".hermod", ".local/state/hermod", ".hermes", ".openclaw", ".claude", ".codex"];
const AGENT_NAMES: &[&str] = &["hermod.toml", "control.token", "approved-rules.json", "openclaw.json"];
const HISTORY_NAMES: &[&str] = &[
    ".bash_history",
    ".zsh_history",
    ".zhistory",
    ".history",
    ".python_history",
    ".mysql_history",
    ".psql_history",
    "fish_history",
    "wtmp",
    "btmp",
    "utmp",
    "lastlog",
    "auth.log",
    "syslog",
];
/// Names of files whose content is secret.
const SECRET_NAMES: &[&str] = &[
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".pypirc",
    ".npmrc",
    ".git-credentials",
    ".htpasswd",
    ".dockercfg",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "shadow",
    "gshadow",
    "master.passwd",
    "credentials.json",
    "application_default_credentials.json",
    "service-account.json",
    "kubeconfig",
    ".vault-token",
    "control.token",
    "token.json",
    "logins.json",
    "key4.db",
    "Login Data",
    "keychain-db",
    "secrets.yml",
    "secrets.yaml",
    ".boto",
];
/// Folders of the system in which a command of an agent has nothing to write.
const SYSTEM_FOLDERS: &[&str] = &[
    "/etc",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/boot",
    "/sys",
    "/proc",
    "/root",
    "/opt",
    "/var/spool",
    "/var/run",
    "/run",
    "/private/etc",
    "/private/var",
    "/System",
    "/Library",
    "/Applications",
    "C:/Windows",
    "C:/Program Files",
];
/// Programs that only look at names, types and permissions, or give the file to what it is for.
const NAME_READERS: &[&str] = &[
    "ls",
    "test",
    "[",
    "[[",
    "stat",
    "file",
    "find",
    "du",
    "touch",
    "rm",
    "mkdir",
    "chmod",
    "chown",
    "echo",
    "printf",
    "which",
    "basename",
    "dirname",
    "realpath",
    "readlink",
    "ssh-keygen",
    "git",
    "tree",
    "wc",
    "fd",
    "export",
    "ssh",
    "scp",
    "ssh-add",
    "tee",
    "mv",
    "sha256sum",
    "md5sum",
    "cmp",
    "kubectl",
    "[",
    "[[",
    "test",
];
/// Endings of names that make a harmless template of a secret file.
const TEMPLATES: &[&str] = &["example", "sample", "template", "dist", "tpl", "schema", "md"];

/// The danger of writing to a file.
pub(super) fn written(path: &str, folder: Option<&PathTarget>) -> Option<Danger> {
    let place = Place::of(path, folder);
    let is_in = |folders: &[&str]| folders.iter().any(|folder| place.is_below(folder));
    let is_named = |names: &[&str]| names.contains(&place.name());
    if ["/dev/tcp/", "/dev/udp/"].iter().any(|device| place.path.starts_with(device)) {
        return Some(NETWORK_DEVICE);
    }
    if is_named(HISTORY_NAMES) {
        return Some(HISTORY_FILE);
    }
    if is_in(AGENT_FOLDERS) || is_named(AGENT_NAMES) {
        return Some(AGENT_FILE);
    }
    if is_named(LOGIN_NAMES) || is_in(LOGIN_FOLDERS) || place.is_below(".git/hooks") {
        return Some(LOGIN_FILE);
    }
    let is_system = |start: &&&str| {
        place.path.strip_prefix(**start).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_dev_file = ["/usr/local/src/", "/usr/src/"].iter().any(|start| place.path.starts_with(start))
        || place.path.starts_with("/run/user/");
    if SYSTEM_FOLDERS.iter().any(|start| is_system(&start)) && !is_dev_file && !is_environment(place.name()) {
        return Some(SYSTEM_FILE);
    }
    let is_secret = is_named(CREDENTIAL_NAMES)
        || is_environment(place.name())
        || is_in(CREDENTIAL_FOLDERS)
        || is_in(CREDENTIAL_CONFIGS);
    is_secret.then_some(CREDENTIAL_FILE)
}

/// The danger of reading a file.
pub(super) fn read(path: &str, folder: Option<&PathTarget>) -> Option<Danger> {
    let place = Place::of(path, folder);
    let name = place.name();
    let is_process = place.path.starts_with("/proc/") && matches!(name, "environ" | "mem" | "maps" | "auxv");
    let is_key = |ending: &str| name.ends_with(ending);
    let is_secret = SECRET_NAMES.contains(&name)
        || is_process
        || is_environment(name)
        || [".pem", ".key", ".p12", ".pfx", ".kdbx", ".keystore", ".jks"].into_iter().any(is_key)
        || place.path.ends_with(".aws/credentials")
        || place.path.ends_with(".aws/config")
        || place.path.ends_with(".kube/config")
        || place.path.ends_with(".docker/config.json")
        || place.path.ends_with(".config/gh/hosts.yml")
        || CREDENTIAL_CONFIGS.iter().any(|config| place.is_below(config))
        || place.path.contains("/run/secrets/")
        || place.is_below(".gnupg")
        || (place.is_below(".ssh") && !is_public(name))
        || (name == "credentials" && place.path.contains("/."));
    is_secret.then_some(SECRET_READ)
}

/// The first danger of the files that a command writes or reads.
pub(super) fn of_command(command: &Invocation<'_>) -> Option<Danger> {
    let danger = written_files(command).into_iter().find_map(|path| written(path, command.folder));
    if danger == Some(CREDENTIAL_FILE) && copies_template(command) {
        return None;
    }
    let danger = danger.or_else(|| written_into_folder(command));
    // A file that is moved away is missing where it was.
    let moved = command.operands().filter(|_| command.name == "mv");
    let danger = danger.or_else(|| {
        let mut dangers = moved.filter_map(|path| written(path, command.folder));
        dangers.find(|danger| *danger != CREDENTIAL_FILE)
    });
    if danger.is_some() || NAME_READERS.contains(&command.name) {
        return danger;
    }
    let words = command.words().filter(|word| !word.starts_with('-') || word.contains(['=', '@']));
    let paths = words.flat_map(|word| {
        let after = word.split_once(['@', '=', '<']).map(|(_, path)| path).filter(|_| !word.contains("://"));
        [Some(word), after].into_iter().flatten()
    });
    let is_path =
        |path: &&str| path.len() <= 4_096 && !path.contains(char::is_whitespace) && !path.contains("://");
    paths.filter(is_path).find_map(|path| read(path, command.folder))
}

/// True for `cp .env.example .env`, which puts in no secret.
fn copies_template(command: &Invocation<'_>) -> bool {
    let is_template = |path: &str| path.rsplit('.').next().is_some_and(|ending| TEMPLATES.contains(&ending));
    command.name == "cp"
        && command.operands().count() == 2
        && command.operands().next().is_some_and(is_template)
}

/// The danger of a file that a command puts into a folder under its own name.
fn written_into_folder(command: &Invocation<'_>) -> Option<Danger> {
    if !matches!(command.name, "cp" | "mv" | "install" | "ln" | "rsync") {
        return None;
    }
    let named = command.value(&["-t", "--target-directory"]);
    let folder = named.or_else(|| command.operands().next_back())?;
    let is_folder =
        named.is_some() || folder.ends_with('/') || matches!(folder, "." | ".." | "~" | "${HOME}");
    let mut names = command.operands().filter(|source| is_folder && *source != folder);
    names.find_map(|source| {
        let name = source.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        written(&format!("{}/{name}", folder.trim_end_matches('/')), command.folder)
    })
}

/// The files that a command changes, as far as its arguments tell.
fn written_files<'a>(command: &Invocation<'a>) -> Vec<&'a str> {
    let operands = || command.operands();
    let target = || command.value(&["-t", "--target-directory"]).or_else(|| operands().next_back());
    match command.name {
        "tee" | "truncate" | "touch" | "rm" | "unlink" | "shred" | "rmdir" | "mkdir" | "sponge"
        | "fallocate" | "vi" | "vim" | "nvim" | "nano" | "ed" | "ex" | "emacs" | "patch" => {
            operands().collect()
        }
        "mv" => target().into_iter().collect(),
        "cp" | "install" | "ln" | "rsync" | "scp" | "link" if operands().count() > 1 => {
            target().into_iter().collect()
        }
        "chmod" | "chown" | "chgrp" | "setfacl" | "chattr" => operands().skip(1).collect(),
        "sed" | "gsed" | "perl" | "ruby" if command.words().any(is_in_place) => operands().collect(),
        "awk" | "gawk" if command.has(&["inplace"]) => operands().collect(),
        "dd" => command.words().filter_map(|word| word.strip_prefix("of=")).collect(),
        "sort" => command.value(&["-o", "--output"]).into_iter().collect(),
        "tar" if command.has_option("x", "extract") => {
            command.value(&["-C", "--directory"]).into_iter().collect()
        }
        "unzip" => command.value(&["-d"]).into_iter().collect(),
        "openssl" | "gpg" | "age" => command.value(&["-out", "-o", "--output"]).into_iter().collect(),
        name => super::downloaded_files(name, command.arguments),
    }
}

/// `-i`, `-i.bak`, `-pi`, `--in-place`.
fn is_in_place(word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(long) => long.starts_with("in-pl"),
        None => word.strip_prefix('-').is_some_and(|rest| {
            rest.split(['.', 'e']).next().is_some_and(|letters| letters.len() <= 8 && letters.contains('i'))
        }),
    }
}

/// `.env`, `.env.local`, `prod.env`; no template of it.
fn is_environment(name: &str) -> bool {
    let is_template = || name.rsplit(['.', '-', '_']).next().is_some_and(|end| TEMPLATES.contains(&end));
    let is_file = name == ".env"
        || name.starts_with(".env.")
        || name.rsplit_once('.').is_some_and(|(stem, end)| !stem.is_empty() && end == "env");
    is_file && !is_template()
}

fn is_public(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, end)| end == "pub")
        || matches!(name, "known_hosts" | "config" | ".ssh")
}

/// A path without `.` and `..`, from the root, from `~`, or from the workspace.
struct Place {
    path: String,
}

impl Place {
    fn of(path: &str, folder: Option<&PathTarget>) -> Self {
        let path = path.replace('\\', "/");
        let path = if let Some(target) = PathTarget::of(&path, folder) {
            target.to_string()
        } else {
            let absolute = PathTarget::of(&format!("/{path}"), None).map(|target| target.to_string());
            absolute.unwrap_or_default().trim_start_matches('/').to_owned()
        };
        Self { path }
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// True if a folder of the path has this name, or the path itself.
    fn is_below(&self, folder: &str) -> bool {
        self.path.match_indices(folder).any(|(at, _)| {
            let before = self.path[..at].chars().next_back();
            let after = self.path[at + folder.len()..].chars().next();
            before.is_none_or(|c| c == '/') && after.is_none_or(|c| c == '/')
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{read, written};

    #[test]
    fn files_are_classified_by_what_a_write_changes() {
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(written(path, None).map(|danger| danger.name), expected, "{path}");
        };
        check("/etc/hosts", Some("system-file"));
        check("/tmp/../etc/hosts", Some("system-file"));
        check("/private/etc/hosts", Some("system-file"));
        check("/etcetera", None);
        check("~/.ssh/authorized_keys", Some("login-file"));
        check("${HOME}/.bashrc", Some("login-file"));
        check(".git/hooks/pre-commit", Some("login-file"));
        check(".env", Some("credential-file"));
        check("/opt/data/.env", Some("credential-file"));
        check(".env.production", Some("credential-file"));
        check(".env.example", None);
        check(".env#backup", None);
        check("config.yaml#backup", None);
        check("config/config.yaml", None);
        check("/srv/app/config.yml", None);
        check("doctl/config.yaml", None);
        check(".circleci/config.yml", None);
        check("~/.kube/config", Some("credential-file"));
        check("~/.kube/config.yaml", Some("credential-file"));
        check("~/.config/gh/config.yml", Some("credential-file"));
        check("~/.config/doctl/config.yaml", Some("credential-file"));
        check("/home/a/.config/glab-cli/config.yml", Some("credential-file"));
        check("~/.config/glab-cli/config.yml.new", None);
        check("~/Library/Application Support/tea/config.yml", Some("credential-file"));
        check("~/.fly/config.yml", Some("credential-file"));
        check("~/.hermes/config.yaml", Some("agent-state"));
        check("~/.hermod/approved-rules.json", Some("agent-state"));
        check("~/.local/state/hermod/tokens.json", Some("agent-state"));
        check("src/theme/tokens.json", None);
        check("state/control.token", Some("agent-state"));
        check("~/.bash_history", Some("history"));
        check("src/main.rs", None);
        check("/tmp/scratch.txt", None);
    }

    #[test]
    fn files_are_classified_by_what_a_read_reveals() {
        let check = |path: &str, is_secret: bool| assert_eq!(read(path, None).is_some(), is_secret, "{path}");
        for path in
            ["~/.ssh/id_ed25519", ".env", "/proc/1/environ", "~/.aws/credentials", "/etc/shadow", "key.pem"]
        {
            check(path, true);
        }
        check("~/.config/doctl/config.yaml", true);
        check("/srv/app/config.yaml", false);
        for path in
            ["~/.ssh/id_ed25519.pub", ".env.example", "/proc/cpuinfo", "/etc/passwd", "environment.py"]
        {
            check(path, false);
        }
    }
}
