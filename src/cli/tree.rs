//! `hermod tree`: runs, and what they have started.

use clap::Args;
use hermod_actors::{model::Timestamp, port::Clock};
use serde_json::Value;

use super::{
    exit::Failure,
    inquiry::{Inquiry, other_answer},
    output::{print, print_json},
    report, runs, waits,
};
use crate::{
    clock::SystemClock,
    control::{Answer, Node, Request},
};

/// Show a run and the runs that it has started
#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    /// A run's id, or `last` [default: all runs that have not ended]
    run: Option<String>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// Draws it.
pub(crate) async fn execute(args: TreeArgs, inquiry: &Inquiry) -> Result<(), Failure> {
    let Answer::Tree(nodes) = inquiry.ask(&Request::Tree { run: args.run }).await? else {
        return Err(other_answer().into());
    };
    if args.json {
        return print_json(&Value::from(nodes.iter().map(report::node).collect::<Vec<_>>()));
    }
    if nodes.is_empty() {
        return print("no run is unfinished");
    }
    let now = SystemClock::default().at();
    print(&nodes.iter().map(|node| draw(node, now, ("", ""))).collect::<String>())
}

/// A node behind `first`, and what is below it behind `rest`.
fn draw(node: &Node, now: Timestamp, (first, rest): (&str, &str)) -> String {
    let run = &node.run;
    let (state, iterations) = (runs::state(run), run.iterations);
    let waits = waits::short(&node.waits, now);
    let mut drawn = format!("{first}{}  {state}  iterations {iterations}{waits}\n", run.id);
    for (n, child) in (1..).zip(&node.children) {
        let (branch, below) =
            if n == node.children.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        drawn += &draw(child, now, (&format!("{rest}{branch}"), &format!("{rest}{below}")));
    }
    drawn
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{RunId, RunRow, RunState, SessionId, Usage};

    use super::*;

    fn node(n: u128, children: Vec<Node>) -> Node {
        let run = RunRow {
            id: RunId::from_bits(n),
            session: SessionId::from_bits(n),
            account: RunId::from_bits(n).into(),
            state: RunState::Running,
            accepted_at: Timestamp(0),
            started_at: None,
            ended_at: None,
            ended: None,
            iterations: 2,
            usage: Usage::default(),
            parent: None,
            leg: 1,
            first: 1,
            last: 1,
        };
        Node { run, waits: Vec::new(), children }
    }

    #[test]
    fn a_tree_is_drawn_with_its_branches() {
        let tree = node(1, vec![node(2, vec![node(3, vec![])]), node(4, vec![node(5, vec![])])]);
        let lines = ["1", "├─ 2", "│  └─ 3", "└─ 4", "   └─ 5"];
        let expect = lines.map(|line| {
            let (branch, n) = line.split_at(line.len() - 1);
            format!("{branch}{n:0>26}  running  iterations 2\n")
        });
        assert_eq!(draw(&tree, Timestamp(0), ("", "")), expect.concat());
    }
}
