//! Formats a run's spend and limits: a node in, text out.

use hermod_actors::model::{Amounts, Dimension};

use crate::{cli::format::dollars, view::NodeView};

/// `iterations 7+1/50  tokens 12k+3k/50k  usd $0.12/$1.00`: spent, reserved by calls in progress, limit. Dimensions
/// without spend and limit are omitted, except the iterations.
pub(super) fn format_spend(node: &NodeView) -> String {
    let [first, rest @ ..] = Dimension::ALL.map(|dimension| format_dimension(node, dimension));
    let first = first.unwrap_or_else(|| format!("iterations {}", node.run.iterations));
    std::iter::once(first).chain(rest.into_iter().flatten()).collect::<Vec<_>>().join("  ")
}

fn format_dimension(node: &NodeView, dimension: Dimension) -> Option<String> {
    let show = |amount| match dimension {
        Dimension::Usd => dollars(amount),
        Dimension::Iterations | Dimension::Tokens | Dimension::ToolCalls | Dimension::Children => {
            count(amount)
        }
    };
    let amount = |amounts: Option<Amounts>| amounts.and_then(|amounts| amounts.get(dimension));
    let (spent, reserved) = (amount(node.spent).unwrap_or(0), amount(node.reserved).unwrap_or(0));
    let limit = amount(node.limits);
    if limit.is_none() && spent == 0 && reserved == 0 {
        return None;
    }
    let used = match (dimension, reserved) {
        // A reserved child is a live subagent.
        (Dimension::Children, _) => show(spent.saturating_add(reserved)),
        (_, 0) => show(spent),
        (_, reserved) => format!("{}+{}", show(spent), show(reserved)),
    };
    let limit = limit.map_or_else(String::new, |limit| format!("/{}", show(limit)));
    Some(format!("{} {used}{limit}", dimension.name()))
}

/// A count rounded down to about two digits: `950`, `1.2k`, `12k`, `3.4M`.
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
    use hermod_actors::model::BudgetAccount;

    use super::{super::draw::tests::node, *};

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
        check(limits, none, none, "iterations 0/50  tokens 0/50k  usd $0.00/$1.00  children 0/8");
        let spent = amounts(Some(7), Some(12_000), Some(120_000_000), Some(0));
        let reserved = amounts(Some(1), Some(3_400), None, Some(2));
        let expect = "iterations 7+1/50  tokens 12k+3.4k/50k  usd $0.12/$1.00  children 2/8";
        check(limits, spent, reserved, expect);
        check(
            amounts(None, Some(50_000), None, None),
            spent,
            none,
            "iterations 7  tokens 12k/50k  usd $0.12",
        );
        assert_eq!(format_spend(&node(1, "", None, Vec::new())), "iterations 2");
    }
}
