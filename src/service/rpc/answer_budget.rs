//! Bounds the bytes of answers that are made or wait until their client takes them. Calls wait for their share before
//! they begin, so a client that does not read costs no more.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use super::{client::CallResult, error::RpcError, message::MAX_BATCH};

/// Most bytes of the answers of a connection.
const MAX_UNSENT_BYTES: usize = 6 << 20;
/// Most bytes of the large answers of a message.
const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// Bytes of an answer of most methods, at most. Their calls may last; beside all of them there is space for a message.
pub(super) const SMALL_ANSWER_BYTES: usize = 16 << 10;

const _: () = assert!(MAX_MESSAGE_BYTES + MAX_BATCH * SMALL_ANSWER_BYTES <= MAX_UNSENT_BYTES);

/// The bytes that the answers of a connection may have. A clone is the same budget.
#[derive(Debug, Clone)]
pub(super) struct AnswerBudget(Arc<Semaphore>);

/// The bytes of an answer. They are free again when it is dropped.
#[derive(Debug)]
pub(super) struct AnswerShare(Option<OwnedSemaphorePermit>);

impl Default for AnswerBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_UNSENT_BYTES)))
    }
}

impl AnswerBudget {
    /// Waits until answers of this size, or of the largest size of a message, fit.
    pub(super) async fn reserve(&self, bytes: usize) -> AnswerShare {
        let bytes = u32::try_from(bytes.min(MAX_MESSAGE_BYTES)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        AnswerShare(Arc::clone(&self.0).acquire_many_owned(bytes).await.ok())
    }
}

impl AnswerShare {
    /// Frees what an answer of this size does not need.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        if let Some(permit) = &mut self.0 {
            let unused = permit.num_permits().saturating_sub(bytes);
            drop(permit.split(unused));
        }
    }
}

/// The bytes of the large answers of one message. They are made one after the other.
#[derive(Debug, Default)]
pub(super) struct MessageAnswers(Mutex<usize>);

impl MessageAnswers {
    /// Makes an answer of at most `max_bytes`; an error if the message might have too many then.
    pub(super) async fn make(&self, max_bytes: usize, call: impl Future<Output = CallResult>) -> CallResult {
        if max_bytes <= SMALL_ANSWER_BYTES {
            return call.await;
        }
        let mut made = self.0.lock().await;
        if *made + max_bytes > MAX_MESSAGE_BYTES {
            let text = format!(
                "the answers before have {made} bytes, and those of a batch together at most {MAX_MESSAGE_BYTES}; send the call again in another message"
            );
            return Err(RpcError::unavailable(text));
        }
        let result = call.await;
        *made += result.as_ref().map_or(0, |answer| answer.get().len());
        result
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::value::to_raw_value;

    use super::*;

    #[test]
    fn a_call_waits_until_answers_are_taken() {
        let budget = AnswerBudget::default();
        let large = || budget.reserve(2 << 20);
        let mut first = large().now_or_never().unwrap();
        let second = large().now_or_never().unwrap();
        let third = large().now_or_never().unwrap();
        assert!(large().now_or_never().is_none());
        first.shrink_to(1);
        assert!(large().now_or_never().is_none(), "one byte of the answer is left");
        drop(first);
        drop(large().now_or_never().unwrap());
        drop((second, third));
        assert!(budget.reserve(usize::MAX).now_or_never().is_some(), "the largest message fits");
    }

    #[test]
    fn a_small_share_is_not_enlarged() {
        let budget = AnswerBudget::default();
        let mut share = budget.reserve(5).now_or_never().unwrap();
        share.shrink_to(9);
        assert_eq!(budget.0.available_permits(), MAX_UNSENT_BYTES - 5);
        share.shrink_to(2);
        assert_eq!(budget.0.available_permits(), MAX_UNSENT_BYTES - 2);
        drop(share);
        assert_eq!(budget.0.available_permits(), MAX_UNSENT_BYTES);
    }

    #[test]
    fn the_large_answers_of_a_message_are_bounded() {
        let answers = MessageAnswers::default();
        let make = |max_bytes: usize, bytes: usize| {
            let call = async move { Ok(to_raw_value(&"x".repeat(bytes)).unwrap()) };
            answers.make(max_bytes, call).now_or_never().unwrap().is_ok()
        };
        let max = 2 << 20;
        assert!(make(max, 1_000) && make(max, max - 2_000) && make(max, max - 3_000));
        assert!(!make(max, 1));
        assert!(make(SMALL_ANSWER_BYTES, 1));
    }
}
