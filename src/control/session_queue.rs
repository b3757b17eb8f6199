//! Sets how the messages of a session queue, for clients.

use hermod_actors::model::QueueOverrides;

use super::{error::RequestError, handler::RequestHandler, protocol::ControlResponse};

/// Longest time without another message, in milliseconds: as long as the longest configured one.
const MAX_COLLECT_MS: u64 = 365 * 24 * 60 * 60 * 1_000;

impl RequestHandler {
    /// Sets how the messages of the session that `id` names queue; `None` if the runtime has ended.
    pub(super) async fn set_queue(
        &self,
        id: &str,
        queue: QueueOverrides,
    ) -> Result<Option<ControlResponse>, RequestError> {
        check_queue(&queue).map_err(|(field, why)| RequestError::usage(format!("queue.{field}: {why}")))?;
        let session = self.reader().session(id).await?.id;
        self.execute(async |runtime| {
            let row = runtime.set_queue(session, queue).await?;
            Ok(ControlResponse::SessionQueue(row.queue))
        })
        .await
    }
}

/// The field of a setting that cannot be taken, and why.
pub fn check_queue(queue: &QueueOverrides) -> Result<(), (&'static str, String)> {
    if queue.cap == Some(0) {
        return Err(("cap", "is 0; at least one message waits".to_owned()));
    }
    match queue.collect_ms {
        Some(ms) if !(1..=MAX_COLLECT_MS).contains(&ms) => {
            Err(("collect_ms", format!("is not between 1 and {MAX_COLLECT_MS}")))
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_has_bounds() {
        let check = |queue: QueueOverrides, expect: Option<&str>| {
            assert_eq!(check_queue(&queue).err().map(|(field, _)| field), expect);
        };
        check(QueueOverrides::default(), None);
        check(QueueOverrides { cap: Some(1), collect_ms: Some(1), ..QueueOverrides::default() }, None);
        check(QueueOverrides { cap: Some(0), ..QueueOverrides::default() }, Some("cap"));
        for ms in [0, MAX_COLLECT_MS + 1, u64::MAX] {
            check(QueueOverrides { collect_ms: Some(ms), ..QueueOverrides::default() }, Some("collect_ms"));
        }
    }
}
