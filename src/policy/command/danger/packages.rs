//! Dangers of package managers, containers, clusters and infrastructure.

use super::{DangerRule, Invocation};

const NODE: &[&str] = &["npm", "pnpm", "yarn", "bun", "npx", "bunx"];
/// Options of package managers that take a value.
const VALUES: &[&str] =
    &["--prefix", "-C", "--dir", "--cwd", "--filter", "-w", "--workspace", "--registry", "-F"];
const CONTAINERS: &[&str] = &["docker", "podman", "nerdctl", "docker-compose", "podman-compose"];
/// Options of container programs that take a value.
const CONTAINER_VALUES: &[&str] =
    &["-f", "--file", "-p", "--project-name", "--profile", "--context", "-H", "--host", "--env-file"];

pub(super) const RULES: &[DangerRule] = &[
    DangerRule {
        name: "package-publish",
        programs: &[
            "npm", "pnpm", "yarn", "bun", "cargo", "twine", "poetry", "flit", "gem", "uv", "hatch", "mvn",
            "gradle", "dotnet", "vsce", "pdm", "maturin",
        ],
        matches: |c| {
            let verbs = [
                "publish",
                "unpublish",
                "upload",
                "yank",
                "deprecate",
                "owner",
                "push",
                "deploy",
                "release",
                "dist-tag",
            ];
            c.verb(VALUES)
                .is_some_and(|verb| verbs.contains(&verb) && !(verb == "owner" && c.has(&["ls", "list"])))
                && !c.has(&["--dry-run"])
        },
        why: "publishes a package, or withdraws one",
    },
    DangerRule {
        name: "package-uninstall",
        programs: NODE,
        matches: |c| {
            removed_by(c).is_some_and(|verb| {
                matches!(verb, "uninstall" | "un" | "unlink" | "remove" | "rm" | "r" | "prune")
            })
        },
        why: "removes packages",
    },
    DangerRule {
        name: "package-uninstall",
        programs: &[
            "pip", "pip3", "pipx", "uv", "poetry", "pdm", "pipenv", "conda", "mamba", "gem", "cargo", "brew",
            "composer", "go", "apm", "code", "nix-env", "choco", "winget", "scoop", "rustup", "nvm", "pyenv",
        ],
        matches: |c| {
            let removes = |word: &&str| {
                matches!(
                    *word,
                    "uninstall" | "remove" | "rm" | "purge" | "autoremove" | "cleanup" | "uninstall-all"
                )
            };
            c.operands().take(2).any(|word| removes(&word)) || c.has(&["--uninstall-extension"])
        },
        why: "removes packages",
    },
    DangerRule {
        name: "python-uninstall",
        programs: &["python", "python3", "py"],
        matches: |c| c.value(&["-m"]).is_some_and(|module| module == "pip") && c.has(&["uninstall"]),
        why: "removes packages",
    },
    DangerRule {
        name: "system-packages",
        programs: &[
            "apt", "apt-get", "aptitude", "dpkg", "yum", "dnf", "zypper", "pacman", "apk", "snap", "flatpak",
            "rpm", "emerge", "port", "pkg",
        ],
        matches: |c| {
            let changes = |word: &&str| {
                matches!(
                    *word,
                    "remove"
                        | "purge"
                        | "autoremove"
                        | "erase"
                        | "dist-upgrade"
                        | "full-upgrade"
                        | "del"
                        | "uninstall"
                        | "unmerge"
                        | "delete"
                )
            };
            c.operands().take(2).any(|word| changes(&word))
                || match c.name {
                    "dpkg" => c.has_option("rPi", "remove") || c.has(&["--purge", "--install"]),
                    "pacman" => c.words().any(|word| word.starts_with("-R") || word == "--remove"),
                    "rpm" => c.has_option("e", "erase"),
                    _ => false,
                }
        },
        why: "removes or replaces packages of the system",
    },
    DangerRule {
        name: "foreign-index",
        programs: &["pip", "pip3", "uv", "npm", "gem", "pnpm"],
        matches: |c| {
            c.has(&["--extra-index-url", "--index-url", "-i", "--trusted-host", "--source", "--registry"])
                && c.has(&["install", "add", "i"])
        },
        why: "installs packages out of another index",
    },
    DangerRule {
        name: "container-escape",
        programs: CONTAINERS,
        matches: |c| {
            let mounts = |word: &str| {
                let source = word.split(':').next().unwrap_or_default();
                let source = source.rsplit(['=', ',']).next().unwrap_or_default();
                word.contains("docker.sock")
                    || (word.contains(':') && source.starts_with(['/', '~']))
                    || word.contains("source=/")
                    || word.contains("src=/")
            };
            c.begins(&[
                "--privileged",
                "--cap-add",
                "--pid=host",
                "--net=host",
                "--network=host",
                "--ipc=host",
                "--userns=host",
                "--security-opt",
                "--device",
            ]) || (c.has(&["-v", "--volume", "--mount"]) || c.begins(&["-v/", "--volume=", "--mount="]))
                && c.words().any(mounts)
                || (c.has(&["--net", "--network", "--pid", "--ipc"]) && c.has(&["host"]))
        },
        why: "gives a container folders or rights of this machine",
    },
    DangerRule {
        name: "container-delete",
        programs: CONTAINERS,
        matches: |c| {
            let words: Vec<&str> = container_words(c);
            match words[..] {
                ["down", ..] => c.has_option("v", "volumes") || c.has(&["--rmi"]),
                ["rm" | "rmi" | "kill" | "prune" | "stop" | "restart" | "pause" | "push", ..]
                | [
                    "system" | "volume" | "image" | "container" | "network" | "builder" | "buildx" | "swarm"
                    | "stack" | "service" | "secret" | "context" | "machine" | "pod",
                    "prune" | "rm" | "remove" | "leave" | "kill",
                    ..,
                ] => true,
                _ => false,
            }
        },
        why: "stops, deletes or publishes containers, images or volumes",
    },
    DangerRule {
        name: "container-command",
        programs: &["docker", "podman", "nerdctl"],
        matches: |c| {
            container_words(c).first() == Some(&"exec") && c.has(&["-u0", "--privileged", "--user=root"])
        },
        why: "runs a command with more rights in a container",
    },
    DangerRule {
        name: "cluster-change",
        programs: &[
            "kubectl", "oc", "helm", "k3s", "kubeadm", "minikube", "kind", "eksctl", "flux", "argocd",
        ],
        matches: |c| {
            c.operands().take(3).any(|word| {
                matches!(
                    word,
                    "delete"
                        | "drain"
                        | "cordon"
                        | "uninstall"
                        | "rollback"
                        | "replace"
                        | "reset"
                        | "evict"
                        | "taint"
                )
            }) || c.verb(&["-n", "--namespace", "--context", "--kubeconfig"]).is_some_and(|verb| {
                matches!(verb, "scale" | "exec" | "cp" | "patch" | "edit" | "apply" | "upgrade" | "rollout")
                    && !c.has(&["--dry-run=client", "--dry-run=server", "--dry-run", "status", "history"])
            }) || matches!(c.after_options(&["-n", "--namespace", "--context", "--kubeconfig"]),
                [verb, kind, ..] if verb == "get" && kind.starts_with("secret"))
        },
        why: "changes or deletes something in a cluster, or reads its secrets",
    },
    DangerRule {
        name: "infrastructure",
        programs: &[
            "terraform",
            "tofu",
            "terragrunt",
            "pulumi",
            "cdk",
            "serverless",
            "sls",
            "vagrant",
            "sam",
            "ansible-galaxy",
            "packer",
        ],
        matches: |c| {
            c.operands().take(3).any(|word| {
                matches!(
                    word,
                    "destroy"
                        | "apply"
                        | "down"
                        | "up"
                        | "deploy"
                        | "remove"
                        | "taint"
                        | "force-unlock"
                        | "rm"
                        | "run-all"
                        | "import"
                )
            }) && !(c.name == "vagrant" && c.is_verb(&["up"]))
                || c.has(&["-auto-approve", "--auto-approve", "-destroy"])
        },
        why: "changes or destroys infrastructure",
    },
    DangerRule {
        name: "cloud-change",
        programs: &[
            "aws",
            "gcloud",
            "az",
            "doctl",
            "heroku",
            "fly",
            "flyctl",
            "vercel",
            "netlify",
            "wrangler",
            "linode-cli",
            "hcloud",
            "ibmcloud",
            "oci",
            "gsutil",
            "railway",
            "firebase",
            "supabase",
        ],
        matches: |c| {
            let changes = |word: &str| {
                [
                    "delete",
                    "remove",
                    "terminate",
                    "destroy",
                    "purge",
                    "rm",
                    "stop",
                    "revoke",
                    "reset",
                    "deploy",
                    "release",
                    "detach",
                    "disable",
                    "print-access-token",
                    "get-session-token",
                    "get-secret-value",
                    "get-parameter",
                    "assume-role",
                    "create-access-key",
                    "put-user-policy",
                    "attach-user-policy",
                ]
                .iter()
                .any(|verb| {
                    word == *verb
                        || word.strip_prefix(verb).is_some_and(|rest| rest.starts_with(['-', ':']))
                        || word.strip_suffix(verb).is_some_and(|rest| rest.ends_with(':'))
                })
            };
            c.operands().take(5).any(changes) || c.has(&["--force", "--prod"]) && c.is_verb(&["deploy"])
        },
        why: "changes or deletes something in a cloud, or reads credentials of it",
    },
];

/// The verb of a package manager, also after `global` and `workspace NAME`.
fn removed_by<'a>(command: &Invocation<'a>) -> Option<&'a str> {
    let words = command.after_options(VALUES);
    let skipped = match words.first().map(String::as_str) {
        Some("global") => 1,
        Some("workspace") => 2,
        _ => 0,
    };
    words.get(skipped).map(String::as_str)
}

/// The operands of a container program, without `compose`.
fn container_words<'a>(command: &Invocation<'a>) -> Vec<&'a str> {
    let mut words = command.after_options(CONTAINER_VALUES);
    while words.first().is_some_and(|word| word == "compose") {
        words = Invocation { arguments: &words[1..], ..*command }.after_options(CONTAINER_VALUES);
    }
    words.iter().filter(|word| !word.starts_with('-')).take(3).map(String::as_str).collect()
}
