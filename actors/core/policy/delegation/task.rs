//! Parses the arguments of `delegate_task` into tasks, or names the error for the model.

use serde::Deserialize;
use serde_json::Value;

use crate::model::{Amounts, BadArguments, Expectation, Hash, Hasher, ModelRef, RunSpec, check_expectations};

/// Nano-dollars in a dollar.
const NANO_PER_USD: f64 = 1e9;

/// A parsed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationRequest {
    /// The tasks, at least one.
    pub tasks: Vec<DelegatedTask>,
    /// Whether the parent continues without waiting for the results.
    pub background: bool,
}

/// A task for a subagent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DelegatedTask {
    /// The goal, not empty.
    pub goal: String,
    /// What the subagent has to know for the goal.
    pub context: String,
    /// The tools that it may use; all of its parent's if absent.
    pub tools: Option<Vec<String>>,
    /// The limits of its budget.
    pub budget: Amounts,
    /// Limit of active time, in milliseconds.
    pub wall_ms: Option<u64>,
    /// The first model of its chain.
    pub model: Option<ModelRef>,
    /// What must hold before its run completes; no command.
    pub expects: Vec<Expectation>,
}

impl DelegatedTask {
    /// A hash of goal and context: it identifies a task that is delegated again.
    pub fn signature(&self) -> Hash {
        let mut hasher = Hasher::default();
        hasher.part(self.goal.as_bytes());
        hasher.part(self.context.as_bytes());
        hasher.finish()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DelegationArguments {
    goal: Option<String>,
    context: Option<String>,
    tools: Option<Vec<String>>,
    budget: Option<BudgetArguments>,
    model: Option<String>,
    expects: Option<Vec<Expectation>>,
    tasks: Option<Vec<TaskArguments>>,
    #[serde(default)]
    background: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskArguments {
    goal: String,
    context: Option<String>,
    tools: Option<Vec<String>>,
    budget: Option<BudgetArguments>,
    model: Option<String>,
    expects: Option<Vec<Expectation>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct BudgetArguments {
    iterations: Option<u64>,
    tokens: Option<u64>,
    tool_calls: Option<u64>,
    usd: Option<f64>,
    wall_s: Option<u64>,
}

/// Parses the call of a run with the spec `parent`, or returns why it is not acceptable.
pub fn parse_delegation(arguments: &Value, parent: &RunSpec) -> Result<DelegationRequest, BadArguments> {
    let arguments: DelegationArguments = DelegationArguments::deserialize(arguments).map_err(|error| {
        BadArguments::new(None, error.to_string(), "send `goal` and `context`, or `tasks` with several")
    })?;
    let DelegationArguments { goal, context, tools, budget, model, expects, tasks, background } = arguments;
    let refuse = |field, error: &str, hint: &str| Err(BadArguments::new(Some(field), error, hint));
    let ones = match (goal, tasks) {
        (Some(goal), None) => vec![TaskArguments { goal, context, tools, budget, model, expects }],
        (None, Some(tasks))
            if context.or(model).is_none() && tools.is_none() && budget.is_none() && expects.is_none() =>
        {
            tasks
        }
        (None, Some(_)) => {
            let hint = "put `context`, `tools`, `budget`, `model` and `expects` into each of the tasks";
            return refuse("tasks", "beside `tasks` only `background` can be said", hint);
        }
        (Some(_), Some(_)) => {
            return refuse("tasks", "`goal` and `tasks` are both there", "send one of them");
        }
        (None, None) => return refuse("goal", "there is no task", "say what is to be done"),
    };
    if ones.is_empty() {
        return refuse("tasks", "there is no task in it", "say what is to be done");
    }
    let is_batch = ones.len() > 1;
    let tasks = ones.into_iter().enumerate().map(|(n, one)| {
        parse_task(one, parent).map_err(|error| match error.field {
            Some(field) if is_batch => BadArguments { field: Some(format!("tasks[{n}].{field}")), ..error },
            Some(_) | None => error,
        })
    });
    Ok(DelegationRequest { tasks: tasks.collect::<Result<_, _>>()?, background })
}

fn parse_task(one: TaskArguments, parent: &RunSpec) -> Result<DelegatedTask, BadArguments> {
    if one.goal.trim().is_empty() {
        return Err(BadArguments::new(Some("goal"), "it is empty", "say what is to be done"));
    }
    let unknown = one.tools.iter().flatten().find(|tool| !parent.tools.contains(tool));
    if let Some(unknown) = unknown {
        let hint = format!("a subagent has no more than you: {}", parent.tools.join(", "));
        return Err(BadArguments::new(Some("tools"), format!("you have no tool `{unknown}`"), hint));
    }
    let expects = parse_expectations(one.expects)?;
    let model = one.model.map(|text| find_model(&text, parent)).transpose()?;
    let budget = one.budget.unwrap_or_default();
    let nano_usd = budget.usd.map(to_nano_usd).transpose()?;
    let amounts = Amounts {
        iterations: budget.iterations,
        tokens: budget.tokens,
        usd: nano_usd,
        tool_calls: budget.tool_calls,
        children: None,
    };
    let limits = [amounts.iterations, amounts.tokens, amounts.usd, amounts.tool_calls, budget.wall_s];
    if limits.contains(&Some(0)) {
        return Err(BadArguments::new(
            Some("budget"),
            "a limit of 0 allows nothing",
            "leave it out, or allow more",
        ));
    }
    Ok(DelegatedTask {
        goal: one.goal,
        context: one.context.unwrap_or_default(),
        tools: one.tools,
        budget: amounts,
        wall_ms: budget.wall_s.map(|s| s.saturating_mul(1_000)),
        model,
        expects,
    })
}

/// A model declares no commands: only a call of `shell` is judged by the policy before it runs.
fn parse_expectations(expects: Option<Vec<Expectation>>) -> Result<Vec<Expectation>, BadArguments> {
    let expects = expects.unwrap_or_default();
    let bad = |error: String, hint: &str| Err(BadArguments::new(Some("expects"), error, hint));
    if let Err(error) = check_expectations(&expects) {
        return bad(error, "mend that one, or leave it out");
    }
    if expects.iter().any(|expectation| expectation.command_timeout_ms().is_some()) {
        let hint = "expect a `file`, a `schema` or a `text`, and have the subagent run the command";
        return bad("a `command` cannot be expected of a subagent".into(), hint);
    }
    Ok(expects)
}

fn find_model(text: &str, parent: &RunSpec) -> Result<ModelRef, BadArguments> {
    let known = parent.chain.iter().find(|model| model.to_string() == text);
    known.cloned().ok_or_else(|| {
        let names: Vec<String> = parent.chain.iter().map(ToString::to_string).collect();
        let hint = format!("leave it out, or take one of yours: {}", names.join(", "));
        BadArguments::new(Some("model"), format!("`{text}` is not in your chain"), hint)
    })
}

/// Dollars to nano-dollars.
fn to_nano_usd(usd: f64) -> Result<u64, BadArguments> {
    let nano_usd = (usd * NANO_PER_USD).round();
    // Every whole number below 2^53 is exact.
    if !(1.0..9e15).contains(&nano_usd) {
        let hint = "say dollars between 0.000000001 and 9000000";
        return Err(BadArguments::new(Some("budget.usd"), format!("{usd} is no amount of money"), hint));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within the range above
    Ok(nano_usd as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::delegation::subagent::tests::parent;

    #[track_caller]
    fn check(arguments: &Value, expect: Result<&[DelegatedTask], (&str, &str)>) {
        match (parse_delegation(arguments, &parent()), expect) {
            (Ok(order), Ok(tasks)) => assert_eq!(order.tasks, tasks),
            (Err(bad), Err((field, error))) => {
                assert_eq!(bad.field.unwrap_or_default(), field);
                assert!(bad.error.contains(error), "{}", bad.error);
            }
            (got, expect) => panic!("expected {expect:?}, got {got:?}"),
        }
    }

    fn goal(goal: &str) -> DelegatedTask {
        DelegatedTask { goal: goal.into(), ..DelegatedTask::default() }
    }

    #[test]
    fn one_task_or_several() {
        check(&json!({"goal": "count"}), Ok(&[goal("count")]));
        check(
            &json!({"tasks": [{"goal": "a"}, {"goal": "b", "context": "c"}]}),
            Ok(&[goal("a"), DelegatedTask { context: "c".into(), ..goal("b") }]),
        );
        let budget = Amounts { iterations: Some(3), usd: Some(250_000_000), ..Amounts::default() };
        let full = json!({
            "goal": "g", "tools": ["read"], "model": "p/b", "expects": [{"kind": "text", "contains": "done"}],
            "budget": {"iterations": 3, "usd": 0.25, "wall_s": 60},
        });
        check(
            &full,
            Ok(&[DelegatedTask {
                tools: Some(vec!["read".into()]),
                budget,
                wall_ms: Some(60_000),
                model: Some("p/b".parse().unwrap()),
                expects: vec![Expectation::Text { contains: "done".into() }],
                ..goal("g")
            }]),
        );
        assert!(parse_delegation(&json!({"goal": "g", "background": true}), &parent()).unwrap().background);
    }

    #[test]
    fn what_is_not_acceptable_is_named() {
        check(&json!({}), Err(("goal", "no task")));
        check(&json!({"goal": " "}), Err(("goal", "empty")));
        check(&json!({"goal": "a", "tasks": [{"goal": "b"}]}), Err(("tasks", "both")));
        check(&json!({"tasks": []}), Err(("tasks", "no task")));
        check(&json!({"tasks": [{"goal": "b"}], "context": "c"}), Err(("tasks", "only `background`")));
        check(&json!({"goal": "a", "tools": ["rm"]}), Err(("tools", "no tool `rm`")));
        check(
            &json!({"tasks": [{"goal": "a"}, {"goal": "b", "tools": ["rm"]}]}),
            Err(("tasks[1].tools", "rm")),
        );
        check(&json!({"goal": "a", "model": "p/z"}), Err(("model", "not in your chain")));
        check(&json!({"goal": "a", "budget": {"iterations": 0}}), Err(("budget", "allows nothing")));
        check(&json!({"goal": "a", "budget": {"usd": -1.0}}), Err(("budget.usd", "no amount")));
        let expects = |expectation: Value| json!({"goal": "a", "expects": [expectation]});
        let command = json!({"kind": "command", "command": "make"});
        check(&expects(command), Err(("expects", "a `command` cannot be expected")));
        check(&expects(json!({"kind": "file", "path": ""})), Err(("expects", "[0] `path` is empty")));
        check(&expects(json!({"kind": "files"})), Err(("", "unknown variant `files`")));
        check(&json!({"goal": "a", "why": 1}), Err(("", "unknown field `why`")));
    }
}
