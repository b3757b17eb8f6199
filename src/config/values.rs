//! Types of values, each with its parser. A rejected value's error names the remedy, and never the text of what may be
//! a secret.

use std::{path::PathBuf, sync::Arc, time::Duration};

use hermod_actors::model::{
    DropPolicy, InDoubtAction, ModelRef, PoolStrategy, QueueMode, ThinkingLevel, ThinkingLevels,
    ThinkingStyle,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::{Number, Value};

use crate::{
    policy::{PolicyMode, Rule},
    provider::{CacheTtl, WIRES, check_base_url},
    secret::Reference,
};

/// A whole number from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PositiveCount(pub u32);

/// A number of bytes from 1: the limit of a part of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptBytes(pub u32);

/// A percentage from 10 to 90.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent(pub u8);

/// A duration longer than 0 and at most 365 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PositiveDuration(pub Duration);

/// A duration like [`PositiveDuration`], or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalDuration(pub Option<Duration>);

/// A retention period; `None` means forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionPeriod(pub Option<Duration>);

/// A model's name; `None` if the text is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionalModelName(pub Option<Arc<str>>);

/// The models of a chain, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChain(pub Vec<ModelRef>);

/// A name of [`WIRES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireName(pub &'static str);

/// An http or https URL without user information.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl(pub String);

/// A reference to a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRef(pub Reference);

/// References to secrets, at least one and no duplicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRefs(pub Vec<Reference>);

/// A reference to a secret that is no command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticSecretRef(pub Reference);

/// The strategy that chooses among several credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStrategyName(pub PoolStrategy);

/// A text that is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NonEmptyText(pub String);

/// Absolute paths of folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsolutePaths(pub Vec<PathBuf>);

/// `HOST:PORT`, or `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionalAddress(pub Option<String>);

/// A thinking level; `None` if the text is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ThinkingLevelName(pub Option<ThinkingLevel>);

/// The policy for calls in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InDoubtActionName(pub InDoubtAction);

/// The rules of one action of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleList(pub Vec<Rule>);

/// What the policy does with calls that no rule names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyModeName(pub PolicyMode);

/// What happens to a message while a run of its session is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueModeName(pub QueueMode);

/// Which message is dropped when too many wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropPolicyName(pub DropPolicy);

/// True if a person answers requests for approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApproverName(pub bool);

/// The thinking levels that a model accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ThinkingLevelNames(pub ThinkingLevels);

/// The way in which requests set the thinking level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ThinkingStyleName(pub ThinkingStyle);

/// Cache lifetime of a request's prefix at the vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheTtlName(pub CacheTtl);

/// A boolean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Flag(pub bool);

/// A number of bytes; 0 for `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalByteSize(pub u64);

/// A price in nano-dollars per token, configured in dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenPrice(pub u64);

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreDurability {
    /// Power loss.
    Strict,
    /// The end of the process, except for its last moments.
    Relaxed,
}

/// A number from 1, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalCount(pub Option<u64>);

/// An amount in nano-dollars, configured in dollars, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalDollars(pub Option<u64>);

/// An absolute path; `None` if the text is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionalFolder(pub Option<PathBuf>);

/// A text; `None` if it is blank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionalText(pub Option<Arc<str>>);

/// Names of targets, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetNames(pub Vec<String>);

/// The name of a tool, or its beginning and `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPattern(String);

/// Names of tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPatterns(pub Vec<ToolPattern>);

const NONE: &str = "none";
const TEXT_RULE: &str = "must be a text in quotes";
const COUNT_RULE: &str = "must be a whole number from 1 to 4294967295, without quotes";
const FLAG_RULE: &str = "must be true or false, without quotes";
const DURATION_RULE: &str = "must be a duration longer than 0 in quotes, like \"500ms\", \"90s\" or \"10m\"";
/// A larger prompt helps no model.
const MAX_PROMPT_BYTES: u32 = 1_000_000;
/// A longer duration is a mistake, and the clock may not be able to represent its end.
const MAX_DURATION: Duration = Duration::from_hours(365 * 24);
const FOREVER: &str = "forever";
const RETENTION_RULE: &str =
    "must be a duration longer than 0 in quotes, like \"12h\", \"30days\" or \"1year\", or \"forever\"";
const MAX_DURATION_RULE: &str = "must not be longer than 365days";

const AMOUNT_RULE: &str = "must be a whole number from 1, without quotes, or \"none\"";
const DOLLARS_RULE: &str =
    "must be dollars above 0 with at most nine decimals and without quotes, like 2.5, or \"none\"";
/// Decimals of an amount of dollars: nano-dollars are counted.
const DOLLAR_DECIMALS: usize = 9;

const SIZE_RULE: &str = "must be a size in quotes, like \"512KiB\", \"64MiB\" or \"2GiB\", or \"none\"";
const PRICE_RULE: &str =
    "must be dollars per million tokens, from 0, with at most three decimals and without quotes, like 0.25";
/// Decimals of a price: 0.001 dollars per million tokens is one nano-dollar per token.
const DECIMALS: usize = 3;

macro_rules! deserialize_by {
    ($($kind:ty: $read:expr;)*) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let read: fn(&Value) -> Result<Self, String> = $read;
                read(&Value::deserialize(from)?).map_err(D::Error::custom)
            }
        }
    )*};
}

impl ToolPattern {
    /// True if it names this tool.
    pub fn matches(&self, tool: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(start) => tool.starts_with(start),
            None => tool == self.0,
        }
    }
}

impl std::fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl ToolPatterns {
    /// True if one of them names this tool.
    pub fn matches(&self, tool: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(tool))
    }
}

impl RetentionPeriod {
    /// The period in milliseconds.
    pub fn millis(self) -> Option<u64> {
        self.0.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }
}

impl PositiveDuration {
    /// The duration in milliseconds.
    pub fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Serialize for PositiveDuration {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.millis().serialize(to)
    }
}

impl TokenPrice {
    /// Dollars per million tokens, as a number that prints as it was configured.
    pub fn dollars(self) -> Option<Number> {
        #[allow(clippy::cast_precision_loss)] // prices are far below 2^53
        let fraction = self.0 as f64 / 1e3;
        if self.0.is_multiple_of(1_000) { Some((self.0 / 1_000).into()) } else { Number::from_f64(fraction) }
    }
}

impl Serialize for TokenPrice {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.dollars().serialize(to)
    }
}

deserialize_by! {
    PositiveCount: |value| count(value).map(Self);
    PromptBytes: |value| match count(value)? {
        limit @ ..=MAX_PROMPT_BYTES => Ok(Self(limit)),
        _ => Err(format!("must not be larger than {MAX_PROMPT_BYTES}")),
    };
    Percent: |value| match value.as_u64().and_then(|percent| u8::try_from(percent).ok()) {
        Some(percent @ 10..=90) => Ok(Self(percent)),
        Some(_) | None => Err("must be a whole number from 10 to 90, without quotes".to_owned()),
    };
    PositiveDuration: |value| wait(value).map(Self);
    OptionalDuration: |value| match value.as_str() {
        Some(NONE) => Ok(Self(None)),
        Some(_) | None => wait(value).map(|wait| Self(Some(wait))).map_err(|error| format!("{error}, or \"none\"")),
    };
    RetentionPeriod: |value| match value.as_str() {
        Some(FOREVER) => Ok(Self(None)),
        Some(time) => match humantime::parse_duration(time) {
            Ok(time) if time.as_millis() > 0 => Ok(Self(Some(time))),
            Ok(_) | Err(_) => Err(RETENTION_RULE.to_owned()),
        },
        None => Err(RETENTION_RULE.to_owned()),
    };
    OptionalModelName: |value| text(value).map(|name| Self((!name.is_empty()).then(|| name.into())));
    ModelChain: chain;
    WireName: wire;
    BaseUrl: |value| {
        let url = text(value)?;
        check_base_url(url).map_err(|reason| format!("{reason}; give it as `https://host/v1`"))?;
        Ok(Self(url.to_owned()))
    };
    SecretRef: |value| reference(value).map(Self);
    SecretRefs: credentials;
    StaticSecretRef: |value| match reference(value)? {
        Reference::Command(_) => Err("must be env:NAME or file:PATH; a command is not run for this".to_owned()),
        reference @ (Reference::Variable(_) | Reference::File(_)) => Ok(Self(reference)),
    };
    PoolStrategyName: |value| match value.as_str() {
        Some("fill_first") => Ok(Self(PoolStrategy::FillFirst)),
        Some("round_robin") => Ok(Self(PoolStrategy::RoundRobin)),
        Some("least_used") => Ok(Self(PoolStrategy::LeastUsed)),
        Some(_) | None => Err("must be \"fill_first\", \"round_robin\" or \"least_used\"".to_owned()),
    };
    NonEmptyText: |value| match text(value)? {
        "" => Err("is empty; give it, or leave the key out".to_owned()),
        text => Ok(Self(text.to_owned())),
    };
    AbsolutePaths: folders;
    OptionalAddress: address;
    TargetNames: |value| {
        const RULE: &str = "must be a list of names of targets, each once, like [\"ops\"]";
        let names = value.as_array().ok_or(RULE)?.iter().map(|name| name.as_str().map(str::to_owned));
        let names: Vec<String> = names.collect::<Option<_>>().ok_or(RULE)?;
        let has_double = (1..names.len()).any(|n| names[..n].contains(&names[n]));
        if has_double { Err(RULE.to_owned()) } else { Ok(Self(names)) }
    };
    ThinkingLevelName: |value| match value.as_str() {
        Some("") => Ok(Self(None)),
        Some(name) => name.parse().map(|level| Self(Some(level))).map_err(|_| no_level()),
        None => Err(no_level()),
    };
    InDoubtActionName: |value| match value.as_str() {
        Some("tell") => Ok(Self(InDoubtAction::Tell)),
        Some("ask") => Ok(Self(InDoubtAction::Ask)),
        Some("retry") => Ok(Self(InDoubtAction::Retry)),
        Some(_) | None => Err("must be \"tell\", \"ask\" or \"retry\"".to_owned()),
    };
    RuleList: |value| {
        const LIST_RULE: &str = "must be a list of rules, like [\"shell(git push *)\", \"mcp_*\"]";
        let rules = value.as_array().ok_or(LIST_RULE)?.iter().map(|rule| {
            rule.as_str().ok_or(LIST_RULE)?.parse::<Rule>().map_err(|error| error.to_string())
        });
        rules.collect::<Result<_, String>>().map(Self)
    };
    PolicyModeName: |value| match value.as_str() {
        Some("allow") => Ok(Self(PolicyMode::Allow)),
        Some("ask") => Ok(Self(PolicyMode::Ask)),
        Some("deny") => Ok(Self(PolicyMode::Deny)),
        Some(_) | None => Err("must be \"allow\", \"ask\" or \"deny\"".to_owned()),
    };
    QueueModeName: |value| {
        let mode = QueueMode::ALL.into_iter().find(|mode| value.as_str() == Some(mode.name()));
        mode.map(Self).ok_or_else(|| format!("must be one of {}", listed(&QueueMode::ALL.map(QueueMode::name))))
    };
    DropPolicyName: |value| match value.as_str() {
        Some("summarize") => Ok(Self(DropPolicy::Summarize)),
        Some("old") => Ok(Self(DropPolicy::Old)),
        Some("new") => Ok(Self(DropPolicy::New)),
        Some(_) | None => Err("must be \"summarize\", \"old\" or \"new\"".to_owned()),
    };
    ApproverName: |value| match value.as_str() {
        Some("none") => Ok(Self(false)),
        Some("person") => Ok(Self(true)),
        Some(_) | None => Err("must be \"none\" or \"person\"".to_owned()),
    };
    ThinkingLevelNames: |value| {
        let level = |value: &Value| value.as_str().and_then(|name| name.parse::<ThinkingLevel>().ok());
        let levels = value.as_array().and_then(|list| list.iter().map(level).collect::<Option<ThinkingLevels>>());
        let error = || format!("must be a list of {}", listed(&ThinkingLevel::ALL.map(ThinkingLevel::name)));
        levels.map(Self).ok_or_else(error)
    };
    ThinkingStyleName: |value| {
        let style = value.as_str().and_then(|name| name.parse().ok());
        style.map(Self).ok_or_else(|| format!("must be one of {}", listed(&ThinkingStyle::ALL.map(ThinkingStyle::name))))
    };
    CacheTtlName: |value| match value.as_str() {
        Some("off") => Ok(Self(CacheTtl::Off)),
        Some("5m") => Ok(Self(CacheTtl::Short)),
        Some("1h") => Ok(Self(CacheTtl::Long)),
        Some(_) | None => Err("must be \"off\", \"5m\" or \"1h\"".to_owned()),
    };
    Flag: |value| value.as_bool().map(Self).ok_or_else(|| FLAG_RULE.to_owned());
    OptionalByteSize: |value| size(value).map(Self).ok_or_else(|| SIZE_RULE.to_owned());
    TokenPrice: |value| dollars(value).map(Self).ok_or_else(|| PRICE_RULE.to_owned());
    OptionalCount: |value| amount(value).map(Self);
    OptionalDollars: |value| nano_dollars(value).map(Self);
    OptionalFolder: |value| match text(value)? {
        "" => Ok(Self(None)),
        path if path.starts_with('/') => Ok(Self(Some(path.into()))),
        _ => Err("must be an absolute path, like \"/srv/work\", or empty for none".to_owned()),
    };
    OptionalText: |value| text(value).map(|text| Self((!text.is_empty()).then(|| text.into())));
    ToolPatterns: tool_patterns;
    StoreDurability: |value| match value.as_str() {
        Some("strict") => Ok(Self::Strict),
        Some("relaxed") => Ok(Self::Relaxed),
        Some(_) | None => Err("must be \"strict\" or \"relaxed\"".to_owned()),
    };
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().map(str::trim).ok_or_else(|| TEXT_RULE.to_owned())
}

fn count(value: &Value) -> Result<u32, String> {
    let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
    count.filter(|count| *count > 0).ok_or_else(|| COUNT_RULE.to_owned())
}

fn wait(value: &Value) -> Result<Duration, String> {
    let wait = value.as_str().and_then(|text| humantime::parse_duration(text).ok());
    match wait.filter(|wait| wait.as_millis() > 0) {
        Some(wait) if wait > MAX_DURATION => Err(MAX_DURATION_RULE.to_owned()),
        Some(wait) => Ok(wait),
        None => Err(DURATION_RULE.to_owned()),
    }
}

fn no_level() -> String {
    let levels = listed(&ThinkingLevel::ALL.map(ThinkingLevel::name));
    format!("must be one of {levels}; leave it empty for the model's own choice")
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

fn size(value: &Value) -> Option<u64> {
    let text = value.as_str()?.trim();
    if text == NONE {
        return Some(0);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let bits = match unit.trim_start() {
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << bits)
}

/// A variable has a text for every form.
fn amount(value: &Value) -> Result<Option<u64>, String> {
    let amount = match value.as_str() {
        Some(NONE) => return Ok(None),
        Some(text) => text.parse().ok(),
        None => value.as_u64(),
    };
    amount.filter(|amount| *amount > 0).map(Some).ok_or_else(|| AMOUNT_RULE.to_owned())
}

/// A variable has a text for every form.
fn nano_dollars(value: &Value) -> Result<Option<u64>, String> {
    let amount = match value.as_str() {
        Some(NONE) => return Ok(None),
        Some(text) => fixed_point(text, DOLLAR_DECIMALS),
        None => value.as_number().and_then(|number| fixed_point(&number.to_string(), DOLLAR_DECIMALS)),
    };
    amount.filter(|amount| *amount > 0).map(Some).ok_or_else(|| DOLLARS_RULE.to_owned())
}

fn dollars(value: &Value) -> Option<u64> {
    fixed_point(&value.as_number()?.to_string(), DECIMALS)
}

/// The digits as written, as a whole number of the smallest part. A fraction of that is an error, not rounded.
fn fixed_point(text: &str, decimals: usize) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > decimals {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<decimals$}").parse().ok()?;
    let unit = 10_u64.checked_pow(u32::try_from(decimals).ok()?)?;
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(fraction)
}

fn tool_patterns(value: &Value) -> Result<ToolPatterns, String> {
    const LIST_RULE: &str = "must be a list of names of tools, like [\"read_file\", \"search_*\"]";
    let pattern = |value: &Value| {
        let name = value.as_str()?.trim();
        let start = name.strip_suffix('*').unwrap_or(name);
        let is_name = start.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        (is_name && !name.is_empty()).then(|| ToolPattern(name.to_owned()))
    };
    let patterns = value.as_array().and_then(|list| list.iter().map(pattern).collect::<Option<_>>());
    patterns.map(ToolPatterns).ok_or_else(|| LIST_RULE.to_owned())
}

/// Parses a reference from a text or from the words of a command.
pub(super) fn reference(value: &Value) -> Result<Reference, String> {
    match value.as_array() {
        None => text(value)?.parse(),
        Some(words) => match words.iter().map(Value::as_str).collect::<Option<Vec<_>>>() {
            Some(words) if words.iter().any(|word| word.starts_with("env:") || word.starts_with("file:")) => {
                Err("is one; several secrets are listed in `credentials`".to_owned())
            }
            Some(words) => Reference::of_words(&words),
            None => Err(TEXT_RULE.to_owned()),
        },
    }
}

fn credentials(value: &Value) -> Result<SecretRefs, String> {
    const LIST_RULE: &str = "must be a list, like [\"env:FIRST_KEY\", \"file:/run/second\"]";
    let items = value.as_array().filter(|items| !items.is_empty()).ok_or(LIST_RULE)?;
    let references = items.iter().map(reference).collect::<Result<Vec<_>, _>>()?;
    for (index, reference) in references.iter().enumerate() {
        if references[..index].contains(reference) {
            return Err(format!("has {reference} twice; each account stands there once"));
        }
    }
    Ok(SecretRefs(references))
}

fn chain(value: &Value) -> Result<ModelChain, String> {
    const LIST_RULE: &str = "must be a list, like [\"openrouter/openai/gpt-5\"]";
    let links = value.as_array().ok_or(LIST_RULE)?;
    let link = |value: &Value| text(value)?.parse::<ModelRef>();
    links.iter().map(link).collect::<Result<_, _>>().map(ModelChain)
}

fn folders(value: &Value) -> Result<AbsolutePaths, String> {
    const LIST_RULE: &str = "must be a list of absolute paths, like [\"/srv/skills\"]";
    let folder = |value: &Value| value.as_str().map(PathBuf::from).filter(|path| path.is_absolute());
    let folders = value.as_array().and_then(|list| list.iter().map(folder).collect::<Option<_>>());
    folders.map(AbsolutePaths).ok_or_else(|| LIST_RULE.to_owned())
}

fn wire(value: &Value) -> Result<WireName, String> {
    let name = text(value)?;
    let wire = WIRES.iter().find(|wire| wire.name == name);
    wire.map(|wire| WireName(wire.name)).ok_or_else(|| {
        let known: Vec<_> = WIRES.iter().map(|wire| wire.name).collect();
        format!("there is no such wire format; there are: {}", known.join(", "))
    })
}

fn address(value: &Value) -> Result<OptionalAddress, String> {
    let text = text(value)?;
    if text == NONE {
        return Ok(OptionalAddress(None));
    }
    let port =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(_)) => Ok(OptionalAddress(Some(text.to_owned()))),
        Some(Err(_)) | None => Err("must be HOST:PORT, like \"127.0.0.1:11434\", or \"none\"".to_owned()),
    }
}
