//! The connection with a client: requests are taken in their order, and answered when they are done.

use std::sync::Arc;

use agent_client_protocol::{
    Agent, Channel, Error, JsonRpcResponse, on_receive_notification, on_receive_request,
    v1::{
        Responder,
        schema::{
            CancelNotification, CloseSessionRequest, InitializeRequest, ListSessionsRequest,
            LoadSessionRequest, NewSessionRequest, PromptRequest, PromptResponse, ResumeSessionRequest,
            SetSessionConfigOptionRequest,
        },
    },
};

use super::{agent::AcpAgent, transport::Window};

/// A handler that answers a request when the method of the agent has ended.
macro_rules! handler {
    ($agent:expr, $request:ty, $method:ident) => {{
        let agent = Arc::clone($agent);
        async move |request: $request, responder, client| {
            let agent = Arc::clone(&agent);
            respond(responder, async move { agent.$method(request, client).await })
        }
    }};
}

/// Serves the client at the other end of `channel` until it closes its input.
pub(super) async fn serve(agent: &Arc<AcpAgent>, window: &Window, channel: Channel) -> Result<(), Error> {
    let [first, choosing, prompting, cancelling] = std::array::from_fn(|_| Arc::clone(agent));
    Agent
        .v1()
        .name("hermod")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _| {
                responder.respond(first.initialize(&request))
            },
            on_receive_request!(),
        )
        .on_receive_request(handler!(agent, NewSessionRequest, new_session), on_receive_request!())
        .on_receive_request(handler!(agent, LoadSessionRequest, load), on_receive_request!())
        .on_receive_request(handler!(agent, ResumeSessionRequest, resume), on_receive_request!())
        .on_receive_request(handler!(agent, ListSessionsRequest, list), on_receive_request!())
        .on_receive_request(handler!(agent, CloseSessionRequest, close), on_receive_request!())
        .on_receive_request(
            async move |request: SetSessionConfigOptionRequest, responder, _| {
                responder.respond_with_result(choosing.choose(request).await)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, _| {
                on_prompt(Arc::clone(&prompting), request, responder).await
            },
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |request: CancelNotification, _| {
                cancelling.cancel(&request.session_id).await;
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_with(channel, async |client| {
            client.incoming_closed().await;
            window.wait_until_answered().await;
            Ok(())
        })
        .await
}

/// Answers a request when `work` is done; the next request is taken at once.
fn respond<T: JsonRpcResponse + Send + 'static>(
    responder: Responder<T>,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<(), Error> {
    tokio::spawn(async move {
        if let Err(error) = responder.respond_with_result(work.await) {
            tracing::debug!(error = error.message, "an answer does not reach the client");
        }
    });
    Ok(())
}

/// Begins a prompt before the next message is taken: a cancellation behind it stops it.
async fn on_prompt(
    agent: Arc<AcpAgent>,
    request: PromptRequest,
    responder: Responder<PromptResponse>,
) -> Result<(), Error> {
    let session = request.session_id.clone();
    let mut end = match agent.prompt(request).await {
        Ok(end) => end,
        Err(error) => return responder.respond_with_error(error),
    };
    let cancellation = responder.cancellation();
    respond(responder, async move {
        let ended = tokio::select! {
            ended = &mut end => ended,
            () = cancellation.cancelled() => {
                agent.cancel(&session).await;
                end.await
            }
        };
        ended.map_err(|_| Error::internal_error())?.map(PromptResponse::new)
    })
}
