//! The slash commands: their names, their help, and how a line is read as one.

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
    /// A question is answered.
    Approve(String),
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
    help("approve", "allow|run|always|deny|TEXT", "answer what is asked"),
    help("diff", "", "what has changed in the workspace"),
    help("undo", "", "take back the last edit of a file"),
    help("export", "[FILE]", "write the conversation to a Markdown file"),
    help("image", "[FILE]", "attach a picture; without FILE, that of the clipboard"),
    help("stop", "", "stop the run, as Esc does"),
    help("details", "", "unfold or fold what tools printed and models thought, as Ctrl-O does"),
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
    ("Ctrl-C", "clear the input; else stop the run; twice: leave"),
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
        let command = match name {
            "new" | "clear" => Self::New,
            "resume" => Self::Resume(optional),
            "model" => Self::Model(optional),
            "agent" => Self::Agent(optional),
            "tree" => Self::Tree,
            "budget" => Self::Budget(optional),
            "approve" => match optional {
                Some(answer) => Self::Approve(answer),
                None => {
                    return Some(Err(
                        "/approve needs an answer: allow, run, always, deny or a text".to_owned()
                    ));
                }
            },
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

/// The text of `/help`.
pub fn help_text() -> String {
    let command = |command: &CommandHelp| {
        let call = format!("/{} {}", command.name, command.arguments);
        format!("{call:<36} {}\n", command.text)
    };
    let key = |(keys, text): &(&str, &str)| format!("{keys:<36} {text}\n");
    let commands: String = COMMANDS.iter().map(command).collect();
    let keys: String = KEYS.iter().map(key).collect();
    format!("{commands}\n{keys}")
}

#[cfg(test)]
mod tests {
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
        check("/approve", Some(Err("needs an answer")));
        check("/approve yes please", Some(Ok(Command::Approve("yes please".into()))));
        check("/dance", Some(Err("there is no command /dance")));
        check("/", Some(Err("/help lists them")));
    }

    #[test]
    fn every_command_of_the_help_is_read() {
        for command in COMMANDS {
            let line = format!("/{} x", command.name);
            assert!(matches!(Command::parse(&line), Some(Ok(_))), "{line}");
        }
        assert_eq!(Command::names("/re"), ["/resume"]);
        assert_eq!(Command::names("/").len(), COMMANDS.len());
    }
}
