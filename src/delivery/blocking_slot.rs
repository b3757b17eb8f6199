//! Attempts that block a thread: writes of files and of standard output, and SMTP. A hung one must stop neither the
//! engine nor the end of the process, and nothing may be begun a second time beside it.

use std::{fmt::Debug, sync::Arc, thread, time::Duration};

use tokio::{
    sync::{Mutex, oneshot},
    time::timeout,
};

use super::verdict::SendResult;

/// Does one piece of work at a time, on a thread of its own. A clone is the same slot.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockingSlot(Arc<Mutex<()>>);

impl BlockingSlot {
    /// Does the work, and waits for it at most this long. What takes longer goes on, and holds the slot until it ends.
    pub(super) async fn run(
        &self,
        limit: Duration,
        work: impl FnOnce() -> SendResult + Send + 'static,
    ) -> SendResult {
        let temporary = |why: String| SendResult::Temporary { why, pause: None };
        let working = async {
            let turn = Arc::clone(&self.0).lock_owned().await;
            let (end, ended) = oneshot::channel();
            // Not a thread of the engine's pool: the end of the process would wait for it.
            let started = thread::Builder::new().name("hermod-delivery".to_owned()).spawn(move || {
                let result = work();
                drop(turn);
                // The task waits no more after the time limit.
                let (Ok(()) | Err(_)) = end.send(result);
            });
            match started {
                Ok(_) => ended.await.unwrap_or_else(|_| temporary("the attempt has crashed".to_owned())),
                Err(error) => temporary(format!("no thread can be started: {error}")),
            }
        };
        timeout(limit, working).await.unwrap_or_else(|_| temporary(format!("not done within {limit:?}")))
    }
}

/// Where messages for standard output go.
pub trait LineOutput: Debug + Send + Sync {
    /// Writes a line, and flushes it. This may block until the other end reads.
    fn write_line(&self, line: &str) -> Result<(), String>;
}

/// An output that all targets share, so that its lines come whole, and each once for each attempt.
#[derive(Debug, Clone)]
pub struct SharedOutput {
    output: Arc<dyn LineOutput>,
    slot: BlockingSlot,
}

impl SharedOutput {
    /// Writes to this output.
    pub fn new(output: Arc<dyn LineOutput>) -> Self {
        Self { output, slot: BlockingSlot::default() }
    }

    pub(super) async fn write(&self, limit: Duration, line: String) -> SendResult {
        let output = Arc::clone(&self.output);
        let work = move || match output.write_line(&line) {
            Ok(()) => SendResult::Delivered,
            Err(why) => SendResult::Temporary { why, pause: None },
        };
        self.slot.run(limit, work).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex as StdMutex, mpsc};

    use super::*;

    const LONG: Duration = Duration::from_mins(1);
    const SHORT: Duration = Duration::from_millis(20);

    /// Writes a line only when the test lets it.
    #[derive(Debug)]
    struct Gate {
        lines: StdMutex<Vec<String>>,
        open: StdMutex<mpsc::Receiver<()>>,
    }

    impl LineOutput for Gate {
        fn write_line(&self, line: &str) -> Result<(), String> {
            self.open.lock().unwrap().recv().map_err(|error| error.to_string())?;
            self.lines.lock().unwrap().push(line.to_owned());
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_hung_output_holds_up_its_own_lines_only_and_none_is_begun_beside_it() {
        let (opener, open) = mpsc::channel();
        let gate = Arc::new(Gate { lines: StdMutex::default(), open: StdMutex::new(open) });
        let output = SharedOutput::new(Arc::<Gate>::clone(&gate));
        for line in ["one", "two"] {
            let SendResult::Temporary { why, .. } = output.write(SHORT, line.to_owned()).await else {
                panic!()
            };
            assert_eq!(why, "not done within 20ms");
        }
        opener.send(()).unwrap();
        opener.send(()).unwrap();
        assert_eq!(output.write(LONG, "three".to_owned()).await, SendResult::Delivered);
        // `one` had begun; `two` had not, and comes only when it is tried again.
        assert_eq!(*gate.lines.lock().unwrap(), ["one", "three"]);
    }

    #[tokio::test]
    async fn a_crash_is_a_failed_attempt() {
        let result = BlockingSlot::default().run(LONG, || panic!("on purpose")).await;
        assert_eq!(result, SendResult::Temporary { why: "the attempt has crashed".into(), pause: None });
    }
}
