//! The slash commands: their names, their help, and how a line is read as one.

use hermod_core::model::RunId;

use crate::event::{AllowScope, Intent, Question, Verdict};

/// A command of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A new conversation.
    New,
    /// Another conversation; without a name they are listed.
    Resume(Option<String>),
    /// The model of the next messages; without a name the models are listed.
    Model(Option<String>),
    /// The agent of the next conversation; without a name the agents are listed.
    Agent(Option<String>),
    /// The run and its subagents.
    Tree,
    /// The budget; with amounts, limits are raised.
    Budget(Option<String>),
    /// A question is answered: with a word or a text that of the conversation, with an id any.
    Approve(String),
    /// A call is denied: that with this id, or the one that the conversation asks about, for a reason.
    Deny(Option<String>),
    /// All that waits for a person, in all conversations.
    Approvals,
    /// The newest runs of all conversations.
    Runs,
    /// What happened in the last 24 hours.
    Report,
    /// What runs cost by day, and what is left of the limits of all runs.
    Usage,
    /// What the conversation has changed in the workspace.
    Diff,
    /// The last edit of a file is taken back.
    Undo,
    /// The conversation is written to a file.
    Export(Option<String>),
    /// A picture is attached.
    Image(Option<String>),
    /// The run is stopped.
    Stop,
    /// Everything that is folded is shown, or folded again.
    Details,
    /// Keys and commands.
    Help,
    /// The chat ends.
    Quit,
}

/// A command's name, its arguments, and what it does.
#[derive(Debug)]
pub struct CommandHelp {
    /// The name, without the slash.
    pub name: &'static str,
    /// Its arguments.
    pub arguments: &'static str,
    /// What it does.
    pub text: &'static str,
}

/// All commands, in the order of the help.
pub const COMMANDS: &[CommandHelp] = &[
    help("new", "", "begin a new conversation"),
    help("resume", "[ID]", "go on with another conversation; without ID, choose one"),
    help("model", "[NAME]", "the model of the next messages; without NAME, list them"),
    help("agent", "[NAME]", "a new conversation with this agent; without NAME, list them"),
    help("tree", "", "the run and its subagents, with what each has spent"),
    help("budget", "[iterations=10 usd=0.50]", "show the limits of the run, or raise them"),
    help("approve", "allow|run|always|TEXT", "answer what is asked; with an id of /approvals, elsewhere too"),
    help("deny", "[ID | REASON]", "deny what is asked; a reason goes to the model as a message"),
    help("approvals", "", "all that waits for you, in all conversations"),
    help("runs", "", "the newest runs of all conversations"),
    help("report", "", "what ran, failed and waits since yesterday"),
    help("usage", "", "what runs cost by day, and what is left of the limits"),
    help("diff", "", "what has changed in the workspace"),
    help("undo", "", "take back the last edit of a file"),
    help("export", "[FILE]", "write the conversation to a Markdown file"),
    help("image", "[FILE]", "attach a picture; without FILE, that of the clipboard"),
    help("stop", "", "stop the run, as Esc does"),
    help("details", "", "unfold or fold what tools printed and models thought: Ctrl-O"),
    help("help", "", "this list"),
    help("quit", "", "leave; what runs goes on"),
];

const fn help(name: &'static str, arguments: &'static str, text: &'static str) -> CommandHelp {
    CommandHelp { name, arguments, text }
}

/// The keys, and what they do.
pub const KEYS: &[(&str, &str)] = &[
    ("Enter", "send; while a run is under way, steer it"),
    ("Alt-Enter, Ctrl-J, \\ Enter", "a new line"),
    ("Esc", "stop the run"),
    ("Ctrl-C", "clear the input; else stop the run; twice within 3 s: leave"),
    ("Ctrl-D", "leave, if the input is empty"),
    ("Tab", "complete a command, or a path after @"),
    ("Up, Down", "earlier inputs"),
    ("PageUp, PageDown", "scroll; Ctrl-End goes back to the end"),
    ("Ctrl-O", "unfold or fold what tools printed and models thought"),
    ("Ctrl-G", "edit the input in $VISUAL or $EDITOR"),
    ("Ctrl-V", "attach the picture of the clipboard"),
    ("Ctrl-A/E/K/U/W/Y", "begin, end, cut to the end, cut to the begin, cut a word, put back"),
    ("Ctrl-Z", "stop the chat until `fg`; what runs goes on"),
    ("Ctrl-L", "draw the screen anew"),
];

/// The parts of the status line, and what they mean.
pub const STATUS: &[(&str, &str)] = &[
    ("vendor/model", "the model that was asked last"),
    ("context 12 %", "how full its context window was; what is long is summarised"),
    ("12.3k in, 300 out", "tokens read and written here, with those of subagents"),
    ("$0.0123", "what that has cost; left out if no price is known"),
    ("session 7NA7B9MX", "the conversation until it has a title; /resume takes this id"),
];

impl Command {
    /// Reads a line that begins with a slash; the error says what is wrong with it. A line whose first word has another
    /// slash, as a path has, is no command.
    pub fn parse(line: &str) -> Option<Result<Self, String>> {
        let line = line.trim().strip_prefix('/')?;
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if name.contains('/') {
            return None;
        }
        let argument = argument.trim();
        let optional = (!argument.is_empty()).then(|| argument.to_owned());
        let takes_nothing =
            COMMANDS.iter().any(|command| command.name == name && command.arguments.is_empty());
        if takes_nothing && let Some(argument) = optional {
            return Some(Err(format!("/{name} takes no argument; it was given `{argument}`")));
        }
        let command = match name {
            "new" | "clear" => Self::New,
            "resume" => Self::Resume(optional),
            "model" => Self::Model(optional),
            "agent" => Self::Agent(optional),
            "tree" => Self::Tree,
            "budget" => Self::Budget(optional),
            // Without an answer, what can be answered is listed.
            "approve" => optional.map_or(Self::Approvals, Self::Approve),
            "deny" => Self::Deny(optional),
            "approvals" => Self::Approvals,
            "runs" => Self::Runs,
            "report" => Self::Report,
            "usage" => Self::Usage,
            "diff" => Self::Diff,
            "undo" => Self::Undo,
            "export" => Self::Export(optional),
            "image" => Self::Image(optional),
            "stop" => Self::Stop,
            "details" => Self::Details,
            "help" | "?" => Self::Help,
            "quit" | "exit" | "q" => Self::Quit,
            _ => return Some(Err(format!("there is no command /{name}; /help lists them"))),
        };
        Some(Ok(command))
    }

    /// The names that begin with `start`, with their slash.
    pub fn names(start: &str) -> Vec<String> {
        let names = COMMANDS.iter().map(|command| format!("/{}", command.name));
        names.filter(|name| name.starts_with(start)).collect()
    }
}

/// A decision in a word, in letters of any case; `None` for any other text.
pub(crate) fn decision(word: &str) -> Option<Verdict> {
    Some(match &*word.to_lowercase() {
        "allow" | "once" | "yes" | "y" | "1" => Verdict::Allow(AllowScope::Once),
        "run" | "r" | "2" => Verdict::Allow(AllowScope::Run),
        "always" | "a" | "3" => Verdict::Allow(AllowScope::Always),
        "deny" | "no" | "n" | "4" => Verdict::Deny,
        _ => return None,
    })
}

/// Characters of an id that name a run or a call.
const ID_CHARS: std::ops::RangeInclusive<usize> = 6..=26;

/// Whether a word can be the id of a call, or the id of a run, whole or its end. Without a call it must have a digit, as
/// nearly all ids have: other words are more likely answers.
fn is_id(word: &str) -> bool {
    let (run, call) = word.split_once('.').map_or((word, None), |(run, call)| (run, Some(call)));
    let is_of_run = |c: char| c.is_ascii_alphanumeric() && !"ilou".contains(c.to_ascii_lowercase());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_call =
        |call: &str| call.split_once('.').is_some_and(|(one, two)| is_number(one) && is_number(two));
    let is_whole = call.map_or_else(|| run.contains(|c: char| c.is_ascii_digit()), is_call);
    is_whole && ID_CHARS.contains(&run.len()) && run.chars().all(is_of_run)
}

/// What an answer in words means while the conversation asks `question`; the error says why it is none.
pub(crate) fn answer(question: Option<&Question>, words: &str) -> Result<Intent, String> {
    let words = words.trim();
    let (first, rest) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
    let wants_text = question.is_some_and(|question| question.wants_text);
    // A text may look like the end of an id, but not like a call.
    if is_id(first) && (first.contains('.') || !wants_text) {
        let rest = rest.trim();
        let verdict = match rest {
            "" => Verdict::Allow(AllowScope::Once),
            rest => decision(rest).unwrap_or_else(|| Verdict::Text(rest.to_owned())),
        };
        return Ok(Intent::DecideNamed(first.to_owned(), verdict));
    }
    let Some(question) = question else {
        return Err(format!("this conversation asks nothing, and `{first}` is no id of /approvals"));
    };
    let verdict = match question.wants_text {
        true => Some(Verdict::Text(words.to_owned())),
        false => decision(words),
    };
    let verdict = verdict.ok_or_else(|| {
        format!(
            "`{words}` is neither allow, run, always nor deny, nor an id of /approvals; /stop stops the run"
        )
    })?;
    Ok(Intent::Decide(question.call, verdict))
}

/// What a denial comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The decision, or a list of what can be denied.
    Intent(Intent),
    /// A message to the run, which skips the call that it asks about.
    Message(String),
}

/// What a denial means while the conversation asks `question`; the error says why it is none.
/// A message reaches the run under way, `active`, and not a subagent.
pub(crate) fn denial(
    question: Option<&Question>,
    active: Option<RunId>,
    words: Option<String>,
) -> Result<Denial, String> {
    Ok(match (words, question) {
        (Some(id), _) if is_id(&id) => Denial::Intent(Intent::DecideNamed(id, Verdict::Deny)),
        (Some(_), Some(question)) if Some(question.call.run) != active => {
            return Err("a subagent asks, and gets no message: /deny alone denies the call".to_owned());
        }
        (Some(reason), Some(question)) if !question.wants_text => Denial::Message(reason),
        (Some(_), Some(_)) => {
            return Err("a question is answered by what you write; /deny alone leaves it open".to_owned());
        }
        (Some(words), None) => {
            return Err(format!("this conversation asks nothing, and `{words}` is no id of /approvals"));
        }
        (None, Some(question)) => Denial::Intent(Intent::Decide(question.call, Verdict::Deny)),
        (None, None) => Denial::Intent(Intent::Command(Command::Approvals)),
    })
}

/// The text of `/help`: lines of a name, a tab and what it means.
pub fn help_text() -> String {
    let command = |command: &CommandHelp| {
        let call = format!("/{} {}", command.name, command.arguments);
        format!("{}\t{}\n", call.trim_end(), command.text)
    };
    let line = |(name, text): &(&str, &str)| format!("{name}\t{text}\n");
    let commands: String = COMMANDS.iter().map(command).collect();
    let [keys, status] = [KEYS, STATUS].map(|lines| lines.iter().map(line).collect::<String>());
    format!("{commands}\n{keys}\nThe last line of the screen:\n{status}")
}

#[cfg(test)]
mod tests {
    use hermod_core::model::{CallId, RunId};

    use super::*;

    #[test]
    fn lines_are_read_as_commands() {
        let check = |line: &str, expect: Option<Result<Command, &str>>| {
            let read = Command::parse(line);
            match (read, expect) {
                (Some(Err(error)), Some(Err(part))) => assert!(error.contains(part), "{error}"),
                (read, expect) => {
                    assert_eq!(read, expect.map(|expect| expect.map_err(str::to_owned)), "{line}");
                }
            }
        };
        check("hello", None);
        check("/usr/bin is a folder", None);
        check(" /new ", Some(Ok(Command::New)));
        check("/model  a/b ", Some(Ok(Command::Model(Some("a/b".into())))));
        check("/resume", Some(Ok(Command::Resume(None))));
        check("/approve", Some(Ok(Command::Approvals)));
        check("/deny 7NA7B9MX.1.1", Some(Ok(Command::Deny(Some("7NA7B9MX.1.1".into())))));
        check("/approve yes please", Some(Ok(Command::Approve("yes please".into()))));
        check("/tree 7NA7B9MX", Some(Err("/tree takes no argument; it was given `7NA7B9MX`")));
        check("/dance", Some(Err("there is no command /dance")));
        check("/", Some(Err("/help lists them")));
    }

    #[test]
    fn an_answer_is_for_the_question_here_or_for_the_named_one() {
        let call = CallId { run: RunId::from_bits(1), iteration: 1, n: 1 };
        let question = |wants_text| Question { call, text: "?".into(), wants_text, can_always: true };
        let check = |question: Option<&Question>, words: &str, expect: Result<Intent, &str>| match (
            answer(question, words),
            expect,
        ) {
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (read, expect) => assert_eq!(read, expect.map_err(str::to_owned), "{words}"),
        };
        let named = |id: &str, verdict| Ok(Intent::DecideNamed(id.to_owned(), verdict));
        let (once, run) = (Verdict::Allow(AllowScope::Once), Verdict::Allow(AllowScope::Run));
        let text = |text: &str| Verdict::Text(text.to_owned());
        let (asks, wants_text) = (question(false), question(true));
        check(Some(&asks), "allow", Ok(Intent::Decide(call, once.clone())));
        check(Some(&asks), "Yes", Ok(Intent::Decide(call, once.clone())));
        check(Some(&asks), "N", Ok(Intent::Decide(call, Verdict::Deny)));
        check(Some(&asks), "perhaps", Err("`perhaps` is neither allow"));
        check(Some(&wants_text), "yes, main", Ok(Intent::Decide(call, text("yes, main"))));
        check(Some(&wants_text), "7NA7B9MX", Ok(Intent::Decide(call, text("7NA7B9MX"))));
        check(Some(&wants_text), "7NA7B9MX.1.2", named("7NA7B9MX.1.2", once.clone()));
        check(None, "7na7b9mx", named("7na7b9mx", once));
        check(None, "7NA7B9MX.1.2 run", named("7NA7B9MX.1.2", run));
        check(None, "7NA7B9MX.1.2 the second  one", named("7NA7B9MX.1.2", text("the second  one")));
        check(None, "7NA7B9MX.1 run", Err("asks nothing"));
        check(None, "nonsense", Err("asks nothing"));
        check(None, "ZZZZ.1.1 yes", Err("`ZZZZ.1.1` is no id of /approvals"));
    }

    #[test]
    fn a_denial_is_of_the_question_here_or_of_the_named_one() {
        let call = CallId { run: RunId::from_bits(1), iteration: 1, n: 1 };
        let question = |wants_text| Question { call, text: "?".into(), wants_text, can_always: true };
        let (asks, wants_text) = (question(false), question(true));
        let check = |question: Option<&Question>, words: Option<&str>, expect: Result<Denial, &str>| match (
            denial(question, Some(RunId::from_bits(1)), words.map(str::to_owned)),
            expect,
        ) {
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (read, expect) => assert_eq!(read, expect.map_err(str::to_owned), "{words:?}"),
        };
        let named = Denial::Intent(Intent::DecideNamed("7NA7B9MX".to_owned(), Verdict::Deny));
        check(None, None, Ok(Denial::Intent(Intent::Command(Command::Approvals))));
        check(None, Some("7NA7B9MX"), Ok(named));
        check(None, Some("nonsense"), Err("`nonsense` is no id"));
        check(Some(&asks), None, Ok(Denial::Intent(Intent::Decide(call, Verdict::Deny))));
        check(Some(&asks), Some("not on Friday"), Ok(Denial::Message("not on Friday".to_owned())));
        let of_subagent = CallId { run: RunId::from_bits(2), ..call };
        let of_subagent = Question { call: of_subagent, ..question(false) };
        check(Some(&of_subagent), None, Ok(Denial::Intent(Intent::Decide(of_subagent.call, Verdict::Deny))));
        check(Some(&of_subagent), Some("not on Friday"), Err("a subagent asks"));
        check(Some(&wants_text), None, Ok(Denial::Intent(Intent::Decide(call, Verdict::Deny))));
        check(Some(&wants_text), Some("not on Friday"), Err("is answered by what you write"));
    }

    #[test]
    fn every_command_of_the_help_is_read() {
        for command in COMMANDS {
            let argument = if command.arguments.is_empty() { "" } else { " x" };
            let line = format!("/{}{argument}", command.name);
            assert!(matches!(Command::parse(&line), Some(Ok(_))), "{line}");
        }
        assert_eq!(Command::names("/re"), ["/resume", "/report"]);
        assert_eq!(Command::names("/").len(), COMMANDS.len());
    }
}
