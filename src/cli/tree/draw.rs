//! Trees of runs as lines: nodes in, text out. Also the shortened id of a subagent, which progress lines share.
//! `waits.rs` words the waits, `spend.rs` the spend.

use hermod_actors::model::{RunId, Timestamp};

use super::spend::format_spend;
use crate::{
    cli::{format::truncated_line, runs, terminal::Charset, waits},
    view::NodeView,
};

/// Characters of a task that are shown.
const MAX_INPUT_CHARS: usize = 60;
/// Characters of a subagent's id that are shown; `StoreReader::find` resolves this suffix.
const ID_SUFFIX_CHARS: usize = 8;

/// The lines of the trees, one for each run.
pub(super) fn lines(nodes: &[NodeView], now: Timestamp) -> Vec<String> {
    if nodes.is_empty() {
        return vec!["no run is unfinished".into()];
    }
    let mut lines = Vec::new();
    for root in nodes {
        if let Some(parent) = &root.parent {
            let call = parent.call;
            let (n, call) = (parent.n + 1, format!("{}.{}", call.iteration, call.n));
            lines.push(format!("task {n} of call {call} of run {}", parent.call.run));
        }
        lines.push(format!("{}  {}", root.run.id, format_node(root, now)));
        push_children(&root.children, now, "", &mut lines);
    }
    lines
}

/// Appends lines for the subagents of one run and those below them, indented by `indent`.
pub(crate) fn push_children(nodes: &[NodeView], now: Timestamp, indent: &str, lines: &mut Vec<String>) {
    for (n, node) in (1..).zip(nodes) {
        let (branch, next) = Charset::current().branch(n == nodes.len());
        lines.push(format!("{indent}{branch}{}  {}", id_suffix(node.run.id), format_node(node, now)));
        push_children(&node.children, now, &format!("{indent}{next}"), lines);
    }
}

/// `STATE, WAIT  SPEND  TASK`.
fn format_node(node: &NodeView, now: Timestamp) -> String {
    let (state, waits) = (runs::state(&node.run), waits::format_short(&node.waits, now));
    let waits = waits.map_or_else(String::new, |waits| format!(", {waits}"));
    let spent = format_spend(node);
    format!("{state}{waits}  {spent}  \"{}\"", truncated_line(&node.input, MAX_INPUT_CHARS))
}

/// The last characters of an id: siblings start at the same time, so their ids begin alike.
pub(crate) fn id_suffix(run: RunId) -> String {
    run.to_string().split_off(26 - ID_SUFFIX_CHARS)
}

#[cfg(test)]
pub(super) mod tests {
    use hermod_actors::model::{
        Amounts, CallId, Outcome, OutcomeDetail, ParentRef, RunRow, RunState, SessionId, WaitKind,
    };

    use super::*;
    use crate::view::WaitView;

    const ROOT: CallId = CallId { run: RunId::from_bits(1), iteration: 2, n: 1 };

    pub(in crate::cli::tree) fn node(
        n: u128,
        task: &str,
        what: Option<WaitKind>,
        children: Vec<NodeView>,
    ) -> NodeView {
        let outcome = OutcomeDetail { outcome: Outcome::Completed, cause: None };
        let parent = ParentRef { session: SessionId::from_bits(1), call: ROOT, n: 0 };
        let run = RunRow {
            state: if what.is_some() { RunState::Running } else { RunState::Ended },
            ended: what.is_none().then_some(outcome),
            iterations: 2,
            parent: (n > 1).then_some(parent),
            ..RunRow::new(RunId::from_bits(n), SessionId::from_bits(n), Timestamp(0), 1)
        };
        let waits = what.map(|what| WaitView { kind: what, since: Timestamp(1_000), until: None });
        NodeView {
            input: task.into(),
            waits: waits.into_iter().collect(),
            children,
            ..NodeView::new(run.clone().into(), run.parent, None)
        }
    }

    fn tree() -> NodeView {
        let asks = WaitKind::Model { model: "p/m".parse().expect("a model"), attempt: 2 };
        let tool = WaitKind::Tool { call: CallId { n: 1, ..ROOT }, tool: "shell".into(), attempt: 1 };
        let mut deep = node(3, "count the words", Some(asks), vec![]);
        let limits = Amounts { iterations: Some(50), tokens: Some(50_000), ..Amounts::default() };
        let spent = Amounts { iterations: Some(7), tokens: Some(12_000), ..Amounts::default() };
        let reserved = Amounts { tokens: Some(3_000), ..Amounts::default() };
        (deep.limits, deep.spent, deep.reserved) = (Some(limits), Some(spent), Some(reserved));
        let first = node(2, "read\nall", Some(WaitKind::Children { call: ROOT, left: 1 }), vec![deep]);
        let third = node(5, "look", Some(tool), vec![]);
        let task = "x".repeat(70);
        let children = vec![first, node(4, "say hello", None, vec![]), third];
        node(1, &task, Some(WaitKind::Children { call: ROOT, left: 2 }), children)
    }

    #[track_caller]
    fn check(nodes: &[NodeView], expect: &[&str]) {
        assert_eq!(lines(nodes, Timestamp(66_000)), expect);
    }

    #[test]
    fn a_tree_is_drawn_with_its_branches() {
        let root = format!(
            "00000000000000000000000001  running, waits for 2 subagents 1m05s  iterations 2  \"{}…\"",
            "x".repeat(60)
        );
        check(
            &[tree()],
            &[
                &root,
                "├─ 00000002  running, waits for 1 subagent 1m05s  iterations 2  \"read all\"",
                "│  └─ 00000003  running, asks p/m, attempt 2, 1m05s  iterations 7/50  tokens 12k+3k/50k  \"count the words\"",
                "├─ 00000004  completed  iterations 2  \"say hello\"",
                "└─ 00000005  running, runs shell 1m05s  iterations 2  \"look\"",
            ],
        );
    }

    #[test]
    fn a_subagent_says_whose_it_is() {
        check(
            &[node(4, "say hello", None, vec![]), node(1, "t", None, vec![])],
            &[
                "task 1 of call 2.1 of run 00000000000000000000000001",
                "00000000000000000000000004  completed  iterations 2  \"say hello\"",
                "00000000000000000000000001  completed  iterations 2  \"t\"",
            ],
        );
        check(&[], &["no run is unfinished"]);
    }
}
