//! Arbitrary values that records are made of.

use std::sync::Arc;

use hermod_actors::model::{
    AccountId, AgentName, Amounts, AnswerOrigin, Artifact, AssistantMessage, CallId, ContentHash, Hash,
    Image, ImageFormat, ImportedCall, ImportedHistory, ImportedRound, ImportedStep, Incarnation,
    ListedLimits, ModelDeadlines, ModelLimits, ModelProfile, ModelRef, OpaqueState, Price, RunId, SessionId,
    ThinkingLevel, ThinkingLevels, ThinkingStyle, Timestamp, TokenDensity, ToolCall, Usage, UsageAnomaly,
    UsageAnomalyKind,
};
use proptest::{collection::vec, prelude::*, sample::select, strategy::BoxedStrategy};
use serde_json::{Value, json};

pub(crate) type Made<T> = BoxedStrategy<T>;

pub(crate) fn number() -> Made<u64> {
    prop_oneof![Just(0), Just(1), Just(u64::MAX), Just(1 << 53), any::<u64>()].boxed()
}

pub(crate) fn small() -> Made<u32> {
    prop_oneof![Just(0), Just(u32::MAX), any::<u32>()].boxed()
}

pub(crate) fn time() -> Made<Timestamp> {
    prop_oneof![Just(0), Just(i64::MIN), Just(i64::MAX), any::<i64>()].prop_map(Timestamp).boxed()
}

pub(crate) fn agent() -> Made<AgentName> {
    "[a-z0-9][a-z0-9_-]{0,8}".prop_map(|name| name.parse().expect("a name")).boxed()
}

/// Any text: empty, control characters, noncharacters, what JSON escapes.
pub(crate) fn text() -> Made<String> {
    let letter = prop_oneof![
        any::<char>(),
        select(vec!['\0', '"', '\\', '/', '\u{2028}', '\u{feff}', '\u{ffff}', ' '])
    ];
    vec(letter, 0..8).prop_map(String::from_iter).boxed()
}

pub(crate) fn shared() -> Made<Arc<str>> {
    text().prop_map(Arc::from).boxed()
}

pub(crate) fn maybe<T: std::fmt::Debug + Clone + 'static>(of: Made<T>) -> Made<Option<T>> {
    proptest::option::of(of).boxed()
}

pub(crate) fn list<T: std::fmt::Debug + 'static>(of: Made<T>) -> Made<Vec<T>> {
    vec(of, 0..3).boxed()
}

pub(crate) fn run() -> Made<RunId> {
    any::<u128>().prop_map(RunId::from_bits).boxed()
}

pub(crate) fn session() -> Made<SessionId> {
    any::<u128>().prop_map(SessionId::from_bits).boxed()
}

pub(crate) fn account() -> Made<AccountId> {
    any::<u128>().prop_map(AccountId::from_bits).boxed()
}

pub(crate) fn call() -> Made<CallId> {
    (run(), small(), small()).prop_map(|(run, iteration, n)| CallId { run, iteration, n }).boxed()
}

pub(crate) fn incarnation() -> Made<Incarnation> {
    (number(), small()).prop_map(|(epoch, revival)| Incarnation { epoch, revival }).boxed()
}

pub(crate) fn hash() -> Made<Hash> {
    vec(any::<u8>(), 0..4).prop_map(|bytes| Hash::of(&bytes)).boxed()
}

pub(crate) fn usage() -> Made<Usage> {
    let numbers = (number(), number(), number(), number(), number());
    (numbers, any::<bool>())
        .prop_map(
            |((input_tokens, output_tokens, apart_tokens, cached_tokens, cache_write_tokens), is_invalid)| {
                Usage {
                    input_tokens,
                    output_tokens,
                    unlisted_reasoning_tokens: apart_tokens,
                    cached_tokens,
                    cache_write_tokens,
                    is_invalid,
                }
            },
        )
        .boxed()
}

pub(crate) fn anomaly() -> Made<Option<Box<UsageAnomaly>>> {
    let kind = select(vec![
        UsageAnomalyKind::InvalidCount,
        UsageAnomalyKind::PartsBeyondWhole,
        UsageAnomalyKind::InputBeyondRequest,
        UsageAnomalyKind::NoInput,
        UsageAnomalyKind::OutputBeyondLimit,
    ]);
    let anomaly = (kind, usage()).prop_map(|(kind, reported)| Box::new(UsageAnomaly { kind, reported }));
    maybe(anomaly.boxed())
}

pub(crate) fn amounts() -> Made<Amounts> {
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

/// A reference of any provider and model name that the constructor accepts.
pub(crate) fn model() -> Made<ModelRef> {
    let made = (text(), text())
        .prop_filter_map("a name that is refused", |(provider, model)| ModelRef::new(provider, model).ok());
    let parsed = text().prop_filter_map("a text that is refused", |text| format!("p/{text}").parse().ok());
    prop_oneof![made, parsed].boxed()
}

/// JSON, nested up to 100 deep.
pub(crate) fn value() -> Made<Value> {
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

/// Any opaque state that the constructor accepts.
pub(crate) fn opaque() -> Made<Option<Arc<OpaqueState>>> {
    (shared(), shared(), shared(), list(value()), any::<bool>())
        .prop_map(|(provider, wire, model, parts, is_there)| {
            let opaque = OpaqueState::new(Arc::new(AnswerOrigin { provider, wire, model }), parts).ok();
            opaque.filter(|_| is_there).map(Arc::new)
        })
        .boxed()
}

pub(crate) fn tool_call() -> Made<ToolCall> {
    (text(), text(), text()).prop_map(|(id, name, arguments)| ToolCall { id, name, arguments }).boxed()
}

pub(crate) fn message() -> Made<Arc<AssistantMessage>> {
    (text(), text(), list(tool_call()), opaque())
        .prop_map(|(text, reasoning, calls, opaque)| {
            Arc::new(AssistantMessage { text, reasoning, calls, opaque })
        })
        .boxed()
}

pub(crate) fn past() -> Made<Arc<ImportedHistory>> {
    let past_call = (tool_call(), text()).prop_map(|(call, result)| ImportedCall { call, result });
    let step = (text(), text(), list(past_call.boxed())).prop_map(|(text, reasoning, calls)| ImportedStep {
        text,
        reasoning,
        calls,
    });
    let round = (shared(), list(step.boxed()), message()).prop_map(|(user, steps, answer)| ImportedRound {
        user,
        steps,
        answer,
    });
    (list(round.boxed()), maybe(shared()))
        .prop_map(|(rounds, unanswered)| Arc::new(ImportedHistory { rounds, unanswered }))
        .boxed()
}

pub(crate) fn artifact() -> Made<Artifact> {
    let sha256 = maybe(text().prop_map(|text| Box::new(ContentHash::of(text.as_bytes()))).boxed());
    (text(), number(), sha256).prop_map(|(handle, bytes, sha256)| Artifact { handle, bytes, sha256 }).boxed()
}

pub(crate) fn images() -> Made<Arc<[Image]>> {
    let format = select(vec![ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::Webp]);
    let hash = maybe(text().prop_map(|text| Box::new(ContentHash::of(text.as_bytes()))).boxed());
    let image = (format, artifact(), hash)
        .prop_map(|(format, artifact, original)| Image { original, ..Image::new(format, artifact) });
    list(image.boxed()).prop_map(Arc::from).boxed()
}

pub(crate) fn thinking() -> Made<ThinkingLevel> {
    select(ThinkingLevel::ALL.to_vec()).boxed()
}

pub(crate) fn price() -> Made<Price> {
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

pub(crate) fn density() -> Made<TokenDensity> {
    any::<u16>().prop_map(TokenDensity::from).boxed()
}

pub(crate) fn listed() -> Made<Option<ListedLimits>> {
    let listed = (time(), maybe(number()), maybe(number()))
        .prop_map(|(at, window, max_output)| ListedLimits { at, limits: ModelLimits { window, max_output } });
    maybe(listed.boxed())
}

pub(crate) fn traits() -> Made<ModelProfile> {
    let levels = vec(thinking(), 0..6).prop_map(ThinkingLevels::from_iter);
    let deadlines = (maybe(number()), maybe(number()), maybe(number()))
        .prop_map(|(first_event_ms, gap_ms, call_ms)| ModelDeadlines { first_event_ms, gap_ms, call_ms });
    let style = select(ThinkingStyle::ALL.to_vec()).boxed();
    let sizes = (maybe(number()), maybe(number()), maybe(density()), listed());
    let thought = (maybe(style), maybe(levels.boxed()), maybe(thinking()));
    (sizes, thought, maybe(any::<bool>().boxed()), maybe(price()), deadlines)
        .prop_map(
            |((window, max_output, density, listed), (thinking, levels, level), images, price, deadlines)| {
                ModelProfile {
                    window,
                    max_output,
                    thinking_style: thinking,
                    levels,
                    default_level: level,
                    images,
                    price,
                    deadlines,
                    density,
                    listed_limits: listed,
                }
            },
        )
        .boxed()
}
