//! The argument of a call that the patterns of rules match.

use std::path::{Component, Path, PathBuf};

use hermod_actors::port::ProposedCall;
use serde_json::Value;

/// The texts of a call, any of which a rule may match.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MainArgument {
    /// The name of the field; `None` for the arguments as a whole.
    pub(super) field: Option<&'static str>,
    /// What people read.
    pub(super) shown: String,
    /// What an `allow` rule may match: what the call really does.
    pub(super) resolved: Vec<String>,
    /// What `deny` and `ask` rules may match.
    pub(super) all: Vec<String>,
}

/// The first text among the arguments `path`, `url`, `command` and `name`, else all arguments as JSON. A path is
/// matched absolute, and relative to the workspace if it is inside; `deny` and `ask` rules also match it as written.
pub(super) fn main_argument(call: &ProposedCall<'_>) -> MainArgument {
    let text = |field| call.arguments.get(field).and_then(Value::as_str).map(|text| (field, text));
    let Some((field, text)) = ["path", "url", "command", "name"].into_iter().find_map(text) else {
        let json = call.arguments.to_string();
        return MainArgument {
            field: None,
            shown: json.clone(),
            resolved: vec![json.clone()],
            all: vec![json],
        };
    };
    let written = text.to_owned();
    let resolved = match field {
        "path" => paths(text, call.workspace),
        _ => vec![written.clone()],
    };
    let mut all = resolved.clone();
    all.push(written.clone());
    MainArgument { field: Some(field), shown: written, resolved, all }
}

/// The absolute path, and the one relative to the workspace, both without `.` and `..`.
fn paths(path: &str, workspace: &str) -> Vec<String> {
    let workspace = normal(Path::new(workspace));
    let absolute = normal(&workspace.join(path));
    let inside = absolute.strip_prefix(&workspace).ok().filter(|_| workspace.is_absolute());
    let inside = inside.map(|path| path.display().to_string());
    [Some(absolute.display().to_string()), inside].into_iter().flatten().collect()
}

fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(normal.pop()),
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => normal.push(component),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::AgentName;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_main_argument_of_a_call_is_what_rules_match() {
        let check = |arguments: Value, resolved: &[&str], all: &[&str]| {
            let call = ProposedCall {
                agent: &AgentName::default(),
                tool: "any",
                arguments: &arguments,
                workspace: "/workspace/a",
            };
            let argument = main_argument(&call);
            assert_eq!(argument.resolved, resolved, "{arguments}");
            assert_eq!(argument.all, all, "{arguments}");
        };
        check(json!({"path": "src/../b"}), &["/workspace/a/b", "b"], &["/workspace/a/b", "b", "src/../b"]);
        check(json!({"path": "../../etc/x"}), &["/etc/x"], &["/etc/x", "../../etc/x"]);
        check(
            json!({"content": "x", "path": "/workspace/a/c"}),
            &["/workspace/a/c", "c"],
            &["/workspace/a/c", "c", "/workspace/a/c"],
        );
        check(json!({"url": "https://e.org"}), &["https://e.org"], &["https://e.org", "https://e.org"]);
        check(json!({"path": 1, "name": "n"}), &["n"], &["n", "n"]);
        check(json!({"x": 1}), &["{\"x\":1}"], &["{\"x\":1}"]);
    }
}
