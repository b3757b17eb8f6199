//! `sessions.list`: the sessions, the newest first.

use hermod_actors::model::{RunId, RunRow, RunState, SessionRow};
use serde::{Deserialize, Serialize};

use super::{Method, agent::is_open, chat::within, run};
use crate::{
    access::Scope,
    clock,
    service::{
        Service,
        rpc::{client::Call, error::RpcError, params},
    },
};

pub(super) const LIST_METHOD: Method =
    Method { name: "sessions.list", scope: Scope::Read, run: |call, params| run(call, params, list) };

/// Sessions of a list whose call names no limit, and of the longest one.
const DEFAULT_SESSIONS: usize = 100;
const MAX_SESSIONS: usize = 1_000;
/// The last session that an offset reaches.
const MAX_REACH: usize = 10_000;

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
    /// The offset of the next page.
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
    let service = &call.client.service;
    params::agent(&call.client.token, params.agent_id.as_deref())?;
    let limit = within("limit", params.limit, DEFAULT_SESSIONS, MAX_SESSIONS)?;
    let offset = params.offset;
    if offset > MAX_REACH - MAX_SESSIONS {
        let reason = format!("`{offset}` is too far; `GET /v1/sessions` has pages without a limit");
        return Err(RpcError::param("offset", reason));
    }
    let mut rows = service.handler.reader().read(|rows| rows.sessions(offset + limit + 1)).await?;
    rows.reverse();
    let has_more = rows.len() > offset + limit;
    let open = service.handler.reader().read(|rows| rows.open_runs()).await?;
    let mut sessions = Vec::new();
    for row in rows.iter().skip(offset).take(limit) {
        sessions.push(entry(service, row, &open).await?);
    }
    Ok(SessionList {
        ts: clock::now().0,
        count: sessions.len(),
        limit_applied: limit,
        offset,
        next_offset: has_more.then_some(offset + limit),
        has_more,
        sessions,
    })
}

async fn entry(service: &Service, row: &SessionRow, open: &[RunRow]) -> Result<SessionEntry, RpcError> {
    let newest = service.handler.reader().read(|rows| rows.runs(Some(row.id), 1)).await?;
    Ok(SessionEntry::new(row, newest.last(), open))
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
        let session = SessionRow { id: SessionId::from_bits(2), key: "s".into(), opened_at: Timestamp(1) };
        let check = |newest: Option<&RunRow>, open: &[RunRow], expect: Value| {
            let mut shown = json!(SessionEntry::new(&session, newest, open));
            for field in ["key", "kind", "sessionId", "createdAt"] {
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
