//! Dangers from and to the network: downloads that run, uploads, shells for others, remote execution, metadata of clouds.

use super::{DangerRule, Invocation};
use crate::policy::command::feed::DOWNLOADERS;
use crate::policy::command::feed::Feed;

/// Programs that send what they read.
const SENDERS: &[&str] = &[
    "curl", "wget", "nc", "ncat", "netcat", "socat", "http", "https", "xh", "mail", "sendmail", "ssh",
    "telnet", "ftp", "openssl",
];

pub(super) const RULES: &[DangerRule] = &[
    DangerRule {
        name: "cloud-metadata",
        programs: &[],
        matches: |c| {
            !matches!(c.name, "echo" | "printf" | "grep" | "rg" | "git") && c.words().any(names_metadata)
        },
        why: "asks a cloud's metadata service, which hands out credentials",
    },
    DangerRule {
        name: "remote-shell",
        programs: &["nc", "ncat", "netcat", "socat", "telnet", "openssl"],
        matches: |c| {
            c.has_option("ec", "exec") && c.name.contains('c') && c.name != "socat"
                || c.begins(&["--sh-exec", "--exec"])
                || (c.name == "socat" && c.mentions(&["exec:", "system:", "pty"]))
                || (c.name.starts_with('n') && has_letter(c, 'l'))
                || (c.name == "openssl"
                    && c.is_verb(&["s_client", "s_server"])
                    && match c.input {
                        Feed::None => false,
                        Feed::Known { text, .. } => !text.trim().is_empty(),
                        Feed::Unknown { .. } => true,
                    })
        },
        why: "gives a shell, or a port of this machine, to the network",
    },
    DangerRule {
        name: "network-device",
        programs: &[],
        matches: |c| {
            c.name != "echo"
                && c.words().any(|word| word.starts_with("/dev/tcp/") || word.starts_with("/dev/udp/"))
        },
        why: "connects a shell with the network",
    },
    DangerRule {
        name: "upload",
        programs: &["curl", "wget", "http", "https", "xh"],
        matches: uploads,
        why: "sends a file or the output of a command to the network",
    },
    DangerRule {
        name: "pipe-upload",
        programs: SENDERS,
        matches: |c| {
            let reads_input =
                !matches!(c.name, "curl" | "wget" | "ssh" | "openssl") || c.has(&["-", "@-", "-T-"]);
            reads_input && *c.input != crate::policy::command::feed::Feed::None
        },
        why: "sends the output of a command to the network",
    },
    DangerRule {
        name: "unchecked-config",
        programs: &["curl", "wget"],
        matches: |c| c.has(&["-K", "--config", "--unix-socket", "--abstract-unix-socket", "--use-askpass"]),
        why: "reads what it does from a file, or talks to a socket of this machine",
    },
    DangerRule {
        name: "remote-command",
        programs: &[
            "ssh",
            "autossh",
            "mosh",
            "sshpass",
            "ansible",
            "ansible-playbook",
            "pdsh",
            "psexec",
            "winrm",
            "rsh",
            "fab",
            "salt",
            "plink",
        ],
        matches: |c| c.operands().count() > 0 && !c.has(&["-V"]),
        why: "runs commands on another machine",
    },
    DangerRule {
        name: "remote-copy",
        programs: &["scp", "sftp", "rsync", "rclone", "ftp", "lftp"],
        matches: |c| {
            let target = c.operands().next_back();
            matches!(c.name, "sftp" | "ftp" | "lftp")
                || (c.name == "rclone" && c.is_verb(&["copy", "sync", "move", "copyto"]))
                || target.is_some_and(|target| is_remote(target) && matches!(c.name, "scp" | "rsync"))
        },
        why: "copies files to another machine",
    },
    DangerRule {
        name: "tunnel",
        programs: &[
            "ngrok",
            "cloudflared",
            "localtunnel",
            "lt",
            "frpc",
            "bore",
            "chisel",
            "tailscale",
            "ssh",
            "sshuttle",
        ],
        matches: |c| {
            c.name != "ssh"
                || c.words().any(|word| ["-R", "-D", "-L", "-w"].iter().any(|start| word.starts_with(start)))
        },
        why: "opens this machine to the network",
    },
    DangerRule {
        name: "environment-upload",
        programs: SENDERS,
        matches: |c| c.words().any(|word| word.contains("${") && mentions_secret(word)),
        why: "sends a secret from the environment to the network",
    },
    DangerRule {
        name: "dns-upload",
        programs: &["dig", "nslookup", "host", "ping"],
        matches: |c| c.operands().any(|word| word.contains('\u{fffc}')),
        why: "sends the output of a command inside a name",
    },
    DangerRule {
        name: "open-url",
        programs: &[
            "start", "explorer", "rundll32", "mshta", "msedge", "chrome", "firefox", "xdg-open", "open",
            "iexplore",
        ],
        matches: |c| c.mentions(&["http://", "https://", "ftp://", "file:", "javascript:"]),
        why: "opens an address in a program of the desktop",
    },
];

/// The files into which a program downloads.
pub(in crate::policy::command) fn downloaded_files<'a>(name: &str, arguments: &'a [String]) -> Vec<&'a str> {
    if !DOWNLOADERS.contains(&name) {
        return Vec::new();
    }
    let names = |option: &str| match name {
        "wget" => matches!(option, "-O" | "--output-document" | "-qO"),
        _ => matches!(
            option,
            "-o" | "--output" | "-fsSLo" | "-sSLo" | "-Lo" | "-fLo" | "-sLo" | "-so" | "-fsSo"
        ),
    };
    let mut files: Vec<&str> = Vec::new();
    for (at, word) in arguments.iter().enumerate() {
        let is_joined = word.split_once('=').filter(|(option, _)| names(option));
        let glued = word.strip_prefix("-o").filter(|rest| name == "curl" && !rest.is_empty());
        files.extend(is_joined.map(|(_, file)| file).or(glued));
        if names(word) {
            files.extend(arguments.get(at + 1).map(String::as_str));
        }
    }
    let is_remote_name =
        |word: &&String| word.starts_with('-') && !word.starts_with("--") && word.contains('O');
    let keeps_name =
        name == "wget" || arguments.iter().any(|word| is_remote_name(&word) || word == "--remote-name");
    if files.is_empty() && keeps_name {
        let urls = arguments.iter().filter(|word| word.contains('/') && !word.starts_with('-'));
        let names = urls.filter_map(|url| url.split(['?', '#']).next()?.rsplit('/').next());
        files.extend(names.filter(|name| !name.is_empty()));
    }
    files.retain(|file| *file != "-");
    files
}

fn has_letter(command: &Invocation<'_>, letter: char) -> bool {
    command.words().any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(letter))
}

/// True if the host of an address is a metadata service, in any spelling of its number.
fn names_metadata(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    let after = lower.split_once("://").map_or(&*lower, |(_, rest)| rest);
    let authority = after.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let host = host.trim_end_matches('.');
    matches!(
        host,
        "metadata.google.internal"
            | "metadata"
            | "metadata.goog"
            | "instance-data"
            | "metadata.azure.internal"
            | "metadata.tencentyun.com"
            | "fd00:ec2::254"
            | "fd20:ce::254"
    ) && (host != "metadata" || lower.contains("://"))
        || address(host).is_some_and(is_metadata)
        || host.strip_prefix("::ffff:").and_then(address).is_some_and(is_metadata)
        || matches!(host, "::ffff:a9fe:a9fe" | "0:0:0:0:0:ffff:a9fe:a9fe")
        || host
            .strip_suffix(".nip.io")
            .or(host.strip_suffix(".sslip.io"))
            .is_some_and(|name| name.contains("169.254.169.254") || name.contains("169-254-169-254"))
}

fn is_metadata(address: u32) -> bool {
    const SERVICES: [[u8; 4]; 6] = [
        [169, 254, 169, 254],
        [169, 254, 170, 2],
        [169, 254, 170, 23],
        [169, 254, 169, 253],
        [100, 100, 100, 200],
        [192, 0, 0, 192],
    ];
    SERVICES.iter().any(|service| u32::from_be_bytes(*service) == address)
}

/// An IPv4 address as `inet_aton` reads it: one to four parts, each decimal, octal or hexadecimal.
fn address(host: &str) -> Option<u32> {
    let parse = |part: &str| match part.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None if part.len() > 1 && part.starts_with('0') => u32::from_str_radix(part, 8).ok(),
        None => part.parse().ok(),
    };
    let parts: Vec<u32> = host.split('.').map(parse).collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    if first.len() > 3 || first.iter().any(|part| *part > 255) {
        return None;
    }
    let high =
        first.iter().enumerate().map(|(n, part)| part << (24 - 8 * n)).fold(0_u32, |sum, part| sum | part);
    let free = 32 - 8 * u32::try_from(first.len()).ok()?;
    let fits = free == 32 || *last < (1_u32 << free);
    fits.then_some(high | last)
}

fn uploads(command: &Invocation<'_>) -> bool {
    let is_data = |word: &str| {
        matches!(
            word,
            "-d" | "--data"
                | "--data-binary"
                | "--data-raw"
                | "--data-ascii"
                | "--data-urlencode"
                | "-F"
                | "--form"
                | "--json"
                | "--post-data"
                | "--body-data"
        )
    };
    let sends = |value: &str| {
        value.starts_with('@') || value.contains("=@") || value.contains('\u{fffc}') || value.contains("=<")
    };
    let words: Vec<&str> = command.words().collect();
    let has_file = words.windows(2).any(|pair| is_data(pair[0]) && sends(pair[1]))
        || words
            .iter()
            .any(|word| word.split_once('=').is_some_and(|(name, value)| is_data(name) && sends(value)))
        || words.iter().any(|word| {
            (word.starts_with("-d@") || word.starts_with("-F") || word.starts_with("-d"))
                && word.len() > 2
                && sends(&word[2..])
        });
    has_file
        || command.has(&["-T", "--upload-file", "--post-file", "--body-file"])
        || command.begins(&["--upload-file=", "--post-file=", "--body-file=", "-T@"])
        || words
            .iter()
            .any(|word| word.contains("://") && word.contains('\u{fffc}') && word.contains(['?', '=']))
        || (matches!(command.name, "http" | "https" | "xh")
            && words.iter().any(|word| word.contains('@') && !word.contains("://")))
}

fn is_remote(path: &str) -> bool {
    path.contains("://")
        || path
            .split_once(':')
            .is_some_and(|(host, _)| !host.is_empty() && !host.contains('/') && host.len() > 1)
}

fn mentions_secret(word: &str) -> bool {
    let word = word.to_ascii_uppercase();
    ["SECRET", "PASSWORD", "PASSWD", "PRIVATE_KEY", "AWS_", "CREDENTIAL"]
        .iter()
        .any(|part| word.contains(part))
}

#[cfg(test)]
mod tests {
    use super::{downloaded_files, names_metadata};

    #[test]
    fn metadata_services_are_recognised_in_every_spelling() {
        let check = |word: &str, expected: bool| assert_eq!(names_metadata(word), expected, "{word}");
        check("http://169.254.169.254/latest/api/token", true);
        check("169.254.169.254/x", true);
        check("http://2852039166/", true);
        check("http://0xA9FEA9FE/", true);
        check("http://0251.0376.0251.0376/", true);
        check("http://169.254.43518/", true);
        check("http://[::ffff:169.254.169.254]/", true);
        check("http://[fd00:ec2::254]/", true);
        check("http://user@metadata.google.internal:80/computeMetadata", true);
        check("http://100.100.100.200/latest", true);
        check("http://169.254.1.1/status", false);
        check("https://metadata.google.internal.example.com/", false);
        check("https://example.com/169.254.169.254", false);
        check("metadata", false);
        check("100", false);
    }

    #[test]
    fn downloaded_files_are_named_by_options_or_by_the_address() {
        let check = |command: &str, expected: &[&str]| {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(downloaded_files(&words[0], &words[1..]), expected, "{command}");
        };
        check("curl -o x.sh https://e.org/y.sh", &["x.sh"]);
        check("curl -fsSLO https://e.org/y.sh?z", &["y.sh"]);
        check("wget https://e.org/y.sh", &["y.sh"]);
        check("curl https://e.org/y.sh", &[]);
    }
}
