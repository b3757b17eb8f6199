//! What is written can be read: every kind of record, made of arbitrary arguments of the public constructors.

use std::sync::Arc;

use hermod_actors::model::{
    Access, AccountId, Amounts, Answerer, ApprovalAnswered, ApprovalRequested, Artifact, AssistantMessage,
    Body, BudgetRaised, CallAdmitted, CallEnd, CallEnded, CallId, CallLost, CallStarted, CallStatus, Cause,
    Child, ChildEnded, Compression, ContextCompacted, Deadline, Delegation, Density, Dimension, Doubt,
    EffectClass, Ended, Failure, FailureClass, Finish, Flaw, Hash, Image, ImageFormat, Inbox, Incarnation,
    Irreducible, Kind, LateSettled, Levels, Limits, MessageSteered, ModelAnswered, ModelDeadlines,
    ModelFailed, ModelRef, ModelRow, ModelStarted, ModelTraits, ModelWaiting, NoAllowance, NotAnswered,
    Opaque, Origin, Outcome, Parent, Past, PastCall, PastRound, PastStep, Place, PrefixChange, Price, Raised,
    Record, RetryAttempts, RetryPolicy, RunAccepted, RunEnded, RunExhausted, RunId, RunReopened, RunRow,
    RunSpec, RunState, RunStopping, Rung, SessionId, SessionOpened, SessionRevived, SessionRow, StopReason,
    SummaryAnswered, SummaryStarted, Thinking, ThinkingStyle, Timestamp, TodoChanged, TodoItem, TodoList,
    TodoStatus, ToolCall, Unusable, Usage, Verdict, WhenInDoubt, WhyAgain, WhyNot, decode, encode,
};
use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    strategy::BoxedStrategy,
    test_runner::{Config, TestRunner},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Records of each kind that are written and read.
const CASES: u32 = 200;

type Made<T> = BoxedStrategy<T>;

fn number() -> Made<u64> {
    prop_oneof![Just(0), Just(1), Just(u64::MAX), Just(1 << 53), any::<u64>()].boxed()
}

fn small() -> Made<u32> {
    prop_oneof![Just(0), Just(u32::MAX), any::<u32>()].boxed()
}

fn time() -> Made<Timestamp> {
    prop_oneof![Just(0), Just(i64::MIN), Just(i64::MAX), any::<i64>()].prop_map(Timestamp).boxed()
}

/// Any text: empty, control characters, noncharacters, what JSON escapes.
fn text() -> Made<String> {
    let letter = prop_oneof![
        any::<char>(),
        select(vec!['\0', '"', '\\', '/', '\u{2028}', '\u{feff}', '\u{ffff}', ' '])
    ];
    vec(letter, 0..8).prop_map(String::from_iter).boxed()
}

fn shared() -> Made<Arc<str>> {
    text().prop_map(Arc::from).boxed()
}

fn maybe<T: std::fmt::Debug + Clone + 'static>(of: Made<T>) -> Made<Option<T>> {
    proptest::option::of(of).boxed()
}

fn list<T: std::fmt::Debug + 'static>(of: Made<T>) -> Made<Vec<T>> {
    vec(of, 0..3).boxed()
}

fn run() -> Made<RunId> {
    any::<u128>().prop_map(RunId::from_bits).boxed()
}

fn session() -> Made<SessionId> {
    any::<u128>().prop_map(SessionId::from_bits).boxed()
}

fn account() -> Made<AccountId> {
    any::<u128>().prop_map(AccountId::from_bits).boxed()
}

fn call() -> Made<CallId> {
    (run(), small(), small()).prop_map(|(run, iteration, n)| CallId { run, iteration, n }).boxed()
}

fn incarnation() -> Made<Incarnation> {
    (number(), small()).prop_map(|(epoch, revival)| Incarnation { epoch, revival }).boxed()
}

fn hash() -> Made<Hash> {
    vec(any::<u8>(), 0..4).prop_map(|bytes| Hash::of(&bytes)).boxed()
}

fn usage() -> Made<Usage> {
    let numbers = (number(), number(), number(), number(), number());
    numbers
        .prop_map(|(input_tokens, output_tokens, apart_tokens, cached_tokens, cache_write_tokens)| Usage {
            input_tokens,
            output_tokens,
            apart_tokens,
            cached_tokens,
            cache_write_tokens,
        })
        .boxed()
}

fn amounts() -> Made<Amounts> {
    let amount = || maybe(number());
    (amount(), amount(), amount(), amount(), amount())
        .prop_map(|(iterations, tokens, usd, tool_calls, children)| Amounts {
            iterations,
            tokens,
            usd,
            tool_calls,
            children,
        })
        .boxed()
}

/// Whatever of two names is accepted.
fn model() -> Made<ModelRef> {
    let made = (text(), text())
        .prop_filter_map("a name that is refused", |(provider, model)| ModelRef::new(provider, model).ok());
    let parsed = text().prop_filter_map("a text that is refused", |text| format!("p/{text}").parse().ok());
    prop_oneof![made, parsed].boxed()
}

/// JSON, nested up to 100 deep.
fn value() -> Made<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    let tree = leaf.prop_recursive(3, 12, 3, |inner| {
        let fields = vec((text(), inner.clone()), 0..3);
        let object = fields.prop_map(|fields| Value::Object(fields.into_iter().collect()));
        prop_oneof![vec(inner, 0..3).prop_map(Value::Array), object]
    });
    (tree, 0..100_usize, any::<bool>())
        .prop_map(|(tree, depth, in_objects)| {
            (0..depth).fold(tree, |inner, _| if in_objects { json!({ "in": inner }) } else { json!([inner]) })
        })
        .boxed()
}

/// Whatever state of a provider is accepted.
fn opaque() -> Made<Option<Arc<Opaque>>> {
    (shared(), shared(), shared(), list(value()), any::<bool>())
        .prop_map(|(provider, wire, model, parts, is_there)| {
            let opaque = Opaque::new(Arc::new(Origin { provider, wire, model }), parts).ok();
            opaque.filter(|_| is_there).map(Arc::new)
        })
        .boxed()
}

fn tool_call() -> Made<ToolCall> {
    (text(), text(), text()).prop_map(|(id, name, arguments)| ToolCall { id, name, arguments }).boxed()
}

fn message() -> Made<Arc<AssistantMessage>> {
    (text(), text(), list(tool_call()), opaque())
        .prop_map(|(text, reasoning, calls, opaque)| {
            Arc::new(AssistantMessage { text, reasoning, calls, opaque })
        })
        .boxed()
}

fn past() -> Made<Arc<Past>> {
    let past_call = (tool_call(), text()).prop_map(|(call, result)| PastCall { call, result });
    let step = (text(), text(), list(past_call.boxed())).prop_map(|(text, reasoning, calls)| PastStep {
        text,
        reasoning,
        calls,
    });
    let round = (shared(), list(step.boxed()), message()).prop_map(|(user, steps, answer)| PastRound {
        user,
        steps,
        answer,
    });
    (list(round.boxed()), maybe(shared()))
        .prop_map(|(rounds, unanswered)| Arc::new(Past { rounds, unanswered }))
        .boxed()
}

fn artifact() -> Made<Artifact> {
    (text(), number()).prop_map(|(handle, bytes)| Artifact { handle, bytes }).boxed()
}

fn images() -> Made<Arc<[Image]>> {
    let format = select(vec![ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::Webp]);
    let image = (format, artifact()).prop_map(|(format, artifact)| Image { format, artifact });
    list(image.boxed()).prop_map(Arc::from).boxed()
}

fn thinking() -> Made<Thinking> {
    select(Thinking::ALL.to_vec()).boxed()
}

fn price() -> Made<Price> {
    (number(), number(), number(), number(), maybe(number()))
        .prop_map(|(input, output, cache_read, cache_write, up_to)| Price {
            input,
            output,
            cache_read,
            cache_write,
            up_to,
        })
        .boxed()
}

fn density() -> Made<Density> {
    any::<u16>().prop_map(Density::from).boxed()
}

fn traits() -> Made<ModelTraits> {
    let levels = vec(thinking(), 0..6).prop_map(Levels::from_iter);
    let deadlines = (maybe(number()), maybe(number()), maybe(number()))
        .prop_map(|(first_event_ms, gap_ms, call_ms)| ModelDeadlines { first_event_ms, gap_ms, call_ms });
    let style = select(ThinkingStyle::ALL.to_vec()).boxed();
    let sizes = (maybe(number()), maybe(number()), maybe(density()));
    let thought = (maybe(style), maybe(levels.boxed()), maybe(thinking()));
    (sizes, thought, maybe(any::<bool>().boxed()), maybe(price()), deadlines)
        .prop_map(|((window, max_output, density), (thinking, levels, level), images, price, deadlines)| {
            ModelTraits { window, max_output, thinking, levels, level, images, price, deadlines, density }
        })
        .boxed()
}

fn retry() -> Made<RetryPolicy> {
    let attempts = || {
        (small(), small(), small(), (small(), small(), small(), small())).prop_map(
            |(rate_limited, overloaded, server, (timeout, network, cut, lost))| RetryAttempts {
                rate_limited,
                overloaded,
                server,
                timeout,
                network,
                cut,
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
            first_ms,
            longest_ms,
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

fn doubt() -> Made<Doubt> {
    let then = select(vec![WhenInDoubt::Tell, WhenInDoubt::Ask, WhenInDoubt::Retry]);
    let doubt = (then, number()).prop_map(|(then, patience_ms)| Doubt { then, patience_ms });
    prop_oneof![Just(Doubt::default()), doubt].boxed()
}

fn compression() -> Made<Arc<Compression>> {
    (list(model()), list(traits()), any::<u8>(), small(), any::<bool>())
        .prop_map(|(chain, traits, trigger, protect_last, ahead)| {
            Arc::new(Compression { chain, traits, trigger, protect_last, ahead })
        })
        .boxed()
}

fn delegation() -> Made<Delegation> {
    (small(), small(), small(), number(), any::<bool>(), maybe(number()))
        .prop_map(|(depth, max_depth, max_children, iterations, shared, progress_ms)| Delegation {
            depth,
            max_depth,
            max_children,
            iterations,
            shared,
            progress_ms,
        })
        .boxed()
}

fn spec() -> Made<Arc<RunSpec>> {
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
    let rest = (maybe(shared()), doubt(), maybe(compression()), maybe(delegation()), maybe(hash()));
    (models, tools, limits, rest)
        .prop_map(
            |(
                (chain, traits, thinking),
                (workspace, task, tools, schema_bytes),
                limits,
                (system, in_doubt, compression, delegation, script),
            )| {
                Arc::new(RunSpec {
                    chain,
                    traits,
                    thinking,
                    workspace,
                    task,
                    tools,
                    schema_bytes,
                    limits,
                    system,
                    in_doubt,
                    compression,
                    delegation,
                    script,
                })
            },
        )
        .boxed()
}

fn parent() -> Made<Parent> {
    (session(), call(), small()).prop_map(|(session, call, n)| Parent { session, call, n }).boxed()
}

fn child() -> Made<Child> {
    (session(), run()).prop_map(|(session, run)| Child { session, run }).boxed()
}

fn failure() -> Made<Failure> {
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
            FailureClass::Cut,
            FailureClass::NotAnApi,
            FailureClass::Auth,
            FailureClass::InvalidRequest,
            FailureClass::ContentRefused,
            FailureClass::ModelNotFound,
            FailureClass::Cancelled,
            FailureClass::Lost,
            FailureClass::NotMade,
            FailureClass::Interrupted,
        ]),
    ];
    (class, text()).prop_map(|(class, message)| Failure::new(class, message)).boxed()
}

fn not_answered() -> Made<NotAnswered> {
    let why = prop_oneof![
        (small(), failure()).prop_map(|(attempts, failure)| WhyNot::Tried { attempts, failure }),
        (maybe(time()), failure()).prop_map(|(until, failure)| WhyNot::Skipped { until, failure }),
    ];
    (model(), why).prop_map(|(model, why)| NotAnswered { model, why }).boxed()
}

fn allowance() -> Made<NoAllowance> {
    (account(), select(Dimension::ALL.to_vec()), number(), number(), number())
        .prop_map(|(account, dimension, limit, spent, reserved)| NoAllowance {
            account,
            dimension,
            limit,
            spent,
            reserved,
        })
        .boxed()
}

fn stop_reason() -> Made<StopReason> {
    select(vec![StopReason::Command, StopReason::Signal, StopReason::Parent]).boxed()
}

fn cause() -> Made<Cause> {
    let parts = (number(), number(), number(), number(), number()).prop_map(
        |(limit, system, tools, request, last)| Irreducible { limit, system, tools, request, last },
    );
    prop_oneof![
        (failure(), list(not_answered())).prop_map(|(failure, chain)| Cause::Provider { failure, chain }),
        select(vec![Cause::EmptyAnswer, Cause::Truncated, Cause::UnknownTool]),
        number().prop_map(|max_tokens| Cause::OnlyThought { max_tokens }),
        parts.prop_map(|parts| Cause::Irreducible { parts }),
        allowance().prop_map(|refusal| Cause::Limit { refusal }),
        (model(), number()).prop_map(|(model, above)| Cause::Unpriced { model, above }),
        number().prop_map(|limit_ms| Cause::Time { limit_ms }),
        number().prop_map(|limit_ms| Cause::NoProgress { limit_ms }),
        stop_reason().prop_map(|reason| Cause::Stop { reason }),
        text().prop_map(|error| Cause::CrashLoop { error }),
        text().prop_map(|error| Cause::Unreadable { error }),
    ]
    .boxed()
}

fn ended() -> Made<Ended> {
    let outcome = select(vec![
        Outcome::Completed,
        Outcome::Failed,
        Outcome::Stopped,
        Outcome::TimedOut,
        Outcome::BudgetExhausted,
        Outcome::LoopDetected,
        Outcome::Refused,
    ]);
    (outcome, maybe(cause())).prop_map(|(outcome, cause)| Ended { outcome, cause }).boxed()
}

fn raised() -> Made<Raised> {
    (amounts(), maybe(number())).prop_map(|(budget, wall_ms)| Raised { budget, wall_ms }).boxed()
}

fn started() -> Made<Arc<ModelStarted>> {
    let prefix = select(vec![
        PrefixChange::First,
        PrefixChange::Model,
        PrefixChange::System,
        PrefixChange::Tools,
        PrefixChange::Thinking,
    ]);
    let request = (number(), hash(), number(), number(), maybe(prefix.boxed()));
    (call(), small(), model(), request, amounts(), maybe(price()), incarnation())
        .prop_map(
            |(
                call,
                attempt,
                model,
                (view, request, bytes, max_tokens, prefix),
                reserved,
                price,
                incarnation,
            )| {
                Arc::new(ModelStarted {
                    call,
                    attempt,
                    model,
                    view,
                    request,
                    bytes,
                    max_tokens,
                    prefix,
                    reserved,
                    price,
                    incarnation,
                })
            },
        )
        .boxed()
}

fn failed() -> Made<ModelFailed> {
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

fn place() -> Made<Place> {
    (small(), small()).prop_map(|(round, step)| Place { round, step }).boxed()
}

fn access() -> Made<Access> {
    let paths = (list(shared()), list(shared())).prop_map(|(reads, writes)| Access::Paths { reads, writes });
    prop_oneof![Just(Access::Anything), Just(Access::Alone), paths].boxed()
}

fn call_end() -> Made<CallEnd> {
    let status = select(vec![
        CallStatus::Ok,
        CallStatus::Error,
        CallStatus::Stopped,
        CallStatus::NotStarted,
        CallStatus::InDoubt,
    ]);
    (status, shared(), maybe(artifact()), images())
        .prop_map(|(status, content, artifact, images)| CallEnd { status, content, artifact, images })
        .boxed()
}

fn accepted() -> Made<RunAccepted> {
    (run(), shared(), images(), past(), spec(), maybe(parent()))
        .prop_map(|(run, input, images, history, spec, parent)| RunAccepted {
            run,
            input,
            images,
            history,
            spec,
            parent,
        })
        .boxed()
}

fn answered() -> Made<ModelAnswered> {
    let finish = select(vec![Finish::Stop, Finish::ToolCalls, Finish::Length, Finish::Refused]);
    let flaw = select(vec![
        Flaw::UnknownTools,
        Flaw::Malformed,
        Flaw::Truncated,
        Flaw::Partial,
        Flaw::EmptyAfterTool,
        Flaw::OnlyThought,
        Flaw::Empty,
        Flaw::Refused,
    ]);
    (call(), small(), message(), finish, maybe(flaw.boxed()), maybe(any::<usize>().boxed()), maybe(usage()))
        .prop_map(|(call, attempt, message, finish, flaw, fallback, usage)| ModelAnswered {
            call,
            attempt,
            message,
            finish,
            flaw,
            fallback,
            usage,
        })
        .boxed()
}

fn summary_answered() -> Made<SummaryAnswered> {
    let unusable = select(vec![Unusable::Empty, Unusable::TooLong]);
    (call(), small(), shared(), maybe(unusable.boxed()), maybe(any::<usize>().boxed()), maybe(usage()))
        .prop_map(|(call, attempt, text, unusable, fallback, usage)| SummaryAnswered {
            call,
            attempt,
            text,
            unusable,
            fallback,
            usage,
        })
        .boxed()
}

fn compacted() -> Made<ContextCompacted> {
    let by = select(vec![Rung::Elided, Rung::Summarised, Rung::Chunked, Rung::Dropped]);
    (run(), session(), by, place(), maybe(shared()), (number(), number(), number()))
        .prop_map(|(run, lineage, by, to, summary, (before, after, waited_ms))| ContextCompacted {
            run,
            lineage,
            by,
            to,
            summary,
            before,
            after,
            waited_ms,
        })
        .boxed()
}

fn admitted() -> Made<CallAdmitted> {
    let effect = select(vec![EffectClass::Pure, EffectClass::Idempotent, EffectClass::Once]);
    (call(), shared(), effect, access(), any::<bool>(), hash(), maybe(small()))
        .prop_map(|(call, tool, effect, access, detached, arguments, same_as)| CallAdmitted {
            call,
            tool,
            effect,
            access,
            detached,
            arguments,
            same_as,
        })
        .boxed()
}

fn todo() -> Made<TodoChanged> {
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

/// Bodies of a kind. Exhaustive: a kind without a strategy does not compile.
fn body(kind: Kind) -> Made<Body> {
    match kind {
        Kind::SessionOpened => (shared(), shared(), incarnation(), text())
            .prop_map(|(key, prompt, incarnation, boot)| {
                Body::SessionOpened(SessionOpened { key, prompt, incarnation, boot })
            })
            .boxed(),
        Kind::SessionRevived => (incarnation(), text())
            .prop_map(|(incarnation, boot)| Body::SessionRevived(SessionRevived { incarnation, boot }))
            .boxed(),
        Kind::RunAccepted => accepted().prop_map(|body| Body::RunAccepted(Box::new(body))).boxed(),
        Kind::RunStopping => {
            (run(), ended()).prop_map(|(run, ended)| Body::RunStopping(RunStopping { run, ended })).boxed()
        }
        Kind::RunEnded => (run(), ended(), small(), usage())
            .prop_map(|(run, ended, iterations, usage)| {
                Body::RunEnded(RunEnded { run, ended, iterations, usage })
            })
            .boxed(),
        Kind::RunExhausted => (run(), allowance())
            .prop_map(|(run, refusal)| Body::RunExhausted(RunExhausted { run, refusal }))
            .boxed(),
        Kind::RunReopened => (run(), small(), raised())
            .prop_map(|(run, leg, by)| Body::RunReopened(RunReopened { run, leg, by }))
            .boxed(),
        Kind::BudgetRaised => {
            (run(), raised()).prop_map(|(run, by)| Body::BudgetRaised(BudgetRaised { run, by })).boxed()
        }
        Kind::ModelStarted => started().prop_map(Body::ModelStarted).boxed(),
        Kind::ModelAnswered => answered().prop_map(|body| Body::ModelAnswered(Box::new(body))).boxed(),
        Kind::ModelFailed => failed().prop_map(Body::ModelFailed).boxed(),
        Kind::LateSettled => (call(), small(), usage(), maybe(number()), amounts())
            .prop_map(|(call, attempt, usage, usd, booked)| {
                Body::LateSettled(LateSettled { call, attempt, usage, usd, booked })
            })
            .boxed(),
        Kind::ModelWaiting => (call(), small(), time(), list(not_answered()))
            .prop_map(|(call, attempt, until, skipped)| {
                Body::ModelWaiting(ModelWaiting { call, attempt, until, skipped: skipped.into() })
            })
            .boxed(),
        Kind::ContextCompacted => compacted().prop_map(|body| Body::ContextCompacted(Box::new(body))).boxed(),
        Kind::SummaryStarted => (started(), place(), place())
            .prop_map(|(asked, upto, to)| Body::SummaryStarted(Box::new(SummaryStarted { asked, upto, to })))
            .boxed(),
        Kind::SummaryAnswered => summary_answered().prop_map(Body::SummaryAnswered).boxed(),
        Kind::SummaryFailed => failed().prop_map(Body::SummaryFailed).boxed(),
        Kind::CallAdmitted => admitted().prop_map(Body::CallAdmitted).boxed(),
        Kind::CallStarted => (call(), small(), incarnation(), shared(), list(child()))
            .prop_map(|(call, attempt, incarnation, boot, children)| {
                let children = children.into();
                Body::CallStarted(CallStarted { call, attempt, incarnation, boot, children })
            })
            .boxed(),
        Kind::CallEnded => (call(), small(), call_end())
            .prop_map(|(call, attempt, end)| Body::CallEnded(CallEnded { call, attempt, end }))
            .boxed(),
        Kind::CallLost => {
            let why =
                select(vec![WhyAgain::Lost, WhyAgain::Interrupted, WhyAgain::NeverBegun, WhyAgain::InDoubt]);
            (call(), small(), why)
                .prop_map(|(call, attempt, why)| Body::CallLost(CallLost { call, attempt, why }))
                .boxed()
        }
        Kind::MessageSteered => (run(), shared(), run())
            .prop_map(|(run, text, next)| Body::MessageSteered(MessageSteered { run, text, next }))
            .boxed(),
        Kind::ApprovalRequested => (call(), small(), text(), time())
            .prop_map(|(call, attempt, question, expires_at)| {
                Body::ApprovalRequested(ApprovalRequested { call, attempt, question, expires_at })
            })
            .boxed(),
        Kind::ApprovalAnswered => {
            let verdict = select(vec![Verdict::Allow, Verdict::Deny]);
            (call(), verdict, select(vec![Answerer::Person, Answerer::Expiry]))
                .prop_map(|(call, verdict, by)| {
                    Body::ApprovalAnswered(ApprovalAnswered { call, verdict, by })
                })
                .boxed()
        }
        Kind::ChildEnded => (call(), child(), ended(), shared(), small(), usage())
            .prop_map(|(call, child, ended, told, iterations, usage)| {
                Body::ChildEnded(Box::new(ChildEnded { call, child, ended, told, iterations, usage }))
            })
            .boxed(),
        Kind::TodoChanged => todo().prop_map(Body::TodoChanged).boxed(),
    }
}

/// Runs `CASES` cases and expects each to be checked.
fn each<T: std::fmt::Debug>(of: &Made<T>, check: impl Fn(T) -> Result<(), TestCaseError>) {
    let counted = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let checked = runner.run(of, |made| {
        counted.set(counted.get() + 1);
        check(made)
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
    assert_eq!(counted.get(), CASES);
}

#[test]
fn every_kind_of_record_can_be_read_back() {
    for kind in Kind::ALL {
        each(&(body(*kind), time(), number()).boxed(), |(body, at, active_ms)| {
            prop_assert_eq!(body.kind(), *kind);
            let record = Record { at, active_ms, body };
            prop_assert_eq!(decode(&encode(&record)), Ok(record));
            Ok(())
        });
    }
}

fn json_comes_back<T>(made: &T) -> Result<(), TestCaseError>
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let stored = serde_json::to_vec(made).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let read = serde_json::from_slice::<T>(&stored);
    prop_assert_eq!(read.as_ref().map_err(ToString::to_string), Ok(made));
    Ok(())
}

#[test]
fn every_row_beside_the_records_can_be_read_back() {
    let session_row =
        (session(), shared(), time()).prop_map(|(id, key, opened_at)| SessionRow { id, key, opened_at });
    each(&session_row.boxed(), |row| json_comes_back(&row));
    let model_row = (model(), maybe(density()), maybe(number()))
        .prop_map(|(model, density, window)| ModelRow { model, density, window });
    each(&model_row.boxed(), |row| json_comes_back(&row));
    let state = select(vec![RunState::Queued, RunState::Running, RunState::Parked, RunState::Ended]);
    let times = (time(), maybe(time()), maybe(time()), maybe(ended()));
    let counts = (small(), usage(), maybe(parent()), small(), number(), number());
    let run_row = (run(), session(), account(), state, times, counts).prop_map(
        |(
            id,
            session,
            account,
            state,
            (accepted_at, started_at, ended_at, ended),
            (iterations, usage, parent, leg, first, last),
        )| RunRow {
            id,
            session,
            account,
            state,
            accepted_at,
            started_at,
            ended_at,
            ended,
            iterations,
            usage,
            parent,
            leg,
            first,
            last,
        },
    );
    each(&run_row.boxed(), |row| json_comes_back(&row));
    let item = prop_oneof![
        (call(), child()).prop_map(|(call, child)| Inbox::ChildEnded { call, child }),
        (run(), stop_reason()).prop_map(|(run, reason)| Inbox::Stop { run, reason }),
    ];
    each(&item.boxed(), |item| {
        prop_assert_eq!(Inbox::read(&item.item()), Ok(item));
        Ok(())
    });
}

/// A record around opaque state in the two places where it nests deepest.
fn carriers(opaque: Opaque) -> [Body; 2] {
    let message =
        || Arc::new(AssistantMessage { opaque: Some(Arc::new(opaque.clone())), ..Default::default() });
    let call = CallId { run: RunId::from_bits(1), iteration: 1, n: 0 };
    let answered = ModelAnswered {
        call,
        attempt: 1,
        message: message(),
        finish: Finish::Stop,
        flaw: None,
        fallback: None,
        usage: None,
    };
    let round = PastRound { user: "u".into(), steps: Vec::new(), answer: message() };
    let accepted = RunAccepted {
        run: call.run,
        input: "i".into(),
        images: Arc::default(),
        history: Arc::new(Past { rounds: vec![round], unanswered: None }),
        spec: Arc::new(RunSpec {
            chain: vec!["p/m".parse().unwrap()],
            traits: Vec::new(),
            thinking: None,
            workspace: "/w".into(),
            task: "t".into(),
            tools: Vec::new(),
            schema_bytes: 0,
            limits: Limits::default(),
            system: None,
            in_doubt: Doubt::default(),
            compression: None,
            delegation: None,
            script: None,
        }),
        parent: None,
    };
    [Body::ModelAnswered(Box::new(answered)), Body::RunAccepted(Box::new(accepted))]
}

#[test]
fn opaque_state_that_nests_too_deep_is_refused_and_any_other_can_be_read_back() {
    let origin = Arc::new(Origin { provider: "p".into(), wire: "w".into(), model: "m".into() });
    let (mut made, mut refused) = (0, 0);
    for depth in 0..200_usize {
        let part = (0..depth)
            .fold(json!(1), |inner, n| if n % 2 == 0 { json!([inner]) } else { json!({ "k": inner }) });
        let Ok(opaque) = Opaque::new(Arc::clone(&origin), vec![json!(0), part]) else {
            refused += 1;
            continue;
        };
        made += 1;
        for body in carriers(opaque) {
            let record = Record { at: Timestamp(0), active_ms: 0, body };
            assert_eq!(decode(&encode(&record)), Ok(record), "{depth} deep");
        }
    }
    assert_eq!((made, refused), (65, 135));
}
