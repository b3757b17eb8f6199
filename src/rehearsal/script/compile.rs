//! The compiled form of a script ([`Script`]), and its parsing and checks. The JSON form is in `spec.rs`.

use std::time::Duration;

use hermod_actors::model::{FinishReason, RUNTIME_TEXT_PREFIX};
use regex_lite::Regex;
use serde_json::Value;

use super::{
    ArgumentsTemplate, ScriptError, Template, UsageSpec,
    fault::{self, FaultRule},
    spec::{FinishSpec, PartSpec, ScriptSpec, Span, StepSpec, Times},
    template::{TemplateError, ValueSource},
};

/// A parsed and checked script: no part follows one without `when`, no step follows an endless one, and every template
/// with a result refers to an earlier call.
#[derive(Debug, Clone)]
pub struct Script {
    pub(in crate::rehearsal) name: String,
    pub(in crate::rehearsal) branches: Vec<ScriptBranch>,
    pub(in crate::rehearsal) nudges: Vec<Pattern>,
}

/// The steps for user texts that match a pattern.
#[derive(Debug, Clone)]
pub(crate) struct ScriptBranch {
    pub(in crate::rehearsal) when: Option<Pattern>,
    pub(in crate::rehearsal) steps: ScriptSteps,
}

/// A substring, or a regular expression.
#[derive(Debug, Clone)]
pub(crate) enum Pattern {
    Substring(String),
    Regex(Regex),
}

/// The steps of a branch. Never empty; only the last step can be endless.
#[derive(Debug, Clone)]
pub(crate) struct ScriptSteps(Vec<ScriptStep>);

/// One step, which answers the step numbers from `first` to `last`.
#[derive(Debug, Clone)]
pub(crate) struct ScriptStep {
    first: u64,
    /// `None` means endless.
    last: Option<u64>,
    pub(in crate::rehearsal) content: StepContent,
    pub(in crate::rehearsal) pace: AnswerPace,
    pub(in crate::rehearsal) usage: UsageSpec,
    pub(in crate::rehearsal) finish: Option<FinishReason>,
    pub(in crate::rehearsal) fault: Option<FaultRule>,
}

/// The content of a step.
#[derive(Debug, Clone)]
pub(crate) struct StepContent {
    pub(in crate::rehearsal) say: Option<Template>,
    pub(in crate::rehearsal) think: Option<Template>,
    pub(in crate::rehearsal) calls: Vec<(String, ArgumentsTemplate)>,
}

/// The speed of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerPace {
    /// Bytes per delta; `None` sends each text whole.
    pub chunk: Option<usize>,
    /// The delay before the first byte.
    pub delay: Duration,
    /// The delay between two events.
    pub between: Duration,
}

impl Script {
    /// Parses and checks a script; reports the first error.
    pub fn parse(bytes: &[u8]) -> Result<Self, ScriptError> {
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let spec: ScriptSpec = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            // An unnamed path is written as `.` or `?`.
            let path = error.path().to_string();
            let path = path.trim_end_matches(['.', '?']);
            let place = if path.is_empty() { "script" } else { path };
            ScriptError::of_json(place, error.inner())
        })?;
        json.end().map_err(|error| ScriptError::of_json("script", &error))?;
        compile(spec)
    }

    /// The default script: takes stock of a folder with real tools.
    pub fn builtin() -> Self {
        Self::parse(include_bytes!("../default.json")).expect("a test parses the embedded script")
    }

    /// The name of the model.
    pub fn model(&self) -> String {
        format!("rehearsal/{}", self.name)
    }

    /// The JSON schema of scripts.
    pub fn schema() -> Value {
        schemars::schema_for!(ScriptSpec).to_value()
    }

    /// The steps for a user's text.
    pub(in crate::rehearsal) fn steps_for(&self, user: &str) -> Option<&ScriptSteps> {
        let fits = |branch: &&ScriptBranch| branch.when.as_ref().is_none_or(|when| when.is_match(user));
        self.branches.iter().find(fits).map(|branch| &branch.steps)
    }

    /// True if this text does not restart the script.
    pub(in crate::rehearsal) fn is_nudge(&self, user: &str) -> bool {
        user.starts_with(RUNTIME_TEXT_PREFIX) || self.nudges.iter().any(|nudge| nudge.is_match(user))
    }
}

impl Pattern {
    fn compile(place: String, text: &str) -> Result<Self, ScriptError> {
        let Some(pattern) = text.strip_prefix('/').and_then(|text| text.strip_suffix('/')) else {
            return Ok(Self::Substring(text.into()));
        };
        let regex = Regex::new(pattern).map_err(|error| {
            let problem = format!("`{pattern}` is no regular expression: {error}");
            ScriptError::new(place, problem, "correct it, or leave the slashes away to look for a plain text")
        });
        regex.map(Self::Regex)
    }

    fn is_match(&self, text: &str) -> bool {
        match self {
            Self::Substring(part) => text.contains(part),
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

impl ScriptSteps {
    /// The step for the number `step`, counted from 1; `None` after the last.
    pub(in crate::rehearsal) fn step_at(&self, step: u64) -> Option<&ScriptStep> {
        let at = self.0.partition_point(|candidate| candidate.last.is_some_and(|last| last < step));
        self.0.get(at).filter(|found| found.first <= step)
    }
}

fn compile(spec: ScriptSpec) -> Result<Script, ScriptError> {
    if spec.name.is_empty() || spec.name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let problem = format!("`{}` cannot be part of a model's name", spec.name);
        return Err(ScriptError::new("name", problem, "give a word without blanks"));
    }
    check_not_empty("scripts", spec.scripts.len(), "script")?;
    let default = AnswerPace {
        chunk: chunk("chunk", spec.chunk)?,
        delay: spec.delay.map_or(Duration::ZERO, |Span(time)| time),
        between: spec.chunk_delay.map_or(Duration::ZERO, |Span(time)| time),
    };
    let last = spec.scripts.len() - 1;
    let mut branches = Vec::with_capacity(spec.scripts.len());
    for (i, part) in spec.scripts.into_iter().enumerate() {
        let place = format!("scripts[{i}]");
        if part.when.is_none() && i < last {
            let problem = "a script without `when` fits every text, so that no later one can play";
            return Err(ScriptError::new(place, problem, "add a `when`, or move it to the end"));
        }
        branches.push(compile_part(&place, part, default)?);
    }
    let nudges = spec.nudges.iter().enumerate();
    let nudges = nudges.map(|(i, text)| Pattern::compile(format!("nudges[{i}]"), text));
    Ok(Script { name: spec.name, branches, nudges: nudges.collect::<Result<_, _>>()? })
}

fn check_not_empty(place: &str, len: usize, what: &str) -> Result<(), ScriptError> {
    if len == 0 {
        return Err(ScriptError::new(place, "the list is empty", format!("give at least one {what}")));
    }
    Ok(())
}

fn chunk(place: &str, chunk: Option<usize>) -> Result<Option<usize>, ScriptError> {
    if chunk == Some(0) {
        return Err(ScriptError::new(
            place,
            "0 bytes would never end",
            "give a number from 1, or leave it out",
        ));
    }
    Ok(chunk)
}

fn compile_part(place: &str, part: PartSpec, default: AnswerPace) -> Result<ScriptBranch, ScriptError> {
    let when = part.when.map(|when| Pattern::compile(format!("{place}.when"), &when)).transpose()?;
    check_not_empty(&format!("{place}.steps"), part.steps.len(), "step")?;
    let mut steps = ScriptSteps(Vec::with_capacity(part.steps.len()));
    let mut first = Some(1_u64);
    for (i, spec) in part.steps.into_iter().enumerate() {
        let place = format!("{place}.steps[{i}]");
        let Some(number) = first else {
            let problem = "the step before it is repeated for ever";
            return Err(ScriptError::new(
                place,
                problem,
                "remove this step, or give a number to that `repeat`",
            ));
        };
        let step = compile_step(&place, spec, (number, &steps), default)?;
        first = step.last.map(|last| last.saturating_add(1));
        steps.0.push(step);
    }
    Ok(ScriptBranch { when, steps })
}

fn compile_step(
    place: &str,
    spec: StepSpec,
    (first, earlier): (u64, &ScriptSteps),
    default: AnswerPace,
) -> Result<ScriptStep, ScriptError> {
    if spec.say.is_none() && spec.call.is_none() {
        let problem = "a step has neither `say` nor `call`";
        return Err(ScriptError::new(place, problem, "add one of them; `\"say\": \"\"` is an empty answer"));
    }
    let pace = AnswerPace {
        chunk: chunk(&format!("{place}.chunk"), spec.chunk)?.or(default.chunk),
        delay: spec.delay.map_or(default.delay, |Span(time)| time),
        between: spec.chunk_delay.map_or(default.between, |Span(time)| time),
    };
    let last = match spec.repeat {
        None => Some(first),
        Some(Times(n)) => n.map(|n| first.saturating_add(n - 1)),
    };
    let template = |field: &str, text: Option<String>| {
        let parsed = text.map(|text| Template::parse(&text)).transpose();
        let checked = parsed.and_then(|template| {
            check_sources(template.iter().flat_map(Template::sources), earlier).map(|()| template)
        });
        checked.map_err(|(problem, remedy)| ScriptError::new(format!("{place}.{field}"), problem, remedy))
    };
    let mut calls = Vec::new();
    if let Some(list) = spec.call {
        check_not_empty(&format!("{place}.call"), list.len(), "call")?;
        for (i, call) in list.into_iter().enumerate() {
            let compiled = ArgumentsTemplate::compile(call.arguments).and_then(|arguments| {
                check_sources(arguments.sources().into_iter(), earlier).map(|()| arguments)
            });
            let arguments = compiled.map_err(|(problem, remedy)| {
                ScriptError::new(format!("{place}.call[{i}].arguments"), problem, remedy)
            })?;
            calls.push((call.tool, arguments));
        }
    }
    Ok(ScriptStep {
        first,
        last,
        content: StepContent {
            say: template("say", spec.say)?,
            think: template("think", spec.think)?,
            calls,
        },
        pace,
        usage: spec.usage.unwrap_or_default(),
        finish: spec.finish.map(FinishSpec::to_model),
        fault: spec.fault.map(|spec| fault::compile(&format!("{place}.fault"), spec)).transpose()?,
    })
}

impl FinishSpec {
    fn to_model(self) -> FinishReason {
        match self {
            Self::Stop => FinishReason::Stop,
            Self::ToolCalls => FinishReason::ToolCalls,
            Self::Length => FinishReason::Length,
            Self::Refused => FinishReason::Refused,
        }
    }
}

/// Checks that templates refer to calls of earlier steps.
fn check_sources<'a>(
    mut sources: impl Iterator<Item = &'a ValueSource>,
    earlier: &ScriptSteps,
) -> Result<(), TemplateError> {
    sources.try_for_each(|source| match source {
        ValueSource::Result { call: None, .. }
            if earlier.0.iter().all(|step| step.content.calls.is_empty()) =>
        {
            Err(("`result:last` has no call before it".into(), "call a tool in an earlier step"))
        }
        ValueSource::User
        | ValueSource::Step
        | ValueSource::Open
        | ValueSource::Result { call: None, .. } => Ok(()),
        ValueSource::Result { call: Some((step, n)), .. } => {
            let calls = earlier.step_at(*step).map_or(0, |found| found.content.calls.len() as u64);
            if (1..=calls).contains(n) {
                return Ok(());
            }
            let problem =
                format!("`result:{step}.{n}` is no call of an earlier step (calls of step {step}: {calls})");
            Err((problem, "refer to <step>.<call>, both counted from 1, each repetition is a step"))
        }
    })
}
