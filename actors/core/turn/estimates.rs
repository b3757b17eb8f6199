//! Estimates of a model call before it is made: the size and tokens of its request, the output that it may request, and
//! its reservation. Also whether the grace call still fits after it. `policy/bill.rs` adds up real costs.

use crate::{
    model::{Amounts, Attempt, BudgetRefusal, Dimension, ModelRef, Price, RunSpec},
    turn::{Turn, active_run::ActiveRun},
};

/// Minimum output tokens of a call. If the budget allows fewer, the call is not made.
const MIN_OUTPUT_TOKENS: u64 = 256;

/// Limit of the output tokens that are requested after truncated answers, each of which doubles them.
const MAX_OUTPUT_TOKENS: u64 = 32_768;

/// Minimum tokens that a request leaves for its answer; at most a quarter of the window.
const MIN_ANSWER_TOKENS: u64 = 1_024;

/// Maximum output tokens of the grace call.
const MAX_GRACE_TOKENS: u64 = 4_096;

/// Output tokens kept free for the grace call while the run works.
const RESERVED_GRACE_TOKENS: u64 = 1_024;

/// What one attempt of a model call requests and reserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Estimate {
    /// Output tokens to request.
    pub(super) max_tokens: u64,
    /// The reservation: the iteration once per call, tokens and money with each attempt, because each may be billed.
    pub(super) reserved: Amounts,
}

/// Estimates an attempt: the tokens of its input and a quarter more, and the output that it may request. The output is
/// bounded by the remaining budget, by what the model can write, and by what its window has left.
pub(super) fn estimate(run: &ActiveRun, turn: &Turn, attempt: Attempt, model: &ModelRef) -> Estimate {
    let (likely, input) = (input_estimate(run, turn, model), input_reservation(run, turn, model));
    let wanted = wanted_output(run, model).min(max_answer_tokens(run, turn, model, likely));
    let price = run.spec.profile_of(model).price;
    let tokens = run.budget_left(Dimension::Tokens).map(|left| left.saturating_sub(input));
    let paid =
        run.budget_left(Dimension::Usd).zip(price).map(|(left, price)| price.affordable_output(left, input));
    let output = tokens.into_iter().chain(paid).fold(wanted, u64::min);
    let with_grace =
        limits_before_grace(run, turn, model).map(|(_, output, _)| output).fold(output, u64::min);
    let max_tokens = match (output, with_grace) {
        (_, output @ MIN_OUTPUT_TOKENS..) => output,
        (MIN_OUTPUT_TOKENS.., _) => wanted,
        // The reservation will be refused. The refusal names what the shortest answer needs.
        _ => wanted.min(MIN_OUTPUT_TOKENS),
    };
    let iterations = (attempt == 1 && !run.is_in_grace()).then_some(1);
    let tokens = Some(input.saturating_add(max_tokens));
    let known = price.filter(|price| price.holds_for(likely));
    let nano_usd = cost_ceiling(&run.spec, turn, known, (input, max_tokens));
    Estimate { max_tokens, reserved: Amounts { iterations, tokens, usd: nano_usd, ..Amounts::default() } }
}

/// Tokens that the context window has left for the answer to a request of `likely` tokens.
fn max_answer_tokens(run: &ActiveRun, turn: &Turn, model: &ModelRef, likely: u64) -> u64 {
    let Some(window) = turn.observations.window(&run.spec, model) else { return u64::MAX };
    let left = window.saturating_sub(likely.saturating_add(likely / 16));
    left.max(min_answer_tokens(run, model, window))
}

/// Minimum tokens that a request leaves for its answer, in a context window of `window` tokens.
pub(super) fn min_answer_tokens(run: &ActiveRun, model: &ModelRef, window: u64) -> u64 {
    wanted_output(run, model).min(MIN_ANSWER_TOKENS).min(window / 4).max(1)
}

/// The limit of the run that leaves nothing for the grace call after another call, if there is one; then only the grace
/// call is made. A run without an answer is not restricted.
pub(super) fn grace_refusal(run: &ActiveRun, turn: &Turn, model: &ModelRef) -> Option<BudgetRefusal> {
    let min_tokens = wanted_output(run, model).min(MIN_OUTPUT_TOKENS);
    let (dimension, _, needed) =
        limits_before_grace(run, turn, model).find(|(_, output, _)| *output < min_tokens)?;
    Some(BudgetRefusal {
        account: run.id.into(),
        dimension,
        limit: run.budget_limit(dimension)?,
        spent: run.budget.spent.get(dimension).unwrap_or(0),
        reserved: 0,
        needed: Some(needed),
    })
}

/// For each limit on tokens and money: the dimension, the output tokens that a call may request so that the grace call
/// still fits, and the amount that both need at least. The grace call reads the same view and the call's whole output;
/// the minimum assumes the shortest answer.
fn limits_before_grace(
    run: &ActiveRun,
    turn: &Turn,
    model: &ModelRef,
) -> impl Iterator<Item = (Dimension, u64, u64)> + use<> {
    let applies = run.has_answered() && !run.is_in_grace();
    let price = run.spec.profile_of(model).price;
    let twice = input_reservation(run, turn, model).saturating_mul(2);
    let min_tokens = wanted_output(run, model).min(MIN_OUTPUT_TOKENS);
    let tokens = run
        .budget_left(Dimension::Tokens)
        .map(|left| left.saturating_sub(twice.saturating_add(RESERVED_GRACE_TOKENS)) / 2);
    let tokens_needed = twice.saturating_add(RESERVED_GRACE_TOKENS).saturating_add(min_tokens * 2);
    let paid = run.budget_left(Dimension::Usd).zip(price).map(|(left, price)| {
        let (grace, each) = (price.max_cost(twice, RESERVED_GRACE_TOKENS), price.max_cost(1, 1));
        let output = left.saturating_sub(grace).checked_div(each).unwrap_or(u64::MAX);
        (Dimension::Usd, output, grace.saturating_add(each.saturating_mul(min_tokens)))
    });
    let tokens = tokens.map(|output| (Dimension::Tokens, output, tokens_needed));
    tokens.into_iter().chain(paid).filter(move |_| applies)
}

/// Tokens reserved for a request's input: a quarter more than the estimate.
fn input_reservation(run: &ActiveRun, turn: &Turn, model: &ModelRef) -> u64 {
    let likely = input_estimate(run, turn, model);
    likely.saturating_add(likely / 4)
}

/// Estimated tokens of a request's input, from its bytes: system prompt, tools, view and transient prompt.
fn input_estimate(run: &ActiveRun, turn: &Turn, model: &ModelRef) -> u64 {
    turn.observations.density(&run.spec, model).tokens(request_bytes(run, turn) as u64)
}

/// Bytes of a request's input, without the overhead of the wire format.
pub(super) fn request_bytes(run: &ActiveRun, turn: &Turn) -> usize {
    head_bytes(run, turn).saturating_add(turn.request_bytes())
}

/// Bytes of the system prompt and the tools.
pub(super) fn head_bytes(run: &ActiveRun, turn: &Turn) -> usize {
    let tools = usize::try_from(run.spec.schema_bytes).unwrap_or(usize::MAX);
    turn.system_bytes(run).saturating_add(tools)
}

/// With a limit on money, for a request whose price is unknown: the input tokens above which the model has no known
/// price, or 0. Such a model is not called. `None` if the price is known, or money is not limited.
pub(super) fn unpriced_above(run: &ActiveRun, turn: &Turn, model: &ModelRef) -> Option<u64> {
    if !limits_money(&run.spec, turn) {
        return None;
    }
    let price = run.spec.profile_of(model).price;
    let is_known = price.is_some_and(|price| price.holds_for(input_estimate(run, turn, model)));
    (!is_known).then(|| price.and_then(|price| price.up_to).unwrap_or(0))
}

/// Maximum cost of an attempt in nano-dollars; `None` if it is unknown and money is not limited. With a limit on money,
/// an unknown cost exceeds any limit.
pub(super) fn cost_ceiling(
    spec: &RunSpec,
    turn: &Turn,
    price: Option<Price>,
    (input, output): (u64, u64),
) -> Option<u64> {
    let most = price.map(|price| price.max_cost(input, output));
    most.or(limits_money(spec, turn).then_some(u64::MAX))
}

/// Whether money is limited, for the run or for the whole store.
pub(super) fn limits_money(spec: &RunSpec, turn: &Turn) -> bool {
    spec.limits.budget.usd.is_some() || turn.store_limits.has_limit(Dimension::Usd)
}

/// Output tokens that the call would request without a budget, within the known and the observed output limits of the
/// model.
pub(super) fn wanted_output(run: &ActiveRun, model: &ModelRef) -> u64 {
    let limit = run.spec.limits.max_tokens;
    let wanted = limit.max(
        limit.saturating_mul(1 << run.answer_recovery.truncated_answers().min(20)).min(MAX_OUTPUT_TOKENS),
    );
    let wanted = if run.is_in_grace() { wanted.min(MAX_GRACE_TOKENS) } else { wanted };
    let found = run.budget.output_caps.iter().filter(|(of, _)| of == model).map(|(_, most)| *most);
    found.chain(run.spec.profile_of(model).max_output).fold(wanted, u64::min)
}
