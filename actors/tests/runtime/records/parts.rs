//! Arbitrary parts of bodies, made of values.

use std::sync::Arc;

use hermod_actors::model::{
    Access, AsideAnswered, AsideDefect, Attachment, AuxiliaryChain, BudgetRefusal, CallAdmitted, CallEnd,
    CallStatus, CompactionMethod, CompactionPolicy, ContextBreakdown, ContextCompacted, Deadline, Delegation,
    Dimension, EffectClass, Expectation, ExpectationMiss, Failure, FailureClass, FinishReason, Flaw,
    HistoryPosition, Hold, InDoubtAction, InDoubtPolicy, Lane, LimitIncrease, Limits, ModelAnswered,
    ModelFailed, ModelStarted, Outcome, OutcomeCause, OutcomeDetail, ParentRef, PrefixChange, Repetition,
    RepetitionPattern, RequestFate, RetryAttempts, RetryPolicy, RunAccepted, RunSpec, StopReason,
    SubagentRef, TodoChanged, TodoItem, TodoList, TodoStatus, UnansweredModel, UnansweredReason,
};
use proptest::{prelude::*, sample::select};
use serde_json::json;

use super::hooks::{hook_decisions, hooked_call};
use super::queues::queueing;
use super::schedules::occurrence;
use super::values::{
    Made, account, agent, amounts, anomaly, artifact, call, hash, images, incarnation, list, maybe, message,
    model, number, past, price, run, session, shared, small, text, thinking, time, traits, usage,
};

pub(crate) fn retry() -> Made<RetryPolicy> {
    let attempts = || {
        (small(), small(), small(), (small(), small(), small(), small())).prop_map(
            |(rate_limited, overloaded, server, (timeout, network, cut, lost))| RetryAttempts {
                rate_limited,
                overloaded,
                server,
                timeout,
                network,
                incomplete_stream: cut,
                lost,
            },
        )
    };
    let times = (number(), number(), number(), number(), number());
    let policy = (times, attempts(), attempts(), any::<bool>()).prop_map(
        |(
            (first_ms, longest_ms, deadline_ms, short_wait_ms, wait_for_reset_max_ms),
            attempts,
            fallback_after,
            fallback_on_refusal,
        )| RetryPolicy {
            initial_pause_ms: first_ms,
            max_pause_ms: longest_ms,
            deadline_ms,
            attempts,
            fallback_on_refusal,
            fallback_after,
            short_wait_ms,
            wait_for_reset_max_ms,
        },
    );
    prop_oneof![Just(RetryPolicy::default()), policy].boxed()
}

pub(crate) fn doubt() -> Made<InDoubtPolicy> {
    let then = select(vec![InDoubtAction::Tell, InDoubtAction::Ask, InDoubtAction::Retry]);
    let doubt = (then, number())
        .prop_map(|(then, patience_ms)| InDoubtPolicy { action: then, approval_timeout_ms: patience_ms });
    prop_oneof![Just(InDoubtPolicy::default()), doubt].boxed()
}

pub(crate) fn compression() -> Made<Arc<CompactionPolicy>> {
    (list(model()), list(traits()), any::<u8>(), small(), any::<bool>())
        .prop_map(|(chain, traits, trigger, protect_last, ahead)| {
            Arc::new(CompactionPolicy { chain, profiles: traits, trigger, protect_last, ahead })
        })
        .boxed()
}

pub(crate) fn delegation() -> Made<Delegation> {
    (small(), small(), small(), number(), any::<bool>(), maybe(number()))
        .prop_map(|(depth, max_depth, max_children, iterations, shared, progress_ms)| Delegation {
            depth,
            max_depth,
            max_children,
            iterations,
            shares_iterations: shared,
            progress_ms,
        })
        .boxed()
}

pub(crate) fn spec() -> Made<Arc<RunSpec>> {
    let limits = (amounts(), maybe(number()), maybe(number()), number(), retry()).prop_map(
        |(budget, wall_ms, timeout_ms, max_tokens, retry)| Limits {
            budget,
            wall_ms,
            timeout_ms,
            max_tokens,
            retry,
        },
    );
    let models = (list(model()), list(traits()), maybe(thinking()));
    let tools = (text(), text(), list(text()), number());
    let rest = (
        maybe(shared()),
        doubt(),
        maybe(compression()),
        (maybe(delegation()), any::<bool>(), any::<bool>(), lane()),
        maybe(hash()),
        list(expectation()),
    );
    (agent(), models, tools, limits, rest)
        .prop_map(
            |(
                agent,
                (chain, traits, thinking),
                (workspace, task, tools, schema_bytes),
                limits,
                (system, in_doubt, compression, (delegation, loop_guard, must_answer, lane), script, expects),
            )| {
                Arc::new(RunSpec {
                    agent,
                    chain,
                    profiles: traits,
                    thinking,
                    lane,
                    workspace,
                    isolation_key: task,
                    tools,
                    schema_bytes,
                    limits,
                    system,
                    in_doubt,
                    title: compression.as_deref().map(auxiliary),
                    memory: compression.as_deref().map(auxiliary),
                    vision: compression.as_deref().filter(|_| loop_guard).map(auxiliary),
                    compaction: compression,
                    delegation,
                    loop_guard,
                    expects,
                    script,
                    deliver_to: vec!["ops".into()],
                    must_answer,
                })
            },
        )
        .boxed()
}

fn auxiliary(policy: &CompactionPolicy) -> Arc<AuxiliaryChain> {
    let CompactionPolicy { chain, profiles, .. } = policy.clone();
    Arc::new(AuxiliaryChain { chain, profiles })
}

pub(crate) fn parent() -> Made<ParentRef> {
    (session(), call(), small()).prop_map(|(session, call, n)| ParentRef { session, call, n }).boxed()
}

pub(crate) fn child() -> Made<SubagentRef> {
    (session(), run()).prop_map(|(session, run)| SubagentRef { session, run }).boxed()
}

pub(crate) fn failure() -> Made<Failure> {
    let deadline = select(vec![Deadline::Connect, Deadline::FirstEvent, Deadline::Gap, Deadline::Call]);
    let class = prop_oneof![
        (maybe(number()), maybe(time()))
            .prop_map(|(retry_after_ms, reset_at)| FailureClass::RateLimited { retry_after_ms, reset_at }),
        maybe(time()).prop_map(|reset_at| FailureClass::QuotaExhausted { reset_at }),
        maybe(number()).prop_map(|limit| FailureClass::ContextTooLong { limit }),
        maybe(number()).prop_map(|limit| FailureClass::OutputCap { limit }),
        deadline.prop_map(|which| FailureClass::Timeout { which }),
        select(vec![
            FailureClass::Overloaded,
            FailureClass::Server,
            FailureClass::Network,
            FailureClass::IncompleteStream,
            FailureClass::NotAnApi,
            FailureClass::Auth,
            FailureClass::InvalidRequest,
            FailureClass::ContentRefused,
            FailureClass::ModelNotFound,
            FailureClass::Cancelled,
            FailureClass::Lost,
            FailureClass::NotSent,
            FailureClass::Interrupted,
        ]),
    ];
    let fate = select(vec![RequestFate::NotSent, RequestFate::Rejected, RequestFate::MayHaveRun]);
    (class, text(), maybe(fate.boxed()), maybe(usage()), anomaly())
        .prop_map(|(class, message, request, usage, anomaly)| Failure {
            class,
            message,
            request,
            usage: usage.map(Box::new),
            anomaly,
        })
        .boxed()
}

pub(crate) fn not_answered() -> Made<UnansweredModel> {
    let why = prop_oneof![
        (small(), failure()).prop_map(|(attempts, failure)| UnansweredReason::Tried { attempts, failure }),
        (maybe(time()), failure()).prop_map(|(until, failure)| UnansweredReason::Skipped { until, failure }),
    ];
    (model(), why).prop_map(|(model, why)| UnansweredModel { model, reason: why }).boxed()
}

pub(crate) fn allowance() -> Made<BudgetRefusal> {
    (account(), select(Dimension::ALL.to_vec()), number(), number(), number(), maybe(number()))
        .prop_map(|(account, dimension, limit, spent, reserved, needed)| BudgetRefusal {
            account,
            dimension,
            limit,
            spent,
            reserved,
            needed,
        })
        .boxed()
}

pub(crate) fn stop_reason() -> Made<StopReason> {
    select(vec![
        StopReason::Command,
        StopReason::Signal,
        StopReason::Parent,
        StopReason::Interrupt,
        StopReason::QueueFull,
        StopReason::Overlap,
    ])
    .boxed()
}

pub(crate) fn cause() -> Made<OutcomeCause> {
    let sizes = (maybe(number()), maybe(number()));
    let parts = (number(), sizes, number(), number(), number(), number()).prop_map(
        |(limit, (window, output), system, tools, request, last)| ContextBreakdown {
            limit,
            window,
            output,
            system,
            tools,
            request,
            last,
        },
    );
    prop_oneof![
        (failure(), list(not_answered()))
            .prop_map(|(failure, chain)| OutcomeCause::Provider { failure, chain }),
        select(vec![OutcomeCause::EmptyAnswer, OutcomeCause::Truncated, OutcomeCause::UnknownTool]),
        number().prop_map(|max_tokens| OutcomeCause::ReasoningOnly { max_tokens }),
        list(miss()).prop_map(|misses| OutcomeCause::Expectation { misses }),
        parts.prop_map(|parts| OutcomeCause::ContextOverflow { parts }),
        allowance().prop_map(|refusal| OutcomeCause::Limit { refusal }),
        (model(), number()).prop_map(|(model, above)| OutcomeCause::Unpriced { model, above }),
        number().prop_map(|limit_ms| OutcomeCause::Time { limit_ms }),
        number().prop_map(|limit_ms| OutcomeCause::NoProgress { limit_ms }),
        repetition().prop_map(|repetition| OutcomeCause::Repetition { repetition }),
        stop_reason().prop_map(|reason| OutcomeCause::Stop { reason }),
        text().prop_map(|refusal| OutcomeCause::Hook { refusal }),
        text().prop_map(|error| OutcomeCause::CrashLoop { error }),
        text().prop_map(|error| OutcomeCause::Unreadable { error }),
    ]
    .boxed()
}

pub(crate) fn expectation() -> Made<Expectation> {
    let schema =
        select(vec![json!({}), json!(false), json!({"required": ["a"], "maximum": -1.5, "enum": [[null]]})]);
    prop_oneof![
        (text(), any::<bool>(), any::<bool>()).prop_map(|(path, not_empty, newer)| Expectation::File {
            path,
            not_empty,
            newer
        }),
        (text(), schema).prop_map(|(path, schema)| Expectation::Schema { path, schema: Arc::new(schema) }),
        (text(), maybe(number()))
            .prop_map(|(command, timeout_s)| Expectation::Command { command, timeout_s }),
        text().prop_map(|contains| Expectation::Text { contains }),
    ]
    .boxed()
}

pub(crate) fn miss() -> Made<ExpectationMiss> {
    (small(), text(), text())
        .prop_map(|(n, expected, reason)| ExpectationMiss { n, expected, reason })
        .boxed()
}

pub(crate) fn repetition() -> Made<Repetition> {
    (select(RepetitionPattern::ALL.to_vec()), shared(), small())
        .prop_map(|(pattern, tool, times)| Repetition { pattern, tool, times })
        .boxed()
}

pub(crate) fn ended() -> Made<OutcomeDetail> {
    let outcome = select(vec![
        Outcome::Completed,
        Outcome::Failed,
        Outcome::Stopped,
        Outcome::TimedOut,
        Outcome::BudgetExhausted,
        Outcome::LoopDetected,
        Outcome::Refused,
    ]);
    (outcome, maybe(cause())).prop_map(|(outcome, cause)| OutcomeDetail { outcome, cause }).boxed()
}

pub(crate) fn raised() -> Made<LimitIncrease> {
    (amounts(), maybe(number())).prop_map(|(budget, wall_ms)| LimitIncrease { budget, wall_ms }).boxed()
}

pub(crate) fn started() -> Made<Arc<ModelStarted>> {
    let prefix = select(vec![
        PrefixChange::First,
        PrefixChange::Model,
        PrefixChange::System,
        PrefixChange::Tools,
        PrefixChange::Thinking,
    ]);
    let request = (number(), hash(), (number(), number()), number(), maybe(prefix.boxed()));
    (call(), small(), model(), request, (amounts(), maybe(account())), maybe(price()), incarnation())
        .prop_map(
            |(
                call,
                attempt,
                model,
                (view, request, (bytes, images), max_tokens, prefix),
                (reserved, period),
                price,
                incarnation,
            )| {
                Arc::new(ModelStarted {
                    call,
                    attempt,
                    model,
                    view_seq: view,
                    request_hash: request,
                    bytes,
                    images,
                    max_tokens,
                    prefix,
                    reserved,
                    period,
                    price,
                    incarnation,
                })
            },
        )
        .boxed()
}

pub(crate) fn failed() -> Made<ModelFailed> {
    (call(), small(), failure(), maybe(time()), maybe(any::<usize>().boxed()))
        .prop_map(|(call, attempt, failure, retry_at, fallback)| ModelFailed {
            call,
            attempt,
            failure,
            retry_at,
            fallback,
        })
        .boxed()
}

pub(crate) fn place() -> Made<HistoryPosition> {
    (small(), small()).prop_map(|(round, step)| HistoryPosition { round, step }).boxed()
}

pub(crate) fn access() -> Made<Access> {
    let paths = (list(shared()), list(shared())).prop_map(|(reads, writes)| Access::Paths { reads, writes });
    prop_oneof![Just(Access::Anything), Just(Access::Exclusive), paths].boxed()
}

pub(crate) fn call_end() -> Made<CallEnd> {
    let status = select(vec![
        CallStatus::Ok,
        CallStatus::Error,
        CallStatus::Stopped,
        CallStatus::NotStarted,
        CallStatus::InDoubt,
    ]);
    let attachment = (shared(), artifact()).prop_map(|(name, artifact)| Attachment { name, artifact });
    let attachments = list(attachment.boxed()).prop_map(Arc::new);
    (status, shared(), maybe(artifact()), images(), attachments, hook_decisions())
        .prop_map(|(status, content, artifact, images, attachments, hooks)| CallEnd {
            status,
            content,
            artifact,
            images,
            attachments,
            hooks,
        })
        .boxed()
}

fn lane() -> Made<Lane> {
    select(Lane::ALL.to_vec()).boxed()
}

pub(crate) fn accepted() -> Made<RunAccepted> {
    let hold = (maybe(time()), maybe(lane()), any::<bool>());
    let queueing = (queueing(), hold.prop_map(|(until, lane, hooks)| Hold { until, lane, hooks }));
    let begin = (maybe(queueing.boxed()), maybe(occurrence()));
    (run(), shared(), images(), past(), spec(), maybe(parent()), maybe(hash()), begin)
        .prop_map(|(run, input, images, history, spec, parent, request_hash, (queueing, occurrence))| {
            RunAccepted {
                run,
                input,
                images,
                history,
                spec,
                parent,
                request_hash,
                queueing: queueing.map(|(queueing, _)| queueing),
                hold: queueing.map(|(_, hold)| hold),
                occurrence,
            }
        })
        .boxed()
}

pub(crate) fn answered() -> Made<ModelAnswered> {
    let finish = select(vec![
        FinishReason::Stop,
        FinishReason::ToolCalls,
        FinishReason::Length,
        FinishReason::Refused,
    ]);
    let flaw = select(vec![
        Flaw::UnknownTools,
        Flaw::Malformed,
        Flaw::Truncated,
        Flaw::Partial,
        Flaw::EmptyAfterTool,
        Flaw::ReasoningOnly,
        Flaw::Empty,
        Flaw::Refused,
        Flaw::Silent,
    ]);
    (
        call(),
        small(),
        message(),
        finish,
        maybe(flaw.boxed()),
        maybe(any::<usize>().boxed()),
        (maybe(usage()), anomaly()),
    )
        .prop_map(|(call, attempt, message, finish, flaw, fallback, (usage, anomaly))| ModelAnswered {
            call,
            attempt,
            message,
            finish,
            flaw,
            fallback,
            usage,
            anomaly,
        })
        .boxed()
}

pub(crate) fn aside_answered() -> Made<AsideAnswered> {
    let unusable = select(vec![AsideDefect::Empty, AsideDefect::TooLong, AsideDefect::Malformed]);
    (
        call(),
        small(),
        shared(),
        maybe(unusable.boxed()),
        maybe(any::<usize>().boxed()),
        (maybe(usage()), anomaly()),
    )
        .prop_map(|(call, attempt, text, unusable, fallback, (usage, anomaly))| AsideAnswered {
            call,
            attempt,
            text,
            unusable,
            fallback,
            usage,
            anomaly,
        })
        .boxed()
}

pub(crate) fn compacted() -> Made<ContextCompacted> {
    let by = select(vec![
        CompactionMethod::Elided,
        CompactionMethod::Summarised,
        CompactionMethod::Chunked,
        CompactionMethod::Dropped,
    ]);
    (run(), session(), by, place(), maybe(shared()), (number(), number(), number()))
        .prop_map(|(run, lineage, by, to, summary, (before, after, waited_ms))| ContextCompacted {
            run,
            lineage,
            method: by,
            end: to,
            summary,
            tokens_before: before,
            tokens_after: after,
            waited_ms,
        })
        .boxed()
}

pub(crate) fn admitted() -> Made<CallAdmitted> {
    let effect = select(vec![EffectClass::Pure, EffectClass::Idempotent, EffectClass::Once]);
    (call(), shared(), effect, access(), any::<(bool, bool)>(), hash(), maybe(small()), maybe(hooked_call()))
        .prop_map(|(call, tool, effect, access, (detached, polls), arguments, same_as, hooks)| CallAdmitted {
            call,
            tool,
            effect,
            access,
            detached,
            polls,
            arguments,
            same_as,
            hooks,
        })
        .boxed()
}

pub(crate) fn todo() -> Made<TodoChanged> {
    let status = select(vec![
        TodoStatus::Pending,
        TodoStatus::InProgress,
        TodoStatus::Completed,
        TodoStatus::Cancelled,
    ]);
    let item = (text(), text(), status).prop_map(|(id, content, status)| TodoItem { id, content, status });
    (call(), list(item.boxed()))
        .prop_map(|(call, items)| TodoChanged { call, items: Arc::new(TodoList(items)) })
        .boxed()
}
