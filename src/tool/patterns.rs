//! Compiles the regular expressions and globs of a model within limits, and checks rules in `.gitignore` files, which
//! may come from anywhere. The parsers recurse, and compiled forms can be much longer than their texts.

use std::{io, path::Path};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use hermod_actors::port::BadArguments;
use ignore::overrides::{Override, OverrideBuilder};
use memchr::memchr_iter;

use super::MAX_ARGUMENT_CHARS;
use crate::{excerpt::quoted_first_chars, files::read_regular};

/// Limit of a pattern, in bytes: a class like `\pL` compiles to 5 kB from three of them.
const MAX_PATTERN_BYTES: usize = 4_096;
/// Limit of nested groups and classes.
const MAX_PATTERN_DEPTH: u32 = 100;
/// Limit of a compiled pattern's memory, in bytes.
const MAX_COMPILED_BYTES: usize = 4 << 20;
/// Limit of a glob, in bytes: no path is longer.
const MAX_GLOB_BYTES: usize = 4_096;
/// Limit of braces in a glob, and so of their depth: its parser recurses for each.
const MAX_GLOB_BRACES: usize = 32;
/// Limit of a file with rules, in bytes.
const MAX_RULES_BYTES: u64 = 1 << 20;
/// Limit of rules in a file: each is compiled.
const MAX_RULES: usize = 10_000;

/// Compiles the argument `pattern`.
pub(super) fn matcher(pattern: &str) -> Result<RegexMatcher, BadArguments> {
    let bad = |error: String, hint: &str| BadArguments {
        field: Some("pattern".into()),
        error: format!("`pattern` {} {error}", quoted_first_chars(pattern, MAX_ARGUMENT_CHARS)),
        hint: hint.into(),
    };
    if pattern.is_empty() {
        return Err(bad("is empty".into(), "give what to look for"));
    }
    if pattern.len() > MAX_PATTERN_BYTES {
        let error = format!("has {} bytes, more than {MAX_PATTERN_BYTES}", pattern.len());
        return Err(bad(error, "search for less at once"));
    }
    let mut builder = RegexMatcherBuilder::new();
    builder.line_terminator(Some(b'\n')).nest_limit(MAX_PATTERN_DEPTH);
    builder.size_limit(MAX_COMPILED_BYTES).dfa_size_limit(MAX_COMPILED_BYTES);
    builder.build(pattern).map_err(|error| {
        let error = error.to_string();
        bad(
            format!("cannot be used: {}", error.lines().last().unwrap_or_default()),
            "mend it; `\\` in front takes a character as it is",
        )
    })
}

/// Compiles the argument `glob`, for paths below `root`.
pub(super) fn globs(root: &Path, glob: Option<&str>) -> Result<Override, BadArguments> {
    let bad = |error: String| BadArguments {
        field: Some("glob".into()),
        error: format!("`glob` {} {error}", quoted_first_chars(glob.unwrap_or_default(), MAX_ARGUMENT_CHARS)),
        hint: "give one like `*.rs` or `src/**/*.toml`".into(),
    };
    let mut builder = OverrideBuilder::new(root);
    if let Some(glob) = glob {
        check_glob(glob.as_bytes()).map_err(bad)?;
        builder.add(glob).map_err(|error| bad(format!("cannot be used: {error}")))?;
    }
    builder.build().map_err(|error| bad(format!("cannot be used: {error}")))
}

/// Refuses a glob above the limits of the parser. The error is the end of a sentence.
fn check_glob(glob: &[u8]) -> Result<(), String> {
    let braces = memchr_iter(b'{', glob).count();
    if glob.len() > MAX_GLOB_BYTES {
        return Err(format!("has {} bytes, more than {MAX_GLOB_BYTES}", glob.len()));
    }
    if braces > MAX_GLOB_BRACES {
        return Err(format!("has {braces} braces, more than {MAX_GLOB_BRACES}"));
    }
    Ok(())
}

/// Kinds of errors after which there are no rules to read.
const IGNORED_ERRORS: &[io::ErrorKind] =
    &[io::ErrorKind::NotFound, io::ErrorKind::NotADirectory, io::ErrorKind::PermissionDenied];

/// Refuses rules in `folder` that cannot be read at once or are too expensive to compile. The error names the file and
/// is the beginning of a sentence.
pub(super) fn check_rules(folder: &Path) -> Result<(), String> {
    [".gitignore", ".ignore"].into_iter().try_for_each(|name| {
        let path = folder.join(name);
        if path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()) {
            return Err(format!("`{name}` is a symlink"));
        }
        match read_regular(&path, MAX_RULES_BYTES) {
            Ok(rules) => check_lines(&rules).map_err(|error| format!("`{name}` {error}")),
            // The walk cannot read such a file either, and nothing is below a regular file.
            Err(error) if IGNORED_ERRORS.contains(&error.kind()) => Ok(()),
            Err(error) => Err(format!("`{name}` cannot be used: {error}")),
        }
    })
}

fn check_lines(rules: &[u8]) -> Result<(), String> {
    let mut count = 0;
    for (n, line) in rules.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        count += 1;
        if count > MAX_RULES {
            return Err(format!("has more than {MAX_RULES} rules"));
        }
        check_glob(line).map_err(|error| format!("has a rule in line {} that {error}", n + 1))?;
    }
    Ok(())
}
