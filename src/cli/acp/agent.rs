//! The requests of a client: each is checked here, and passed on to its session.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, OnceLock},
};

use agent_client_protocol::{
    Client, Error, ErrorCode,
    schema::ProtocolVersion,
    v1::{
        ConnectionTo,
        schema::{
            AgentCapabilities, CloseSessionRequest, CloseSessionResponse, Implementation, InitializeRequest,
            InitializeResponse, ListSessionsRequest, ListSessionsResponse, LoadSessionRequest,
            LoadSessionResponse, McpServer, NewSessionRequest, NewSessionResponse, PromptCapabilities,
            PromptRequest, ResumeSessionRequest, ResumeSessionResponse, SessionCapabilities,
            SessionCloseCapabilities, SessionConfigOption, SessionId, SessionListCapabilities,
            SessionResumeCapabilities, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse,
            StopReason,
        },
    },
};
use serde_json::json;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};

use super::{
    options::{OptionCatalog, SessionOptions},
    prompt_content::PromptTask,
    session::{Session, SessionFront, SessionMessage, SessionPlace, to_error},
    session_list,
    transport::Window,
};
use crate::{
    cli::{print_note, shared_owner::SharedOwner},
    clock,
    control::SubmissionConversation,
};

/// Messages that wait for one session.
const MAX_WAITING_MESSAGES: usize = 64;
/// Prompts that were not given to the owner yet, each with up to a line of pictures.
const MAX_WAITING_PROMPTS: usize = 4;
/// Sessions that one client has open.
const MAX_SESSIONS: usize = 100;
/// How the keys of sessions begin that clients of ACP have begun.
pub(super) const KEY_PREFIX: &str = "acp-";

/// An open session: how its task is reached, and its options.
#[derive(Debug, Clone)]
struct OpenSession {
    mailbox: mpsc::Sender<SessionMessage>,
    options: SessionOptions,
    /// Whether the conversation has begun, so that its agent is known.
    has_begun: bool,
}

/// Hermod as an agent of ACP, for one client.
#[derive(Debug)]
pub(super) struct AcpAgent {
    owner: Arc<SharedOwner>,
    catalog: OptionCatalog,
    window: Arc<Window>,
    /// Whether the client shows forms; set by `initialize`.
    has_forms: OnceLock<bool>,
    sessions: Mutex<HashMap<SessionId, OpenSession>>,
    prompts: Arc<Semaphore>,
}

impl AcpAgent {
    /// The agent of a client that speaks through this window.
    pub(super) fn new(owner: SharedOwner, catalog: OptionCatalog, window: Arc<Window>) -> Self {
        Self {
            owner: Arc::new(owner),
            catalog,
            window,
            has_forms: OnceLock::new(),
            sessions: Mutex::default(),
            prompts: Arc::new(Semaphore::new(MAX_WAITING_PROMPTS)),
        }
    }

    /// What this agent can do.
    pub(super) fn initialize(&self, request: &InitializeRequest) -> InitializeResponse {
        let elicitation = request.client_capabilities.elicitation.as_ref();
        // A second handshake changes nothing.
        self.has_forms.get_or_init(|| elicitation.is_some_and(|elicitation| elicitation.form.is_some()));
        let prompts = PromptCapabilities::new().image(true).embedded_context(true);
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new());
        let can = AgentCapabilities::new().load_session(true).prompt_capabilities(prompts);
        InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(can.session_capabilities(sessions))
            .agent_info(Implementation::new("hermod", env!("CARGO_PKG_VERSION")).title("Hermod".to_owned()))
    }

    /// Makes a session. The store has it from its first prompt on.
    pub(super) async fn new_session(
        &self,
        request: NewSessionRequest,
        client: ConnectionTo<Client>,
    ) -> Result<NewSessionResponse, Error> {
        check_folder(&request.cwd)?;
        // The setup is checked before the user writes anything.
        self.owner.connect().await.map_err(|error| to_error(&error))?;
        let id = SessionId::new(format!("{KEY_PREFIX}{}", clock::ulid(&clock::SystemClock::default())));
        let conversation = SubmissionConversation::Key(id.to_string());
        let place = SessionPlace { id: id.clone(), conversation, folder: request.cwd };
        self.open(place, client, false).await?;
        let options = SessionOptions::default().shown(&self.catalog, false);
        let meta = ignored_servers(&request.mcp_servers);
        Ok(NewSessionResponse::new(id).config_options(options).meta(meta))
    }

    /// Opens a session of the store and shows what was said in it.
    pub(super) async fn load(
        &self,
        request: LoadSessionRequest,
        client: ConnectionTo<Client>,
    ) -> Result<LoadSessionResponse, Error> {
        let options = self.reopen(request.session_id, &request.cwd, (true, client)).await?;
        let meta = ignored_servers(&request.mcp_servers);
        Ok(LoadSessionResponse::new().config_options(options).meta(meta))
    }

    /// Opens a session of the store, of which the client shows what was said.
    pub(super) async fn resume(
        &self,
        request: ResumeSessionRequest,
        client: ConnectionTo<Client>,
    ) -> Result<ResumeSessionResponse, Error> {
        let options = self.reopen(request.session_id, &request.cwd, (false, client)).await?;
        let meta = ignored_servers(&request.mcp_servers);
        Ok(ResumeSessionResponse::new().config_options(options).meta(meta))
    }

    /// Opens a session of the store, or reads an open one again; returns its options.
    async fn reopen(
        &self,
        id: SessionId,
        folder: &Path,
        (is_shown, client): (bool, ConnectionTo<Client>),
    ) -> Result<Vec<SessionConfigOption>, Error> {
        check_folder(folder)?;
        let open = if let Ok(open) = self.find(&id).await {
            open
        } else {
            let found = self.owner.session(&id.0).await.map_err(|error| to_error(&error))?;
            let session = found.ok_or_else(|| unknown_session(&id))?.session;
            if let Some(reason) = session.quarantined {
                let text = format!("session `{id}` cannot be read: {reason}; see `hermod store check`");
                return Err(Error::new(ErrorCode::INTERNAL_ERROR, text));
            }
            let conversation = SubmissionConversation::Id(session.id.to_string());
            let place = SessionPlace { id, conversation, folder: folder.to_owned() };
            self.open(place, client, true).await?
        };
        let (done, is_done) = oneshot::channel();
        send(&open.mailbox, SessionMessage::Replay { is_shown, done })?;
        is_done.await.map_err(|_| closed())??;
        Ok(open.options.shown(&self.catalog, open.has_begun))
    }

    /// Starts the task of a session.
    async fn open(
        &self,
        place: SessionPlace,
        client: ConnectionTo<Client>,
        has_begun: bool,
    ) -> Result<OpenSession, Error> {
        let mut sessions = self.sessions.lock().await;
        if let Some(open) = sessions.get(&place.id) {
            return Ok(open.clone());
        }
        if sessions.len() >= MAX_SESSIONS {
            let text = format!("{MAX_SESSIONS} sessions are open; close one with `session/close`");
            return Err(Error::new(ErrorCode::INVALID_REQUEST, text));
        }
        let front = SessionFront {
            owner: Arc::clone(&self.owner),
            client,
            window: Arc::clone(&self.window),
            has_forms: self.has_forms.get() == Some(&true),
        };
        let (mailbox, messages) = mpsc::channel(MAX_WAITING_MESSAGES);
        let open = OpenSession { mailbox, options: SessionOptions::default(), has_begun };
        sessions.insert(place.id.clone(), open.clone());
        drop(sessions);
        tokio::spawn(Session::new(place, front).serve(messages));
        Ok(open)
    }

    async fn find(&self, id: &SessionId) -> Result<OpenSession, Error> {
        self.sessions.lock().await.get(id).cloned().ok_or_else(|| not_open(id))
    }

    /// Chooses an option of the next prompts; returns all options.
    pub(super) async fn choose(
        &self,
        request: SetSessionConfigOptionRequest,
    ) -> Result<SetSessionConfigOptionResponse, Error> {
        let mut sessions = self.sessions.lock().await;
        let open = sessions.get_mut(&request.session_id).ok_or_else(|| not_open(&request.session_id))?;
        let value = request.value.as_value_id().ok_or_else(|| {
            let text = format!("the value of `{}` is no id; choose one of its options", request.config_id.0);
            Error::new(ErrorCode::INVALID_PARAMS, text)
        })?;
        open.options
            .choose((&request.config_id.0, &value.0), (&self.catalog, open.has_begun))
            .map_err(|text| Error::new(ErrorCode::INVALID_PARAMS, text))?;
        send(&open.mailbox, SessionMessage::SetOptions(open.options.clone()))?;
        Ok(SetSessionConfigOptionResponse::new(open.options.shown(&self.catalog, open.has_begun)))
    }

    /// Gives a prompt to its session; the receiver gets its end. Prompts and cancellations keep their order.
    pub(super) async fn prompt(
        &self,
        request: PromptRequest,
    ) -> Result<oneshot::Receiver<Result<StopReason, Error>>, Error> {
        let open = self.find(&request.session_id).await?;
        let Ok(permit) = Arc::clone(&self.prompts).try_acquire_owned() else {
            let text = format!("{MAX_WAITING_PROMPTS} prompts wait to be accepted; send this one later");
            return Err(Error::new(ErrorCode::INVALID_REQUEST, text));
        };
        let task =
            PromptTask::new(request.prompt).map_err(|text| Error::new(ErrorCode::INVALID_PARAMS, text))?;
        let (reply, end) = oneshot::channel();
        send(&open.mailbox, SessionMessage::Prompt { task, permit, reply })?;
        if let Some(open) = self.sessions.lock().await.get_mut(&request.session_id) {
            open.has_begun = true;
        }
        Ok(end)
    }

    /// Stops what is under way in a session.
    pub(super) async fn cancel(&self, session: &SessionId) {
        let sent = match self.find(session).await {
            Ok(open) => send(&open.mailbox, SessionMessage::Cancel),
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            tracing::warn!(%session, error = error.message, "nothing is cancelled");
        }
    }

    /// Stops what is under way in a session, and forgets it here. The store keeps it.
    pub(super) async fn close(
        &self,
        request: CloseSessionRequest,
        _: ConnectionTo<Client>,
    ) -> Result<CloseSessionResponse, Error> {
        let open = self.sessions.lock().await.remove(&request.session_id);
        let open = open.ok_or_else(|| not_open(&request.session_id))?;
        let (done, is_done) = oneshot::channel();
        send(&open.mailbox, SessionMessage::Close(done))?;
        is_done.await.map_err(|_| closed())?;
        Ok(CloseSessionResponse::new())
    }

    /// The sessions of the store.
    pub(super) async fn list(
        &self,
        request: ListSessionsRequest,
        _: ConnectionTo<Client>,
    ) -> Result<ListSessionsResponse, Error> {
        session_list::list(&self.owner, request.cwd.as_deref()).await.map_err(|error| to_error(&error))
    }
}

fn send(mailbox: &mpsc::Sender<SessionMessage>, message: SessionMessage) -> Result<(), Error> {
    mailbox.try_send(message).map_err(|error| match error {
        mpsc::error::TrySendError::Full(_) => {
            let text = format!("{MAX_WAITING_MESSAGES} messages wait for this session; send this one later");
            Error::new(ErrorCode::INVALID_REQUEST, text)
        }
        mpsc::error::TrySendError::Closed(_) => closed(),
    })
}

fn closed() -> Error {
    Error::new(ErrorCode::INTERNAL_ERROR, "the session was closed; load it again with `session/load`")
}

fn not_open(id: &SessionId) -> Error {
    let text = format!("session `{id}` is not open; open it with `session/load` or `session/new`");
    Error::new(ErrorCode::RESOURCE_NOT_FOUND, text).data(json!({ "sessionId": id }))
}

fn unknown_session(id: &SessionId) -> Error {
    let text = format!(
        "there is no session `{id}`; `session/list` and `hermod sessions list` name those that are there. A session is kept \
         from its first prompt on"
    );
    Error::new(ErrorCode::RESOURCE_NOT_FOUND, text).data(json!({ "sessionId": id }))
}

fn check_folder(folder: &Path) -> Result<(), Error> {
    if folder.is_absolute() && folder.is_dir() {
        return Ok(());
    }
    let text = format!("cwd: `{}` is no folder; give the absolute path of one", folder.display());
    Err(Error::new(ErrorCode::INVALID_PARAMS, text))
}

/// Tells the client that its servers are not used; editors send all that are configured, so a refusal would be no help.
fn ignored_servers(servers: &[McpServer]) -> Option<serde_json::Map<String, serde_json::Value>> {
    if servers.is_empty() {
        return None;
    }
    let count = servers.len();
    let text = format!("{count} MCP servers of the editor are not used: Hermod has no MCP");
    print_note(&text);
    json!({ "hermod": { "ignored": { "mcpServers": count, "reason": text } } }).as_object().cloned()
}
