//! Judges shell scripts: the hard rules, which refuse whatever the policy says, and the dangers, for which it asks.
//!
//! It protects against accidents and is no security boundary, since it can be evaded on purpose. The boundary is the
//! sandbox.

mod budget;
mod checker;
mod danger;
mod escape;
mod expand;
mod feed;
mod hard;
mod lexer;
mod run;
mod script;
mod target;
#[cfg(test)]
mod tests;
mod text;
mod unwrap;

pub use budget::TOO_COMPLEX;

/// A rule that refuses a script whatever the policy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HardRule {
    /// Begins with `hard-`.
    pub name: &'static str,
    /// The end of a sentence that begins with "it".
    pub why: &'static str,
}

/// A danger, for which the policy asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Danger {
    /// The name of its rule.
    pub name: &'static str,
    /// The end of a sentence that begins with "it".
    pub why: &'static str,
}

/// What a judged text is in its script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandPart {
    /// A command, without wrappers, assignments and redirections.
    Command,
    /// A command that runs another one, which is judged too.
    Wrapper,
    /// A file that a redirection writes, after `> `.
    Output,
    /// A file that a redirection reads, after `< `, or a variable for a command, or a script as a whole.
    Other,
}

/// A part of a script with the danger in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedCommand {
    /// The canonical text, which rules match: the words with a space between them, quoted only if they must be. An
    /// unknown substitution is U+FFFC, an unknown variable `${NAME}`.
    pub text: String,
    /// What it is.
    pub part: CommandPart,
    /// The first danger in it.
    pub danger: Option<Danger>,
}

impl JudgedCommand {
    /// True if nothing in the text is unknown.
    pub fn is_exact(&self) -> bool {
        !self.text.contains(script::REFERENCE) && !self.text.contains("${")
    }
}

/// The judgement of a script.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptAnalysis {
    /// The parts in the order in which they run, without duplicates. Up to the denial, if there is one.
    pub commands: Vec<JudgedCommand>,
    /// The hard rule that refuses the script.
    pub denial: Option<HardRule>,
}

/// Analyses a shell script. The work, memory and stack are bounded for any script: one that needs more is refused as
/// [`TOO_COMPLEX`].
pub fn analyse(script: &str) -> ScriptAnalysis {
    checker::ScriptChecker::default().analyse(script)
}

/// Why `command`, a shell script, is never run, as the end of a sentence that begins with "it"; `None` if no hard rule
/// refuses it.
pub fn denial_reason(command: &str) -> Option<&'static str> {
    analyse(command).denial.map(|rule| rule.why)
}

/// Every hard rule.
pub fn hard_rules() -> &'static [HardRule] {
    hard::HARD_RULES
}

/// Every danger, in the order in which they are looked for.
pub fn dangers() -> impl Iterator<Item = Danger> {
    danger::all()
}

/// The danger of writing to a file.
pub fn file_danger(path: &str) -> Option<Danger> {
    danger::of_written_path(path, None)
}
