//! The client of a call: what its token reaches, and what it has open. A call is checked against the token each time, because a token
//! may be revoked while a connection lives.

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::http::StatusCode;
use futures::FutureExt as _;
use hermod_actors::model::{Hash, Hasher};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::{
    answer_budget::MessageAnswers,
    error::RpcError,
    methods::{self, Method},
    subscription::Subscriptions,
};
use crate::service::{authorization::require, problem::Problem, reach::Reach};

/// Who calls.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) reach: Reach,
    /// The events that it gets; `None` without a connection that could carry them.
    pub(super) subscriptions: Option<Arc<Subscriptions>>,
}

/// A call of a method.
pub(super) struct Call {
    pub(super) client: Client,
    /// Of the method and the parameters, as the client wrote them.
    pub(super) request_hash: Hash,
    /// Fires when the answer is on its way; events of the call come after it.
    pub(super) answered: CancellationToken,
}

/// The result of a call as JSON.
pub(super) type CallResult = Result<Box<RawValue>, RpcError>;

impl Client {
    /// Whether the token still counts.
    pub(super) fn is_valid(&self) -> bool {
        self.reach.service().tokens.is_valid(self.reach.token())
    }

    /// Calls a method of a message with these answers. `answered` is fired by the caller when it has sent them.
    pub(super) async fn call(
        &self,
        method: &str,
        params: Option<Box<RawValue>>,
        (answered, answers): (CancellationToken, &MessageAnswers),
    ) -> CallResult {
        let method = methods::find(method)?;
        self.check(method)?;
        let request_hash = hash(method.name, params.as_deref());
        let call = Call { client: self.clone(), request_hash, answered };
        let called = async {
            let called = AssertUnwindSafe((method.run)(call, params)).catch_unwind().await;
            called.unwrap_or_else(|_| {
                tracing::error!(method = method.name, "a call panicked");
                Err(RpcError::internal("the call failed in the service; see its log"))
            })
        };
        answers.make(method.max_answer_bytes, called).await
    }

    fn check(&self, method: &Method) -> Result<(), RpcError> {
        if !self.is_valid() {
            let text = "the token is revoked or expired; `hermod tokens create` makes a new one";
            return Err(Problem::new(StatusCode::UNAUTHORIZED, text).into());
        }
        Ok(require(self.reach.token(), method.scope)?)
    }
}

fn hash(method: &str, params: Option<&RawValue>) -> Hash {
    let mut hasher = Hasher::default();
    hasher.part(method.as_bytes());
    hasher.part(params.map_or("", RawValue::get).as_bytes());
    hasher.finish()
}
