//! Polls the run under way: what it and its subagents have spent, their tree, and what subagents ask.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use hermod_actors::model::{RunId, SessionId};
use hermod_chat::{ChatEvent, Question, Subagent, Tone, Used};
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use super::{conversation::ConversationUpdate, overview::state_in_chat};
use crate::{
    cli::{shared_owner::SharedOwner, tree},
    control::{ControlClient, ControlRequest, ControlResponse},
    host::{HostError, unexpected_response},
    view::{ApprovalView, NodeView, RunStateView},
};

/// Pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(700);

/// Runs of a conversation whose spending is asked for when it is opened, the youngest.
const MAX_EARLIER_RUNS: usize = 50;

/// Tells what earlier runs of the session have spent. Then polls whatever run is active, and once more when it has ended.
/// Ends with the conversation.
pub(super) async fn poll(
    owner: Arc<SharedOwner>,
    session: SessionId,
    mut active: watch::Receiver<Option<RunId>>,
    told: mpsc::Sender<ConversationUpdate>,
) {
    let mut client: Option<ControlClient> = None;
    let mut last = None;
    let earlier = earlier_spending(&owner, session).await.unwrap_or_else(|error| {
        let text = format!("what earlier runs have spent cannot be told: {error}");
        vec![ChatEvent::Notice(Tone::Bad, text)]
    });
    for event in earlier {
        if told.send(ConversationUpdate::Event(event)).await.is_err() {
            return;
        }
    }
    loop {
        let run = *active.borrow_and_update();
        for polled in last.into_iter().chain(run).collect::<BTreeSet<_>>() {
            // A process that has gone is asked again at the next poll.
            let Some(events) = poll_run(owner.state(), &mut client, polled).await else { continue };
            for event in events {
                if told.send(ConversationUpdate::Event(event)).await.is_err() {
                    return;
                }
            }
        }
        last = run;
        let changed = match run {
            Some(_) => timeout(POLL_INTERVAL, active.changed()).await.unwrap_or(Ok(())),
            None => active.changed().await,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// What the newest runs of a session have spent.
async fn earlier_spending(owner: &SharedOwner, session: SessionId) -> Result<Vec<ChatEvent>, HostError> {
    let request = ControlRequest::SessionsShow { session: session.to_string(), max: MAX_EARLIER_RUNS };
    let ControlResponse::Session(detail) = owner.ask(&request).await? else {
        return Err(unexpected_response().into());
    };
    let mut events = Vec::new();
    for run in &detail.runs {
        let request = ControlRequest::Tree { run: Some(run.id.to_string()) };
        let ControlResponse::Tree(nodes) = owner.ask(&request).await? else {
            return Err(unexpected_response().into());
        };
        events.extend(nodes.iter().filter_map(spending));
    }
    Ok(events)
}

fn spending(node: &NodeView) -> Option<ChatEvent> {
    let nano_usd = node.spent?.usd.unwrap_or(0);
    Some(ChatEvent::Spent { run: node.run.id, used: Used { nano_usd, ..tokens(node) } })
}

/// The tokens of a run and of those below it.
fn tokens(node: &NodeView) -> Used {
    let usage = node.run.usage;
    let own = Used { input: usage.input_tokens, output: usage.output_tokens, nano_usd: 0 };
    node.children.iter().map(tokens).fold(own, Used::plus)
}

/// The events of one poll; `None` if no process answers.
async fn poll_run(state: &Path, client: &mut Option<ControlClient>, run: RunId) -> Option<Vec<ChatEvent>> {
    let mut connected = match client.take() {
        Some(client) => client,
        None => ControlClient::connect(state).await.ok()??,
    };
    let request = ControlRequest::Tree { run: Some(run.to_string()) };
    let Ok(ControlResponse::Tree(nodes)) = connected.request(&request, |_| Ok(())).await else { return None };
    let (mut events, mut subagents, mut runs) = (Vec::new(), Vec::new(), BTreeSet::new());
    for node in &nodes {
        events.extend(spending(node));
        push_subagents(&node.children, 0, (&mut subagents, &mut runs));
    }
    let has_subagents = !subagents.is_empty();
    events.push(ChatEvent::Tree(subagents));
    let questions = match has_subagents {
        true => {
            let Ok(ControlResponse::Approvals(asked)) =
                connected.request(&ControlRequest::ApprovalsList {}, |_| Ok(())).await
            else {
                return None;
            };
            asked.into_iter().filter(|asked| runs.contains(&asked.run)).map(question).collect()
        }
        false => Vec::new(),
    };
    events.push(ChatEvent::SubagentQuestions(questions));
    *client = Some(connected);
    Some(events)
}

fn push_subagents(nodes: &[NodeView], depth: usize, (to, runs): (&mut Vec<Subagent>, &mut BTreeSet<RunId>)) {
    for node in nodes {
        runs.insert(node.run.id);
        to.push(Subagent {
            depth,
            id: tree::id_suffix(node.run.id),
            task: node.input.clone(),
            state: state_in_chat(&node.run),
            has_ended: node.run.state == RunStateView::Ended,
            tokens: node.spent.and_then(|spent| spent.tokens).unwrap_or_else(|| node.run.usage.total()),
        });
        push_subagents(&node.children, depth + 1, (to, runs));
    }
}

fn question(asked: ApprovalView) -> Question {
    Question {
        call: asked.call,
        text: asked.question,
        wants_text: asked.wants_text,
        can_always: !asked.allow_rules.is_empty(),
    }
}
