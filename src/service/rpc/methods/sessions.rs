//! `sessions.list`: the sessions, the newest first.

use std::sync::Arc;

use hermod_actors::model::{AgentName, RunId, RunRow, RunState, SessionRow};
use serde::{Deserialize, Serialize};

use super::{Method, agent::is_open, chat::within, run};
use crate::{
    access::Scope,
    clock,
    service::{
        reach::Reach,
        rpc::{client::Call, error::RpcError, params},
    },
};

pub(super) const LIST_METHOD: Method =
    Method::new("sessions.list", Scope::Read, |call, params| run(call, params, list))
        .with_answers(MAX_LIST_BYTES);

/// Sessions of a list whose call names no limit, and of the longest one.
const DEFAULT_SESSIONS: usize = 100;
const MAX_SESSIONS: usize = 1_000;
/// The largest offset.
const MAX_OFFSET: usize = 9_000;
/// Most sessions that are looked at for a list, with those that it leaves out.
const MAX_SEARCHED: usize = 10_000;
/// Bytes of the largest list.
const MAX_LIST_BYTES: usize = 1 << 20;
/// Sessions that are read at once in search of those that fit.
const SESSIONS_PER_READ: usize = 256;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ListParams {
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
    agent_id: Option<String>,
}

/// A page of sessions.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionList {
    ts: i64,
    count: usize,
    limit_applied: usize,
    offset: usize,
    /// The offset of the next page; `None` also if only older sessions follow than are looked at.
    next_offset: Option<usize>,
    has_more: bool,
    sessions: Vec<SessionEntry>,
}

/// A session of a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionEntry {
    key: String,
    kind: &'static str,
    session_id: String,
    agent_id: AgentName,
    /// The title.
    #[serde(skip_serializing_if = "Option::is_none")]
    derived_title: Option<Arc<str>>,
    created_at: i64,
    updated_at: i64,
    has_active_run: bool,
    active_run_ids: Vec<RunId>,
    /// The state of the newest run.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
}

/// Lists the sessions in the order of their opening, the newest first.
async fn list(call: Call, params: ListParams) -> Result<SessionList, RpcError> {
    let reach = &call.client.reach;
    let agent = params::agent(reach, params.agent_id.as_deref())?;
    let limit = within("limit", params.limit, DEFAULT_SESSIONS, MAX_SESSIONS)?;
    let offset = params.offset;
    if offset > MAX_OFFSET {
        let reason = format!("`{offset}` is too far; `GET /v1/sessions` has pages without a limit");
        return Err(RpcError::param("offset", reason));
    }
    let (rows, is_all) = newest_sessions(reach, agent.as_ref(), offset + limit + 1).await?;
    let has_next = rows.len() > offset + limit;
    let open = reach.unfinished_runs().await?;
    let mut sessions = Vec::new();
    for row in rows.iter().skip(offset).take(limit) {
        let newest = reach.runs_of(row, 1).await?;
        sessions.push(SessionEntry::new(row, newest.last(), &open));
    }
    Ok(SessionList {
        ts: clock::now().0,
        count: sessions.len(),
        limit_applied: limit,
        offset,
        next_offset: has_next.then_some(offset + limit),
        has_more: has_next || !is_all,
        sessions,
    })
}

/// The newest sessions that the client reaches, of this agent if one is named, and whether there are no others.
async fn newest_sessions(
    reach: &Reach,
    agent: Option<&AgentName>,
    count: usize,
) -> Result<(Vec<SessionRow>, bool), RpcError> {
    let (mut found, mut before, mut searched) = (Vec::new(), None, 0);
    while found.len() < count && searched < MAX_SEARCHED {
        let (rows, is_all) = reach.sessions_before(before, SESSIONS_PER_READ).await?;
        searched += rows.len();
        before = rows.first().map(|(id, _)| *id).or(before);
        let fitting = rows.into_iter().rev().filter_map(|(_, row)| row);
        found.extend(fitting.filter(|row| agent.is_none_or(|agent| *agent == row.agent)));
        if is_all {
            return Ok((found, true));
        }
    }
    Ok((found, false))
}

impl SessionEntry {
    fn new(row: &SessionRow, newest: Option<&RunRow>, open: &[RunRow]) -> Self {
        let is_active = |run: &&RunRow| run.session == row.id && is_open(run);
        let active_run_ids: Vec<RunId> = open.iter().filter(is_active).map(|run| run.id).collect();
        let updated = newest.map(|run| run.ended_at.or(run.started_at).unwrap_or(run.accepted_at));
        Self {
            key: row.key.to_string(),
            kind: "direct",
            session_id: row.id.to_string(),
            agent_id: row.agent.clone(),
            derived_title: row.title.clone(),
            created_at: row.opened_at.0,
            updated_at: updated.unwrap_or(row.opened_at).0,
            has_active_run: !active_run_ids.is_empty(),
            active_run_ids,
            status: newest.map(|run| match run.state {
                RunState::Ended => run.ended.as_ref().map_or("ended", |ended| ended.outcome.name()),
                RunState::Queued => "queued",
                RunState::Running => "running",
                RunState::Parked => "parked",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{Outcome, OutcomeDetail, SessionId, Timestamp};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_session_shows_what_its_newest_run_does() {
        let session = SessionRow::new(SessionId::from_bits(2), "s", Timestamp(1));
        let check = |newest: Option<&RunRow>, open: &[RunRow], expect: Value| {
            let mut shown = json!(SessionEntry::new(&session, newest, open));
            for field in ["key", "kind", "sessionId", "agentId", "createdAt"] {
                assert!(shown.as_object_mut().unwrap().remove(field).is_some());
            }
            assert_eq!(shown, expect);
        };
        check(None, &[], json!({ "updatedAt": 1, "hasActiveRun": false, "activeRunIds": [] }));
        let run = RunRow::new(RunId::from_bits(1), session.id, Timestamp(3), 1);
        let other = RunRow::new(RunId::from_bits(7), SessionId::from_bits(9), Timestamp(3), 1);
        check(
            Some(&run),
            &[run.clone(), other],
            json!({ "updatedAt": 3, "hasActiveRun": true, "activeRunIds": [run.id], "status": "queued" }),
        );
        let detail = OutcomeDetail { outcome: Outcome::Completed, cause: None };
        let ended =
            RunRow { state: RunState::Ended, ended: Some(detail), ended_at: Some(Timestamp(8)), ..run };
        check(
            Some(&ended),
            &[],
            json!({ "updatedAt": 8, "hasActiveRun": false, "activeRunIds": [], "status": "completed" }),
        );
    }
}
