//! Tool calls as ACP shows them: title, kind, places, differences of files, output. Pure.

use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{
    Content, Diff, ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields, ToolKind,
};
use hermod_actors::model::{CallEnd, CallId, CallStatus};
use hermod_chat::CommandEnd;
use serde_json::Value;

use crate::cli::format::truncated_line;

/// The tool whose list is the plan.
const TODO: &str = "todo";
/// Characters of a command, a path or a pattern in a title.
const MAX_TITLE_CHARS: usize = 120;
/// Bytes of a command's output that are shown while it runs: the last ones.
const MAX_OUTPUT_BYTES: usize = 16 * 1024;

/// A tool call that has no result yet.
#[derive(Debug)]
pub(super) struct OpenCall {
    tool: String,
    arguments: Value,
    /// The end of what it has printed so far.
    output: String,
}

impl OpenCall {
    /// A call with its arguments, as the model wrote them.
    pub(super) fn new(tool: &str, arguments: &str) -> Self {
        let arguments =
            serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.to_owned()));
        Self { tool: tool.to_owned(), arguments, output: String::new() }
    }

    /// The call when the model has made it.
    pub(super) fn announced(&self, call: CallId, folder: &Path) -> ToolCall {
        ToolCall::new(call.to_string(), self.title())
            .kind(kind(&self.tool))
            .status(ToolCallStatus::Pending)
            .content(self.differences(folder))
            .locations(self.locations(folder))
            .raw_input(self.arguments.clone())
    }

    /// The call under the name and the arguments with which it was admitted; `None` if both were known.
    pub(super) fn admitted(
        &mut self,
        (call, folder): (CallId, &Path),
        (tool, arguments): (&str, Option<&str>),
    ) -> Option<ToolCallUpdate> {
        let before = (self.title(), self.arguments.clone());
        let output = std::mem::take(&mut self.output);
        if let Some(arguments) = arguments {
            *self = Self::new(tool, arguments);
        }
        (self.tool, self.output) = (tool.to_owned(), output);
        let fields = ToolCallUpdateFields::new()
            .title(self.title())
            .kind(kind(&self.tool))
            .content(self.differences(folder))
            .locations(self.locations(folder))
            .raw_input(self.arguments.clone());
        (before != (self.title(), self.arguments.clone()))
            .then(|| ToolCallUpdate::new(call.to_string(), fields))
    }

    /// Adds lines to what the call has printed.
    pub(super) fn print(&mut self, lines: &str) {
        if !self.output.is_empty() && !self.output.ends_with('\n') {
            self.output.push('\n');
        }
        self.output.push_str(lines);
        if self.output.len() > 2 * MAX_OUTPUT_BYTES {
            let from = self.output.ceil_char_boundary(self.output.len() - MAX_OUTPUT_BYTES);
            self.output.drain(..from);
        }
    }

    /// The call while a person is asked about it.
    pub(super) fn asked(&self, call: CallId, folder: &Path, question: &str) -> ToolCallUpdate {
        let content: Vec<_> =
            [text(question.to_owned())].into_iter().chain(self.differences(folder)).collect();
        let fields = ToolCallUpdateFields::new().content(content).title(self.title()).kind(kind(&self.tool));
        let fields = fields.locations(self.locations(folder)).raw_input(self.arguments.clone());
        ToolCallUpdate::new(call.to_string(), fields.status(ToolCallStatus::Pending))
    }

    /// What it has printed so far, as its content.
    pub(super) fn printed(&self, call: CallId) -> ToolCallUpdate {
        let from = self.output.ceil_char_boundary(self.output.len().saturating_sub(MAX_OUTPUT_BYTES));
        let shown = self.output.get(from..).unwrap_or_default();
        ToolCallUpdate::new(call.to_string(), ToolCallUpdateFields::new().content(vec![text(fenced(shown))]))
    }

    /// The end of the call.
    pub(super) fn ended(&self, call: CallId, end: &CallEnd) -> ToolCallUpdate {
        let status = match end.status {
            CallStatus::Ok => ToolCallStatus::Completed,
            CallStatus::Error | CallStatus::Stopped | CallStatus::NotStarted | CallStatus::InDoubt => {
                ToolCallStatus::Failed
            }
        };
        let output = serde_json::from_str(&end.content).unwrap_or_else(|_| Value::from(&*end.content));
        let fields = ToolCallUpdateFields::new().status(status).raw_output(output);
        // What was changed stays as it was announced, and the plan is shown as such.
        let is_shown = kind(&self.tool) == ToolKind::Edit || self.tool == TODO;
        let keeps_content = end.status == CallStatus::Ok && is_shown;
        let fields = if keeps_content { fields } else { fields.content(vec![text(self.result(end))]) };
        ToolCallUpdate::new(call.to_string(), fields)
    }

    fn result(&self, end: &CallEnd) -> String {
        match CommandEnd::parse(&self.tool, &end.content) {
            Some(command) => {
                let output = fenced(&format!("{}{}", command.stdout, command.stderr));
                command.failure().map_or(output.clone(), |failure| format!("{output}\n{failure}"))
            }
            None => fenced(&end.content),
        }
    }

    fn argument(&self, name: &str) -> Option<&str> {
        self.arguments.get(name)?.as_str()
    }

    fn title(&self) -> String {
        let of = |name: &str| self.argument(name).map(|text| truncated_line(text, MAX_TITLE_CHARS));
        let (verb, object) = match &*self.tool {
            "read_file" => ("Read", of("path")),
            "write_file" => ("Write", of("path")),
            "edit_file" => ("Edit", of("path")),
            "list_files" => ("List", of("path").or_else(|| Some(".".to_owned()))),
            "search_files" => ("Search", of("pattern")),
            "shell" => return of("command").unwrap_or_else(|| "shell".to_owned()),
            TODO => return "Update the plan".to_owned(),
            "clarify" => ("Ask:", of("question")),
            "skill_view" => ("Read skill", of("name")),
            other => return truncated_line(other, MAX_TITLE_CHARS),
        };
        object.map_or_else(|| verb.to_owned(), |object| format!("{verb} {object}"))
    }

    fn path(&self, folder: &Path) -> Option<PathBuf> {
        let has_path =
            matches!(&*self.tool, "read_file" | "write_file" | "edit_file" | "list_files" | "search_files");
        self.argument("path").filter(|_| has_path).map(|path| folder.join(path))
    }

    fn locations(&self, folder: &Path) -> Vec<ToolCallLocation> {
        let line = self.arguments.get("offset").and_then(Value::as_u64);
        let line = line.and_then(|line| u32::try_from(line).ok());
        let locations = self.path(folder).into_iter();
        locations.map(|path| ToolCallLocation::new(path).line(line)).collect()
    }

    /// What the call changes in files. A written file is shown as a new one: what it held before is not recorded.
    fn differences(&self, folder: &Path) -> Vec<ToolCallContent> {
        let Some(path) = self.path(folder) else { return Vec::new() };
        match (&*self.tool, self.argument("content"), self.arguments.get("edits").and_then(Value::as_array)) {
            ("write_file", Some(content), _) => vec![ToolCallContent::Diff(Diff::new(path, content))],
            ("edit_file", _, Some(edits)) => {
                let text = |edit: &Value, name: &str| edit.get(name)?.as_str().map(str::to_owned);
                let pairs = edits.iter().filter_map(|edit| Some((text(edit, "old")?, text(edit, "new")?)));
                pairs.map(|(old, new)| ToolCallContent::Diff(Diff::new(&path, new).old_text(old))).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn kind(tool: &str) -> ToolKind {
    match tool {
        "read_file" | "read_artifact" | "skill_view" => ToolKind::Read,
        "write_file" | "edit_file" => ToolKind::Edit,
        "list_files" | "search_files" => ToolKind::Search,
        "shell" => ToolKind::Execute,
        TODO | "memory" | "delegate_task" => ToolKind::Think,
        _ => ToolKind::Other,
    }
}

/// A call that runs.
pub(super) fn in_progress(call: CallId) -> ToolCallUpdate {
    ToolCallUpdate::new(call.to_string(), ToolCallUpdateFields::new().status(ToolCallStatus::InProgress))
}

/// A call of a subagent, of which only the question about it is known.
pub(super) fn asked_below(call: CallId, question: &str) -> ToolCallUpdate {
    let title = truncated_line(question, MAX_TITLE_CHARS);
    let fields = ToolCallUpdateFields::new().title(title).status(ToolCallStatus::Pending);
    ToolCallUpdate::new(call.to_string(), fields.content(vec![text(question.to_owned())]))
}

/// A text as the content of a call.
pub(super) fn text(text: String) -> ToolCallContent {
    ToolCallContent::Content(Content::new(text))
}

/// A text that is shown as it is, in a fence that is longer than each one in it.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::RunId;
    use serde_json::json;

    use super::*;

    const CALL: CallId = CallId { run: RunId::from_bits(1), iteration: 2, n: 1 };

    /// Checks fields of the announced call.
    #[track_caller]
    fn check(tool: &str, arguments: Value, expect: Value) {
        let call = OpenCall::new(tool, &arguments.to_string()).announced(CALL, Path::new("/w"));
        let mut shown = serde_json::to_value(call).unwrap();
        assert_eq!(shown["rawInput"], arguments);
        assert_eq!(shown["toolCallId"], CALL.to_string());
        let shown = shown.as_object_mut().unwrap();
        shown.retain(|name, _| ["title", "kind", "locations", "content"].contains(&&**name));
        assert_eq!(Value::from(shown.clone()), expect, "{tool}");
    }

    #[test]
    fn a_call_has_title_kind_place_and_differences() {
        check(
            "read_file",
            json!({ "path": "a.rs", "offset": 7 }),
            json!({ "title": "Read a.rs", "kind": "read", "locations": [{ "path": "/w/a.rs", "line": 7 }] }),
        );
        check(
            "write_file",
            json!({ "path": "/w/a.rs", "content": "x" }),
            json!({ "title": "Write /w/a.rs", "kind": "edit", "locations": [{ "path": "/w/a.rs" }],
                "content": [{ "type": "diff", "path": "/w/a.rs", "newText": "x" }] }),
        );
        check(
            "edit_file",
            json!({ "path": "a.rs", "edits": [{ "old": "x", "new": "y" }, { "old": 1 }] }),
            json!({ "title": "Edit a.rs", "kind": "edit", "locations": [{ "path": "/w/a.rs" }],
                "content": [{ "type": "diff", "path": "/w/a.rs", "oldText": "x", "newText": "y" }] }),
        );
        check("shell", json!({ "command": "ls\n-l" }), json!({ "title": "ls -l", "kind": "execute" }));
        check(
            "search_files",
            json!({ "pattern": "fn a" }),
            json!({ "title": "Search fn a", "kind": "search" }),
        );
        check("strange", json!([1]), json!({ "title": "strange" }));
        check("write_file", json!({ "path": 1 }), json!({ "title": "Write", "kind": "edit" }));
        check("read_file", json!("not an object"), json!({ "title": "Read", "kind": "read" }));
    }

    #[track_caller]
    fn check_end(tool: &str, end: CallEnd, expect: Value) {
        let mut shown = serde_json::to_value(OpenCall::new(tool, "{}").ended(CALL, &end)).unwrap();
        shown.as_object_mut().unwrap().remove("toolCallId");
        assert_eq!(shown, expect, "{tool}");
    }

    #[test]
    fn the_end_of_a_call_has_its_output() {
        let content =
            |text: &str| json!([{ "type": "content", "content": { "type": "text", "text": text } }]);
        let output = r#"{"exit_code":3,"signal":null,"timed_out":false,"stdout":"one\n","stderr":"two"}"#;
        let raw: Value = serde_json::from_str(output).unwrap();
        let shown = content("```\none\ntwo\n```\nexit 3");
        let expect = json!({ "status": "completed", "content": shown, "rawOutput": raw });
        check_end("shell", CallEnd::ok(output), expect);
        let expect = json!({ "status": "completed", "rawOutput": "wrote 1 bytes to a" });
        check_end("write_file", CallEnd::ok("wrote 1 bytes to a"), expect);
        let shown = content("````\na ``` b\n````");
        let expect = json!({ "status": "failed", "content": shown, "rawOutput": "a ``` b" });
        check_end("edit_file", CallEnd::new(CallStatus::Error, "a ``` b"), expect);
    }

    #[test]
    fn the_end_of_a_long_output_is_shown() {
        let mut call = OpenCall::new("shell", "{}");
        (0..100_000).for_each(|n| call.print(&format!("é{n}")));
        assert!(call.output.len() <= 2 * MAX_OUTPUT_BYTES);
        let shown = serde_json::to_value(call.printed(CALL)).unwrap();
        let text = shown["content"][0]["content"]["text"].as_str().unwrap();
        assert!(text.ends_with("é99999\n```") && text.len() <= MAX_OUTPUT_BYTES + 16, "{}", text.len());
    }

    #[test]
    fn an_admitted_call_has_the_name_of_its_tool() {
        let mut call = OpenCall::new("Shell", r#"{"command":"ls"}"#);
        let place = (CALL, Path::new("/w"));
        let update = call.admitted(place, ("shell", None)).unwrap();
        assert_eq!(update.fields.title.as_deref(), Some("ls"));
        assert!(call.admitted(place, ("shell", None)).is_none());
        let update = call.admitted(place, ("shell", Some(r#"{"command":"id"}"#))).unwrap();
        assert_eq!(update.fields.title.as_deref(), Some("id"));
    }
}
