//! A generation of the tools: an immutable set of tools by name, which is exchanged as a whole while calls run. Also
//! the check of a new set, and [`RegisteredTool`], which has its tool closed when no generation and no call has it any
//! more.

use std::{
    collections::BTreeMap,
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
};

use super::handle::ToolExecutorHandle;
use crate::{
    builtin_tools::builtin_tools,
    model::{Attempt, CallId, ToolSpec},
    policy::message::MESSAGE,
    port::Tool,
};

/// Most bytes of a tool's name.
const MAX_NAME_BYTES: usize = 128;

/// A set of tools by name.
#[derive(Debug, Default)]
pub(crate) struct ToolGeneration {
    /// Counted from 1 for the first tools of the runtime.
    pub(crate) number: u64,
    tools: BTreeMap<Arc<str>, Arc<RegisteredTool>>,
}

/// A tool of one or more generations. It is closed when it is dropped: with its last generation and its last call.
#[derive(Debug)]
pub(crate) struct RegisteredTool {
    tool: Arc<dyn Tool>,
    executor: Weak<ToolExecutorHandle>,
}

impl ToolGeneration {
    /// The generation after this one: these tools, and `delegate_task` and `todo`, which every runtime has. `find`
    /// returns a tool that is registered already.
    pub(super) fn next(
        &self,
        mut tools: Vec<Arc<dyn Tool>>,
        executor: &Weak<ToolExecutorHandle>,
        find: impl Fn(&Arc<dyn Tool>) -> Option<Arc<RegisteredTool>>,
    ) -> Self {
        tools.extend(builtin_tools());
        let register = |tool: Arc<dyn Tool>| {
            let name = tool.spec().name.as_str().into();
            let executor = Weak::clone(executor);
            (name, find(&tool).unwrap_or_else(|| Arc::new(RegisteredTool { tool, executor })))
        };
        Self { number: self.number + 1, tools: tools.into_iter().map(register).collect() }
    }

    /// The definitions for the model of the tools in `allowed`, sorted by name.
    pub(crate) fn specs(&self, allowed: &[String]) -> Vec<ToolSpec> {
        self.allowed(allowed).map(|(_, tool)| tool.spec().clone()).collect()
    }

    /// The bytes as JSON of the definitions of the tools in `allowed`.
    pub(crate) fn schema_bytes(&self, allowed: &[String]) -> u64 {
        let bytes = |tool: &RegisteredTool| serde_json::to_vec(tool.spec()).map_or(0, |json| json.len());
        self.allowed(allowed).map(|(_, tool)| bytes(tool) as u64).sum()
    }

    /// All names, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        self.tools.keys().map(ToString::to_string).collect()
    }

    /// The tool of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<RegisteredTool>> {
        self.tools.get(name)
    }

    pub(super) fn get_key_value(&self, name: &str) -> Option<(&Arc<str>, &Arc<RegisteredTool>)> {
        self.tools.get_key_value(name)
    }

    /// All tools, sorted by name.
    pub(super) fn tools(&self) -> impl Iterator<Item = &Arc<RegisteredTool>> {
        self.tools.values()
    }

    /// Tells every tool that the end of an attempt is durable: it may delete what it kept to attach to that attempt.
    /// For an attempt whose tool is not known.
    pub(crate) fn forget(&self, call: CallId, attempt: Attempt) {
        self.tools().for_each(|tool| tool.forget(call, attempt));
    }

    /// The tools in `allowed`, sorted by name.
    pub(super) fn allowed<'a>(
        &'a self,
        allowed: &'a [String],
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<RegisteredTool>)> {
        self.tools.iter().filter(|(name, _)| allowed.iter().any(|allowed| **allowed == ***name))
    }
}

impl RegisteredTool {
    /// Whether this is that tool.
    pub(super) fn is(&self, tool: &Arc<dyn Tool>) -> bool {
        Arc::ptr_eq(&self.tool, tool)
    }
}

impl Deref for RegisteredTool {
    type Target = dyn Tool;

    fn deref(&self) -> &Self::Target {
        &*self.tool
    }
}

impl Drop for RegisteredTool {
    fn drop(&mut self) {
        match self.executor.upgrade() {
            Some(executor) => executor.retire(Arc::clone(&self.tool)),
            None => close(&*self.tool),
        }
    }
}

/// Closes a tool. A panic is the tool's fault and ends nothing else.
pub(super) fn close(tool: &dyn Tool) {
    if catch_unwind(AssertUnwindSafe(|| tool.close())).is_err() {
        tracing::warn!(tool = tool.spec().name, "the tool panicked when it was closed");
    }
}

/// Refuses tools that cannot be a generation: an invalid or duplicate name, or parameters that describe no object.
pub(super) fn check(tools: &[Arc<dyn Tool>]) -> Result<(), String> {
    let builtin = builtin_tools();
    let mut names: Vec<&str> = builtin.iter().map(|tool| tool.spec().name.as_str()).collect();
    for tool in tools {
        let ToolSpec { name, parameters, .. } = tool.spec();
        if name == MESSAGE && !tool.is_answered_by_session() {
            return Err(format!("`{name}` is the name of a tool of the runtime: give yours another one"));
        }
        let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_plain) {
            return Err(format!(
                "{name:?} is no name of a tool: take 1 to {MAX_NAME_BYTES} bytes without white space"
            ));
        }
        if names.contains(&name.as_str()) {
            return Err(format!("there are two tools `{name}`: give each a name of its own"));
        }
        let shape =
            parameters.as_object().map(|schema| schema.get("type").is_none_or(|kind| kind == "object"));
        if shape != Some(true) {
            return Err(format!("the parameters of `{name}` are no JSON schema of an object: {parameters}"));
        }
        names.push(name);
    }
    Ok(())
}
