//! The tool `search_files`: searches the files of the workspace for a regular expression. `patterns.rs` compiles it.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    time::Duration,
};

use grep_matcher::Matcher as _;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, sinks};
use hermod_actors::{
    SanitizedText,
    model::{Access, CallEnd, EffectClass},
    port::BadArguments,
};
use ignore::{DirEntry, WalkBuilder, overrides::Override};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Settings,
    blocking::run_blocking,
    page::BoundedLines,
    paths::{WorkspacePath, declared_path, one_line},
    patterns::{check_rules, globs, matcher},
    typed_tool::{ToolContext, TypedTool},
};
use crate::process::{without_cut_end, without_cut_start};

const DEFAULT_MATCHES: usize = 100;
/// Bytes of a line in the reply.
const MAX_LINE_BYTES: usize = 300;
/// Bytes before the match in a truncated line.
const BYTES_BEFORE_MATCH: usize = 100;
/// Limit of all matches in bytes, without remarks.
const MAX_RESULT_BYTES: usize = 48_000;
/// A file is skipped from the first longer line on.
const MAX_SEARCHED_LINE_BYTES: usize = 4 << 20;
/// Time limit, after which the search reports what it has found.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(20);

/// Searches the contents of files.
#[derive(Debug)]
pub(super) struct SearchFiles;

/// What to look for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// A regular expression (Rust's syntax; `(?i)` ignores case), matched within one line.
    pattern: String,
    /// The folder or file to search, relative to the workspace or absolute inside it; the workspace itself if absent.
    path: Option<String>,
    /// Only files whose path fits this, such as `*.rs`; with a `!` in front, only those that do not.
    glob: Option<String>,
    /// How many matching lines to show at most; 100 if absent.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<usize>,
}

impl TypedTool for SearchFiles {
    const NAME: &'static str = "search_files";
    const DESCRIPTION: &'static str = "Searches text files of the workspace for a regular expression; answers \
        `path:line: text` for each line that matches. What .gitignore names, `.git` and binary files are left out.";
    const EFFECT: EffectClass = EffectClass::Pure;
    type Arguments = Arguments;

    fn check(arguments: &Arguments) -> Result<(), BadArguments> {
        matcher(&arguments.pattern)?;
        globs(Path::new("/"), arguments.glob.as_deref()).map(|_| ())
    }

    fn access(arguments: &Arguments, workspace: &str, _: &Settings) -> Access {
        Access::reads(declared_path(workspace, arguments.path.as_deref().unwrap_or(".")))
    }

    async fn run(arguments: Arguments, context: ToolContext) -> CallEnd {
        run_blocking(&context, move |context| search(&arguments, context)).await
    }
}

fn search(arguments: &Arguments, context: &ToolContext) -> Result<String, CallEnd> {
    let path = context.resolve("path", arguments.path.as_deref().unwrap_or("."))?;
    let matcher = matcher(&arguments.pattern)?;
    let globs = globs(&path.root().absolute(), arguments.glob.as_deref())?;
    context.check_stopped()?;
    if !path.absolute().exists() {
        return Err(path.io_error(io::Error::from(io::ErrorKind::NotFound)).into());
    }
    let mut search = Search {
        context,
        deadline: Instant::now() + SEARCH_TIMEOUT,
        matcher,
        searcher: SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_SEARCHED_LINE_BYTES))
            .build(),
        lines: BoundedLines::new(arguments.limit.unwrap_or(DEFAULT_MATCHES), MAX_RESULT_BYTES),
        files: 0,
        skipped: 0,
        is_timed_out: false,
    };
    // The rules of all folders from the workspace down apply, so the walk begins there and follows only the path to the
    // target.
    let target = path.absolute();
    let is_walked = {
        let state_dir = context.settings.state.clone();
        move |entry: &DirEntry| state_dir.as_deref() != Some(entry.path()) && is_entered(entry)
    };
    let leads_to_target = {
        let (target, is_walked) = (target.clone(), is_walked.clone());
        move |entry: &DirEntry| {
            is_walked(entry) && (entry.path().starts_with(&target) || target.starts_with(entry.path()))
        }
    };
    let root = path.root();
    for folder in [root.absolute(), path.absolute()] {
        if let Err(error) = check_rules(&folder) {
            let error = format!("{error}, in {}", one_line(folder.as_os_str().as_encoded_bytes()));
            let hint = "remove it, or search another folder".to_owned();
            return Err(BadArguments { field: Some("path".into()), error, hint }.into());
        }
    }
    let reached =
        search.walk(walk(&root.absolute(), &globs).filter_entry(leads_to_target), (&root, &target))?;
    if !reached {
        // A named target is searched even if the rules ignore it.
        search.walk(walk(&target, &globs).filter_entry(is_walked), (&root, &target))?;
    }
    Ok(search.finish())
}

/// A folder with unusable rules is skipped: the walk would open the file with the rules even if it is a pipe.
fn is_entered(entry: &DirEntry) -> bool {
    let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
    entry.file_name() != ".git" && (!is_folder || check_rules(entry.path()).is_ok())
}

fn walk(from: &Path, globs: &Override) -> WalkBuilder {
    let mut walk = WalkBuilder::new(from);
    walk.hidden(false)
        .parents(false)
        .git_global(false)
        .git_exclude(false)
        .require_git(false)
        .follow_links(false);
    walk.overrides(globs.clone()).sort_by_file_name(Ord::cmp);
    walk
}

struct Search<'a> {
    context: &'a ToolContext,
    deadline: Instant,
    matcher: RegexMatcher,
    searcher: Searcher,
    lines: BoundedLines,
    /// Number of files searched.
    files: usize,
    /// Number of files that could not be read to their end.
    skipped: usize,
    /// True if the time limit ended the search.
    is_timed_out: bool,
}

impl Search<'_> {
    /// Searches the files of the walk below the target; false if the walk did not reach it.
    fn walk(&mut self, walk: &WalkBuilder, (root, target): (&WorkspacePath, &Path)) -> Result<bool, CallEnd> {
        let mut reached = false;
        for entry in walk.build() {
            self.context.check_stopped()?;
            if self.lines.is_truncated || self.is_timed_out() {
                break;
            }
            // Unreadable entries are skipped; `list_files` shows them.
            let Ok(entry) = entry else { continue };
            if !entry.path().starts_with(target) {
                continue;
            }
            reached = true;
            if entry.file_type().is_some_and(|kind| kind.is_file()) {
                self.file(root, entry.path())?;
            }
        }
        Ok(reached)
    }

    fn file(&mut self, root: &WorkspacePath, path: &Path) -> Result<(), CallEnd> {
        let Ok(relative) = path.strip_prefix(root.absolute()) else { return Ok(()) };
        // The entry may have changed since the walk saw it.
        let Ok((file, _)) = root.at(relative).open_file() else { return Ok(()) };
        let path = one_line(relative.as_os_str().as_encoded_bytes());
        self.files += 1;
        let reader = CancellableFile { file, context: self.context, deadline: self.deadline };
        let sink = sinks::Bytes(|number, line| {
            let excerpt = line_excerpt(line.trim_ascii_end(), &self.matcher);
            self.lines.push(&format!("{path}:{number}: {excerpt}"));
            Ok(!self.lines.is_truncated)
        });
        let searched = self.searcher.search_reader(&self.matcher, reader, sink);
        self.context.check_stopped()?;
        if searched.is_err() && !self.is_timed_out() {
            self.skipped += 1;
        }
        Ok(())
    }

    fn is_timed_out(&mut self) -> bool {
        self.is_timed_out |= Instant::now() >= self.deadline;
        self.is_timed_out
    }

    fn finish(self) -> String {
        let Self { lines, files, skipped, .. } = self;
        let (bound, count) = (lines.bound(), lines.count);
        let mut remarks = Vec::new();
        if lines.is_truncated {
            remarks.push(format!(
                "[truncated by {bound}: the first {count} matches; narrow `pattern`, `path` or `glob`]"
            ));
        } else if self.is_timed_out {
            let seconds = SEARCH_TIMEOUT.as_secs();
            remarks.push(format!(
                "[stopped after {seconds} s in file {files}: name a `path` or `glob` that is less]"
            ));
        } else if count == 0 {
            remarks.push(format!("[no match in {files} files]"));
        }
        if skipped > 0 {
            remarks.push(format!(
                "[{skipped} files were not searched to their end: lines too long, or unreadable]"
            ));
        }
        lines.text + &remarks.join("\n")
    }
}

/// A file whose read fails once the call is stopped or its time is up.
struct CancellableFile<'a> {
    file: File,
    context: &'a ToolContext,
    deadline: Instant,
}

impl Read for CancellableFile<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.context.cancel.is_cancelled() || Instant::now() >= self.deadline {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        self.file.read(to)
    }
}

/// A line for the reply; a long one is truncated around its first match.
fn line_excerpt(line: &[u8], matcher: &RegexMatcher) -> String {
    if line.len() <= MAX_LINE_BYTES {
        return visible(line);
    }
    // The matcher's error type has no values.
    let at = matcher.find(line).ok().flatten().map_or(0, |found| found.start());
    let start = at.saturating_sub(BYTES_BEFORE_MATCH).min(line.len() - MAX_LINE_BYTES);
    let start = line.len() - without_cut_start(&line[start..]).len();
    let end = (start + MAX_LINE_BYTES).min(line.len());
    let excerpt = visible(without_cut_end(&line[start..end]));
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{excerpt}{after}")
}

/// The sanitized text, truncated: hidden characters become longer when they are made visible.
fn visible(bytes: &[u8]) -> String {
    let mut text = SanitizedText::of(bytes).text;
    text.truncate(text.floor_char_boundary(2 * MAX_LINE_BYTES));
    text
}
