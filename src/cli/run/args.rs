//! The arguments of `hermod run`, and the requests to the host that they make. The doc comments of clap items are the
//! help text. Also the option `--durability` of other commands.

use std::{path::PathBuf, time::Duration};

use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use hermod_actors::model::{Lane, ThinkingLevel};
use serde::{Deserialize, Serialize};

use super::expect_args::ExpectArgs;
use crate::{
    cli::{
        CliError,
        display::{DisplayArgs, OutputForm},
        examples, print_json,
    },
    config,
    discovery::RequestedModel,
    host::{
        BudgetLimits, ConversationChoice, Identifier, ModelSelection, RehearsalScript, SpecRequest,
        WorkspaceChoice, parse_duration,
    },
    store::redb,
    view::ResultView,
};

/// Give the agent a task and wait for its answer
#[derive(Debug, Args)]
#[command(after_help = examples::RUN)]
pub(crate) struct RunArgs {
    /// The task; `-` reads it from standard input. What is piped to standard input beside it is appended
    #[arg(required_unless_present = "resume")]
    pub(crate) text: Option<String>,
    /// Play a scripted model instead of a real one; its tool calls are real
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with_all = ["provider", "model"]
    )]
    pub(crate) rehearse: Option<RehearsalScript>,
    /// The provider to ask, one that is configured or that the environment has a key for
    #[arg(long)]
    pub(crate) provider: Option<Identifier>,
    /// The model to ask: MODEL or PROVIDER/MODEL
    #[arg(long)]
    pub(crate) model: Option<Identifier>,
    /// The agent that runs it, one of `hermod agents list` [default: that of the conversation, for a new one `default`]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<Identifier>,
    /// Run in the session with this key; it is opened if there is none
    #[arg(long, value_name = "KEY", conflicts_with = "resume")]
    pub(crate) session: Option<Identifier>,
    /// Continue a conversation with TEXT, or its unfinished run without: a run's or session's id or key, `last`
    /// (the last run that is no subagent's), or the lineage of a `context.compacted`
    #[arg(long, value_name = "ID")]
    pub(crate) resume: Option<Identifier>,
    /// A name for this very task: a repeat gets the first run, with the models and limits that it was given; another
    /// text, other pictures or another conversation are refused
    #[arg(long, requires = "text")]
    pub(crate) key: Option<Identifier>,
    /// The folder in which the tools work [default: that of the conversation, for a new one the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Make the workspace if it does not exist
    #[arg(long, requires = "workspace")]
    pub(crate) create: bool,
    /// The conversation so far, for a new one: a file with a JSON array of messages, as `messages` of `--json` has them
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    /// The key that isolates the state of the run's tools [default: one of its own]
    #[arg(long, value_name = "KEY")]
    pub(crate) task_id: Option<Identifier>,
    /// A system message for this run only
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// A target that gets the result when the run ends, as [targets.NAME] sets it up; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) deliver_to: Vec<Identifier>,
    /// Limits, such as iterations=20,tokens=100000,tool_calls=50,wall=10m
    #[arg(long)]
    pub(crate) budget: Option<BudgetLimits>,
    /// Time after which the run ends as timed out, such as 90s or 10m [default: none, or what the
    /// configuration sets]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// How much the models are to think [default: as this conversation, else agent.thinking, else as the model]
    #[arg(long, value_name = "LEVEL", value_parser = level_parser())]
    pub(crate) thinking: Option<ThinkingLevel>,
    /// A picture that belongs to the task: PNG, JPEG, GIF or WebP; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) expects: ExpectArgs,
    #[command(flatten)]
    pub(crate) display: DisplayArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// What an acknowledged write survives [default: store.durability]
    #[arg(long, value_enum, hide = true)]
    pub(crate) durability: Option<DurabilityArg>,
}

/// What is printed to standard output in place of the answer.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// Print one JSON object at the end, also on failure
    #[arg(long)]
    json: bool,
    /// Print each event as a JSON line, as the service streams them; the last line is the object of `--json`
    #[arg(long, conflicts_with = "json")]
    json_events: bool,
}

impl OutputArgs {
    /// Events as JSON lines, or the text of the answer.
    pub(crate) const fn of_events(json_events: bool) -> Self {
        Self { json: false, json_events }
    }

    /// What is printed.
    pub(crate) const fn form(self) -> OutputForm {
        if self.json_events {
            OutputForm::JsonEvents
        } else if self.json {
            OutputForm::Json
        } else {
            OutputForm::Text
        }
    }

    /// Prints the object of the end; with events it is one of them.
    pub(crate) fn print_end(self, end: &ResultView) -> Result<(), CliError> {
        if self.form() == OutputForm::JsonEvents {
            return print_json(&ResultEvent { event: "result", result: end });
        }
        print_json(end)
    }
}

/// The last event.
#[derive(Serialize)]
struct ResultEvent<'a> {
    event: &'static str,
    #[serde(flatten)]
    result: &'a ResultView,
}

impl From<String> for RehearsalScript {
    fn from(path: String) -> Self {
        if path.is_empty() {
            return Self::Embedded;
        }
        Self::File { name: format!("--rehearse={path}"), path: path.into() }
    }
}

fn level_parser() -> impl TypedValueParser<Value = ThinkingLevel> {
    PossibleValuesParser::new(ThinkingLevel::ALL.map(ThinkingLevel::name))
        .try_map(|name| name.parse::<ThinkingLevel>())
}

/// The value of `--durability`; see [`redb::Durability`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DurabilityArg {
    /// Survives power loss.
    Strict,
    /// May lose the last moments.
    Relaxed,
}

impl DurabilityArg {
    /// The name in the configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Relaxed => "relaxed",
        }
    }
}

impl From<DurabilityArg> for redb::Durability {
    fn from(durability: DurabilityArg) -> Self {
        match durability {
            DurabilityArg::Strict => Self::Strict,
            DurabilityArg::Relaxed => Self::Relaxed,
        }
    }
}

impl From<config::StoreDurability> for DurabilityArg {
    fn from(durability: config::StoreDurability) -> Self {
        match durability {
            config::StoreDurability::Strict => Self::Strict,
            config::StoreDurability::Relaxed => Self::Relaxed,
        }
    }
}

impl RunArgs {
    /// What the options set of a new run's spec.
    pub(crate) fn spec<'a>(&'a self, deliver_to: Option<&'a [String]>) -> SpecRequest<'a> {
        SpecRequest {
            model: self.model_selection(),
            budget: self.budget.unwrap_or_default(),
            timeout: self.timeout,
            thinking: self.thinking,
            system: self.system.as_deref(),
            deliver_to,
            is_unattended: false,
            must_answer: Some(true),
            lane: Lane::Main,
        }
    }

    /// Rejects options that would change the run: without TEXT, it resumes as it was accepted.
    pub(crate) fn check_without_text(&self) -> Result<(), CliError> {
        let given = [
            ("--rehearse", self.rehearse.is_some()),
            ("--provider", self.provider.is_some()),
            ("--model", self.model.is_some()),
            ("--agent", self.agent.is_some()),
            ("--workspace", self.workspace.is_some()),
            ("--history", self.history.is_some()),
            ("--task-id", self.task_id.is_some()),
            ("--system", self.system.is_some()),
            ("--deliver-to", !self.deliver_to.is_empty()),
            ("--budget", self.budget.is_some()),
            ("--timeout", self.timeout.is_some()),
            ("--thinking", self.thinking.is_some()),
            ("--image", !self.image.is_empty()),
        ];
        let first = given.iter().find(|(_, given)| *given).map(|(option, _)| *option);
        match first.or_else(|| self.expects.first_given()) {
            None => Ok(()),
            Some(option) => Err(CliError::usage(format!(
                "{option}: the unfinished run goes on as it was accepted; leave {option} out, or give a TEXT for a new \
                 run in this conversation"
            ))),
        }
    }
    /// The targets that the options name.
    pub(crate) fn deliver_to(&self) -> Option<Vec<String>> {
        let names: Vec<String> = self.deliver_to.iter().map(ToString::to_string).collect();
        (!names.is_empty()).then_some(names)
    }
    /// The requested model.
    fn model_selection(&self) -> ModelSelection<'_> {
        let model = RequestedModel { provider: self.provider.as_deref(), model: self.model.as_deref() };
        ModelSelection { script: self.rehearse.as_ref(), model }
    }
    /// The requested conversation.
    pub(crate) fn conversation(&self) -> ConversationChoice<'_> {
        match (&self.resume, &self.session) {
            (Some(id), _) => ConversationChoice::Id(id),
            (None, Some(key)) => ConversationChoice::Key(key),
            (None, None) => ConversationChoice::New,
        }
    }
    /// The requested workspace, if there is one.
    pub(crate) fn workspace_choice(&self) -> Option<WorkspaceChoice<'_>> {
        let path = self.workspace.as_deref()?;
        Some(if self.create { WorkspaceChoice::Created(path) } else { WorkspaceChoice::Existing(path) })
    }
}
