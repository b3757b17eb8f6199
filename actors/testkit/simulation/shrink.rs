//! Reduces a failing plan to the fewest faults and runs that still fail.

use super::{plan::SimulationPlan, report::simulate};

/// The shortest plan that still violates one of the invariants that `plan` violates.
pub fn shrink(plan: &SimulationPlan) -> SimulationPlan {
    let of = |plan: &SimulationPlan| -> Vec<&'static str> {
        simulate(plan).violations.iter().map(|violation| violation.invariant).collect()
    };
    let violated = of(plan);
    shrink_while(plan, |plan| of(plan).iter().any(|invariant| violated.contains(invariant)))
}

/// The shortest plan for which `fails` holds: first the fewest faults, then the fewest runs.
pub fn shrink_while(plan: &SimulationPlan, mut fails: impl FnMut(&SimulationPlan) -> bool) -> SimulationPlan {
    let (runs, faults) = plan.numbers();
    let faults = fewest(faults, |faults| fails(&plan.clone().restricted_to(&runs, faults)));
    let runs = fewest(runs, |runs| fails(&plan.clone().restricted_to(runs, &faults)));
    // With fewer runs, some faults may no longer be needed.
    let faults = fewest(faults, |faults| fails(&plan.clone().restricted_to(&runs, faults)));
    plan.clone().restricted_to(&runs, &faults)
}

/// The fewest numbers for which `holds` is true. Leaves out halves, then quarters, down to single numbers.
fn fewest(mut all: Vec<usize>, mut holds: impl FnMut(&[usize]) -> bool) -> Vec<usize> {
    let mut size = all.len().div_ceil(2);
    while size > 0 && !all.is_empty() {
        let mut at = 0;
        while at < all.len() {
            let rest: Vec<usize> =
                all[..at].iter().chain(&all[(at + size).min(all.len())..]).copied().collect();
            if holds(&rest) {
                all = rest;
            } else {
                at += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_are_found() {
        let check = |needed: &[usize]| {
            let all: Vec<usize> = (0..20).collect();
            let found = fewest(all, |rest| needed.iter().all(|number| rest.contains(number)));
            assert_eq!(found, needed);
        };
        check(&[]);
        check(&[0]);
        check(&[19]);
        check(&[3, 4, 11]);
        check(&(0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_plan_is_shrunk_to_what_is_needed_and_named() {
        let plan = (0..1_000)
            .map(SimulationPlan::of)
            .find(|plan| plan.size().0 > 3 && plan.size().1 > 4)
            .expect("there is one");
        let needs = |plan: &SimulationPlan| {
            let (runs, faults) = plan.numbers();
            runs.contains(&1) && faults.contains(&0) && faults.contains(&3)
        };
        let shrunk = shrink_while(&plan, needs);
        assert_eq!(shrunk.numbers(), (vec![1], vec![0, 3]));
        assert_eq!(shrunk.replay().parse(), Ok(shrunk));
    }
}
