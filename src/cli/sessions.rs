//! `hermod sessions`: lists the sessions of the store, or shows one with its runs.

use std::{borrow::Cow, time::Duration};

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use hermod_actors::{
    SanitizedText,
    model::{DropPolicy, QueueMode, QueueOverrides},
};

use super::{
    CliError, ListArgs, format::truncated_line, print, print_as, print_json, print_note, runs, table,
};
use crate::{
    clock::rfc3339,
    control::{ControlRequest, ControlResponse},
    host::{Identifier, StoreClient, parse_duration, unexpected_response},
    view::{ConversationView, SessionDetailView, SessionView},
};

/// Characters of a title in the list.
const MAX_TITLE_CHARS: usize = 60;

/// The conversations in the store
#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    command: SessionsCommand,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// List the conversations, the one with the latest run first
    ///
    /// The table has the title, else the first task, and leaves out subagents. The JSON array has all sessions in the order
    /// of their opening.
    List(ListArgs),
    /// Show one session and its runs
    Show {
        /// A session's id or its end, its key, the id of one of its runs, or `last`: that of the last run that is no subagent's
        id: Identifier,
        /// At most so many runs, the youngest
        #[arg(long, default_value_t = 100)]
        max: usize,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Set how messages to a session queue; without an option, show it
    Queue(QueueArgs),
}

#[derive(Debug, Args)]
struct QueueArgs {
    /// A session's id or its end, its key, the id of one of its runs, or `last`: that of the last run that is no subagent's
    id: Identifier,
    /// What happens to a message while a run is under way
    #[arg(long, value_parser = mode_parser())]
    mode: Option<QueueMode>,
    /// Most messages that wait
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cap: Option<u32>,
    /// What is dropped when more arrive
    #[arg(long, value_parser = drop_parser())]
    drop: Option<DropPolicy>,
    /// Time without another message after which collected messages become a run, like 500ms or 2s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    collect_window: Option<Duration>,
    /// Forget what was set before: what is not given now is as configured
    #[arg(long)]
    reset: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A mode of messages.
pub(super) fn mode_parser() -> impl TypedValueParser<Value = QueueMode> {
    PossibleValuesParser::new(QueueMode::ALL.map(QueueMode::name)).try_map(|name| {
        QueueMode::ALL.into_iter().find(|mode| mode.name() == name).ok_or("there is no such mode")
    })
}

fn drop_parser() -> impl TypedValueParser<Value = DropPolicy> {
    PossibleValuesParser::new(DropPolicy::ALL.map(DropPolicy::name)).try_map(|name| {
        DropPolicy::ALL.into_iter().find(|drop| drop.name() == name).ok_or("there is no such policy")
    })
}

/// Lists sessions, or shows one.
pub(crate) async fn execute(args: SessionsArgs, client: &StoreClient) -> Result<(), CliError> {
    match args.command {
        SessionsCommand::List(ListArgs { max, json: true }) => {
            let ControlResponse::Sessions(sessions) =
                client.request(&ControlRequest::SessionsList { max }).await?
            else {
                return Err(unexpected_response().into());
            };
            print_json(&sessions)
        }
        SessionsCommand::List(ListArgs { max, json: false }) => {
            let ControlResponse::Conversations(list) =
                client.request(&ControlRequest::ConversationsList { max, check: true }).await?
            else {
                return Err(unexpected_response().into());
            };
            print(&format_list(&list.conversations))?;
            if list.is_cut {
                print_note(format!("there are more than {max}: `--max` lists more"));
            }
            Ok(())
        }
        SessionsCommand::Show { id, max, json } => {
            let request = ControlRequest::SessionsShow { session: id.into(), max };
            let ControlResponse::Session(detail) = client.request(&request).await? else {
                return Err(unexpected_response().into());
            };
            print_as(json, &detail, format_session)
        }
        SessionsCommand::Queue(args) => set_queue(args, client).await,
    }
}

/// Conversations as a table, in their order.
fn format_list(conversations: &[ConversationView]) -> String {
    let cells = |conversation: &ConversationView| {
        let session = &conversation.session;
        [
            session.id.to_string(),
            session.key.clone(),
            session.agent.to_string(),
            rfc3339(conversation.last_run_at),
            state(session),
            truncated_line(conversation.title(), MAX_TITLE_CHARS),
        ]
    };
    let rows: Vec<_> = conversations.iter().map(cells).collect();
    table::render(["SESSION", "KEY", "AGENT", "LAST RUN", "STATE", "TITLE"], &rows)
}

/// Changes what the options name, and prints the setting.
async fn set_queue(args: QueueArgs, client: &StoreClient) -> Result<(), CliError> {
    let request = ControlRequest::SessionsShow { session: args.id.clone().into(), max: 0 };
    let ControlResponse::Session(detail) = client.request(&request).await? else {
        return Err(unexpected_response().into());
    };
    let before = detail.session.queue;
    let kept = if args.reset { QueueOverrides::default() } else { before };
    let window = args.collect_window.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let queue = QueueOverrides {
        mode: args.mode.or(kept.mode),
        cap: args.cap.or(kept.cap),
        drop: args.drop.or(kept.drop),
        collect_ms: window.or(kept.collect_ms),
    };
    let session = detail.session.id.to_string();
    let queue = if queue == before { queue } else { client.set_queue(&session, queue).await? };
    print_as(args.json, &queue, format_queue)
}

/// What is set, in one line.
fn format_queue(queue: &QueueOverrides) -> String {
    let QueueOverrides { mode, cap, drop, collect_ms } = queue;
    let parts = [
        mode.map(|mode| format!("mode {}", mode.name())),
        cap.map(|cap| format!("cap {cap}")),
        drop.map(|drop| format!("drop {}", drop.name())),
        collect_ms.map(|ms| format!("collect window {ms} ms")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "as configured".to_owned() } else { parts.join(", ") }
}

fn format_session(SessionDetailView { session, runs, todo }: &SessionDetailView) -> String {
    let (id, key, agent, opened) = (session.id, &session.key, &session.agent, rfc3339(session.opened_at));
    let (state, runs) = (state(session), runs::format_table(runs));
    let todo = todo.iter().map(|todo| format!("\ntodo:\n{}\n", SanitizedText::sanitize(todo)));
    let todo: String = todo.collect();
    let queue = match session.queue == QueueOverrides::default() {
        true => String::new(),
        false => format!("queue    {}\n", format_queue(&session.queue)),
    };
    let title = title(session);
    format!(
        "session  {id}\nkey      {key}\nagent    {agent}\nopened   {opened}\nstate    {state}\ntitle    {title}\n{queue}\n{runs}{todo}"
    )
}

/// The title, without hidden characters; `-` without one.
fn title(session: &SessionView) -> Cow<'_, str> {
    SanitizedText::strict(session.title.as_deref().unwrap_or("-"))
}

/// `readable`, or `quarantined` with the reason: this program then cannot use the session.
fn state(session: &SessionView) -> String {
    session.quarantined.as_ref().map_or_else(|| "readable".into(), |reason| format!("quarantined: {reason}"))
}
