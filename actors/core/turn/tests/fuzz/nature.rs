//! Random values from the world around a session: specs, answers, failures, results and imported histories.

use std::sync::Arc;

use super::{
    asked::{asked, plans},
    chance::Chance,
};
use crate::{
    model::{
        AgentName, Amounts, Artifact, AsideJob, AssistantMessage, AttemptId, AuxiliaryChain, BeginRules,
        CallEnd, CompactionPolicy, Deadline, Delegation, Expectation, ExpectationMiss, Failure, FailureClass,
        FinishReason, HookDecision, HookPoint, HookRuling, HookedRun, Image, ImageFormat, ImportedHistory,
        InDoubtAction, InDoubtPolicy, Lane, LaneLimits, Limits, Message, ModelAnswer, ModelProfile, ModelRef,
        ModelStarted, RequestFate, RetryPolicy, RunId, RunSpec, Timestamp, ToolCall, UnansweredModel,
        UnansweredReason, Usage,
    },
    policy::{
        Candidate, CredentialRecovery, LinkAvailability, MEMORY_TOOL, clarify::CLARIFY,
        delegation::DELEGATE_TASK, message::MESSAGE, todo::TODO,
    },
    turn::{CallAdmission, FailoverOptions, Input},
};

const MODELS: [(&str, &str); 3] = [("p", "m"), ("q", "n"), ("r", "o")];
/// The spec of a run.
pub(super) fn spec(chance: &mut Chance) -> RunSpec {
    let length = 1 + chance.place(MODELS.len()).unwrap_or(0);
    let link = |(provider, model): &(&str, &str)| ModelRef::new(*provider, *model).unwrap();
    let max_output = (!chance.one_in(3)).then_some(1 + chance.below(500));
    let window = chance.one_in(3).then(|| chance.pick(&[160, 300, 600, 2_000]));
    let traits = ModelProfile { window, max_output, ..ModelProfile::default() };
    let compression = chance.one_in(2).then(|| Arc::new(compression(chance, traits)));
    let then = chance.pick(&[InDoubtAction::Tell, InDoubtAction::Ask, InDoubtAction::Retry]);
    let mut spec = RunSpec {
        agent: AgentName::default(),
        chain: MODELS[..length].iter().map(link).collect(),
        profiles: if chance.one_in(3) { vec![traits; length] } else { Vec::new() },
        thinking: None,
        lane: chance.pick(&[Lane::Main, Lane::Main, Lane::Cron]),
        workspace: "/w".into(),
        isolation_key: "t".into(),
        tools: vec![
            CLARIFY.into(),
            DELEGATE_TASK.into(),
            MESSAGE.into(),
            TODO.into(),
            "tool".into(),
            MEMORY_TOOL.into(),
        ],
        schema_bytes: 0,
        limits: limits(chance),
        system: chance.one_in(4).then(|| "be brief".into()),
        in_doubt: InDoubtPolicy {
            action: then,
            approval_timeout_ms: chance.pick(&[0, 5_000, 600_000, 600_000]),
        },
        compaction: compression,
        // Without a draw of its own, like `expects`.
        title: (length < 3).then(|| Arc::new(title(traits))),
        // Without a draw of its own, like `expects`.
        vision: (length != 2).then(|| Arc::new(vision(traits))),
        memory: (length > 1).then(|| Arc::new(title(traits))),
        delegation: delegation(chance),
        loop_guard: !chance.one_in(4),
        // Without a draw of its own, so that the rest of a sequence stays as it was.
        expects: if length == 2 { vec![expectation()] } else { Vec::new() },
        must_answer: chance.one_in(2),
        script: None,
        deliver_to: if chance.one_in(4) { vec!["ops".into()] } else { Vec::new() },
    };
    if spec.vision.is_some() {
        // The first model sees no pictures.
        spec.profiles.resize(length, ModelProfile::default());
        spec.profiles[0].images = Some(false);
    }
    spec
}

fn expectation() -> Expectation {
    Expectation::Text { contains: "x".into() }
}

/// The miss of the only expectation.
pub(super) fn miss() -> ExpectationMiss {
    ExpectationMiss::new(0, &expectation(), "it is not there")
}

fn title(traits: ModelProfile) -> AuxiliaryChain {
    let chain = ["s/t".parse(), "p/m".parse()].map(Result::unwrap).to_vec();
    AuxiliaryChain { profiles: vec![traits; chain.len()], chain }
}

fn vision(traits: ModelProfile) -> AuxiliaryChain {
    let chain = ["s/v".parse(), "p/m".parse()].map(Result::unwrap).to_vec();
    AuxiliaryChain { profiles: vec![traits; chain.len()], chain }
}

/// The end of a call of a tool, for some calls with a picture.
pub(super) fn shown(id: AttemptId) -> CallEnd {
    let artifact = Artifact { handle: format!("{}.{}", id.call, id.attempt), bytes: 10, sha256: None };
    let images = id.call.iteration.is_multiple_of(3).then_some(Image::new(ImageFormat::Png, artifact));
    CallEnd { images: images.into_iter().collect(), ..CallEnd::ok("yes") }
}

/// Pictures without a draw of their own: two for some runs, one for others.
pub(super) fn images(run: RunId) -> Arc<[Image]> {
    let of = |n: u32| {
        let artifact = Artifact { handle: format!("{run}.0.{n}"), bytes: 10, sha256: None };
        Image::new(ImageFormat::Png, artifact)
    };
    (0..u32::try_from(run.bits() % 3).unwrap_or(0)).map(of).collect()
}

fn compression(chance: &mut Chance, traits: ModelProfile) -> CompactionPolicy {
    let (all, length) = (["s/s".parse(), "p/m".parse()].map(Result::unwrap), chance.place(3).unwrap_or(0));
    CompactionPolicy {
        chain: all[..length].to_vec(),
        profiles: vec![traits; length],
        trigger: chance.pick(&[30, 50, 80]),
        protect_last: chance.pick(&[0, 4, 20]),
        ahead: chance.one_in(2),
    }
}

fn delegation(chance: &mut Chance) -> Option<Delegation> {
    let delegation = Delegation {
        depth: chance.pick(&[0, 0, 1]),
        max_depth: chance.pick(&[1, 2, 2]),
        max_children: chance.pick(&[1, 2, 3, 3, 8]),
        iterations: 50,
        shares_iterations: chance.one_in(3),
        progress_ms: None,
    };
    chance.unless(4, delegation)
}

fn limits(chance: &mut Chance) -> Limits {
    let tight = chance.one_in(3);
    let budget = Amounts {
        iterations: (tight && chance.one_in(2)).then_some(1 + chance.below(4)),
        tokens: (tight && chance.one_in(2)).then_some(100 + chance.below(3_000)),
        tool_calls: (tight && chance.one_in(2)).then_some(chance.below(4)),
        children: chance.one_in(6).then_some(chance.below(3)),
        ..Amounts::default()
    };
    let hurried = RetryPolicy {
        initial_pause_ms: 10,
        max_pause_ms: 50,
        deadline_ms: chance.below(5_000),
        wait_for_reset_max_ms: chance.below(20_000),
        ..RetryPolicy::default()
    };
    let retry = if chance.one_in(3) { hurried } else { RetryPolicy::default() };
    Limits {
        budget,
        wall_ms: chance.one_in(8).then_some(chance.below(3_000)),
        timeout_ms: chance.one_in(8).then_some(chance.below(3_000)),
        max_tokens: chance.pick(&[100, 1_000]),
        retry: RetryPolicy { fallback_on_refusal: chance.one_in(2), ..retry },
    }
}

/// How an attempt of a model call ends.
pub(super) fn said(chance: &mut Chance, started: &Arc<ModelStarted>, links: usize, at: Timestamp) -> Input {
    let (call, attempt) = (started.call, started.attempt);
    match chance.below(16) {
        0 => Input::Lost(AttemptId { call, attempt }),
        1..=3 => {
            let fates = [RequestFate::NotSent, RequestFate::Rejected, RequestFate::MayHaveRun];
            let failure = Failure {
                request: chance.one_in(2).then(|| chance.pick(&fates)),
                usage: chance.one_in(4).then(|| usage(chance, started)).flatten().map(Box::new),
                ..Failure::new(failure(chance, at), "x")
            };
            Input::ModelFailed {
                id: AttemptId { call, attempt },
                failure: Box::new(failure),
                failover: outlook(chance, links, at),
            }
        }
        _ => answered(chance, started),
    }
}

/// The model's answer.
pub(super) fn answered(chance: &mut Chance, started: &Arc<ModelStarted>) -> Input {
    if started.call.job() == Some(AsideJob::Memory) {
        let texts = ["memory: a fact", "user: a name\nmemory: b", "nothing", "what?", ""];
        let message = AssistantMessage { text: chance.pick(&texts).into(), ..AssistantMessage::default() };
        return answer(started, (message, FinishReason::Stop), Vec::new(), usage(chance, started));
    }
    let thoughts = if chance.one_in(3) { "hm" } else { "" };
    let (text, calls, finish) = match chance.below(16) {
        0 => ("done", 0, FinishReason::Stop),
        1 | 2 => (chance.pick(&["done", "done", "No_Reply "]), 0, FinishReason::Stop),
        3 => ("", 0, chance.pick(&[FinishReason::Stop, FinishReason::ToolCalls])),
        4 => (chance.pick(&["part ", ""]), 0, FinishReason::Length),
        5 => ("cut", 1, FinishReason::Length),
        6 => ("no", 0, FinishReason::Refused),
        7 | 8 => ("I look", 1 + chance.below(2), FinishReason::ToolCalls),
        _ => ("", 1 + chance.below(3), chance.pick(&[FinishReason::ToolCalls, FinishReason::Stop])),
    };
    let message = AssistantMessage {
        text: text.into(),
        reasoning: thoughts.into(),
        calls: (0..calls).map(|n| asked(chance, n)).collect(),
        opaque: None,
    };
    let plans = plans(chance, &message.calls);
    answer(started, (message, finish), plans, usage(chance, started))
}

/// An answer with calls and without a flaw of its own.
pub(super) fn repeated(chance: &mut Chance, started: &Arc<ModelStarted>) -> Input {
    let calls = 1 + chance.below(2);
    let message = AssistantMessage {
        calls: (0..calls).map(|n| asked(chance, n)).collect(),
        ..AssistantMessage::default()
    };
    let plans = plans(chance, &message.calls);
    answer(started, (message, FinishReason::ToolCalls), plans, None)
}

/// The final answer of a model, without a flaw.
pub(super) fn last_word(started: &Arc<ModelStarted>) -> Input {
    let message = AssistantMessage { text: "done".into(), ..AssistantMessage::default() };
    let usage = Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() };
    answer(started, (message, FinishReason::Stop), Vec::new(), Some(usage))
}

fn answer(
    started: &Arc<ModelStarted>,
    (message, finish): (AssistantMessage, FinishReason),
    plans: Vec<CallAdmission>,
    usage: Option<Usage>,
) -> Input {
    let answer = Arc::new(ModelAnswer { message, finish, usage });
    Input::Answered { started: Arc::clone(started), answer, admissions: plans.into() }
}

/// The reported usage: mostly no more than was reserved, sometimes an implausible one.
fn usage(chance: &mut Chance, started: &ModelStarted) -> Option<Usage> {
    if chance.one_in(16) {
        let cached_tokens = chance.pick(&[1 << 40, 1_000_000_000_000_000_000, u64::MAX]);
        return Some(Usage { cached_tokens, ..Usage::default() });
    }
    let reserved = started.reserved.tokens.unwrap_or(0);
    let most = if chance.one_in(8) { reserved * 2 } else { reserved };
    let output_tokens = chance.below(most + 1);
    let input_tokens = if chance.one_in(2) { chance.below(most - output_tokens + 1) } else { 0 };
    chance.unless(6, Usage { input_tokens, output_tokens, ..Usage::default() })
}

fn failure(chance: &mut Chance, at: Timestamp) -> FailureClass {
    let ms = chance.pick(&[0, 300, 4_000, 9_000, 100_000]);
    let reset_at = chance.one_in(2).then_some(at.plus_ms(ms));
    let limit = chance.one_in(2).then_some(1 + chance.below(200));
    let retry_after_ms = chance.one_in(2).then_some(ms);
    match chance.below(16) {
        0 | 1 => FailureClass::RateLimited { retry_after_ms, reset_at },
        2 | 3 => FailureClass::Overloaded,
        4 => FailureClass::Server,
        5 => {
            let which = [Deadline::Connect, Deadline::FirstEvent, Deadline::Gap, Deadline::Call];
            FailureClass::Timeout { which: chance.pick(&which) }
        }
        6 => FailureClass::Network,
        7 => FailureClass::IncompleteStream,
        8 => FailureClass::NotAnApi,
        9 => FailureClass::Auth,
        10 => FailureClass::QuotaExhausted { reset_at },
        11 => FailureClass::ContextTooLong { limit },
        12 | 13 => FailureClass::OutputCap { limit },
        14 => chance.pick(&[FailureClass::InvalidRequest, FailureClass::ContentRefused]),
        _ => FailureClass::ModelNotFound,
    }
}

fn outlook(chance: &mut Chance, links: usize, at: Timestamp) -> FailoverOptions {
    if chance.one_in(2) {
        return FailoverOptions::default();
    }
    let soon = at.plus_ms(chance.below(20_000));
    let standings = [
        LinkAvailability::Available,
        LinkAvailability::AtCapacity,
        LinkAvailability::RateLimited(soon),
        LinkAvailability::WarmingUp,
        LinkAvailability::Probing,
        LinkAvailability::BreakerOpen(soon),
        LinkAvailability::ClosedByProvider(soon),
        LinkAvailability::NotConfigured,
    ];
    let otherwise = chance.pick(&[
        CredentialRecovery::No,
        CredentialRecovery::No,
        CredentialRecovery::Renewed,
        CredentialRecovery::Rotated,
    ]);
    FailoverOptions { links: (0..links).map(|_| chance.pick(&standings)).collect(), recovery: otherwise }
}

/// Why no link can be called: each is closed for ever, or until a time.
pub(super) fn skipped(chance: &mut Chance, links: &[Candidate], at: Timestamp) -> Arc<[UnansweredModel]> {
    let closed = |link: &Candidate| {
        let until = (!chance.one_in(3)).then(|| at.plus_ms(chance.pick(&[0, 500, 8_000, 30_000_000])));
        let failure = Failure::new(FailureClass::Overloaded, "closed");
        UnansweredModel { model: link.model.clone(), reason: UnansweredReason::Skipped { until, failure } }
    };
    links.iter().map(closed).collect()
}

/// Any list of messages from outside.
pub(super) fn foreign(chance: &mut Chance) -> Vec<Message> {
    let length = chance.below(12);
    (0..length).map(|_| message(chance)).collect()
}

fn message(chance: &mut Chance) -> Message {
    let text = chance.pick(&["", "x", " ", "yy"]);
    let id = |chance: &mut Chance| chance.pick(&["", "1", "2", "3"]);
    let said = |calls: u64, chance: &mut Chance| {
        let mut call = |_| ToolCall { id: id(chance).into(), name: "look".into(), arguments: "{}".into() };
        let calls = (0..calls).map(&mut call).collect();
        Message::Assistant(Arc::new(AssistantMessage {
            text: text.into(),
            calls,
            ..AssistantMessage::default()
        }))
    };
    match chance.below(6) {
        0 | 1 => Message::User(text.into()),
        2 => Message::System(text.into()),
        3 => said(0, chance),
        4 => {
            let calls = 1 + chance.below(3);
            said(calls, chance)
        }
        _ => Message::Tool { call: id(chance).into(), name: "look".into(), content: text.into() },
    }
}

/// An imported conversation for one of eight sessions.
pub(super) fn past(chance: &mut Chance) -> ImportedHistory {
    match chance.one_in(8) {
        true => crate::turn::repair(&foreign(chance)).past,
        false => ImportedHistory::default(),
    }
}

/// What runs of one sequence wait for: nothing, for half of the sequences.
pub(super) fn begin_rules(chance: &mut Chance) -> BeginRules {
    let limit = |chance: &mut Chance| chance.one_in(4).then_some(1);
    let lanes = LaneLimits { main: limit(chance), subagent: limit(chance), cron: None };
    BeginRules { lanes, are_hooks_asked: chance.one_in(4) }
}

/// What hooks may decide about a run; `None` if none was asked.
pub(super) fn hooks(chance: &mut Chance) -> Option<Arc<HookedRun>> {
    let ruling = chance.pick(&[HookRuling::Allowed, HookRuling::Replaced, HookRuling::Refused]);
    let decision = HookDecision { hook: "h".into(), point: HookPoint::BeforeRun, ruling, reason: None };
    let context = (ruling == HookRuling::Replaced).then(|| "context".into());
    let hooked = HookedRun { decisions: [decision].into(), input: None, context };
    chance.one_in(2).then(|| Arc::new(hooked))
}
