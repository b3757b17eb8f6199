//! Judges the commands of a script in order, with its variables, functions and written files. The rules for one command
//! are in `hard.rs` and `danger/`.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
    rc::Rc,
};

use super::{
    CommandPart, Danger, HardRule, JudgedCommand, ScriptAnalysis,
    budget::{TOO_COMPLEX, WorkBudget},
    danger::{self, DECODED_SCRIPT, HIDDEN, Invocation, UNKNOWN_SCRIPT},
    escape::expand_braces,
    expand::{Values, resolve},
    feed::Feed,
    hard::{FORK_BOMB, TOO_DEEP_COMMANDS, TOO_DEEP_SCRIPTS, output_denial},
    script::{
        MAX_SUBSTITUTED, ParsedScript, REFERENCE, SimpleCommand, is_keyword, parse, without_references,
    },
    target::PathTarget,
    text::{canonical, hides_text},
    unwrap::{SHELLS, assignment, program},
};

/// Limit of nested scripts and commands.
pub(super) const MAX_DEPTH: usize = 16;
/// The longest text of a judged part, in bytes.
const MAX_TEXT_BYTES: usize = 4_096;

/// The state of the check at one point of a script.
#[derive(Debug, Default)]
pub(super) struct ScriptChecker {
    pub(super) depth: usize,
    pub(super) budget: WorkBudget,
    /// The current folder after `cd`, if it is known.
    pub(super) folder: Option<PathTarget>,
    variables: BTreeMap<String, String>,
    pub(super) aliases: BTreeMap<String, String>,
    functions: HashMap<String, (Rc<ParsedScript>, Range<usize>)>,
    /// The functions that are being called.
    active: Vec<String>,
    /// What the script has written into files, by path.
    pub(super) files: BTreeMap<String, Feed>,
    /// The files that the script has made executable.
    pub(super) executables: HashSet<String>,
    /// Counts the changes of all that is above.
    generation: u64,
    /// Cache of scripts that passed without changing the state, by generation and text, with their output. A second
    /// check would give the same result.
    checked_scripts: HashMap<(u64, String), Feed>,
    /// Output of the previous command.
    pub(super) printed: Feed,
    /// The script that is being checked, and which of its substitutions have been checked.
    scope: (Rc<ParsedScript>, Vec<bool>),
    /// True if a substitution in the words of the command decodes a text.
    has_decoded: bool,
    /// True if the command runs in the background.
    is_background: bool,
    /// True if the command has a here-document or here-string.
    pub(super) has_document: bool,
    seen: HashSet<(String, Option<&'static str>)>,
    commands: Vec<JudgedCommand>,
}

impl ScriptChecker {
    /// Judges a whole script.
    pub(super) fn analyse(mut self, text: &str) -> ScriptAnalysis {
        let denial = self.analyse_whole(text).err();
        ScriptAnalysis { commands: self.commands, denial }
    }

    fn analyse_whole(&mut self, text: &str) -> Result<(), HardRule> {
        self.budget.spend(text.len())?;
        let text = without_references(text);
        if hides_text(&text) {
            self.flag(&text, HIDDEN)?;
        }
        self.check_script(&text)
    }

    /// Checks a script at this point; its assignments and `cd` affect what follows.
    pub(super) fn check_script(&mut self, text: &str) -> Result<(), HardRule> {
        if self.depth == MAX_DEPTH {
            return Err(TOO_DEEP_SCRIPTS);
        }
        self.budget.spend(text.len())?;
        let key = (self.generation, text.to_owned());
        if let Some(printed) = self.checked_scripts.get(&key) {
            self.budget.spend(printed.len())?;
            self.printed.clone_from(printed);
            return Ok(());
        }
        self.depth += 1;
        let result = self.check_parsed(text);
        self.depth -= 1;
        if result.is_ok() && self.generation == key.0 {
            self.budget.spend(self.printed.len())?;
            self.checked_scripts.insert(key, self.printed.clone());
        }
        result
    }

    fn check_parsed(&mut self, text: &str) -> Result<(), HardRule> {
        self.budget.spend_copies(8, text.len())?;
        let script = Rc::new(parse(text));
        if script.is_fork_bomb {
            return Err(FORK_BOMB);
        }
        if script.substituted.len() >= MAX_SUBSTITUTED {
            return Err(TOO_COMPLEX);
        }
        if script.is_malformed {
            self.flag(text, UNKNOWN_SCRIPT)?;
        }
        if script.has_coded_word || has_split_script(text) {
            self.flag(text, HIDDEN)?;
        }
        danger::bare_sql(text).map_or(Ok(()), |danger| self.flag(text, danger))?;
        for (name, range) in &script.functions {
            self.generation += 1;
            self.functions.insert(name.clone(), (Rc::clone(&script), range.clone()));
        }
        self.check_commands(&script, 0..script.commands.len(), &defined_commands(&script))
    }

    /// Checks these commands of a script, then its substitutions that stand in none of them.
    fn check_commands(
        &mut self,
        script: &Rc<ParsedScript>,
        range: Range<usize>,
        is_defined: &[bool],
    ) -> Result<(), HardRule> {
        let scope = (Rc::clone(script), vec![false; script.substituted.len()]);
        let is_whole = range.len() == script.commands.len();
        let outer = std::mem::replace(&mut self.scope, scope);
        let mut result = Ok(());
        for at in range {
            let is_body = is_defined.get(at).copied().unwrap_or(false);
            result = result.and_then(|()| self.check_simple(&script.commands[at], is_body));
        }
        for index in 0..if is_whole { script.substituted.len() } else { 0 } {
            if result.is_ok() && !self.scope.1[index] {
                let printed = std::mem::take(&mut self.printed);
                result = self.substitution(index).map(drop);
                self.printed = printed;
            }
        }
        self.scope = outer;
        result
    }

    fn check_simple(&mut self, command: &SimpleCommand, is_body: bool) -> Result<(), HardRule> {
        let previous = std::mem::take(&mut self.printed);
        self.has_decoded = false;
        self.is_background = command.is_background;
        self.has_document = command.input.is_some();
        let words = self.expand(&command.words)?;
        if self.has_decoded && runs_text(&command.words) {
            self.flag(&canonical(&words), DECODED_SCRIPT)?;
        }
        let input = self.input_of(command, previous)?;
        let outputs = self.expand(&command.outputs)?;
        self.spend_on_paths(&outputs)?;
        if let Some(rule) = outputs.iter().find_map(|path| output_denial(path, self.folder.as_ref())) {
            return Err(rule);
        }
        for path in &outputs {
            self.judge_output(path)?;
        }
        if self.hides_name(&command.words) {
            self.flag(&canonical(&words), HIDDEN)?;
        }
        let is_positional =
            |word: &String| word.starts_with("${") && word[2..].starts_with(|c: char| !c.is_alphabetic());
        let name = words.iter().find(|word| !is_keyword(word));
        // The words of a function's call are judged with the call.
        if !(is_body && name.is_some_and(is_positional)) {
            self.check_words(&words, input)?;
        }
        for path in outputs {
            self.budget.spend_word(path.len() + self.printed.len())?;
            let printed = self.printed.clone();
            self.write_file(&path, printed);
        }
        Ok(())
    }

    /// What a command reads. `previous` is the output of the command before it.
    fn input_of(&mut self, command: &SimpleCommand, previous: Feed) -> Result<Feed, HardRule> {
        let inputs = self.expand(&command.inputs)?;
        for path in &inputs {
            self.judge_input(path)?;
        }
        if let Some(text) = &command.input {
            let text = resolve(text, self)?;
            return Ok(Feed::Known { text, is_decoded: self.has_decoded });
        }
        Ok(match inputs.last() {
            Some(path) => self.file(path).cloned().unwrap_or_default(),
            None if command.is_fed_by_group => Feed::Unknown { is_download: previous.is_download() },
            None if command.is_piped => match &previous {
                Feed::None => Feed::Unknown { is_download: false },
                Feed::Known { .. } | Feed::Unknown { .. } => previous,
            },
            None => Feed::None,
        })
    }

    /// True if the script itself puts the name of the program together, out of variables or of the output of commands.
    fn hides_name(&self, words: &[String]) -> bool {
        let mut words = words.iter().filter(|word| !is_keyword(word) && assignment(word).is_none());
        let Some(name) = words.next() else { return false };
        let is_own = |word: &String| {
            let names = word.split("${").skip(1).map(|rest| rest.split('}').next().unwrap_or_default());
            names.filter(|name| self.variables.contains_key(*name) && !is_number(name)).count()
        };
        let is_built =
            |word: &str| word.matches("${").count() > 1 || !word.starts_with("${") || !word.ends_with('}');
        match is_own(name) {
            0 => name.contains(REFERENCE) && !name.contains('/') && words.next().is_some(),
            _ => is_built(name) || words.any(|word| is_own(word) > 0),
        }
    }

    /// Calls a function with arguments or input; `false` if there is none with this name.
    pub(super) fn call_function(&mut self, name: &str, arguments: &[String]) -> Result<bool, HardRule> {
        let Some((script, range)) = self.functions.get(name).cloned() else { return Ok(false) };
        if arguments.is_empty() || self.active.iter().any(|other| other == name) {
            return Ok(true);
        }
        if self.depth == MAX_DEPTH {
            return Err(TOO_DEEP_COMMANDS);
        }
        let body: usize =
            script.commands[range.clone()].iter().flat_map(|c| &c.words).map(|w| w.len() + 32).sum();
        self.budget.spend(body + script.substituted.len())?;
        let all = arguments.join(" ");
        for (n, value) in arguments.iter().take(9).enumerate() {
            self.assign(&(n + 1).to_string(), value.clone());
        }
        self.assign("@", all.clone());
        self.assign("*", all);
        self.depth += 1;
        self.active.push(name.to_owned());
        let result = self.check_commands(&script, range, &[]);
        self.active.pop();
        self.depth -= 1;
        for name in ["1", "2", "3", "4", "5", "6", "7", "8", "9", "@", "*"] {
            self.variables.remove(name);
        }
        result.map(|()| true)
    }

    pub(super) fn assign(&mut self, name: &str, value: String) {
        if self.variables.get(name) != Some(&value) {
            self.generation += 1;
            self.variables.insert(name.to_owned(), value);
        }
    }

    pub(super) fn set_alias(&mut self, name: &str, value: &str) {
        self.generation += 1;
        self.aliases.insert(name.to_owned(), value.to_owned());
    }

    pub(super) fn enter(&mut self, folder: Option<PathTarget>) {
        if folder != self.folder {
            self.generation += 1;
            self.folder = folder;
        }
    }

    pub(super) fn write_file(&mut self, path: &str, text: Feed) {
        let path = path.strip_prefix("./").unwrap_or(path);
        if self.files.get(path) != Some(&text) {
            self.generation += 1;
            self.files.insert(path.to_owned(), text);
        }
    }

    pub(super) fn make_executable(&mut self, path: &str) {
        let path = path.strip_prefix("./").unwrap_or(path);
        self.generation += u64::from(self.executables.insert(path.to_owned()));
    }

    /// What the script has written into a file.
    pub(super) fn file(&self, path: &str) -> Option<&Feed> {
        self.files.get(path.strip_prefix("./").unwrap_or(path))
    }

    /// Adds a part with its danger.
    pub(super) fn judge(
        &mut self,
        words: &[String],
        part: CommandPart,
        danger: Option<Danger>,
    ) -> Result<(), HardRule> {
        self.budget.spend_words(words)?;
        self.add(canonical(words), part, danger)
    }

    /// Adds the danger of a text that is no command.
    pub(super) fn flag(&mut self, text: &str, danger: Danger) -> Result<(), HardRule> {
        let end = text.len().min(MAX_TEXT_BYTES);
        let text = &text[..text.floor_char_boundary(end)];
        self.add(format!("{text}{REFERENCE}"), CommandPart::Other, Some(danger))
    }

    fn add(&mut self, text: String, part: CommandPart, danger: Option<Danger>) -> Result<(), HardRule> {
        self.budget.spend_word(text.len())?;
        if self.seen.insert((text.clone(), danger.map(|danger| danger.name))) {
            self.commands.push(JudgedCommand { text, part, danger });
        }
        Ok(())
    }

    fn judge_output(&mut self, path: &str) -> Result<(), HardRule> {
        let is_stream = path.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
            || matches!(path, "/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/tty");
        if is_stream || path.starts_with("/dev/fd/") {
            return Ok(());
        }
        let danger = danger::of_written_path(path, self.folder.as_ref());
        self.judge_file(">", path, CommandPart::Output, danger)
    }

    /// Adds the file of a redirection.
    fn judge_file(
        &mut self,
        operator: &str,
        path: &str,
        part: CommandPart,
        danger: Option<Danger>,
    ) -> Result<(), HardRule> {
        self.budget.spend_word(path.len())?;
        let path = canonical(&[path.to_owned()]);
        self.add(format!("{operator} {path}"), part, danger)
    }

    fn judge_input(&mut self, path: &str) -> Result<(), HardRule> {
        match danger::of_read_path(path, self.folder.as_ref()) {
            Some(danger) => self.judge_file("<", path, CommandPart::Other, Some(danger)),
            None => Ok(()),
        }
    }

    /// The first danger of a command.
    pub(super) fn danger_of(&self, words: &[String], input: &Feed) -> Option<Danger> {
        let (first, arguments) = words.split_first()?;
        let name = program(first);
        danger::of_command(&Invocation {
            name,
            arguments,
            input,
            folder: self.folder.as_ref(),
            is_background: self.is_background,
        })
    }

    /// Pays for resolving paths: each copies the current folder.
    pub(super) fn spend_on_paths(&mut self, paths: &[String]) -> Result<(), HardRule> {
        let names = self.folder.as_ref().map_or(0, PathTarget::len);
        self.budget.spend_copies(paths.len(), 8 * names)
    }

    /// Words with known variables, substitutions and braces expanded.
    fn expand(&mut self, words: &[String]) -> Result<Vec<String>, HardRule> {
        let mut expanded = Vec::new();
        for word in words {
            let resolved = resolve(word, self)?;
            // The value of an assignment is not split.
            let is_same = assignment(word).is_some() || resolved == *word;
            let parts = if is_same {
                vec![resolved.as_str()]
            } else {
                {
                    let separators = self.variables.get("IFS").map_or("", String::as_str);
                    let is_separator = |c: char| c.is_whitespace() || separators.contains(c);
                    resolved.split(is_separator).filter(|part| !part.is_empty()).collect()
                }
            };
            for part in parts {
                expand_braces(part, &mut self.budget, &mut expanded)?;
            }
        }
        Ok(expanded)
    }
}

impl Values for ScriptChecker {
    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    fn assign_default(&mut self, name: &str, value: &str) {
        self.assign(name, value.to_owned());
    }

    fn substitution(&mut self, index: usize) -> Result<String, HardRule> {
        let scope = Rc::clone(&self.scope.0);
        let Some(script) = scope.substituted.get(index) else { return Ok(REFERENCE.into()) };
        if let Some(is_checked) = self.scope.1.get_mut(index) {
            *is_checked = true;
        }
        let printed = std::mem::take(&mut self.printed);
        self.check_script(&script.text)?;
        let output = std::mem::replace(&mut self.printed, printed);
        self.has_decoded |= matches!(output, Feed::Known { is_decoded: true, .. });
        if script.is_file {
            // The index tells the files of one script apart.
            let path: String = format!("/dev/fd/{REFERENCE}{index}");
            self.write_file(&path, output);
            return Ok(path);
        }
        Ok(output.into_text().trim_end_matches('\n').to_owned())
    }

    fn budget(&mut self) -> &mut WorkBudget {
        &mut self.budget
    }
}

/// Line continuations that are looked at.
const MAX_CONTINUATIONS: usize = 1_000;

/// True if a command runs its words, not only a program with them.
fn runs_text(words: &[String]) -> bool {
    let mut words = words.iter().filter(|word| !is_keyword(word) && assignment(word).is_none());
    words.next().is_some_and(|name| {
        name.contains(REFERENCE)
            || matches!(
                program(name),
                "eval" | "sh" | "bash" | "dash" | "zsh" | "ksh" | "exec" | "source" | "."
            )
    })
}

/// True if a line continuation parts a shell from the script in its argument, which hides that from a reader of lines.
fn has_split_script(text: &str) -> bool {
    text.match_indices("\\\n").take(MAX_CONTINUATIONS).any(|(at, _)| {
        let mut words = text[..at].split_ascii_whitespace().rev();
        let is_option = words.next().is_some_and(|word| word.starts_with('-') && word.ends_with('c'));
        is_option && words.next().is_some_and(|word| SHELLS.contains(&program(word)))
    })
}

fn is_number(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'@' || byte == b'*')
}

/// For each command of a script, whether it stands in the body of a function.
fn defined_commands(script: &ParsedScript) -> Vec<bool> {
    let mut changes = vec![0_i64; script.commands.len() + 1];
    for (_, range) in &script.functions {
        changes[range.start] += 1;
        changes[range.end] -= 1;
    }
    let depths = changes.iter().scan(0, |depth, change| {
        *depth += change;
        Some(*depth > 0)
    });
    depths.collect()
}
