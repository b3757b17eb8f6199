//! The spec and the input of a subagent's run: never more rights than its parent has.

use super::{DELEGATE_TASK, DelegatedTask};
use crate::{
    model::{Delegation, Dimension, Lane, Limits, RUNTIME_TEXT_PREFIX, RunId, RunSpec},
    policy::{clarify::CLARIFY, message::MESSAGE, todo::TODO},
};

/// The last layer of a subagent's system prompt.
const SUBAGENT_PROMPT: &str = "You are a subagent: another agent has given you one task and reads only your final answer. Do the task \
                    alone, ask nobody, and end with an answer that stands for itself: what was done, the result, paths of \
                    what you have written, and what is left or went wrong.";

/// Subagents do not have these tools: the parent decides what is remembered for later conversations and what leaves the
/// process, and asks the person.
const PARENT_TOOLS: [&str; 3] = ["memory", CLARIFY, MESSAGE];

/// The spec of the run that does `task` for a run with the spec `parent`; `None` if the parent may not delegate.
pub(crate) fn subagent_spec(task: &DelegatedTask, parent: &RunSpec, run: RunId) -> Option<RunSpec> {
    let delegation = parent.delegation.filter(|delegation| delegation.depth < delegation.max_depth)?;
    let depth = delegation.depth + 1;
    let may_delegate = depth < delegation.max_depth;
    // The todo list is the subagent's own and needs no right of its parent.
    let wanted =
        |tool: &&String| *tool == TODO || task.tools.as_ref().is_none_or(|tools| tools.contains(tool));
    let allowed =
        |tool: &&String| !PARENT_TOOLS.contains(&tool.as_str()) && (may_delegate || *tool != DELEGATE_TASK);
    let tools = parent.tools.iter().filter(wanted).filter(allowed);
    let begin = task.model.as_ref().and_then(|model| parent.chain.iter().position(|link| link == model));
    let mut chain = parent.chain.clone();
    let mut profiles: Vec<_> = chain.iter().map(|model| parent.profile_of(model)).collect();
    if let Some(begin) = begin {
        chain[..=begin].rotate_right(1);
        profiles[..=begin].rotate_right(1);
    }
    Some(RunSpec {
        chain,
        profiles,
        lane: Lane::Subagent,
        isolation_key: run.to_string(),
        tools: tools.cloned().collect(),
        limits: subagent_limits(task, parent, delegation),
        system: Some(SUBAGENT_PROMPT.into()),
        delegation: Some(Delegation { depth, ..delegation }),
        expects: task.expects.clone(),
        deliver_to: Vec::new(),
        // The parent waits for a result.
        must_answer: true,
        ..parent.clone()
    })
}

/// The limits of a subagent: for each amount the smallest of the limits of parent, task and configuration. Limits of
/// ancestors hold in any case; known here, they lower what calls reserve.
fn subagent_limits(task: &DelegatedTask, parent: &RunSpec, delegation: Delegation) -> Limits {
    let mut budget = parent.limits.budget;
    budget.children = None;
    if !delegation.shares_iterations {
        budget.iterations = None;
    }
    let iterations = [(Dimension::Iterations, delegation.iterations)];
    let limits =
        Dimension::ALL.into_iter().filter_map(|dimension| Some((dimension, task.budget.get(dimension)?)));
    for (dimension, amount) in limits.chain(iterations) {
        let limit = budget.get(dimension).map_or(amount, |limit| limit.min(amount));
        budget.set(dimension, limit);
    }
    Limits { budget, wall_ms: task.wall_ms, timeout_ms: None, ..parent.limits }
}

/// The user message that begins the subagent's conversation.
pub(crate) fn subagent_input(task: &DelegatedTask) -> String {
    match task.context.trim() {
        "" => task.goal.clone(),
        context => format!(
            "{}\n\n{RUNTIME_TEXT_PREFIX}context of the task, as the other agent has put it:]\n{context}",
            task.goal
        ),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::Amounts;

    pub(in crate::policy::delegation) fn parent() -> RunSpec {
        let spec = json!({
            "chain": ["p/a", "p/b", "p/c"], "workspace": "/w", "task": "t",
            "tools": [DELEGATE_TASK, "read", "write"], "limits": {"max_tokens": 100},
            "delegation": {"depth": 0, "max_depth": 2, "max_children": 3, "iterations": 50},
        });
        serde_json::from_value(spec).unwrap()
    }

    fn child(task: &DelegatedTask, parent: &RunSpec) -> Option<RunSpec> {
        subagent_spec(task, parent, RunId::from_bits(9))
    }

    #[test]
    fn rights_only_shrink() {
        let mut root = parent();
        root.limits.budget =
            Amounts { iterations: Some(90), tokens: Some(1_000), children: Some(8), ..Amounts::default() };
        let first = child(&DelegatedTask::default(), &root).unwrap();
        assert_eq!(first.tools, root.tools);
        let expect = Amounts { iterations: Some(50), tokens: Some(1_000), ..Amounts::default() };
        assert_eq!((first.limits.budget, first.limits.timeout_ms), (expect, None));
        let greedy =
            Amounts { iterations: Some(70), tokens: Some(5_000), usd: Some(7), ..Amounts::default() };
        let second =
            DelegatedTask { budget: greedy, tools: Some(vec!["read".into()]), ..DelegatedTask::default() };
        let second = child(&second, &first).unwrap();
        assert_eq!(second.tools, ["read"]);
        let expect =
            Amounts { iterations: Some(50), tokens: Some(1_000), usd: Some(7), ..Amounts::default() };
        assert_eq!(second.limits.budget, expect);
        assert_eq!(child(&DelegatedTask::default(), &second), None, "too deep");
        let deepest = child(&DelegatedTask::default(), &first).unwrap();
        assert_eq!(deepest.tools, ["read", "write"], "who may not delegate has no tool for it");
        root.delegation = None;
        assert_eq!(child(&DelegatedTask::default(), &root), None);
    }

    #[test]
    fn a_subagent_has_a_list_of_its_own_and_no_memory() {
        let root = RunSpec { tools: [CLARIFY, "memory", "read", TODO].map(Into::into).into(), ..parent() };
        assert_eq!(child(&DelegatedTask::default(), &root).unwrap().tools, ["read", TODO]);
        let wanted = DelegatedTask { tools: Some(vec!["memory".into()]), ..DelegatedTask::default() };
        assert_eq!(child(&wanted, &root).unwrap().tools, [TODO]);
    }

    #[test]
    fn shared_iterations_are_the_parents_too() {
        let mut root = parent();
        root.limits.budget.iterations = Some(20);
        root.delegation =
            root.delegation.map(|delegation| Delegation { shares_iterations: true, ..delegation });
        assert_eq!(child(&DelegatedTask::default(), &root).unwrap().limits.budget.iterations, Some(20));
    }

    #[test]
    fn a_task_may_begin_with_another_model() {
        let task = DelegatedTask { model: Some("p/c".parse().unwrap()), ..DelegatedTask::default() };
        let chain: Vec<String> =
            child(&task, &parent()).unwrap().chain.iter().map(ToString::to_string).collect();
        assert_eq!(chain, ["p/c", "p/a", "p/b"]);
    }
}
