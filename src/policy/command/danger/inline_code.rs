//! Dangers of code inside a command: of interpreters, of editors and of databases.

use super::{BARE_SQL, DangerRule, Invocation, harmless_code::only_computes};
use crate::policy::command::{Danger, feed::Feed};

/// Interpreters, with the options that take code.
const INTERPRETERS: &[(&str, &[&str])] = &[
    ("python", &["-c"]),
    ("pypy", &["-c"]),
    ("py", &["-c"]),
    ("ipython", &["-c"]),
    ("perl", &["-e", "-E"]),
    ("ruby", &["-e"]),
    ("node", &["-e", "-p", "--eval", "--print", "-pe", "-r", "--require", "--import"]),
    ("nodejs", &["-e", "-p", "--eval", "--print"]),
    ("deno", &["eval"]),
    ("bun", &["-e", "--eval"]),
    ("tsx", &["-e", "--eval"]),
    ("ts-node", &["-e", "--eval"]),
    ("php", &["-r", "-B", "-R", "-E"]),
    ("lua", &["-e"]),
    ("luajit", &["-e"]),
    ("Rscript", &["-e"]),
    ("R", &["-e"]),
    ("julia", &["-e", "-E"]),
    ("elixir", &["-e"]),
    ("erl", &["-eval"]),
    ("ghc", &["-e"]),
    ("groovy", &["-e"]),
    ("scala", &["-e"]),
    ("osascript", &["-e"]),
    ("tclsh", &[]),
    ("expect", &["-c"]),
    ("guile", &["-c"]),
    ("racket", &["-e"]),
    ("jshell", &[]),
    ("swift", &["-e"]),
    ("clojure", &["-e"]),
];
const DATABASES: &[&str] = &[
    "psql",
    "mysql",
    "mariadb",
    "sqlite3",
    "sqlite",
    "sqlcmd",
    "duckdb",
    "clickhouse-client",
    "clickhouse",
    "bq",
    "cockroach",
    "mysqladmin",
    "dropdb",
    "dropuser",
    "mongo",
    "mongosh",
    "redis-cli",
    "cqlsh",
    "influx",
    "sqlplus",
    "turso",
    "wrangler",
    "usql",
];

pub(super) const RULES: &[DangerRule] = &[
    DangerRule {
        name: "inline-code",
        programs: &[],
        matches: |c| {
            has_code(c) && !(is_judged(c.name) && c.words().all(only_computes)) && !only_substitutes(c)
        },
        why: "runs code of an interpreter that stands in the command",
    },
    DangerRule {
        name: "code-from-input",
        programs: &[],
        matches: |c| {
            is_interpreter(c.name)
                && reads_code(c)
                && match c.input {
                    Feed::None => false,
                    Feed::Known { text, is_decoded } => {
                        *is_decoded || !(is_judged(c.name) && only_computes(text))
                    }
                    Feed::Unknown { .. } => true,
                }
        },
        why: "runs code that an interpreter reads from its input",
    },
    DangerRule {
        name: "powershell",
        programs: &["powershell", "pwsh", "PowerShell"],
        matches: powershell,
        why: "runs code of PowerShell that stands in the command",
    },
    DangerRule {
        name: "powershell",
        programs: &[
            "iex",
            "Invoke-Expression",
            "Remove-Item",
            "ri",
            "Stop-Process",
            "spps",
            "Start-Process",
            "Set-ExecutionPolicy",
            "Stop-Service",
            "Stop-Computer",
            "Restart-Computer",
            "Format-Volume",
            "Clear-Content",
        ],
        matches: |_| true,
        why: "runs code of PowerShell, or deletes or stops something with it",
    },
    DangerRule {
        name: "windows-command",
        programs: &["cmd"],
        matches: |c| {
            c.mentions(&[
                "del ",
                "erase ",
                "rd ",
                "rmdir ",
                "format ",
                "start ",
                "reg ",
                "shutdown",
                "powershell",
            ]) || c.has(&["del", "erase", "rd", "rmdir", "format", "start", "reg"])
        },
        why: "runs a command of Windows that deletes, formats or starts something",
    },
    DangerRule {
        name: "windows-tool",
        programs: &[
            "reg",
            "regedit",
            "vssadmin",
            "bcdedit",
            "wmic",
            "schtasks",
            "certutil",
            "bitsadmin",
            "net",
            "sc",
            "takeown",
            "icacls",
            "cipher",
            "format",
            "diskpart",
        ],
        matches: |c| match c.name {
            "net" => c.is_verb(&["user", "localgroup", "stop", "use"]),
            "sc" => c.is_verb(&["stop", "delete", "config", "create"]),
            "reg" => c.is_verb(&["add", "delete", "import"]),
            "wmic" | "schtasks" => c.operands().count() > 0,
            "certutil" => c.mentions(&["urlcache", "decode"]),
            _ => true,
        },
        why: "changes the system with a tool of Windows",
    },
    DangerRule {
        name: "awk-command",
        programs: &["awk", "gawk", "mawk", "nawk"],
        matches: |c| c.operands().next().is_some_and(awk_runs),
        why: "runs commands or writes files from a script of awk",
    },
    DangerRule {
        name: "sed-command",
        programs: &["sed", "gsed"],
        matches: |c| {
            c.words().any(|word| {
                word.ends_with("/e") || word == "e" || word.starts_with("e ") || word.starts_with("1e ")
            })
        },
        why: "runs commands from a script of sed",
    },
    DangerRule {
        name: "editor-command",
        programs: &["vi", "vim", "nvim", "ex", "ed", "emacs", "less", "man"],
        matches: |c| {
            c.words().any(|word| {
                word.contains(":!")
                    || word.contains("system(")
                    || word.contains("shell-command")
                    || word == "--eval"
                    || word == "-eval"
                    || word.starts_with("-P") && word.contains('!')
            })
        },
        why: "runs commands from an editor",
    },
    DangerRule {
        name: "sql",
        programs: DATABASES,
        matches: |c| {
            matches!(c.name, "dropdb" | "dropuser")
                || c.words().any(destroys_data)
                || matches!(c.input, Feed::Known { text, .. } if destroys_data(text))
                || (c.name == "mysqladmin" && c.has(&["drop", "shutdown"]))
                || (c.name == "redis-cli"
                    && c.words().any(|word| {
                        matches!(&*word.to_ascii_uppercase(), "FLUSHALL" | "FLUSHDB" | "SHUTDOWN" | "CONFIG")
                    }))
                || (c.name.starts_with("mongo")
                    && c.mentions(&["dropdatabase", ".drop(", "deletemany({})", ".remove({})"]))
        },
        why: "deletes or overwrites data of a database",
    },
    DangerRule {
        name: "sql-tool",
        programs: &[
            "rails",
            "rake",
            "prisma",
            "alembic",
            "flyway",
            "liquibase",
            "manage.py",
            "django-admin",
            "sequelize",
            "knex",
            "mix",
            "artisan",
            "npx",
            "python",
            "python3",
            "php",
            "bundle",
        ],
        matches: |c| {
            c.words().any(|word| {
                matches!(
                    word,
                    "db:drop"
                        | "db:reset"
                        | "db:purge"
                        | "flush"
                        | "reset_db"
                        | "migrate:fresh"
                        | "migrate:reset"
                        | "db:wipe"
                        | "ecto.drop"
                        | "ecto.reset"
                        | "drop-all"
                        | "db:seed:undo:all"
                )
            }) || (c.mentions(&["prisma"]) && c.has(&["reset", "--force-reset"]))
                || (c.name == "prisma" && c.has(&["reset", "--force-reset"]))
                || (matches!(c.name, "flyway") && c.has(&["clean"]))
                || (c.name == "alembic" && c.has(&["downgrade"]))
        },
        why: "drops or resets a database",
    },
];

/// True for an interpreter whose code is read.
fn is_judged(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    matches!(stem, "python" | "pypy" | "node" | "nodejs" | "bun" | "deno" | "tsx" | "ts-node")
}

/// True for `perl -pi -e 's/a/b/g' FILE`: one substitution, and no option that takes other code.
fn only_substitutes(command: &Invocation<'_>) -> bool {
    let mut codes =
        command.arguments.windows(2).filter(|pair| pair[0].starts_with('-') && pair[0].ends_with('e'));
    let is_plain = |code: &str| {
        let parts: Vec<&str> = code.trim_end_matches(';').split('/').collect();
        // Patterns and replacements can have code of their own.
        let has_code = |text: &str| ["(?{", "(??{", "@{", "${"].iter().any(|start| text.contains(start));
        matches!(*parts, ["s", pattern, replacement, flags]
            if flags.chars().all(|flag| "gimsx".contains(flag)) && !has_code(pattern) && !has_code(replacement))
    };
    command.name == "perl"
        && codes.clone().count() == 1
        && codes.all(|pair| is_plain(&pair[1]))
        && command.words().filter(|word| word.starts_with('-')).all(|word| {
            matches!(
                word,
                "-e" | "-pe" | "-pi" | "-i" | "-p" | "-pie" | "-i.bak" | "-0pe" | "-0pi" | "-0777" | "--"
            )
        })
}

/// True for an interpreter, with any version in its name.
pub(in crate::policy::command) fn is_interpreter(name: &str) -> bool {
    code_options(name).is_some()
}

fn code_options(name: &str) -> Option<&'static [&'static str]> {
    let base = name.rsplit('/').next().unwrap_or(name);
    let stem = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let found = INTERPRETERS.iter().find(|(interpreter, _)| *interpreter == stem || *interpreter == base);
    found.map(|(_, options)| *options)
}

/// True if an option has code: `-c`, `-c'code'`, `-Bc`, `-pe`, `--eval=code`.
fn has_code(command: &Invocation<'_>) -> bool {
    let Some(options) = code_options(command.name) else { return false };
    let mut words = command.words().take_while(|word| *word != "-m");
    let mut is_value = false;
    words
        .by_ref()
        .take_while(|word| {
            let is_option = is_value || word.starts_with('-') || *word == "eval";
            is_value = matches!(*word, "-W" | "-X" | "-I" | "-L" | "-S");
            is_option
        })
        .any(|word| {
            let is_group = word.starts_with('-') && !word.starts_with("--");
            let name = word.split('=').next().unwrap_or_default();
            options.contains(&word)
                || options.contains(&name)
                || options.iter().filter(|option| option.len() == 2 && option.starts_with('-')).any(
                    |option| {
                        let letter = option.as_bytes()[1];
                        is_group
                            && word.as_bytes()[1..]
                                .iter()
                                .take_while(|byte| !matches!(byte, b'I' | b'M' | b'W' | b'X'))
                                .any(|byte| *byte == letter)
                    },
                )
        })
}

/// True if an interpreter has neither a file nor a module to run.
fn reads_code(command: &Invocation<'_>) -> bool {
    !command.has(&["-m", "--version", "-V", "--help", "-h"])
        && !matches!(command.name, "deno" | "bun")
        && command.operands().next().is_none_or(|word| matches!(word, "-" | "/dev/stdin"))
}

/// Any code but cmdlets that only read.
fn powershell(command: &Invocation<'_>) -> bool {
    const READERS: &[&str] = &[
        "ls",
        "dir",
        "gci",
        "cat",
        "type",
        "gc",
        "pwd",
        "gl",
        "echo",
        "write-output",
        "write-host",
        "select-string",
        "sls",
        "test-path",
        "measure-object",
        "select-object",
        "sort-object",
        "where-object",
        "format-table",
        "git",
    ];
    let lower: Vec<String> = command.words().map(str::to_ascii_lowercase).collect();
    let is_flag = |word: &&String| {
        matches!(word.as_str(), "-nologo" | "-noprofile" | "-noninteractive" | "-nop" | "-noni")
    };
    let mut words = lower.iter().skip_while(|word| is_flag(word)).peekable();
    words.next_if(|word| matches!(word.as_str(), "-command" | "-c" | "/c" | "/command"));
    let text = words.map(String::as_str).collect::<Vec<_>>().join(" ");
    if text.is_empty()
        || text.starts_with("-file ")
        || text.starts_with("-f ")
        || matches!(&*text, "-version" | "-help" | "-?")
    {
        return false;
    }
    let first = text.split_whitespace().next().unwrap_or_default();
    let is_plain = !text.contains([';', '&', '|', '$', '(', '{', '`', '>', '\n']);
    let git_reads =
        first != "git" || matches!(text.split_whitespace().nth(1), Some("status" | "log" | "diff" | "show"));
    !(is_plain && git_reads && (READERS.contains(&first) || first.starts_with("get-")))
}

/// `system(...)`, a pipe into a command, or a file that is written.
fn awk_runs(script: &str) -> bool {
    script.contains("system(") || script.contains("| getline") || script.contains("|getline") || {
        let strings: Vec<&str> = script.split('"').collect();
        strings.windows(2).enumerate().any(|(n, pair)| {
            let before = pair[0].trim_end();
            let is_command = before.ends_with('|') && !before.ends_with("||");
            n % 2 == 0
                && is_command
                && !matches!(pair[1].split_whitespace().next(), Some("sort" | "uniq" | "cat" | "head" | "wc"))
        })
    }
}

/// The danger of a script that is SQL itself.
pub(in crate::policy::command) fn bare_sql(script: &str) -> Option<Danger> {
    let first = script.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
    let second = script.split_whitespace().nth(1).unwrap_or_default();
    let is_sql = !second.starts_with('-')
        && matches!(first.as_str(), "DROP" | "DELETE" | "TRUNCATE" | "ALTER" | "UPDATE" | "GRANT" | "REVOKE");
    (is_sql && destroys_data(script)).then_some(BARE_SQL)
}

/// True if a text has a statement that drops, truncates, or deletes or updates without a condition.
fn destroys_data(text: &str) -> bool {
    text.split(';').any(|statement| {
        let upper = statement.to_ascii_uppercase();
        let words: Vec<&str> = upper
            .split(|c: char| c.is_whitespace() || "()\"'`".contains(c))
            .filter(|word| !word.is_empty())
            .collect();
        let has_condition = words.contains(&"WHERE");
        words.windows(2).any(|pair| match *pair {
            [
                "DROP",
                "TABLE" | "DATABASE" | "SCHEMA" | "VIEW" | "INDEX" | "COLUMN" | "USER" | "ROLE" | "FUNCTION"
                | "TRIGGER" | "SEQUENCE" | "KEYSPACE" | "OWNED" | "TYPE" | "EXTENSION" | "MATERIALIZED",
            ]
            | ["TRUNCATE", _] => true,
            ["DELETE", "FROM"] => !has_condition,
            ["UPDATE", _] => words.contains(&"SET") && !has_condition,
            ["GRANT", _] => words.contains(&"TO"),
            _ => false,
        })
    })
}
