//! Runs and what they have started. Kinship is data: a run's account stands below its parent's.

use hermod_actors::model::{AccountId, RunId, RunRow, RunState};

use super::protocol::Node;

/// A run, and the account above its own.
pub(super) type Kin = (RunRow, Option<AccountId>);

/// The tree of one run, or of every unfinished run that stands below no other unfinished one.
pub(super) fn grow(mut runs: Vec<Kin>, root: Option<RunId>) -> Vec<Node> {
    let open: Vec<AccountId> = unfinished(&runs).map(|(row, _)| row.account).collect();
    let is_root = |(row, parent): &&Kin| match root {
        Some(root) => row.id == root,
        None => row.state != RunState::Ended && parent.is_none_or(|parent| !open.contains(&parent)),
    };
    let roots: Vec<RunId> = runs.iter().filter(is_root).map(|(row, _)| row.id).collect();
    roots.into_iter().filter_map(|root| take(&mut runs, root)).collect()
}

fn unfinished(runs: &[Kin]) -> impl Iterator<Item = &Kin> {
    runs.iter().filter(|(row, _)| row.state != RunState::Ended)
}

/// Takes a run and all below it out of the rest: what was taken is not met again, whatever the accounts say.
fn take(runs: &mut Vec<Kin>, id: RunId) -> Option<Node> {
    let place = runs.iter().position(|(row, _)| row.id == id)?;
    let (run, _) = runs.remove(place);
    let below: Vec<RunId> =
        runs.iter().filter(|(_, parent)| *parent == Some(run.account)).map(|(row, _)| row.id).collect();
    let children = below.into_iter().filter_map(|child| take(runs, child)).collect();
    Some(Node { run, waits: Vec::new(), children })
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{Seq, SessionId, Timestamp, Usage};

    use super::*;

    fn run(n: u128, state: RunState, parent: u128) -> Kin {
        let row = RunRow {
            id: RunId::from_bits(n),
            session: SessionId::from_bits(n),
            account: RunId::from_bits(n).into(),
            state,
            accepted_at: Timestamp(0),
            started_at: None,
            ended_at: None,
            ended: None,
            iterations: 0,
            usage: Usage::default(),
            parent: None,
            leg: 1,
            first: Seq::default(),
            last: Seq::default(),
        };
        (row, (parent > 0).then(|| RunId::from_bits(parent).into()))
    }

    /// `1(2 3(4))`: a run, and in brackets what is below it.
    fn drawn(nodes: &[Node]) -> String {
        let one = |node: &Node| {
            let below = drawn(&node.children);
            let id = node.run.id.bits().to_string();
            if below.is_empty() { id } else { format!("{id}({below})") }
        };
        nodes.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn check(root: Option<u128>, expect: &str) {
        use RunState::{Ended, Queued, Running};
        let runs = vec![
            run(1, Ended, 0),
            run(2, Running, 1),
            run(3, Running, 0),
            run(4, Ended, 3),
            run(5, Queued, 4),
            run(6, Running, 3),
            run(8, Ended, 9),
            run(9, Ended, 8),
        ];
        assert_eq!(drawn(&grow(runs, root.map(RunId::from_bits))), expect);
    }

    #[test]
    fn a_tree_has_every_run_below_its_root() {
        check(Some(1), "1(2)");
        check(Some(3), "3(4(5) 6)");
        check(Some(5), "5");
        check(Some(7), "");
    }

    #[test]
    fn without_a_root_there_is_what_has_not_ended() {
        check(None, "2 3(4(5) 6)");
    }

    #[test]
    fn accounts_in_a_circle_are_no_endless_tree() {
        check(Some(8), "8(9)");
    }
}
