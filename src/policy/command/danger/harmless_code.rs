//! Code of Python and JavaScript that only computes: it names nothing that starts programs, reaches the network, deletes,
//! reads variables, or hides what it does, and no path outside of the current folder.
//!
//! The words are those that the standard libraries use for that. A program that means harm gets around a list of words;
//! the sandbox is what keeps it inside.

use crate::policy::command::script::REFERENCE;

/// Longer code is no one-liner, and is not read here.
const MAX_BYTES: usize = 8 << 10;

/// Names that code which only computes does not have, in lower case.
const WORDS: &[&str] = &[
    // Other programs and processes.
    "abort",
    "child_process",
    "cluster",
    "execa",
    "execfile",
    "execfilesync",
    "execl",
    "execle",
    "execlp",
    "execsync",
    "execv",
    "execve",
    "execvp",
    "fork",
    "forkpty",
    "kill",
    "killpg",
    "multiprocessing",
    "popen",
    "posix_spawn",
    "pty",
    "sh",
    "signal",
    "spawn",
    "spawnl",
    "spawnsync",
    "spawnv",
    "startfile",
    "subprocess",
    "system",
    "webbrowser",
    "worker_threads",
    // Code that is not in sight.
    "__builtins__",
    "__dict__",
    "__globals__",
    "__import__",
    "__subclasses__",
    "atob",
    "b64decode",
    "base64",
    "binascii",
    "builtins",
    "codecs",
    "compile",
    "ctypes",
    "eval",
    "exec",
    "fromcharcode",
    "fromhex",
    "function",
    "getattr",
    "globals",
    "importlib",
    "marshal",
    "pickle",
    "runpy",
    "unhexlify",
    "vars",
    "vm",
    "zlib",
    // The network.
    "aiohttp",
    "dgram",
    "dns",
    "fetch",
    "ftplib",
    "http",
    "http2",
    "https",
    "httpx",
    "imaplib",
    "net",
    "paramiko",
    "poplib",
    "requests",
    "smtplib",
    "socket",
    "socketserver",
    "telnetlib",
    "tls",
    "urllib",
    "urlopen",
    "urlretrieve",
    "websocket",
    "xmlhttprequest",
    // Files that go away or change their rights.
    "chmod",
    "chmodsync",
    "chown",
    "chownsync",
    "mkfifo",
    "move",
    "remove",
    "removedirs",
    "rename",
    "renamesync",
    "rimraf",
    "rm",
    "rmdir",
    "rmdirsync",
    "rmsync",
    "rmtree",
    "setuid",
    "shutil",
    "symlink",
    "symlinksync",
    "truncate",
    "truncatesync",
    "unlink",
    "unlinksync",
    // Variables and users.
    "environ",
    "environb",
    "expanduser",
    "home",
    "sep",
    "getenv",
    "getpass",
    "homedir",
    "keyring",
    "userinfo",
];

/// Parts of file names that code which only computes does not open.
const SECRET_PARTS: &[&str] = &[
    ".env",
    ".netrc",
    ".npmrc",
    ".pem",
    ".pgpass",
    ".pypirc",
    ".ssh",
    ".aws",
    "credential",
    "id_ed25519",
    "id_rsa",
    "passwd",
    "secret",
    "shadow",
    "token",
];

/// True if the code names nothing of the above. Comments count as code.
pub(super) fn only_computes(code: &str) -> bool {
    if code.len() > MAX_BYTES || code.contains(REFERENCE) || code.contains("${") {
        return false;
    }
    let lower = code.to_lowercase();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut names = lower.split(|c| !is_name(c)).filter(|name| !name.is_empty());
    !names.any(|name| WORDS.contains(&name))
        // `\x73ystem` and `\u0073ystem` are names in disguise.
        && !["\\x", "\\u", "\\0", "process.env", "chr(", "bytes(", "bytearray(", "buffer.from"].iter().any(|part| lower.contains(part))
        && !SECRET_PARTS.iter().any(|part| lower.contains(part))
        && literals(&lower).all(is_inside)
}

/// The texts between quotes, whichever quotes: a superset of the literals.
fn literals(code: &str) -> impl Iterator<Item = &str> {
    code.split(['"', '\'', '`'])
}

/// True unless the text begins like a path that leads out of the current folder.
fn is_inside(text: &str) -> bool {
    let is_path_out = text.len() > 1 && text.starts_with('/') && !text.starts_with("/tmp/");
    !is_path_out && !text.starts_with('~') && !text.split('/').any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_only_computes_is_known() {
        for code in [
            "print(1)",
            "print(sum(1 for n in range(2, 100) if all(n % d for d in range(2, n))))",
            "import json, sys; print(json.load(sys.stdin)['a'])",
            "import csv\nwith open(\"data/sales.csv\", newline=\"\") as fh:\n    print(len(list(csv.DictReader(fh))))",
            "from pathlib import Path\np = Path('src/a.py')\np.write_text(p.read_text().replace('30', '60', 1))",
            "import os; print(os.path.join('a', '/'), os.listdir('.'))",
            "console.log(require('./package.json').version)",
            "console.log(new Date('2024-03-31T01:30:00Z').toLocaleString('de-DE'))",
            "open('/tmp/x/out', 'w').write('x')",
        ] {
            assert!(only_computes(code), "{code}");
        }
        for code in [
            "import os; os.system('id')",
            "import os; os.remove('a')",
            "__import__('os').popen('id')",
            "getattr(os, 'sys' + 'tem')('id')",
            "import os; os.\\x73ystem('id')",
            "open('/etc/hosts', 'a').write('x')",
            "open('../x').read()",
            "open('.env').read()",
            "import socket",
            "import urllib.request as u; u.urlopen('https://x')",
            "require('child_process').execSync('id')",
            "fetch('https://x')",
            "process.env",
            "require('fs').rmSync('a')",
            "new Function('x')()",
            "import shutil; shutil.rmtree('build')",
            "print('\u{fffc}')",
            "print('${HOME}')",
            "open(bytes([47]).decode())",
        ] {
            assert!(!only_computes(code), "{code}");
        }
        assert!(!only_computes(&"print(1)\n".repeat(1_000)), "it is long");
    }
}
