//! Trees of runs as lines, with what each run has spent of its limits: nodes in, text out. Also the shortened id of a
//! subagent, which progress lines share. `waits.rs` words the waits.

use hermod_actors::model::{Amounts, Dimension, RunId, Timestamp};

use crate::{
    cli::{
        format::{dollars, truncated_line},
        runs,
        terminal::Charset,
        waits,
    },
    view::NodeView,
};

/// Characters of a task that are shown.
const MAX_INPUT_CHARS: usize = 60;
/// Characters of a subagent's id that are shown; `StoreReader::find` resolves this suffix.
const ID_SUFFIX_CHARS: usize = 8;

/// The lines of the trees, one for each run. A subagent at the top has a line before it that names its parent.
pub(crate) fn lines(nodes: &[NodeView], now: Timestamp) -> Vec<String> {
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

/// `iterations 7 of 50 (+1 reserved)  tokens 12k of 50k (+3k reserved)  usd $0.12 of $1.00`: spent, limit, reserved by calls in progress. A
/// dimension without spending, reservation and limit is left out, except iterations.
fn format_spend(node: &NodeView) -> String {
    let [first, rest @ ..] = Dimension::ALL.map(|dimension| format_dimension(node, dimension));
    let first = first.unwrap_or_else(|| format!("iterations {}", node.run.iterations));
    std::iter::once(first).chain(rest.into_iter().flatten()).collect::<Vec<_>>().join("  ")
}

fn format_dimension(node: &NodeView, dimension: Dimension) -> Option<String> {
    let show = |amount| if dimension == Dimension::Usd { dollars(amount) } else { count(amount) };
    let amount = |amounts: Option<Amounts>| amounts.and_then(|amounts| amounts.get(dimension));
    let (spent, reserved) = (amount(node.spent).unwrap_or(0), amount(node.reserved).unwrap_or(0));
    let limit = amount(node.limits);
    if limit.is_none() && spent == 0 && reserved == 0 {
        return None;
    }
    let (used, reserved) = match (dimension, reserved) {
        // A reserved child is a live subagent.
        (Dimension::Children, _) => (show(spent.saturating_add(reserved)), String::new()),
        (_, 0) => (show(spent), String::new()),
        (_, reserved) => (show(spent), format!(" (+{} reserved)", show(reserved))),
    };
    let limit = limit.map_or_else(String::new, |limit| format!(" of {}", show(limit)));
    Some(format!("{} {used}{limit}{reserved}", dimension.name()))
}

/// A count rounded down to its unit, with one decimal below ten: `950`, `1.2k`, `12k`, `3.4M`.
fn count(amount: u64) -> String {
    for (unit, name) in [(1_000_000_000, 'G'), (1_000_000, 'M'), (1_000, 'k')] {
        let (whole, tenth) = (amount / unit, amount % unit / (unit / 10));
        match (whole, tenth) {
            (0, _) => {}
            (1..10, 1..) => return format!("{whole}.{tenth}{name}"),
            _ => return format!("{whole}{name}"),
        }
    }
    amount.to_string()
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{
        BudgetAccount, CallId, Outcome, OutcomeDetail, ParentRef, RunRow, RunState, RunWait, SessionId,
        WaitKind,
    };

    use super::*;

    const ROOT: CallId = CallId { run: RunId::from_bits(1), iteration: 2, n: 1 };

    fn node(n: u128, task: &str, what: Option<WaitKind>, children: Vec<NodeView>) -> NodeView {
        let outcome = OutcomeDetail { outcome: Outcome::Completed, cause: None };
        let parent = ParentRef { session: SessionId::from_bits(1), call: ROOT, n: 0 };
        let run = RunRow {
            state: if what.is_some() { RunState::Running } else { RunState::Ended },
            ended: what.is_none().then_some(outcome),
            iterations: 2,
            parent: (n > 1).then_some(parent),
            ..RunRow::new(RunId::from_bits(n), SessionId::from_bits(n), Timestamp(0), 1)
        };
        let waits = what.map(|what| RunWait { kind: what, since: Timestamp(1_000), until: None });
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
                "│  └─ 00000003  running, asks p/m, attempt 2, 1m05s  iterations 7 of 50  tokens 12k of 50k (+3k reserved)  \"count the words\"",
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

    #[test]
    fn a_count_is_short() {
        let check = |amount, expect: &str| assert_eq!(count(amount), expect);
        check(0, "0");
        check(999, "999");
        check(1_000, "1k");
        check(1_099, "1k");
        check(1_299, "1.2k");
        check(12_999, "12k");
        check(999_999, "999k");
        check(3_400_000, "3.4M");
        check(u64::MAX, "18446744073G");
    }

    #[test]
    fn what_is_limited_or_spent_is_told() {
        let amounts = |iterations, tokens, usd, children| Amounts {
            iterations,
            tokens,
            usd,
            tool_calls: None,
            children,
        };
        let check = |limits, spent, reserved, expect: &str| {
            let account = BudgetAccount { parent: None, limits, spent, reserved, owns_iterations: false };
            let NodeView { run, parent, .. } = node(1, "", None, Vec::new());
            assert_eq!(format_spend(&NodeView::new(run, parent, Some(&account))), expect);
        };
        let none = Amounts::default();
        check(none, none, none, "iterations 2");
        check(none, amounts(Some(7), None, None, None), none, "iterations 7");
        let limits = amounts(Some(50), Some(50_000), Some(1_000_000_000), Some(8));
        check(limits, none, none, "iterations 0 of 50  tokens 0 of 50k  usd $0.00 of $1.00  children 0 of 8");
        let spent = amounts(Some(7), Some(12_000), Some(120_000_000), Some(0));
        let reserved = amounts(Some(1), Some(3_400), None, Some(2));
        let expect = "iterations 7 of 50 (+1 reserved)  tokens 12k of 50k (+3.4k reserved)  usd $0.12 of $1.00  children 2 of 8";
        check(limits, spent, reserved, expect);
        check(
            amounts(None, Some(50_000), None, None),
            spent,
            none,
            "iterations 7  tokens 12k of 50k  usd $0.12",
        );
        assert_eq!(format_spend(&node(1, "", None, Vec::new())), "iterations 2");
    }
}
