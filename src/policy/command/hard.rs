//! The hard rules: what refuses a command or an output file, whatever the policy says. Also the commands that `find`
//! runs, which are checked in turn.

use super::{
    HardRule,
    danger::searched_build_product,
    target::{PathKind, PathTarget},
};

/// A command to check.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckedCommand<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: &'a [String],
    /// The folder in which it runs, if it is known.
    pub(super) folder: Option<&'a PathTarget>,
}

const WIPES: HardRule =
    HardRule { name: "hard-wipe", why: "deletes the whole system, a system folder or a whole home" };
const FORMATS: HardRule = HardRule { name: "hard-disk", why: "overwrites or formats a disk" };
const STOPS_MACHINE: HardRule = HardRule { name: "hard-power", why: "stops or restarts the machine" };
const KILLS: HardRule = HardRule { name: "hard-kill-all", why: "kills every process" };
const CHANGES_OWNERS: HardRule =
    HardRule { name: "hard-permissions", why: "changes the permissions or owners of the whole system" };
const MOVES_SYSTEM: HardRule = HardRule { name: "hard-move-system", why: "moves a system folder away" };
const TRIGGERS: HardRule = HardRule { name: "hard-kernel-trigger", why: "makes the kernel act at once" };
/// Every hard rule, in the order in which they are listed.
pub(super) const HARD_RULES: &[HardRule] = &[
    WIPES,
    FORMATS,
    STOPS_MACHINE,
    KILLS,
    CHANGES_OWNERS,
    MOVES_SYSTEM,
    TRIGGERS,
    FORK_BOMB,
    TOO_DEEP_SCRIPTS,
    TOO_DEEP_COMMANDS,
    super::budget::TOO_COMPLEX,
];
pub(super) const FORK_BOMB: HardRule =
    HardRule { name: "hard-fork-bomb", why: "multiplies itself without end" };
pub(super) const TOO_DEEP_SCRIPTS: HardRule =
    HardRule { name: "hard-nested-scripts", why: "nests scripts too deeply to be judged" };
pub(super) const TOO_DEEP_COMMANDS: HardRule =
    HardRule { name: "hard-nested-commands", why: "nests commands too deeply to be judged" };

/// Paths that no command may delete as a whole.
const NEVER_DELETED: &[PathKind] = &[PathKind::Root, PathKind::System, PathKind::Home];
/// Paths of the system.
const SYSTEM: &[PathKind] = &[PathKind::Root, PathKind::System];

/// Why a command must never run; `None` if it may.
pub(super) fn command_denial(command: &CheckedCommand) -> Option<HardRule> {
    match command.name {
        "rm" => remove(command),
        "find" => find(command),
        "mv" => rename(command),
        "rsync" => synchronise(command),
        "chmod" | "chown" | "chgrp" => change_permissions(command),
        "mke2fs" | "mkdosfs" | "mkntfs" | "mkswap" | "newfs" | "mkfs" | "shred" | "blkdiscard"
        | "badblocks" | "tee" | "truncate" | "fallocate" | "cp" | "install" => write_to_disk(command),
        "wipefs" | "sgdisk" => erase_signatures(command),
        "nvme" | "cryptsetup" | "hdparm" | "parted" | "diskutil" => erase_disk(command),
        "dd" | "dcfldd" => copy_blocks(command),
        "shutdown" | "reboot" | "halt" | "poweroff" => power(command),
        "init" | "telinit" => runlevel(command),
        "systemctl" | "loginctl" => service_control(command),
        "kill" => kill(command),
        "killall5" => Some(KILLS),
        name if name.starts_with("mkfs.") => write_to_disk(command),
        _ => None,
    }
}

/// Why output must never go to a file; `None` if it may.
pub(super) fn output_denial(path: &str, folder: Option<&PathTarget>) -> Option<HardRule> {
    let target = PathTarget::of(path, folder)?;
    if target.is_disk() {
        return Some(FORMATS);
    }
    target.is_trigger().then_some(TRIGGERS)
}

impl<'a> CheckedCommand<'a> {
    fn options(&self) -> impl Iterator<Item = &'a str> {
        self.arguments
            .iter()
            .map(String::as_str)
            .take_while(|word| *word != "--")
            .filter(|word| word.starts_with('-') && word.len() > 1)
    }

    fn operands(&self) -> Vec<&'a str> {
        let end = self.arguments.iter().position(|word| word == "--").unwrap_or(self.arguments.len());
        let (before, after) = self.arguments.split_at(end);
        let before = before.iter().filter(|word| !word.starts_with('-') || word.len() == 1);
        before.chain(after.iter().skip(1)).map(String::as_str).collect()
    }

    /// True if an option is given: by a letter, alone or in a group, or by its long name or a prefix of that.
    fn has_option(&self, letters: &str, long: &str) -> bool {
        self.options().any(|option| match option.strip_prefix("--") {
            Some(name) => !long.is_empty() && !name.is_empty() && long.starts_with(name),
            None => option.contains(|c| letters.contains(c)),
        })
    }

    fn any_is(&self, paths: &[&str], kinds: &[PathKind]) -> bool {
        self.targets(paths).any(|target| kinds.contains(&target.kind()))
    }

    fn any_is_disk(&self, paths: &[&str]) -> bool {
        self.targets(paths).any(|target| target.is_disk())
    }

    fn targets(&self, paths: &[&str]) -> impl Iterator<Item = PathTarget> {
        paths.iter().filter_map(|path| PathTarget::of(path, self.folder))
    }
}

fn remove(command: &CheckedCommand) -> Option<HardRule> {
    let is_recursive = command.has_option("rR", "recursive");
    (is_recursive && command.any_is(&command.operands(), NEVER_DELETED)).then_some(WIPES)
}

/// Deleting all results is catastrophic only if no test narrows the search.
fn find(command: &CheckedCommand) -> Option<HardRule> {
    let roots = start_paths(command.arguments);
    let deletes = command.arguments.iter().any(|word| word == "-delete");
    let is_wide = !is_narrowed(command.arguments);
    (deletes && is_wide && command.any_is(&roots, NEVER_DELETED)).then_some(WIPES)
}

/// The commands that `find` runs. Without a narrowing test, `{}` is replaced by each start path in turn, and in a search
/// for build products by one of those.
pub(super) fn executed_commands(arguments: &[String]) -> Vec<Vec<String>> {
    let product = searched_build_product(arguments);
    let roots = match &product {
        Some(product) => vec![product.as_str()],
        None if is_narrowed(arguments) => Vec::new(),
        None => start_paths(arguments),
    };
    let mut commands = Vec::new();
    let mut rest = arguments;
    while let Some(at) =
        rest.iter().position(|word| matches!(&**word, "-exec" | "-execdir" | "-ok" | "-okdir"))
    {
        let command = &rest[at + 1..];
        let end = command.iter().position(|word| word == ";" || word == "+").unwrap_or(command.len());
        let (words, after) = command.split_at(end);
        let has_placeholder = words.iter().any(|word| word.contains("{}"));
        if roots.is_empty() || !has_placeholder {
            commands.push(words.to_vec());
        } else {
            let replaced = |start: &&str| words.iter().map(|word| word.replace("{}", start)).collect();
            commands.extend(roots.iter().map(replaced));
        }
        rest = after;
    }
    commands
}

/// Most bytes of the copies that [`executed_commands`] makes for start paths: each start path has a copy of each
/// command.
pub(super) fn executed_bytes(arguments: &[String]) -> usize {
    let roots = start_paths(arguments);
    let words: usize = arguments.iter().map(|word| word.len() + 1).sum();
    let placeholders: usize = arguments.iter().map(|word| word.matches("{}").count()).sum();
    let inserted = roots.iter().map(|start| start.len()).sum::<usize>().saturating_mul(placeholders);
    words.saturating_mul(roots.len().max(1)).saturating_add(inserted)
}

/// The folders that `find` searches. Its options `-H`, `-L`, `-P`, `-O` and `-D` stand before them.
fn start_paths(arguments: &[String]) -> Vec<&str> {
    let mut words = arguments.iter().map(String::as_str).peekable();
    while let Some(option) =
        words.next_if(|word| matches!(*word, "-H" | "-L" | "-P" | "-D" | "--") || word.starts_with("-O"))
    {
        if option == "-D" {
            words.next();
        }
    }
    words.take_while(|word| !word.starts_with(['-', '(', '!'])).collect()
}

fn is_narrowed(arguments: &[String]) -> bool {
    arguments.iter().any(|word| match word.as_str() {
        "-name" | "-iname" | "-path" | "-ipath" | "-wholename" | "-regex" | "-iregex" | "-lname"
        | "-mtime" | "-mmin" | "-ctime" | "-cmin" | "-atime" | "-amin" | "-size" | "-empty" | "-user"
        | "-uid" | "-group" | "-gid" | "-perm" | "-inum" | "-links" | "-nouser" | "-nogroup"
        | "-samefile" | "-xtype" | "-fstype" => true,
        word => word.starts_with("-newer"),
    })
}

fn rename(command: &CheckedCommand) -> Option<HardRule> {
    let operands = command.operands();
    if command.any_is_disk(&operands) {
        return Some(FORMATS);
    }
    let sources = operands.split_last().map_or(&[][..], |(_, sources)| sources);
    command.any_is(sources, SYSTEM).then_some(MOVES_SYSTEM)
}

fn synchronise(command: &CheckedCommand) -> Option<HardRule> {
    let operands = command.operands();
    let target = operands.last()?;
    let deletes = command.options().any(|option| option.starts_with("--del"));
    (deletes && command.any_is(&[target], SYSTEM)).then_some(WIPES)
}

fn change_permissions(command: &CheckedCommand) -> Option<HardRule> {
    let is_recursive = command.has_option("R", "recursive");
    (is_recursive && command.any_is(&command.operands(), SYSTEM)).then_some(CHANGES_OWNERS)
}

/// Writing to an image file is legitimate; writing to a disk is refused. For `mkfs` and `mkfs.*` a target in an unknown
/// variable is refused too.
fn write_to_disk(command: &CheckedCommand) -> Option<HardRule> {
    let operands = command.operands();
    let targets = match command.name {
        "cp" | "install" => operands.last().into_iter().copied().collect(),
        _ => operands,
    };
    let is_unknown = command.name.starts_with("mkfs") && targets.iter().any(|word| word.starts_with("${"));
    (is_unknown || command.any_is_disk(&targets)).then_some(FORMATS)
}

fn erase_signatures(command: &CheckedCommand) -> Option<HardRule> {
    let erases = match command.name {
        "wipefs" => command.has_option("ao", "all") || command.has_option("", "offset"),
        _ => command.has_option("Zzo", "zap-all") || command.has_option("", "clear"),
    };
    (erases && command.any_is_disk(&command.operands())).then_some(FORMATS)
}

/// Tools with verbs, of which some erase a disk.
fn erase_disk(command: &CheckedCommand) -> Option<HardRule> {
    const ERASING: &[&str] = &[
        "format",
        "sanitize",
        "luksFormat",
        "luksErase",
        "erase",
        "reencrypt",
        "mklabel",
        "mktable",
        "--security-erase",
        "--security-erase-enhanced",
        "--trim-sector-ranges",
        "eraseDisk",
        "eraseVolume",
        "zeroDisk",
        "secureErase",
        "partitionDisk",
    ];
    let erases = command.arguments.iter().any(|word| ERASING.contains(&word.as_str()));
    let operands = command.operands();
    let is_mac_disk = command.name == "diskutil" && operands.iter().any(|word| word.starts_with("disk"));
    (erases && (is_mac_disk || command.any_is_disk(&operands))).then_some(FORMATS)
}

fn copy_blocks(command: &CheckedCommand) -> Option<HardRule> {
    let outputs: Vec<_> = command.operands().iter().filter_map(|word| word.strip_prefix("of=")).collect();
    command.any_is_disk(&outputs).then_some(FORMATS)
}

fn power(command: &CheckedCommand) -> Option<HardRule> {
    let only_talks =
        command.options().any(|option| matches!(option, "--help" | "--version" | "--wtmp-only" | "-w"));
    let only_cancels = command.name == "shutdown" && command.has_option("c", "");
    (!only_talks && !only_cancels).then_some(STOPS_MACHINE)
}

fn runlevel(command: &CheckedCommand) -> Option<HardRule> {
    command.operands().iter().any(|level| matches!(*level, "0" | "6")).then_some(STOPS_MACHINE)
}

fn service_control(command: &CheckedCommand) -> Option<HardRule> {
    const STATES: &[&str] = &["poweroff", "reboot", "halt", "kexec", "soft-reboot", "rescue", "emergency"];
    let is_state = |unit: &&str| unit.strip_suffix(".target").is_some_and(|state| STATES.contains(&state));
    let operands = command.operands();
    let (verb, units) = operands.split_first()?;
    let starts_target = matches!(*verb, "start" | "isolate") && units.iter().any(is_state);
    (starts_target || STATES.contains(verb)).then_some(STOPS_MACHINE)
}

fn kill(command: &CheckedCommand) -> Option<HardRule> {
    let words: Vec<_> = command.arguments.iter().map(String::as_str).collect();
    let targets = match words[..] {
        ["-1"] => return Some(KILLS),
        ["-s" | "-n" | "--signal", _, ref targets @ ..] => targets,
        [first, ref targets @ ..] if first.starts_with('-') => targets,
        ref targets => targets,
    };
    targets.contains(&"-1").then_some(KILLS)
}
