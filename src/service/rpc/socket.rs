//! `GET /rpc`: a WebSocket of JSON-RPC messages, and what both kinds of WebSockets have in common.
//!
//! One task serves a connection: it reads while nothing is to be written, so a client that does not read is not read
//! either, and is cut off. Calls are tasks whose answers wait in a bounded queue. All of them end with the connection; a
//! submission that is under way goes on.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::ws::{
        CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code, rejection::WebSocketUpgradeRejection,
    },
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use futures::future::join_all;
use serde_json::value::to_raw_value;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    answer_budget::{AnswerBudget, AnswerShare, MessageAnswers, SMALL_ANSWER_BYTES},
    client::Client,
    error::RpcError,
    framing::Framing,
    gateway,
    http::encode,
    message::{CallMessage, MAX_BATCH, ParsedRequest, RejectedRequest},
    methods,
    subscription::Subscriptions,
};
use crate::service::{authorization::Presented, extract::MAX_BODY_BYTES, problem::Problem, reach::Reach};

/// Interval of pings. The token is checked again with each.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Pings in a row that a client may leave without an answer; it is gone when the next one is due.
const MAX_UNANSWERED_PINGS: u32 = 3;
/// Time in which a client must take a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which a client must take the end of a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Most calls of a connection that are under way; a batch counts its calls.
const MAX_CALLS: usize = MAX_BATCH;
/// Most bytes of the messages whose calls are under way; two of the largest.
const MAX_RECEIVED_BYTES: usize = 2 * MAX_BODY_BYTES;
/// Most answers and events that wait for the client.
const MAX_QUEUED: usize = 16;
/// Bytes that an idle connection keeps for reading; a larger message gets more while it is read.
const READ_BUFFER_BYTES: usize = 8 << 10;
/// Most control frames of a client between two pings.
const MAX_CONTROL_FRAMES: usize = 600;

/// Opens a connection of JSON-RPC.
pub(super) async fn upgrade(
    Presented(reach): Presented,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    match accept(upgrade, MAX_BODY_BYTES) {
        Ok(upgrade) => upgrade.on_upgrade(async move |socket| {
            Connection::new(socket, reach, Framing::JsonRpc).serve().await;
        }),
        Err(problem) => problem.into_response(),
    }
}

/// An upgrade with messages of at most this size.
pub(super) fn accept(
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    max_bytes: usize,
) -> Result<WebSocketUpgrade, Problem> {
    let upgrade = upgrade.map_err(|rejection| {
        let text = format!("this path is a WebSocket: {}; see docs/rpc.md", rejection.body_text());
        Problem::new(StatusCode::UPGRADE_REQUIRED, text)
    })?;
    Ok(upgrade.read_buffer_size(READ_BUFFER_BYTES).max_message_size(max_bytes).max_frame_size(max_bytes))
}

/// A message that waits for the client.
#[derive(Debug)]
pub(super) struct OutgoingMessage {
    text: String,
    /// Of an answer; free once the message is written.
    share: Option<AnswerShare>,
}

impl From<String> for OutgoingMessage {
    fn from(text: String) -> Self {
        Self { text, share: None }
    }
}

/// Why a connection ends: the code and the reason of its last frame.
type CloseReason = (u16, &'static str);

/// A WebSocket whose client has a token.
pub(super) struct Connection {
    socket: WebSocket,
    client: Client,
    framing: Framing,
    subscriptions: Arc<Subscriptions>,
    /// Answers and events that are to be written.
    queue: mpsc::Receiver<OutgoingMessage>,
    outgoing: mpsc::Sender<OutgoingMessage>,
    calls: Arc<Semaphore>,
    /// Bytes of the messages whose calls are under way.
    received: Arc<Semaphore>,
    answers: AnswerBudget,
    tasks: JoinSet<()>,
    unanswered_pings: u32,
    control_frames: usize,
}

impl Connection {
    pub(super) fn new(socket: WebSocket, reach: Reach, framing: Framing) -> Self {
        let (outgoing, queue) = mpsc::channel(MAX_QUEUED);
        let subscriptions = Subscriptions::new(framing, outgoing.clone());
        let client = Client { reach, subscriptions: Some(Arc::clone(&subscriptions)) };
        Self {
            socket,
            client,
            framing,
            subscriptions,
            queue,
            outgoing,
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            received: Arc::new(Semaphore::new(MAX_RECEIVED_BYTES)),
            answers: AnswerBudget::default(),
            tasks: JoinSet::new(),
            unanswered_pings: 0,
            control_frames: 0,
        }
    }

    /// Serves the client until one of both ends the connection.
    pub(super) async fn serve(mut self) {
        let reason = self.run().await;
        self.subscriptions.close();
        self.tasks.abort_all();
        if let Some((code, text)) = reason {
            tracing::debug!(token = %self.client.reach.token().name, code, text, "a WebSocket is closed");
            close(self.socket, code, text).await;
        }
    }

    /// Returns why the connection is to be closed; `None` if the client is gone.
    async fn run(&mut self) -> Option<CloseReason> {
        let closing = self.client.reach.service().closing.clone();
        let mut pings = interval(PING_INTERVAL);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while self.tasks.try_join_next().is_some() {}
            let step = tokio::select! {
                () = closing.cancelled() => Err(Some((close_code::AWAY, "the service stops"))),
                Some(OutgoingMessage { text, share }) = self.queue.recv() => {
                    let sent = self.send(Message::Text(text.into())).await;
                    drop(share);
                    sent
                }
                _ = pings.tick() => self.ping().await,
                message = self.socket.recv() => match message {
                    Some(Ok(message)) => self.receive(message).await,
                    Some(Err(error)) => {
                        tracing::debug!(%error, "a WebSocket cannot be read");
                        Err(Some((close_code::PROTOCOL, "no valid frame, or one that is too large")))
                    }
                    None => Err(None),
                },
            };
            if let Err(reason) = step {
                return reason;
            }
        }
    }

    async fn send(&mut self, message: Message) -> Result<(), Option<CloseReason>> {
        match timeout(SEND_TIMEOUT, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            // What was written in part cannot be followed by the end of the connection.
            Ok(Err(_)) | Err(_) => Err(None),
        }
    }

    /// Asks the client for a sign of life, and checks its token.
    async fn ping(&mut self) -> Result<(), Option<CloseReason>> {
        if self.unanswered_pings >= MAX_UNANSWERED_PINGS {
            return Err(Some((close_code::POLICY, "no answer to pings")));
        }
        self.check_token()?;
        self.control_frames = 0;
        self.unanswered_pings += 1;
        self.send(Message::Ping(Vec::new().into())).await?;
        match self.framing.write_tick() {
            Some(tick) => self.send(Message::Text(tick.into())).await,
            None => Ok(()),
        }
    }

    fn check_token(&self) -> Result<(), Option<CloseReason>> {
        match self.client.is_valid() {
            true => Ok(()),
            false => Err(Some((close_code::POLICY, "the token is revoked or expired"))),
        }
    }

    async fn receive(&mut self, message: Message) -> Result<(), Option<CloseReason>> {
        match message {
            Message::Text(text) => {
                self.check_token()?;
                match self.framing.parse(text.as_str()) {
                    Some(message) => self.start(message, text.len()).await,
                    None => Ok(()),
                }
            }
            Message::Binary(_) => Err(Some((close_code::UNSUPPORTED, "messages are texts"))),
            Message::Close(_) => Err(None),
            Message::Ping(_) | Message::Pong(_) => {
                self.unanswered_pings = 0;
                self.control_frames += 1;
                match self.control_frames > MAX_CONTROL_FRAMES {
                    true => Err(Some((close_code::POLICY, "too many control frames"))),
                    false => Ok(()),
                }
            }
        }
    }

    /// Starts the calls of a message, or answers that too many are under way.
    async fn start(&mut self, message: CallMessage, bytes: usize) -> Result<(), Option<CloseReason>> {
        let acquire = |from: &Arc<Semaphore>, count: usize| {
            Arc::clone(from).try_acquire_many_owned(u32::try_from(count).unwrap_or(u32::MAX)).ok()
        };
        let count = message.requests.len();
        if let Some(permits) = acquire(&self.calls, count).zip(acquire(&self.received, bytes)) {
            let caller = self.caller();
            self.tasks.spawn(async move { caller.call(message, permits).await });
            return Ok(());
        }
        let error = RpcError::unavailable(format!(
            "{MAX_CALLS} calls of the connection are under way at most, with {MAX_RECEIVED_BYTES} bytes; wait for an answer, or open another connection"
        ));
        let answers = message.requests.into_iter().filter_map(|request| match request {
            Ok(request) => request.id,
            Err(RejectedRequest { id, .. }) => Some(id),
        });
        let answers = answers.map(|id| self.framing.write_answer(&id, &Err(error.clone()))).collect();
        match encode(answers, message.is_batch) {
            Some(text) => self.send(Message::Text(text.into())).await,
            None => Ok(()),
        }
    }

    fn caller(&self) -> Caller {
        Caller {
            client: self.client.clone(),
            framing: self.framing,
            outgoing: self.outgoing.clone(),
            budget: self.answers.clone(),
        }
    }
}

/// Makes the calls of a message, apart from the task of its connection.
struct Caller {
    client: Client,
    framing: Framing,
    outgoing: mpsc::Sender<OutgoingMessage>,
    budget: AnswerBudget,
}

impl Caller {
    /// Makes the calls. The permits are those of the calls, and of the bytes of their message.
    async fn call(self, message: CallMessage, permits: (OwnedSemaphorePermit, OwnedSemaphorePermit)) {
        let (calls, received) = permits;
        let mut share = self.budget.reserve(max_answer_bytes(&message.requests)).await;
        let (answered, made) = (CancellationToken::new(), MessageAnswers::default());
        let answers = message.requests.into_iter().map(|request| self.answer(request, (&answered, &made)));
        let (answers, later): (Vec<_>, Vec<_>) = join_all(answers).await.into_iter().flatten().unzip();
        drop(received);
        if let Some(text) = encode(answers, message.is_batch) {
            share.shrink_to(text.len());
            self.send(OutgoingMessage { text, share: Some(share) }).await;
        }
        answered.cancel();
        join_all(later.into_iter().flatten()).await;
        drop(calls);
    }

    /// The answer to a request, and what sends another one later; `None` for a notification.
    async fn answer(
        &self,
        request: ParsedRequest,
        (answered, made): (&CancellationToken, &MessageAnswers),
    ) -> Option<(String, Option<impl Future<Output = ()>>)> {
        let request = match request {
            Ok(request) => request,
            Err(RejectedRequest { id, error }) => {
                return Some((self.framing.write_answer(&id, &Err(error)), None));
            }
        };
        let result = self.client.call(&request.method, request.params, (answered.clone(), made)).await;
        let id = request.id?;
        let text = self.framing.write_answer(&id, &result);
        let has_more = self.framing.has_final_answers() && request.method == methods::AGENT;
        let accepted = result.ok().filter(|_| has_more);
        Some((
            text,
            accepted.map(|accepted| async move {
                let text = match methods::final_answer(&self.client.reach, &accepted).await {
                    Some(Ok(payload)) => match to_raw_value(&payload) {
                        Ok(payload) => self.framing.write_answer(&id, &Ok(payload)),
                        Err(error) => gateway::write_failed_run(&id, &error.to_string()),
                    },
                    Some(Err(reason)) => gateway::write_failed_run(&id, &reason),
                    None => return,
                };
                self.send(text.into()).await;
            }),
        ))
    }

    /// Queues a message; waits while the queue is full. A connection that is closed takes nothing.
    async fn send(&self, message: OutgoingMessage) {
        let (Ok(()) | Err(_)) = self.outgoing.send(message).await;
    }
}

/// Most bytes of the answers to these requests.
fn max_answer_bytes(requests: &[ParsedRequest]) -> usize {
    let bytes = |request: &ParsedRequest| match request {
        Ok(request) => methods::max_answer_bytes(&request.method),
        Err(_) => SMALL_ANSWER_BYTES,
    };
    requests.iter().map(bytes).sum()
}

/// Closes a connection. A client that does not take the reason is left without it.
pub(super) async fn close(mut socket: WebSocket, code: u16, reason: &'static str) {
    let frame = CloseFrame { code, reason: reason.into() };
    let closed = async {
        socket.send(Message::Close(Some(frame))).await?;
        // The client answers with its own last frame.
        while let Some(Ok(_)) = socket.recv().await {}
        Ok::<_, axum::Error>(())
    };
    let (Ok(_) | Err(_)) = timeout(CLOSE_TIMEOUT, closed).await;
}
