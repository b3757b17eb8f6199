//! `POST /rpc`: a message of JSON-RPC in the body, and its answers in that of the response.

use axum::{
    extract::{FromRequest as _, Request},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use super::{
    answer_budget::MessageAnswers,
    client::Client,
    error::RpcError,
    message::{CallMessage, ParsedRequest, RejectedRequest, RequestId, write_answer},
};
use crate::service::{authorization::Presented, extract::JsonText};

/// Answers all requests of a message; notifications alone get status 204.
pub(super) async fn call(Presented(reach): Presented, request: Request) -> Response {
    let client = Client { reach, subscriptions: None };
    let body = match JsonText::from_request(request, &()).await {
        Ok(body) => body,
        Err(problem) => {
            let status = problem.status();
            let refused = write_answer(&RequestId::null(), &Err(RpcError::refused_message(problem)));
            return respond(status, refused);
        }
    };
    let message = CallMessage::parse(&body.bytes);
    drop(body);
    let made = MessageAnswers::default();
    let answers = message.requests.into_iter().map(|request| answer(&client, request, &made));
    let answers = join_all(answers).await;
    match encode(answers.into_iter().flatten().collect(), message.is_batch) {
        Some(text) => respond(StatusCode::OK, text),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

/// The answer to a request; `None` for a notification.
async fn answer(client: &Client, request: ParsedRequest, made: &MessageAnswers) -> Option<String> {
    match request {
        Ok(request) => {
            let answered = (CancellationToken::new(), made);
            let result = client.call(&request.method, request.params, answered).await;
            request.id.map(|id| write_answer(&id, &result))
        }
        Err(RejectedRequest { id, error }) => Some(write_answer(&id, &Err(error))),
    }
}

/// The answers of a message as one text; `None` if there are none.
pub(super) fn encode(answers: Vec<String>, is_batch: bool) -> Option<String> {
    if answers.is_empty() {
        return None;
    }
    Some(if is_batch { format!("[{}]", answers.join(",")) } else { answers.concat() })
}

fn respond(status: StatusCode, json: String) -> Response {
    let mut response = (status, json).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
