//! Messages to targets, for clients: lists, one message, and dead letters that are sent again.

use std::sync::Arc;

use hermod_actors::{
    Runtime,
    model::{DeliveryQuery, DeliveryState, StoredDelivery},
};

use super::{
    error::RequestError,
    handler::RequestHandler,
    protocol::{ControlRequest, ControlResponse},
    reader::StoreReader,
};
use crate::view::DeliveryView;

/// All states, the most urgent first.
const STATES: [DeliveryState; 3] = [DeliveryState::Dead, DeliveryState::Pending, DeliveryState::Delivered];
/// Most dead letters that one request sends again.
const MAX_RETRIES: usize = 10_000;

/// Which messages are listed.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    /// Those in this state; without one, those that are dead or pending.
    pub state: Option<DeliveryState>,
    /// Those for this target.
    pub target: Option<String>,
}

impl StoreReader {
    /// Messages to targets, at most `max` of each state.
    pub async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        max: usize,
    ) -> Result<Vec<DeliveryView>, RequestError> {
        let states = filter.state.map_or(&STATES[..2], |state| {
            STATES.iter().position(|known| *known == state).map_or(&[], |at| &STATES[at..=at])
        });
        let mut found = Vec::new();
        for state in states {
            let target = filter.target.as_deref().map(Arc::from);
            let query = DeliveryQuery { target, ..DeliveryQuery::of_state(*state, max) };
            found.extend(
                self.read(|rows| rows.deliveries(query)).await?.into_iter().map(DeliveryView::in_list),
            );
        }
        Ok(found)
    }

    /// The message with this id.
    pub async fn delivery(&self, id: &str) -> Result<StoredDelivery, RequestError> {
        let unknown =
            || RequestError::usage(format!("there is no message {id}; `hermod deliveries list` shows them"));
        self.find_delivery(id).await?.ok_or_else(unknown)
    }

    /// The message with this id, if there is one.
    pub async fn find_delivery(&self, id: &str) -> Result<Option<StoredDelivery>, RequestError> {
        for state in STATES {
            let query = DeliveryQuery { id: Some(id.into()), ..DeliveryQuery::of_state(state, 1) };
            if let Some(found) = self.read(|rows| rows.deliveries(query)).await?.into_iter().next() {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The dead letters that a retry names: the one with this id, else all for this target, else all.
    pub async fn dead_letters(
        &self,
        id: Option<&str>,
        target: Option<&str>,
    ) -> Result<Vec<StoredDelivery>, RequestError> {
        if let Some(id) = id {
            let found = self.delivery(id).await?;
            let state = found.delivery.state;
            if state != DeliveryState::Dead {
                return Err(RequestError::usage(format!(
                    "message {id} is {state}; only dead ones are sent again"
                )));
            }
            return Ok(vec![found]);
        }
        let query = DeliveryQuery {
            target: target.map(Arc::from),
            ..DeliveryQuery::of_state(DeliveryState::Dead, MAX_RETRIES)
        };
        self.read(|rows| rows.deliveries(query)).await
    }
}

impl RequestHandler {
    /// Answers a request about messages to targets; `None` if the runtime has ended.
    pub(super) async fn answer_about_deliveries(
        &self,
        request: ControlRequest,
    ) -> Result<Option<ControlResponse>, RequestError> {
        let reader = self.reader();
        #[expect(clippy::wildcard_enum_match_arm, reason = "the handler passes no other request")]
        Ok(Some(match request {
            ControlRequest::DeliveriesList { state, target, max } => {
                ControlResponse::Deliveries(reader.deliveries(&DeliveryFilter { state, target }, max).await?)
            }
            ControlRequest::DeliveriesShow { id } => {
                ControlResponse::Delivery(Box::new(DeliveryView::new(reader.delivery(&id).await?)))
            }
            ControlRequest::DeliveriesRetry { id, target } => {
                return Ok(self
                    .retry_deliveries(id.as_deref(), target.as_deref())
                    .await?
                    .map(ControlResponse::Deliveries));
            }
            _ => return Err(RequestError::internal("this is no request about messages")),
        }))
    }

    /// Sends the dead letters again that the arguments name, as [`StoreReader::dead_letters`] finds them.
    pub async fn retry_deliveries(
        &self,
        id: Option<&str>,
        target: Option<&str>,
    ) -> Result<Option<Vec<DeliveryView>>, RequestError> {
        let reader = self.reader();
        let dead = reader.dead_letters(id, target).await?;
        self.execute(async |runtime| retry(&runtime, reader, dead).await).await
    }
}

/// Makes dead letters pending again; returns them as they are then. Those that are not dead any more are left out.
pub async fn retry(
    runtime: &Runtime,
    reader: &StoreReader,
    dead: Vec<StoredDelivery>,
) -> Result<Vec<DeliveryView>, RequestError> {
    let mut retried = Vec::new();
    for StoredDelivery { number, delivery } in dead {
        if runtime.retry_delivery(number).await? {
            retried.push(DeliveryView::in_list(reader.delivery(&delivery.message.id).await?));
        }
    }
    Ok(retried)
}
