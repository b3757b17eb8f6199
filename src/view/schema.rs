//! Schemas of values in views whose types belong to the core, which knows no OpenAPI. A view names one of them with
//! `#[schema(value_type = …)]`; tests hold the answers of a service against them.

use hermod_actors::model::{ApprovalScope, DropPolicy, Outcome, QueueMode, ThinkingLevel};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        ObjectBuilder, RefOr, Schema,
        schema::{ArrayBuilder, SchemaType, Type},
    },
};

/// The pattern of a ULID; the letters of other texts have the same meaning as those of the canonical one.
const ULID: &str = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$";

macro_rules! schemas {
    ($($(#[doc = $doc:literal])+ $name:ident = $schema:expr;)*) => {$(
        $(#[doc = $doc])+
        #[derive(Debug)]
        pub(crate) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let builder: ObjectBuilder = $schema;
                builder.description(Some(concat!($($doc),+).trim())).into()
            }
        }

        impl ToSchema for $name {}
    )*};
}

schemas! {
    /// The id of a run or of a session: a ULID.
    Id = text().pattern(Some(ULID));
    /// The id of a call: run, iteration, and the number in the iteration, which is 0 for the call of the model.
    Call = text().pattern(Some("^[0-7][0-9A-HJKMNP-TV-Z]{25}[.][0-9]+[.]([0-9]+|summary)$"));
    /// A time of RFC 3339 in UTC, with milliseconds.
    Time = text().pattern(Some("^[0-9]{4,}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{3}Z$"));
    /// A model, as `provider/model`.
    Model = text().pattern(Some("^[^/]+/"));
    /// The number of a record in its session.
    RecordNumber = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(usize::MAX));
    /// A server-sent event.
    ServerSentEvent = ObjectBuilder::new()
        .property("event", text().description(Some("The name of the event")))
        .property("id", text().description(Some("Where a client goes on with `Last-Event-ID`")))
        .property("data", text().content_media_type("application/json"))
        .required("data");
    /// What a run ended with.
    OutcomeName = names(OUTCOMES.map(Outcome::name));
    /// What an access token is good for.
    ScopeName = names(["read", "submit", "steer", "approve", "admin"]);
    /// How much the models are to think.
    Thinking = names(ThinkingLevel::ALL.map(ThinkingLevel::name));
    /// What happens to a message while a run of its session is under way.
    QueueModeName = names(QueueMode::ALL.map(QueueMode::name));
    /// Which message is dropped when too many wait.
    DropPolicyName = names(DropPolicy::ALL.map(DropPolicy::name));
    /// How the messages of a session queue, as far as that is set for the session.
    SessionQueue = ObjectBuilder::new()
        .property("mode", part::<QueueModeName>())
        .property("cap", ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(u32::MAX)))
        .property("drop", part::<DropPolicyName>())
        .property("collect_ms", ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)));
    /// What became of a message.
    MessageStateName = names(["queued", "injected", "answered", "dropped"]);
    /// How far an approval goes: this call, such calls of its run, or such calls of every run.
    Scope = names([ApprovalScope::Once, ApprovalScope::Run, ApprovalScope::Always].map(scope_name));
    /// When blocks of a reply are sent.
    BlockBreakName = names(["text_end", "message_end"]);
    /// Whether and how reasoning is part of a reply.
    ReasoningName = names(["off", "stream", "block"]);
    /// Which summaries of tool calls are part of a reply.
    VerboseName = names(["off", "on", "full"]);
    /// What a person has decided about a call.
    Decision = names(["allow", "deny"]);
    /// How the last text of a run came about.
    Source = names(["final", "joined", "earlier_text", "partial"]);
    /// The outcome and its cause, which are null before the end, and what the cause has.
    RunEnd = ObjectBuilder::new()
        .property("outcome", nullable(OUTCOMES.map(Outcome::name)))
        .required("outcome")
        .property("cause", ObjectBuilder::new().schema_type(SchemaType::Array(vec![Type::String, Type::Null])))
        .required("cause");
    /// Tokens of model calls.
    TokenUsage = counts(&["input_tokens", "output_tokens"], &["apart_tokens", "cached_tokens", "cache_write_tokens"])
        .property("is_invalid", ObjectBuilder::new().schema_type(Type::Boolean));
    /// Amounts by what can be limited; dollars are a number.
    BudgetAmounts = counts(&[], &["iterations", "tokens", "tool_calls", "children"]).property("usd", number());
    /// One thing that a run waits for: `what` it is, since when, until when at the latest, and what belongs to it.
    Wait = ObjectBuilder::new()
        .property("what", text())
        .required("what")
        .property("since", part::<Time>())
        .required("since")
        .property("until", part::<Time>());
    /// The call that delegated a run.
    Parent = counts(&["n"], &[])
        .property("session", part::<Id>())
        .required("session")
        .property("call", part::<Call>())
        .required("call");
    /// An image, without its bytes.
    ImageInfo = counts(&["bytes"], &[])
        .property("format", names(["png", "jpeg", "gif", "webp"]))
        .required("format")
        .property("handle", text())
        .required("handle")
        .property("sha256", text());
    /// A steering message that is durable. `next` is the run that it becomes if no model reads it in this run.
    Steered = ["run", "session", "next"].into_iter().fold(ObjectBuilder::new(), |object, name| {
        object.property(name, part::<Id>()).required(name)
    });
    /// The state of a provider, and what was counted since the service started.
    Provider = counts(&["credentials", "answered", "failed", "usage_anomalies"], &[])
        .property("name", text())
        .required("name")
        .property("breaker", part::<Breaker>())
        .required("breaker")
        .property("models", ArrayBuilder::new().items(part::<ProviderModel>()))
        .required("models");
    /// One model with one credential, and what was counted of its calls.
    ProviderModel = counts(&["credential", "answered", "failed", "usage_anomalies"], &[])
        .property("model", text())
        .required("model")
        .property("breaker", part::<Breaker>())
        .required("breaker");
    /// A circuit breaker: `open` refuses calls until a time.
    Breaker = ObjectBuilder::new()
        .property("state", names(["closed", "open", "half_open"]))
        .required("state")
        .property("until", part::<Time>());
}

const OUTCOMES: [Outcome; 7] = [
    Outcome::Completed,
    Outcome::Failed,
    Outcome::Stopped,
    Outcome::TimedOut,
    Outcome::BudgetExhausted,
    Outcome::LoopDetected,
    Outcome::Refused,
];

const fn scope_name(scope: ApprovalScope) -> &'static str {
    match scope {
        ApprovalScope::Once => "once",
        ApprovalScope::Run => "run",
        ApprovalScope::Always => "always",
    }
}

/// A text.
pub(crate) fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn number() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Number).minimum(Some(0))
}

fn names<const N: usize>(names: [&'static str; N]) -> ObjectBuilder {
    text().enum_values(Some(names))
}

fn nullable<const N: usize>(names: [&'static str; N]) -> ObjectBuilder {
    let values = names.into_iter().map(serde_json::Value::from).chain([serde_json::Value::Null]);
    ObjectBuilder::new()
        .schema_type(SchemaType::Array(vec![Type::String, Type::Null]))
        .enum_values(Some(values))
}

/// An object with numbers of these names; the first ones are always there.
fn counts(required: &[&str], optional: &[&str]) -> ObjectBuilder {
    let count = || ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
    let object = required
        .iter()
        .fold(ObjectBuilder::new(), |object, name| object.property(*name, count()).required(*name));
    optional.iter().fold(object, |object, name| object.property(*name, count()))
}

/// The schema of a part, which has no name of its own in the document.
fn part<T: ToSchema>() -> RefOr<Schema> {
    T::schema()
}
