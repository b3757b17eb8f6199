//! The methods, named as OpenClaw names them: a file for each group, and a line for each method in [`METHODS`].

mod agent;
mod chat;
mod chat_send;
mod events;
mod sessions;

use futures::{FutureExt as _, future::BoxFuture};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};

use super::{
    client::{Call, CallResult},
    error::RpcError,
    params,
};
use crate::{access::Scope, service::rpc::answer_budget::SMALL_ANSWER_BYTES};

pub(super) use agent::{AGENT, final_answer};

/// All methods.
pub(super) const METHODS: [Method; 8] = [
    agent::AGENT_METHOD,
    agent::WAIT_METHOD,
    chat_send::SEND_METHOD,
    chat::ABORT_METHOD,
    chat::HISTORY_METHOD,
    sessions::LIST_METHOD,
    events::SUBSCRIBE_METHOD,
    events::UNSUBSCRIBE_METHOD,
];

/// A method.
#[derive(Debug, Clone, Copy)]
pub(super) struct Method {
    pub(super) name: &'static str,
    /// What a token needs to call it.
    pub(super) scope: Scope,
    /// Most bytes of an answer.
    pub(super) max_answer_bytes: usize,
    pub(super) run: fn(Call, Option<Box<RawValue>>) -> BoxFuture<'static, CallResult>,
}

impl Method {
    /// A method whose answers are small.
    const fn new(
        name: &'static str,
        scope: Scope,
        run: fn(Call, Option<Box<RawValue>>) -> BoxFuture<'static, CallResult>,
    ) -> Self {
        Self { name, scope, max_answer_bytes: SMALL_ANSWER_BYTES, run }
    }

    /// The same method with answers of at most this size.
    const fn with_answers(self, max_answer_bytes: usize) -> Self {
        Self { max_answer_bytes, ..self }
    }
}

/// Most bytes of the answer to a call of this method.
pub(super) fn max_answer_bytes(name: &str) -> usize {
    find(name).map_or(SMALL_ANSWER_BYTES, |method| method.max_answer_bytes)
}

/// The method of this name.
pub(super) fn find(name: &str) -> Result<&'static Method, RpcError> {
    let method = METHODS.iter().find(|method| method.name == name);
    method.ok_or_else(|| RpcError::no_method(name, &names().join(", ")))
}

/// The names of all methods.
pub(super) fn names() -> [&'static str; METHODS.len()] {
    METHODS.map(|method| method.name)
}

/// Calls a method with the parameters that it declares.
fn run<P, R, F>(
    call: Call,
    params: Option<Box<RawValue>>,
    method: fn(Call, P) -> F,
) -> BoxFuture<'static, CallResult>
where
    P: DeserializeOwned + Send,
    R: Serialize,
    F: Future<Output = Result<R, RpcError>> + Send + 'static,
{
    let params = params::parse(params.as_deref());
    let called = params.map(|params| method(call, params));
    async move {
        let result = called?.await?;
        to_raw_value(&result).map_err(|error| RpcError::internal(error.to_string()))
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn methods_are_found_by_their_names() {
        assert_eq!(names().iter().collect::<BTreeSet<_>>().len(), METHODS.len());
        assert!(names().iter().all(|name| find(name).is_ok_and(|method| method.name == *name)));
        assert!(find("agents").is_err_and(|error| error.problem().detail().contains("agent.wait")));
    }
}
