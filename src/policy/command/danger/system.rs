//! Dangers to the machine: privileges, services, processes, disks, networks, users.

use super::{DangerRule, Invocation};
use crate::policy::command::{feed::Feed, unwrap::skip_values};

/// Programs that change nothing, which may run with more rights.
const READERS: &[&str] = &[
    "whoami", "id", "ls", "pwd", "true", "date", "uptime", "hostname", "uname", "df", "du", "ps", "free",
    "which", "groups", "echo", "lsof", "ss", "netstat", "dmesg", "lsblk", "stat", "test", "wc",
];

pub(super) const RULES: &[DangerRule] = &[
    DangerRule {
        name: "privilege",
        programs: &["sudo", "doas", "pkexec", "run0", "gosu", "su-exec"],
        matches: raises_rights,
        why: "runs a command with the rights of another user",
    },
    DangerRule {
        name: "privilege",
        programs: &[
            "su",
            "runuser",
            "setcap",
            "setpriv",
            "newgrp",
            "visudo",
            "capsh",
            "nsenter",
            "chroot",
            "unshare",
            "machinectl",
        ],
        matches: |c| !(c.name == "unshare" || c.name == "capsh") || c.operands().count() > 0,
        why: "gives rights of another user, or of the machine",
    },
    DangerRule {
        name: "service",
        programs: &["systemctl"],
        matches: |c| {
            let verbs = [
                "stop",
                "restart",
                "disable",
                "mask",
                "kill",
                "try-restart",
                "reload-or-restart",
                "enable",
                "unmask",
                "edit",
                "set-property",
                "isolate",
                "daemon-reexec",
                "revert",
                "set-default",
                "link",
                "reset-failed",
                "force-reload",
                "condrestart",
                "preset",
            ];
            c.verb(&["-H", "-M", "-t", "-p", "--type", "-s", "--signal"])
                .is_some_and(|verb| verbs.contains(&verb))
        },
        why: "stops, restarts or changes a service",
    },
    DangerRule {
        name: "service",
        programs: &["launchctl"],
        matches: |c| {
            c.is_verb(&[
                "unload",
                "bootout",
                "disable",
                "remove",
                "load",
                "bootstrap",
                "submit",
                "reboot",
                "setenv",
                "config",
            ])
        },
        why: "stops, restarts or changes a service",
    },
    DangerRule {
        name: "service",
        programs: &[
            "service",
            "rc-service",
            "invoke-rc.d",
            "supervisorctl",
            "pm2",
            "brew",
            "monit",
            "sv",
            "rc-update",
            "update-rc.d",
            "chkconfig",
            "initctl",
            "loginctl",
        ],
        matches: |c| {
            let stops = |word: &str| {
                matches!(
                    word,
                    "stop"
                        | "restart"
                        | "delete"
                        | "kill"
                        | "disable"
                        | "down"
                        | "remove"
                        | "shutdown"
                        | "reload"
                        | "del"
                        | "terminate-user"
                        | "kill-session"
                        | "terminate-session"
                        | "kill-user"
                )
            };
            (c.name != "brew" || c.is_verb(&["services"])) && c.operands().take(3).any(stops)
        },
        why: "stops, restarts or changes a service",
    },
    DangerRule {
        name: "kill-many",
        programs: &["killall", "pkill", "skill", "xkill", "slay", "taskkill", "fuser"],
        matches: |c| match c.name {
            "killall" => !c.has(&["-l", "--list", "-V", "--version", "-0"]),
            "fuser" => c.has_option("k", "kill"),
            "pkill" => ends_many(c),
            _ => true,
        },
        why: "ends processes by name, of which there may be several",
    },
    DangerRule {
        name: "kill-unknown",
        programs: &["kill"],
        matches: |c| {
            let targets = c.operands().chain(c.words().skip(1).filter(|word| {
                word.starts_with('-') && word[1..].bytes().all(|b| b.is_ascii_digit()) && word.len() > 1
            }));
            let mut targets = targets.peekable();
            let is_unknown = |word: &str| word.contains('\u{fffc}');
            let is_group = |word: &str| word.starts_with('-') && word.len() > 2 || word == "1" || word == "0";
            targets.any(|word| is_unknown(word) || is_group(word)) && !c.has(&["-l", "-L"])
        },
        why: "ends processes that it does not name by number",
    },
    DangerRule {
        name: "disk",
        programs: &[
            "fdisk",
            "sfdisk",
            "cfdisk",
            "gdisk",
            "sgdisk",
            "parted",
            "partprobe",
            "mkswap",
            "swapoff",
            "swapon",
            "mount",
            "umount",
            "losetup",
            "cryptsetup",
            "lvremove",
            "vgremove",
            "pvremove",
            "lvreduce",
            "lvresize",
            "resize2fs",
            "tune2fs",
            "e2fsck",
            "fsck",
            "zpool",
            "zfs",
            "btrfs",
            "mdadm",
            "hdparm",
            "nvme",
            "diskutil",
            "hdiutil",
            "fstrim",
            "debugfs",
            "wipefs",
            "blkdiscard",
            "badblocks",
            "mke2fs",
            "mkfs",
            "xfs_repair",
            "eject",
        ],
        matches: |c| {
            let reads = c.has(&[
                "-l",
                "--list",
                "list",
                "print",
                "status",
                "--help",
                "-h",
                "--version",
                "get",
                "info",
                "apfs",
            ]) && !c.has(&["destroy"]);
            let lists = c.operands().count() == 0
                && matches!(c.name, "mount" | "losetup" | "mdadm" | "zpool" | "zfs" | "swapon" | "wipefs");
            let shows = c.name == "wipefs" && !c.has_option("ao", "all");
            !(reads || lists || shows)
        },
        why: "changes disks, partitions or file systems",
    },
    DangerRule {
        name: "disk",
        programs: &["dd", "dcfldd"],
        matches: |c| {
            c.words().any(|word| {
                word.strip_prefix("of=").is_some_and(|path| {
                    path.starts_with("/dev/") && !matches!(path, "/dev/null" | "/dev/stdout")
                }) || word.strip_prefix("if=").is_some_and(|path| {
                    path.starts_with("/dev/") && !matches!(path, "/dev/zero" | "/dev/urandom" | "/dev/random")
                })
            })
        },
        why: "copies to or from a device",
    },
    DangerRule {
        name: "format",
        programs: &[],
        matches: |c| c.name.starts_with("mkfs.") || c.name.starts_with("newfs"),
        why: "makes a file system",
    },
    DangerRule {
        name: "firewall",
        programs: &[
            "iptables",
            "ip6tables",
            "nft",
            "ufw",
            "firewall-cmd",
            "pfctl",
            "ebtables",
            "ipset",
            "iptables-restore",
            "netsh",
            "setenforce",
            "aa-disable",
            "aa-teardown",
            "csrutil",
            "spctl",
        ],
        matches: |c| {
            let reads = c.has(&[
                "-L",
                "--list",
                "-S",
                "status",
                "list",
                "--list-all",
                "--state",
                "-s",
                "show",
                "-h",
                "--help",
            ]);
            !reads || c.has(&["-F", "--flush", "flush", "disable", "reset", "delete", "-X"])
        },
        why: "changes the firewall or the protection of the system",
    },
    DangerRule {
        name: "network-change",
        programs: &[
            "ip",
            "ifconfig",
            "route",
            "nmcli",
            "hostnamectl",
            "resolvectl",
            "networksetup",
            "iwconfig",
            "tc",
            "brctl",
            "arp",
            "wg-quick",
            "wg",
        ],
        matches: |c| {
            c.words().any(|word| {
                matches!(
                    word,
                    "down"
                        | "del"
                        | "delete"
                        | "flush"
                        | "add"
                        | "replace"
                        | "off"
                        | "disconnect"
                        | "set-hostname"
                        | "modify"
                        | "setdnsservers"
                        | "-setdnsservers"
                        | "netem"
                )
            })
        },
        why: "changes the network of the machine",
    },
    DangerRule {
        name: "users",
        programs: &[
            "useradd",
            "userdel",
            "usermod",
            "adduser",
            "deluser",
            "groupadd",
            "groupdel",
            "groupmod",
            "addgroup",
            "delgroup",
            "passwd",
            "chpasswd",
            "chage",
            "chsh",
            "chfn",
            "gpasswd",
            "vipw",
            "dscl",
            "sysadminctl",
            "dseditgroup",
            "htpasswd",
            "faillock",
            "ssh-copy-id",
        ],
        matches: |c| !match c.name {
            "passwd" => c.has(&["-S", "--status"]),
            "dscl" => c.has(&["-read", "-list"]),
            "chage" => c.has(&["-l"]),
            _ => false,
        },
        why: "changes users, groups or passwords",
    },
    DangerRule {
        name: "kernel",
        programs: &[
            "sysctl",
            "modprobe",
            "insmod",
            "rmmod",
            "kexec",
            "setsysctl",
            "swapoff",
            "update-grub",
            "grub-install",
            "grub-mkconfig",
            "efibootmgr",
            "nvram",
            "bless",
            "update-initramfs",
            "dracut",
            "ldconfig",
            "timedatectl",
            "hwclock",
            "crontab",
            "update-alternatives",
            "depmod",
            "bpftool",
            "ulimit_all",
        ],
        matches: |c| match c.name {
            "sysctl" => {
                c.has(&["-w", "--write", "-p", "--load", "--system"])
                    || c.operands().any(|word| word.contains('='))
            }
            "timedatectl" => c.begins(&["set-"]),
            "nvram" => c.has(&["-c", "-d"]) || c.operands().any(|word| word.contains('=')),
            "crontab" => false,
            "efibootmgr" => c.arguments.len() > 1,
            "update-alternatives" => c.begins(&["--set", "--install", "--remove", "--config"]),
            "hwclock" => c.has(&["--set", "-w", "--systohc"]),
            _ => true,
        },
        why: "changes the kernel or how the machine starts",
    },
    DangerRule {
        name: "power",
        programs: &["shutdown", "reboot", "halt", "poweroff", "init", "telinit", "pm-suspend", "rtcwake"],
        matches: |c| {
            !c.has(&["--help", "--version", "-c"]) && c.name != "init" && !c.has(&["-w", "--wtmp-only"])
        },
        why: "stops or restarts the machine",
    },
    DangerRule {
        name: "mining",
        programs: &["xmrig", "minerd", "cpuminer", "cgminer", "bfgminer", "stress", "stress-ng"],
        matches: |_| true,
        why: "uses up the machine",
    },
    DangerRule {
        name: "scanner",
        programs: &[
            "nmap",
            "masscan",
            "hydra",
            "john",
            "hashcat",
            "sqlmap",
            "nikto",
            "gobuster",
            "msfconsole",
            "msfvenom",
            "aircrack-ng",
            "responder",
            "ettercap",
            "bettercap",
        ],
        matches: |c| !c.has(&["--version", "--help", "-h"]),
        why: "scans or attacks machines",
    },
];

/// A `pkill` that kills without mercy, by user, or by a pattern that fits anything.
fn ends_many(command: &Invocation<'_>) -> bool {
    let is_kill = |word: &str| {
        matches!(word, "-9" | "-KILL" | "-SIGKILL" | "9" | "KILL" | "SIGKILL")
            || word.starts_with("--signal=")
    };
    let is_wide = |pattern: &str| {
        let letters = pattern.chars().filter(|c| c.is_alphanumeric()).count();
        letters < 4
            || pattern.contains(['*', '|', '\u{fffc}', '$', '?', '['])
            || BROAD_NAMES.contains(&pattern)
    };
    let selects = command.begins(&[
        "-u",
        "-U",
        "-g",
        "-G",
        "-P",
        "-s",
        "-t",
        "-v",
        "--inverse",
        "--uid",
        "--euid",
        "--parent",
    ]);
    command.words().any(is_kill) || selects || command.operands().next().is_none_or(is_wide)
}

/// Names that many processes have.
const BROAD_NAMES: &[&str] = &[
    "python", "python3", "node", "java", "bash", "sshd", "ruby", "perl", "systemd", "docker", "init", "tmux",
    "screen", "zsh", "Xorg",
];

/// A command of another user that changes nothing is harmless; a password from the input is not.
fn raises_rights(command: &Invocation<'_>) -> bool {
    let words = skip_values(
        command.arguments,
        &["-u", "-g", "-h", "-p", "-C", "-U", "-D", "-R", "--user", "--group"],
    );
    let options = &command.arguments[..command.arguments.len() - words.len()];
    let options = Invocation { arguments: options, ..*command };
    let from_input = options.has_option("SA", "stdin") || options.begins(&["--askpass"]);
    let only_talks = words.is_empty()
        && command.words().all(|word| {
            matches!(word, "-l" | "-v" | "-k" | "-K" | "-n" | "-V" | "--list" | "--version" | "--help")
        });
    let is_reader = words.first().is_some_and(|word| READERS.contains(&word.as_str()));
    from_input || *command.input != Feed::None && !is_reader || !(is_reader || only_talks)
}
